"""Recipes that have names: those of the four papers, ours, and baselines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from fedmerit.core.aggregators import TrimmedMean
from fedmerit.core.backtracking import Backtracking
from fedmerit.core.boldest import STEPS, BoldestFirst
from fedmerit.core.caps import OUR_CAP
from fedmerit.core.claims import Claims
from fedmerit.core.clip import Clip
from fedmerit.core.criteria import (
    COMPUTATION,
    DATA_RATIO,
    DS,
    PARTICIPATION,
    Agnostic,
    Criterion,
    LossPower,
    Validated,
    find_criterion,
)
from fedmerit.core.groups import ByCosine, Grouping
from fedmerit.core.objectives import Objective, find_objective
from fedmerit.core.ranking import Rank, Ranked
from fedmerit.core.recipe import ACCEPTANCE, PRIORITIZED, Recipe, Rho, WhenZero
from fedmerit.core.reputation import Reputation
from fedmerit.core.rewards import Acceptance, Reward, TopShare
from fedmerit.core.robust_criteria import Conduct
from fedmerit.core.scores import Product, Score, WeightedMean
from fedmerit.core.types import Normalise, Personal
from fedmerit.errors import ConfigError

BACKTRACKING = Backtracking()
ADAPTIVE = BoldestFirst(STEPS, accept=0.8, count="median")
BY_COSINE = ByCosine()
TOP_SHARE = TopShare()


def fedavg() -> Recipe:
    """Weights in proportion to the number of samples: the single criterion DS [FedAvg].

    >>> fedavg().priority
    ('DS',)
    """
    return Recipe(criteria=(DS,))


def prioritized(
    *criteria: Criterion | str,
    score: Score = PRIORITIZED,
    normalise: Normalise = "sum",
    when_zero: WhenZero = "samples",
    scales: Mapping[str, float] | None = None,
) -> Recipe:
    """Criteria in the order of their priority, prioritized scoring unless another score is given [PMCFL].

    With `normalise="sum"` (the paper) a priority hardly moves weights among many clients; "max" makes it count.
    With "scale" each value is divided by its bound in `scales`, {"DS": 500}, and clipped to 1. Criteria are values, or
    their names as configurations take them.

    >>> from fedmerit import DS, LD
    >>> prioritized(LD, DS, normalise="max") == prioritized("LD", "DS", normalise="max")
    True
    """
    pairs = tuple((scales or {}).items())
    return Recipe(criteria=_by_name(criteria), score=score, normalise=normalise, when_zero=when_zero, scales=pairs)


def device_aware(
    *criteria: Criterion | str,
    search: Backtracking = BACKTRACKING,
    score: Score = PRIORITIZED,
    normalise: Normalise = "sum",
    when_zero: WhenZero = "samples",
) -> Recipe:
    """As `prioritized`, and in each round the clients' accuracy decides on the order [DAFL, Alg. 1].

    >>> from fedmerit import DS, LD
    >>> list(device_aware(DS, LD).weightings)
    ['DS > LD', 'LD > DS']
    """
    return Recipe(criteria=_by_name(criteria), score=score, normalise=normalise, when_zero=when_zero, search=search)


def adaptive(
    *criteria: Criterion | str,
    search: BoldestFirst = ADAPTIVE,
    score: Score = PRIORITIZED,
    normalise: Normalise = "max",
    when_zero: WhenZero = "samples",
) -> Recipe:
    """As `prioritized`, and clients judge in each round how bold a step along the aggregate pays; no length to tune.

    criteria    in the order of their priority; none: dataset size
    search      the steps to choose from, who judges them and by what

    No client's weight is above 2 equal shares (`cap`). Rounds that it saves and does not: docs/results/steps.md.

    >>> from fedmerit import DS
    >>> adaptive(DS).search.by, len(adaptive(DS).weightings)
    ('loss', 8)
    """
    return Recipe(_by_name(criteria) or (DS,), score, normalise, when_zero, search, cap=OUR_CAP)


def m2f(
    *criteria: Criterion | str,
    grouping: Grouping = BY_COSINE,
    reward: Reward = TOP_SHARE,
    personal: Personal = "keep",
    acceptance: Acceptance = ACCEPTANCE,
    initial: float = 0.1,
) -> Recipe:
    """Groups of like updates; quality = participation x computation x data ratio; rewards by quality [M2F].

    criteria    those to multiply; none: the paper's three
    grouping    `ByCosine`, with its linkage and cut
    reward      `TopShare`: the largest entries of the group's aggregate, as many as the quality earned
    personal    a client's own training is kept before the reward is added, or `reset`
    initial     the share of the clients that make the first model

    >>> m2f().priority
    ('Participation', 'Computation', 'DataRatio')
    """
    return Recipe(
        criteria=_by_name(criteria) or (PARTICIPATION, COMPUTATION, DATA_RATIO),
        score=Product(),
        normalise="max",  # the product's shares are the same for any scale of a column
        grouping=grouping,
        reward=reward,
        personal=personal,
        acceptance=acceptance,
        initial=initial,
    )


def _by_name(criteria: Sequence[Criterion | str]) -> tuple[Criterion, ...]:
    return tuple(find_criterion(one) if isinstance(one, str) else one for one in criteria)


def fedval(
    *objectives: Objective | str,
    gamma: Sequence[float] = (),
    rank: Rank | None = None,
    top: float = 0.5,
    normalise: Normalise = "none",
    rho: Rho = 0.5,
    marginal: bool = False,
) -> Recipe:
    """p_k = sum_j gamma_j s_jk, as a share; s_jk is objective j of client k's model at the server [FedVal, eq. 2].

    objectives  by name, as `fedmerit objectives` lists them, or as values
    gamma       their importances; none: all alike
    rank, top   put ranks in place of the scores, see `Ranked`
    rho         the client's part in the merged model that is scored
    marginal    count only what the client adds to the global model's score; where nobody adds any, the model is kept

    >>> fedval("accuracy", "parity:sex", gamma=[2, 1]).priority
    ('validated:accuracy', 'validated:parity:sex')
    """
    validated = [find_objective(one) if isinstance(one, str) else one for one in objectives]
    score: Score = WeightedMean(shares_of(gamma, len(validated)))
    return Recipe(
        criteria=tuple(Validated(objective, marginal=marginal) for objective in validated),
        score=Ranked(score, rank, top) if rank else score,
        normalise=normalise,
        when_zero="keep" if marginal else "uniform",
        rho=rho,
    )


def guarded(*criteria: Criterion | str, share: float = 0.3) -> Recipe:
    """Ours against attackers, without rows of the server: a name for good conduct, a trimmed mean, clip, cap, claims.

    A client's score is its dataset size times its reputation for `Conduct`, to the power of 8: whose updates are like
    the others' without being copies, round after round, counts. Claims of size are bounded and no weight is above 2
    equal shares; updates are cut to the median length, and in each coordinate the extremes are left out. What that
    holds off, and its price where all are honest: docs/results/attacks.md.

    criteria    more criteria, multiplied into the score
    share       the share of the weight that is cut at each end of every coordinate, below 0.5

    >>> guarded().client_facts, guarded().cap
    (('samples',), 2.0)
    """
    return Recipe(
        criteria=(DS, Reputation(Conduct(), power=8.0), *_by_name(criteria)),
        score=Product(),
        normalise="max",
        when_zero="uniform",
        aggregate=TrimmedMean(share),
        clip=Clip(),
        cap=OUR_CAP,
        claims=Claims(anchor=False),
    )


def shares_of(gamma: Sequence[float], number: int) -> tuple[float, ...]:
    """gamma_j / sum of gamma; all alike where none are given."""
    values = np.array(gamma or [1.0] * number, dtype=np.float64)
    if len(values) != number:
        raise ConfigError(f"gamma has a weight for each of {number} objectives; got {len(values)}")
    if not (np.isfinite(values).all() and (values >= 0).all() and values.any()):
        raise ConfigError(f"gamma is not negative, and not all 0; got {list(gamma)}")
    return tuple((values / values.sum()).tolist())


def qffl(q: float = 1.0) -> Recipe:
    """A client counts by its loss to the power q: the weights of q-FFL [q-FFL].

    >>> qffl(q=2).client_facts
    ('samples', 'loss')
    """
    return Recipe(criteria=(LossPower(q),), normalise="max", when_zero="uniform")


def agnostic(eta: float = 0.1) -> Recipe:
    """exp(eta * losses so far): the clients that fare worst are raised round by round [AFL].

    >>> agnostic(eta=0.5).priority
    ('Agnostic',)
    """
    return Recipe(criteria=(Agnostic(eta),), normalise="max", when_zero="uniform")
