"""Nodes with rows of their own: the server knows names and layout, and the run is that of one machine."""

import sys
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as arrow
import pyarrow.parquet as parquet
import pytest
from flwr.app import Context, RecordDict

from fedmerit import Federation, Run, Task, federate, run_config
from fedmerit.config.privacy import recipe_of
from fedmerit.config.run import make_selection
from fedmerit.config.schema import Config, dump_config, make_config
from fedmerit.errors import ConfigError, DataError, RunFailed
from fedmerit.flower import InProcessGrid
from fedmerit.flower.app import OUT, PATIENCE, TEXT, client, main
from fedmerit.flower.start import located, on_loopback
from fedmerit.tasks.registry import make_learner, make_node, make_server

WORDS = ("clinic", "home", "street")
FEDVAL = {"name": "fedval", "criteria": ["validated:accuracy", "validated:parity:sex"]}
M2F = {"name": "m2f", "criteria": ["Participation", "SimulatedComputation", "DataRatio"]}


def frame(rows: int, seed: int) -> arrow.Table:
    random = np.random.default_rng(seed)
    age, pressure = random.normal(60, 10, rows), random.normal(120, 15, rows)
    sex, came = random.integers(0, 2, rows), random.integers(0, 3, rows)
    died = age + 8 * came + random.normal(0, 8, rows) > 68
    age[:3] = np.nan
    return arrow.table(
        {
            "age": age,
            "pressure": pressure,
            "sex": [("f", "m")[one] for one in sex],
            "came": [WORDS[one] for one in came],
            "died": [("no", "yes")[one] for one in died.astype(int)],
        }
    )


def hospitals(folder: Path, number: int) -> dict[str, Path]:
    """A file for each hospital, in a folder that only its owner may enter."""
    paths = {}
    for place in range(number):
        home = folder / f"hospital{place}"
        home.mkdir(mode=0o700)
        paths[f"Hospital {place}"] = home / "rows.parquet"
        parquet.write_table(frame(60 + 20 * place, place), home / "rows.parquet")
    return paths


def settings(names: Sequence[str], recipe: dict[str, Any], server: Path | None = None, **more: Any) -> Config:
    layout = {"age": "number", "pressure": "number", "sex": ["f", "m"], "came": list(WORDS)}
    nodes = {"names": list(names), "classes": ["no", "yes"], "columns": layout} | more
    task = {"data": "nodes", "label": "died", "attributes": ["sex"], "validation": 0.2, "nodes": nodes}
    task |= {"server": str(server)} if server else {}
    run: dict[str, Any] = {"rounds": 2, "fraction": 1.0}
    if recipe is M2F:
        run["schedule"] = {"epochs": [1, 3]}
        run.pop("fraction")
    return make_config({"task": task, "train": {"lr": 0.5, "batch": 16}, "recipe": recipe, "run": run})


def on_nodes(config: Config, paths: dict[str, Path], out: Path) -> Run:
    text = dump_config(config)
    assert not any(str(path) in text for path in paths.values())
    told = {TEXT: text, OUT: str(out), PATIENCE: 1.0}
    configs = [{"data": str(path), "name": name} for name, path in paths.items()]
    context = Context(run_id=1, node_id=1, node_config={}, state=RecordDict(), run_config=told)
    main(InProcessGrid(client, len(paths), told, list(reversed(configs))), context)
    return Run.load(out)


def on_one_machine(config: Config, paths: dict[str, Path], server: Path | None) -> Run:
    """The same rows as one table with a column for the hospital, by the loader for tables."""
    tables = [
        parquet.read_table(path).append_column("hospital", [[name] * parquet.read_metadata(path).num_rows])
        for name, path in paths.items()
    ]
    keys: dict[str, Any] = {"label": "died", "client": "hospital", "attributes": ["sex"]}
    data = Federation.from_frame(arrow.concat_tables(tables), **keys, validation=0.2)
    if server is not None:
        one = parquet.read_table(server)
        whole = Federation.from_frame(one.append_column("hospital", [["server"] * len(one)]), **keys, test=0.0)
        data = replace(data, server=whole.samples(0))
    task = Task(data, make_learner(config.task, config.train))
    return federate(task, recipe_of(config), rounds=2, selection=make_selection(config.run))


