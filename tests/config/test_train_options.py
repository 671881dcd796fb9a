"""[train]: schedules by name, and keys that go with nothing are refused by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedmerit import UserError, load_config
from fedmerit.config.schema import make_config


def test_another_choice_drops_the_keys_of_the_file(tmp_path: Path):
    path = tmp_path / "config.toml"
    path.write_text('[train]\nalgorithm = "feddyn"\nalpha = 0.1\n')
    other = load_config(path, ["train.schedule=cosine", "train.algorithm=scaffold"])
    assert other.train.schedule == "cosine"
    assert other.train.algorithm == "scaffold"


@pytest.mark.parametrize(
    ("train", "message"),
    [
        ({"optimizer": "rmsprop"}, r"train\.optimizer.*'adamw'"),
        ({"optimizer": "adam", "momentum": 0.9}, "momentum has no effect with optimizer = 'adam'"),
        ({"alpha": 0.1}, "alpha has no effect with algorithm = 'sgd'.*feddyn"),
        ({"algorithm": "scaffold", "alpha": 0.1}, "alpha has no effect"),
        ({"algorithm": "feddyn", "prox": 0.1}, "prox has no effect with algorithm = 'feddyn'"),
        ({"algorithm": "scaffold", "prox": 0.1}, "remove optimizer, momentum and prox"),
        ({"algorithm": "scaffold", "momentum": 0.9}, "remove optimizer, momentum and prox"),
        ({"algorithm": "scaffold", "optimizer": "adam"}, "remove optimizer, momentum and prox"),
        ({"algorithm": "fednova"}, r"train\.algorithm.*'scaffold'"),
        ({"algorithm": "feddyn", "alpha": 0}, r"train\.alpha"),
        ({"algorithm": "feddyn", "alpha": float("nan")}, r"train\.alpha"),
        ({"schedule": "linear"}, r"train\.schedule.*'cosine'"),
    ],
    ids=str,
)
def test_what_cannot_be_is_named(train: dict[str, object], message: str):
    with pytest.raises(UserError, match=message):
        make_config({"train": train})
