"""Early stopping by the accuracy on validation rows, and what callbacks are called with."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from helpers import CommandLine, random_split, small_task, stopped_and_resumed
from hypothesis import given
from hypothesis import strategies as st

from fedmerit import Run, Task, UserError, compare, fedavg, federate, load_config, m2f, run_config
from fedmerit.config.run import EarlyStopping
from fedmerit.core.state import Record
from fedmerit.errors import ConfigError
from fedmerit.report.html import write_report
from fedmerit.study.plan import make_plan
from fedmerit.study.tables import summary_table


def validated_task() -> Task:
    task = small_task()
    return Task(replace(task.federation, validation=random_split((4, 4, 4, 4), 3)), task.learner)


@given(st.lists(st.floats(0, 1), max_size=30), st.integers(1, 6))
def test_it_stops_only_where_nothing_rose(accuracies: list[float], patience: int) -> None:
    stopped = EarlyStopping(patience=patience)(accuracies)
    best = max(range(len(accuracies)), key=lambda place: accuracies[place], default=0)
    assert stopped == (len(accuracies) - 1 - best >= patience)


def test_a_run_stops_and_says_so() -> None:
    seen: list[Sequence[float]] = []

    def after_three(accuracies: Sequence[float]) -> bool:
        seen.append(list(accuracies))
        return len(accuracies) == 3

    records: list[Record] = []
    run = federate(validated_task(), fedavg(), rounds=9, stop=after_three, on_record=records.append)
    assert run.ledger.last_round() == 3
    assert [len(values) for values in seen] == [1, 2, 3]
    assert all(0 <= value <= 1 for value in seen[-1])
    assert [record.index for record in records] == [1, 2, 3]
    assert "stopped early: validation accuracy is" in next(e for e in run.events() if e.kind == "stopped").text
    assert run.accuracy == records[-1].evaluation.accuracy  # type: ignore[union-attr]


def test_a_run_without_reason_to_stop_is_the_same_run() -> None:
    plain, watched = (federate(validated_task(), fedavg(), rounds=4, stop=stop) for stop in (None, lambda seen: False))
    assert plain.model.tobytes() == watched.model.tobytes()


def test_personal_models_have_no_early_stopping() -> None:
    with pytest.raises(ConfigError, match="each client has its own"):
        federate(validated_task(), m2f("DS"), stop=EarlyStopping())


def settings(*more: str) -> list[str]:
    """Twelve rounds in which nothing is learned."""
    quick = ["task.clients=4", "task.validation=0.2", "run.rounds=12", "run.fraction=1.0", "run.workers=1"]
    return [*quick, "task.model=digits-linear", "train.epochs=1", "train.lr=1e-30", *more]


STOP = "run.stop={patience=2}"


def test_a_configured_run_stops_and_is_finished(tmp_path: Path, cli: CommandLine) -> None:
    run = run_config(load_config(None, settings(STOP)), tmp_path / "run")
    played = run.ledger.last_round()
    assert played < 12
    assert EarlyStopping(patience=2)(run.ledger.validated())
    assert not EarlyStopping(patience=2)(run.ledger.validated()[:-1])
    assert [event.round for event in run.events() if event.kind == "stopped"] == [played]
    same = run_config(load_config(None, settings(f"run.rounds={played}")), tmp_path / "whole")
    assert Run.load(tmp_path / "run").model.tobytes() == same.model.tobytes()
    answer = cli("run", "--resume", tmp_path / "run")
    assert f"after {played} rounds" in answer.out


def test_a_run_that_is_resumed_stops_where_it_would_have(tmp_path: Path) -> None:
    config = load_config(None, settings(STOP))
    whole = run_config(config, tmp_path / "whole")
    last = whole.ledger.last_round()
    again = stopped_and_resumed(config, tmp_path / "again", 2)
    assert again.ledger.validated() == whole.ledger.validated()
    assert again.model.tobytes() == whole.model.tobytes()
    between = stopped_and_resumed(config, tmp_path / "between", last)  # after its last round, before its end
    assert between.ledger.last_round() == last
    assert between.model.tobytes() == whole.model.tobytes()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (["task.validation=0.0"], "no client has any"),
        (["run.evaluate_every=3"], "remove evaluate_every"),
        (["run.stop={patience=0}"], "run.stop.patience"),
        (["run.stop={patients=3}"], "patients"),
    ],
)
def test_what_run_stop_needs(tmp_path: Path, changes: list[str], words: str) -> None:
    with pytest.raises(UserError, match=words):
        run_config(load_config(None, settings(STOP, *changes)), tmp_path / "run")


def test_runs_of_a_study_stop_by_themselves(tmp_path: Path) -> None:
    base = load_config(None, settings(STOP)).model_dump(mode="json", exclude_none=True, exclude_defaults=True)
    base["run"].pop("workers")
    rows = [{"name": "FedAvg"}, {"name": "still", "train": {"lr": 1e-30}}]
    plan = make_plan({"name": "stops", "seeds": [1], "base": base, "row": rows})
    study = compare(plan, tmp_path / "study", jobs=1)
    played = study.metrics.set_index(["row", "seed"])["rounds"]
    assert study.metrics["finished"].all()
    assert (played < 12).all()
    assert (played["still"] == 3).all()
    write_report([tmp_path / "study"], tmp_path / "page.html")
    assert "unfinished" not in summary_table(study).markdown()
