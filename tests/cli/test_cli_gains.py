"""`fedmerit explain --fairness` with a standalone run: one given, or the row of its study."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers import CommandLine

from fedmerit import Run, run_config
from fedmerit.config.schema import make_config
from fedmerit.study.plan import make_plan
from fedmerit.study.study_folder import make_folder, members, write_plan

BASE = {
    "task": {"clients": 5, "partition": "iid", "kinds": {"free_rider": 0.2}},
    "train": {"lr": 0.1},
    "run": {"rounds": 2, "fraction": 1.0, "workers": 1, "evaluate_every": 2},
}
ROWS = [{"name": "FedAvg", "recipe": {"name": "fedavg", "stages": ["contribution:cosine"]}}]


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study of two rows, one of which is alone; its runs made in this process."""
    folder = tmp_path_factory.mktemp("gains") / "study"
    plan = make_plan({"seeds": 1, "base": BASE, "row": [*ROWS, {"name": "alone", "recipe": "standalone"}]})
    make_folder(folder)
    write_plan(plan, folder)
    for member in members(plan, folder):
        run_config(member.config, member.folder).ledger.close()
    return folder / "runs"


def test_the_studys_own_row_is_taken(cli: CommandLine, study: Path):
    answer = cli("explain", study / "fedavg-seed1", "--fairness", "--json")
    assert (answer.code, answer.err) == (0, "")
    gains = answer.json["gains"]
    run, alone = Run.load(study / "fedavg-seed1"), Run.load(study / "alone-seed1")
    difference = run.local_accuracy[-1] - alone.local_accuracy[-1]
    assert gains["mean"] == pytest.approx(float(difference.mean()))
    assert gains["contribution_by"] == "cosine"
    assert [run.ledger.names()[client] for client in gains["free_riders"]] == [
        name for name in run.ledger.names() if name.endswith("free_rider")
    ]
    assert gains["below_standalone"] == [client for client, gain in enumerate(difference) if gain < 0]


def test_screen_with_a_run_that_is_given(cli: CommandLine, study: Path, tmp_path: Path):
    alone = tmp_path / "alone"
    run_config(make_config({**BASE, "recipe": "standalone", "run": {**BASE["run"], "seed": 1}}), alone).ledger.close()
    answer = cli(
        "explain", study / "fedavg-seed1", "--fairness", "--standalone", alone, "--measured", study / "fedavg-seed1"
    )
    assert answer.code == 0
    for words in ("gains over training alone; contribution by cosine", "mean collaboration gain", "below standalone"):
        assert words in answer.out


def test_nothing_to_compare_with(cli: CommandLine, study: Path, tmp_path: Path):
    lonely = tmp_path / "lonely"
    run_config(make_config({**BASE, "recipe": "fedavg"}), lonely).ledger.close()
    assert "gains" not in cli("explain", lonely, "--fairness", "--json").json
    refused = cli("explain", lonely, "--fairness", "--measured", study / "fedavg-seed1")
    assert refused.code != 0
    assert "give --standalone" in refused.err
