"""Metrics that an app's nodes report: which are facts, which one is the accuracy, and what to add if one is missing."""

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from flwr.app import MetricRecord, RecordDict

from fedmerit.core.facts import ATTRIBUTE, CLIENT_FACT, FACTS, IS_WORD, OF_TRAINING, SAMPLES, find_fact
from fedmerit.core.showing import printable
from fedmerit.flower.run_writer import PARTITION

_PREFIXES = ("", "eval_", "evaluation_", "val_", "validation_", "test_")
USUAL_KEYS: Mapping[str, tuple[str, ...]] = {
    "accuracy": tuple(f"{prefix}{name}" for name in ("accuracy", "acc") for prefix in _PREFIXES),
    "loss": tuple(f"{prefix}{name}" for name in ("loss", "logloss", "log_loss") for prefix in _PREFIXES),
}
"""The names under which apps report accuracy and loss, most usual first; `-` counts as `_`."""


def metrics_of(content: RecordDict) -> dict[str, Any]:
    """All metrics of a reply, from all of its MetricRecords."""
    return {name: value for record in content.metric_records.values() for name, value in record.items()}


def find_key(kind: str, contents: Collection[RecordDict]) -> str | None:
    """The first usual name of accuracy or loss that more than half of the replies report, or None.

    >>> find_key("accuracy", [RecordDict({"m": MetricRecord({"eval-acc": 0.5, "num-examples": 3})})])
    'eval-acc'
    """
    counts = Counter(name for content in contents for name in metrics_of(content))
    usual = {name.lower().replace("-", "_"): name for name, count in counts.items() if 2 * count > len(contents)}
    return next((usual[name] for name in USUAL_KEYS[kind] if name in usual), None)


def without_facts(content: RecordDict, required: Collection[str], weight: str) -> RecordDict:
    """Return a reply without the facts in its metrics, because a mean of facts means nothing in an app's results."""

    def is_fact(name: str) -> bool:
        named = name in FACTS or name in required or name.startswith((ATTRIBUTE, CLIENT_FACT))
        return name == PARTITION or (named and name not in OF_TRAINING)

    records: dict[str, Any] = dict(content.items())
    for key, record in content.metric_records.items():
        records[key] = MetricRecord({name: record[name] for name in record if name == weight or not is_fact(name)})
    return RecordDict(records)


def scalars(metrics: Mapping[str, Any], weight: str = "") -> dict[str, float]:
    """The metrics that are single numbers, under printable names and without the number of rows.

    `loss` becomes `mean loss`, because the ledger's own objective `loss` is scaled so that 1 is best.
    """
    single = {name: float(value) for name, value in metrics.items() if isinstance(value, float | int)}
    return {
        printable("mean loss" if name == "loss" else name, 80): value if math.isfinite(value) else math.nan
        for name, value in single.items()
        if name != weight
    }


def missing_line(names: Sequence[str], weight: str) -> str:
    """The line of a ClientApp that reports these facts.

    >>> missing_line(["labels", "attribute:sex", "seconds"], "num-examples")
    'metrics = MetricRecord({"num-examples": len(y), "seconds": seconds, **facts(y, classes, recipe, sex=sex)})'
    """
    entries, arguments = [f'"{weight}": len(y)'], list[str]()
    measured = [name for name in names if name != SAMPLES and find_fact(name).measure is not None]
    for name in names:
        if name == PARTITION:
            entries.append(f'"{PARTITION}": context.node_config["{PARTITION}"]')
        elif name not in measured and name != SAMPLES:
            entries.append(f'"{name}": {name}' if name.isidentifier() else f'"{name}": value')
    for name in measured:
        column = {"sharp": "Blurry"}.get(name, name.partition(":")[2].partition(IS_WORD)[0])
        if column:
            arguments.append(f"{column}={column}" if column.isidentifier() else f'**{{"{column}": column}}')
    if measured:
        entries.append(f"**facts({', '.join(('y', 'classes', *(['recipe', *arguments] if arguments else [])))})")
    return f"metrics = MetricRecord({{{', '.join(entries)}}})"
