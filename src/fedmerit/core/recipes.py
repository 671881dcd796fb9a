"""Named recipes: those of the four papers, ours, and baselines."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace

import numpy as np

from fedmerit.core.collect.memory import LastAnswers
from fedmerit.core.criteria.agreement import Agreement
from fedmerit.core.criteria.alignment import Alignment
from fedmerit.core.criteria.contribution import Contribution
from fedmerit.core.criteria.criterion import Criterion
from fedmerit.core.criteria.harmless import Harmless
from fedmerit.core.criteria.loss import Agnostic, LossPower
from fedmerit.core.criteria.reputation import Reputation
from fedmerit.core.criteria.similarity import SimilarityFilter
from fedmerit.core.criteria.table import COMPUTATION, DATA_RATIO, DS, EQUAL, PARTICIPATION, find_criterion
from fedmerit.core.criteria.turned import Turned
from fedmerit.core.criteria.validated import Validated
from fedmerit.core.models.attentive import AttentiveModels
from fedmerit.core.models.clusters import ClusterModels
from fedmerit.core.models.grouping import ByCosine, Grouping, OneGroup
from fedmerit.core.models.personal import PersonalModels
from fedmerit.core.models.rewards import Nothing, Reward, TopShare, Whole
from fedmerit.core.models.shared import LocalModel, OneModel, PooledModel
from fedmerit.core.objectives import Objective, find_objective
from fedmerit.core.parts import declared, label
from fedmerit.core.recipe import PRIORITIZED, Recipe, WhenZero
from fedmerit.core.search.backtracking import Backtracking
from fedmerit.core.search.step_search import StepSearch
from fedmerit.core.server.coordinate_cap import CoordinateCap
from fedmerit.core.server.private_sum import PrivateSum
from fedmerit.core.server.server import Server
from fedmerit.core.stages.claims import Claims
from fedmerit.core.stages.clip import Clip
from fedmerit.core.state import Rho
from fedmerit.core.types import Personal
from fedmerit.core.weights.limits import Cap
from fedmerit.core.weights.scores import Product, Rank, Ranked, Score, WeightedMean
from fedmerit.core.weights.weigh import Normalise
from fedmerit.errors import ConfigError

BACKTRACKING = Backtracking()
BY_COSINE = ByCosine()
TOP_SHARE = TopShare()
COSINE = Contribution("cosine")
ALWAYS = 2.0
"""A sigma above 1: clients accept every reward, since these papers do not test it."""


def fedavg() -> Recipe:
    """Weights in proportion to the number of samples: the single criterion DS [FedAvg].

    >>> fedavg().priority
    ('DS',)
    """
    return Recipe(criteria=(DS,))


def last_answers(rounds: int = 6) -> Recipe:
    """FedAvg over the last answer of every client that answered recently, not only over those of the round [MIFA].

    The first round asks every client. It helps if clients differ and few take part in each round: the rows of clients
    that were not drawn still count.

    rounds   the number of rounds for which an answer counts after its own

    >>> last_answers().memory
    LastAnswers(rounds=6)
    """
    return Recipe((DS,), memory=LastAnswers(rounds))


def prioritized(
    *criteria: Criterion | str,
    score: Score = PRIORITIZED,
    normalise: Normalise = "max",
    when_zero: WhenZero = "samples",
) -> Recipe:
    """Weigh clients by criteria in order of priority [PMCFL, eq. 5].

    criteria    most important first: values such as `LD`, or names such as "LD"
    score       row of the table -> number; default: prioritized scoring, c1 + c1 c2 + c1 c2 c3 ...
    normalise   how columns are scaled. The paper uses "sum", where the order hardly matters with many clients; with
                `scale({"DS": 500})` values are divided by public bounds and clipped to 1
    when_zero   weights of a round in which every score is 0: by "samples", "uniform", or "keep" the model

    >>> from fedmerit import DS, LD
    >>> prioritized("LD", "DS") == prioritized(LD, DS, normalise="max")
    True
    """
    return Recipe(_by_name(criteria), score, normalise, when_zero)


def device_aware(
    *criteria: Criterion | str,
    search: Backtracking = BACKTRACKING,
    score: Score = PRIORITIZED,
    normalise: Normalise = "max",
    when_zero: WhenZero = "samples",
) -> Recipe:
    """Choose the order of the criteria in each round by the clients' accuracy [DAFL, Alg. 1].

    Arguments as `prioritized`; `search` says how orders are tested.

    >>> from fedmerit import DS, LD
    >>> list(device_aware(DS, LD).weightings)
    ['DS > LD', 'LD > DS']
    """
    return Recipe(_by_name(criteria), score, normalise, when_zero, search=search)


def adaptive(
    *criteria: Criterion | str,
    score: Score = PRIORITIZED,
    normalise: Normalise = "max",
    when_zero: WhenZero = "samples",
) -> Recipe:
    """Choose the length of the server's step in each round by the clients' losses, without tuning.

    criteria    most important first; default: dataset size

    A client gets at most 2 times the equal share (`Cap`). Measured gains: docs/results/steps.md.

    >>> from fedmerit import DS
    >>> len(adaptive(DS).weightings)
    8
    """
    return Recipe(_by_name(criteria) or (DS,), score, normalise, when_zero, limits=(Cap(),), search=StepSearch())


def m2f(
    *criteria: Criterion | str,
    grouping: Grouping = BY_COSINE,
    reward: Reward = TOP_SHARE,
    training: Personal = "keep",
    sigma: float = 0.05,
    initial: float = 0.1,
    until: int | None = None,
) -> Recipe:
    """Personal models: similar clients form groups, and rewards grow with participation x speed x data [M2F].

    criteria    factors of the quality; default: the paper's three
    grouping    `ByCosine`, with its cut
    reward      `TopShare`: the largest entries of the group's aggregate, in proportion to the quality
    training    "keep" the client's own training when the reward is added, or "reset" it
    sigma       a client accepts a reward that lowers its accuracy by less than this
    initial     share of the clients that make the first model
    until       last round with rewards; later, clients train separately. None: all rounds

    >>> m2f().priority
    ('Participation', 'Computation', 'DataRatio')
    """
    return Recipe(
        criteria=_by_name(criteria) or (PARTICIPATION, COMPUTATION, DATA_RATIO),
        score=Product(),
        normalise="max",  # the product's shares are the same for any scale of a column
        models=PersonalModels(grouping, reward, sigma, training, initial, until),
    )


def cosine_rewards(half_life: float = 13.5, until: int | None = None) -> Recipe:
    """Weights and rewards by reputation: the cosine between a client's updates and their mean, after [CGSV].

    A client's model changes only by its reward: the largest entries of each layer of the aggregate, a share
    tanh(r_i) / max_j tanh(r_j) of them, as in CGSV with beta = 1. Unlike CGSV, updates keep their norms, the cosine
    is to the mean weighted by dataset size, and the reputation of the round, not of the last one, weighs the aggregate.

    half_life   of the reputation, in rounds; 13.5 is the paper's alpha = 0.95
    until       last round with rewards; later, clients train separately. None: all rounds

    >>> cosine_rewards().models.reward.share
    'tanh'
    """
    models = PersonalModels(reward=TopShare("tanh"), sigma=ALWAYS, training="reset", until=until)
    return Recipe((Reputation(COSINE, half_life),), Product(), "max", models=models)


def standalone() -> Recipe:
    """Each client trains separately and nothing is aggregated: the baseline for the gain of collaboration.

    >>> standalone().models.reward
    Nothing()
    """
    return Recipe((DS,), models=PersonalModels(reward=Nothing(), sigma=ALWAYS))


def pooled() -> Recipe:
    """All rows in one place, trained as one client: the baseline for what a federation could reach.

    >>> pooled().models
    PooledModel()
    """
    return Recipe((DS,), models=PooledModel())


def finetuned(until: int = 15) -> Recipe:
    """FedAvg up to a round, then each client fine-tunes the shared model separately.

    until       last round of FedAvg

    >>> finetuned(until=18).models.training_mode(19)
    Training(personal='keep', pull=None, sends_local=False)
    """
    return Recipe((DS,), models=PersonalModels(OneGroup(), Whole(), ALWAYS, "reset", until=until))


def fedamp(alpha: float = 1.0, sigma: float = 10.0, lam: float = 0.1) -> Recipe:
    """Personal models, each pulled towards a mixture of the models of similar clients [FedAMP].

    alpha   step of the mixing; larger: clients move more towards each other
    sigma   squared distance between models over which similarity falls
    lam     lambda; larger: training is pulled more strongly towards the mixture

    The paper's constants depend on the model: its distances and its number of parameters. Not on Flower.

    >>> fedamp(sigma=20).models
    AttentiveModels(alpha=1.0, sigma=20, lam=0.1)
    """
    return Recipe((EQUAL,), models=AttentiveModels(alpha, sigma, lam))


def ditto(pull: float = 0.1) -> Recipe:
    """FedAvg, and a personal model per client that is pulled towards the shared one [Ditto].

    pull        the paper's lambda; 0: separate training, the larger, the closer to the shared model

    Any recipe with one model can be combined with it: `replace(prioritized("LD"), models=LocalModel(0.1))`.

    >>> ditto(0.5).models
    LocalModel(pull=0.5)
    """
    return Recipe((DS,), models=LocalModel(pull))


def ifca(count: int = 2, warmup_rounds: int = 0) -> Recipe:
    """Several models at the server; each client trains the one with the lowest loss on its rows [IFCA].

    count           number of models, each with its own random start; 1 is FedAvg
    warmup_rounds   first rounds, in which models are assigned at random; 1 keeps all clients from choosing one model

    >>> ifca(3).models
    ClusterModels(count=3, warmup_rounds=0)
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
    """Weights by objectives that the server measures on its own rows [FedVal, eq. 2].

    p_k = sum_j gamma_j s_jk / sum_i sum_j gamma_j s_ji, where s_jk is objective j of client k's model.

    objectives  names, as in `fedmerit list objectives`, or values
    gamma       their importances; default: equal
    rank, top   use ranks in place of the scores, see `Ranked`
    normalise   how the scores are scaled
    rho         weight of the client's model in the merged model that is scored
    marginal    use only the gain over the global model's score; without any gain the model is kept

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


def discounted() -> Recipe:
    """FedAvg in which clients that go against the server's rows lose weight: rows * min(1, a_k / median a) [ours].

    a_k is the cosine of the client's first updates and the server's own (`Agreement`). Among honest clients it costs
    nothing that can be measured; with poisoned labels it gains what they cost (benchmarks/weighbench).

    >>> discounted().priority
    ('DS', 'Agreement')
    """
    return Recipe((DS, Agreement()), Product(), "max")


def robust(*criteria: Criterion | str, server_rows: bool = False) -> Recipe:
    """Our defence: attackers get weight 0, what is left of an attack is bounded, and honest minorities count.

    All clients are asked first, and the last answers of the last 6 rounds count, so that a minority of attackers is
    not the majority of a round by chance. Reported sizes are limited, a client gets at most 2 times the equal share,
    and updates are clipped to 2 median norms. In addition:

    - without server rows, `SimilarityFilter` excludes clients whose updates are copies, have outlying norms, or form a
      block apart, `Turned` clients whose answers turn against their own earlier ones, and no coordinate of the
      aggregate moves further than in the median update (`CoordinateCap`);
    - with server rows, a client is excluded whose update does not go along with the server's own (`Alignment`), or
      without which the loss on the server's rows is lower (`Harmless`), and no coordinate moves further than in the
      server's own updates.

    Measured against attacks: docs/results/attacks.md.

    criteria      further criteria, which multiply the score
    server_rows   use rows of the server (`task.server`); in a configuration this is the recipe `robust_server`

    >>> robust().priority, robust(server_rows=True).priority
    (('DS', 'SimilarityFilter', 'Turned'), ('DS', 'Alignment', 'Harmless'))
    """
    tests = (Alignment(gate=True), Harmless()) if server_rows else (SimilarityFilter(), Turned())
    bounded = CoordinateCap(by="server") if server_rows else CoordinateCap()
    return Recipe(
        criteria=(DS, *tests, *_by_name(criteria)),
        score=Product(),
        normalise="max",
        when_zero="keep",
        stages=(Claims(), Clip(times=2.0)),
        limits=(Cap(),),
        server=Server(bounded),
        memory=LastAnswers(),
    )


def private(recipe: Recipe, aggregator: PrivateSum) -> Recipe:
    """Add differential privacy to a recipe: the aggregate becomes a noisy sum.

    A cap of the recipe becomes the aggregator's `max_weight`, because in the noisy sum no client's weight may depend on
    the remaining clients. A score of 0 adds nothing to the sum.

    >>> from fedmerit.core.server.private_sum import PrivateSum
    >>> from fedmerit.core.weights.weigh import scale
    >>> recipe = prioritized("DS", normalise=scale({"DS": 500}))
    >>> private(recipe, PrivateSum(1.1, fraction=0.1)).when_zero
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


