"""Memory of last answers: who is recalled, with which facts, and what a remembered answer does not count for."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedmerit import (
    LastAnswers,
    LocalModel,
    PrivateSum,
    fedavg,
    federate,
    last_answers,
    load_config,
    load_task,
    m2f,
    prioritized,
    private,
    run_config,
    scale,
)
from fedmerit.config.recipe import RecipeConfig, make_recipe
from fedmerit.core.collect.collect import Poisson
from fedmerit.core.criteria.table import PARTICIPATION
from fedmerit.core.state import History, State, View
from fedmerit.core.suspects import RoundSeen, look
from fedmerit.core.types import EMPTY, Cohort
from fedmerit.core.updates import Updates
from fedmerit.errors import ConfigError


def cohort(index: int, clients: dict[int, float], **facts: Any) -> Cohort:
    """Clients whose update and number of samples is one number."""
    values = np.array([*clients.values()], np.float32)
    columns = {"samples": values.astype(np.float64), **{name: np.array(column) for name, column in facts.items()}}
    return Cohort(index, tuple(clients), Updates(values[:, np.newaxis]), columns)


def play(memory: LastAnswers, *rounds: tuple[dict[int, float], dict[int, str]]) -> list[Cohort]:
    """The cohorts of these rounds, each given as answers and dropped clients."""
    own, found = EMPTY, []
    for index, (clients, dropped) in enumerate(rounds, start=1):
        state = State(np.zeros(1, np.float32), History(index - 1), {"memory": own})
        recalled, own = memory.recall(cohort(index, clients), dropped, View.of(state, None, 0))  # type: ignore[arg-type]
        found.append(recalled)
    return found


def test_last_answers_are_recalled_until_they_are_too_old():
    found = play(LastAnswers(2), ({0: 1, 2: 5}, {}), ({1: 2}, {}), ({1: 3}, {}), ({1: 4}, {}))
    assert [one.ids for one in found] == [(0, 2), (0, 1, 2), (0, 1, 2), (1,)]
    assert found[2].updates.combine(np.array([1.0, 10.0, 100.0])).tolist() == [1 + 30 + 500]
    assert found[2].facts["samples"].tolist() == [1, 3, 5]
    assert found[2].facts["remembered"].tolist() == [2, 0, 2]
    assert found[2].fresh().ids == (1,)


def test_a_dropped_client_is_not_recalled_and_a_round_without_answers_recalls_nobody():
    found = play(
        LastAnswers(), ({0: 1, 1: 2, 2: 3}, {}), ({0: 1}, {1: "fact samples is missing"}), ({}, {}), ({0: 1}, {})
    )
    assert [one.ids for one in found] == [(0, 1, 2), (0, 2), (), (0, 1, 2)]


def test_a_remembered_answer_is_no_participation_and_no_evidence():
    known = cohort(4, {0: 1, 1: 1}, remembered=[0.0, 2.0])
    assert PARTICIPATION(known, History(participations={0: 2, 1: 2})).tolist() == [3 / 4, 2 / 4]
    norms, facts = np.array([1, 1.1, 1.2, 1.3, 90, 90]), {"remembered": np.array([0, 0, 0, 0, 0, 1.0])}
    looked = look(RoundSeen(4, tuple(range(6)), norms, np.full(6, 0.5), facts, notes=((5, "excluded", "why"),)))
    assert [one.client for one in looked.evidence] == [4]
    assert looked.answered == frozenset(range(5))


def test_the_ledger_says_whose_update_is_of_an_earlier_round(tmp_path: Path):
    settings = ["task.clients=4", "run.rounds=3", "run.workers=1", "run.fraction=0.5", "recipe.name=last_answers"]
    run = run_config(load_config(None, settings), tmp_path / "run")
    recalled = {one.id: 3 - int(one.facts["remembered"]) for one in run.explain(3) if one.facts["remembered"]}
    assert len(recalled) == 2
    for client, index in recalled.items():
        assert f"of round 3, with its update of round {index}, " in run.why(client=client, round=3)
    counts = {client: rounds for client, (rounds, _) in run.ledger.work_done().items()}
    assert sum(counts.values()) == 4 + 2 + 2
    assert run.ledger.history().participations == counts


def test_recipes_that_cannot_remember():
    noisy = private(prioritized("DS", normalise=scale({"DS": 500})), PrivateSum(1.0, 0.1))
    for recipe, message in ((m2f(), "needs one model that all clients train"), (noisy, "counts in several rounds")):
        with pytest.raises(ConfigError, match=message):
            replace(recipe, memory=LastAnswers())


def test_runs_that_cannot_remember():
    task = load_task("digits", clients=4)
    with pytest.raises(ConfigError, match="the selection says who takes part"):
        federate(task, last_answers(), rounds=1, selection=Poisson(0.5))
    with pytest.raises(ConfigError, match='memory = "forget"'):
        federate(task, replace(last_answers(), models=LocalModel(0.1)), rounds=1)


def test_a_configuration_names_a_memory():
    recipe = make_recipe(RecipeConfig.model_validate({"memory": {"name": "last-answers", "rounds": 3}}))
    assert recipe == replace(fedavg(), memory=LastAnswers(rounds=3))
