"""The recipe: an algorithm as one frozen value, made of parts. Named recipes are in `recipes`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal, TypeAlias, get_args

from fedmerit.core.collect.memory import Forget, Memory
from fedmerit.core.criteria.criterion import Criterion
from fedmerit.core.facts import SAMPLES, find_fact
from fedmerit.core.models.shared import Models, OneModel
from fedmerit.core.parts import Words, check_words, declared, unique
from fedmerit.core.search.search import Fixed, Search, Weighting
from fedmerit.core.server.server import Server
from fedmerit.core.showing import settings_html, short_repr
from fedmerit.core.stages.claims import CLIENT_FACTS
from fedmerit.core.stages.stages import Stage, stages_of
from fedmerit.core.weights.limits import Limit
from fedmerit.core.weights.scores import Prioritized, Score
from fedmerit.core.weights.weigh import NORMALISATIONS, Normalise, Scale, gives_of, normalise_name
from fedmerit.errors import ConfigError, UnknownName

WhenZero: TypeAlias = Literal["samples", "uniform", "keep"]
PRIORITIZED, FIXED, ONE_MODEL, PLAIN_SERVER, FORGET = Prioritized(), Fixed(), OneModel(), Server(), Forget()


@dataclass(frozen=True)
class Recipe:
    """An algorithm as one value: it computes weights, models and rewards from facts and updates.

    criteria    columns of the table, most important first
    score       row of the table -> number
    normalise   scale of the columns: `max`, `sum` (the papers), `minmax`, `none`, or `scale({"DS": 500})`
    when_zero   weights where every score is 0: by `samples`, `uniform`, or `keep` the model
    stages      what the server also measures or bounds: `Claims`, `Clip`, a contribution that is only recorded
    models      the models: `OneModel`, `LocalModel` (Ditto), `ClusterModels` (IFCA), `PersonalModels` (M2F)
    limits      bounds on the weights of clients: `Cap`
    search      how a round chooses its weighting and step: `Fixed`, `Backtracking` (DAFL), `StepSearch`
    server      aggregator and optimizer: from weighted updates to the next model
    memory      which earlier answers count in a round: none (`Forget`), or each client's last one (`LastAnswers`)

    >>> from fedmerit import CB, DS, Recipe
    >>> Recipe(criteria=(CB, DS)).required_facts
    ('samples', 'balance')
    """

    criteria: tuple[Criterion, ...]
    score: Score = PRIORITIZED
    normalise: Normalise = "max"
    when_zero: WhenZero = "samples"
    stages: tuple[Stage, ...] = ()
    models: Models = ONE_MODEL
    limits: tuple[Limit, ...] = ()
    search: Search = FIXED
    server: Server = PLAIN_SERVER
    memory: Memory = FORGET
    __repr__, _repr_html_ = short_repr, settings_html

    def __post_init__(self) -> None:
        if not self.criteria:
            raise ConfigError('a recipe needs at least one criterion (got none); for example prioritized("LD", "DS")')
        if len(set(self.priority)) < len(self.criteria):
            raise ConfigError(f"each criterion may appear once (got {', '.join(self.priority)})")
        if not isinstance(self.normalise, Scale) and self.normalise not in NORMALISATIONS:
            raise UnknownName("value of normalise", str(self.normalise), [*NORMALISATIONS, "scale({...})"])
        if self.when_zero not in get_args(WhenZero):
            raise UnknownName("value of when_zero", str(self.when_zero), get_args(WhenZero))
        counts = [criterion.name for criterion in self.criteria if not criterion.degree]
        if self.normalise == "none" and counts:
            raise ConfigError(
                f'normalise = "none" needs criteria with values in 0..1 (got {", ".join(counts)}); use "max"'
            )
        if isinstance(self.normalise, Scale):
            self.normalise.check(self.priority, counts)
        check_words(self.parts, only=lambda word: word in RECIPE_WORDS)
        # What follows from the parts is computed now: a search that cannot list its weightings says so.
        _ = self.weightings, self.required_facts, self.client_facts, self.remembers, self.measuring, self.bounding

    @cached_property
    def parts(self) -> tuple[Any, ...]:
        """All parts, including the stages that other parts need; `check_words` reads them."""
        server, models = self.server, self.models
        inner = [getattr(models, name) for name in ("grouping", "reward") if hasattr(models, name)]
        chain = (server.aggregator, server.optimizer, *server.controls, self.memory)
        names = set(self.priority)
        brought = [one for one in self.all_stages if one.name not in names]
        words = _Normalising(f'normalise "{normalise_name(self.normalise)}"', gives_of(self.normalise))
        return (*self.criteria, self.score, words, *brought, models, *inner, *self.limits, self.search, *chain)

    @property
    def reading(self) -> tuple[Any, ...]:
        """The parts that may read single updates: all but the score, the normalisation and the limits."""
        blind = (self.score, *self.limits)
        return tuple(one for one in self.parts if not isinstance(one, _Normalising) and one not in blind)

    @cached_property
    def all_stages(self) -> tuple[Stage, ...]:
        """The stages of the recipe and of its parts, each once, in the order in which a phase runs them."""
        roots = (*self.stages, *self.criteria, *self.limits, self.models, self.search)
        return tuple({one.name: one for one in stages_of(roots)}.values())

    @cached_property
    def measuring(self) -> tuple[Stage, ...]:
        """The stages that bound claims, then those that measure; clients without a value are dropped after them."""
        return tuple(stage for phase in ("claims", "measure") for stage in self.all_stages if stage.phase == phase)

    @cached_property
    def bounding(self) -> tuple[Stage, ...]:
        """The stages that bound updates, which run last."""
        return tuple(stage for stage in self.all_stages if stage.phase == "bound")

    @cached_property
    def weighting(self) -> Weighting:
        """The weighting that is used unless the search finds a better one."""
        return Weighting(self.priority, self.score, self.normalise)

    @cached_property
    def weightings(self) -> dict[str, Weighting]:
        """All weightings that the search may choose, by label; the recipe's own first."""
        return {weighting.label: weighting for weighting in self.search.weightings(self.weighting)}

    @cached_property
    def priority(self) -> tuple[str, ...]:
        """The criteria's names, most important first."""
        return tuple(criterion.name for criterion in self.criteria)

    @cached_property
    def required_facts(self) -> tuple[str, ...]:
        """The facts that the parts read; always `samples`, because clients without rows are dropped."""
        asking = (*self.criteria, *self.limits, *self.all_stages)
        return unique([SAMPLES, *(fact for one in asking for fact in declared(one, "required_facts"))])

    @cached_property
    def client_facts(self) -> tuple[str, ...]:
        """The required facts that clients report."""
        return tuple(name for name in self.required_facts if find_fact(name).source == "client")

    @cached_property
    def remembers(self) -> tuple[str, ...]:
        """The facts that the history keeps for each client, and PAIRS."""
        return unique(self._remembered())

    def _remembered(self) -> Iterator[str]:
        for one in (*self.all_stages, self.models):
            for name in declared(one, "remembers"):
                yield from self.client_facts if name == CLIENT_FACTS else (name,)


@dataclass(frozen=True, slots=True)
class _Normalising:
    """`normalise` as one of the parts."""

    name: str
    gives: Words
    why: ClassVar[Mapping[str, str]] = {
        "accounted": "it divides by values of other clients; set "
        'recipe.normalise = {name = "scale", bounds = {DS = 500}}'
    }


RECIPE_WORDS: Words = frozenset(
    {"shared model", "server model", "shared test", "weighted mean", "whole updates", "plain step", "fixed weighting"}
    | {"accounted"}
)
"""Words that only parts of a recipe give; the remaining words are checked when the host is known."""
