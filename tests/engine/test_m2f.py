"""M2F on real clients: quality inside groups, rewards in proportion, own models kept or reset, killed and resumed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import CannedFleet, CommandLine, one_line, run_canned, small_task, stopped_and_resumed

from fedmerit import DS, ByCosine, Run, TopShare, federate, load_task, m2f, prioritized, run_config
from fedmerit.config.schema import Config, make_config
from fedmerit.core.collect.schedules import Schedule
from fedmerit.core.criteria.table import PARTICIPATION, REPORTED_COMPUTATION, Computation
from fedmerit.core.models.rewards import Whole
from fedmerit.errors import ConfigError
from fedmerit.store.model_files import read_model
from fedmerit.tasks.registry import make_task

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


def test_shares_are_participation_times_speed_times_size_inside_the_group(run: Run):
    seen: dict[int, int] = {}
    for row in run.ledger.rounds():
        earned = run.explain(row["round"])
        for one in earned:
            seen[one.id] = seen.get(one.id, 0) + 1
        for group in range(row["groups"]):
            mine = [one for one in earned if one.group == group]
            phi = np.array([seen[one.id] / row["round"] for one in mine])
            quality = phi * [one.facts["epochs"] * one.facts["samples"] for one in mine]
            assert [one.weight for one in mine] == pytest.approx(quality / quality.sum())
            assert [one.criteria["Participation"] for one in mine] == pytest.approx(phi)
            assert sum(one.weight for one in mine) == pytest.approx(1)
            assert sum(one.criteria["DataRatio"] for one in mine) == pytest.approx(1)
            assert min(one.criteria["SimulatedComputation"] for one in mine) == 1


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


def test_a_stopped_run_ends_with_the_same_own_models(folder: Path, tmp_path: Path):
    stopped_and_resumed(settings(), tmp_path / "stopped", 3)
    assert own(tmp_path / "stopped") == own(folder)
    assert len(own(folder)) == 12
    rows = [Run.load(path).ledger.rewards() for path in (tmp_path / "stopped", folder)]
    assert rows[0] == rows[1]


def test_workers_do_not_matter(folder: Path, tmp_path: Path):
    run_config(settings(workers=3), tmp_path / "run")
    assert own(tmp_path / "run") == own(folder)


def test_one_group_and_the_whole_reset_is_fedavg_with_quality_weights(tmp_path: Path):
    models = {"grouping": "one", "reward": "whole", "training": "reset", "sigma": 1e9, "initial": 0.0}
    everybody = {"schedule": {"epochs": 2}}
    run_config(settings({"criteria": ["DS"], "models": models}, **everybody), tmp_path / "m2f")
    fedavg = {"name": "prioritized", "criteria": ["DS"], "normalise": "max"}
    values = settings(**everybody).model_dump() | {"recipe": fedavg}
    shared = run_config(make_config(values), tmp_path / "fedavg")
    assert set(own(tmp_path / "m2f").values()) == {shared.model.tobytes()}


@pytest.mark.parametrize(
    ("training", "times"),
    [("keep", 2), ("reset", 1)],
)
def test_what_a_client_alone_gets_back(tmp_path: Path, training: str, times: int):
    """Its own update, on top of its training or instead of it."""
    task = TASK | {"clients": 1, "groups": [list(range(10))]}
    models = {"training": training, "sigma": 1e9, "initial": 0.0}
    values = settings({"models": models}, rounds=1, schedule={"epochs": 1}).model_dump() | {"task": task}
    config = make_config(values)
    run = run_config(config, tmp_path / "run")
    start = run.model
    made = make_task(config)
    from fedmerit.core.seeds import derive

    update = made.learner.train(start, made.federation.samples(0), derive(4, "train", 1, 0), 1) - start
    assert np.frombuffer(own(tmp_path / "run")["0"], np.float32) == pytest.approx(start + times * update, abs=1e-6)


def test_the_initial_phase_averages_the_models_of_a_few(tmp_path: Path):
    run = run_config(settings({"models": {"initial": 0.25}}, rounds=1), tmp_path / "run")
    (event,) = [event for event in run.events() if event.kind == "initial"]
    assert event.text.startswith("3 clients trained the first model")
    without = run_config(settings({"models": {"initial": 0.0}}, rounds=1), tmp_path / "without")
    assert not [event for event in without.events() if event.kind == "initial"]
    config = settings()
    task = make_task(config)
    from fedmerit.core.seeds import derive

    start = task.learner.start(derive(4, "model"))
    assert (without.model == start).all()
    chosen = [int(text) for text in event.text.partition("[")[2].rstrip("]").split(",")]
    trained = [task.learner.train(start, task.federation.samples(c), derive(4, "train", 0, c)) for c in chosen]
    assert run.model == pytest.approx(np.mean(trained, axis=0), abs=1e-6)


def test_by_the_servers_clock_everybody_gets_a_share():
    task = load_task("digits", **{key: value for key, value in TASK.items() if key != "data"})
    run = federate(task, m2f(initial=0.0), rounds=2, fraction=1.0)
    for one in run.explain(2):
        assert one.facts["clock"] > 0
        assert one.criteria["Computation"] >= 1
        assert one.weight > 0


@pytest.mark.parametrize("linkage", ["complete", "single"])
@pytest.mark.parametrize("reward", [TopShare("max"), TopShare(scope="layer"), Whole()])
def test_every_linkage_and_reward_runs(linkage: Any, reward: Any):
    task = load_task("digits", **{key: value for key, value in TASK.items() if key != "data"})
    recipe = m2f(PARTICIPATION, DS, grouping=ByCosine(linkage), reward=reward, initial=0.1)
    run = federate(task, recipe, rounds=2, selection=Schedule(2, ((1.0, 1),)))
    assert run.accuracy > 0.2
    assert len(run.ledger.rewards(2)) == 12


@pytest.mark.parametrize("seconds", [0, 0.0, float("nan"), -1.0, float("inf"), None, "fast"])
def test_a_client_that_reports_an_impossible_time_is_left_out(seconds: Any):
    updates = np.ones((3, 2), dtype=np.float32)
    facts = [{"samples": 10, "seconds": 2.0}, {"samples": 10, "seconds": seconds}, {"samples": 10, "seconds": 4.0}]
    recipe = prioritized(REPORTED_COMPUTATION, DS, normalise="max")
    _, record = run_canned(recipe, CannedFleet(updates, facts))
    assert record.ids == (0, 2)
    assert "seconds" in record.dropped[1]
    assert record.weights is not None
    assert record.weights.raw[:, 0].tolist() == [2, 1]


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
        (["recipe.models.grouping.cut=silhouette", "recipe.models.grouping.threshold=1.5"], "0..1"),
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
