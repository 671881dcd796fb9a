"""The command that tunes: a grid over a configuration, on seeds of its own."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any

import typer

from fedmerit.cli.app import Json, app, out_console, stoppable
from fedmerit.errors import ConfigError


@app.command(epilog="Example:  fedmerit tune examples/digits.toml --grid train.lr=0.03,0.1,0.3 --out runs/tune")
def tune(
    config: Annotated[
        Path | None, typer.Argument(metavar="[CONFIG.toml]", help="What to tune.", show_default=False)
    ] = None,
    grid: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=V,V,...", help="A key of train or recipe, and values to try; repeatable."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="The folder: new, or an earlier one to use again.", show_default=False)
    ] = None,
    resume: Annotated[
        Path | None, typer.Option(help="Go on with the tuning in this folder instead.", show_default=False)
    ] = None,
    seeds: Annotated[
        str | None, typer.Option(help="Tuning seeds, such as 7,8,9, or how many; default: 101..105.")
    ] = None,
    first: Annotated[
        int | None, typer.Option(help="Seeds that every point gets; then halving begins; default: 1.")
    ] = None,
    by: Annotated[
        str | None, typer.Option(help="accuracy, best, p10, p50, p90, worst, rounds, or an audit of the run.")
    ] = None,
    target: Annotated[float | None, typer.Option(help="Go by the rounds to this accuracy.")] = None,
    share: Annotated[float | None, typer.Option(help="... of this share of the devices; default: 0.5.")] = None,
    overrides: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override a setting; repeatable.")
    ] = None,
    jobs: Annotated[int | None, typer.Option(min=1, help="Runs at once; default: one per core.")] = None,
    as_json: Json = False,
) -> None:
    """Choose settings from a grid on seeds of their own; writes best.toml.

    Every point of the grid runs on the first seed. The better half goes on
    with twice the seeds, at least two points to the last, which have all
    seeds; the best mean wins. Ties: higher final accuracy, then earlier in the
    grid. Ctrl-C stops; the same command resumes it, also with more values or
    seeds.
    """
    from fedmerit.config.schema import validate
    from fedmerit.study.grid import parse_grid
    from fedmerit.study.output import progress, tuned_json
    from fedmerit.study.study_folder import BEST, read_tuning
    from fedmerit.study.tune import read_tuned
    from fedmerit.study.tune import tune as run_tuning
    from fedmerit.study.tuning import Tuning
    from fedmerit.study.tuning_tables import points_table

    options = {"first": first, "by": by, "target": target, "share": share, "seeds": _seeds(seeds)}
    given = {key: value for key, value in options.items() if value is not None}
    if resume is not None:
        if config or out or grid or overrides or given:
            raise ConfigError(
                "--resume goes on with a tuning as it is; to change it, give CONFIG.toml, --grid and --out"
            )
        folder, tuning = resume, read_tuning(resume)
    else:
        if config is None or out is None or not grid:
            raise ConfigError(
                "give CONFIG.toml, --grid KEY=VALUE,VALUE and --out DIR, or --resume DIR to go on with one"
            )
        base = _base(config, overrides or [])
        folder, tuning = out, validate(Tuning, {"base": base, "grid": parse_grid(grid), **given})
    with stoppable(f"fedmerit tune --resume {folder}"), ExitStack() as stack:
        state = read_tuned(tuning, folder)
        watch = None if as_json else stack.enter_context(progress(out_console, state.runs, state.coming))
        tuned = run_tuning(tuning, folder, jobs=jobs, on_step=watch)
    if as_json:
        typer.echo(tuned_json(tuned))
    else:
        out_console.print(points_table(tuned).screen())
        for run, reason in tuned.failed.items():
            out_console.print(f"{run} failed: {reason}", style="red", markup=False)
        if not tuned.failed:
            text = f"next: fedmerit run {folder / BEST} --out DIR"
            out_console.print(text, style="dim", markup=False, soft_wrap=True)
    if tuned.failed:
        raise typer.Exit(1)


def _base(config: Path, overrides: list[str]) -> dict[str, Any]:
    """The settings of the file with the overrides; a mistake in them is named as `fedmerit run` names it."""
    from fedmerit.config.schema import load_config, override, read_toml

    load_config(config, overrides)
    values = read_toml(config)
    override(values, overrides)
    return values


def _seeds(text: str | None) -> Any:
    """A number of seeds, or a list of them."""
    from fedmerit.config.schema import parse_value

    return None if text is None else parse_value(f"[{text.strip('[]')}]" if "," in text or "[" in text else text)
