"""Agreement and the early contributions: by hand, and where labels are poisoned."""

import numpy as np
import pytest

from fedmerit import discounted, fedavg, federate, load_task
from fedmerit.core.criteria.agreement import Agreement
from fedmerit.core.criteria.contribution import Contribution
from fedmerit.core.facts import SAMPLES
from fedmerit.core.state import History
from fedmerit.core.types import Cohort
from fedmerit.core.updates import Updates


class View:
    """A round whose server moves along the first axis, and counts how often it is asked to."""

    def __init__(self, history: History) -> None:
        self.history, self.trained = history, 0

    def server_update(self) -> np.ndarray:
        self.trained += 1
        return np.array([1.0, 0.0], np.float32)


def cohort(*updates: tuple[float, float], rows: tuple[float, ...] = (1.0, 1.0, 2.0)) -> Cohort:
    ids = tuple(range(len(updates)))
    return Cohort(1, ids, Updates(np.array(updates, np.float32)), {SAMPLES: np.array(rows)})


def history(answers: int, means: tuple[float, ...] = (), of: str = "Agreement") -> History:
    recent = {of: {client: (mean,) for client, mean in enumerate(means)}}
    return History(participations=dict.fromkeys(range(3), answers), recent=recent)


def test_discount_is_the_mean_of_the_first_three_cosines() -> None:
    round_one = cohort((3, 4), (1, 0), (-1, 0))
    first = Agreement().measure(round_one, View(history(0))).facts["Agreement"]
    assert first == pytest.approx([0.6, 1, 0])
    second = Agreement().measure(cohort((1, 0), (0, 1), (1, 0)), View(history(1, tuple(first)))).facts["Agreement"]
    assert second == pytest.approx([0.8, 0.5, 0.5])


def test_the_server_does_not_train_after_the_third_answer() -> None:
    later = View(history(3, (0.6, 1.0, 0.0)))
    assert Agreement().measure(cohort((1, 0), (1, 0), (1, 0)), later).facts["Agreement"] == pytest.approx([0.6, 1, 0])
    assert Contribution("early-server").measure(cohort((1, 0), (1, 0), (1, 0)), later).facts[
        "contribution:early-server"
    ].tolist() == [0, 0, 0]
    assert later.trained == 0


def test_nobody_gains_by_going_along_more_than_the_median() -> None:
    def weights(*means: float) -> list[float]:
        one = cohort((1, 0), (1, 0), (1, 0))
        return Agreement()(
            Cohort(1, one.ids, one.updates, {**one.facts, "Agreement": np.array(means)}), History()
        ).tolist()

    assert weights(0.5, 0.5, 0.1) == weights(0.5, 0.9, 0.1) == [1, 1, 0.2]
    assert weights(0.0, 0.0, 0.7) == [1, 1, 1]  # most oppose the server: the median says nothing


def test_early_contributions_by_hand() -> None:
    """Shares 1/4, 1/4, 1/2 of updates (1, 0), (0, 1), (1, 0): the aggregate is (3/4, 1/4)."""
    one, view = cohort((1, 0), (0, 1), (1, 0)), View(history(0))
    along = np.array([3, 1, 3]) / np.sqrt(10)
    roots = np.sqrt([0.25, 0.25, 0.5])
    assert Contribution("early").measure(one, view).facts["contribution:early"] == pytest.approx(roots * along)
    with_server = Contribution("early-server").measure(one, view).facts["contribution:early-server"]
    assert with_server == pytest.approx(roots * np.sqrt(along * [1, 0, 1]))


def test_poisoned_clients_lose_their_weight_and_accuracy_returns() -> None:
    attack = {"kind": "label-flip", "share": 0.4}
    task = load_task("digits", clients=10, server=200, seed=3, train={"lr": 0.3, "epochs": 2}, attack=attack)
    runs = {recipe.priority: federate(task, recipe, rounds=8, seed=3) for recipe in (fedavg(), discounted())}
    plain, ours = runs.values()
    poisoned = set(task.attackers.members)
    share = sum(client.weight for client in ours.explain(8) if client.id in poisoned)
    assert share < 0.1
    assert ours.accuracy > plain.accuracy + 0.05
