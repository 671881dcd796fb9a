"""Contributions: what each client's update is worth to the model of a round.

A coalition S of the round's clients is worth v(S), an objective on the server's rows of the model that their updates
alone would make, model + sum of samples_k / samples(S) * update_k over S; v of nobody is that of the model as it is.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, ClassVar, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from fedmerit.core.facts import CONTRIBUTION, SAMPLES
from fedmerit.core.objectives import Objective, Predictions, check_rising, find_objective
from fedmerit.core.parts import NO_WORDS, Doc, Words, part
from fedmerit.core.stages.stages import Measured, Phase
from fedmerit.core.state import History, View
from fedmerit.core.types import Cohort, Family, Model, Note, Vector
from fedmerit.errors import ConfigError, UnknownName

Method: TypeAlias = Literal["shapley", "banzhaf", "leave-one-out", "cosine", "early", "early-server"]
Coalitions: TypeAlias = NDArray[np.bool_]
"""(m, n): who of n clients is in each of m coalitions."""
AskModels: TypeAlias = Callable[[Iterable[Model]], Predictions]
"""Models are asked about the server's rows."""
ValueFunction: TypeAlias = Callable[[Coalitions], Vector]
"""The value of each coalition."""

METHODS: tuple[Method, ...] = get_args(Method)
BY_ROWS: tuple[Method, ...] = ("shapley", "banzhaf", "leave-one-out")
"""Methods that value models on the server's rows."""
EARLY_ANSWERS = 3
"""Answers of a client that the early methods use: the closer the model is to its end, the more updates are noise."""
MOST_EXACT = 12
"""Clients up to which every coalition is asked about: 4,096 models."""
ORDERS = 64
"""Orders that are drawn for more clients than that, half of them the others reversed."""
AT_A_TIME = 64
"""Models that the server is asked about at a time, so that memory does not grow with the coalitions."""
NO_ROWS = "contributions are measured on rows of the server, and it has none; set task.server = 1000"


class CoalitionValues:
    """v(S) of a round's coalitions; no coalition is asked about twice, whatever is asked of it.

    All the models of some coalitions come out of one product with the updates.
    """

    def __init__(self, cohort: Cohort, model: Model, predict: AskModels | None) -> None:
        self._updates, self._samples, self._model, self._predict = cohort.updates, cohort.facts[SAMPLES], model, predict
        self._known: dict[str, dict[bytes, float]] = {}

    def by(self, objective: Objective) -> ValueFunction:
        """What coalitions are worth by an objective."""
        known = self._known.setdefault(objective.name, {})

        def value(coalitions: Coalitions) -> Vector:
            keys = [row.tobytes() for row in coalitions]
            new = list({key: row for key, row in zip(keys, coalitions, strict=True) if key not in known}.items())
            for start in range(0, len(new), AT_A_TIME):
                asked, rows = zip(*new[start : start + AT_A_TIME], strict=True)
                values = np.nan_to_num(objective(self._ask(np.array(rows))))  # 0 where the rows cannot tell
                known.update(zip(asked, values.tolist(), strict=True))
            return np.array([known[key] for key in keys])

        return value

    def _ask(self, coalitions: Coalitions) -> Predictions:
        if self._predict is None:
            raise ConfigError(NO_ROWS)
        weights = coalitions * self._samples
        totals = weights.sum(axis=1, keepdims=True)
        weights = np.divide(weights, totals, out=np.zeros_like(weights), where=totals > 0)
        return self._predict(self._model + self._updates.combine(weights))


