"""Harmless: who is eliminated by the loss on the server's rows, by hand, and the gate of Alignment."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedmerit.core.criteria import harmless
from fedmerit.core.criteria.alignment import Alignment
from fedmerit.core.criteria.harmless import Harmless
from fedmerit.core.host import Host
from fedmerit.core.objectives import Predictions
from fedmerit.core.seeds import Draws
from fedmerit.core.state import History, View
from fedmerit.core.types import Cohort
from fedmerit.core.updates import Updates
from fedmerit.errors import ConfigError

ROWS = 400


def sigmoid(models: Iterable[np.ndarray]) -> Predictions:
    """Models of one number, the log odds of class 1, which 300 of 400 rows have."""
    chances = np.array([np.full(ROWS, 1 / (1 + np.exp(-float(model[0])))) for model in models])
    labels = np.arange(ROWS) >= 100
    both = np.stack([1 - chances, chances], axis=2).astype(np.float32)
    return Predictions(labels.astype(np.int64), 2, {}, (chances > 0.5).astype(np.int64), both)


def view(predict: Any = sigmoid, train: Any = None) -> View:
    host = Host(None, ("a",) * 9, predict=predict, train=train)  # type: ignore[arg-type]
    return View(1, np.zeros(1, np.float32), History(), host, Draws(0, 1))


def cohort(updates: list[float], **facts: list[float]) -> Cohort:
    rows = np.array(updates, np.float32)[:, np.newaxis]
    columns = {"samples": [10.0] * len(updates), **facts}
    return Cohort(1, tuple(range(len(updates))), Updates(rows), {name: np.array(one) for name, one in columns.items()})


def test_clients_that_raise_the_loss_are_eliminated_with_a_reason():
    """Log odds of ln 3 = 1.1 are best; the other way the loss is higher on three of four rows."""
    measured = Harmless().measure(cohort([1.1, 1.1, 1.1, -2, -2]), view())
    assert measured.facts["Harmless"].tolist() == [1, 1, 1, 0, 0]
    assert measured.facts["excluded"].tolist() == [0, 0, 0, 1, 1]
    assert [note.client for note in measured.notes] == [3, 4]
    assert "the loss on the server's rows is 0." in measured.notes[0].text


def test_differences_within_two_standard_errors_are_chance(monkeypatch: pytest.MonkeyPatch):
    """With 160 of 400 rows of class 0, an update of -1 harms 240 rows and helps 160."""

    def mixed(models: Iterable[np.ndarray]) -> Predictions:
        return replace(sigmoid(models), y=(np.arange(ROWS) >= 160).astype(np.int64))

    one = cohort([1, 1, 1, -1, -1])
    assert Harmless().measure(one, view(mixed)).notes == ()
    monkeypatch.setattr(harmless, "ERRORS", 0.1)
    assert Harmless().measure(one, view(mixed)).notes != ()


def test_excluded_clients_do_not_count_and_long_updates_are_clipped():
    one = cohort([1, 1, 1, -1], excluded=[0.0, 0.0, 0.0, 1.0])
    measured = Harmless().measure(one, view())
    assert measured.notes == ()
    assert measured.facts["excluded"].tolist() == [0, 0, 0, 1]
    seen: list[float] = []

    def watch(models: Iterable[np.ndarray]) -> Predictions:
        seen.extend(float(model[0]) for model in models)
        return sigmoid(models)

    Harmless().measure(cohort([1, 1, 1, 50]), view(watch))
    assert seen[0] == pytest.approx((1 + 1 + 1 + 2) / 4), "of an update of 50 only two median norms count"


def test_predictions_without_probabilities_are_an_error():
    def classes(models: Iterable[np.ndarray]) -> Predictions:
        return Predictions(np.zeros(4, np.int64), 2, {}, np.zeros((len(list(models)), 4), np.int64))

    with pytest.raises(ConfigError, match="needs probabilities"):
        Harmless().measure(cohort([1, 2]), view(classes))


def test_the_gate_of_alignment_excludes_without_weighing():
    trained = view(train=lambda model, seed: model + np.float32(3))
    measured = Alignment(gate=True).measure(cohort([5, 0.01, -1, 0]), trained)
    assert measured.facts["Alignment"].tolist() == [1, 1, 0, 0]
    assert [note.text for note in measured.notes] == [
        f"has weight 0: its update does not go along with the server's own (cosine {cosine})"
        for cosine in ("-1.00", "0.00")
    ]
    assert trained.server_update() is trained.server_update(), "the server trains once per round"
