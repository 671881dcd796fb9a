"""Tables of others' papers and libraries: their settings as near as ours come, their numbers beside ours."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from fedmerit.core.types import Vector
from fedmerit.study.study import Study
from fedmerit.study.text_table import TextTable
from reproductions.reproduce.cells import LEGEND, UNKNOWN, difference_cell, mean_cell, printed
from reproductions.reproduce.fedval import MetricValues, agnostic, measure, qffl
from reproductions.reproduce.reproduction import WHOLE, Base, Reproduction, Result, Scale, Setting, Studies

Numbers: TypeAlias = tuple[float | None, ...]
"""What is printed for a row, a number per metric; None where none is."""


@dataclass(frozen=True, slots=True)
class Beside:
    """Per part a table of our rows with the printed numbers beside them, and one of paired differences.

    metrics     their names, in the order of the printed numbers
    measure     what the finished runs of a study give, by row and metric
    published   by part and row; rows that are printed and were not run have a line without ours
    """

    metrics: tuple[str, ...]
    measure: Callable[[Study], MetricValues]
    published: Mapping[str, Mapping[str, Numbers]]
    digits: int = 2

    def __call__(self, setting: Setting, studies: Studies) -> Result:
        """All parts, in their order."""
        tables = [table for part, study in studies.items() for table in self._of_part(part, study)]
        return Result(tuple(tables), notes=(LEGEND, "published: as printed in the source that stands above"))

    def _of_part(self, part: str, study: Study) -> tuple[TextTable, TextTable]:
        values, theirs = self.measure(study), self.published[part]
        names = [*study.rows, *(row for row in theirs if row not in study.rows)]
        header = ("row", *self.metrics, *(f"{metric}, published" for metric in self.metrics))
        lines = [(row, *self._ours(values.get(row)), *self._theirs(theirs.get(row))) for row in names]
        title = f" ({part})" if part else ""
        base = values[study.plan.against]
        apart = [
            (row, *(difference_cell(values[row][metric] - base[metric], self.digits) for metric in self.metrics))
            for row in study.rows
            if row != study.plan.against
        ]
        differences = f"Ours: differences to {study.plan.against}, paired by seed{title}"
        return (
            TextTable(f"Ours beside theirs{title}", header, tuple(lines)),
            TextTable(differences, ("row", *self.metrics), tuple(apart)),
        )

    def _ours(self, values: Mapping[str, Vector] | None) -> tuple[str, ...]:
        if values is None:
            return (UNKNOWN,) * len(self.metrics)
        return tuple(mean_cell(values[metric], self.digits) for metric in self.metrics)

    def _theirs(self, values: Numbers | None) -> tuple[str, ...]:
        return tuple(printed(value) for value in values or (None,) * len(self.metrics))


ACCURACY, VARIANCE, WORST = "accuracy, %", "variance", "worst client, %"
MEAN = "mean over clients, %"


def by_client(study: Study) -> MetricValues:
    """Of the last round's local tests: of all rows together, and over clients their mean, variance and worst."""
    seeds = list(study.plan.seeds)
    found = {
        row: {name: np.full(len(seeds), np.nan) for name in (ACCURACY, MEAN, VARIANCE, WORST)} for row in study.rows
    }
    for member in study.runs:
        if str(member) in study.unfinished:
            continue
        ledger = study.run(member.row, member.seed).ledger
        last = [(correct, size) for index, _, correct, size in ledger.evaluations() if index == ledger.last_round()]
        right, rows = np.array(last, dtype=np.float64).T
        local = 100 * right[rows > 0] / rows[rows > 0]
        metrics = (100 * right.sum() / rows.sum(), local.mean(), local.var(), local.min())
        for name, value in zip((ACCURACY, MEAN, VARIANCE, WORST), metrics, strict=True):
            found[member.row][name][seeds.index(member.seed)] = value
    return found


def make_row(title: str, name: str, **settings: Any) -> Mapping[str, Any]:
    """A row of a plan: a recipe by name under a title."""
    return {"name": title, "recipe": {"name": name, **settings}}


FEDAVG = make_row("FedAvg", "fedavg", normalise="sum")

PFLLIB_FINISH = 5
"""The last rounds of these are each client's own."""


def _grouped(until: int) -> Mapping[str, Any]:
    """Groups by the cosines of all rounds; models move by their group's whole aggregate."""
    return {
        "criteria": ["DataRatio"],
        "normalise": "max",
        "models": {
            "grouping": {"cut": "silhouette", "over": "all"},
            "reward": "whole",
            "training": "reset",
            "sigma": 2.0,
            "initial": 0.0,
            "until": until,
        },
    }