def masked(recipe: Recipe) -> Recipe:
    """Bound the weights of a recipe for masked sums: a sum hides a client only if others have a part in it.

    A recipe without limits gets the cap of our own recipes.

    >>> masked(fedavg()).limits
    (Cap(times=2.0),)
    """
    return recipe if recipe.limits else replace(recipe, limits=(Cap(),))


def privacy_of(recipe: Recipe) -> PrivateSum | None:
    """The noisy sum of a private recipe; None where the recipe has no privacy."""
    aggregator = recipe.server.aggregator
    return aggregator if isinstance(aggregator, PrivateSum) else None


def shares_of(gamma: Sequence[float], number: int) -> tuple[float, ...]:
    """gamma_j / sum of gamma; equal shares where gamma is empty."""
    values = np.array(gamma or [1.0] * number, dtype=np.float64)
    if len(values) != number:
        raise ConfigError(f"gamma needs one weight for each of {number} objectives (got {len(values)})")
    if not (np.isfinite(values).all() and (values >= 0).all() and values.any()):
        raise ConfigError(f"gamma must be 0 or more, and not all 0 (got {list(gamma)})")
    return tuple((values / values.sum()).tolist())


def qffl(q: float = 1.0, lr: float | None = None) -> Recipe:
    """q-FedAvg: clients with a higher loss get more weight, and the server takes the paper's step [q-FFL, Alg. 2].

    q    power of the loss; 0: equal weights, larger: more uniform accuracies
    lr   the clients' learning rate, 1 / L in the paper; None: that of the run

    Clients are selected uniformly, where the paper selects them by their number of rows.

    >>> qffl(q=2).client_facts
    ('samples', 'loss')
    """
    return Recipe((LossPower(q, lr=lr),), normalise="max", when_zero="uniform")


