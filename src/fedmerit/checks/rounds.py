"""The rounds that laws are checked on: what clients send, and what a recipe makes of it.

All clients move every coordinate up, so that a rule that follows them does, too. Nothing distinguishes one coordinate
from another, neither in the first model nor in the rows of the server and of the clients.
"""

import gc
import logging
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from fedmerit.core.collect.collect import InTime, Uniform
from fedmerit.core.facts import SAMPLES, find_fact
from fedmerit.core.host import CLIENT_WORDS, Clients, Host
from fedmerit.core.models.rewards import Nothing
from fedmerit.core.objectives import Predictions
from fedmerit.core.parts import check_words, declared
from fedmerit.core.recipe import RECIPE_WORDS, Recipe
from fedmerit.core.round import initial_state, run_round
from fedmerit.core.state import Record
from fedmerit.core.types import EMPTY, ClientId, Evaluation, Model, Replies, Vector, Verdict
from fedmerit.core.updates import Updates
from fedmerit.errors import ConfigError
from fedmerit.store.model_files import read_checkpoint, write_checkpoint

CLIENTS, LENGTH, TEST_ROWS = 10, 22, 1000
MODEL: Model = np.full(LENGTH, -0.25, dtype=np.float32)
"""The model before round 1."""
HONEST: Model = (0.5 + np.random.default_rng(36).uniform(-0.2, 0.2, (CLIENTS, LENGTH))).astype(np.float32)
"""Updates that differ, but not in their signs."""
BY_AXIS: Model = (0.5 + 0.5 * np.eye(CLIENTS, LENGTH)).astype(np.float32)
"""Updates with a common part and one coordinate for each client, in which a mean shows the client's weight."""
WORDS = CLIENT_WORDS | {
    *("server rows", "server training", "validation rows", "test rows", "losses", "pulled training"),
    *("answers in their round", "everyone in round 1", "fact epochs"),
}
"""What the clients and the server of a law provide."""


class Reply(NamedTuple):
    """What a client sends.

    facts    its metrics; `samples` is the number of rows
    arrays   changes the arrays of a Flower message before it is sent
    twice    whether the reply arrives twice
    """

    update: Model
    facts: Mapping[str, Any]
    arrays: Callable[[dict[str, Any]], dict[str, Any]] = dict
    twice: bool = False


Form = Mapping[str, tuple[tuple[int, ...], str]]
Round = Mapping[ClientId, Reply] | None
"""The replies of a round: a missing client answers with an error; None: no answer arrives at all."""


class Outcome(NamedTuple):
    """What comes out of some rounds.

    model    the next model; with personal models, the first model and the weighted means of the first client's group
    form     names, shapes and dtypes of its arrays
    record   of the last round, if the weighting keeps records
    error    what ended the run, or what is wrong with the model, which then is the first one
    """

    model: Vector
    form: Form = EMPTY
    record: Record | None = None
    error: str = ""


def outcome_of(
    model: NDArray[Any], form: Form = EMPTY, record: Record | None = None, raised: Exception | None = None
) -> Outcome:
    """Make the outcome of a run; an exception, another length and numbers that are not finite are errors."""
    ended = f"the run ends with {type(raised).__name__}: {raised}"[:200] if raised else ""
    length = "" if len(model) == LENGTH else f"the next model has {len(model)} values, not {LENGTH}"
    error = ended or length or ("" if np.isfinite(model).all() else "the next model has NaN or infinity")
    return Outcome((MODEL if error else model).astype(np.float64), form, record, error)


class Subject(NamedTuple):
    """A weighting under test.

    run      runs some rounds from the beginning. Options of strategies: with `mixed`, the model has arrays of three
             dtypes, and with `test_rows`, clients test it; of recipes: with `resume`, the state is written and read
    recipe   the recipe, if there is one
    """

    run: Callable[..., Outcome]
    recipe: Recipe | None
    on_flower: bool = False


def replies_of(subject: Subject, updates: Model = HONEST) -> dict[ClientId, Reply]:
    """A round in which client i has 10 (i + 1) rows; its other facts rise with its number, too."""
    names = subject.recipe.client_facts if subject.recipe else ()
    tops = {name: min(find_fact(name).high or CLIENTS, CLIENTS) for name in names}
    facts = ({name: (one + 1) / CLIENTS * top for name, top in tops.items()} for one in range(CLIENTS))
    return {one: Reply(updates[one], values | {SAMPLES: 10 * (one + 1)}) for one, values in enumerate(facts)}


def weights_in(record: Record | None) -> dict[ClientId, float]:
    """The recorded weights of the first client's group; empty if no client was weighed."""
    if record is None or record.weights is None or record.groups is None:
        return {}
    rows = zip(record.ids, record.weights.weights.tolist(), record.groups.labels, strict=True)
    return {client: weight for client, weight, group in rows if group == record.groups.labels[0]}


