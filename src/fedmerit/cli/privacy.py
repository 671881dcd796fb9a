"""The privacy that a run would cost, computed before it runs, for `fedmerit doctor`."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import RenderableType

    from fedmerit.config.schema import Config
    from fedmerit.core.server.private_sum import PrivateSum

TARGETS = (1.0, 3.0, 8.0)
"""Epsilons for which `doctor` says how many clients they need."""


def report_privacy(config: Config) -> tuple[dict[str, Any], PrivateSum] | None:
    """Return what the private run of a configuration would cost, or None without a section [privacy]."""
    from fedmerit.config.privacy import recipe_of
    from fedmerit.config.run import make_selection
    from fedmerit.core.recipes import privacy_of
    from fedmerit.core.server.private_sum import check_selection
    from fedmerit.tasks.registry import make_task

    privacy = privacy_of(recipe_of(config))
    if privacy is None:
        return None
    clients = config.task.clients or len(make_task(config).federation.names)
    check_selection(privacy, make_selection(config.run), clients)
    return account(privacy, config.run.rounds, clients), privacy


def account(privacy: PrivateSum, rounds: int, clients: int) -> dict[str, Any]:
    """Compute epsilon after some of the rounds and after all, and with other settings."""
    from fedmerit.config.privacy import epsilon_after, noise_for

    delta = privacy.delta
    marks = sorted({max(1, round(rounds * share)) for share in (0.25, 0.5, 1, 2, 4)})
    # Clients that would keep the noise on the mean as it is, with the noise multiplier that each epsilon takes.
    noises = {target: noise_for(target, delta, privacy.fraction, rounds) for target in TARGETS}
    fractions = sorted({min(1.0, privacy.fraction * factor) for factor in (0.5, 1.0, 2.0)})
    return {
        "epsilon": epsilon_after(privacy.noise, privacy.fraction, rounds, delta),
        "delta": privacy.delta,
        "noise": privacy.noise,
        "clip": privacy.clip,
        "rounds": rounds,
        "sampling": "poisson",
        "fraction": privacy.fraction,
        "clients": clients,
        "accountant": "rdp",
        "deviation": privacy.deviation(clients),
        "curve": [
            {"rounds": mark, "fraction": q, "epsilon": epsilon_after(privacy.noise, q, mark, delta)}
            for q in fractions
            for mark in marks
        ],
        "clients_for": {f"{target:g}": math.ceil(clients * noise / privacy.noise) for target, noise in noises.items()},
        "void": privacy.reproducible,
    }


def privacy_tables(answer: dict[str, Any], privacy: PrivateSum) -> Iterator[RenderableType]:
    """Yield epsilon as text, then tables for other settings and other numbers of clients."""
    from rich.text import Text

    from fedmerit.report.screen import list_table

    yield Text(
        f"epsilon {answer['epsilon']:.3g} at delta {answer['delta']:g} after {answer['rounds']} rounds "
        f"(rdp): noise {answer['noise']:.4g} x clip {answer['clip']:g}, each of {answer['clients']} clients with "
        f"a chance of {answer['fraction']:g} per round; noise in each entry of the aggregate: standard "
        f"deviation {answer['deviation']:.3g}"
    )
    yield list_table("epsilon with the same noise multiplier", *_curve(answer["curve"]))
    needed = [(target, f"{number:,}") for target, number in answer["clients_for"].items()]
    yield list_table("clients for an epsilon with the same noise on the mean (rdp)", ("epsilon", "clients"), needed)


def _curve(points: Sequence[dict[str, Any]]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return a table with a row per number of rounds and a column per fraction."""
    fractions = list(dict.fromkeys(point["fraction"] for point in points))
    rounds = list(dict.fromkeys(point["rounds"] for point in points))
    of = {(point["rounds"], point["fraction"]): f"{point['epsilon']:.3g}" for point in points}
    header = ("rounds", *(f"fraction {fraction:g}" for fraction in fractions))
    return header, [(str(mark), *(of[mark, fraction] for fraction in fractions)) for mark in rounds]
