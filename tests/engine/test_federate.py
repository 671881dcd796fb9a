"""`federate` in a script: who takes part by default, a folder, progress, names for criteria, notes as warnings."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest
from helpers import small_task

from fedmerit import DS, LD, Run, UserError, adaptive, device_aware, fedavg, federate, m2f, prioritized, resume
from fedmerit.core.collect.collect import default_fraction
from fedmerit.errors import FolderError, NoteWarning, UnknownName
from fedmerit.report.html import write_report


@pytest.mark.parametrize(("clients", "share"), [(1, 1.0), (8, 1.0), (10, 1.0), (20, 0.5), (100, 0.1), (5000, 0.1)])
def test_few_clients_all_take_part_and_of_many_a_tenth(clients: int, share: float) -> None:
    assert default_fraction(clients) == share


def test_all_of_eight_clients_take_part_unless_told_otherwise() -> None:
    task = small_task(sizes=[5] * 8, tests=[6] * 8)
    assert len(federate(task, fedavg(), rounds=1).explain(1)) == 8
    assert len(federate(task, fedavg(), rounds=1, fraction=0.25).explain(1)) == 2


def test_criteria_by_name() -> None:
    assert prioritized("LD", DS) == prioritized(LD, DS)
    assert device_aware("DS", "LD") == device_aware(DS, LD)
    assert m2f("DS").priority == ("DS",)
    assert prioritized("attribute:night").priority == ("attribute:night",)
    with pytest.raises(UnknownName, match="did you mean one of 'label diversity'"):
        prioritized("LDD")


def test_what_is_no_recipe_is_refused_before_anything_runs() -> None:
    task = small_task(sizes=[5] * 4, tests=[6] * 4)
    with pytest.raises(TypeError, match=r"must be a Recipe \(got Task\); swap"):
        federate(fedavg(), task)  # type: ignore[arg-type]
    for make in (prioritized, device_aware, adaptive):
        assert make("LD", "DS").normalise == "max"
        with pytest.raises(UserError, match=r"value of normalise 'maxx' \(did you mean 'max'\?\)"):
            make("LD", "DS", normalise="maxx")  # type: ignore[arg-type]


def test_a_run_into_a_folder_is_read_back_and_reported(tmp_path: Path) -> None:
    folders = [tmp_path / "ld-seed1", tmp_path / "ld-seed2"]
    runs = [
        federate(small_task(), prioritized("LD", "DS"), rounds=2, seed=seed, out=folder)
        for seed, folder in enumerate(folders, start=1)
    ]
    again = Run.load(folders[0])
    assert np.array_equal(again.model, runs[0].model)
    assert again.explain(2) == runs[0].explain(2)
    in_memory = federate(small_task(), prioritized("LD", "DS"), rounds=2, seed=1)
    assert np.array_equal(in_memory.model, again.model)
    write_report(folders, tmp_path / "page.html")
    assert (tmp_path / "page.html").stat().st_size > 1000
    with pytest.raises(FolderError, match="exists"):
        federate(small_task(), fedavg(), rounds=1, out=str(folders[0]))


def test_progress_shows_rounds(capsys: pytest.CaptureFixture[str]) -> None:
    federate(small_task(), fedavg(), rounds=2, progress=True)
    assert "round 2 of 2  accuracy" in capsys.readouterr().out
    federate(small_task(), fedavg(), rounds=2)
    assert capsys.readouterr().out == ""


def test_each_kind_of_note_warns_once_and_points_at_the_caller() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        federate(small_task(sizes=(9, 9, 9, 9)), fedavg(), rounds=3)
    notes = [warning for warning in caught if warning.category is NoteWarning]
    assert [str(note.message) for note in notes] == [
        "round 1: DS is the same for all clients of the round, so it has no effect"
    ]
    assert notes[0].filename == __file__


def test_a_run_of_a_task_made_in_python_is_not_resumed(tmp_path: Path) -> None:
    federate(small_task(), fedavg(), rounds=1, out=tmp_path / "run")
    with pytest.raises(FolderError, match="made in Python"):
        resume(tmp_path / "run")