@part("criterion", "contribution")
class Contribution:
    """What the client's update added to the round's model, by one of the `METHODS`; 0 where it took something away.

    shapley         the mean over all orders in which clients could join of what the client adds [Shapley 1953]: exact
                    for up to 12 clients, then by 64 drawn orders, half of them the others reversed
    banzhaf         the mean over all coalitions of the others of what it adds; exact, so for up to 12 clients
    leave-one-out   v(all) - v(all but the client)
    cosine          the cosine of its update and the aggregate [CGSV]; needs no rows
    early           sqrt(share of the rows) * max(0, cosine to the aggregate) of its first three answers, then 0; free,
                    and of the methods without server rows the closest to the values by retraining (WeighBench)
    early-server    sqrt(share of the rows * max(0, cosine to the aggregate) * max(0, cosine to the server's own
                    update, trained on its rows)), likewise: it also finds poisoned clients

    The fact of its name keeps the sign. As an entry of a recipe's `stages` it is measured and recorded only.

    >>> Contribution("shapley").name, Contribution("banzhaf", find_objective("parity:sex")).name
    ('contribution:shapley', 'contribution:banzhaf:parity:sex')
    """

    method: Annotated[Method, Doc("how what a client adds is measured")] = "shapley"
    objective: Annotated[Objective, Doc("what models are valued by")] = find_objective("accuracy")

    family: ClassVar[Family] = Family.TARGET
    degree: ClassVar[bool] = True
    phase: ClassVar[Phase] = "measure"
    why: ClassVar[Mapping[str, str]] = {
        "server rows": "set task.server = 1000, or use `early`",
        "server training": "set task.server = 1000, or use `early`",
        "shared model": "Shapley, Banzhaf and leave-one-out need a shared model; with personal models use `cosine`",
    }

    def __post_init__(self) -> None:
        check_rising(self.objective)

    @property
    def needs(self) -> Words:
        """Rows and one model, but for `cosine` and `early`."""
        if self.method == "early-server":
            return frozenset({"server training", "shared model"})
        return frozenset({"server rows", "shared model"}) if self.method in BY_ROWS else NO_WORDS

    @property
    def name(self) -> str:
        """`contribution:shapley`; with the objective where it is not accuracy."""
        objective = "" if self.objective.name == "accuracy" else f":{self.objective.name}"
        return f"{CONTRIBUTION}{self.method}{objective}"

    @property
    def required_facts(self) -> tuple[str, ...]:
        """The fact of the same name."""
        return (self.name,)

    @property
    def about(self) -> str:
        """One line for lists and reports."""
        of = f"by {self.objective.name} on the server's rows" if self.method in BY_ROWS else "by its direction"
        return f"contribution ({self.method}): what the client's update adds to the round's model, {of}"

    def __call__(self, cohort: Cohort, history: History) -> Vector:
        """As the server measured it, 0 where the update did harm."""
        return np.maximum(cohort.facts[self.name], 0.0)

    def measure(self, cohort: Cohort, view: View) -> Measured:
        """What each client of the cohort added, with its sign; a note where it is sampled."""
        if self.method in ("early", "early-server"):
            return Measured({self.name: early_values(cohort, view, with_server=self.method == "early-server")})
        values, notes = self.values(cohort, view.coalition_values(cohort), view.draws.seed("contribution"))
        return Measured({self.name: values}, notes)

    def values(self, cohort: Cohort, values_of: CoalitionValues, seed: int) -> tuple[Vector, tuple[Note, ...]]:
        """What each client added to the coalitions' values."""
        number, samples = len(cohort.ids), cohort.facts[SAMPLES]
        if self.method == "cosine":
            return cohort.updates.cosines_to(cohort.updates.combine(samples / samples.sum())), ()
        value = values_of.by(self.objective)
        if self.method == "leave-one-out":
            return leave_one_out(value, number), ()
        if number <= MOST_EXACT:
            return (shapley if self.method == "shapley" else banzhaf)(value, number), ()
        if self.method == "banzhaf":
            raise ConfigError(
                f"banzhaf asks about all coalitions, of {MOST_EXACT} clients at most; a round has {number}: use shapley"
            )
        values, errors = sampled_shapley(value, number, ORDERS, seed)
        text = f"{self.name} by {ORDERS} drawn orders of {number} clients: standard error up to {errors.max():.2g}"
        return values, (Note("sampled", self.name, text),)


def early_values(cohort: Cohort, view: View, *, with_server: bool) -> Vector:
    """Values of the early methods for clients with fewer than three answers before this one; 0 for the others."""
    shares = cohort.facts[SAMPLES] / cohort.facts[SAMPLES].sum()
    early = np.array([view.history.participations.get(client, 0) < EARLY_ANSWERS for client in cohort.ids])
    if not early.any():
        return np.zeros(len(early))  # the server need not train its own update
    along = np.maximum(cohort.updates.cosines_to(cohort.updates.combine(shares)), 0.0)
    if with_server:
        along = np.sqrt(along * np.maximum(cohort.updates.cosines_to(view.server_update()), 0.0))
    return np.where(early, np.sqrt(shares) * along, 0.0)


