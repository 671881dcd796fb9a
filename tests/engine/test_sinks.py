"""Sinks: the libraries' readers return what the ledger has, and a resume logs no round twice."""

from __future__ import annotations

import csv
import json
import tomllib
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedmerit import fedavg, federate, load_task, resume, run_config
from fedmerit.config.schema import Config, make_config
from fedmerit.core.state import Record
from fedmerit.engine.sinks import check_logs
from fedmerit.errors import ConfigError, NoteWarning, UnknownName
from fedmerit.store.run_folder import open_ledger
from fedmerit.store.verify import verify_run

ROUNDS = 3


def small() -> Config:
    recipe = {"name": "prioritized", "criteria": ["LD", "DS"], "normalise": "max"}
    task = {"clients": 4, "partition": "dirichlet", "alpha": 1.0}
    return make_config({"task": task, "recipe": recipe, "run": {"rounds": ROUNDS, "fraction": 1.0, "workers": 1}})


class Killed(Exception):
    """Stands for a kill after a round."""


def kill(record: Record) -> None:
    if record.index == 2:
        raise Killed


def run_with_a_kill(folder: Path, *logs: str) -> list[dict[str, float]]:
    """Kill the run after round 2 was logged and before that was recorded, and resume it; the rounds in JSON lines."""
    lines = folder.parent / "expected"
    logs = (*logs, f"jsonl:{lines}")
    with pytest.raises(Killed):
        run_config(small(), folder, kill, log=logs)
    record = folder / "logs.json"
    record.write_text(json.dumps({text: (place, 1) for text, (place, _) in json.loads(record.read_text()).items()}))
    with (lines / "run.jsonl").open("a") as file:
        file.write('{"round": 3, "accu')
    resume(folder, log=logs).ledger.close()
    assert verify_run(folder).faults == {}
    head, *rounds = [json.loads(line) for line in (lines / "run.jsonl").read_text().splitlines()]
    assert head["settings"]["recipe.criteria"] == ["LD", "DS"]
    assert [values["round"] for values in rounds] == [1, 2, 3]
    return rounds


def test_json_lines_have_the_numbers_of_the_ledger(tmp_path: Path) -> None:
    rounds = run_with_a_kill(tmp_path / "run")
    with open_ledger(tmp_path / "run") as ledger:
        names = ledger.names()
        for values, row in zip(rounds, ledger.rounds(), strict=True):
            clients = ledger.weights(row["round"])
            assert (values["accuracy"], values["seconds/train"]) == (row["accuracy"], row["seconds"]["train"])
            assert (values["clients"], values["left_out"]) == (len(clients), 0)
            assert [values[f"weight/{names[who.id]}"] for who in clients] == [who.weight for who in clients]
            assert [values[f"criterion/LD/{names[who.id]}"] for who in clients] == [
                who.criteria["LD"] for who in clients
            ]
        accuracies = [values[f"local_accuracy/{name}"] for name in names]
        assert accuracies == ledger.local_accuracy()[1][-1].tolist()


def test_csv_has_every_number_once_after_a_kill(tmp_path: Path) -> None:
    rounds = run_with_a_kill(tmp_path / "run", f"csv:{tmp_path / 'logs'}")
    with (tmp_path / "logs" / "run.csv").open() as file:
        table = [(int(row["round"]), row["name"], float(row["value"])) for row in csv.DictReader(file)]
    assert table == [(values["round"], name, v) for values in rounds for name, v in values.items() if name != "round"]


def test_tensorboard_reads_what_was_written(tmp_path: Path) -> None:
    reader = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator", reason="no tensorboard")
    rounds = run_with_a_kill(tmp_path / "run", f"tensorboard:{tmp_path / 'tb'}")
    found = reader.EventAccumulator(str(tmp_path / "tb" / "run"), size_guidance={"scalars": 0})
    found.Reload()
    assert set(found.Tags()["scalars"]) == set().union(*rounds)
    for tag in found.Tags()["scalars"]:
        read = [(event.step, event.value) for event in found.Scalars(tag)]
        assert read == [(of["round"], float(np.float32(of[tag]))) for of in rounds if tag in of]  # 32 bits


