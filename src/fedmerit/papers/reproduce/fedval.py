"""FedVal's three questions on Adult (SPEC A4, C): against baselines, other objectives, other shares of bad clients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedmerit.papers.reproduce.entry import WHOLE, Base, Reproduction, Scale, Setting
from fedmerit.papers.reproduce.fedval_tables import tell

PAPER = "FedVal: Mehrabi, de Lichy, McKay, He, Campbell, Towards Multi-Objective Statistically Fair Federated Learning"
ACCURACY, PARITY, OPPORTUNITY = "validated:accuracy", "validated:parity:sex", "validated:opportunity:sex"
UNSTATED = "the poster states neither data nor settings: Adult, a network 91-32-2, clients poisoned against women"


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
    """The poster has no setting to differ from: `paper` has more clients and rounds, as its figures may have."""
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
        tell=tell,
        see=("fedval.md",),
    ),
    Reproduction(
        name="fedval-objectives",
        paper=PAPER,
        about="Adult with 40 % poisoned clients: FedVal with one, two and three objectives",
        rows=OBJECTIVES,
        settings=_settings({WHOLE: 0.4}),
        tell=tell,
        see=("fedval.md",),
    ),
    Reproduction(
        name="fedval-ratios",
        paper=PAPER,
        about="Adult: FedVal and FedAvg with 0, 20, 40 and 60 % poisoned clients",
        rows=(FEDAVG, UNRANKED, SQUARED, ALONE),
        settings=_settings(RATIOS),
        tell=tell,
        see=("fedval.md",),
    ),
)