def find_contribution(name: str) -> Contribution:
    """`contribution:METHOD` or `contribution:METHOD:OBJECTIVE`.

    >>> find_contribution("contribution:leave-one-out").method
    'leave-one-out'
    """
    method, _, objective = name.removeprefix(CONTRIBUTION).partition(":")
    if method not in METHODS:
        raise UnknownName("contribution", method, METHODS)
    return Contribution(method, find_objective(objective or "accuracy"))


def all_coalitions(number: int) -> Coalitions:
    """All 2^n coalitions; the bits of a row's number say who is in it.

    >>> all_coalitions(2).tolist()
    [[False, False], [True, False], [False, True], [True, True]]
    """
    return np.asarray((np.arange(1 << number)[:, np.newaxis] >> np.arange(number)) & 1 == 1)


def leave_one_out(value: ValueFunction, number: int) -> Vector:
    """v(N) - v(N without k).

    >>> leave_one_out(lambda who: who @ np.array([1.0, 2.0]), 2).tolist()
    [1.0, 2.0]
    """
    everybody, *without = value(np.vstack([np.ones(number, bool), ~np.eye(number, dtype=bool)]))
    return np.asarray(everybody - np.array(without))


def shapley(value: ValueFunction, number: int) -> Vector:
    """sum over S without k of |S|! (n - |S| - 1)! / n! * (v(S + k) - v(S)), over all 2^n coalitions.

    >>> shapley(lambda who: (who.sum(axis=1) > 1).astype(float), 3).round(9).tolist()  # any two win
    [0.333333333, 0.333333333, 0.333333333]
    """
    sizes = np.arange(number)
    shares = np.array([1 / (number * math.comb(number - 1, int(size))) for size in sizes])
    return _marginal(value, number, shares)


def banzhaf(value: ValueFunction, number: int) -> Vector:
    """sum over S without k of (v(S + k) - v(S)) / 2^(n - 1).

    >>> banzhaf(lambda who: who.all(axis=1).astype(float), 2).tolist()
    [0.5, 0.5]
    """
    return _marginal(value, number, np.full(number, 0.5 ** (number - 1)))


def _marginal(value: ValueFunction, number: int, shares: Vector) -> Vector:
    """What each client adds to every coalition of the others, which counts by its size."""
    codes, coalitions = np.arange(1 << number), all_coalitions(number)
    values, sizes = value(coalitions), coalitions.sum(axis=1)
    found = np.empty(number)
    for client in range(number):
        without = codes[~coalitions[:, client]]
        found[client] = shares[sizes[without]] @ (values[without | (1 << client)] - values[without])
    return found


def sampled_shapley(value: ValueFunction, number: int, orders: int, seed: int) -> tuple[Vector, Vector]:
    """The mean of what clients add over drawn orders and these reversed, and its standard error over the pairs.

    All orders grow together, a client at a time, so that models are asked about in batches.

    >>> values, errors = sampled_shapley(lambda who: who @ np.array([1.0, 2.0, 0.0]), 3, 8, seed=1)
    >>> values.tolist(), errors.tolist()
    ([1.0, 2.0, 0.0], [0.0, 0.0, 0.0])
    """
    random = np.random.default_rng(seed)
    drawn = [random.permutation(number) for _ in range(orders // 2)]
    queue = np.array([order for one in drawn for order in (one, one[::-1])])
    inside, places = np.zeros((orders, number), bool), np.arange(orders)
    before = value(inside)
    added = np.zeros((orders, number))
    for client in queue.T:
        inside[places, client] = True
        now = value(inside)
        added[places, client] = now - before
        before = now
    pairs = added.reshape(orders // 2, 2, number).mean(axis=1)
    return pairs.mean(axis=0), np.asarray(pairs.std(axis=0, ddof=1) / np.sqrt(len(pairs)))
