"""Private runs: epsilon in the ledger, the same bits where they are asked for, other noise where they are not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from helpers import small_task, stopped_and_resumed

from fedmerit import DS, Run, federate, load_task, prioritized, run_config
from fedmerit.config.privacy import epsilon_after
from fedmerit.config.schema import Config, make_config
from fedmerit.core.collect.collect import Poisson, Uniform
from fedmerit.core.recipes import private as noisy
from fedmerit.core.server.private_sum import PrivateSum
from fedmerit.core.weights.weigh import scale
from fedmerit.errors import ConfigError

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


ADAPTIVE = {"clip": "adaptive", "clip_start": 0.5, "clip_rate": 0.8}


def test_an_adaptive_clip_is_in_the_ledger_and_resumes_to_the_bit(tmp_path: Path) -> None:
    config = private(privacy=ADAPTIVE, run={"rounds": 5})
    whole = run_config(config, tmp_path / "whole")
    clips = [row["clip"] for row in whole.ledger.rounds()]
    assert clips[0] == 0.5
    assert len(set(clips)) == 5
    assert [row["epsilon"] for row in whole.ledger.rounds()][-1] == pytest.approx(epsilon_after(1.1, 0.5, 5, 1e-3))

    resumed = stopped_and_resumed(config, tmp_path / "killed", 3)
    assert [row["clip"] for row in resumed.ledger.rounds()] == clips
    assert (resumed.model == whole.model).all()


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
    with pytest.raises(ConfigError, match=r"account is for a fraction of 0.5, and 0.1 of the clients are drawn"):
        federate(small_task(), recipe, rounds=2, selection=Poisson(0.1))


def test_what_a_task_sends_without_noise_is_refused() -> None:
    recipe = noisy(prioritized(DS, normalise=scale({"DS": 20})), PrivateSum(1.0, 0.5, delta=0.01))
    for settings, reason in (
        ({"train": {"algorithm": "scaffold"}}, "clients receive control vectors of other clients without noise"),
        ({"centre": "mean"}, "without noise, which .privacy. does not cover; remove task.centre"),
    ):
        with pytest.raises(ConfigError, match=reason):
            federate(load_task("digits", clients=12, **settings), recipe, rounds=1, selection=Poisson(0.5))


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"privacy": {"epsilon": 0}}, "privacy.epsilon: .*greater than 0"),
        ({"privacy": {"noise": 0}}, "privacy.noise: .*greater than 0"),
        ({"privacy": {"delta": 0}}, "privacy.delta: .*greater than 0"),
        ({"privacy": {"clip": -1}}, "privacy.clip: .*greater than 0"),
        ({"privacy": {"epsilon": 3}}, r"needs either noise or epsilon \(got both\)"),
        ({"privacy": {"noise": None}}, r"\(got neither\)"),
        ({"privacy": {"accountant": "moments"}}, "'rdp' or 'pld'"),
        ({"privacy": {"quantile": 0.9}}, "quantile has no effect with a fixed clip; set clip = 'adaptive'"),
        ({"privacy": {"clip": "adaptive", "quantile": 1.0}}, "privacy.quantile: .*less than 1"),
        ({"privacy": {"clip": "median"}}, "privacy.clip: .*'adaptive'"),
        ({"run": {"schedule": {}}}, "selection has no effect with a schedule"),
    ],
)
def test_wrong_settings_are_refused(sections: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        private(**sections)


def test_noise_without_a_clip_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"privacy.clip is required"):
        make_config({"privacy": {"noise": 1.1}})
