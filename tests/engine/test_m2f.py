"""M2F on real clients: quality inside groups, rewards in proportion, own models kept or reset, killed and resumed."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import CommandLine, one_line, small_task, stopped_and_resumed

from fedmerit import DS, Run, federate, m2f, prioritized, run_config
from fedmerit.config.schema import Config, make_config
from fedmerit.core.criteria.table import Computation
from fedmerit.errors import ConfigError
from fedmerit.store.model_files import read_model

GROUPS = [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]
TASK = {
    "data": "digits",
    "partition": "label-draws",
    "groups": GROUPS,
    "size": [30, 60],
    "alpha": 20.0,
    "clients": 12,
    "validation": 0.2,
    "test": "matched",
    "model": "digits-mlp",
}
RECIPE = {"name": "m2f", "criteria": ["Participation", "SimulatedComputation", "DataRatio"]}
RUN = {"rounds": 6, "seed": 4, "workers": 1, "schedule": {"rates": [[0.5, 2], [1.0, 4]], "epochs": [1, 3]}}


def settings(recipe: dict[str, Any] | None = None, **run: Any) -> Config:
    values = {"task": TASK, "train": {"lr": 0.2, "epochs": 2, "batch": 10}}
    return make_config(values | {"recipe": RECIPE | (recipe or {}), "run": RUN | run})


def own(folder: Path) -> dict[str, bytes]:
    """The clients' own models at the end of a run."""
    found = {path.stem: read_model(path) for path in sorted((folder / "personal").iterdir())}
    return {client: model[0].tobytes() for client, model in found.items() if model}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("m2f") / "run"
    run_config(settings(), out)
    return out


@pytest.fixture(scope="module")
def run(folder: Path) -> Run:
    return Run.load(folder)


def found_groups(run: Run, round: int) -> set[tuple[int, int]]:
    """The pairs (planted group, group found)."""
    return {(one.id // 6, one.group) for one in run.explain(round)}


def test_planted_groups_are_found(run: Run, tmp_path: Path):
    assert found_groups(run, 1) == {(0, 0), (1, 1)}
    other = run_config(settings({"models": {"grouping": {"over": "all"}}}), tmp_path / "all")
    for row in other.ledger.rounds():
        assert found_groups(other, row["round"]) == {(0, 0), (1, 1)}, row["round"]
    reset = run_config(settings({"models": {"training": "reset"}}), tmp_path / "reset")
    for row in reset.ledger.rounds():
        pairs = found_groups(reset, row["round"])
        assert len(pairs) == row["groups"], "no group holds clients of both"


def test_a_grouping_over_all_rounds_is_the_same_after_a_stop(tmp_path: Path):
    recipe = {"models": {"grouping": {"over": "all"}}}
    whole = run_config(settings(recipe), tmp_path / "whole")
    resumed = stopped_and_resumed(settings(recipe), tmp_path / "stopped", 4)
    assert [row["cut"] for row in resumed.ledger.rounds()] == [row["cut"] for row in whole.ledger.rounds()]
    assert own(tmp_path / "stopped") == own(tmp_path / "whole")
    alone = run_config(settings(), tmp_path / "alone")
    assert [row["cut"] for row in alone.ledger.rounds()] != [row["cut"] for row in whole.ledger.rounds()]


def test_rewards_have_the_size_of_the_share_and_their_bytes_are_counted(run: Run):
    length = len(run.model)
    for row in run.ledger.rounds():
        weights = {one.id: one.weight for one in run.explain(row["round"])}
        rewards = run.ledger.rewards(row["round"])
        assert [reward.client for reward in rewards] == sorted(weights)
        for reward in rewards:
            assert reward.entries == np.ceil(weights[reward.client] * length - 1e-9)
            assert reward.bytes == (8 * reward.entries if reward.entries < length else 4 * length)
        models = row["bytes_down"] - sum(reward.bytes for reward in rewards)
        newcomers = set(weights) - {one.id for earlier in range(1, row["round"]) for one in run.explain(earlier)}
        assert models == 4 * length * len(newcomers), "a model goes only to who has none"


def test_computation_reads_the_servers_clock():
    assert m2f().required_facts == ("samples", "clock")
    assert m2f().client_facts == ("samples",)


def test_what_the_task_must_have():
    with pytest.raises(ConfigError, match=r"task\.validation"):
        federate(small_task(), m2f(DS), rounds=1)
    with pytest.raises(ConfigError, match=r"run\.schedule\.epochs"):
        federate(small_task(), prioritized(Computation("epochs", "SimulatedComputation")), rounds=1)


TOML = """
[task]
data = "digits"
partition = "label-draws"
alpha = 20.0
groups = [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]
size = 40
clients = 8
validation = 0.2
test = "matched"
[train]
lr = 0.2
batch = 10
[recipe]
name = "m2f"
criteria = ["Participation", "SimulatedComputation", "DataRatio"]
[recipe.models.grouping]
name = "cosine"
over = "all"
[run]
rounds = 4
workers = 1
[run.schedule]
rates = [[0.5, 1], [1.0, 3]]
epochs = [1, 3]
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "m2f.toml"
    path.write_text(TOML)
    return path


def test_from_the_command_line(cli: CommandLine, config: Path, tmp_path: Path):
    out = tmp_path / "run"
    told = cli("run", config, "--out", out).out
    assert "2 groups" in told
    assert "rewards accepted" in told
    round = cli("explain", out, "--round", "2", "--json").json
    assert round["groups"]["number"] == 2
    assert all(client["reward"]["entries"] > 0 for client in round["clients"])
    text = cli("explain", out, "--round", "2").out
    assert "group 1 of 2" in text
    assert "entries" in text
    client = cli("explain", out, "--round", "2", "--client", str(round["clients"][0]["id"])).out
    assert "of group 1 of 2 in round 2" in client
    assert "reward:" in client
    assert "groups:" in cli("report", out, "--text").out
    assert cli("report", out, "--text", "--json").json["groups"]["rewards"] > 0
    accounts = cli("explain", out, "--fairness", "--level", "0.5", "--json").json
    assert [account["rounds"] for account in accounts["accounts"]] == [2, 4, 4, 4] * 2
    assert set(accounts["accuracy_by_rounds_taken_part"]) == {"2", "4"}
    assert "rank correlation" in cli("explain", out, "--fairness").out
    assert cli("report", out, "--out", tmp_path / "report.html").code == 0


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (["recipe.models.sigma=-0.1"], "recipe.models.sigma"),
        (["recipe.models.grouping.cut=2.5"], "recipe.models.grouping.cut"),
        (["recipe.models.reward.gift=1"], "gift"),
        (["run.schedule.epochs=[0,3]"], "run.schedule.epochs"),
        (["run.schedule.rates=[[1.5,1]]"], "rate"),
        (["task.validation=0.0"], "task.validation"),
        (["task.size=100000"], "task.size"),
    ],
)
def test_mistakes_are_one_line(cli: CommandLine, config: Path, tmp_path: Path, changes: list[str], says: str):
    arguments = [part for change in changes for part in ("--set", change)]
    assert says in one_line(cli("run", config, "--out", tmp_path / "run", *arguments))
    assert not (tmp_path / "run").exists()


def test_an_impossible_level_of_fairness(cli: CommandLine, config: Path, tmp_path: Path):
    cli("run", config, "--out", tmp_path / "run", "--set", "run.rounds=1")
    assert "level" in one_line(cli("explain", tmp_path / "run", "--fairness", "--level", "2"))
