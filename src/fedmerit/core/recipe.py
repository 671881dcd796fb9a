"""The recipe: an algorithm as one frozen value that names its parts; `recipes` has those with names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal, TypeAlias, get_args

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
from fedmerit.core.weights.weigh import Normalise, Scale, gives_of, normalise_name
from fedmerit.errors import ConfigError, UnknownName

WhenZero: TypeAlias = Literal["samples", "uniform", "keep"]
PRIORITIZED, FIXED, ONE_MODEL, PLAIN_SERVER = Prioritized(), Fixed(), OneModel(), Server()


@dataclass(frozen=True)
class Recipe:
    """An algorithm as one value: how facts and updates become weights, models and rewards.

    criteria    the columns of the table, most important first
    score       table row -> number
    normalise   how columns come to one scale: `sum` (the papers), `max`, `minmax`, `none`, or `scale({"DS": 500})`
    when_zero   where every score is 0: weigh by `samples`, `uniform`ly, or `keep` the model
    stages      what the server measures or bounds in addition to what criteria bring: `Claims`, `Clip`, a contribution
                that is only recorded
    models      which models exist: `OneModel`, `LocalModel` (Ditto), `ClusterModels` (IFCA), `PersonalModels` (M2F)
    limits      the most that clients or sites may hold: `Cap`, `SiteCap`
    search      how the weighting and step of a round are chosen: `Fixed`, `Backtracking` (DAFL), `StepSearch`
    server      from weighted updates to the next model: aggregator, optimizer

    >>> from fedmerit import CB, DS, Recipe
    >>> Recipe(criteria=(CB, DS), normalise="max").required_facts
    ('samples', 'balance')
    """

    criteria: tuple[Criterion, ...]
    score: Score = PRIORITIZED
    normalise: Normalise = "sum"
    when_zero: WhenZero = "samples"
    stages: tuple[Stage, ...] = ()
    models: Models = ONE_MODEL
    limits: tuple[Limit, ...] = ()
    search: Search = FIXED
    server: Server = PLAIN_SERVER
    __repr__, _repr_html_ = short_repr, settings_html

    def __post_init__(self) -> None:
        if not self.criteria:
            raise ConfigError("a recipe has at least one criterion")
        if len(set(self.priority)) < len(self.criteria):
            raise ConfigError(f"a recipe names each criterion once; got {', '.join(self.priority)}")
        if self.when_zero not in get_args(WhenZero):
            raise UnknownName("value of when_zero", str(self.when_zero), get_args(WhenZero))
        counts = [criterion.name for criterion in self.criteria if not criterion.degree]
        if self.normalise == "none" and counts:
            raise ConfigError(
                f'normalise "none" needs criteria in 0..1; {", ".join(counts)} are not; use "max" or "sum"'
            )
        if isinstance(self.normalise, Scale):
            self.normalise.check(self.priority, counts)
        check_words(self.parts, only=lambda word: word in RECIPE_WORDS)
        # What follows from the parts is computed now: a search that cannot list its weightings says so.
        _ = self.weightings, self.required_facts, self.client_facts, self.remembers, self.measuring, self.bounding

    @cached_property
    def parts(self) -> tuple[Any, ...]:
        """All parts, for `check_words`; those that others bring included."""
        server, models = self.server, self.models
        inner = [getattr(models, name) for name in ("grouping", "reward") if hasattr(models, name)]
        chain = (server.aggregator, server.optimizer, *server.controls)
        names = set(self.priority)
        brought = [one for one in self.all_stages if one.name not in names]
        words = _Normalising(f'normalise "{normalise_name(self.normalise)}"', gives_of(self.normalise))
        return (*self.criteria, self.score, words, *brought, models, *inner, *self.limits, self.search, *chain)

    @cached_property
    def all_stages(self) -> tuple[Stage, ...]:
        """Its stages and those that its parts bring, each once, in the order in which they run within a phase."""
        roots = (*self.stages, *self.criteria, *self.limits, self.models, self.search)
        return tuple({one.name: one for one in stages_of(roots)}.values())

    @cached_property
    def measuring(self) -> tuple[Stage, ...]:
        """The stages that run before clients without a number are dropped: claims first, then what is measured."""
        return tuple(stage for phase in ("claims", "measure") for stage in self.all_stages if stage.phase == phase)

    @cached_property
    def bounding(self) -> tuple[Stage, ...]:
        """The stages that bound updates after that."""
        return tuple(stage for stage in self.all_stages if stage.phase == "bound")

    @cached_property
    def weighting(self) -> Weighting:
        """The weighting that the recipe uses where its search finds no better one."""
        return Weighting(self.priority, self.score, self.normalise)

    @cached_property
    def weightings(self) -> dict[str, Weighting]:
        """All the weightings its search may take, by label; its own first."""
        return {weighting.label: weighting for weighting in self.search.weightings(self.weighting)}

    @cached_property
    def priority(self) -> tuple[str, ...]:
        """The criteria's names, most important first."""
        return tuple(criterion.name for criterion in self.criteria)

    @cached_property
    def required_facts(self) -> tuple[str, ...]:
        """The facts its parts read; samples always, since clients without rows are dropped."""
        asking = (*self.criteria, *self.limits, *self.all_stages)
        return unique([SAMPLES, *(fact for one in asking for fact in declared(one, "required_facts"))])

    @cached_property
    def client_facts(self) -> tuple[str, ...]:
        """Those of them that clients are asked for."""
        return tuple(name for name in self.required_facts if find_fact(name).source == "client")

    @cached_property
    def remembers(self) -> tuple[str, ...]:
        """The facts that the history keeps of each client, and PAIRS."""
        return unique(self._remembered())

    def _remembered(self) -> Iterator[str]:
        for one in (*self.all_stages, self.models):
            for name in declared(one, "remembers"):
                yield from self.client_facts if name == CLIENT_FACTS else (name,)


@dataclass(frozen=True, slots=True)
class _Normalising:
    """Stands for `normalise` among the parts."""

    name: str
    gives: Words
    why: ClassVar[Mapping[str, str]] = {
        "accounted": "it divides by what other clients have; set "
        'recipe.normalise = {name = "scale", bounds = {DS = 500}}'
    }


RECIPE_WORDS: Words = frozenset(
    {"shared model", "server model", "shared test", "weighted mean", "whole updates", "plain step", "fixed weighting"}
    | {"accounted"}
)
"""Words that only parts of a recipe give; the others are checked when its host is known."""
