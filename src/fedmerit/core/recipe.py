"""The recipe: an algorithm as one frozen value that names its parts; `recipes` has those with names."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from fedmerit.core.criteria.consistency import Consistency
from fedmerit.core.criteria.contribution import Contribution
from fedmerit.core.criteria.reputation import Reputation
from fedmerit.core.criteria.similarity import Company
from fedmerit.core.criteria.table import (
    Criterion,
    Validated,
)
from fedmerit.core.facts import ALIGNMENT, LENGTH, RESULTS, SAMPLES, SITE, find_fact
from fedmerit.core.models.attention import ByAttention
from fedmerit.core.models.clusters import Hypotheses
from fedmerit.core.models.grouping import Grouping, OneGroup
from fedmerit.core.models.local import Beside
from fedmerit.core.models.rewards import Acceptance, Nothing, Reward, Whole
from fedmerit.core.search.search import Fixed, Search, Weighting
from fedmerit.core.server.aggregators import Aggregator, Mean
from fedmerit.core.server.optimizers import Extrapolated, Plain, Step
from fedmerit.core.server.private_sum import Privacy, check_private
from fedmerit.core.showing import settings_html, short_repr
from fedmerit.core.stages.claims import Claims
from fedmerit.core.stages.clip import Clip
from fedmerit.core.types import Normalise, Personal
from fedmerit.core.weights.limits import check_caps
from fedmerit.core.weights.scales import Scales, check_scales
from fedmerit.core.weights.scores import Prioritized, Score
from fedmerit.errors import ConfigError

WhenZero = Literal["samples", "uniform", "keep"]
Rho: TypeAlias = float | Literal["1/K"]
PRIORITIZED = Prioritized()
FIXED = Fixed()
ONE_GROUP = OneGroup()
WHOLE = Whole()
NO_REWARD = Nothing()
ACCEPTANCE = Acceptance()
PLAIN_STEP = Plain()
MEAN = Mean()


@dataclass(frozen=True, slots=True)
class Recipe:
    """An algorithm as one value: how facts and updates become weights, and what clients get for them.

    criteria    the columns of the table, most important first
    score       table row -> number
    normalise   how columns come to one scale: `sum` (the papers), `max`, `minmax`, `scale`, `none`
    when_zero   where every score is 0: weigh by `samples`, `uniform`ly, or `keep` the model
    search      how the weighting of a round is chosen
    grouping    who is aggregated together
    personal    None: all train one model. `keep`, `reset`: each client has a personal model and is rewarded with a part
                of its group's aggregate; its own training is kept, or reset before
    reward      what part that is; `acceptance` is the client's test of it
    beside      a personal model that each client keeps beside the shared one and is tested on; None: none
    hypotheses  several models at the server, of which each client takes the one that fits it best; None: one model
    until       the last round with rewards: afterwards clients finish their personal models alone; None: all have
    initial     the share of the clients that make the first model
    rho         a client's part in the merged model that the server scores for `Validated` criteria
    step        how the server moves the model by the aggregate: plainly, with momentum, adaptively
    cap         the most equal shares that one client may hold, in its group where there are several; None: no cap
    cap_group   the share of the weight that all clients of one site may hold together; None: no cap
    claims      how far clients are believed, see `Claims`; None: as told, within the ranges of the facts
    aggregate   how weighted updates become one: their mean, median, trimmed mean ...
    clip        updates longer than this are cut to it before; None: none are
    scales      for `scale`: pairs of a criterion and the public bound that its values are divided by; degrees need none
    privacy     the aggregate as a bounded sum with noise, see `core.privacy`; `cap` is then in expected equal shares
    contributions   what updates add to the model, measured and kept beside the weights; it does not count in them

    >>> from fedmerit import CB, DS, Recipe
    >>> Recipe(criteria=(CB, DS), normalise="max").required_facts
    ('samples', 'balance')
    """

    criteria: tuple[Criterion, ...]
    score: Score = PRIORITIZED
    normalise: Normalise = "sum"
    when_zero: WhenZero = "samples"
    search: Search = FIXED
    grouping: Grouping = ONE_GROUP
    reward: Reward = WHOLE
    personal: Personal | None = None
    acceptance: Acceptance = ACCEPTANCE
    initial: float = 0.0
    rho: Rho = 0.5
    step: Step = PLAIN_STEP
    cap: float | None = None
    cap_group: float | None = None
    claims: Claims | None = None
    aggregate: Aggregator = MEAN
    clip: Clip | None = None
    scales: Scales = ()
    privacy: Privacy | None = None
    contributions: tuple[Contribution, ...] = ()
    until: int | None = None
    beside: Beside | None = None
    hypotheses: Hypotheses | None = None
    __repr__, _repr_html_ = short_repr, settings_html

    def __post_init__(self) -> None:
        if not self.criteria:
            raise ConfigError("a recipe has at least one criterion")
        if len(set(self.priority)) < len(self.criteria):
            raise ConfigError(f"a recipe names each criterion once; got {', '.join(self.priority)}")
        for weighting in self.weightings.values():
            self._check(weighting)
        self._check_personal()
        self._check_hypotheses()
        check_caps(self.cap, self.cap_group)
        if isinstance(self.step, Extrapolated) and self.aggregate != MEAN:
            raise ConfigError(
                "the extrapolated step goes by the spread of the updates, which one client can stretch, and so cannot "
                f"go with {self.aggregate!r}; use another step, or the mean with clip"
            )
        if self.privacy is not None:
            check_private(self)

    def _check_personal(self) -> None:
        if not 0 <= self.initial <= 1:
            raise ConfigError(f"the initial phase takes a share of the clients, 0..1; got {self.initial}")
        if self.rho != "1/K" and not (isinstance(self.rho, float | int) and 0 < self.rho <= 1):
            raise ConfigError(f'rho lies above 0 and up to 1, or is "1/K"; got {self.rho!r}')
        if self.personal and any(one.method != "cosine" for one in self.measured):
            raise ConfigError(
                "contributions are what updates add to one model, and here each client has its own; `cosine` goes"
            )
        if self.personal and self.beside:
            raise ConfigError(
                "a personal model is trained and rewarded itself, or kept beside the shared one: set personal or beside"
            )
        if isinstance(self.grouping, ByAttention) and self.reward != WHOLE and self.until is None:
            raise ConfigError(
                f"with attention each client has an aggregate of its own, and gets all of it; got {self.reward!r}"
            )
        if self.until is not None and (self.personal is None or self.until < 0):
            raise ConfigError(
                f"until is the last round in which clients with personal models are rewarded, 0 or more; "
                f"got until = {self.until}, personal = {self.personal!r}"
            )
        if self.personal and self.validated:
            raise ConfigError("the server scores models merged with the global one, and here each client has its own")
        if self.personal and ALIGNMENT in self.required_facts:
            raise ConfigError("Alignment compares updates of one model, and here each client has a personal one")
        if self.personal and self.step != PLAIN_STEP:
            raise ConfigError(
                "a step moves the one model, and here each client has a personal one; leave out the step, or personal"
            )
        if self.personal and (self.aggregate != MEAN or self.clip):
            raise ConfigError(
                "rewards are parts of the weighted mean of a group's updates: clients with personal models take no "
                f"other aggregate and no clip; got {self.aggregate!r}, {self.clip!r}; leave them out, or personal"
            )
        if self.step != PLAIN_STEP and any(weighting.step for weighting in self.weightings.values()):
            raise ConfigError(
                "the search tries steps of its own, which stand in place of the recipe's; leave out one of the two"
            )
        if self.personal and self.search.asks is not None:
            raise ConfigError("a search tries models on all clients, and here each has its own; use the fixed order")
        if self.personal is None and (self.grouping, self.reward) != (ONE_GROUP, WHOLE):
            raise ConfigError(
                'groups and rewards are for clients with personal models; set personal to "keep" or "reset", '
                "or leave out the groups and the reward"
            )

    def _check_hypotheses(self) -> None:
        parts = {
            "personal models": self.personal,
            "models beside": self.beside,
            "privacy": self.privacy,
            "an initial phase": self.initial,
            "a search": self.search.asks,
            "validated criteria": self.validated,
            "Alignment": ALIGNMENT in self.required_facts,
            "contributions but `cosine`": [one for one in self.measured if one.method != "cosine"],
        }
        wrong = [name for name, part in parts.items() if part]
        if self.hypotheses is not None and wrong:
            raise ConfigError(
                f"hypotheses are several models of which each client takes one, and {' and '.join(wrong)} are of one "
                "model for all; leave out one of the two"
            )

    def _check(self, weighting: Weighting) -> None:
        unknown = [name for name in weighting.priority if name not in self.priority]
        if unknown or not weighting.priority:
            raise ConfigError(
                f"a weighting names criteria of the recipe, {', '.join(self.priority)}; got {list(weighting.priority)}"
            )
        degrees = {criterion.name: criterion.degree for criterion in self.criteria}
        counts = [name for name in weighting.priority if not degrees[name]]
        if weighting.normalise == "none" and counts:
            raise ConfigError(
                f'normalise "none" takes criteria that lie in 0..1 by themselves; {", ".join(counts)} do not; '
                'use "max" or "sum"'
            )
        scaled = [one.normalise == "scale" for one in self.weightings.values()]
        check_scales(self.scales, self.priority, any(scaled), counts if weighting.normalise == "scale" else ())

    def in_round(self, index: int) -> Recipe:
        """The recipe as it stands in a round: after the last one with rewards clients train on alone.

        >>> from fedmerit import m2f
        >>> replace(m2f(personal="reset"), until=5).in_round(6).personal
        'keep'
        """
        if self.until is None or index <= self.until:
            return self
        return replace(self, personal="keep", reward=NO_REWARD)

    @property
    def keeps_models(self) -> bool:
        """Whether clients have personal models, rewarded or beside the shared one; they are tested on these."""
        return self.personal is not None or self.beside is not None

    @property
    def one_model(self) -> bool:
        """Whether all clients share one model and are tested on it."""
        return not self.keeps_models and (self.hypotheses is None or self.hypotheses.count == 1)

    @property
    def weighting(self) -> Weighting:
        """The weighting in which the recipe weighs where its search finds no better one."""
        return Weighting(self.priority, self.score, self.normalise)

    @property
    def weightings(self) -> dict[str, Weighting]:
        """All the weightings its search may take, by label; its own first."""
        own = self.weighting
        return {weighting.label(own): weighting for weighting in self.search.weightings(own)}

    @property
    def priority(self) -> tuple[str, ...]:
        """The criteria's names, most important first."""
        return tuple(criterion.name for criterion in self.criteria)

    @property
    def required_facts(self) -> tuple[str, ...]:
        """The facts its criteria read; samples always, since empty clients are left out; the capped sites."""
        facts = [SAMPLES, *(fact for criterion in self.criteria for fact in criterion.required_facts)]
        facts += [SITE] if self.cap_group is not None else []
        return tuple(dict.fromkeys(facts))

    @property
    def remembered_facts(self) -> tuple[str, ...]:
        """The facts that the history keeps of each client."""
        reputations = tuple(one.name for one in self._inner if isinstance(one, Reputation))
        server = (*((LENGTH,) if self.meets else ()), *((RESULTS,) if self.checks_results else ()))
        return (*(self.client_facts if self.claims else ()), *reputations, *server)

    @property
    def validated(self) -> tuple[Validated, ...]:
        """The criteria that the server measures on its own rows."""
        return tuple(criterion for criterion in self._inner if isinstance(criterion, Validated))

    @property
    def measured(self) -> tuple[Contribution, ...]:
        """The contributions to measure: those that its criteria go by, and those that are kept beside the weights."""
        found = [one for one in self._inner if isinstance(one, Contribution)]
        return tuple({one.name: one for one in (*found, *self.contributions)}.values())

    @property
    def observed(self) -> tuple[Consistency | Reputation | Company, ...]:
        """The criteria whose values are facts of the round, kept with it; each after what it is made of."""
        return tuple(
            criterion for criterion in self._inner if isinstance(criterion, Consistency | Reputation | Company)
        )

    @property
    def meets(self) -> bool:
        """Whether a criterion goes by who met whom: the cosines of all pairs of clients are then kept."""
        return any(isinstance(criterion, Company) for criterion in self._inner)

    @property
    def checks_results(self) -> bool:
        """Whether a criterion holds what clients say of the one model against the server's rows."""
        held = any(isinstance(one, Consistency) and "results" in one.evidence for one in self._inner)
        return held and self.personal is None and self.hypotheses is None

    @property
    def _inner(self) -> tuple[Criterion, ...]:
        """The criteria and those that they are made of, innermost first, each once."""
        return tuple({one.name: one for criterion in self.criteria for one in _layers(criterion)}.values())

    @property
    def client_facts(self) -> tuple[str, ...]:
        """Those of them that clients are asked for."""
        return tuple(name for name in self.required_facts if find_fact(name).source == "client")


def _layers(criterion: Criterion) -> Iterator[Criterion]:
    """The criterion after those that it is made of."""
    if isinstance(criterion, Company):
        yield from _layers(criterion.of)
        yield from _layers(criterion.common)
    if isinstance(criterion, Reputation):
        yield from _layers(criterion.of)
    yield criterion
