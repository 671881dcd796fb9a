"""Weights: raw criteria -> normalised table -> scores -> shares that sum to 1, and what happens when all is zero."""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from fedmerit.core.parts import ACCOUNTED, Doc, Words, part
from fedmerit.core.showing import html_table
from fedmerit.core.types import ClientId, Matrix, Note, NoteKind, Vector
from fedmerit.core.weights.scores import Score
from fedmerit.errors import ConfigError, TableError, UnknownName


@part("normalise", "scale")
class Scale:
    """min(value / bound, 1) with public bounds: no client's value touches another's, and rounds can be compared.

    >>> Scale((("DS", 500.0),)).bounds_of(("CB", "DS"))
    (1.0, 500.0)
    """

    bounds: Annotated[
        tuple[tuple[str, float], ...],
        Doc("the largest value of a criterion that counts, `{DS = 500}`; criteria in 0..1 need none"),
    ]
    gives = ACCOUNTED

    def __post_init__(self) -> None:
        for name, bound in self.bounds:
            if not 0 < bound < np.inf:
                raise ConfigError(f"the scale of {name} must be a number above 0 (got {bound})")

    def bounds_of(self, priority: Sequence[str]) -> tuple[float, ...]:
        """The bounds of these criteria, in their order; 1 for those without one."""
        known = dict(self.bounds)
        return tuple(known.get(name, 1.0) for name in priority)

    def check(self, criteria: Sequence[str], counts: Iterable[str]) -> None:
        """Refuse bounds of criteria that are not there, and criteria without a bound that do not lie in 0..1."""
        known = dict(self.bounds)
        for name in known:
            if name not in criteria:
                raise ConfigError(f"a scale is of a criterion of the recipe, {', '.join(criteria)} (got {name})")
        unscaled = [name for name in counts if name not in known]
        if unscaled:
            raise ConfigError(
                f"normalise = scale needs a bound of {', '.join(unscaled)}; set "
                f'recipe.normalise = {{name = "scale", bounds = {{{unscaled[0]} = 500}}}}'
            )


NormaliseName: TypeAlias = Literal["sum", "max", "minmax", "none"]
NORMALISATIONS: tuple[str, ...] = get_args(NormaliseName)
Normalise: TypeAlias = NormaliseName | Scale
"""How columns come to one scale: `sum` (the papers), `max`, `minmax`, `none`, or by public bounds."""


def scale(bounds: Mapping[str, float]) -> Scale:
    """Divide by public bounds: `normalise=scale({"DS": 500})`.

    >>> scale({"DS": 500}).bounds
    (('DS', 500.0),)
    """
    return Scale(tuple((name, float(bound)) for name, bound in bounds.items()))


def normalise_name(normalise: Normalise) -> str:
    """What tables and ledgers call it."""
    return "scale" if isinstance(normalise, Scale) else normalise


def gives_of(normalise: Normalise) -> Words:
    """`sum`, `max` and `minmax` divide by what other clients have, so that one client changes everybody's weight."""
    return ACCOUNTED if isinstance(normalise, Scale) or normalise == "none" else frozenset()


def normalised(raw: Matrix, how: Normalise, names: Sequence[str] = ()) -> Matrix:
    """Each column on one scale: divided by its sum (the papers), by its maximum, by a public bound, or as it is.

    A column of zeros carries no information: every client gets the same, 1/n by sum and 1 by max. By `minmax` the worst
    has 0 and the best 1; where all are alike, all have 1.

    >>> normalised(np.array([[100.0], [900.0]]), scale({"DS": 500}), ["DS"]).tolist()
    [[0.2], [1.0]]
    """
    if isinstance(how, Scale):
        return np.asarray(np.minimum(raw / np.asarray(how.bounds_of(names), np.float64), 1.0))
    if how == "none":
        return raw.copy()
    if how == "minmax":
        low, span = raw.min(axis=0), np.ptp(raw, axis=0)
        return np.asarray(np.where(span > 0, (raw - low) / np.where(span > 0, span, 1.0), 1.0))
    top = raw.max(axis=0)
    scaled = np.where(top > 0, raw / np.where(top > 0, top, 1.0), 1.0)  # first by max: a sum could overflow
    return scaled if how == "max" else scaled / scaled.sum(axis=0)


VISIBLE = 0.01
"""Total variation below which a criterion or a priority is said to do nothing."""
SHOWN = 8
"""Weights that a terminal shows; a notebook shows all."""


