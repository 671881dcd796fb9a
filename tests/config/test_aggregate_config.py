"""[recipe.aggregate] and [recipe.clip]: what TOML makes, and what it refuses."""

from __future__ import annotations

from typing import Any

import pytest

from fedmerit.config.recipes import make_recipe
from fedmerit.config.schema import load_config, make_config
from fedmerit.core.server.aggregators import (
    NNM,
    Aggregator,
    Bucketing,
    CoordinateMedian,
    GeometricMedian,
    Mean,
    MultiKrum,
    TrimmedMean,
)
from fedmerit.core.stages.clip import Clip
from fedmerit.errors import ConfigError


@pytest.mark.parametrize(
    ("table", "aggregator"),
    [
        ("mean", Mean()),
        ("median", CoordinateMedian()),
        ({"name": "median", "mix": "bucketing", "bucket": 3}, Bucketing(CoordinateMedian(), 3)),
        ({"name": "trimmed-mean", "share": 0.3}, TrimmedMean(0.3)),
        ({"name": "trimmed-mean", "share": 0.3, "mix": "nnm"}, NNM(TrimmedMean(0.3), 0.3)),
        ({"name": "geometric-median", "smoothing": 0.1, "iterations": 3}, GeometricMedian(0.1, 3)),
        ({"name": "geometric-median", "mix": "nnm", "share": 0.1}, NNM(GeometricMedian(), 0.1)),
        ({"name": "multi-krum"}, MultiKrum(0.2)),
        ({}, Mean()),
    ],
)
def test_an_aggregator_by_name(table: Any, aggregator: Aggregator) -> None:
    made = make_recipe(make_config({"recipe": {"name": "fedavg", "aggregate": table}}).recipe)
    assert made.aggregate == aggregator


@pytest.mark.parametrize("norm", ["median", 2, 0.5])
def test_a_clip(norm: Any) -> None:
    assert make_recipe(make_config({"recipe": {"clip": {"norm": norm}}}).recipe).clip == Clip(norm)
    assert make_recipe(make_config({"recipe": {"clip": {}}}).recipe).clip == Clip("median")


@pytest.mark.parametrize(
    ("recipe", "words"),
    [
        ({"aggregate": "mode"}, "mode.*mean, median, trimmed-mean|mode.*valid"),
        ({"aggregate": {"name": "median", "share": 0.3}}, 'share has no effect.*use mix = "nnm"'),
        ({"aggregate": {"name": "median", "bucket": 3}}, 'bucket has no effect.*use mix = "bucketing"'),
        ({"aggregate": {"name": "mean", "share": 0.3}}, "mean does not take 'share'"),
        ({"aggregate": {"name": "trimmed-mean", "share": 0.5}}, "recipe.aggregate.share.*less than 0.5"),
        ({"aggregate": {"name": "median", "mix": "nn"}}, "recipe.aggregate.mix.*'none', 'nnm' or 'bucketing'"),
        ({"clip": {"norm": 0}}, "recipe.clip.norm"),
        ({"clip": {"norm": "mean"}}, "recipe.clip.norm"),
        ({"clip": {"length": 1}}, "unknown key 'recipe.clip.length'"),
        ({"name": "m2f", "clip": {}}, "clip"),
        ({"name": "m2f", "aggregate": "median"}, "aggregate"),
    ],
)
def test_a_mistake_is_named(recipe: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        make_config({"recipe": recipe})


def test_another_choice_drops_the_keys_that_do_not_go_with_it() -> None:
    config = load_config(None, ["recipe.aggregate.name=trimmed-mean", "recipe.aggregate.share=0.3"])
    assert make_recipe(config.recipe).aggregate == TrimmedMean(0.3)
