"""Sinks: TensorBoard's and MLflow's own readers give back what the ledger has; a resume logs nothing twice."""

from __future__ import annotations

import csv
import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedmerit import fedavg, federate, load_task, resume, run_config
from fedmerit.config.schema import Config, make_config
from fedmerit.core.state import Record
from fedmerit.engine.logged import LoggedRound, LoggedRun, client_labels, read_rounds, read_run
from fedmerit.engine.sinks import SINKS, check_logs
from fedmerit.errors import ConfigError, NoteWarning, UnknownName
from fedmerit.store.run_folder import open_ledger
from fedmerit.store.verify import verify_run

ROUNDS = 3


def small() -> Config:
    recipe = {"name": "prioritized", "priority": ["LD", "DS"], "normalise": "max"}
    task = {"clients": 4, "partition": "dirichlet", "alpha": 1.0}
    return make_config({"task": task, "recipe": recipe, "run": {"rounds": ROUNDS, "fraction": 1.0, "workers": 1}})


class Killed(Exception):
    """Stands for a kill: whatever comes after a round is not done."""


def kill(record: Record) -> None:
    if record.index == 2:
        raise Killed


def expected(folder: Path) -> tuple[LoggedRun, list[LoggedRound]]:
    with open_ledger(folder) as ledger:
        return read_run(ledger, folder.name), list(read_rounds(ledger, 0))


def play_with_a_kill(folder: Path, *logs: str) -> None:
    with pytest.raises(Killed):
        run_config(small(), folder, kill, log=logs)
    resume(folder, log=logs).ledger.close()
    assert verify_run(folder).faults == {}


def test_rounds_are_the_ledgers(tmp_path: Path) -> None:
    run_config(small(), tmp_path / "run").ledger.close()
    _, rounds = expected(tmp_path / "run")
    with open_ledger(tmp_path / "run") as ledger:
        for one, row in zip(rounds, ledger.rounds(), strict=True):
            assert one.values["accuracy"] == row["accuracy"]
            assert one.values["seconds/train"] == row["seconds"]["train"]
            assert one.clients["weight"] == {client.id: client.weight for client in ledger.weights(one.index)}
            assert one.clients["criterion/LD"] == {who.id: who.criteria["LD"] for who in ledger.weights(one.index)}
        assert list(one.clients["local_accuracy"].values()) == ledger.local_accuracy()[1][-1].tolist()


def test_files_have_every_round_once_after_a_kill(tmp_path: Path) -> None:
    folder, place = tmp_path / "run", tmp_path / "logs"
    logs = f"csv:{place}", f"jsonl:{place}"
    with pytest.raises(Killed):
        run_config(small(), folder, kill, log=logs)
    for name in ("run.csv", "run.jsonl"):
        with (place / name).open("a") as file:
            file.write('{"round": 3, "val' if name.endswith("l") else "3,0,weight,0.25\n3,1,we")  # half a round
    resume(folder, log=logs).ledger.close()
    run, rounds = expected(folder)
    head, *lines = [json.loads(line) for line in (place / "run.jsonl").read_text().splitlines()]
    assert head["settings"]["recipe.priority"] == ["LD", "DS"]
    assert [line["round"] for line in lines] == [1, 2, 3]
    assert [line["values"] for line in lines] == [dict(one.values) for one in rounds]
    assert lines[2]["clients"]["weight"] == {run.names[i]: v for i, v in rounds[2].clients["weight"].items()}
    with (place / "run.csv").open() as file:
        table = [
            (int(row["round"]), row["client"], row["measure"], float(row["value"])) for row in csv.DictReader(file)
        ]
    assert len(table) == len(set(table))
    wanted = {
        (one.index, run.names[client], name, value)
        for one in rounds
        for name, values in one.clients.items()
        for client, value in values.items()
    }
    wanted |= {(one.index, "", name, value) for one in rounds for name, value in one.values.items()}
    assert set(table) == wanted | {(index, "", "round", float(index)) for index in (1, 2, 3)}


