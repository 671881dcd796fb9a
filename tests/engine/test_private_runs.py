"""Private runs: epsilon in the ledger, noise by the seed or not, and every noisy sum in the account of a killed run."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers import small_task, stopped_and_resumed

from fedmerit import DS, Poisson, PrivateSum, Run, Uniform, federate, load_task, prioritized, resume, run_config, scale
from fedmerit.config.privacy import epsilon_after, make_collect, make_privacy, recipe_of
from fedmerit.config.schema import Config, make_config
from fedmerit.core.recipes import private as noisy
from fedmerit.engine import loop
from fedmerit.errors import ConfigError
from fedmerit.fleet.local import LocalFleet
from fedmerit.store.ledger import Ledger
from fedmerit.store.verify import verify_run

VALUES: dict[str, Any] = {
    "task": {"clients": 12},
    "train": {"lr": 0.5},
    "recipe": {"name": "prioritized", "criteria": "DS", "normalise": {"name": "scale", "bounds": {"DS": 100}}},
    "run": {"rounds": 3, "fraction": 0.5, "workers": 1, "selection": "poisson"},
    "privacy": {"clip": 1.0, "noise": 1.1, "delta": 1e-3, "reproducible": True},
}


def private(**sections: dict[str, Any]) -> Config:
    return make_config({name: keys | sections.get(name, {}) for name, keys in VALUES.items()})


def test_the_ledger_holds_epsilon_after_each_round(tmp_path: Path) -> None:
    run = run_config(private(), tmp_path / "run")
    spent = [row["epsilon"] for row in run.ledger.rounds()]
    assert spent == pytest.approx([epsilon_after(1.1, 0.5, index, 1e-3) for index in (1, 2, 3)])
    assert "the guarantee is void" in " ".join(event.text for event in run.events())
    assert not (tmp_path / "run" / "best.safetensors").exists(), "clients' test rows would choose it"


def test_bits_depend_on_the_seed_only_where_it_is_asked_for(tmp_path: Path) -> None:
    models: dict[str, Run] = {}
    for name, again in (("a", True), ("b", True), ("c", False), ("d", False)):
        models[name] = run_config(private(privacy={"reproducible": again}), tmp_path / name)
    assert (models["a"].model == models["b"].model).all()
    assert (models["c"].model != models["d"].model).mean() > 0.9
    assert "void" not in " ".join(event.text for event in models["c"].events())


def test_a_target_epsilon_is_reached_after_the_last_round_and_not_before(tmp_path: Path) -> None:
    target = {"noise": None, "epsilon": 5.0}
    *_, before, last = (row["epsilon"] for row in run_config(private(privacy=target), tmp_path / "run").ledger.rounds())
    assert before < 4.9 < last <= 5.0


def test_a_private_run_in_python_needs_a_selection_that_fits() -> None:
    recipe = noisy(prioritized(DS, normalise=scale({"DS": 20})), PrivateSum(1.0, 0.5, delta=0.01))
    run = federate(small_task(), recipe, rounds=2, selection=Poisson(0.5))
    assert [row["epsilon"] is not None for row in run.ledger.rounds()] == [True, True]
    with pytest.raises(ConfigError, match=r"take part independently .got Uniform.*set run.selection = \"poisson\""):
        federate(small_task(), recipe, rounds=2, selection=Uniform(0.5))


def test_what_a_task_sends_without_noise_is_refused() -> None:
    recipe = noisy(prioritized(DS, normalise=scale({"DS": 20})), PrivateSum(1.0, 0.5, delta=0.01))
    task = load_task("digits", clients=12, train={"algorithm": "scaffold"})
    with pytest.raises(ConfigError, match="clients receive control vectors of other clients without noise"):
        federate(task, recipe, rounds=1, selection=Poisson(0.5))


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"privacy": {"epsilon": 0}}, "privacy.epsilon: .*greater than 0"),
        ({"privacy": {"noise": 0}}, "privacy.noise: .*greater than 0"),
        ({"privacy": {"delta": 0}}, "privacy.delta: .*greater than 0"),
        ({"privacy": {"clip": -1}}, "privacy.clip: .*greater than 0"),
        ({"privacy": {"epsilon": 3}}, r"needs either noise or epsilon \(got both\)"),
        ({"privacy": {"noise": None}}, r"\(got neither\)"),
        ({"privacy": {"clip": "adaptive"}}, "privacy.clip: .*number"),
        ({"run": {"schedule": {}}}, "selection has no effect with a schedule"),
    ],
)
def test_wrong_settings_are_refused(sections: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        private(**sections)


def collector(**sections: dict[str, Any]) -> Any:
    config = make_config({"recipe": {"name": "fedavg"}, "task": {"clients": 12}, **sections})
    return make_collect(config, recipe_of(config))


def test_the_clip_has_a_default_for_noise_and_one_for_masks() -> None:
    noise = make_config({"privacy": {"noise": 1.1}})
    assert make_privacy(noise.privacy, noise.run).clip == 1.0
    assert collector(privacy={"masked": True}).masking.clip == 100.0
    assert collector(privacy={"masked": True, "clip": 3.0}).masking.clip == 3.0
    both = {"masked": True, "noise": 1.1, "clip": 2.0}
    assert collector(privacy=both, run={"selection": "poisson"}, recipe=VALUES["recipe"]).masking.clip == 2.0


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"privacy": {"masked": True, "delta": 1e-3}}, "privacy.delta has no effect without noise"),
        ({"privacy": {"masked": True, "reproducible": True}}, "privacy.reproducible has no effect without noise"),
        ({"privacy": {"masked": False}}, "needs either noise or epsilon"),
        ({"privacy": {"masked": True}, "run": {"facts": "together"}}, 'run.facts = "together" cannot be combined'),
    ],
)
def test_settings_without_effect_are_refused(sections: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        collector(**sections)


@pytest.mark.parametrize("extra", [{"run": {"facts": "first"}}, {"privacy": {"masked": True}}])
def test_rounds_with_facts_first_resume_to_the_same_bits(tmp_path: Path, extra: dict[str, Any]) -> None:
    run = {"rounds": 3, "fraction": 0.5, "workers": 1} | extra.get("run", {})
    config = make_config({"task": {"clients": 12}, "recipe": {"name": "fedavg"}, **extra, "run": run})
    whole, resumed = run_config(config, tmp_path / "whole"), stopped_and_resumed(config, tmp_path / "resumed")
    assert (whole.model == resumed.model).all()
    errors = [row["error"] for row in whole.ledger.rounds()]
    assert all(error is not None and error < 1e-5 for error in errors) == ("privacy" in extra)
    assert {event.kind for event in whole.events()} >= {"hidden"}


@pytest.mark.parametrize(
    ("recipe", "named"),
    [
        ({"name": "prioritized", "criteria": ["MW", "DS"]}, "MW"),
        ({"name": "fedval"}, "validated:accuracy"),
        ({"name": "robust"}, "SimilarityFilter"),
        ({"name": "m2f"}, "personal"),
        ({"name": "ifca"}, "clusters"),
        ({"name": "qffl"}, "LossPower"),
        ({"name": "last_answers"}, "last-answers"),
        ({"name": "adaptive"}, "steps"),
        ({"name": "fedavg", "stages": ["clip"]}, "clip"),
        ({"name": "fedavg", "server": {"aggregator": "median"}}, "median"),
        ({"name": "fedavg", "server": {"optimizer": "fedexp"}}, "fedexp"),
    ],
)
def test_parts_that_read_single_updates_are_refused_by_name(recipe: dict[str, Any], named: str, tmp_path: Path) -> None:
    task = {"clients": 4, "server": 100, "validation": 0.2}
    config = make_config({"task": task, "recipe": recipe, "run": {"rounds": 1, "facts": "first"}})
    with pytest.raises(ConfigError, match=f'^{named} cannot be combined with run.facts = "first"'):
        run_config(config, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_masked_round_needs_clients_to_hide_in_and_no_coalition(tmp_path: Path) -> None:
    few = {"task": {"clients": 8}, "run": {"fraction": 0.1}, "privacy": {"masked": True}}
    with pytest.raises(ConfigError, match=r"privacy.masked needs at least 3 clients in a round"):
        run_config(make_config(few), tmp_path / "few")
    attack = {"clients": 8, "attack": {"kind": "alie", "share": 0.25}}
    with pytest.raises(ConfigError, match="kind alie sees the updates of the round before they count"):
        run_config(make_config({"task": attack, "run": {"facts": "first", "fraction": 1.0}}), tmp_path / "attack")


NOISE, FRACTION, DELTA, ROUNDS = 1.1, 0.5, 1e-3, 3
KILLED: dict[str, Any] = {
    "task": {"clients": 6, "model": "digits-linear"},
    "train": {"epochs": 1},
    "recipe": {"name": "prioritized", "criteria": "DS", "normalise": {"name": "scale", "bounds": {"DS": 100}}},
    "run": {"rounds": ROUNDS, "fraction": FRACTION, "workers": 1, "selection": "poisson"},
    "privacy": {"clip": 1.0, "noise": NOISE, "delta": DELTA, "reproducible": True},
}
POINTS = {
    "after the release was booked": (Ledger, "book"),
    "after the noisy sum was drawn": (PrivateSum, "__call__"),
    "after the clients received the model": (LocalFleet, "evaluate"),
    "after the checkpoint": (loop, "write_checkpoint"),
    "after the round was recorded": (Ledger, "append"),
}


class Killed(BaseException):
    """Nothing in the program catches it."""


class Killer:
    """Counts the noisy sums that are drawn, and kills at a point in some of its calls."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.drawn = 0
        self._patch = monkeypatch
        draw = PrivateSum.__call__

        def counted(privacy: PrivateSum, *settings: Any) -> Any:
            noisy = draw(privacy, *settings)
            self.drawn += 1
            return noisy

        monkeypatch.setattr(PrivateSum, "__call__", counted)

    def kill_at(self, point: str, calls: set[int]) -> None:
        """Kill after these calls, numbered from 1."""
        owner, name = POINTS[point]
        work: Callable[..., Any] = getattr(owner, name)
        seen = 0

        def killing(*settings: Any, **more: Any) -> Any:
            nonlocal seen
            done = work(*settings, **more)
            seen += 1
            if seen in calls:
                raise Killed
            return done

        self._patch.setattr(owner, name, killing)


