"""A user's own parts by `module:attribute`: in runs, studies, reports, explanations and on Flower."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from flwr.app import Context, RecordDict
from helpers import CommandLine, one_line

from fedmerit import Recipe, Run, load_config, resume, run_config
from fedmerit.config.recipe import make_recipe
from fedmerit.config.schema import make_config
from fedmerit.errors import ConfigError, FolderError
from fedmerit.flower import InProcessGrid
from fedmerit.flower.app import client, main
from fedmerit.flower.start import run_settings

MODULE = '''
"""Parts of a user's own."""
from dataclasses import dataclass

import numpy as np

from fedmerit import DS, LD, Backtracking, criterion, prioritized
from fedmerit.core.types import Family
from fedmerit.core.weights.scores import Term, Terms


@criterion("freshness", Family.TRUST, "freshness: 1 / (1 + rounds taken part in)", degree=True)
def freshness(cohort, history):
    return np.array([1 / (1 + history.participations.get(client, 0)) for client in cohort.ids])


@dataclass(frozen=True)
class Worst:
    """s = min_i c_i."""

    def __call__(self, table):
        return table.min(axis=1)


@dataclass(frozen=True)
class Told:
    """s = prod_i c_i, and it says so."""

    def __call__(self, table):
        return table.prod(axis=1)

    def terms(self, table, place=0):
        values = [Term((column,), f"{value:.4f}", value) for column, value in enumerate(table[place].tolist())]
        return Terms(tuple(values), "product", score=float(table[place].prod()))


@dataclass(frozen=True)
class Lies(Told):
    """Steps that lead elsewhere."""

    def terms(self, table, place=0):
        return Terms((Term((0,), "1", 1.0),), "sum", score=7.0)


@dataclass(frozen=True)
class Half:
    def __call__(self, model, aggregate, own, index):
        return model + aggregate.update / 2, {}

    def mixture(self, own, index):
        return None


half = Half()
search = Backtracking(adjust_on="test")
number = 3


def make():
    return prioritized(freshness, DS, score=Worst(), normalise="max")


def fails():
    raise RuntimeError("no network")
