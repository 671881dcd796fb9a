"""FedVal's questions [FedVal]: baselines, objectives, shares and kinds of bad clients, other data, the server's set."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from fedmerit.core.types import Vector
from fedmerit.engine.finished import Run
from fedmerit.study.study import Study
from fedmerit.study.text_table import TextTable
from fedmerit.tasks.attackers import KINDS
from fedmerit.tasks.federation import Split
from fedmerit.tasks.registry import make_task
from reproductions.reproduce.cells import LEGEND, difference_cell, mean_cell
from reproductions.reproduce.charts import draw_bars
from reproductions.reproduce.reproduction import WHOLE, Base, Reproduction, Result, Scale, Setting, Studies

PAPER = "FedVal: Mehrabi, de Lichy, McKay, He, Campbell, Towards Multi-Objective Statistically Fair Federated Learning"
ACCURACY, PARITY, OPPORTUNITY = "validated:accuracy", "validated:parity:sex", "validated:opportunity:sex"
METRICS = ("accuracy", "parity difference", "opportunity difference", "weight of the planted")
PUBLISHED = "published: figures without numbers; nothing stands beside"
MEANING = (
    "measured on all test rows, which neither clients nor server use; parity difference: of the shares of women and "
    "men that are predicted the label 1; opportunity difference: the same among those who have it; weight of the "
    "planted: of all planted clients together, as a mean over the rounds"
)
MetricValues: TypeAlias = Mapping[str, Mapping[str, Vector]]
"""For each row and metric a value per seed."""


@dataclass(frozen=True, slots=True)
class Tables:
    """Two tables per part, of the metrics and of their differences to FedAvg; a picture of all parts.

    `unit` stands after a part's name in titles.
    """

    unit: str = ""

    def __call__(self, setting: Setting, studies: Studies) -> Result:
        """All parts, in their order."""
        by_part: list[TextTable] = []
        bars: dict[str, list[Vector]] = {}
        for part, study in studies.items():
            values, title = measure(study), part.replace("-", " ").replace("_", " ") + self.unit
            by_part += [_values(title, study, values), _differences(title, study, values)]
            bars |= {" ".join(filter(None, (part, row))): list(metrics.values()) for row, metrics in values.items()}
        errors = {
            name: [1 - accuracy, parity, opportunity] for name, (accuracy, parity, opportunity, _) in bars.items()
        }
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
                values = _on_test_rows(task.federation.test, predicted) | {METRICS[3]: _weight_of_planted(run)}
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


def _weight_of_planted(run: Run) -> float:
    """The weight of all planted clients together, as a mean over the rounds; NaN where there are none."""
    planted = {client for client, name in enumerate(run.ledger.names()) if name.rpartition(" ")[2] in KINDS}
    rounds = range(1, run.ledger.last_round() + 1)
    weights = [sum(client.weight for client in run.explain(index) if client.id in planted) for index in rounds]
    return float(np.mean(weights)) if planted else np.nan


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
    return f"{title} ({part})" if part else title


def _row(name: str, *objectives: str, rank: str = "", rho: float = 0.5) -> Mapping[str, Any]:
    score = {"name": "weighted-mean", "weights": [1] * len(objectives)} | ({"rank": rank} if rank else {})
    criteria = [{"name": objective, "rho": rho} for objective in objectives]
    recipe = {"name": "fedval", "criteria": criteria, "score": score, "normalise": "none"}
    return {"name": name, "recipe": recipe}


def qffl(q: float) -> Mapping[str, Any]:
    """q-FedAvg with this power of the loss."""
    return {"name": "qffl", "criteria": [{"name": "LossPower", "q": q}], "normalise": "max"}


def agnostic(eta: float) -> Mapping[str, Any]:
    """Agnostic weights with this step."""
    return {"name": "agnostic", "criteria": [{"name": "Agnostic", "eta": eta}], "normalise": "max"}


FEDAVG: Mapping[str, Any] = {"name": "FedAvg", "recipe": {"name": "fedavg", "normalise": "sum"}}
BOTH = (ACCURACY, OPPORTUNITY)
UNRANKED = _row("FedVal, unranked", *BOTH)
SQUARED = _row("FedVal, squared", *BOTH, rank="squared")
ALONE = _row("FedVal, squared, rho 1", *BOTH, rank="squared", rho=1.0)
BASELINES = (
    FEDAVG,
    {"name": "q-FFL, q = 1", "recipe": qffl(1.0)},
    {"name": "agnostic, eta = 0.1", "recipe": agnostic(0.1)},
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
SERVER_ROWS = (100, 300, 1000, 5000)
SERVERS = (FEDAVG, *({**ALONE, "name": f"{rows:,} rows", "task": {"server": rows}} for rows in SERVER_ROWS))
"""The same recipe with other rows at the server; the clients have the others."""


@dataclass(frozen=True, slots=True)
class Part:
    """One federation: which data, which kind of clients is planted and what share of them, the server's rows.

    `most` is the largest number of clients that the data is enough for.
    """

    data: str = "adult"
    kind: str = "poisoned"
    share: float = 0.4
    server: int = 1000
    most: int = 100

    def base(self, clients: int, rounds: int) -> Base:
        """What all rows share."""
        return {
            "task": {
                "data": self.data,
                "partition": "dirichlet",
                "alpha": 1.0,
                "clients": min(clients, self.most),
                "model": f"{self.data}-mlp",
                "server": self.server,
                "kinds": {self.kind: self.share} if self.share else {},
            },
            "train": {"lr": 0.05, "epochs": 2, "batch": 32},
            "run": {"rounds": rounds, "fraction": 1.0, "evaluate_every": 5},
        }


RATIOS = {f"poisoned-{100 * share:.0f}": Part(share=share) for share in (0.0, 0.2, 0.4, 0.6)}
BAD_KINDS = {kind: Part(kind=kind) for kind in KINDS if kind != "poisoned"}
OTHER_DATA = {
    "compas": Part("compas", server=500, most=20),
    "german-credit": Part("german-credit", server=100, most=20),
}


def _settings(parts: Mapping[str, Part], smaller: float = 1.0) -> dict[Scale, Setting]:
    """The poster states no setting to differ from: `paper` has more clients and rounds, as its figures may have.

    `smaller` is the time of a round as a part of Adult's.
    """
    sizes: Mapping[Scale, tuple[int, int, float]] = {
        "small": (20, 20, 0.4),
        "medium": (50, 200, 0.3),
        "paper": (100, 1000, 0.4),
    }
    return {
        scale: Setting(
            {name: part.base(clients, rounds) for name, part in parts.items()}, smaller * seconds, (_unstated(parts),)
        )
        for scale, (clients, rounds, seconds) in sizes.items()
    }


def _unstated(parts: Mapping[str, Part]) -> str:
    data = " and ".join(dict.fromkeys(part.data for part in parts.values()))
    kinds = dict.fromkeys(part.kind.replace("_", " ") for part in parts.values() if part.share)
    planted = f"{kinds.popitem()[0]} clients" if len(kinds) == 1 else f"clients of {len(kinds)} kinds, one at a time,"
    return f"the poster states neither data nor settings: {data}, a small dense network, {planted} planted"


def _reproduction(
    name: str,
    about: str,
    rows: Iterable[Mapping[str, Any]],
    parts: Mapping[str, Part] | None = None,
    *,
    unit: str = "",
    smaller: float = 1.0,
) -> Reproduction:
    settings = _settings(parts or {WHOLE: Part()}, smaller)
    return Reproduction(name, PAPER, about, tuple(rows), settings, Tables(unit))


FEDVAL = (
    _reproduction(
        "fedval-baselines",
        "Adult with 40 % poisoned clients: FedVal against FedAvg, q-FFL and agnostic weights",
        BASELINES,
    ),
    _reproduction(
        "fedval-objectives",
        "Adult with 40 % poisoned clients: FedVal with one, two and three objectives",
        OBJECTIVES,
    ),
    _reproduction(
        "fedval-ratios",
        "Adult: FedVal and FedAvg with 0, 20, 40 and 60 % poisoned clients",
        (FEDAVG, UNRANKED, SQUARED, ALONE),
        RATIOS,
        unit=" %",
    ),
    _reproduction(
        "fedval-kinds",
        "Adult with 40 % biased, imbalanced or poor clients or free riders: FedVal and FedAvg",
        (FEDAVG, SQUARED, ALONE),
        BAD_KINDS,
    ),
    _reproduction(
        "fedval-data",
        "COMPAS and German credit with 40 % poisoned clients: FedVal and FedAvg",
        (FEDAVG, UNRANKED, SQUARED, ALONE),
        OTHER_DATA,
        smaller=0.2,
    ),
    _reproduction(
        "fedval-server",
        "Adult with 40 % poisoned clients: FedVal with 100 to 5,000 rows at the server",
        SERVERS,
    ),
)