@dataclass(frozen=True, slots=True)
class Weights:
    """How each client of a round earned its share; rows in client order, columns in priority order.

    uncapped    the weights before the recipe's limits, where it has such
    bounds      the most that each client may hold, as far as limits have said so
    """

    raw: Matrix
    table: Matrix
    scores: Vector
    weights: Vector
    notes: tuple[Note, ...] = ()
    uncapped: Vector | None = None
    bounds: Vector | None = None

    def __repr__(self) -> str:
        first = ", ".join(f"{weight:.2%}" for weight in self.weights[:SHOWN])
        more = ", ..." if len(self.weights) > SHOWN else ""
        return f"<Weights of {len(self.weights)} clients: {first}{more}>"

    def take(self, places: Sequence[int] | NDArray[np.intp]) -> Weights:
        """Of these clients only, in this order; the notes stay those of all."""
        uncapped, bounds = (None if one is None else one[places] for one in (self.uncapped, self.bounds))
        raw, table = self.raw[places], self.table[places]
        return Weights(raw, table, self.scores[places], self.weights[places], self.notes, uncapped, bounds)

    def _repr_html_(self) -> str:
        """For notebooks: a line per client in order, and the notes below."""
        header = ("client", *(f"criterion {place + 1}" for place in range(self.raw.shape[1])), "score", "weight")
        rows = [
            (str(client), *(f"{value:.4g}" for value in values), f"{score:.4g}", f"{weight:.2%}")
            for client, (values, score, weight) in enumerate(zip(self.raw, self.scores, self.weights, strict=True))
        ]
        notes = "".join(f"<p>{html.escape(note.text)}</p>" for note in self.notes)
        return html_table(f"Weights of {len(rows)} clients", header, rows) + notes


@dataclass(frozen=True, slots=True)
class ClientWeight:
    """How one client came to its weight in one round; `uncapped` is what it was before the cap, where there is one.

    `terms` are the steps of a score of the user's own, as it told them.
    """

    id: ClientId
    facts: Mapping[str, float]
    criteria: Mapping[str, float]
    normalised: Mapping[str, float]
    score: float
    weight: float
    group: int = 0
    uncapped: float | None = None
    terms: str | None = None

    @property
    def earned(self) -> float:
        """The weight before any cap."""
        return self.weight if self.uncapped is None else self.uncapped


def by_client(
    result: Weights,
    priority: Sequence[str],
    ids: Sequence[ClientId],
    facts: Mapping[str, Vector],
    groups: NDArray[np.intp] | None = None,
) -> list[ClientWeight]:
    """The weights of a round, told client by client."""
    uncapped = [None] * len(ids) if result.uncapped is None else result.uncapped.tolist()
    columns = zip(
        ids,
        _by_name(facts, len(ids)),
        result.raw.tolist(),
        result.table.tolist(),
        result.scores.tolist(),
        result.weights.tolist(),
        [0] * len(ids) if groups is None else groups.tolist(),
        uncapped,
        strict=True,
    )
    return [
        ClientWeight(client, own, dict(zip(priority, raw, strict=True)), dict(zip(priority, row, strict=True)), *rest)
        for client, own, raw, row, *rest in columns
    ]


def _by_name(columns: Mapping[str, Vector], rows: int) -> list[dict[str, float]]:
    """A dictionary per row of columns that have names."""
    values = [np.asarray(column, dtype=np.float64).tolist() for column in columns.values()]
    return [dict(zip(columns, row, strict=True)) for row in zip(*values, strict=True)] if values else [{}] * rows


def weigh(
    raw: Matrix,
    names: Sequence[str],
    score: Score,
    normalise: Normalise = "sum",
    fallback: Vector | None = None,
) -> Weights:
    """w_a = s_a / sum_b s_b with s the score of the normalised row [PMCFL, eq. 5].

    >>> from fedmerit.core.weights.scores import Prioritized
    >>> weigh(np.array([[30.0], [10.0]]), ["DS"], Prioritized()).weights.tolist()
    [0.75, 0.25]

    Where every score is 0 the weights follow `fallback` (by rule the number of samples); an all-zero fallback gives
    all-zero weights: the model is kept as it is.
    """
    check_table(raw, names, normalise)
    table = normalised(raw, normalise, names)
    scores = np.asarray(score(table), dtype=np.float64)
    if scores.shape != (len(raw),) or not (np.isfinite(scores).all() and (scores >= 0).all()):
        raise TableError(f"a score gives one finite number >= 0 per client; {score!r} gave {scores!r:.200}")
    weights = shares(scores if scores.any() else np.ones(len(raw)) if fallback is None else fallback)
    ordered = not np.allclose(score(table[:, ::-1]), scores, rtol=1e-12, atol=0)  # a product has no order, for one
    notes = [*_notes(raw, names, normalise, table, scores, weights, ordered), *_above_scale(raw, names, normalise)]
    return Weights(raw, table, scores, weights, tuple(notes))


