"""Weights: raw criteria -> normalised table -> scores -> shares that sum to 1, with a fallback if all scores are 0."""

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
from fedmerit.core.weights.scores import Lexicographic, Score
from fedmerit.errors import ConfigError, TableError, UnknownName


@part("normalise", "scale")
class Scale:
    """Normalise by public bounds, min(value / bound, 1): no client's value affects another's, and rounds compare.

    bounds   pairs of a criterion and the largest value that counts; criteria in 0..1 need none

    >>> Scale((("DS", 500.0),)).bounds_of(("CB", "DS"))
    (1.0, 500.0)
    """

    bounds: Annotated[
        tuple[tuple[str, float], ...],
        Doc("largest value of a criterion that counts, `{DS = 500}`; criteria in 0..1 need none"),
    ]
    gives = ACCOUNTED

    def __post_init__(self) -> None:
        for name, bound in self.bounds:
            if not 0 < bound < np.inf:
                raise ConfigError(f"the scale of {name} must be a number above 0 (got {bound})")

    def bounds_of(self, priority: Sequence[str]) -> tuple[float, ...]:
        """Return the bounds of these criteria, in their order; 1 for those without one."""
        bounds = dict(self.bounds)
        return tuple(bounds.get(name, 1.0) for name in priority)

    def check(self, criteria: Sequence[str], counts: Iterable[str]) -> None:
        """Reject bounds of unknown criteria, and criteria without a bound that may exceed 1."""
        bounds = dict(self.bounds)
        for name in bounds:
            if name not in criteria:
                raise ConfigError(f"scale needs a criterion of the recipe, {', '.join(criteria)} (got {name})")
        unscaled = [name for name in counts if name not in bounds]
        if unscaled:
            raise ConfigError(
                f"normalise = scale needs a bound of {', '.join(unscaled)}; set "
                f'recipe.normalise = {{name = "scale", bounds = {{{unscaled[0]} = 500}}}}'
            )


NormaliseName: TypeAlias = Literal["sum", "max", "minmax", "none"]
NORMALISATIONS: tuple[str, ...] = get_args(NormaliseName)
Normalise: TypeAlias = NormaliseName | Scale
"""How columns are normalised: `sum` (the papers), `max`, `minmax`, `none`, or by public bounds."""


def scale(bounds: Mapping[str, float]) -> Scale:
    """Normalise by public bounds: `normalise=scale({"DS": 500})`.

    bounds   the largest value that counts, by criterion

    >>> scale({"DS": 500}).bounds
    (('DS', 500.0),)
    """
    return Scale(tuple((name, float(bound)) for name, bound in bounds.items()))


def normalise_name(normalise: Normalise) -> str:
    """Name in tables and ledgers."""
    return "scale" if isinstance(normalise, Scale) else normalise


def gives_of(normalise: Normalise) -> Words:
    """Words of a normalisation: `sum`, `max` and `minmax` make every weight depend on all clients' values."""
    return ACCOUNTED if isinstance(normalise, Scale) or normalise == "none" else frozenset()