def agnostic(eta: float = 0.1) -> Recipe:
    """Agnostic federated learning: weights follow the losses by projected gradient ascent [AFL].

    eta   step of the ascent

    >>> agnostic(eta=0.5).priority
    ('Agnostic',)
    """
    return Recipe(criteria=(Agnostic(eta),), normalise="max", when_zero="uniform")


RECIPES: Mapping[str, tuple[Callable[[], Recipe], str]] = {
    "fedavg": (fedavg, "weights by dataset size: the baseline of all four papers"),
    "last_answers": (last_answers, "FedAvg over each client's last answer of the last 6 rounds, after MIFA"),
    "prioritized": (lambda: prioritized(DS), "PMCFL: criteria in order of priority, with any score"),
    "device_aware": (
        lambda: device_aware(DS),
        "DAFL: the clients' accuracy chooses the order of the criteria in each round",
    ),
    "adaptive": (adaptive, "the clients' losses choose the length of the server's step in each round, without tuning"),
    "m2f": (m2f, "M2F: personal models, groups of similar clients, rewards in proportion to quality"),
    "fedval": (
        lambda: fedval("accuracy"),
        "FedVal: weights by objectives that the server measures on its own rows",
    ),
    "discounted": (
        discounted,
        "ours: FedAvg with less weight for clients whose first updates oppose the server's rows",
    ),
    "robust": (robust, "our defence: attackers get weight 0, each client and coordinate is bounded, answers are kept"),
    "robust_server": (lambda: robust(server_rows=True), "our defence with rows of the server, which test the clients"),
    "qffl": (qffl, "baseline q-FedAvg: more weight for clients with a higher loss, and its own server step"),
    "agnostic": (agnostic, "baseline AFL: the weights of clients with a high loss rise round by round"),
    "cosine_rewards": (cosine_rewards, "after CGSV: rewards by reputation, the cosine between updates and their mean"),
    "standalone": (standalone, "baseline: each client trains separately"),
    "pooled": (pooled, "baseline: all rows in one place; only in a simulation"),
    "finetuned": (finetuned, "baseline: FedAvg up to a round, then each client fine-tunes the model separately"),
    "fedamp": (fedamp, "baseline FedAMP: personal models near a mixture of similar ones; not on Flower"),
    "ifca": (ifca, "baseline IFCA: several models; each client trains the one with the lowest loss on its rows"),
    "ditto": (ditto, "baseline Ditto: FedAvg, and personal models pulled towards the shared one; not on Flower"),
}
"""Named recipes, each with a line for lists; `recipe.name` chooses one, and other keys replace its fields."""