@pytest.fixture
def killer(monkeypatch: pytest.MonkeyPatch) -> Killer:
    return Killer(monkeypatch)


def config(**sections: dict[str, Any]) -> Config:
    return make_config(KILLED | sections)


def run_until_done(settings: Config, folder: Path, after_kill: Callable[[], None] = lambda: None) -> tuple[Run, int]:
    """Run, and resume after every kill; and how often it was killed."""
    kills = 0
    while True:
        try:
            return (resume(folder) if kills else run_config(settings, folder)), kills
        except Killed:
            kills += 1
            after_kill()


def true_epsilon(releases: int) -> float:
    """Of this many rounds with noise, computed without the ledger."""
    return epsilon_after(NOISE, FRACTION, releases, DELTA)


def check_account(run: Run, folder: Path, booked: int) -> None:
    """Epsilon after the last round is that of all booked releases, it only rises, and `verify` finds the same."""
    spent = [row["epsilon"] for row in run.ledger.rounds()]
    assert len(run.ledger.releases()) == booked
    assert spent[-1] == pytest.approx(true_epsilon(booked), rel=1e-12)
    assert spent == sorted(set(spent))
    run.ledger.close()
    assert verify_run(folder).faults == {}


@pytest.mark.parametrize("point", POINTS)
def test_every_noisy_sum_is_in_the_account(point: str, tmp_path: Path, killer: Killer) -> None:
    killer.kill_at(point, {2})
    run, kills = run_until_done(config(), tmp_path / "run")
    assert kills == 1
    never_drawn = 1 if point == "after the release was booked" else 0  # on the safe side
    check_account(run, tmp_path / "run", killer.drawn + never_drawn)
    assert killer.drawn == (ROUNDS if never_drawn or point == "after the round was recorded" else ROUNDS + 1)


