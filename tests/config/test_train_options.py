"""[train]: schedules by name, and keys that go with nothing are refused by name."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from fedmerit import load_config
from fedmerit.config.schema import dump_config, make_config
from fedmerit.config.train import LR_SCHEDULES, CosineLr, StepLr
from fedmerit.errors import UserError


@pytest.mark.parametrize("name", LR_SCHEDULES)
def test_a_schedule_by_name_or_as_a_table(name: str):
    bare = make_config({"train": {"schedule": name}})
    assert bare.train.schedule is not None
    assert bare == make_config({"train": {"schedule": {"name": name}}})
    assert make_config(tomllib.loads(dump_config(bare))) == bare
    assert bare.train.schedule.make()(1, 10) > 0


def test_another_choice_drops_the_keys_of_the_file(tmp_path: Path):
    path = tmp_path / "config.toml"
    path.write_text('[train]\nalgorithm = "feddyn"\nalpha = 0.1\n[train.schedule]\nname = "step"\nevery = 4\n')
    assert load_config(path).train.schedule == StepLr(every=4)
    other = load_config(path, ["train.schedule.name=cosine", "train.schedule.least=0.1", "train.algorithm=scaffold"])
    assert other.train.schedule == CosineLr(least=0.1)
    assert other.train.algorithm == "scaffold"


@pytest.mark.parametrize(
    ("train", "message"),
    [
        ({"optimizer": "rmsprop"}, r"train\.optimizer.*'adamw'"),
        ({"optimizer": "adam", "momentum": 0.9}, "momentum has no effect with optimizer = 'adam'"),
        ({"alpha": 0.1}, "alpha has no effect with algorithm = 'sgd'.*feddyn"),
        ({"algorithm": "scaffold", "alpha": 0.1}, "alpha has no effect"),
        ({"algorithm": "feddyn", "prox": 0.1}, "prox has no effect beside algorithm = 'feddyn'"),
        ({"algorithm": "scaffold", "prox": 0.1}, "leave out optimizer, momentum and prox"),
        ({"algorithm": "scaffold", "momentum": 0.9}, "leave out optimizer, momentum and prox"),
        ({"algorithm": "scaffold", "optimizer": "adam"}, "leave out optimizer, momentum and prox"),
        ({"algorithm": "fednova"}, r"train\.algorithm.*'scaffold'"),
        ({"algorithm": "feddyn", "alpha": 0}, r"train\.alpha"),
        ({"algorithm": "feddyn", "alpha": float("nan")}, r"train\.alpha"),
        ({"clip": 0}, r"train\.clip"),
        ({"clip": float("nan")}, r"train\.clip"),
        ({"schedule": "linear"}, "unknown schedule 'linear'.*warm-up"),
        ({"schedule": {"name": "cosine", "every": 3}}, "schedule cosine does not take 'every'.*step"),
        ({"schedule": {"name": "step", "factor": 0}}, r"train\.schedule\.factor"),
        ({"schedule": {"name": "step", "every": 0}}, r"train\.schedule\.every"),
        ({"schedule": {"name": "cosine", "least": 1.5}}, r"train\.schedule\.least"),
        ({"schedule": {"name": "warm-up", "rounds": 0}}, r"train\.schedule\.rounds"),
    ],
    ids=str,
)
def test_what_cannot_be_is_named(train: dict[str, object], message: str):
    with pytest.raises(UserError, match=message):
        make_config({"train": train})
