"""Flower's log names who stands out, in words, once."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from flwr.app import Context

from fedmerit.config.schema import dump_config, make_config
from fedmerit.flower import InProcessGrid, make_client_app
from fedmerit.flower.app import serve
from fedmerit.tasks.registry import make_task


def test_a_node_that_scales_is_named_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    config = make_config(
        {
            "task": {"clients": 6, "model": "digits-linear", "attack": {"kind": "scale", "share": 0.17}},
            "train": {"epochs": 1},
            "run": {"rounds": 5, "fraction": 1.0, "seed": 2},
        }
    )
    task = make_task(config)
    grid = InProcessGrid(make_client_app(lambda context: task.client(_partition(context))), 6)
    with caplog.at_level(logging.INFO, logger="flwr"):
        serve(grid, dump_config(config), tmp_path / "run")
    (attacker,) = task.attackers.members
    named = [record.getMessage() for record in caplog.records if "stands out" in record.getMessage()]
    assert len(named) == 1
    assert named[0].startswith(f"fedmerit: client {attacker} stands out in 3 of its 3 rounds: its update was ")


def _partition(context: Context) -> int:
    return int(context.node_config["partition-id"])
