"""Recipes that have names: those of the four papers, ours, and baselines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from fedmerit.core.criteria.contribution import Contribution
from fedmerit.core.criteria.reputation import Reputation
from fedmerit.core.criteria.similarity import Company
from fedmerit.core.criteria.table import (
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
from fedmerit.core.models.attention import ByAttention
from fedmerit.core.models.clusters import Hypotheses
from fedmerit.core.models.grouping import ByCosine, Grouping, OneGroup
from fedmerit.core.models.local import Beside
from fedmerit.core.models.rewards import Acceptance, Nothing, Reward, TopShare, Whole
from fedmerit.core.models.splits import Splits
from fedmerit.core.objectives import Objective, find_objective
from fedmerit.core.recipe import ACCEPTANCE, PRIORITIZED, Recipe, Rho, WhenZero
from fedmerit.core.search.backtracking import Backtracking
from fedmerit.core.search.step_search import STEPS, BoldestFirst
from fedmerit.core.stages.claims import Claims
from fedmerit.core.stages.clip import Clip
from fedmerit.core.types import Normalise, Personal
from fedmerit.core.weights.limits import OUR_CAP
from fedmerit.core.weights.ranking import Rank, Ranked
from fedmerit.core.weights.scores import Product, Score, WeightedMean
from fedmerit.errors import ConfigError

BACKTRACKING = Backtracking()
ADAPTIVE = BoldestFirst(STEPS, accept=0.8, count="median")
BY_COSINE = ByCosine()
TOP_SHARE = TopShare()
COSINE = Contribution("cosine")
ALWAYS = Acceptance(2.0)
"""Every reward is taken: there is no test of it in these papers."""


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
    until: int | None = None,
) -> Recipe:
    """Groups of like updates; quality = participation x computation x data ratio; rewards by quality [M2F].

    criteria    those to multiply; none: the paper's three
    grouping    `ByCosine`, with its linkage and cut
    reward      `TopShare`: the largest entries of the group's aggregate, as many as the quality earned
    personal    a client's own training is kept before the reward is added, or `reset`
    initial     the share of the clients that make the first model
    until       the last round with rewards, after which clients finish their models alone; None: all rounds have

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
        until=until,
    )


def cgsv(beta: float = 1.0, half_life: float = 13.5, until: int | None = None) -> Recipe:
    """Weights and rewards by a reputation for updates that go with the aggregate's [CGSV].

    A client's model moves by its reward alone, the tanh(beta r_i) / max tanh(beta r) largest entries of each layer of
    the aggregate. Unlike there, updates keep their lengths and the cosine is to the mean by dataset size.

    beta        the altruism: the larger, the nearer everybody's reward to the whole
    half_life   of the reputation, in rounds; 13.5 is the paper's alpha = 0.95
    until       the last round with rewards, after which clients finish their models alone; None: all rounds have

    >>> cgsv(beta=2).reward.beta
    2
    """
    reward = TopShare("tanh", scope="layer", beta=beta)
    return _by_reputation(Reputation(COSINE, half_life), reward, "reset", until)


def rffl(least: float = 1 / 3, half_life: float = 13.5, until: int | None = None) -> Recipe:
    """As `cgsv`, but own training is kept, shares are r_i / max r, and a bad name is left out [RFFL].

    least       who has less than this share of the mean reputation has no weight and no reward, until its name mends
    half_life   of the reputation, in rounds; 13.5 is the paper's alpha = 0.95
    until       the last round with rewards; None: all rounds have

    >>> rffl().priority
    ('reputation:contribution:cosine',)
    """
    reward = TopShare("max", scope="layer")
    return _by_reputation(Reputation(COSINE, half_life, least=least), reward, "keep", until)


def _by_reputation(reputation: Reputation, reward: Reward, personal: Personal, until: int | None) -> Recipe:
    return Recipe((reputation,), Product(), "max", reward=reward, personal=personal, acceptance=ALWAYS, until=until)