def predict(models: Iterable[Model]) -> Predictions:
    """Predictions on the server's rows, which are the axes in both directions: a coordinate above 0 is right."""
    logits = np.stack([np.concatenate([model, -model]) for model in models]).astype(np.float64)
    chances = (1 / (1 + np.exp(-np.clip(logits, -30, 30)))).astype(np.float32)
    probabilities = np.stack([1 - chances, chances], axis=2)
    return Predictions(np.repeat([1, 0], LENGTH), 2, EMPTY, (logits > 0).astype(np.int64), probabilities)


def accuracy_and_loss(model: Model) -> tuple[float, float]:
    """Test a model on the rows of a client, which are the same for every client."""
    inside = np.nan_to_num(np.clip(model.astype(np.float64), -20, 20))
    return round(float((inside > 0).mean()), 3), float(np.log1p(np.exp(-inside)).mean())


@contextmanager
def quiet() -> Iterator[None]:
    """Silence the logs and warnings of runs that are meant to go wrong."""
    with warnings.catch_warnings(action="ignore"), np.errstate(all="ignore"), ExitStack() as stack:
        stack.callback(logging.disable, logging.root.manager.disable)
        stack.callback(gc.unfreeze)
        logging.disable()
        gc.freeze()  # some strategies of Flower collect garbage for each reply, which is slow with many objects
        yield


@dataclass(frozen=True)
class ScriptedClients:
    """Clients that send the replies of these rounds; those of the first also make M2F's first model."""

    rounds: Sequence[Round]

    def train(self, index: int, downloads: Mapping[ClientId, Any], facts: Sequence[str], seed: int) -> Replies:
        """Return the replies of a round; a client without one has failed."""
        replies = self.rounds[max(index - 1, 0)] or {}
        ids = tuple(client for client in downloads if client in replies)
        updates = np.array([replies[client].update for client in ids], np.float32).reshape(len(ids), LENGTH)
        failed = {client: "an error" for client in downloads if client not in replies}
        answers = tuple(replies[client].facts for client in ids)
        return Replies(ids, Updates(updates), answers, failed, dict.fromkeys(ids, 1.0))

    def judges(self) -> Sequence[ClientId]:
        """All clients."""
        return range(CLIENTS)

    def evaluate(self, models: Sequence[Model], *asked: Any, **options: Any) -> Sequence[Evaluation]:
        """Test models; every client has the same rows."""
        rows = np.full(CLIENTS, TEST_ROWS)
        tests = map(accuracy_and_loss, models)
        return [Evaluation(np.rint(right * rows).astype(np.int64), rows, loss * rows) for right, loss in tests]

    def send_rewards(self, index: int, rewards: Mapping[ClientId, Any], acceptance: Any) -> Mapping[ClientId, Verdict]:
        """Accept every reward."""
        return {client: Verdict(True, 0.5, 0.5) for client in rewards}


def recipe_subject(recipe: Recipe) -> Subject:
    """Put a recipe under test; an error if it aggregates nothing, or needs more than the clients of a law have."""
    check_words(recipe.parts, WORDS, only=lambda word: word not in RECIPE_WORDS)
    is_personal = "server model" not in declared(recipe.models, "gives")
    if is_personal and getattr(recipe.models, "reward", Nothing()) == Nothing():
        raise ConfigError("the recipe does not aggregate updates by weights, and laws are about such aggregates")
    return Subject(partial(_run, recipe, is_personal), recipe)


def _run(recipe: Recipe, is_personal: bool, *rounds: Round, mixed: bool = False, resume: bool = False) -> Outcome:
    clients, means, server = (
        cast(Clients, ScriptedClients(rounds)),
        MODEL.astype(np.float64),
        np.full_like(MODEL, HONEST.mean()),
    )
    names = tuple(f"client {client}" for client in range(CLIENTS))
    host = Host(clients, names, WORDS, predict=predict, train=lambda start, seed: start + server,
                first_model=lambda seed: MODEL - 1, lr=0.1)  # fmt: skip
    with quiet(), TemporaryDirectory() as folder:
        try:
            state, _ = initial_state(recipe, host, MODEL, 0)
            for replies in rounds:
                state, record = run_round(state, recipe, host, InTime(Uniform(1.0)), 0, evaluate=False)
                means += sum(weight * (replies or {})[client].update for client, weight in weights_in(record).items())
                if resume:
                    write_checkpoint(Path(folder), state)
                    model, own, _ = read_checkpoint(Path(folder), state.history.rounds) or (MODEL, {}, 0)
                    state = replace(state, model=model, own=own)
        except Exception as error:  # whatever a recipe raises ends its run
            return outcome_of(MODEL, raised=error)
    form = {"model": (state.model.shape, state.model.dtype.name)}
    return outcome_of(means if is_personal else state.model, form, record)
