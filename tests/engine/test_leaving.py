"""A client leaves: the repeated run has the bits of one that never had it, and a statement says what changed."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import CommandLine, one_line

from fedmerit import Federation, Run, federate, load_config, resume, run_config
from fedmerit.config.recipe import make_recipe
from fedmerit.store.ledger import Ledger
from fedmerit.store.model_files import read_model
from fedmerit.tasks.federation import Split
from fedmerit.tasks.registry import make_task

RECIPES = {
    "FedAvg": ["recipe.name=fedavg"],
    "PMCFL": ["recipe.name=prioritized", "recipe.criteria=LD > DS"],
    "DAFL": ["recipe.name=device_aware", "recipe.criteria=LD > DS"],
    "M2F": ["recipe.name=m2f", "recipe.criteria=DataRatio,Participation"],
    "FedVal": ["recipe.name=fedval", "task.server=30"],
    "robust": ["recipe.name=robust", "recipe.limits=['cap']"],
}
HOSPITALS = ("north", "east", "South ", "south", "west", "centre")
BASE = ("task.validation=0.2", "run.rounds=3", "run.workers=1", "run.fraction=0.8", "run.seed=5", "train.epochs=1")


def rows(leaving: tuple[str, ...] = ()) -> str:
    """Hospitals with words and gaps; only South has words in two columns, so that their type depends on it."""
    random = np.random.default_rng(3)
    lines = ["hospital,age,dose,smoker,sex,died"]
    for i in range(420):
        name, age = HOSPITALS[i % len(HOSPITALS)], random.normal(60, 9)
        dose, smoker = f"{random.gamma(2):.2f}", ("true", "false")[random.integers(2)]
        if name.strip().lower() == "south" and i % 4:
            dose, smoker = "high", "unknown"
        sex, died = "fm"[random.integers(2)], int(age + random.normal(0, 9) > 62)
        if name.strip().lower() not in leaving:
            lines.append(f"{name},{age:.1f},{dose if i % 9 else ''},{smoker},{sex},{died}")
    return "\n".join(lines)


def table(path: Path, *more: str) -> list[str]:
    return [f"task.data=table:{path}", "task.client=hospital", "task.label=died", "task.model=linear", *BASE, *more]


def numbers(folder: Path) -> list[Any]:
    """What a ledger keeps of a run, but times."""
    with Ledger.open(folder / "ledger.db") as ledger:
        weights = [(one.id, one.criteria, one.score, one.weight) for i in (1, 2, 3) for one in ledger.weights(i)]
        found = [weights, list(ledger.evaluations()), ledger.rewards(), ledger.audits()]
        return [*found, [ledger.candidates(i) for i in (1, 2, 3)], ledger.names()]


def check_same(one: Path, other: Path) -> None:
    """The same models to the byte, and the same numbers of every round."""
    for path in sorted(one.rglob("*.safetensors")):
        assert path.read_bytes() == (other / path.relative_to(one)).read_bytes(), path
    assert numbers(one) == numbers(other)
    for name in ("encoder.json", "data.json"):
        assert (one / name).read_text() == (other / name).read_text()


@pytest.mark.parametrize(
    ("recipe", "leaving"), [*((recipe, ("south",)) for recipe in RECIPES), ("PMCFL", ("south", "centre"))]
)
def test_a_table_without_a_client_gives_the_bits_of_the_table_that_never_had_it(
    recipe: str, leaving: tuple[str, ...], tmp_path: Path, cli: CommandLine
) -> None:
    (tmp_path / "all.csv").write_text(rows())
    (tmp_path / "without.csv").write_text(rows(leaving))
    run_config(load_config(None, table(tmp_path / "all.csv", *RECIPES[recipe])), tmp_path / "before")
    never = load_config(None, table(tmp_path / "without.csv", *RECIPES[recipe]))
    run_config(never, tmp_path / "never")
    names = Run.load(tmp_path / "before").ledger.names()
    who = [word for name in leaving for word in ("--without", next(one for one in names if one.lower() == name))]
    answer = cli("run", tmp_path / "before" / "config.toml", *who, "--out", tmp_path / "after")
    assert answer.code == 0, answer.err
    check_same(tmp_path / "after", tmp_path / "never")
    assert cli("verify", tmp_path / "after").code == 0
    assert Run.load(tmp_path / "after").ledger.names() == [name for name in names if name.lower() not in leaving]


@pytest.mark.parametrize("recipe", ["FedAvg", "M2F", "robust"])
def test_of_generated_clients_the_others_keep_their_rows(recipe: str, tmp_path: Path, cli: CommandLine) -> None:
    """The independent construction: a federation put together by hand of the other clients' rows."""
    more = ["task.data=digits", "task.clients=6", "task.partition=dirichlet", "task.model=digits-linear", *BASE]
    config = load_config(None, [*more, *RECIPES[recipe]])
    run_config(config, tmp_path / "before")
    assert cli("run", tmp_path / "before" / "config.toml", "--without", "2", "--out", tmp_path / "after").code == 0
    task = make_task(config)
    whole, stay = task.federation, [0, 1, 3, 4, 5]

    def of_others(split: Split) -> Split:
        parts = [split.samples(client, whole.classes) for client in stay]
        ends = np.cumsum([0, *map(len, parts)])
        return Split(np.concatenate([one.x for one in parts]), np.concatenate([one.y for one in parts]), ends)

    names = tuple(whole.names[client] for client in stay)
    splits = [of_others(split) for split in (whole.train, whole.test, whole.validation)]
    others = Federation(names, splits[0], splits[1], whole.classes, splits[2], whole.server)
    run = federate(
        replace(task, federation=others),
        make_recipe(config.recipe),
        rounds=3,
        fraction=0.8,
        seed=5,
        out=tmp_path / "hand",
    )
    assert (run.model == Run.load(tmp_path / "after").model).all()
    assert numbers(tmp_path / "after") == numbers(tmp_path / "hand")