def rewards_of(run: Run) -> list[tuple[int, bool, float | None]]:
    return [(one.client, one.accepted, one.after) for one in run.ledger.rewards()]


@pytest.mark.parametrize("recipe", [FEDVAL, M2F], ids=["fedval", "m2f"])
def test_the_ledger_is_that_of_one_machine(recipe: dict[str, Any], tmp_path: Path):
    paths = hospitals(tmp_path, 4)
    server = tmp_path / "server.parquet"
    parquet.write_table(frame(80, 99), server)
    config = settings(list(paths), recipe, server if recipe is FEDVAL else None)
    theirs = on_nodes(config, paths, tmp_path / "run")
    ours = on_one_machine(config, paths, server if recipe is FEDVAL else None)
    assert theirs.ledger.names() == list(paths)
    assert np.abs(theirs.model - ours.model).max() < 1e-5
    assert [row["accuracy"] for row in theirs.ledger.rounds()] == [row["accuracy"] for row in ours.ledger.rounds()]
    assert rewards_of(theirs) == rewards_of(ours)
    assert bool(rewards_of(ours)) == (recipe is M2F)
    for number in (1, 2):
        for his, our in zip(theirs.explain(number), ours.explain(number), strict=True):
            assert his.weight == pytest.approx(our.weight, abs=1e-6)
            assert his.facts == pytest.approx(our.facts, abs=1e-6)


@contextmanager
def opened() -> Iterator[list[str]]:
    """The paths that Python opens within it; a hook cannot be taken away, but it can fall silent."""
    paths, listening = list[str](), True

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if listening and event == "open":
            paths.append(str(arguments[0]))

    sys.addaudithook(hook)
    yield paths
    listening = False


def test_the_server_reads_its_own_rows_and_no_others(tmp_path: Path):
    np.savez(tmp_path / "server.npz", x=np.ones((4, 2), np.float32), y=np.array([0, 1, 0, 1]))
    np.savez(tmp_path / "node.npz", x=np.ones((9, 2), np.float32), y=np.arange(9) % 2)
    nodes = {"names": ["a"], "classes": 2, "columns": [2]}
    config = make_config({"task": {"data": "nodes", "server": str(tmp_path / "server.npz"), "nodes": nodes}})
    with opened() as paths:
        half = make_server(config)
    assert half.rows is not None
    assert half.limits == {"labels": 2.0}
    assert {path for path in paths if path.endswith(".npz")} == {str(tmp_path / "server.npz")}
    with opened() as paths:
        assert len(make_node(config, str(tmp_path / "node.npz"), "a").data.train) == 7
    assert {path for path in paths if path.endswith(".npz")} == {str(tmp_path / "node.npz")}


def test_functions_are_data_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "my_rows.py").write_text(
        "import pandas\ndef load(): return pandas.DataFrame({'x': range(5), 'y': [0, 1, 0, 1, 1]})\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    nodes = {"names": ["a", "b"], "classes": 2, "columns": {"x": "number"}}
    config = make_config({"task": {"data": "nodes", "label": "y", "nodes": nodes}})
    assert len(make_node(config, "my_rows:load", "a").data.test) == 1


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"columns": {"height": "number", "sex": ["f", "m"]}}, "lacks columns of .*: height"),
        ({"columns": {"came": "number", "sex": ["f", "m"]}}, "came is a number in .* contains words"),
        ({"classes": ["alive", "dead"]}, "rows have a label died that is not in task.nodes.classes"),
        ({"columns": [3]}, "task.label names a column"),
    ],
)
def test_a_file_that_does_not_fit_is_told_without_its_values(changes: dict[str, Any], said: str, tmp_path: Path):
    paths = hospitals(tmp_path, 1)
    with pytest.raises((DataError, ConfigError), match=said) as error:
        make_node(settings(list(paths), FEDVAL, **changes), str(paths["Hospital 0"]), "Hospital 0")
    assert not any(word in str(error.value) for word in ("clinic", "yes"))


