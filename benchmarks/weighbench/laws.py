"""Which laws of `fedmerit.checks` do our recipes and Flower's strategies keep? Writes laws.md next to this file.

    python benchmarks/weighbench/laws.py

Every snippet of the page is run, and the page has what it printed. All of it takes half a minute on one core.
"""

from __future__ import annotations

import contextlib
import io
import logging
import random
import warnings
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import flwr.serverapp.strategy as flower
from flwr.serverapp.strategy import FedAvg

from fedmerit import LawResult, check_weighting, fedavg, robust
from fedmerit.checks import LAWS
from fedmerit.core.recipes import RECIPES
from fedmerit.flower import Merit

PAGE = Path(__file__).with_suffix(".md")
MARKS = {True: "yes", False: "**no**", None: "-"}
DP = "DifferentialPrivacy"
OURS: Mapping[str, Callable[[], Any]] = {name: make for name, (make, _) in RECIPES.items()} | {
    "Merit(fedavg())": lambda: Merit(fedavg()),
    "Merit(robust())": lambda: Merit(robust()),
}
THEIRS: Mapping[str, Callable[[], Any]] = {
    "FedAvg": flower.FedAvg,
    "FedProx": lambda: flower.FedProx(proximal_mu=0.1),
    "FedAvgM": lambda: flower.FedAvgM(server_momentum=0.9),
    "FedAdam": flower.FedAdam,
    "FedYogi": flower.FedYogi,
    "FedAdagrad": flower.FedAdagrad,
    "QFedAvg": lambda: flower.QFedAvg(client_learning_rate=0.1),
    "FedMedian": flower.FedMedian,
    "FedTrimmedAvg": flower.FedTrimmedAvg,
    "Krum": lambda: flower.Krum(num_malicious_nodes=1),
    "MultiKrum": lambda: flower.MultiKrum(num_malicious_nodes=1, num_nodes_to_select=5),
    "Bulyan": lambda: flower.Bulyan(num_malicious_nodes=1),
    f"{DP}ServerSideFixedClipping": lambda: flower.DifferentialPrivacyServerSideFixedClipping(FedAvg(), 0, 10, 10),
    f"{DP}ClientSideFixedClipping": lambda: flower.DifferentialPrivacyClientSideFixedClipping(FedAvg(), 0, 10, 10),
    f"{DP}ServerSideAdaptiveClipping": lambda: flower.DifferentialPrivacyServerSideAdaptiveClipping(FedAvg(), 0, 10),
    f"{DP}ClientSideAdaptiveClipping": lambda: flower.DifferentialPrivacyClientSideAdaptiveClipping(FedAvg(), 0, 10),
}
"""Flower's strategies, without noise; the settings that a name needs."""
METRICS = {"norm_bit": 1}
"""What clients of the adaptive clipping report."""
NOT_STRATEGIES = {"Result", "Strategy"}

HARNESS = '''\
import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import *
from fedmerit import fedavg, robust
from fedmerit.flower import InProcessGrid, Merit

def replies_to(strategy, spoil=lambda node, arrays, metrics: None, nodes=range(10)):
    """Ten nodes; node i has 10 (i + 1) rows and moves the model by about 1."""
    app = ClientApp()

    @app.train()
    def train(message, context):
        node = context.node_config["partition-id"]
        move = 1 + np.random.default_rng(node).uniform(-0.3, 0.3, (2, 3))
        arrays = {"w": message.content["arrays"]["w"].numpy() + np.float32(move)}
        metrics = {"num-examples": 10 * (node + 1), "train_loss": 1.0}
        if node not in nodes:
            raise RuntimeError("this node crashed")
        spoil(node, arrays, metrics)
        arrays = ArrayRecord({name: Array(one) for name, one in arrays.items()})
        content = RecordDict({"arrays": arrays, "metrics": MetricRecord(metrics)})
        return Message(content, reply_to=message)

    grid, model = InProcessGrid(app, 10), ArrayRecord({"w": Array(np.zeros((2, 3), np.float32))})
    return list(grid.send_and_receive(strategy.configure_train(1, model, ConfigRecord(), grid)))

def next_model(strategy, *spoil, nodes=range(10)):
    arrays, _ = strategy.aggregate_train(1, replies_to(strategy, *spoil, nodes=nodes))
    return "unchanged" if arrays is None else arrays["w"].numpy().astype(float).round(2).tolist()
'''


def faulty(line: str, strategy: str = "FedAvg()") -> str:
    """A snippet in which node 9 does this before it answers."""
    body = f"def spoil(node, arrays, metrics):\n    if node == 9:\n        {line}\n"
    return f"{body}\nprint(next_model({strategy}, spoil))\n"


