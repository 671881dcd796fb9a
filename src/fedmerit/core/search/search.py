"""Search: the choice of a round's weighting and server step; the protocol, and shared functions.

A search proposes weightings, lets clients test the candidates of a round (`CandidateEvaluator`), and returns one of
them. `Fixed` asks no clients; `Backtracking` is DAFL's, `StepSearch` searches over server steps; users may add more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations, permutations
from typing import TYPE_CHECKING, ClassVar, NamedTuple, Protocol

import numpy as np

from fedmerit.core.facts import SAMPLES, USUAL
from fedmerit.core.parts import PURE, Words, part
from fedmerit.core.server.optimizers import HeavyBall
from fedmerit.core.server.server import Batch
from fedmerit.core.state import History, View
from fedmerit.core.types import EMPTY, Cohort, Evaluation, Groups, Matrix, Model, Note, Own, SplitName, Vector
from fedmerit.core.weights.limits import USUAL_WEIGHT
from fedmerit.core.weights.scores import Score
from fedmerit.core.weights.weigh import Normalise, Weights, concat_groups, total_variation, weigh
from fedmerit.errors import ConfigError

if TYPE_CHECKING:
    from fedmerit.core.models.shared import Job
    from fedmerit.core.recipe import Recipe

MOST_CRITERIA = 6
"""Largest number of criteria for a search over orders: seven criteria would have 5,040."""
SEARCH_WHY = {
    "shared model": "a search tests models on all clients, but here each client has its own; use the fixed search",
    "validation rows": 'set task.validation = 0.1, or search.adjust_on = "test" to choose on test rows as the paper',
    "losses": "add a method `predict_proba` to the learner, or use the fixed search",
    "accounted": "clients' answers have no noise; use the fixed search",
    "plain step": "the search replaces the recipe's server step; remove one of the two",
}
ONE_WEIGHTING = Note("no-search", "search", "one criterion has only one order: there is nothing to search for")


@dataclass(frozen=True, slots=True)
class Weighting:
    """A weighting rule: the criteria in priority order, the score and the normalisation.

    It may have its own `optimizer`; without one the recipe's is used.

    >>> from fedmerit import Product
    >>> Weighting(("LD", "DS"), Product(), "max").label
    'LD > DS'
    """

    priority: tuple[str, ...]
    score: Score
    normalise: Normalise
    optimizer: HeavyBall | None = None

    @property
    def label(self) -> str:
        """Display name: the order, and the step if there is one."""
        one = self.optimizer
        step = f", lr {one.lr:g}, momentum {one.momentum:g}" if one else ""
        return " > ".join(self.priority) + step


@dataclass(frozen=True, slots=True)
class Candidate:
    """A weighting with its weights, and the labels of weightings with nearly equal weights, which count as this one.

    `weights` is None in a round without clients.
    """

    weighting: Weighting
    label: str
    weights: Weights | None
    same: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CandidateResult:
    """Result of a candidate in a search, and its exchange; None if it was not tested.

    `quality` is the accuracy on the clients that tested it, their mean loss if the search uses the loss, or the
    measure of the run if one is set.
    """

    weighting: str
    same: tuple[str, ...]
    quality: float | None
    exchange: int | None
    chosen: bool


@dataclass(frozen=True, slots=True)
class SearchReport:
    """Candidates that a search tried, and the cost: models sent, client tests, bytes, seconds.

    `quality` is the accuracy by which it decided, or the measure of the run (errors with a minus); None if unknown.
    """

    results: tuple[CandidateResult, ...] = ()
    exchanges: int = 0
    models_sent: int = 0
    tests: int = 0
    bytes_down: int = 0
    seconds: float = 0.0
    quality: float | None = None


NO_SEARCH = SearchReport()


class Choice(NamedTuple):
    """The chosen candidate, its aggregate, and the search report.

    quality     the accuracy by which it was chosen; None if it is not known exactly
    evaluation  of this candidate on all clients' test rows, if the search measured it
    """

    place: int
    aggregate: Model
    quality: float | None = None
    evaluation: Evaluation | None = None
    report: SearchReport = NO_SEARCH


class Search(Protocol):
    """Choice of a round's weighting.

    asks        rows on which clients decide; None: no client is asked
    tolerance   weightings whose weights differ by at most this total variation count as one

    >>> from fedmerit import Backtracking, Product
    >>> base = Weighting(("DS", "LD"), Product(), "max")
    >>> [weighting.label for weighting in Backtracking().weightings(base)]
    ['DS > LD', 'LD > DS']
    """

    @property
    def asks(self) -> SplitName | None: ...  # noqa: D102
    @property
    def tolerance(self) -> float: ...  # noqa: D102

    def weightings(self, base: Weighting) -> tuple[Weighting, ...]:
        """Return all weightings that it may choose, the recipe's first."""

    def visit(
        self, current: Weighting, weightings: Sequence[Weighting], random: np.random.Generator
    ) -> Sequence[Weighting]:
        """Return the weightings of this round in the order of trying; `current` was chosen last."""

    def choose(self, batch: Batch, job: Job) -> Choice:
        """Return one of the round's candidates, after asking as many clients about as many of them as needed."""


def remember_choice(search: Search, label: str, choice: Choice) -> Own:
    """State of a search that asks clients: the last choice and its quality."""
    if search.asks is None:
        return EMPTY
    return {"label": label} | ({} if choice.quality is None else {"quality": choice.quality})