@pytest.mark.parametrize("point", ["after the clients received the model", "after the checkpoint"])
def test_ten_kills_of_one_round_cost_ten_rounds(point: str, tmp_path: Path, killer: Killer) -> None:
    killer.kill_at(point, set(range(2, 12)))
    run, kills = run_until_done(config(), tmp_path / "run")
    assert (kills, killer.drawn) == (10, ROUNDS + 10)
    check_account(run, tmp_path / "run", ROUNDS + 10)
    assert run_config(config(), tmp_path / "whole").model.tobytes() == Run.load(tmp_path / "run").model.tobytes()


def test_lost_checkpoints_do_not_lower_epsilon(tmp_path: Path, killer: Killer) -> None:
    folder = tmp_path / "run"
    spent: list[float] = []

    def lose() -> None:
        with Ledger.open(folder / "ledger.db") as ledger:
            spent.extend(row["epsilon"] for row in ledger.rounds())
        shutil.rmtree(folder / "checkpoints")

    killer.kill_at("after the round was recorded", {2})
    run, _ = run_until_done(config(), folder, lose)
    assert spent == pytest.approx([true_epsilon(1), true_epsilon(2)])
    assert run.ledger.rounds()[0]["epsilon"] > spent[-1]
    assert killer.drawn == 2 + ROUNDS
    check_account(run, folder, killer.drawn)


REAL = """
import os, signal, sys
from pathlib import Path
from fedmerit.core.server.private_sum import PrivateSum
from fedmerit.engine.run import resume

folder, drawn, kills = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
draw = PrivateSum.__call__

def counted(privacy, *settings):
    noise = draw(privacy, *settings)
    with drawn.open("a") as file:
        file.write("x")
    if drawn.stat().st_size <= kills:
        os.kill(os.getpid(), signal.SIGKILL)
    return noise

PrivateSum.__call__ = counted
resume(folder)
"""


def test_a_process_that_is_killed_for_real_loses_no_release(tmp_path: Path) -> None:
    folder, drawn, kills = tmp_path / "run", tmp_path / "drawn", 1
    with pytest.MonkeyPatch.context() as patch:
        Killer(patch).kill_at("after the release was booked", {1})
        with pytest.raises(Killed):
            run_config(config(), folder)
    command = [sys.executable, "-c", REAL, str(folder), str(drawn), str(kills)]
    codes = [subprocess.run(command, env=os.environ, check=False).returncode for _ in range(kills + 1)]
    assert codes == [-signal.SIGKILL] * kills + [0]
    assert drawn.stat().st_size == ROUNDS + kills
    check_account(Run.load(folder), folder, ROUNDS + kills + 1)
