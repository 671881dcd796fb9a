"""M2F's Figures 2 and 3 from a study: a lazy, a normal and a diligent client, FedAvg, and the claims about them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

import numpy as np

from fedmerit.core.types import Vector
from fedmerit.study.study import Study
from fedmerit.study.text_table import TextTable
from reproductions.reproduce.cells import LEGEND, Claim, claims_table, mean_cell, rounds_cell
from reproductions.reproduce.charts import Curve, draw_curves
from reproductions.reproduce.m2f_tables import CENSORED, RunClients, finished_runs, times_converged, times_reached
from reproductions.reproduce.reproduction import Result, Setting, Studies

FIGURES: Mapping[int, tuple[int, int, int]] = {2: (0, 6, 13), 3: (20, 26, 33)}
"""The lazy, the normal and the diligent client of each figure."""
NAMES = ("lazy", "normal", "diligent")
COLOURS = ("#b2182b", "#e08214", "#2166ac")
FEDAVG, GREY = "fedavg", "#666666"
DASHES = {"keep": "none", "reset": "5 3"}
"""The rows of M2F and how their curves are drawn."""
DRAWN = (
    "full lines: keep, dashed: reset. FedAvg: full the mean of the group's clients, dashed one test set of all their "
    "rows, as the paper tests it"
)
RunsByRow: TypeAlias = Mapping[str, Sequence[RunClients]]


def figures(setting: Setting, studies: Studies) -> Result:
    """The first experiment [M2F, sec. 5.2]: a picture and a table per figure, then the claims."""
    (study,) = studies.values()
    runs = {row: finished_runs(study, row) for row in study.rows}
    tables = [_table(study, runs, number, clients) for number, clients in FIGURES.items()]
    claims = [
        claim for row in DASHES if row in runs for clients in FIGURES.values() for claim in _claims(runs, row, clients)
    ]
    pictures = {
        f"figure{number}": draw_curves(f"Figure {number}: local accuracy", list(_curves(runs, clients)))
        for number, clients in FIGURES.items()
    }
    return Result((*tables, claims_table(claims)), pictures, (DRAWN, LEGEND, CENSORED))


def _table(study: Study, runs: RunsByRow, number: int, clients: Sequence[int]) -> TextTable:
    """The curves in numbers, of which the paper prints none."""
    header = (
        "client",
        "row",
        "convergent iteration",
        "reached 90 %",
        "final accuracy",
        "change per iteration, last half",
    )
    lines = [
        (
            f"{client}, {name}",
            row,
            rounds_cell(times_converged(of_row, client, study.horizon)),
            rounds_cell(times_reached(of_row, client, study.horizon)),
            mean_cell([run.curves[-1, client] for run in of_row], 4),
            mean_cell([run.oscillation[client] for run in of_row], 4),
        )
        for client, name in zip(clients, NAMES, strict=True)
        for row, of_row in runs.items()
    ]
    return TextTable(f"Figure {number} in numbers (the paper prints none)", header, tuple(lines))


def _claims(runs: RunsByRow, row: str, clients: tuple[int, int, int]) -> Iterator[Claim]:
    """The diligent is faster and better, the lazy does not converge, FedAvg oscillates and stays below [M2F]."""
    lazy, normal, diligent = clients
    of_row = runs[row]
    horizon = len(of_row[0].curves) if of_row else 0
    converged = {client: times_converged(of_row, client, horizon) for client in clients}
    final = {client: _final(of_row, client) for client in clients}
    for other, name in ((lazy, "lazy"), (normal, "normal")):
        yield Claim(
            f"client {diligent} (diligent) converges before {other} ({name})",
            row,
            converged[other].values - converged[diligent].values,
        )
        yield Claim(
            f"client {diligent} (diligent) ends more accurate than {other} ({name})",
            row,
            final[diligent] - final[other],
            4,
        )
    missed = np.where(converged[lazy].missed, 1.0, -1.0)
    yield Claim(f"client {lazy} (lazy) does not converge (+1: did not, -1: did)", row, missed)
    if FEDAVG in runs:
        yield from _claims_on_fedavg(runs[FEDAVG], of_row, row, clients)


def _claims_on_fedavg(
    fedavg: Sequence[RunClients], of_row: Sequence[RunClients], row: str, clients: Sequence[int]
) -> Iterator[Claim]:
    _, normal, diligent = clients
    for client, name in ((normal, "normal"), (diligent, "diligent")):
        gap = _final(of_row, client) - _final(fedavg, client)
        yield Claim(f"FedAvg ends below client {client} ({name})", row, gap, 4)
        pairs = zip(fedavg, of_row, strict=True)
        more = np.array([shared.oscillation[client] - own.oscillation[client] for shared, own in pairs])
        yield Claim(f"FedAvg oscillates more than client {client} ({name})", row, more, 4)


def _final(runs: Sequence[RunClients], client: int) -> Vector:
    """The mean accuracy over the last tenth of the iterations, so that a single dip does not decide."""
    return np.array([float(np.nanmean(run.curves[-max(len(run.curves) // 10, 1) :, client])) for run in runs])


def _curves(runs: RunsByRow, clients: Sequence[int]) -> Iterator[Curve]:
    for row, dash in DASHES.items():
        for client, name, colour in zip(clients, NAMES, COLOURS, strict=True):
            if of_row := runs.get(row):
                values = np.array([run.curves[:, client] for run in of_row])
                yield Curve(f"{client}, {name}, {row}", values, colour, dash)
    if fedavg := runs.get(FEDAVG):
        group = slice(0, 20) if clients[0] < 20 else slice(20, 40)
        means = np.array([np.nanmean(run.curves[:, group], axis=1) for run in fedavg])
        pooled = np.array([run.pooled(group) for run in fedavg])
        yield Curve("FedAvg, mean over clients", means, GREY, "none")
        yield Curve("FedAvg, one pooled test set", pooled, GREY, "5 3")
