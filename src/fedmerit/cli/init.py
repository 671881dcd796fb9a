"""The command that asks four questions and writes a configuration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from fedmerit.cli.app import Force, app, out_console
from fedmerit.errors import ConfigError, UnknownName


@app.command(epilog="Example:  fedmerit init hospitals.toml --data hospitals.csv --matters validation")
def init(
    file: Annotated[Path, typer.Argument(metavar="[FILE.toml]", help="The new file.")] = Path("fedmerit.toml"),
    data: Annotated[
        str | None, typer.Option(help="A task of `fedmerit tasks`, or a CSV or Parquet file.", show_default=False)
    ] = None,
    model: Annotated[str | None, typer.Option(help="A model of the task.", show_default=False)] = None,
    matters: Annotated[
        str | None,
        typer.Option(help="size, priority, honesty, validation, fairness, rounds or rewards.", show_default=False),
    ] = None,
    where: Annotated[str | None, typer.Option(help="here, study, flower or nodes.", show_default=False)] = None,
    client: Annotated[
        str | None, typer.Option(help="Of a table: the column that says whose a row is.", show_default=False)
    ] = None,
    label: Annotated[str | None, typer.Option(help="Of a table: the column to predict.", show_default=False)] = None,
    attribute: Annotated[
        str | None, typer.Option(help="For fairness: the attribute whose groups count, e.g. sex.", show_default=False)
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Ask nothing: defaults where no option says more.")] = False,
    force: Force = False,
) -> None:
    """Ask what to learn from, with which model, what matters and where it runs; write a commented configuration.

    Options answer questions beforehand; the others are asked, and Enter takes the answer in brackets.
    """
    from fedmerit.config.task import TABLE
    from fedmerit.store.files import check_new_file, write_new_file
    from fedmerit.tasks.registry import TASKS, find_task
    from fedmerit.tasks.starter import MATTERS, PLACES, Starter, columns

    check_new_file(file, "another FILE.toml", force=force)
    tasks = {name: find_task(name).about for name in TASKS}
    chosen = data or _ask("What is to be learned from? A task, or a CSV or Parquet file", tasks, "digits", yes)
    if chosen not in tasks and not chosen.startswith(TABLE):
        if not Path(chosen).suffix and not Path(chosen).expanduser().exists():
            raise UnknownName("task", chosen, [*tasks, "FILE.csv", "FILE.parquet"])
        chosen = f"{TABLE}{chosen}"
    if chosen.startswith(TABLE):
        names = columns(chosen)
        label = label or _ask_column("Which column is predicted?", names, names[-1], yes)
        client = client or _ask_column("Which column says whose a row is?", names, _guess(names, label), yes)
    spec = find_task(chosen)
    model = model or _ask("Which model?", dict.fromkeys(spec.models, ""), spec.models[0], yes)
    matters = matters or _ask("What matters most?", MATTERS, "priority", yes)
    if matters == "fairness" and not attribute and not yes:
        attribute = typer.prompt("Between the groups of which attribute?", default="sex")
    places = {name: about for name, about in PLACES.items() if name != "nodes" or chosen.startswith(TABLE)}
    where = where or _ask("Where does it run?", places, "here", yes)
    starter = Starter(chosen, model, matters, where, client or "", label or "", attribute or "")
    write_new_file(file, starter.text(), "another FILE.toml")
    out_console.print(f"written: {file}", markup=False)
    for command in starter.commands(file):
        out_console.print(f"next: {command}", style="dim", markup=False, soft_wrap=True)


def _ask(question: str, answers: Mapping[str, str], default: str, yes: bool) -> str:
    """One of the answers, by name or number; a question about files takes any other word too.

    Where nobody can type, an error says the way out.
    """
    if yes:
        return default
    out_console.print(f"\n[bold]{question}[/bold]")
    width = max(map(len, answers))
    for place, (name, about) in enumerate(answers.items(), 1):
        out_console.print(f"{place:3}  {name:{width}}  {about}", markup=False)
    try:
        answer = str(typer.prompt("Answer", default=default)).strip()
    except typer.Abort:
        raise ConfigError("no answer was typed; give --data, --model, --matters and --where, or --yes") from None
    return list(answers)[int(answer) - 1] if answer.isdecimal() and 1 <= int(answer) <= len(answers) else answer


def _ask_column(question: str, names: Sequence[str], default: str, yes: bool) -> str:
    answer = _ask(question, dict.fromkeys(names, ""), default, yes)
    if answer not in names:
        raise UnknownName("column", answer, names)
    return answer


def _guess(names: Sequence[str], label: str) -> str:
    """The column whose name speaks of an owner, else the first that is not predicted."""
    words = ("client", "hospital", "site", "centre", "center", "node", "institution", "writer", "user")
    likely = [name for name in names if name != label and any(word in name.lower() for word in words)]
    return (likely or [name for name in names if name != label] or list(names))[0]
