"""Who takes part: which module runs in which environment, with which threads, and what the issue asks us to reach."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

DEFAULT_AND_ONE = (None, 1)


@dataclass(frozen=True)
class Contender:
    """One way to do the rounds; `threads` lists the settings that are tried, of which the fastest counts."""

    name: str
    label: str
    environment: str
    module: str
    variant: str = ""
    threads: tuple[int | None, ...] = (None,)


CONTENDERS: Mapping[str, Contender] = {
    contender.name: contender
    for contender in (
        Contender("ours", "fedmerit, 2 workers", "ours", "ours.rounds"),
        Contender(
            "best-2x1", "bare PyTorch, best by hand, 2 processes x 1 thread", "ours", "peers.bare_torch", "best-2x1"
        ),
        Contender(
            "last-2x1",
            "bare PyTorch, by hand, channels last + kept columns, 2 processes x 1 thread",
            "ours",
            "peers.bare_torch",
            "last-2x1",
        ),
        Contender("plain-2x1", "bare PyTorch, plain, 2 processes x 1 thread", "ours", "peers.bare_torch", "plain-2x1"),
        Contender("plain-1x2", "bare PyTorch, plain, 1 process x 2 threads", "ours", "peers.bare_torch", "plain-1x2"),
        Contender("flower", "Flower 1.41 simulation (Ray)", "flower", "peers.flower"),
        Contender("pfl", "pfl 0.6, 1 process", "pfl", "peers.pfl", threads=DEFAULT_AND_ONE),
        Contender("fluke", "fluke 0.8.1, 1 process", "fluke", "peers.fluke", threads=DEFAULT_AND_ONE),
        Contender("fedlab", "FedLab 1.3, 1 process", "fedlab", "peers.fedlab", threads=DEFAULT_AND_ONE),
    )
}

BARE_TARGETS = {"best-2x1": 0.97, "last-2x1": 0.97, "plain-2x1": 1.25, "plain-1x2": 1.25}
TARGETS: Mapping[str, Mapping[str, float]] = {
    "W1": BARE_TARGETS | {"flower": 1.3, "pfl": 1.8, "fluke": 1.8, "fedlab": 1.8},
    "W1f": BARE_TARGETS,
    "W2": BARE_TARGETS,
    "W3": {"flower": 20.0, "pfl": 3.0, "fluke": 3.0, "fedlab": 3.0},
}
"""The least ratio (their seconds / ours) that we aim at."""

LEAST_BANDWIDTH = 0.7  # W4: share of the read bandwidth
MOST_FOR_SIX = {"W4": 2.5, "W5": 6.0}  # times the seconds of one weighting, of one model
MOST_WITHOUT_ONE = 1.1  # W4: times the seconds of one weighting where nobody is left out
MOST_GROWTH = 1.5  # W6: seconds per round from the fewest to the most clients
MOST_BYTES = 200  # W6: per registered client


@dataclass(frozen=True)
class Aim:
    """What a part of a work should reach: it / `under` or `over` / it in CPU seconds, else its CPU seconds or share."""

    limit: float
    over: str = ""
    under: str = ""
    share: bool = False
    least: bool = False


MODULES = ("CNN as a class", "ResNet-8 with batch-norm", "LSTM, Shakespeare's shape", "transformer of 2 layers")
LOOPS = {"bare, best by hand": 0.97, "bare, channels last + kept columns": 0.97, "bare, plain": 1.25}
AIMS: Mapping[str, Mapping[str, Aim]] = {
    "W7": {f"{name}, fedmerit": Aim(0.97, over=f"{name}, bare loop", least=True) for name in MODULES},
    "W8": {
        "fedmerit --help": Aim(0.25),
        "fedmerit weigh examples/clients.csv": Aim(0.5),
        "fedmerit run examples/digits.toml": Aim(1.1, under="a bare torch script that does the same"),
        "a ClientApp's imports": Aim(2.5),
        "a ClientApp's imports, with torch's learner": Aim(2.5),
    },
    "W9": {"fedmerit weigh, 100,000 clients": Aim(3.0), "fedmerit weigh, 1,000,000 clients": Aim(30.0)},
    "W10": {'frame("weights")': Aim(4.0, over="the same frame, line by line", least=True)},
    "W11": {"fedmerit compare, 3 rows x 5 seeds on digits, 25 rounds": Aim(0.8, share=True, least=True)},
    "W12": {
        f"{work}, {name}": Aim(limit, under=f"{work}, fedmerit", least=True)
        for work in ("W1", "W1f", "W2")
        for name, limit in LOOPS.items()
    },
}
"""By work and part."""


def chosen(only: str) -> set[str]:
    """The names that `--only` lists; `bare` stands for the loops of bare PyTorch."""
    names = {name.strip() for name in only.split(",") if name.strip()}
    if "bare" in names:
        names = names - {"bare"} | set(BARE_TARGETS)
    if unknown := names - set(CONTENDERS):
        raise SystemExit(f"--only: unknown {', '.join(sorted(unknown))}; valid: bare, {', '.join(CONTENDERS)}")
    return names or set(CONTENDERS)