def test_tensorboard_reads_what_was_written(tmp_path: Path) -> None:
    reader = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator", reason="no tensorboard")
    play_with_a_kill(tmp_path / "run", f"tensorboard:{tmp_path / 'tb'}")
    found = reader.EventAccumulator(str(tmp_path / "tb" / "run"), size_guidance={"scalars": 0, "tensors": 0})
    found.Reload()
    run, rounds = expected(tmp_path / "run")
    scalars = [run.scalars(one) for one in rounds]
    assert set(found.Tags()["scalars"]) == set().union(*scalars)
    for tag in found.Tags()["scalars"]:
        read = [(event.step, event.value) for event in found.Scalars(tag)]
        kept = [(one.index, float(np.float32(of[tag]))) for one, of in zip(rounds, scalars, strict=True) if tag in of]
        assert read == kept  # event files hold 32 bits
    (settings,) = found.Tensors("settings/text_summary")
    assert b"task.clients = 4" in settings.tensor_proto.string_val[0]


def test_mlflow_reads_what_was_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # the tables of a database take half a minute to make
    tracking = pytest.importorskip("mlflow.tracking", reason="no mlflow")
    store = (tmp_path / "mlruns").as_uri()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # MLflow's own
        play_with_a_kill(tmp_path / "run", f"mlflow:{store}")
        client = tracking.MlflowClient(tracking_uri=store)
        (kept,) = client.search_runs([client.get_experiment_by_name("fedmerit").experiment_id])
        run, rounds = expected(tmp_path / "run")
        scalars = [run.scalars(one) for one in rounds]
        assert kept.info.run_name == "run"
        assert kept.info.status == "FINISHED"
        assert kept.data.params["recipe.priority"] == "['LD', 'DS']"
        assert set(kept.data.metrics) == set().union(*scalars)
        for name in kept.data.metrics:
            history = sorted((one.step, one.value) for one in client.get_metric_history(kept.info.run_id, name))
            assert history == [(one.index, of[name]) for one, of in zip(rounds, scalars, strict=True) if name in of]
        files = {file.path for file in client.list_artifacts(kept.info.run_id)}
    assert files == {"model.safetensors", "report.html"}


def test_a_sink_that_fails_warns_once_and_the_run_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: object, one: LoggedRound) -> None:
        raise OSError("the tracker went away")

    monkeypatch.setattr("fedmerit.engine.sink_files.CsvSink.log", fail)
    (tmp_path / "file").touch()
    logs = [f"csv:{tmp_path / 'logs'}", f"jsonl:{tmp_path / 'file'}"]
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        run = federate(load_task("digits", clients=4), fedavg(), rounds=2, fraction=1.0, log=logs)
    texts = sorted(str(one.message) for one in told if one.category is NoteWarning and "--log" in str(one.message))
    assert len(texts) == 2
    assert "the tracker went away); the run goes on without it" in texts[0]
    assert "is a file" in texts[1]
    assert run.ledger.last_round() == 2


def test_runs_of_one_name_have_places_of_their_own(tmp_path: Path) -> None:
    task, place = load_task("digits", clients=4), tmp_path / "logs"
    for parent in ("a", "b"):
        federate(task, fedavg(), rounds=1, fraction=1.0, out=tmp_path / parent / "run", log=[f"jsonl:{place}"])
    assert {path.name for path in place.iterdir()} == {"run.jsonl", "run-2.jsonl"}


def test_what_cannot_be_logged_to_is_told_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UnknownName, match=r"unknown log 'tensorbord' \(did you mean 'tensorboard'\?\); valid: csv, js"):
        run_config(small(), tmp_path / "run", log=["tensorbord:x"])
    with pytest.raises(ConfigError, match="mlflow:WHERE"):
        check_logs(["mlflow"])

    def missing(name: str) -> Any:
        return None

    monkeypatch.setattr("fedmerit.engine.sinks.find_spec", missing)
    with pytest.raises(ConfigError, match=r"needs wandb, which is missing: pip install 'fedmerit\[wandb\]'"):
        check_logs(["wandb:project"])
    check_logs(["csv:x", "jsonl:x"])
    assert not (tmp_path / "run").exists()


def test_names_that_trackers_would_refuse_are_made_plain() -> None:
    labels = client_labels(["../../etc", "a b", "a/b", "a:b", "", "é", "x" * 300])
    assert len(set(labels)) == len(labels)
    assert all(
        set(label) <= set("abcdefghijklmnopqrstuvwxyz0123456789_. ") and not label.startswith(".") for label in labels
    )


def test_every_sink_has_its_extra() -> None:
    import tomllib

    text = (Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8")
    extras = tomllib.loads(text)["project"]["optional-dependencies"]
    assert {name for name, kind in SINKS.items() if kind.package} <= extras.keys()
