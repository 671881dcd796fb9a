"""FedVal's three questions on Adult [FedVal]: against baselines, other objectives, other shares of bad clients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np

from fedmerit.core.types import Vector
from fedmerit.engine.run import Run
from fedmerit.papers.reproduce.cells import LEGEND, difference_cell, mean_cell
from fedmerit.papers.reproduce.charts import draw_bars
from fedmerit.papers.reproduce.reproduction import WHOLE, Base, Reproduction, Result, Scale, Setting, Studies
from fedmerit.study.study import Study
from fedmerit.study.text_table import TextTable
from fedmerit.tasks.federation import Split
from fedmerit.tasks.registry import make_task

PAPER = "FedVal: Mehrabi, de Lichy, McKay, He, Campbell, Towards Multi-Objective Statistically Fair Federated Learning"
ACCURACY, PARITY, OPPORTUNITY = "validated:accuracy", "validated:parity:sex", "validated:opportunity:sex"
UNSTATED = "the poster states neither data nor settings: Adult, a network 91-32-2, clients poisoned against women"
METRICS = ("accuracy", "parity difference", "opportunity difference", "weight of the poisoned")
PUBLISHED = "published: figures without numbers; nothing stands beside"
MEANING = (
    "measured on all test rows, which neither clients nor server use; parity difference: of the shares of "
    "women and men that are predicted to earn more; opportunity difference: the same among those who do"
)
MetricValues: TypeAlias = Mapping[str, Mapping[str, Vector]]
"""For each row and metric a value per seed."""


def tables(setting: Setting, studies: Studies) -> Result:
    """Two tables per part, of the metrics and of their differences to FedAvg; a picture of all parts."""
    by_part: list[TextTable] = []
    bars: dict[str, list[Vector]] = {}
    for part, study in studies.items():
        values = measure(study)
        by_part += [_values(part, study, values), _differences(part, study, values)]
        bars |= {" ".join(filter(None, (part, row))): list(metrics.values()) for row, metrics in values.items()}
    errors = {name: [1 - accuracy, parity, opportunity] for name, (accuracy, parity, opportunity, _) in bars.items()}
    names = ("error", *METRICS[1:3])
    return Result(tuple(by_part), {"bars": draw_bars(names, errors)}, (LEGEND, MEANING, PUBLISHED))


def measure(study: Study) -> MetricValues:
    """All metrics of the finished runs; the data of a seed is loaded once."""
    metrics = {row: {name: np.full(len(study.plan.seeds), np.nan) for name in METRICS} for row in study.rows}
    for place, seed in enumerate(study.plan.seeds):
        of_seed = [member for member in study.runs if member.seed == seed]
        task = make_task(of_seed[0].config)
        for member in of_seed:
            if str(member) not in study.unfinished:
                run = study.run(member.row, seed)
                predicted = task.learner.predict(run.model, task.federation.test.x)
                values = _on_test_rows(task.federation.test, predicted) | {METRICS[3]: _weight_of_poisoned(run)}
                for name, value in values.items():
                    metrics[member.row][name][place] = value
    return metrics


def _on_test_rows(test: Split, predicted: Any) -> dict[str, float]:
    women, positive, earns = test.attributes["sex"] == 0, predicted == 1, test.y == 1
    return {
        METRICS[0]: float((predicted == test.y).mean()),
        METRICS[1]: float(abs(positive[women].mean() - positive[~women].mean())),
        METRICS[2]: float(abs(positive[women & earns].mean() - positive[~women & earns].mean())),
    }


def _weight_of_poisoned(run: Run) -> float:
    """The weight of all poisoned clients together, as a mean over the rounds; NaN where there are none."""
    poisoned = {client for client, name in enumerate(run.ledger.names()) if "poisoned" in name}
    rounds = range(1, run.ledger.last_round() + 1)
    weights = [sum(client.weight for client in run.explain(index) if client.id in poisoned) for index in rounds]
    return float(np.mean(weights)) if poisoned else np.nan


def _values(part: str, study: Study, values: MetricValues) -> TextTable:
    rows = tuple((row, *(mean_cell(by_seed, 3) for by_seed in values[row].values())) for row in study.rows)
    return TextTable(_title(part, "Measured"), ("row", *METRICS), rows)


def _differences(part: str, study: Study, values: MetricValues) -> TextTable:
    baseline = values[study.plan.against]
    rows = tuple(_changes(row, values[row], baseline) for row in study.rows if row != study.plan.against)
    return TextTable(_title(part, f"Differences to {study.plan.against}, paired by seed"), ("row", *METRICS), rows)


def _changes(row: str, values: Mapping[str, Vector], baseline: Mapping[str, Vector]) -> tuple[str, ...]:
    return row, *(difference_cell(by_seed - baseline[name], 3) for name, by_seed in values.items())


def _title(part: str, title: str) -> str:
    return f"{title} ({part.replace('-', ' ')} %)" if part else title


def _row(name: str, *objectives: str, rank: str = "", rho: float = 0.5) -> Mapping[str, Any]:
    score = {"name": "weighted-mean", "weights": [1] * len(objectives)} | ({"rank": rank} if rank else {})
    recipe = {"name": "fedval", "priority": list(objectives), "score": score, "server": {"rho": rho}}
    return {"name": name, "recipe": recipe}


FEDAVG: Mapping[str, Any] = {"name": "FedAvg", "recipe": {"name": "fedavg"}}
BOTH = (ACCURACY, OPPORTUNITY)
UNRANKED = _row("FedVal, unranked", *BOTH)
SQUARED = _row("FedVal, squared", *BOTH, rank="squared")
ALONE = _row("FedVal, squared, rho 1", *BOTH, rank="squared", rho=1.0)
BASELINES = (
    FEDAVG,
    {"name": "q-FFL, q = 1", "recipe": {"name": "qffl", "strength": 1.0}},
    {"name": "agnostic, eta = 0.1", "recipe": {"name": "agnostic", "strength": 0.1}},
    UNRANKED,
    _row("FedVal, Borda", *BOTH, rank="borda"),
    SQUARED,
    ALONE,
)
OBJECTIVES = (
    FEDAVG,
    _row("accuracy alone", ACCURACY, rank="squared", rho=1.0),
    _row("parity alone", PARITY, rank="squared", rho=1.0),
    _row("opportunity alone", OPPORTUNITY, rank="squared", rho=1.0),
    _row("accuracy and parity", ACCURACY, PARITY, rank="squared", rho=1.0),
    _row("accuracy and opportunity", *BOTH, rank="squared", rho=1.0),
    _row("accuracy, parity, opportunity", ACCURACY, PARITY, OPPORTUNITY, rank="squared", rho=1.0),
)
RATIOS = {f"poisoned-{share:.0%}".rstrip("%"): share for share in (0.0, 0.2, 0.4, 0.6)}


def _adult(poisoned: float, clients: int, rounds: int) -> Base:
    return {
        "task": {
            "data": "adult",
            "partition": "dirichlet",
            "alpha": 1.0,
            "clients": clients,
            "model": "adult-mlp",
            "server": 1000,
            "kinds": {"poisoned": poisoned} if poisoned else {},
        },
        "train": {"lr": 0.05, "epochs": 2, "batch": 32},
        "run": {"rounds": rounds, "fraction": 1.0, "evaluate_every": 5},
    }


def _settings(parts: Mapping[str, float]) -> dict[Scale, Setting]:
    """The poster states no setting to differ from: `paper` has more clients and rounds, as its figures may have."""
    sizes: Mapping[Scale, tuple[int, int, float]] = {
        "small": (20, 20, 0.4),
        "medium": (50, 200, 0.3),
        "paper": (100, 1000, 0.4),
    }
    return {
        scale: Setting({part: _adult(share, clients, rounds) for part, share in parts.items()}, seconds, (UNSTATED,))
        for scale, (clients, rounds, seconds) in sizes.items()
    }


FEDVAL = (
    Reproduction(
        name="fedval-baselines",
        paper=PAPER,
        about="Adult with 40 % poisoned clients: FedVal against FedAvg, q-FFL and agnostic weights",
        rows=BASELINES,
        settings=_settings({WHOLE: 0.4}),
        make_result=tables,
        see=("fedval.md",),
    ),
    Reproduction(
        name="fedval-objectives",
        paper=PAPER,
        about="Adult with 40 % poisoned clients: FedVal with one, two and three objectives",
        rows=OBJECTIVES,
        settings=_settings({WHOLE: 0.4}),
        make_result=tables,
        see=("fedval.md",),
    ),
    Reproduction(
        name="fedval-ratios",
        paper=PAPER,
        about="Adult: FedVal and FedAvg with 0, 20, 40 and 60 % poisoned clients",
        rows=(FEDAVG, UNRANKED, SQUARED, ALONE),
        settings=_settings(RATIOS),
        make_result=tables,
        see=("fedval.md",),
    ),
)