@pytest.mark.parametrize(
    ("task", "said"),
    [
        ({"data": "nodes"}, "need each other"),
        ({"data": "digits", "server": "rows.csv"}, "task.server is a number of rows"),
        ({"data": "digits", "nodes": {"names": ["a"], "classes": 2, "columns": [2]}}, "need each other"),
        (
            {"data": "nodes", "clients": 3, "nodes": {"names": ["a"], "classes": 2, "columns": [2]}},
            "clients has no eff",
        ),
        (
            {"data": "nodes", "alpha": 3.0, "nodes": {"names": ["a"], "classes": 2, "columns": [2]}},
            "alpha has no effect",
        ),
        ({"data": "nodes", "nodes": {"names": ["a", "a"], "classes": 2, "columns": [2]}}, "names must differ"),
        ({"data": "nodes", "nodes": {"names": ["a"], "classes": 2}}, "columns is required"),
    ],
)
def test_a_setting_that_cannot_be_is_refused(task: dict[str, Any], said: str):
    with pytest.raises(ConfigError, match=said):
        make_config({"task": task})


def test_a_dump_loads_again(tmp_path: Path):
    config = settings(["Hospital 0"], FEDVAL)
    assert make_config(tomllib.loads(dump_config(config))) == config


def test_a_node_gives_its_rows_to_no_other_task(tmp_path: Path):
    with pytest.raises(ConfigError, match="this node was started with `data`"):
        make_node(make_config({"task": {"data": "digits"}}), str(tmp_path / "rows.parquet"), "a")


def test_a_stranger_and_a_broken_file_are_named_before_the_run(tmp_path: Path):
    paths = hospitals(tmp_path, 2)
    paths["Hospital 1"].write_bytes(b"")
    with pytest.raises(
        RunFailed, match=r"only 1 of 2 clients connected within 1 s; a node reported: .*not a readable Parquet file"
    ):
        on_nodes(settings(list(paths), {"name": "fedavg"}), paths, tmp_path / "run")


@pytest.mark.parametrize("name", ["rows.npz", "rows.csv", "rows.parquet", "rows.bin"])
@pytest.mark.parametrize("there", [True, False])
def test_an_error_names_the_file_and_not_its_folder(name: str, there: bool, tmp_path: Path):
    if there:
        (tmp_path / name).write_bytes(b"")
    arrays = make_config({"task": {"data": "nodes", "nodes": {"names": ["a"], "classes": 2, "columns": [2]}}})
    with pytest.raises(DataError, match=name) as error:
        make_node(arrays, str(tmp_path / name), "a")
    assert str(tmp_path) not in str(error.value)


def test_nobody_simulates_what_only_nodes_have(tmp_path: Path):
    with pytest.raises(ConfigError, match="cannot be loaded on one machine"):
        run_config(settings(["Hospital 0"], M2F), tmp_path / "run")
    config = settings(["Hospital 0"], M2F)
    without = config.model_copy(update={"task": config.task.model_copy(update={"validation": 0.0})})
    with pytest.raises(ConfigError, match=r"set task.validation"):
        on_nodes(without, {}, tmp_path / "run")


@pytest.mark.parametrize(
    ("config", "nodes", "said"),
    [
        (settings(["A", "B"], M2F), ["A=a.parquet"], "each node of .task.nodes. needs a file"),
        (settings(["A"], M2F), ["A=it's.parquet"], "must not contain"),
        (make_config({}), ["A=a.parquet"], "--node needs task.data = 'nodes'"),
    ],
)
def test_loopback_wants_a_file_for_each_node(config: Config, nodes: list[str], said: str, tmp_path: Path):
    with pytest.raises(ConfigError, match=said):
        on_loopback(config, tmp_path / "out", print, nodes)


def test_paths_of_several_files_become_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    config = make_config({"task": {"data": ["a.csv", "table:b/*.csv"], "label": "died"}})
    assert located(config).task.data == f"table:{tmp_path}/a.csv|{tmp_path}/b/*.csv"