def normalised(raw: Matrix, how: Normalise, names: Sequence[str] = ()) -> Matrix:
    """Normalise each column: divide by its sum (the papers), its maximum or a public bound, or leave it.

    A column of zeros carries no information: every client gets the same value, 1/n by sum and 1 by max. With `minmax`
    the worst client gets 0 and the best 1; if all are equal, all get 1.

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


EQUAL = "Equal"
"""Name of the criterion that is the same for all clients on purpose."""
VISIBLE = 0.01
"""Total variation below which a note reports that a criterion or a priority has no effect."""
SHOWN = 8
"""Number of weights that a terminal shows; a notebook shows all."""


@dataclass(frozen=True, slots=True)
class Weights:
    """Weights of a round with their derivation; rows in client order, columns in priority order.

    uncapped    the weights before the recipe's limits, if it has any
    """

    raw: Matrix
    table: Matrix
    scores: Vector
    weights: Vector
    notes: tuple[Note, ...] = ()
    uncapped: Vector | None = None

    def __repr__(self) -> str:
        first = ", ".join(f"{weight:.2%}" for weight in self.weights[:SHOWN])
        more = ", ..." if len(self.weights) > SHOWN else ""
        return f"<Weights of {len(self.weights)} clients: {first}{more}>"

    def take(self, places: Sequence[int] | NDArray[np.intp]) -> Weights:
        """Return the weights of these clients only, in this order; the notes stay those of all."""
        uncapped = None if self.uncapped is None else self.uncapped[places]
        raw, table = self.raw[places], self.table[places]
        return Weights(raw, table, self.scores[places], self.weights[places], self.notes, uncapped)

    def _repr_html_(self) -> str:
        """Show a table for notebooks: a row per client in order, and the notes below."""
        header = ("client", *(f"criterion {place + 1}" for place in range(self.raw.shape[1])), "score", "weight")
        rows = [
            (str(client), *(f"{value:.4g}" for value in values), f"{score:.4g}", f"{weight:.2%}")
            for client, (values, score, weight) in enumerate(zip(self.raw, self.scores, self.weights, strict=True))
        ]
        notes = "".join(f"<p>{html.escape(note.text)}</p>" for note in self.notes)
        return html_table(f"Weights of {len(rows)} clients", header, rows) + notes


@dataclass(frozen=True, slots=True)
class ClientWeight:
    """Derivation of one client's weight in one round; `uncapped` is the weight before the cap, if there is one.

    `terms` are the steps of a user-defined score, as it reports them.
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
    """Split the weights of a round by client."""
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
    """Turn named columns into one dictionary per row."""
    values = [np.asarray(column, dtype=np.float64).tolist() for column in columns.values()]
    return [dict(zip(columns, row, strict=True)) for row in zip(*values, strict=True)] if values else [{}] * rows


def weigh(
    raw: Matrix,
    names: Sequence[str],
    score: Score,
    normalise: Normalise = "max",
    fallback: Vector | None = None,
) -> Weights:
    """Compute weights from criteria: w_a = s_a / sum_b s_b, s the score of the normalised row [PMCFL, eq. 5].

    raw         one row per client, one column per criterion, most important first
    names       the names of the criteria, for example ["LD", "DS"]
    score       row -> number, for example `Prioritized()`
    normalise   scale of each column over the clients: `max`, `sum` (the papers), `minmax`, `none`, or `scale({...})`
    fallback    weights where every score is 0, usually the numbers of samples; all 0: no client gets weight

    >>> from fedmerit import Prioritized
    >>> weigh(np.array([[30.0], [10.0]]), ["DS"], Prioritized()).weights.tolist()
    [0.75, 0.25]
    """
    check_table(raw, names, normalise)
    table = normalised(raw, normalise, names)
    scores = np.asarray(score(table), dtype=np.float64)
    if scores.shape != (len(raw),) or not (np.isfinite(scores).all() and (scores >= 0).all()):
        raise TableError(
            f"a score must return one finite number >= 0 per client (got {scores!r:.200} from {score!r}); fix the score"
        )
    weights = shares(scores if scores.any() else np.ones(len(raw)) if fallback is None else fallback)
    # A product has no order, for one; and later criteria of a lexicographic score are meant to break only ties.
    reversed_scores = scores if isinstance(score, Lexicographic) else score(table[:, ::-1])
    ordered = not np.allclose(reversed_scores, scores, rtol=1e-12, atol=0)
    notes = [*_notes(raw, names, normalise, table, scores, weights, ordered), *_above_scale(raw, names, normalise)]
    return Weights(raw, table, scores, weights, tuple(notes))


