"""Fairness of rewards: convergence, the accounts of a run, and gains over a standalone run."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from helpers import CommandLine, small_task

from fedmerit import Run, fedavg, federate, run_config
from fedmerit.config.schema import make_config
from fedmerit.core.collect.schedules import Schedule
from fedmerit.errors import ConfigError, UserError
from fedmerit.study.fairness import Convergence, convergence, fairness_of, rank_correlation
from fedmerit.study.plan import make_plan
from fedmerit.study.study_folder import make_folder, members, write_plan


@pytest.mark.parametrize(
    ("curve", "expected"),
    [
        ([0.5, 0.91, 0.89, 0.92, 0.94], Convergence(2, 4, 0.93)),
        ([0.95, 0.97], Convergence(1, 1, 0.96)),
        ([0.5, 0.9], Convergence(2, 2, 0.9)),
        ([0.95, 0.5], Convergence(1, None, None)),
        ([0.1, 0.2], Convergence(None, None, None)),
        ([math.nan, 0.95], Convergence(2, 2, 0.95)),
        ([0.95, math.nan], Convergence(1, None, None)),
    ],
)
def test_convergence(curve: list[float], expected: Convergence):
    measured = convergence(range(1, len(curve) + 1), np.array(curve), 0.9)
    assert (measured.reached, measured.stays) == (expected.reached, expected.stays)
    assert measured.average == (None if expected.average is None else pytest.approx(expected.average))


@pytest.mark.parametrize("level", [0.0, -1.0, 1.1, math.nan])
def test_a_level_is_an_accuracy(level: float):
    with pytest.raises(ConfigError, match="level"):
        convergence([1], np.array([0.5]), level)


def test_rank_correlation_leaves_out_unknown_pairs():
    assert rank_correlation([1, 2, 3, 4], [1, 4, math.nan, 9]) == pytest.approx(1)
    assert rank_correlation([1, 2, 3], [3, 2, 1]) == pytest.approx(-1)
    assert math.isnan(rank_correlation([1, 2], [1, 2]))
    assert math.isnan(rank_correlation([1, 1, 1], [1, 2, 3]))


def test_accounts_of_a_run():
    schedule = Schedule(10, ((0.2, 1), (0.5, 1), (1.0, 2)))
    run = federate(small_task(), fedavg(), rounds=10, selection=schedule)
    fairness = fairness_of(run.ledger, level=0.5)
    assert [account.rounds for account in fairness.accounts] == [2, 5, 10, 10]
    assert [account.contribution for account in fairness.accounts] == [10, 60, 200, 80]
    assert {account.rewards for account in fairness.accounts} == {0}
    final = run.local_accuracy[-1]
    assert [account.accuracy for account in fairness.accounts] == final.tolist()
    assert fairness.classes == pytest.approx({2: final[0], 5: final[1], 10: final[2:].mean()})
    assert fairness.gap == pytest.approx(max(fairness.classes.values()) - min(fairness.classes.values()))
    assert fairness.accuracy == pytest.approx(rank_correlation([10, 60, 200, 80], final), nan_ok=True)


def test_many_counts_become_three_classes():
    run = federate(small_task((6,) * 12, (6,) * 12), fedavg(), rounds=30, fraction=0.4, seed=3)
    fairness = fairness_of(run.ledger)
    assert len(fairness.classes) == 3
    assert max(fairness.classes) == max(account.rounds for account in fairness.accounts)


def test_a_run_without_tests_has_no_fairness():
    from fedmerit.store.ledger import Ledger

    with pytest.raises(UserError, match="no evaluated round"):
        fairness_of(Ledger.create(None, ["a"], {}))


BASE = {
    "task": {"clients": 5, "partition": "iid", "kinds": {"free_rider": 0.2}},
    "train": {"lr": 0.1},
    "run": {"rounds": 2, "fraction": 1.0, "workers": 1, "evaluate_every": 2},
}
ROWS = [{"name": "FedAvg", "recipe": {"name": "fedavg", "stages": ["contribution:cosine"]}}]


@pytest.fixture(scope="module")
def gain_runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study of two rows, one of which is alone; its runs made in this process."""
    folder = tmp_path_factory.mktemp("gains") / "study"
    plan = make_plan({"seeds": 1, "base": BASE, "row": [*ROWS, {"name": "alone", "recipe": "standalone"}]})
    make_folder(folder)
    write_plan(plan, folder)
    for member in members(plan, folder):
        run_config(member.config, member.folder).ledger.close()
    return folder / "runs"


def test_the_studys_own_row_is_taken(cli: CommandLine, gain_runs: Path):
    answer = cli("explain", gain_runs / "fedavg-seed1", "--fairness", "--json")
    assert (answer.code, answer.err) == (0, "")
    gains = answer.json["gains"]
    run, alone = Run.load(gain_runs / "fedavg-seed1"), Run.load(gain_runs / "alone-seed1")
    difference = run.local_accuracy[-1] - alone.local_accuracy[-1]
    assert (gains["mean"], gains["contribution_by"]) == (pytest.approx(float(difference.mean())), "cosine")
    assert [run.ledger.names()[client] for client in gains["free_riders"]] == [
        name for name in run.ledger.names() if name.endswith("free_rider")
    ]
    assert gains["below_standalone"] == [client for client, gain in enumerate(difference) if gain < 0]


def test_screen_with_a_run_that_is_given(cli: CommandLine, gain_runs: Path, tmp_path: Path):
    alone = tmp_path / "alone"
    run_config(make_config({**BASE, "recipe": "standalone", "run": {**BASE["run"], "seed": 1}}), alone).ledger.close()
    answer = cli(
        "explain",
        gain_runs / "fedavg-seed1",
        "--fairness",
        "--standalone",
        alone,
        "--measured",
        gain_runs / "fedavg-seed1",
    )
    assert answer.code == 0
    for words in ("gains over training alone; contribution by cosine", "mean collaboration gain", "below standalone"):
        assert words in answer.out


def test_nothing_to_compare_with(cli: CommandLine, gain_runs: Path, tmp_path: Path):
    lonely = tmp_path / "lonely"
    run_config(make_config({**BASE, "recipe": "fedavg"}), lonely).ledger.close()
    assert "gains" not in cli("explain", lonely, "--fairness", "--json").json
    refused = cli("explain", lonely, "--fairness", "--measured", gain_runs / "fedavg-seed1")
    assert refused.code != 0
    assert "give --standalone" in refused.err
