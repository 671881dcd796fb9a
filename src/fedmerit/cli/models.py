"""`fedmerit predict`: predict rows with the model of a run."""

import csv
import io
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from fedmerit.cli.app import Client, Force, Json, Reading, RunFolder, Trust, app, notes_printed, out_console
from fedmerit.errors import ConfigError
from fedmerit.store.strict_json import dump_json


@app.command(cls=Reading, epilog="Example:  fedmerit predict runs/first patients.csv --out predicted.csv")
def predict(
    folder: RunFolder,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="CSV, Parquet or npz; - for stdin.")],
    drop: Annotated[list[str] | None, typer.Option(metavar="COLUMN", help="A column that is not a feature.")] = None,
    proba: Annotated[bool, typer.Option("--proba", help="Add the probability of each class.")] = False,
    client: Client = None,
    out: Annotated[Path | None, typer.Option(help="A new file for the output.", show_default=False)] = None,
    force: Force = False,
    trust: Trust = False,
    as_json: Json = False,
) -> None:
    """Predict rows with the model of a run.

    If the run learned from a table, FILE has the same column names in any order, with words and gaps as in that table.
    Otherwise FILE has the features as numbers in the order of training; an npz file has them in its array x. The
    output is CSV: the row number from 1, the predicted class or number, and with --proba a column per class. --client
    chooses a client's own model, if clients have personal models.
    A model that is your own Python part runs if this machine has run it before, else only with --trust.
    """
    from fedmerit.cli.rows_file import read_raw_table, read_rows
    from fedmerit.engine.estimator import Classifier
    from fedmerit.engine.finished import Run
    from fedmerit.store.files import check_new_file, write_new_file

    if out is not None:
        check_new_file(out, "another --out", force=force)
    estimator = Run.load(folder, trust=trust).estimator(client)
    encoder = estimator.encoder
    if encoder and drop:
        raise ConfigError("--drop has no effect: the run learned from a table and finds its columns by name")
    rows = read_raw_table(file) if encoder and file.suffix != ".npz" else read_rows(file, drop or [])
    if proba and not isinstance(estimator, Classifier):
        raise ConfigError("--proba needs classes, and this run predicts numbers, which have no probabilities; drop it")
    with notes_printed():
        predicted = estimator.predict(rows).tolist()
    chances = []
    if isinstance(estimator, Classifier) and proba:
        with warnings.catch_warnings(action="ignore"):  # printed above
            chances = estimator.predict_proba(rows).tolist()
    words = [str(word) for word in estimator.classes_] if encoder and isinstance(estimator, Classifier) else None
    if as_json:
        named = {"labels": words} if words else {}
        text = dump_json({"predicted": predicted, **named, **({"probabilities": chances} if proba else {})}) + "\n"
    else:
        text = _csv(predicted, chances, words)
    if out is None:
        typer.echo(text, nl=False)
    else:
        write_new_file(out, text, "another --out")
        out_console.print(f"{len(predicted)} rows: {out}", markup=False)


def _csv(predicted: Sequence[Any], chances: list[list[float]], words: Sequence[str] | None) -> str:
    """Write a line per row: the prediction, then the probabilities."""
    text = io.StringIO(newline="")
    lines = csv.writer(text, lineterminator="\n")
    width = len(chances[0]) if chances else 0
    lines.writerow(["row", "predicted", *(f"p {words[label]}" if words else f"p{label}" for label in range(width))])
    for place, value in enumerate(predicted):
        shown = f"{value:.6g}" if isinstance(value, float) else value
        lines.writerow([place + 1, shown, *(f"{chance:.6g}" for chance in (chances[place] if width else ()))])
    return text.getvalue()
