"""Figures of a study for papers (matplotlib: SVG, PDF)."""

import io
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from fedmerit.core.objectives import is_share, measure_label
from fedmerit.errors import ConfigError, UnknownName
from fedmerit.store.files import check_new_file, write_new_file
from fedmerit.study.statistics import LEVEL
from fedmerit.study.study import Study
from fedmerit.study.verdicts import BASELINE

Figure: TypeAlias = Any
"""Of plotly or of matplotlib; not named in types, since both are optional."""
FIGURE_FORMATS = ("svg", "pdf")
SIZE = (5.5, 3.4)
"""Inches: the width of a column of text."""
DASHES = ("-", "--", "-.", ":")
"""Line styles, so that rows differ without colours."""


def write_figure(folder: Path, name: str, form: str, out: Path, *, force: bool = False) -> None:
    """A figure of a study as a new file; the same study gives the same bytes."""
    if name not in FIGURES:
        raise UnknownName("figure of a study", name, FIGURES)
    if form not in FIGURE_FORMATS:
        raise UnknownName("format of a figure", form, FIGURE_FORMATS)
    check_new_file(out, "another --out", force=force)
    try:
        import matplotlib
        from matplotlib.figure import Figure as Drawing
    except ImportError:
        raise ConfigError(
            "figures for papers need matplotlib, which is not installed: pip install 'fedmerit[report]'"
        ) from None
    study = Study.load(folder)
    if not study.metrics["finished"].any():
        raise ConfigError(f"the study in {folder} has no finished run yet; run it first")
    fixed: dict[Any, Any] = {"svg.hashsalt": study.plan.name, "svg.fonttype": "none", "pdf.fonttype": 42}
    file = io.BytesIO()
    with matplotlib.rc_context(fixed | {"font.size": 9}):
        drawing = Drawing(figsize=SIZE, layout="constrained")
        FIGURES[name](study, drawing.add_subplot())
        drawing.savefig(file, format=form, metadata={"Date": None} if form == "svg" else {"CreationDate": None})
    write_new_file(out, file.getvalue(), "another --out")


def _curves(study: Study, axes: Any) -> None:
    """Mean over the finished seeds by round, with a band of one deviation each way."""
    curves = study.curves.merge(study.metrics.loc[study.metrics["finished"], ["row", "seed"]])
    for place, row in enumerate(study.rows):
        by_round = curves[curves["row"] == row].groupby("round")[study.measure]
        mean, deviation = by_round.mean(), by_round.std().fillna(0.0)
        (line,) = axes.plot(mean.index, mean, DASHES[place % len(DASHES)], label=_plain(row), linewidth=1.3)
        axes.fill_between(mean.index, mean - deviation, mean + deviation, color=line.get_color(), alpha=0.15, lw=0)
    axes.set(xlabel="round", ylabel=measure_label(study.measure))
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.legend(title="mean ± deviation over the seeds", frameon=False)


def _differences(study: Study, axes: Any) -> None:
    """The paired difference of each row to the baseline, with its interval, in points where the measure is a share."""
    compared, scale = study.compared, 100 if is_share(study.measure) else 1
    lines = compared[(compared["measure"] == study.measure) & (compared["verdict"] != BASELINE)]
    if not len(lines):
        raise ConfigError("differences are between rows; this study has one row")
    places = np.arange(len(lines))
    means = scale * lines["difference"].to_numpy(float)
    reach = scale * np.abs(lines[["low", "high"]].to_numpy(float).T - lines["difference"].to_numpy(float))
    axes.errorbar(means, places, xerr=np.nan_to_num(reach), fmt="o", capsize=3, color="black")
    axes.axvline(0.0, color="grey", linewidth=0.8)
    axes.set(yticks=places, yticklabels=[_plain(row) for row in lines["row"]])
    axes.set_ylim(len(lines) - 0.5, -0.5)
    label = f"{measure_label(study.measure)} against {_plain(study.plan.against)}{' in points' * (scale == 100)}"
    axes.set_xlabel(f"{label}, {LEVEL:.0%} interval")


def _plain(text: str) -> str:
    """Remove the signs that start a formula in matplotlib."""
    return text.replace("$", r"\$")


FIGURES: Mapping[str, Callable[[Study, Any], None]] = {"curves": _curves, "differences": _differences}
"""Figures of a study by name, as exports call them."""