def recipe_name(recipe: Recipe) -> str | None:
    """Return the name of a recipe, whatever its criteria; None for a user-defined one.

    >>> recipe_name(fedavg()), recipe_name(prioritized("LD", "DS")), recipe_name(prioritized("LD", when_zero="keep"))
    ('fedavg', 'prioritized', None)
    """
    named = {name: make() for name, (make, _) in RECIPES.items()}
    alike = (name for name, one in named.items() if name != "fedavg" and _except_criteria(one, recipe))
    return next((name for name, one in named.items() if one == recipe), None) or next(alike, None)


def _except_criteria(one: Recipe, other: Recipe) -> bool:
    """Whether two recipes have the same parts, except for their criteria."""
    return all(getattr(one, part.name) == getattr(other, part.name) for part in fields(Recipe)[1:])


SETTINGS_NOT_RECIPES: Mapping[str, str] = {
    "FedProx": "`train.prox = 0.01` with any recipe",
    "SCAFFOLD": '`train.algorithm = "scaffold"` with any recipe that trains one model',
    "FedDyn": '`train.algorithm = "feddyn"` with any recipe that trains one model',
    "FedSGD": '`train.epochs = 1` and `train.batch = "full"` with any recipe',
    "FedAvgM": '`recipe.server.optimizer = "momentum"` with any recipe that trains one model',
    "FedAdam": '`recipe.server.optimizer = "adam"` with any recipe that trains one model',
    "FedYogi": '`recipe.server.optimizer = "yogi"` with any recipe that trains one model',
    "FedExP": '`recipe.server.optimizer = "fedexp"` with any recipe that trains one model',
    "Krum": '`recipe.server.aggregator = {name = "multi-krum", average = 1}` with any recipe that trains one model',
    "multi-Krum": '`recipe.server.aggregator = "multi-krum"` with any recipe that trains one model',
    "median": '`recipe.server.aggregator = "median"` with any recipe that trains one model',
    "trimmed mean": '`recipe.server.aggregator = "trimmed-mean"` with any recipe that trains one model',
    "RFA": '`recipe.server.aggregator = "geometric-median"` with any recipe that trains one model',
    "DP-FedAvg": "a section `[privacy]` with any recipe",
}
"""Algorithms that are a setting and not a recipe, each with the setting, for lists and error messages."""


def find_setting(name: str) -> str | None:
    """Say what to set for an algorithm that is not a recipe; None for other names.

    >>> find_setting("fedprox")
    'FedProx is `train.prox = 0.01` with any recipe.'
    """
    known = {_letters(algorithm): f"{algorithm} is {setting}." for algorithm, setting in SETTINGS_NOT_RECIPES.items()}
    return known.get(_letters(name))


def _letters(name: str) -> str:
    return "".join(filter(str.isalnum, name.lower()))