def standalone() -> Recipe:
    """Each client alone: its model is never aggregated; what it gains by any other recipe is a gain over this one.

    >>> standalone().reward
    Nothing()
    """
    return Recipe((DS,), reward=Nothing(), personal="keep", acceptance=ALWAYS)


def finetuned(until: int = 15) -> Recipe:
    """FedAvg up to a round, after which each client trains the shared model on, alone: fine-tuned FedAvg.

    until       the last round in which models are averaged

    >>> finetuned(until=18).in_round(19).reward
    Nothing()
    """
    return _of_groups(OneGroup(), until)


def fedamp(sharpness: float = 10.0, until: int | None = None) -> Recipe:
    """Each client gets an aggregate of its own, to which clients with updates like its own add more [FedAMP].

    sharpness   0: all get the same; the larger, the nearer is everybody to being alone
    until       the last round of that, after which clients finish their models alone; None: all rounds

    Unlike there, updates are compared, not models, over all rounds so far, and dataset sizes count.

    >>> fedamp(sharpness=5).grouping
    ByAttention(sharpness=5, over='all')
    """
    return _of_groups(ByAttention(sharpness), until)


def cfl(at: float = 0.25, until: int | None = None) -> Recipe:
    """All begin with one model; groups whose clients pull against each other are split in two, for good [CFL].

    at          a group is split where its mean update is shorter than this part of its longest
    until       the last round with a model per group, after which clients finish theirs alone; None: all rounds

    Members of a group share one model where everybody takes part in every round, as in the paper.

    >>> cfl().personal
    'reset'
    """
    return _of_groups(Splits(at), until)


def _of_groups(grouping: Grouping, until: int | None) -> Recipe:
    """Models move by the whole aggregate of their group alone, by dataset size."""
    return Recipe((DS,), grouping=grouping, reward=Whole(), personal="reset", acceptance=ALWAYS, until=until)


def ditto(pull: float = 0.1) -> Recipe:
    """FedAvg, and beside it each client trains a model of its own that the shared one pulls [Ditto].

    pull        the paper's lambda: 0 is alone, the larger, the nearer is everybody to the shared model

    Any recipe with one model takes it: `replace(guarded(), beside=Beside(0.1))`.

    >>> ditto(0.5).keeps_models
    True
    """
    return Recipe((DS,), beside=Beside(pull))


def ifca(models: int = 2, dealt: int = 1) -> Recipe:
    """The server keeps several models; each client trains the one that fits its rows best, by dataset size [IFCA].

    models      how many; each begins with a draw of its own
    dealt       in so many first rounds models are dealt by a draw, so that each learns something; the paper's is 0

    Any recipe with one model takes it: `replace(fedavg(), hypotheses=Hypotheses(3))`, but for searches, validated
    criteria and privacy.

    >>> ifca(3).hypotheses
    Hypotheses(count=3, dealt=1)
    """
    return Recipe((DS,), hypotheses=Hypotheses(models, dealt))


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


def guarded(*criteria: Criterion | str) -> Recipe:
    """Ours against attackers, without rows of the server: dataset size, but nothing for who is set apart; clip, cap.

    `Company` says who is: whose updates, over the rounds, are copies or of unusual length, move together what most
    leave alone, or belong to a block of clients of another kind. Where nobody stands out these are FedAvg's weights
    with a cap: claims of size are bounded, no weight is above 2 equal shares, and updates are cut to 2 usual lengths.
    What that holds off, and its price where all are honest: docs/results/attacks.md.

    criteria    more criteria, multiplied into the score

    >>> guarded().client_facts, guarded().cap
    (('samples',), 2.0)
    """
    return Recipe(
        criteria=(DS, Company(), *_by_name(criteria)),
        score=Product(),
        normalise="max",
        when_zero="keep",
        clip=Clip(times=2.0),
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