def concat_groups(parts: Sequence[Weights], members: Sequence[NDArray[np.intp]]) -> Weights:
    """The weights of several groups as one value, rows in client order; a note says of which group it speaks."""
    order = np.argsort(np.concatenate(list(members)))
    notes = [
        replace(note, text=f"group {number} of {len(parts)}: {note.text}")
        for number, part in enumerate(parts, start=1)
        for note in part.notes
    ]
    raw = np.concatenate([part.raw for part in parts])[order]
    table = np.concatenate([part.table for part in parts])[order]
    scores = np.concatenate([part.scores for part in parts])[order]
    weights = np.concatenate([part.weights for part in parts])[order]
    before = [part.uncapped for part in parts if part.uncapped is not None]
    uncapped = np.concatenate(before)[order] if before else None
    return Weights(raw, table, scores, weights, tuple(notes), uncapped)  # bounds are of a group


def shares(values: Vector) -> Vector:
    """values / sum of values; all zero where the values are."""
    top = values.max()
    if top <= 0:
        return np.zeros(len(values))
    scaled = values / top
    return np.asarray(scaled / scaled.sum())


def total_variation(one: Vector, other: Vector) -> float:
    """Half the absolute difference of two weightings: the share of weight that changes hands."""
    return float(np.abs(one - other).sum() / 2)


def check_table(raw: Matrix, names: Sequence[str], normalise: Normalise) -> None:
    """Raw criteria are finite and not negative, and degrees in 0..1 where nothing normalises them."""
    if not isinstance(normalise, Scale) and normalise not in NORMALISATIONS:
        raise UnknownName("way to normalise", str(normalise), (*NORMALISATIONS, "scale"))
    if raw.ndim != 2 or raw.shape[1] != len(names) or not raw.size:
        raise TableError(f"a table has one row per client and a column for each of {list(names)}; got {raw.shape}")
    for name, column in zip(names, raw.T, strict=True):
        bad = np.flatnonzero(~np.isfinite(column) | (column < 0))
        if len(bad):
            raise TableError(f"criterion {name}: values are finite and >= 0; row {bad[0]} has {column[bad[0]]}")
        if normalise == "none" and column.max() > 1:
            raise TableError(
                f"criterion {name}: without normalising, values are degrees in 0..1; row {column.argmax()} has "
                f'{column.max():g}; use normalise "max" or "sum"'
            )


def _notes(
    raw: Matrix,
    names: Sequence[str],
    normalise: Normalise,
    table: Matrix,
    scores: Vector,
    weights: Vector,
    ordered: bool,
) -> list[Note]:
    """What to know of the weights; `ordered` is whether the score goes by the order of the columns."""
    notes = []
    if not scores.any():
        kind: NoteKind = "zero-scores" if weights.any() else "zero-weights"
        notes.append(
            Note(kind, "all", f"every score is 0; {'fallback weights used' if weights.any() else 'model kept'}")
        )
    elif (weights == 0).any():
        lost = int((weights == 0).sum())
        notes.append(Note("zero-weights", "some", _thrown_away(lost, len(weights))))
    if len(raw) < 2:
        return notes
    notes += [note for name, column in zip(names, raw.T, strict=True) if (note := _separates(name, column))]
    moved = total_variation(weights, shares(table[:, 0]))
    if ordered and scores.any() and moved < VISIBLE:
        advice = '; normalise = "max" makes priorities count' if normalise == "sum" else ""
        text = f"the criteria after {names[0]} move {moved:.2%} of the weight: the priority does nothing here{advice}"
        notes.append(Note("idle-priority", names[0], text))
    return notes


def _above_scale(raw: Matrix, names: Sequence[str], normalise: Normalise) -> list[Note]:
    """How many values were above their bound, and count as the bound."""
    notes = []
    bounds = normalise.bounds_of(names) if isinstance(normalise, Scale) else ()
    for name, column, bound in zip(names, raw.T, bounds, strict=False):
        if above := int((column > bound).sum()):
            text = (
                f"{above} of {len(column)} values of {name} are above its scale {bound:g} and count as {bound:g}; "
                f"the largest is {column.max():g}"
            )
            notes.append(Note("scaled", name, text))
    return notes


def _separates(name: str, column: Vector) -> Note | None:
    if not column.any():
        return Note("empty-criterion", name, f"criterion {name} is 0 for every client of the round: no information")
    spread = total_variation(shares(column), np.full(len(column), 1 / len(column)))
    if spread >= VISIBLE:
        return None
    text = f"criterion {name} does not separate the clients of the round (spread {spread:.2%})"
    return Note("flat-criterion", name, text)


def _thrown_away(lost: int, updates: int) -> str:
    have, are = ("has", "is") if lost == 1 else ("have", "are")
    return f"{lost} of {updates} updates {have} weight 0 and {are} thrown away"
