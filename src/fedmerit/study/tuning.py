"""Tuning: choose the best point of a row's grid on separate seeds, which the study does not report."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from fedmerit.config.schema import Config, dump_config
from fedmerit.store.files import write_new_file
from fedmerit.store.frames import Frame
from fedmerit.study.grid import edges, point_name, points, value_text
from fedmerit.study.plan import ROUNDS, Row, TuneConfig
from fedmerit.study.statistics import DIGITS, LEVEL
from fedmerit.study.study_folder import BEST
from fedmerit.study.text_table import TextTable, number_text
from fedmerit.study.verdicts import FEWEST, NOISE, SAME, Metric, by_row, compare_rows, effect_cells, rounds_metrics

if TYPE_CHECKING:
    from fedmerit.study.study import Study

CHOSEN = "chosen"


@dataclass(frozen=True, repr=False)
class Tuned:
    """The tuning of a row: a study of its points on the tuning seeds, finished or not, and the measure to optimise."""

    row: Row
    tune: TuneConfig
    study: Study

    @property
    def by(self) -> str:
        """What the best point is best in."""
        return self.tune.measure or self.study.measure

    @cached_property
    def ranked(self) -> list[int]:
        """The points in the order of the measure's mean over the seeds, best first.

        Ties are broken by the better measure of the runs, then by the earlier point. Points without a value are last.
        """
        metrics = [self._metric(name) for name in (self.by, self.study.measure)]
        signs = [-1 if metric.better == "higher" else 1 for metric in metrics]
        keys = [
            tuple(_last_if_unknown(sign * one.values[name]) for sign, one in zip(signs, metrics, strict=True))
            for name in self.study.rows
        ]
        return sorted(range(len(keys)), key=keys.__getitem__)

    @property
    def best(self) -> dict[str, Any] | None:
        """The values of the best point; None until all runs are finished."""
        return None if self.study.unfinished else points(self.row.grid)[self.ranked[0]]

    @property
    def config(self) -> Config | None:
        """The configuration of the best point, with the seed of the base; None until all runs are finished."""
        plan = self.study.plan
        seed = plan.base.get("run", {}).get("seed", 0)
        return None if self.study.unfinished else plan.config(plan.rows[self.ranked[0]], seed)

    @property
    def edges(self) -> dict[str, str]:
        """The keys whose best value is the smallest or largest of their grid."""
        return {} if self.best is None else edges(self.study.plan.base, self.row.grid, self.best)

    @cached_property
    def points(self) -> Frame:
        """A line per point, best first: seeds, mean, paired difference to the best, verdict."""
        order = [self.study.rows[place] for place in self.ranked]
        frame = compare_rows([self._metric(self.by)], order[0]).set_index("row").loc[order]
        frame.loc[order[0], "verdict"] = "" if self.study.unfinished else CHOSEN
        names = [point_name(points(self.row.grid)[place]) for place in self.ranked]
        return frame.reset_index(drop=True).assign(row=self.row.name, point=names)

    @property
    def notes(self) -> Iterator[str]:
        """Notes on the choice: edges of the grid, points that are equally good, missing runs."""
        for key, end in self.edges.items():
            direction = "upwards" if end == "largest" else "downwards"
            best = value_text((self.best or {})[key])
            yield f"the best {key}, {best}, is the {end} of its grid: extend it {direction}"
        near = self.points.loc[self.points["verdict"].isin((NOISE, SAME)), "point"]
        if len(near):
            yield f"not distinguishable from the best with these seeds: {', '.join(near)}"
        if len(self.tune.seeds) < FEWEST:
            yield f"fewer than {FEWEST} tuning seeds cannot tell a difference from noise"
        if self.study.unfinished:
            yield f"not decided: {len(self.study.unfinished)} runs are missing"
        else:
            yield "the mean of the best point is biased by the choice; report results on other seeds"

    def table(self) -> TextTable:
        """Make a table of the points, best first, with the paired difference to the best."""
        digits = 2 if self.by == ROUNDS else 4
        rows = []
        for line in self.points.to_dict("records"):
            mean = f"{'>' * (line['censored'] > 0)}{number_text(line['mean'], digits)}"
            effect = ("", "") if line["verdict"] == CHOSEN else effect_cells(line, digits)[:2]
            rows.append((line["point"], mean, *effect, line["verdict"]))
        about = self.tune.about(self.study.measure)
        title = f"{self.row.name}: tuned by {about} on seeds {seeds_text(self.tune.seeds)}"
        header = ("point", self.by, "difference", f"{LEVEL:.0%} interval", "verdict")
        return TextTable(title, header, tuple(rows), tuple(self.notes))

    def write_best(self) -> None:
        """Write the best point's configuration to the tuning's folder, with a comment on its origin."""
        if self.best is None or self.config is None:
            return
        head = [
            f"# The best point of a grid, by {self.tune.about(self.study.measure)}: {point_name(self.best)}",
            *(f"#   {key}: {', '.join(map(value_text, values))}" for key, values in self.row.grid.items()),
            f"# Tuned on seeds {', '.join(map(str, self.tune.seeds))}; report results on other seeds.",
        ]
        write_new_file(self.study.folder / BEST, "\n".join([*head, dump_config(self.config)]), "another --out")

    def _metric(self, name: str) -> Metric:
        """A metric of every point over the finished runs; a missed target counts as the horizon."""
        study = self.study
        if name == ROUNDS:
            return list(rounds_metrics(study.reached, study.plan, study.targets))[
                -1
            ]  # a tuning has one target and one share
        finished = study.metrics[study.metrics["finished"]].reindex(columns=["row", "seed", name])
        return Metric(name, by_row(finished, name, study.plan), measure=study.measure)

    def __repr__(self) -> str:
        best = "not decided" if self.best is None else point_name(self.best)
        return f"<Tuned {self.row.name}: {len(self.study.rows)} points, {best}>"


def seeds_text(seeds: Sequence[int]) -> str:
    """Format seeds, as a range if they are consecutive.

    >>> seeds_text([101, 102, 103]), seeds_text([3, 7])
    ('101..103', '3, 7')
    """
    in_line = len(seeds) > 2 and list(seeds) == list(range(seeds[0], seeds[0] + len(seeds)))
    return f"{seeds[0]}..{seeds[-1]}" if in_line else ", ".join(map(str, seeds))


def _last_if_unknown(values: np.ndarray) -> float:
    """The mean as a sort key; infinity if it is NaN."""
    mean = float(np.mean(values).round(DIGITS))
    return math.inf if math.isnan(mean) else mean
