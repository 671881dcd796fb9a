"""Recipes that have names: those of the four papers, ours, and baselines."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from fedmerit.core.criteria.contribution import Contribution
from fedmerit.core.criteria.criterion import Criterion
from fedmerit.core.criteria.loss import Agnostic, LossPower
from fedmerit.core.criteria.reputation import Reputation
from fedmerit.core.criteria.similarity import SimilarityFilter
from fedmerit.core.criteria.table import COMPUTATION, DATA_RATIO, DS, PARTICIPATION, find_criterion
from fedmerit.core.criteria.validated import Validated
from fedmerit.core.models.attention import ByAttention
from fedmerit.core.models.clusters import ClusterModels
from fedmerit.core.models.grouping import ByCosine, Grouping, OneGroup
from fedmerit.core.models.personal import PersonalModels
from fedmerit.core.models.rewards import Nothing, Reward, TopShare, Whole
from fedmerit.core.models.shared import LocalModel, OneModel
from fedmerit.core.objectives import Objective, find_objective
from fedmerit.core.parts import declared, label
from fedmerit.core.recipe import PRIORITIZED, Recipe, WhenZero
from fedmerit.core.search.backtracking import Backtracking
from fedmerit.core.search.step_search import StepSearch
from fedmerit.core.server.private_sum import PrivateSum
from fedmerit.core.stages.claims import Claims
from fedmerit.core.stages.clip import Clip
from fedmerit.core.state import Rho
from fedmerit.core.types import Personal
from fedmerit.core.weights.limits import Cap
from fedmerit.core.weights.scores import Product, Rank, Ranked, Score, WeightedMean
from fedmerit.core.weights.weigh import Normalise
from fedmerit.errors import ConfigError

BACKTRACKING = Backtracking()
ADAPTIVE = StepSearch()
BY_COSINE = ByCosine()
TOP_SHARE = TopShare()
COSINE = Contribution("cosine")
ALWAYS = 2.0
"""Above 1 every reward is taken: there is no test of it in these papers."""


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
) -> Recipe:
    """Criteria in the order of their priority, prioritized scoring unless another score is given [PMCFL].

    With `normalise="sum"` (the paper) a priority hardly moves weights among many clients; "max" makes it count.
    With `normalise=scale({"DS": 500})` each value is divided by its bound, and clipped to 1. Criteria are values, or
    their names as configurations use them.

    >>> from fedmerit import DS, LD
    >>> prioritized(LD, DS, normalise="max") == prioritized("LD", "DS", normalise="max")
    True
    """
    return Recipe(_by_name(criteria), score, normalise, when_zero)


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
    return Recipe(_by_name(criteria), score, normalise, when_zero, search=search)


def adaptive(
    *criteria: Criterion | str,
    search: StepSearch = ADAPTIVE,
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
    return Recipe(_by_name(criteria) or (DS,), score, normalise, when_zero, limits=(Cap(),), search=search)


def m2f(
    *criteria: Criterion | str,
    grouping: Grouping = BY_COSINE,
    reward: Reward = TOP_SHARE,
    training: Personal = "keep",
    sigma: float = 0.05,
    initial: float = 0.1,
    until: int | None = None,
) -> Recipe:
    """Groups of like updates; quality = participation x computation x data ratio; rewards by quality [M2F].

    criteria    those to multiply; none: the paper's three
    grouping    `ByCosine`, with its linkage and cut
    reward      `TopShare`: the largest entries of the group's aggregate, as many as the quality earned
    training    a client's own training is kept before the reward is added, or `reset`
    sigma       a client takes a reward that lowers its accuracy by less than this
    initial     the share of the clients that make the first model
    until       the last round with rewards, after which clients finish their models alone; None: all rounds

    >>> m2f().priority
    ('Participation', 'Computation', 'DataRatio')
    """
    return Recipe(
        criteria=_by_name(criteria) or (PARTICIPATION, COMPUTATION, DATA_RATIO),
        score=Product(),
        normalise="max",  # the product's shares are the same for any scale of a column
        models=PersonalModels(grouping, reward, sigma, training, initial, until),
    )


def cgsv(beta: float = 1.0, half_life: float = 13.5, until: int | None = None) -> Recipe:
    """Weights and rewards by a reputation for updates that agree with the aggregate [CGSV].

    A client's model moves only by its reward, the tanh(beta r_i) / max tanh(beta r) largest entries of each layer of
    the aggregate. Unlike the paper, updates keep their norms and the cosine is to the mean by dataset size.

    beta        the altruism: the larger, the nearer everybody's reward to the whole
    half_life   of the reputation, in rounds; 13.5 is the paper's alpha = 0.95
    until       the last round with rewards, after which clients finish their models alone; None: all rounds

    >>> cgsv(beta=2).models.reward.beta
    2
    """
    reward = TopShare("tanh", scope="layer", beta=beta)
    models = PersonalModels(reward=reward, sigma=ALWAYS, training="reset", until=until)
    return Recipe((Reputation(COSINE, half_life),), Product(), "max", models=models)


def standalone() -> Recipe:
    """Each client trains alone, nothing is aggregated: the baseline for what clients gain by any other recipe.

    >>> standalone().models.reward
    Nothing()
    """
    return Recipe((DS,), models=PersonalModels(reward=Nothing(), sigma=ALWAYS))


def finetuned(until: int = 15) -> Recipe:
    """FedAvg up to a round, after which each client trains the shared model on, alone: fine-tuned FedAvg.

    until       the last round in which models are averaged

    >>> finetuned(until=18).models.training_mode(19)
    Training(personal='keep', pull=None)
    """
    return _of_groups(OneGroup(), until)


def fedamp(sharpness: float = 10.0, until: int | None = None) -> Recipe:
    """Each client gets its own aggregate, to which clients with similar updates add more [FedAMP].

    sharpness   0: all get the same; the larger, the nearer is everybody to being alone
    until       the last round of that, after which clients finish their models alone; None: all rounds

    Unlike the paper, updates are compared, not models, over all rounds so far, and dataset sizes count.

    >>> fedamp(sharpness=5).models.grouping
    ByAttention(sharpness=5, over='all')
    """
    return _of_groups(ByAttention(sharpness), until)


def _of_groups(grouping: Grouping, until: int | None) -> Recipe:
    """Models move only by the whole aggregate of their group, by dataset size."""
    return Recipe((DS,), models=PersonalModels(grouping, Whole(), ALWAYS, "reset", until=until))


def ditto(pull: float = 0.1) -> Recipe:
    """FedAvg, and in addition each client trains its own model that the shared one pulls [Ditto].

    pull        the paper's lambda: 0 is alone, the larger, the nearer is everybody to the shared model

    Any recipe with one model can have it: `replace(robust(), models=LocalModel(0.1))`.

    >>> ditto(0.5).models
    LocalModel(pull=0.5)
    """
    return Recipe((DS,), models=LocalModel(pull))


def ifca(count: int = 2, warmup_rounds: int = 1) -> Recipe:
    """The server keeps several models; each client trains the one that fits its rows best, by dataset size [IFCA].

    count           how many; each begins with its own draw. One model is FedAvg
    warmup_rounds   first rounds in which models are dealt by a draw, so that each learns something; the paper's is 0

    >>> ifca(3).models
    ClusterModels(count=3, warmup_rounds=1)
    """
    return Recipe((DS,), models=OneModel() if count == 1 else ClusterModels(count, warmup_rounds))


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

    objectives  by name, as `fedmerit objectives` shows them, or as values
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
        criteria=tuple(Validated(objective, rho, marginal=marginal) for objective in validated),
        score=Ranked(score, rank, top) if rank else score,
        normalise=normalise,
        when_zero="keep" if marginal else "uniform",
    )


def robust(*criteria: Criterion | str) -> Recipe:
    """Our defence without server rows: outliers get weight 0, long updates are clipped, no client exceeds a cap.

    `SimilarityFilter` finds the outliers: clients whose updates, over the rounds, are copies or have outlying norms,
    share rare coordinates with another client, or belong to a block that differs. Where nobody stands out these are
    FedAvg's weights with a cap: claims of size are bounded, no weight is above 2 equal shares, and updates are clipped
    to 2 median norms. What that holds off, and its price where all are honest: docs/results/attacks.md.

    criteria    more criteria, multiplied into the score

    >>> robust().client_facts, robust().limits
    (('samples',), (Cap(times=2.0, anchored=False),))
    """
    return Recipe(
        criteria=(DS, SimilarityFilter(), *_by_name(criteria)),
        score=Product(),
        normalise="max",
        when_zero="keep",
        stages=(Claims(), Clip(times=2.0)),
        limits=(Cap(),),
    )


def private(recipe: Recipe, aggregator: PrivateSum) -> Recipe:
    """The recipe with differential privacy: its aggregate becomes a noisy sum.

    A cap of the recipe becomes the aggregator's `max_weight`: in the noisy sum no client's weight may depend on the
    others'. A score of 0 adds nothing to the sum, also where all are 0.

    >>> from fedmerit.core.server.private_sum import PrivateSum
    >>> from fedmerit.core.weights.weigh import scale
    >>> private(prioritized("DS", normalise=scale({"DS": 500})), PrivateSum(1.1, fraction=0.1)).when_zero
    'keep'
    """
    caps = [limit for limit in recipe.limits if isinstance(limit, Cap)]
    others = tuple(limit for limit in recipe.limits if not isinstance(limit, Cap))
    if "weighted mean" not in declared(recipe.server.aggregator, "gives") and privacy_of(recipe) is None:
        raise ConfigError(
            f"[privacy] accounts for a weighted sum (got {label(recipe.server.aggregator)}); remove "
            "recipe.server.aggregator: clip and scales bound every client"
        )
    aggregator = replace(aggregator, max_weight=caps[0].times) if caps else aggregator
    server = replace(recipe.server, aggregator=aggregator)
    return replace(recipe, limits=others, when_zero="keep", server=server)


def privacy_of(recipe: Recipe) -> PrivateSum | None:
    """The noisy sum of a private recipe; None for others."""
    aggregator = recipe.server.aggregator
    return aggregator if isinstance(aggregator, PrivateSum) else None


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


RECIPES: Mapping[str, tuple[Callable[[], Recipe], str]] = {
    "fedavg": (fedavg, "weights by dataset size: the baseline of all four papers"),
    "prioritized": (lambda: prioritized(DS), "PMCFL: several criteria in a priority order, any score"),
    "device_aware": (lambda: device_aware(DS), "DAFL: in each round the clients' accuracy decides on the order"),
    "adaptive": (adaptive, "clients judge by their loss how bold a server step pays, round by round: nothing to tune"),
    "m2f": (m2f, "M2F: personal models, groups of like updates, rewards in proportion to quality"),
    "fedval": (
        lambda: fedval("accuracy"),
        "FedVal: objectives that the server measures on its own rows, ranked or not",
    ),
    "robust": (robust, "our defence: outliers get weight 0, long updates are clipped, no client exceeds a cap"),
    "qffl": (qffl, "baseline q-FFL: weights by the loss to a power"),
    "agnostic": (lambda: agnostic(1.0), "baseline agnostic FL: the weight of the worst client rises round by round"),
    "cgsv": (cgsv, "baseline CGSV: rewards by a reputation for updates that agree with the others"),
    "standalone": (standalone, "baseline: each client trains alone; what others gain is measured against it"),
    "finetuned": (finetuned, "baseline: FedAvg up to a round, then each client trains the shared model on, alone"),
    "fedamp": (fedamp, "baseline as FedAMP: each client's own aggregate, to which similar clients add more"),
    "ifca": (ifca, "baseline IFCA: several models at the server; each client trains the one that fits it best"),
    "ditto": (ditto, "baseline Ditto: FedAvg, and a personal model that the shared one pulls; not on Flower"),
}
"""Named recipes, each with a line for lists; in a configuration `recipe.name` picks one, other keys replace its fields.
"""