def test_mlflow_reads_what_was_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # creating the tables of a database takes half a minute
    tracking = pytest.importorskip("mlflow.tracking", reason="no mlflow")
    store = (tmp_path / "mlruns").as_uri()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # MLflow's own
        rounds = run_with_a_kill(tmp_path / "run", f"mlflow:{store}")
        client = tracking.MlflowClient(tracking_uri=store)
        (kept,) = client.search_runs([client.get_experiment_by_name("fedmerit").experiment_id])
        assert (kept.info.run_name, kept.info.status) == ("run", "FINISHED")
        assert kept.data.params["recipe.criteria"] == "['LD', 'DS']"
        assert set(kept.data.metrics) == set().union(*rounds)
        for name in kept.data.metrics:
            history = sorted((one.step, one.value) for one in client.get_metric_history(kept.info.run_id, name))
            assert history == [(of["round"], of[name]) for of in rounds if name in of]
        files = {file.path for file in client.list_artifacts(kept.info.run_id)}
    assert files == {"model.safetensors", "report.html"}


def test_wandb_writes_an_offline_run_and_its_artifact(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb", reason="no wandb")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its own
        warnings.filterwarnings("error", message="--log")
        run = federate(load_task("digits", clients=4), fedavg(), rounds=2, fraction=1.0, log=["wandb:project"])
    (written,) = tmp_path.glob("wandb/offline-run-*/*.wandb")
    content = written.read_bytes()
    assert b"weight/" in content
    assert b"model.safetensors" in content
    assert run.ledger.last_round() == 2


def test_a_sink_that_fails_warns_once_and_the_run_continues(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "logs").mkdir()

    def break_csv(record: Record) -> None:
        if record.index == 1:
            (path,) = (tmp_path / "logs").glob("*.csv")
            path.unlink()
            path.mkdir()

    logs = [f"csv:{tmp_path / 'logs'}", f"jsonl:{tmp_path / 'file'}"]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        task = load_task("digits", clients=4)
        run = federate(task, fedavg(), rounds=3, fraction=1.0, log=logs, on_record=break_csv)
    texts = sorted(str(one.message) for one in caught if one.category is NoteWarning and "--log" in str(one.message))
    assert len(texts) == 2
    assert "--log csv" in texts[0]
    assert "IsADirectoryError" in texts[0]
    assert "--log jsonl" in texts[1]
    assert all("the run continues without it" in text for text in texts)
    assert run.ledger.last_round() == 3


def test_two_runs_with_one_name_have_two_files(tmp_path: Path) -> None:
    task, place = load_task("digits", clients=4), tmp_path / "logs"
    for parent in ("a", "b"):
        federate(task, fedavg(), rounds=1, fraction=1.0, out=tmp_path / parent / "run", log=[f"jsonl:{place}"])
    assert {path.name for path in place.iterdir()} == {"run.jsonl", "run-2.jsonl"}


def test_client_names_are_plain_and_distinct_in_every_sink(tmp_path: Path) -> None:
    task = load_task("digits", clients=5)
    task = replace(task, federation=replace(task.federation, names=("../../etc", "a/b", "a:b", "é,\n", "x" * 300)))
    federate(task, fedavg(), rounds=1, fraction=1.0, log=[f"jsonl:{tmp_path}", f"csv:{tmp_path}"])
    (lines,), (table,) = tmp_path.glob("*.jsonl"), tmp_path.glob("*.csv")
    values = json.loads(lines.read_text().splitlines()[1])
    weights = [name for name in values if name.startswith("weight/")]
    assert weights == [f"weight/{name}" for name in ("_.._etc", "a_b.1", "a_b.2", "___", "x" * 60)]
    rows = csv.reader(table.read_text().splitlines())
    assert [name for _, name, _ in rows if name.startswith("weight/")] == weights


def test_what_cannot_be_logged_to_is_an_error_before_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UnknownName, match=r"unknown log 'tensorbord' \(did you mean 'tensorboard'\?\); valid: csv, js"):
        run_config(small(), tmp_path / "run", log=["tensorbord:x"])
    with pytest.raises(ConfigError, match="mlflow:WHERE"):
        check_logs(["mlflow"])

    def missing(name: str) -> Any:
        return None

    monkeypatch.setattr("fedmerit.engine.sinks.find_spec", missing)
    text = (Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8")
    extras = tomllib.loads(text)["project"]["optional-dependencies"]
    for name in ("tensorboard", "mlflow", "wandb"):
        with pytest.raises(
            ConfigError, match=rf"needs {name}, which is not installed: pip install 'fedmerit\[{name}\]'"
        ):
            run_config(small(), tmp_path / "run", log=[f"{name}:x"])
        assert name in extras
    check_logs(["csv:x", "jsonl:x"])
    assert not (tmp_path / "run").exists()
