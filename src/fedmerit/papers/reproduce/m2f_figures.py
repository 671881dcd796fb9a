"""M2F's Figures 2 and 3 from a study: a lazy, a normal and a diligent client, FedAvg, and the claims on them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fedmerit.core.types import Vector
from fedmerit.papers.reproduce.cells import LEGEND, mean_cell, rounds_cell
from fedmerit.papers.reproduce.claims import Claim, claims_table
from fedmerit.papers.reproduce.curves import Curve, draw_curves
from fedmerit.papers.reproduce.entry import Setting, Studies, Told
from fedmerit.papers.reproduce.m2f_accounts import Seen, look, reached, stays
from fedmerit.papers.reproduce.m2f_tables import CENSORED
from fedmerit.study.study import Study
from fedmerit.study.text_table import TextTable

FIGURES: Mapping[int, tuple[int, int, int]] = {2: (0, 6, 13), 3: (20, 26, 33)}
NAMES = ("lazy", "normal", "diligent")
COLOURS = ("#b2182b", "#e08214", "#2166ac")
FEDAVG, GREY = "fedavg", "#666666"
WAYS = {"keep": "none", "reset": "5 3"}
Runs = Mapping[str, Sequence[Seen]]


@dataclass(frozen=True, slots=True)
class Figures:
    """How a study of the first experiment is told."""

    def __call__(self, setting: Setting, studies: Studies) -> Told:
        """A picture and a table per figure, then the claims."""
        (study,) = studies.values()
        runs = {row: look(study, row) for row in study.rows}
        tables = [_table(study, runs, number, clients) for number, clients in FIGURES.items()]
        claims = [
            one for way in WAYS if way in runs for clients in FIGURES.values() for one in _claims(runs, way, clients)
        ]
        pictures = {
            f"figure{number}": draw_curves(f"Figure {number}: local accuracy", list(_curves(runs, clients)))
            for number, clients in FIGURES.items()
        }
        return Told((*tables, claims_table(claims)), pictures, ("full lines: keep, dashed: reset", LEGEND, CENSORED))


def _table(study: Study, runs: Runs, number: int, clients: Sequence[int]) -> TextTable:
    """What the curves come to; the paper prints no numbers."""
    header = (
        "client",
        "row",
        "convergent iteration",
        "reached 90 %",
        "final accuracy",
        "change per iteration, last half",
    )
    lines = []
    for client, name in zip(clients, NAMES, strict=True):
        for row, seen in runs.items():
            lines.append(
                (
                    f"{client}, {name}",
                    row,
                    rounds_cell(stays(seen, client, study.horizon)),
                    rounds_cell(reached(seen, client, study.horizon)),
                    mean_cell([one.curves[-1, client] for one in seen], 4),
                    mean_cell([one.wobble[client] for one in seen], 4),
                )
            )
    return TextTable(f"Figure {number} in numbers (the paper prints none)", header, tuple(lines))


def _claims(runs: Runs, way: str, clients: tuple[int, int, int]) -> Iterator[Claim]:
    """SPEC C: the diligent is faster and better, the lazy does not converge, FedAvg oscillates and stays below."""
    lazy, normal, diligent = clients
    seen = runs[way]
    last = len(seen[0].curves) if seen else 0
    came = {client: stays(seen, client, last) for client in clients}
    final = {client: _final(seen, client) for client in clients}
    for other, name in ((lazy, "lazy"), (normal, "normal")):
        yield Claim(
            f"client {diligent} (diligent) converges before {other} ({name})",
            way,
            came[other].values - came[diligent].values,
        )
        yield Claim(
            f"client {diligent} (diligent) ends more accurate than {other} ({name})",
            way,
            final[diligent] - final[other],
            4,
        )
    missed = np.where(came[lazy].missed, 1.0, -1.0)
    yield Claim(f"client {lazy} (lazy) does not converge (+1: did not, -1: did)", way, missed)
    if FEDAVG in runs:
        yield from _against_fedavg(runs[FEDAVG], seen, way, clients)


def _against_fedavg(shared: Sequence[Seen], seen: Sequence[Seen], way: str, clients: Sequence[int]) -> Iterator[Claim]:
    _, normal, diligent = clients
    for client, name in ((normal, "normal"), (diligent, "diligent")):
        gap = _final(seen, client) - _final(shared, client)
        yield Claim(f"FedAvg ends below client {client} ({name})", way, gap, 4)
        more = np.array([a.wobble[client] - b.wobble[client] for a, b in zip(shared, seen, strict=True)])
        yield Claim(f"FedAvg oscillates more than client {client} ({name})", way, more, 4)


def _final(runs: Sequence[Seen], client: int) -> Vector:
    """The mean accuracy over the last tenth of the iterations, which one dip does not decide."""
    return np.array([float(np.nanmean(one.curves[-max(len(one.curves) // 10, 1) :, client])) for one in runs])


def _curves(runs: Runs, clients: Sequence[int]) -> Iterator[Curve]:
    for way, dash in WAYS.items():
        for client, name, colour in zip(clients, NAMES, COLOURS, strict=True):
            if runs.get(way):
                yield Curve(
                    f"{client}, {name}, {way}", np.array([one.curves[:, client] for one in runs[way]]), colour, dash
                )
    if runs.get(FEDAVG):
        group = slice(0, 20) if clients[0] < 20 else slice(20, 40)
        means = np.array([np.nanmean(one.curves[:, group], axis=1) for one in runs[FEDAVG]])
        yield Curve("FedAvg, group mean", means, GREY, "none")