@part("search", "fixed")
class Fixed:
    """Use the recipe's weighting in every round, without asking clients.

    >>> Fixed().asks is None
    True
    """

    asks: ClassVar[None] = None
    tolerance: ClassVar[float] = 0.0
    gives: ClassVar[Words] = PURE | {"fixed weighting"}

    def weightings(self, base: Weighting) -> tuple[Weighting, ...]:
        """Return only this one."""
        return (base,)

    def visit(
        self, current: Weighting, weightings: Sequence[Weighting], random: np.random.Generator
    ) -> Sequence[Weighting]:
        """Return only this one."""
        return (current,)

    def choose(self, batch: Batch, job: Job) -> Choice:
        """Return the aggregate of the only candidate."""
        weights = job.candidates[0].weights
        row = np.zeros(0) if weights is None else weights.weights
        return Choice(0, job.recipe.server.aggregator(batch, row))


def make_candidates(recipe: Recipe, cohort: Cohort, groups: Groups, view: View) -> list[Candidate]:
    """Return the recipe's weightings that differ in this round, in the order in which its search visits them.

    Empty if no client answered, unless the aggregator runs without clients.
    """
    if not recipe.server.applies(cohort):
        return []
    search, base, weightings = recipe.search, recipe.weighting, recipe.weightings
    last = view.own_of("search").get("label", "")
    visited = search.visit(weightings.get(last, base), tuple(weightings.values()), view.draws.generator("search"))
    labels = [weighting.label for weighting in visited]
    orders = dict.fromkeys(weighting.priority for weighting in visited)
    weights_of: dict[tuple[str, ...], Weights | None] = {
        order: earn(recipe, cohort, view.history, groups, order) if cohort.ids else None for order in orders
    }
    earned = [weights_of[weighting.priority] for weighting in visited]
    if search.asks is not None and len(weightings) == 1 and earned[0] is not None:
        earned[0] = replace(earned[0], notes=(*earned[0].notes, ONE_WEIGHTING))
    moves = view.own_of("server").get("optimizer", EMPTY)
    effects = [None if one.optimizer is None else one.optimizer.mixture(moves) for one in visited]
    rows = [np.zeros(0) if weights is None else weights.weights for weights in earned]
    same = distinct(rows, search.tolerance, effects)
    return [
        Candidate(visited[i], labels[i], earned[i], tuple(labels[j] for j, first in enumerate(same) if first == i != j))
        for i in sorted(set(same))
    ]


def table_of(recipe: Recipe, cohort: Cohort, history: History) -> Matrix:
    """Matrix of the criteria: one row per client, most important criterion first."""
    return np.column_stack([criterion(cohort, history) for criterion in recipe.criteria])


def earn(
    recipe: Recipe,
    cohort: Cohort,
    history: History,
    groups: Groups | None = None,
    priority: tuple[str, ...] | None = None,
) -> Weights:
    """Weigh each group to a sum of 1; by the recipe's order of the criteria or by another `priority`."""
    members, priority = groups.members if groups else [], priority or recipe.priority
    if len(members) <= 1:
        return _earn(recipe, cohort, history, priority)
    return concat_groups([_earn(recipe, cohort.keep(places), history, priority) for places in members], members)


def _earn(recipe: Recipe, cohort: Cohort, history: History, priority: tuple[str, ...]) -> Weights:
    """Compute weights, and bound them by the limits; with the weights by usual claims, if claims differ from them."""
    earned, facts = _weigh(recipe, cohort, history, priority), cohort.facts
    usual = {name.removeprefix(USUAL): column for name, column in facts.items() if name.startswith(USUAL)}
    if usual and recipe.limits:
        facts = {**facts, USUAL_WEIGHT: _weigh(recipe, cohort.with_facts(usual), history, priority).weights}
    for limit in recipe.limits:
        earned = limit(earned, facts)
    return earned


def _weigh(recipe: Recipe, cohort: Cohort, history: History, priority: tuple[str, ...]) -> Weights:
    """Compute criteria -> normalised table -> scores -> weights."""
    samples = cohort.facts[SAMPLES]
    uniform = np.full(len(samples), float(recipe.when_zero == "uniform"))
    fallback = samples if recipe.when_zero == "samples" else uniform
    columns = [recipe.priority.index(name) for name in priority]
    raw = table_of(recipe, cohort, history)[:, columns]
    return weigh(raw, priority, recipe.score, recipe.normalise, fallback)


def orders_of(base: Weighting) -> tuple[Weighting, ...]:
    """Return every order of a weighting's criteria, its own first."""
    if len(base.priority) > MOST_CRITERIA:
        raise ConfigError(
            f"a search over orders needs at most {MOST_CRITERIA} criteria (got {len(base.priority)}); "
            "remove some, or use the fixed search"
        )
    orders = (replace(base, priority=order) for order in permutations(sorted(base.priority)))
    return tuple(dict.fromkeys((base, *orders)))


def kendall(one: Sequence[str], other: Sequence[str]) -> int:
    """Kendall distance: the number of pairs of criteria that two orders rank differently."""
    return sum(other.index(first) > other.index(second) for first, second in combinations(one, 2))


def distinct(weightings: Sequence[Vector], tolerance: float, effects: Sequence[object]) -> list[int]:
    """For each weighting the place of the first equivalent one: within tolerance and with the same effect."""
    firsts: list[int] = []
    same = []
    for place, weights in enumerate(weightings):
        alike = (first for first in firsts if effects[first] == effects[place])
        first = next((one for one in alike if total_variation(weights, weightings[one]) <= tolerance), place)
        if first == place:
            firsts.append(place)
        same.append(first)
    return same