def test_a_file_leaves_with_its_columns_and_facts_follow_the_clients(tmp_path: Path, cli: CommandLine) -> None:
    """Whether a column is used depends on how many files have it; facts are by name."""
    for number, name in enumerate(("a", "b", "c", "d")):
        more = number < 2
        lines = [f"{'x,' * more}y,label", *(f"{f'{i % 5},' * more}{i * i % 7},{i % 2}" for i in range(number, 40))]
        for folder in ("all", "never") if name != "b" else ("all",):
            (tmp_path / folder).mkdir(exist_ok=True)
            (tmp_path / folder / f"{name}.csv").write_text("\n".join(lines))
    base = ["task.label=label", "task.model=linear", *BASE, "recipe.name=prioritized", "recipe.criteria=fact:beds,DS"]
    beds = ["client,beds", "a,5", "b,9", "c,7", "d,8"]
    (tmp_path / "beds.csv").write_text("\n".join(beds))
    (tmp_path / "never.csv").write_text("\n".join(line for line in beds if line != "b,9"))
    before = [f"task.data=table:{tmp_path / 'all'}", f"facts.file={tmp_path / 'beds.csv'}"]
    never = [f"task.data=table:{tmp_path / 'never'}", f"facts.file={tmp_path / 'never.csv'}"]
    run_config(load_config(None, [*base, *before]), tmp_path / "before")
    run_config(load_config(None, [*base, *never]), tmp_path / "other")
    answer = cli("run", tmp_path / "before" / "config.toml", "--without", "b", "--out", tmp_path / "after")
    assert answer.code == 0, answer.err
    check_same(tmp_path / "after", tmp_path / "other")


def test_the_statement_has_hashes_and_survives_a_kill(
    tmp_path: Path, cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    more = ["task.data=digits", "task.clients=4", "task.model=digits-linear", *BASE]
    run_config(load_config(None, more), tmp_path / "before")
    monkeypatch.setattr("fedmerit.engine.run.write_statement", lambda folder: 1 / 0)  # a kill before the statement
    assert cli("run", tmp_path / "before" / "config.toml", "--without", "3", "--out", tmp_path / "after").code == 1
    monkeypatch.undo()
    resume(tmp_path / "after")
    values: dict[str, Any] = json.loads((tmp_path / "after" / "leaving.json").read_text())
    assert (values["left"], values["remaining"]) == (["3"], 3)
    for name in ("before", "after"):
        found = values[name]
        with Ledger.open(tmp_path / name / "ledger.db") as ledger:
            assert found["ledger"] == ledger.head()
        assert f"{found['model']}  model.safetensors" in (tmp_path / name / "SHA256SUMS").read_text()
    old, new = (read_model(tmp_path / name / "model.safetensors") for name in ("before", "after"))
    assert old
    assert new
    assert values["moved"]["distance"] == pytest.approx(float(np.linalg.norm(new[0].astype(float) - old[0])))
    text = (tmp_path / "after" / "leaving.md").read_text()
    assert all(part in text for part in ("left: 3", values["after"]["model"], values["before"]["ledger"], "undone"))
    assert cli("verify", tmp_path / "after").code == 0
    again = cli("run", tmp_path / "after" / "config.toml", "--without", "0", "--out", tmp_path / "again")
    assert again.code == 0, again.err
    assert Run.load(tmp_path / "again").ledger.names() == ["1", "2"]


PRIVATE = ["recipe.name=prioritized", "recipe.criteria=DS", "recipe.normalise={name='scale',bounds={DS=900}}"]


@pytest.mark.parametrize(
    ("more", "options", "message"),
    [
        ([], ["--without", "9"], "no client '9'"),
        ([], ["--without", "0", "--without", "1", "--without", "2"], "all of them leave"),
        ([], ["--without", "0", "--set", "run.seed=1"], "and no --set"),
        (["task.attack={kind='sign-flip',share=0.4}"], ["--without", "0"], "kinds and attack are drawn among all"),
        ([*PRIVATE, "run.selection=poisson", "privacy={clip=1.0,noise=1.0}"], ["--without", "0"], "spend the epsilon"),
    ],
)
def test_what_cannot_be_repeated_is_refused_with_the_reason(
    more: list[str], options: list[str], message: str, tmp_path: Path, cli: CommandLine
) -> None:
    base = ["task.data=digits", "task.clients=3", "task.model=digits-linear", *BASE, "run.rounds=1"]
    run_config(load_config(None, [*base, *more]), tmp_path / "before")
    answer = one_line(cli("run", tmp_path / "before" / "config.toml", *options, "--out", tmp_path / "after"))
    assert message in answer
    assert not (tmp_path / "after").exists()


def test_nodes_of_a_deployment_are_refused(tmp_path: Path, cli: CommandLine) -> None:
    path = tmp_path / "config.toml"
    path.write_text('[task]\ndata = "nodes"\n[task.nodes]\nnames = ["a", "b"]\nclasses = 2\ncolumns = [3]\n')
    assert "the rows are on the nodes" in one_line(cli("run", path, "--without", "a", "--out", tmp_path / "after"))
    shutil.rmtree(tmp_path / "after", ignore_errors=True)
