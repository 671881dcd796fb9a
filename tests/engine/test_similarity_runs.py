"""The similarity filter in runs: pair distances survive a stop, and sign flippers are excluded."""

from __future__ import annotations

from pathlib import Path

from helpers import stopped_and_resumed

from fedmerit import load_config, run_config

SETTINGS = (
    "task.partition=dirichlet", "task.clients=20", "task.attack={kind='sign-flip', share=0.4}", "run.rounds=6",
    "run.fraction=0.5", "train.lr=0.5", "recipe.name=prioritized", "recipe.criteria=['SimilarityFilter']",
)  # fmt: skip


def test_a_resumed_run_has_the_pair_distances(tmp_path: Path) -> None:
    config = load_config(None, SETTINGS)
    whole = run_config(config, tmp_path / "whole")
    again = stopped_and_resumed(config, tmp_path / "again", 3)
    assert again.model.tobytes() == whole.model.tobytes()
    assert [event.text for event in again.ledger.events(6)] == [event.text for event in whole.ledger.events(6)]
    assert any(event.kind == "excluded" for event in whole.ledger.events(6))