'''

TASK = {"data": "digits", "clients": 4}
RUN = {"rounds": 2, "fraction": 1.0, "workers": 1}
OWN = {"name": "prioritized", "criteria": "own_parts:freshness > DS", "score": "own_parts:Worst", "normalise": "max"}


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    path = tmp_path / "lib" / "own_parts.py"
    path.parent.mkdir()
    path.write_text(MODULE)
    monkeypatch.syspath_prepend(str(path.parent))
    yield path
    sys.modules.pop("own_parts", None)


def config(recipe: Any = OWN) -> Any:
    return make_config({"task": TASK, "run": RUN, "recipe": recipe})


def test_a_run_with_own_parts_is_kept_by_name_and_source_and_explained(
    module: Path, tmp_path: Path, cli: CommandLine
) -> None:
    out = tmp_path / "run"
    run = run_config(config(), out)
    meta = run.ledger.meta()
    kept = json.loads(meta["own"])
    assert set(kept) == {"own_parts:freshness", "own_parts:Worst"}
    assert all(len(found) == 12 for found in kept.values())
    assert run.ledger.rounds()[0]["priority"] == ["freshness", "DS"]
    assert sum(client.weight for client in run.explain(2)) == pytest.approx(1)
    sys.modules.pop("own_parts")
    module.write_text("raise SystemExit('nothing that a run left behind is imported')")
    assert "by Worst()" in run.why(client=1)
    told = cli("explain", out, "--client", "1")
    assert told.code == 0
    assert "freshness" in told.out
    assert "by Worst()" in " ".join(told.out.split())
    assert cli("explain", out, "--json").code == 0
    assert cli("report", out, "--out", tmp_path / "page.html").code == 0
    assert (tmp_path / "page.html").exists()


def test_an_own_score_may_tell_its_steps_and_only_true_ones_are_kept(
    module: Path, tmp_path: Path, cli: CommandLine
) -> None:
    run = run_config(config(OWN | {"score": "own_parts:Told"}), tmp_path / "told")
    mine = run.explain(2)[1]
    normalised = [f"{value:.4f}" for value in mine.normalised.values()]
    steps = f"{' * '.join(normalised)} = {mine.score:.5g}"
    assert f"by Told(): {steps}." in run.why(client=1)
    told = json.loads(cli("explain", tmp_path / "told", "--round", "2", "--json").out)
    assert told["clients"][1]["terms"] == {"text": steps}
    lies = run_config(config(OWN | {"score": "own_parts:Lies"}), tmp_path / "lies")
    assert lies.explain(2)[1].terms is None
    assert lies.why(client=1).endswith("by Lies().")


STRANGER = """
import pathlib
from torch import nn
from fedmerit.tasks.datasets.digits import DIGITS
from own_parts import *

pathlib.Path(__file__).with_name("ran").touch()
task = DIGITS


def build(inputs, classes):
    return nn.Linear(inputs, classes)
"""


def test_a_folder_of_a_stranger_runs_nothing_without_trust(
    module: Path, tmp_path: Path, cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither a model, a task, nor a recipe; a source that this machine has run needs no flag, a changed one does."""
    (module.parent / "strange" / "__init__.py").parent.mkdir()
    marks = [module.with_name("ran"), module.parent / "strange" / "ran"]
    for path in (module.with_name("stranger.py"), module.parent / "strange" / "__init__.py"):
        path.write_text(STRANGER)
    (module.parent / "strange" / "parts.py").write_text("from stranger import *")
    rows, page = tmp_path / "rows.csv", tmp_path / "new"
    table = tmp_path / "hospitals.csv"
    lines = [f"{'north' if i % 2 else 'south'},{i % 7},{i % 5},{int(i % 7 > 3)}" for i in range(60)]
    table.write_text("\n".join(["clinic,age,dose,died", *lines]))
    rows.write_text("clinic,age,dose\nnorth,6,1\n")
    data = {"data": f"table:{table}", "client": "clinic", "label": "died", "model": "strange.parts:build"}
    settings = {"run": RUN, "train": {"epochs": 1}, "recipe": "stranger:make"}
    run_config(make_config(settings | {"task": data}), tmp_path / "table")
    run_config(make_config(settings | {"task": TASK | {"data": "stranger:task"}}), tmp_path / "task")
    study = tmp_path / "study.toml"
    study.write_text(
        'seeds = [1]\n[[row]]\nname = "a"\n[[row]]\nname = "b"\nrecipe = "fedavg"\n[base.task]\ndata = "digits"\n'
        'clients = 4\n[base.run]\nrounds = 1\n[base.recipe]\nname = "stranger:make"\n'
    )
    assert cli("compare", study, "--out", tmp_path / "study", "--jobs", "1").code == 0
    commands = {
        "predict": ["predict", tmp_path / "table", rows],
        "onnx": ["export", tmp_path / "task", "--onnx", page],
        "what-if": ["what-if", tmp_path / "task", "--priority", "class balance"],
    }
    reads = [
        *(["report", tmp_path / name, "--text"] for name in ("table", "task", "study")),
        *(["explain", tmp_path / name, "--client", "1"] for name in ("table", "task")),
        *(["verify", tmp_path / name] for name in ("table", "task")),
        ["export", tmp_path / "table", "--card", tmp_path / "table.md"],
        ["export", tmp_path / "task", "--card", tmp_path / "task.md"],
    ]

    def forget() -> list[Path]:
        for name in [name for name in sys.modules if name.partition(".")[0] in ("stranger", "strange", "own_parts")]:
            del sys.modules[name]
        for mark in marks:
            mark.unlink(missing_ok=True)
        return marks

    forget()
    assert cli(*commands["predict"]).code == 0  # this machine has run it
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "another machine"))
    forget()
    for command in reads:
        assert cli(*command).code == 0, command
    for kind, command in commands.items():
        message = one_line(cli(*command))
        assert ("'strange.parts:build'" if kind == "predict" else "'stranger:task'") in message
        assert "add --trust" in message
    with pytest.raises(ConfigError, match="trust=True"):
        Run.load(tmp_path / "table").estimator()
    assert not any(mark.exists() for mark in marks), "reading ran a stranger's code"
    assert not (tmp_path / "another machine").exists()
    for kind, command in commands.items():
        assert cli(*command, "--trust").code == 0, kind
    assert all(mark.exists() for mark in marks)


def test_compare_sets_own_parts_in_the_base(module: Path, tmp_path: Path, cli: CommandLine) -> None:
    study = tmp_path / "study.toml"
    rows = '[[row]]\nname = "base"\n[[row]]\nname = "FedAvg"\nrecipe = "fedavg"\n'
    study.write_text(f'seeds = [1]\n{rows}[base.task]\ndata = "digits"\nclients = 4\n[base.run]\nfraction = 1.0\n')
    changes = ["--set", "recipe=own_parts:make", "--set", "run.rounds=1"]
    answer = cli("compare", study, "--out", tmp_path / "out", "--jobs", "1", *changes)
    assert answer.code == 0, answer.err
    runs = [Run.load(folder.parent) for folder in sorted((tmp_path / "out").rglob("ledger.db"))]
    assert [run.ledger.last_round() for run in runs] == [1, 1]
    assert sum("own_parts:make" in run.ledger.meta().get("own", "") for run in runs) == 1
    wrong = cli("compare", study, "--out", tmp_path / "other", "--set", "recipe=nowhere:make")
    assert "nowhere" in one_line(wrong)


def test_a_resume_with_another_source_is_refused_by_name(module: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    run_config(config(), out)
    assert isinstance(resume(out), Run)
    module.write_text(MODULE.replace("table.min", "table.max"))
    with pytest.raises(FolderError, match=r"another source of your own parts: own_parts:Worst \w{12} then, \w{12} now"):
        resume(out)


@pytest.mark.parametrize(
    ("recipe", "own"),
    [
        ("own_parts:make", ["own_parts:Worst", "own_parts:freshness", "own_parts:make"]),
        ({"name": "own_parts:make", "limits": ["cap"]}, ["own_parts:Worst", "own_parts:freshness", "own_parts:make"]),
        ({"name": "fedavg", "server": {"optimizer": "own_parts:half"}}, ["own_parts:Half", "own_parts:half"]),
        ({"name": "device_aware", "criteria": "DS > LD", "search": "own_parts:search"}, ["own_parts:search"]),
        (
            {"name": "prioritized", "criteria": "reputation:own_parts:freshness", "normalise": "max"},
            ["own_parts:freshness"],
        ),
    ],
)
def test_recipes_steps_and_searches_of_ones_own_run_from_a_configuration(
    module: Path, tmp_path: Path, recipe: Any, own: list[str]
) -> None:
    run = run_config(config(recipe), tmp_path / "run")
    assert run.accuracy > 0.1
    assert sorted(json.loads(run.ledger.meta()["own"])) == own
    kept = load_config(tmp_path / "run" / "config.toml")
    assert kept == config(recipe)


def test_overrides_name_own_parts_and_drop_what_does_not_go_with_them(module: Path) -> None:
    assert make_recipe(load_config("examples/digits.toml", ["recipe.name=own_parts:make"]).recipe).priority == (
        "freshness",
        "DS",
    )
    assert isinstance(make_recipe(load_config(None, ["recipe=own_parts:make"]).recipe), Recipe)
    changed = load_config("examples/digits.toml", ["recipe.score=own_parts:Worst"])
    assert repr(make_recipe(changed.recipe).score) == "Worst()"


@pytest.mark.parametrize(
    ("recipe", "message"),
    [
        (
            {"name": "prioritized", "criteria": "nowhere:freshness"},
            "No module named 'nowhere'; is its folder on",
        ),
        ({"name": "prioritized", "criteria": "own_parts:stale"}, "no attribute 'stale'; name a criterion"),
        ({"name": "prioritized", "criteria": "own_parts:number"}, "must be a criterion, as @criterion makes them (got"),
        ({"name": "prioritized", "criteria": "DS", "score": "own_parts:number"}, "'own_parts:number' must be a score"),
        ({"name": "prioritized", "criteria": "DS", "score": "own_parts:nil"}, "no attribute 'nil'; name a score"),
        ({"name": "fedavg", "server": {"optimizer": "own_parts:number"}}, "must be a server optimizer"),
        ({"name": "device_aware", "criteria": "DS", "search": "own_parts:half"}, "search 'own_parts:half' must be a s"),
        ({"name": "own_parts:number"}, "must be or make a fedmerit.Recipe; got int"),
        ({"name": "own_parts:fails"}, "calling it failed: RuntimeError: no network"),
        (
            {"name": "device_aware", "criteria": "DS", "search": {"name": "a:b", "tolerance": 0}},
            "a:b takes no settings",
        ),
    ],
)
def test_mistakes_are_one_clear_line(module: Path, recipe: Any, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        make_recipe(config(recipe).recipe)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_flower_weighs_by_the_same_own_parts(module: Path, tmp_path: Path) -> None:
    settings = run_settings(config(), tmp_path / "run")
    context = Context(run_id=1, node_id=1, node_config={}, state=RecordDict(), run_config=settings)
    main(InProcessGrid(client, 4, settings), context)
    ours, theirs = run_config(config(), tmp_path / "local"), Run.load(tmp_path / "run")
    assert theirs.ledger.meta()["own"] == ours.ledger.meta()["own"]
    assert [one.weight for one in ours.explain(2)] == pytest.approx([one.weight for one in theirs.explain(2)])
