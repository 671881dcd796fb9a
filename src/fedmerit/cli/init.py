"""The command that asks questions and writes a configuration."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from fedmerit.cli.app import Force, app, out_console
from fedmerit.errors import ConfigError, UnknownName


@app.command(epilog="Example:  fedmerit init hospitals.toml --data hospitals.csv --matters validation")
def init(
    file: Annotated[Path, typer.Argument(metavar="[FILE.toml]", help="The new file.")] = Path("fedmerit.toml"),
    data: Annotated[
        str | None,
        typer.Option(
            help="A task of `fedmerit list tasks`; a CSV or Parquet file, a pattern, a folder.",
            show_default=False,
        ),
    ] = None,
    model: Annotated[str | None, typer.Option(help="A model of the task.", show_default=False)] = None,
    matters: Annotated[
        str | None,
        typer.Option(
            help="size, priority, honesty, validation, fairness, rounds or rewards.",
            show_default=False,
        ),
    ] = None,
    priority: Annotated[
        str | None, typer.Option(help='With priority: the criteria in order, e.g. "LD > DS".', show_default=False)
    ] = None,
    client: Annotated[
        str | None, typer.Option(help="Of a table: the column that names the client.", show_default=False)
    ] = None,
    label: Annotated[str | None, typer.Option(help="Of a table: the column to predict.", show_default=False)] = None,
    attribute: Annotated[
        str | None, typer.Option(help="With fairness: the attribute that defines groups, e.g. sex.", show_default=False)
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Ask nothing; use defaults.")] = False,
    force: Force = False,
) -> None:
    """Ask a few questions and write a commented configuration.

    An option answers its question in advance. Enter accepts the answer in brackets.
    """
    from fedmerit.config.task import TABLE
    from fedmerit.store.files import check_new_file, write_new_file
    from fedmerit.tasks.files import is_several
    from fedmerit.tasks.registry import TASKS, find_task
    from fedmerit.tasks.starter import (
        MATTERS,
        Starter,
        columns,
        criteria_to_choose,
        guess_label,
        parse_priority,
    )

    check_new_file(file, "another FILE.toml", force=force)
    tasks = {name: find_task(name).about for name in TASKS}
    chosen = data or _ask("Which data? A task, or a CSV or Parquet file", tasks, "digits", yes)
    if chosen not in tasks and not chosen.startswith(TABLE):
        if not (Path(chosen).suffix or Path(chosen).expanduser().exists() or is_several(chosen)):
            raise UnknownName("task", chosen, [*tasks, "FILE.csv", "FILE.parquet"])
        chosen = f"{TABLE}{chosen}"
    if chosen.startswith(TABLE):
        names = columns(chosen)
        guess = guess_label(names)
        if not label and not guess and yes:
            raise ConfigError(f"--yes cannot tell which column to predict ({', '.join(names)}); give --label COLUMN")
        label = label or _ask_column("Which column is to be predicted?", names, guess or names[-1], yes)
        if not client and not is_several(chosen):  # each of several files is a client
            question = "Which column names the client (for example the hospital)?"
            likely = _guess(names, label)
            if not likely and yes:
                raise ConfigError(
                    f"--yes cannot tell which column names the client ({', '.join(names)}); give --client"
                )
            client = _ask_column(question, names, likely or names[0], yes)
    spec = find_task(chosen)
    model = model or _ask("Which model?", dict.fromkeys(spec.models, ""), spec.models[0], yes)
    matters = matters or _ask("What matters most?", MATTERS, "priority", yes)
    if matters == "fairness" and not attribute and not yes:
        attribute = typer.prompt("Which attribute defines the groups?", default="sex")
    if matters == "priority" and not priority:
        question = "Which criteria, most important first? Names or numbers, for example 2 > 1"
        # Clients of a table mostly have every class: then the number of labels separates nobody, the balance does.
        usual = "CB > DS" if chosen.startswith(TABLE) else "LD > DS"
        priority = _ask(question, criteria_to_choose(), usual, yes)
    order = parse_priority(priority) if priority else ()
    starter = Starter(chosen, model, matters, client or "", label or "", attribute or "", order)
    write_new_file(file, starter.text(), "another FILE.toml")
    out_console.print(f"written: {file}", markup=False)
    for command in (f"fedmerit run {file} --out runs/first", "fedmerit report runs/first --out report.html"):
        out_console.print(f"next: {command}", style="dim", markup=False, soft_wrap=True)


def _ask(question: str, answers: Mapping[str, str], default: str, yes: bool) -> str:
    """Ask for one of the answers, by name or number; other text is returned as typed.

    Where standard input has ended, the error names the options to give.
    """
    if yes:
        return default
    out_console.print(f"\n[bold]{question}[/bold]")
    listed = Table.grid(padding=(0, 2))
    for place, (name, about) in enumerate(answers.items(), 1):
        listed.add_row(f"{place:3}", Text(name), Text(about.partition(";")[0]))
    out_console.print(listed)
    try:
        answer = str(typer.prompt("Answer", default=default)).strip()
    except typer.Abort:
        raise ConfigError(
            "this question needs an answer (got none); give --data, --model and --matters, or --yes"
        ) from None
    return list(answers)[int(answer) - 1] if answer.isdecimal() and 1 <= int(answer) <= len(answers) else answer


def _ask_column(question: str, names: Sequence[str], default: str, yes: bool) -> str:
    answer = _ask(question, dict.fromkeys(names, ""), default, yes)
    if answer not in names:
        raise UnknownName("column", answer, names)
    return answer


def _guess(names: Sequence[str], label: str) -> str:
    """Guess the column of clients by a word in its name; empty if no name tells."""
    words = (
        "client",
        "hospital",
        "site",
        "centre",
        "center",
        "clinic",
        "node",
        "institution",
        "provnum",
        "writer",
        "user",
    )
    return next((name for name in names if name != label and any(word in name.lower() for word in words)), "")