def concat_groups(parts: Sequence[Weights], members: Sequence[NDArray[np.intp]]) -> Weights:
    """Combine the weights of several groups, rows in client order; each note names its group."""
    order = np.argsort(np.concatenate(list(members)))
    notes = [
        replace(note, text=f"group {number} of {len(parts)}: {note.text}")
        for number, part in enumerate(parts, start=1)
        for note in part.notes
    ]
    rows = [(part.raw, part.table, part.scores, part.weights) for part in parts]
    raw, table, scores, weights = map(np.concatenate, zip(*rows, strict=True))
    before = [part.uncapped for part in parts if part.uncapped is not None]
    uncapped = np.concatenate(before) if before else None  # bounds hold within a group only
    return Weights(raw, table, scores, weights, tuple(notes), uncapped).take(order)


def shares(values: Vector) -> Vector:
    """Divide values by their sum; all zero if the values are."""
    top = values.max()  # divided by the maximum first: the sum of huge values would overflow
    if top <= 0:
        return np.zeros(len(values))
    scaled = values / top
    return np.asarray(scaled / scaled.sum())


def total_variation(one: Vector, other: Vector) -> float:
    """Total variation: half the absolute difference of two weightings, the share of weight that is reassigned."""
    return float(np.abs(one - other).sum() / 2)


def check_table(raw: Matrix, names: Sequence[str], normalise: Normalise) -> None:
    """Require finite values >= 0, and degrees in 0..1 without normalisation."""
    if not isinstance(normalise, Scale) and normalise not in NORMALISATIONS:
        raise UnknownName("normalisation", str(normalise), (*NORMALISATIONS, "scale"))
    if raw.ndim != 2 or raw.shape[1] != len(names) or not raw.size:
        raise TableError(f"a table needs one row per client and one column for each of {list(names)} (got {raw.shape})")
    for name, column in zip(names, raw.T, strict=True):
        bad = np.flatnonzero(~np.isfinite(column) | (column < 0))
        if len(bad):
            raise TableError(f"criterion {name} must be finite and >= 0 (got {column[bad[0]]} in row {bad[0]})")
        if normalise == "none" and column.max() > 1:
            raise TableError(
                f"criterion {name} must be in 0..1 without normalisation (got {column.max():g} in row "
                f'{column.argmax()}); use normalise "max" or "sum"'
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
    """Notes on the weights; `ordered` is whether the score depends on the order of the columns."""
    notes = []
    if not scores.any():
        kind: NoteKind = "zero-scores" if weights.any() else "zero-weights"
        notes.append(
            Note(
                kind, "all", f"every score is 0; {'fallback weights are used' if weights.any() else 'the model stays'}"
            )
        )
    elif (weights == 0).any():
        lost = int((weights == 0).sum())
        notes.append(Note("zero-weights", "some", _thrown_away(lost, len(weights))))
    if len(raw) < 2:
        return notes
    notes += [note for name, column in zip(names, raw.T, strict=True) if (note := _separates(name, column))]
    moved = total_variation(weights, shares(table[:, 0]))
    if ordered and scores.any() and moved < VISIBLE:
        advice = '; set normalise = "max"' if normalise == "sum" else ""
        text = f"the priority has no effect: criteria after {names[0]} change only {moved:.2%} of the weight{advice}"
        notes.append(Note("idle-priority", names[0], text))
    return notes


def _above_scale(raw: Matrix, names: Sequence[str], normalise: Normalise) -> list[Note]:
    """Note on the number of values above their bound, which count as the bound."""
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
        return Note("empty-criterion", name, f"{name} is 0 for all clients of the round, so it has no effect")
    spread = total_variation(shares(column), np.full(len(column), 1 / len(column)))
    if spread >= VISIBLE or name == EQUAL:
        return None
    same = "the same" if not np.ptp(column) else f"nearly the same (spread {spread:.2%})"
    text = f"{name} is {same} for all clients of the round, so it has no effect"
    return Note("flat-criterion", name, text)


def _thrown_away(lost: int, updates: int) -> str:
    have, are = ("has", "is") if lost == 1 else ("have", "are")
    return f"{lost} of {updates} updates {have} weight 0 and {are} not used"