DP_ADAPTIVE = f"{DP}ServerSideAdaptiveClipping(FedAvg(), 0.0, 10)"
SPLIT = """\
def split(node, arrays, metrics):  # node 9 registers as nodes 0 and 9, with half of its rows each
    if node in (0, 9):
        move = 1 + np.random.default_rng(9).uniform(-0.3, 0.3, (2, 3))
        arrays["w"], metrics["num-examples"] = np.float32(move), 50

"""
THEIR_SNIPPETS: Mapping[str, str] = {
    "equal clients": """\
strategy = Krum()
replies = replies_to(strategy, lambda node, arrays, metrics: arrays.update(w=np.eye(10, dtype=np.float32)[node]))
print(strategy.aggregate_train(1, replies)[0]["w"].numpy())  # node i sends the i-th axis
""",
    "split client": SPLIT
    + "print(next_model(FedMedian(), nodes=range(1, 10)))\nprint(next_model(FedMedian(), split))\n",
    "form of the model": """\
strategy = FedAvg()
replies = replies_to(strategy, lambda node, arrays, metrics: arrays.update(steps=np.array(7)))
print(np.array(7).dtype, strategy.aggregate_train(1, replies)[0]["steps"].numpy().dtype)
""",
    "zero update": faulty('arrays["w"][:] = 0', DP_ADAPTIVE),
    "nan update": faulty('arrays["w"][:] = np.nan'),
    "infinite update": faulty('arrays["w"][:] = np.inf'),
    "wrong shape": faulty('arrays["w"] = arrays["w"][[0, 1, 1]]'),
    "broadcast shape": faulty('arrays["w"] = 100 * arrays["w"][[0]]'),
    "missing array": faulty('arrays["v"] = arrays.pop("w")'),
    "nan claim": faulty('metrics["num-examples"] = float("nan")'),
    "infinite claim": faulty('metrics["num-examples"] = float("inf")'),
    "negative claim": faulty('arrays["w"][:] = 100\n        metrics["num-examples"] = -50'),
    "missing claim": faulty('del metrics["num-examples"]'),
    "further metric": faulty('metrics["accuracy"] = 0.5'),
    "all claims zero": """\
print(next_model(FedAvg(), lambda node, arrays, metrics: metrics.update({"num-examples": 0})))
""",
    "no test rows": """\
strategy = FedAvg()
replies = replies_to(strategy, lambda node, arrays, metrics: metrics.update({"num-examples": 0}))
print(strategy.aggregate_evaluate(1, replies))
""",
    "error reply": f"print(next_model({DP}ServerSideFixedClipping(FedAvg(), 0.0, 10.0, 10), nodes=range(9)))\n",
    "empty round": f"strategy = {DP_ADAPTIVE}\nreplies_to(strategy)\nprint(strategy.aggregate_train(1, []))\n",
    "unasked reply": """\
strategy, other = FedAvg(), FedAvg()
stranger = replies_to(other, lambda node, arrays, metrics: arrays.update(w=arrays["w"] * 100))[0]
replies = [*replies_to(strategy), stranger]  # to a message that this strategy has not sent
print(next_model(FedAvg()))
print(strategy.aggregate_train(1, replies)[0]["w"].numpy().astype(float).round(2).tolist())
""",
    "repeated reply": """\
strategy = FedAvg()
replies = replies_to(strategy)
again = [one for one in replies if one.metadata.src_node_id == 1009] * 9
print(next_model(FedAvg()))
print(strategy.aggregate_train(1, [*replies, *again])[0]["w"].numpy().astype(float).round(2).tolist())
""",
    "bounded influence": faulty('arrays["w"][:] = -1e6'),
    "bounded claim": faulty('arrays["w"][:] = -1\n        metrics["num-examples"] = 10**9'),
}
"""For each law that one of Flower's strategies breaks: a strategy that breaks it."""
OUR_SNIPPETS: Mapping[str, str] = {
    "bounded influence": faulty('arrays["w"][:] = -1e6', "Merit(fedavg())"),
    "bounded claim": faulty('arrays["w"][:] = -1\n        metrics["num-examples"] = 10**9', "Merit(fedavg())"),
    "split client": SPLIT
    + """\
strategy = Merit(robust())
print(next_model(Merit(robust()), nodes=range(1, 10)))
print(next_model(strategy, split))
print({client.id: round(client.weight, 3) for client in strategy.explain(1)})  # copies are excluded
""",
}
"""The same for our recipes."""
ISSUE = "[flower#{0}](https://github.com/flwrlabs/flower/issues/{0})".format
WHY: Mapping[str, str] = {
    "all claims zero": f"See {ISSUE(7708)}, and {ISSUE(7645)} for the older API",
    "no test rows": f"See {ISSUE(7708)}, and {ISSUE(7693)} for the older API",
    "error reply": "Flower's clipping wrappers skip such a round, because their noise is for a fixed number of clients",
    "form of the model": "The counter of batch normalisation becomes a float; FedAdam also makes float32 float64",
    "equal clients": "Krum and MultiKrum keep some of ten equal clients",
    "split client": "Medians, Krum and QFedAvg count clients, not rows; `robust` excludes copies",
    "bounded influence": "`robust`, `robust_server` and a few others keep it: they clip, filter or take medians",
    "bounded claim": "A cap keeps it, as in `adaptive` and `robust`",
}