def _pfllib_rows(rounds: int) -> tuple[Mapping[str, Any], ...]:
    until = rounds - PFLLIB_FINISH
    return (
        FEDAVG,
        make_row("standalone", "standalone", normalise="sum"),
        make_row("FedAvg, fine-tuned", "finetuned", normalise="sum", models={"until": until}),
        make_row("FedAMP", "fedamp", normalise="max"),
        make_row("IFCA", "ifca", normalise="sum", models={"count": 4}),
        make_row("Ditto", "ditto", normalise="sum", models={"pull": 0.1}),
        make_row("ours: groups, finished", "m2f", **_grouped(until)),
    )


def _pfllib_base(model: str, rounds: int) -> Base:
    return {
        "task": {
            "data": "fashion-mnist",
            "partition": "dirichlet",
            "alpha": 0.1,
            "clients": 20,
            "model": model,
            "test": "matched",
        },
        "train": {"lr": 0.05, "epochs": 1, "batch": 10},
        "run": {"rounds": rounds, "fraction": 1.0, "evaluate_every": 5},
    }


PFLLIB_TESTS = "tests are Fashion-MNIST's own test rows, matched to each client's labels; there a quarter of all rows"
PFLLIB = Reproduction(
    "outside-pfllib",
    "PFLlib: Zhang et al., A Beginner-Friendly and Comprehensive Personalized Federated Learning Library and "
    "Benchmark, JMLR 26, 2025, and its leaderboard; a CNN, learning rate 0.005, 2,000 rounds",
    "Fashion-MNIST over 20 clients by Dir(0.1), batches of 10, one epoch: personal models",
    _pfllib_rows(20),
    {
        "small": Setting(
            {WHOLE: _pfllib_base("mnist-mlp", 20)},
            1.9,
            ("a dense network, 20 rounds, learning rate 0.05", PFLLIB_TESTS),
            rows=_pfllib_rows(20),
        ),
        "medium": Setting(
            {WHOLE: _pfllib_base("mnist-cnn", 40)},
            30.0,
            ("40 rounds, learning rate 0.05", PFLLIB_TESTS),
            rows=_pfllib_rows(40),
        ),
        "paper": Setting(
            {WHOLE: _pfllib_base("mnist-cnn", 2000)},
            30.0,
            ("learning rate 0.05", PFLLIB_TESTS),
            rows=_pfllib_rows(2000),
        ),
    },
    Beside(
        (ACCURACY, MEAN, WORST),
        by_client,
        {
            WHOLE: {
                "FedAvg": (85.85, None, None),
                "FedAMP": (97.20, None, None),
                "Ditto": (97.47, None, None),
                "FedCP": (97.89, None, None),
            }
        },
    ),
)


def _fair_base(model: str, rounds: int) -> Base:
    return {
        "task": {
            "data": "fashion-mnist",
            "partition": "label-groups",
            "groups": [[label] for label in range(10)],
            "clients": 10,
            "model": model,
            "test": "matched",
        },
        "train": {"lr": 0.1, "epochs": 1, "batch": "full"},
        "run": {"rounds": rounds, "fraction": 1.0, "evaluate_every": 10},
    }


FAIR = Reproduction(
    "outside-fair",
    "Table of FairMOO and of fair_flearn's baselines (q-FFL: Li et al., Fair Resource Allocation in Federated "
    "Learning, ICLR 2020; AFL: Mohri et al., Agnostic Federated Learning, ICML 2019)",
    "Fashion-MNIST, a label per client: accuracy, variance over clients in points squared, the worst client",
    (
        FEDAVG,
        make_row("q-FFL", **qffl(1.0)),
        make_row("AFL", **agnostic(0.1)),
        make_row("AFL, eta 0.01", **agnostic(0.01)),
    ),
    {
        "small": Setting({WHOLE: _fair_base("mnist-mlp", 200)}, 0.25, ("a dense network, whole batches, 200 rounds",)),
        "medium": Setting({WHOLE: _fair_base("mnist-cnn", 200)}, 20.0, ("whole batches, 200 rounds",)),
        "paper": Setting({WHOLE: _fair_base("mnist-cnn", 1000)}, 20.0, ("whole batches",)),
    },
    Beside(
        (ACCURACY, VARIANCE, WORST),
        by_client,
        {WHOLE: {"FedAvg": (88.20, 87.3, 66.6), "q-FFL": (89.02, 64.0, 75.5), "AFL": (84.93, 15.4, 79.0)}},
        digits=1,
    ),
)

OPPORTUNITY, PARITY = "opportunity difference", "parity difference"
VALIDATED = [{"name": f"validated:{name}", "rho": 1.0} for name in ("accuracy", "parity:sex", "opportunity:sex")]


