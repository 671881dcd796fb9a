"""[train]: schedules by name, and keys that go with nothing are refused by name."""

import pytest

from fedmerit import UserError
from fedmerit.config.schema import make_config


@pytest.mark.parametrize(
    ("train", "message"),
    [
        ({"optimizer": "rmsprop"}, r"train\.optimizer.*'adamw'"),
        ({"optimizer": "adam", "momentum": 0.9}, "momentum has no effect with optimizer = 'adam'"),
        ({"alpha": 0.1}, "`train.alpha` is now `train.prox`"),
        ({"algorithm": "feddyn", "prox": 0}, "'feddyn' needs prox, its alpha"),
        ({"algorithm": "scaffold", "prox": 0.1}, "remove optimizer, momentum and prox"),
        ({"algorithm": "scaffold", "momentum": 0.9}, "remove optimizer, momentum and prox"),
        ({"algorithm": "scaffold", "optimizer": "adam"}, "remove optimizer, momentum and prox"),
        ({"algorithm": "fednova"}, r"train\.algorithm.*'scaffold'"),
        ({"prox": float("nan")}, r"train\.prox"),
        ({"schedule": "linear"}, r"train\.schedule.*'cosine'"),
    ],
    ids=str,
)
def test_what_cannot_be_is_named(train: dict[str, object], message: str):
    with pytest.raises(UserError, match=message):
        make_config({"train": train})