def run(snippet: str) -> str:
    """What a snippet prints, or the error that ends it."""
    printed = io.StringIO()
    random.seed(1)  # Flower asks nodes in random order
    with contextlib.redirect_stdout(printed), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            exec(HARNESS + snippet, {"__name__": "snippet"})
        except Exception as error:
            print(f"{type(error).__module__}.{type(error).__name__}: {error}".replace("builtins.", ""))
    return printed.getvalue().strip()


def table(columns: Mapping[str, tuple[LawResult, ...]]) -> list[str]:
    """Laws x weightings; columns with the same results are joined."""
    joined: dict[tuple[bool | None, ...], list[str]] = {}
    for name, results in columns.items():
        joined.setdefault(tuple(result.passed for result in results), []).append(name)
    header = ["law", *(", ".join(names) for names in joined.values())]
    rows = [[name, *(MARKS[column[place]] for column in joined)] for place, name in enumerate(LAWS)]
    counts = ["failed", *(str(sum(one is False for one in column)) for column in joined)]
    return [f"| {' | '.join(row)} |" for row in (header, ["---", *[":-:"] * len(joined)], *rows, counts)]


def snippets(codes: Mapping[str, str], broken: Mapping[str, list[str]]) -> list[str]:
    """A section per broken law: who breaks it, the code, what it prints."""
    lines = []
    for name in (name for name in LAWS if name in broken):
        about = f"{LAWS[name].statement} {WHY.get(name, '')}".strip()
        lines += [f"### {name}", about + ("." if name in WHY else ""), f"Broken by {', '.join(broken[name])}."]
        lines += [f"```python\n{codes[name]}```", f"```text\n{run(codes[name])}\n```"]
    return lines


def broken_by(columns: Mapping[str, tuple[LawResult, ...]]) -> dict[str, list[str]]:
    """The weightings that break each law."""
    found: dict[str, list[str]] = {}
    for name, results in columns.items():
        for result in results:
            if result.passed is False:
                found.setdefault(result.law, []).append(f"`{name}`")
    return found


def short(name: str) -> str:
    return name.replace(DP, "DP")


def page() -> str:
    """The whole page."""
    logging.disable()
    ours = {name: check_weighting(make()) for name, make in OURS.items()}
    silent = {name: results[0].text for name, results in ours.items() if all(one.passed is None for one in results)}
    ours = {name: results for name, results in ours.items() if name not in silent}
    theirs = {short(name): check_weighting(make(), metrics=METRICS) for name, make in THEIRS.items()}
    missing = sorted(set(flower.__all__) - THEIRS.keys() - NOT_STRATEGIES)
    versions = ", ".join(f"{name} {version(name).partition('.dev')[0]}" for name in ("fedmerit", "flwr", "numpy"))
    breaking_ours, breaking_theirs = broken_by(ours), broken_by(theirs)
    most, least = (
        how(sum(one.passed is False for one in results) for results in theirs.values()) for how in (max, min)
    )
    nan, *ours_break, last = [len(breaking_theirs["nan update"]), *sorted(breaking_ours)]
    conclusion = (
        f"Each of Flower's {len(theirs)} strategies breaks {least} to {most} of {len(LAWS)} laws, most of them on "
        "faulty replies: a missing metric or an array of another shape from one client ends the run, and in "
        f"{nan} of them NaN reaches the model. Ours keep all laws on faulty replies, and break only "
        f"{', '.join(ours_break)} and {last}."
    )
    lines = [
        "# Laws of weightings",
        conclusion,
        "    python benchmarks/weighbench/laws.py",
        f"Versions: {versions}. 10 clients, a model of 22 numbers, replies made up by the law; no training. `yes`: the "
        "law holds, **no**: it does not, `-`: it does not apply. "
        "[`check_weighting(strategy)`](../../docs/api.md#check_weighting) says each cell in words.",
        "## Flower's strategies",
        "\n".join(table(theirs)),
        "Settings: `Krum`, `MultiKrum`, `Bulyan` with one malicious node, `MultiKrum` selects 5, `FedAvgM` with "
        "momentum 0.9. DP are the wrappers DifferentialPrivacy..., around `FedAvg` and without noise. They skip a "
        "round in which a reply is missing, and are then compared with the unchanged model, hence their "
        "`split client`. "
        f"Not checked, because their models are trees in bytes: {', '.join(missing)}.",
        "## Our recipes, and Merit on Flower",
        "\n".join(table(ours)),
        "No law applies to " + "; ".join(f"`{name}` ({text})" for name, text in silent.items()) + ".",
        "## What the laws state, and whom they protect",
        "\n".join(
            ["| law | states | protects |", "| --- | --- | --- |"]
            + [
                f"| {name} | {law.statement.replace('|', chr(92) + '|')} | {law.protects} |"
                for name, law in LAWS.items()
            ]
        ),
        "## Failing cases of Flower's strategies",
        "Each snippet follows these lines:",
        f"```python\n{HARNESS}```",
        *snippets(THEIR_SNIPPETS, breaking_theirs),
        "## Failing cases of ours",
        *snippets(OUR_SNIPPETS, breaking_ours),
    ]
    return "\n\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