def _dual_base(data: str, clients: int, server: int, rounds: int) -> Base:
    return {
        "task": {
            "data": data,
            "partition": "dirichlet",
            "alpha": 5.0,
            "clients": clients,
            "model": f"{data}-mlp",
            "server": server,
            "kinds": {"poisoned": 0.2},
            "attack": {"kind": "gauss", "share": 0.2, "strength": 100.0},
        },
        "train": {"lr": 0.05, "epochs": 2, "batch": 32},
        "run": {"rounds": rounds, "fraction": 1.0, "evaluate_every": 10},
    }


def _fedval(title: str, weights: tuple[int, ...], top: float = 0.5, **more: Any) -> Mapping[str, Any]:
    score = {"name": "weighted-mean", "weights": list(weights), "rank": "top", **({} if top == 0.5 else {"top": top})}
    return make_row(title, "fedval", criteria=VALIDATED, score=score, normalise="none", **more)


DUAL_ROWS = (
    FEDAVG,
    make_row("median", "fedavg", normalise="sum", server={"aggregator": "median"}),
    make_row("ours: robust", "robust", normalise="max"),
    _fedval("ours: FedVal, the better half", (1, 1, 1)),
    _fedval("ours: FedVal, the best 30 %", (2, 1, 1), top=0.3),
    _fedval("ours: FedVal, the best 30 %, clipped", (2, 1, 1), top=0.3, stages=[{"name": "clip", "times": 2.0}]),
)
"""In the last two accuracy counts twice; share and weights were chosen on seed 11, the clip on seeds 101 and 102."""
DUAL_DIFFERS = (
    "20 clients, a fifth of them with the labels of women flipped and a fifth that send noise a hundred times as long "
    "as their update, drawn apart from each other; the paper's malicious clients swap the sensitive attribute of their "
    "rows and add noise to their updates",
    "rows at the server: 1,000 of Adult's, 500 of COMPAS'; the paper's server has a few and makes more of them",
)


def _dual_setting(clients: int, rounds: int, seconds: float) -> Setting:
    bases = {"adult": _dual_base("adult", clients, 1000, rounds), "compas": _dual_base("compas", clients, 500, rounds)}
    return Setting(bases, seconds, DUAL_DIFFERS)


DUAL = Reproduction(
    "outside-dual",
    "GuardFed: Li et al., A Trustworthy Federated Learning Framework Against Dual-Facet Attacks, arXiv:2511.09294",
    "Adult and COMPAS under attacks on accuracy and on fairness at once: who holds both?",
    DUAL_ROWS,
    {
        "small": _dual_setting(20, 20, 0.3),
        "medium": _dual_setting(20, 100, 0.3),
        "paper": _dual_setting(20, 500, 0.3),
    },
    Beside(
        ("accuracy", OPPORTUNITY, PARITY),
        measure,
        {
            "adult": {"FedAvg": (0.7543, None, None), "their best defence": (0.8203, 0.046, 0.062)},
            "compas": {"their best defence": (0.6431, 0.124, 0.045)},
        },
        digits=3,
    ),
)

HEART_BASE: Base = {
    "task": {"data": "heart-disease"},
    "train": {"lr": 0.003, "epochs": 2, "batch": 4},
    "run": {"rounds": 15, "fraction": 1.0, "evaluate_every": 5},
}
HEART_ROUNDS: Mapping[Scale, int] = {"small": 15, "medium": 30, "paper": 60}
YOGI = {"optimizer": {"name": "yogi", "lr": 0.03, "beta2": 0.999}}
HEART = Reproduction(
    "outside-heart",
    "FLamby: Ogier du Terrail et al., Datasets and Benchmarks for Cross-Silo Federated Learning in Realistic "
    "Healthcare Settings, NeurIPS 2022",
    "Heart disease at four hospitals, logistic regression: the mean accuracy over hospitals",
    (
        FEDAVG,
        make_row("FedYogi", "fedavg", normalise="sum", server=YOGI),
        {**make_row("LD > DS", "prioritized", criteria=["LD", "DS"], normalise="max"), "train": {"lr": 0.01}},
        {**make_row("AFL", **agnostic(0.1)), "train": {"lr": 0.1}},
        make_row("standalone", "standalone", normalise="sum"),
    ),
    {
        scale: Setting(
            {WHOLE: {**HEART_BASE, "run": {**HEART_BASE["run"], "rounds": rounds}}},
            0.05,
            (
                "two epochs a round in place of 100 updates; learning rates chosen on validation rows and "
                "other seeds (reproductions.experiments.heart): 0.003, LD > DS 0.01, AFL 0.1; standalone has FedAvg's",
            ),
        )
        for scale, rounds in HEART_ROUNDS.items()
    },
    Beside(
        (MEAN, WORST),
        by_client,
        {WHOLE: {"FedAvg": (68.5, None), "FedYogi": (73.1, None), "pooled": (73.5, None)}},
        digits=1,
    ),
)

OUTSIDE = (PFLLIB, FAIR, DUAL, HEART)
