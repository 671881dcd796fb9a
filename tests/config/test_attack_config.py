"""[task.attack]: hostile settings are refused by name, and what is dumped loads again."""

import tomllib
from typing import Any

import pytest

from fedmerit.config.attack import KINDS, make_coalitions
from fedmerit.config.schema import dump_config, load_config, make_config
from fedmerit.errors import ConfigError


def attack(**values: Any) -> Any:
    return make_config({"task": {"attack": values}}).task.attack


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"kind": "sign-flop"}, "'sign-flip', 'scale'"),
        ({}, "kind is required"),
        ({"kind": "scale", "share": 1.5}, "share: must be less than or equal to 1"),
        ({"kind": "scale", "share": 0.0}, "share"),
        ({"kind": "scale", "share": float("nan")}, "share"),
        ({"kind": "scale", "strength": -1.0}, "strength"),
        ({"kind": "scale", "strength": float("inf")}, "strength"),
        ({"kind": "liar"}, "kind liar needs facts"),
        ({"kind": "liar", "facts": {"sample": 2}}, "did you mean 'samples'"),
        ({"kind": "liar", "facts": {"clock": 2}}, "clock"),
        ({"kind": "liar", "facts": {"samples": -2}}, "facts: must be greater than 0"),
        ({"kind": "liar", "facts": {"samples": 2}, "strength": 2.0}, "does not use 'strength'"),
        ({"kind": "scale", "facts": {"samples": 2}}, "or use kind liar"),
        ({"kind": "mimic", "strength": 2.0}, "does not use 'strength'"),
        ({"kind": "opt-ipm", "strength": 2.0}, "does not use 'strength'"),
        ({"kind": "split-trigger", "from_round": 3}, "does not use 'from_round'"),
        ({"kind": "pooled-backdoor", "strength": 2.0}, "a share of the attacker's rows"),
        ({"kind": "scale", "draw": "even"}, "draw"),
        ({"kind": "label-flip", "from_round": 3}, "does not use 'from_round'"),
        ({"kind": "backdoor", "strength": 2.0}, "a share of the attacker's rows"),
        ({"kind": "scale", "from_round": 0}, "from_round"),
        ({"kind": "scale", "power": 2}, "unknown key"),
    ],
)
def test_hostile_settings_are_refused_by_name(values: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=r"task\.attack") as error:
        attack(**values)
    assert said in str(error.value)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_dumped_and_loads_again(kind: str) -> None:
    lies = {"facts": {"samples": 3, "attribute:Young": 2}} if kind == "liar" else {}
    config = make_config({"task": {"attack": [{"kind": kind, **lies}, {"kind": "free-rider", "share": 0.1}]}})
    assert make_config(tomllib.loads(dump_config(config))) == config
    assert type(config).model_validate_json(config.model_dump_json()) == config
    (coalition, other) = make_coalitions(config.task.attack)
    assert type(coalition.attack) is KINDS[kind]
    assert coalition.from_round == (20 if kind == "sleeper" else 1)
    assert other.share == 0.1


def test_overrides_reach_a_single_table() -> None:
    config = load_config(None, ["task.attack.kind=scale", "task.attack.share=0.3"])
    assert [(one.kind, one.share) for one in config.task.attack] == [("scale", 0.3)]
