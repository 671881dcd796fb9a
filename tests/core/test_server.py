"""The server's own part: its layers and rows, and which of its ways it asks models in."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from helpers import ProbabilisticSoftmax, SoftmaxLearner

from fedmerit import Samples
from fedmerit.core.host import ServerSetup, predict_all, predict_rows

ROWS = Samples(np.eye(3, 2, dtype=np.float32), np.array([0, 1, 2]), 3, {"sex": np.array([0, 1, 1])})
SERVER = ServerSetup(("a", "b", "c"), ProbabilisticSoftmax(2, 3), ROWS)
MODELS = np.random.default_rng(1).normal(size=(5, len(SERVER.first_model(0)))).astype(np.float32)


class Panel(ProbabilisticSoftmax):
    """Asks several models at once, and keeps how many."""

    def __init__(self, at_once: int) -> None:
        super().__init__(2, 3)
        self.models_at_once, self.asked = at_once, list[int]()

    def predict_each(self, models: np.ndarray, x: np.ndarray) -> np.ndarray:
        self.asked.append(len(models))
        return np.stack([self.predict_proba(model, x) for model in models])


@pytest.mark.parametrize(("at_once", "asked"), [(1, []), (2, [2, 2, 1]), (5, [5]), (9, [5])])
def test_many_models_are_asked_at_once_where_the_learner_can(at_once: int, asked: list[int]):
    learner = Panel(at_once)
    ask = replace(SERVER, learner=learner).predict_many
    told, known = ask(iter(MODELS)), predict_rows(SERVER.learner, ROWS, MODELS)
    assert learner.asked == asked
    assert told.predicted.tolist() == known.predicted.tolist()
    np.testing.assert_allclose(told.probabilities, known.probabilities, rtol=1e-5)
    assert told.attributes["sex"].tolist() == [0, 1, 1]


def test_without_rows_there_is_nobody_to_ask():
    bare = replace(SERVER, rows=None)
    assert (bare.predict, bare.predict_many, bare.train) == (None, None, None)
    faster: Any = lambda models: "faster"  # noqa: E731
    assert replace(SERVER, faster=faster).predict is faster
    assert replace(bare, faster=faster).predict is None
    assert SERVER.train(MODELS[0], 1).shape == MODELS[0].shape


def test_most_learners_need_nothing_beside_the_model():
    assert SERVER.control is None
    assert SERVER.rate(1, 10) is None
    assert SERVER.name_tensors(MODELS[0]) is None


def test_a_learner_without_probabilities_says_classes_alone():
    predicted, chances = predict_all(SoftmaxLearner(2, 3), MODELS[0], ROWS.x)
    assert chances is None
    again, known = predict_all(ProbabilisticSoftmax(2, 3), MODELS[0], ROWS.x)
    assert predicted.tolist() == again.tolist() == known.argmax(axis=1).tolist()
    assert predict_rows(SoftmaxLearner(2, 3), ROWS, MODELS).probabilities is None
