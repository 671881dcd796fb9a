"""Types: the values that pass between the stages of a round."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from fedmerit.core.updates import Updates

ClientId: TypeAlias = int
"""Index of a client in its federation, 0..K-1; people see its name instead."""

Vector: TypeAlias = NDArray[np.float64]
Matrix: TypeAlias = NDArray[np.float64]
Model: TypeAlias = NDArray[np.float32]
"""All parameters of a model as one flat float32 row."""

Kind = TypeVar("Kind", bound=np.generic)


Personal: TypeAlias = Literal["keep", "reset"]
"""Whether a client's personal model stays as trained, or is reset to where it started."""

Uploads: TypeAlias = Literal["now", "later", "masked"]
"""When a client sends its update: with its facts; when the server asks; or then as integers under masks."""

SplitName: TypeAlias = Literal["validation", "test"]
"""Rows on which clients test models."""

AskedRows: TypeAlias = SplitName | Literal["training"]
"""Rows on which clients can test models; training rows are for choosing among models."""

ACCURACY = "accuracy"
"""The measure of a run unless another is set, or fits the labels better."""

REMEMBERED = "remembered"
"""Fact of a client whose earlier answer counts in the round: the rounds since that answer; 0 for an answer of now."""

EMPTY: Mapping[Any, Any] = MappingProxyType({})
"""A read-only empty mapping: the default of optional mappings."""

Own: TypeAlias = Mapping[str, Any]
"""State of one part between rounds: nested mappings of arrays, numbers and texts; EMPTY before its first round."""

Rows: TypeAlias = NDArray[np.float32]
"""One vector as long as the model (d,), or several (k, d)."""


class Family(StrEnum):
    """Subject of a criterion: the four families that the papers name."""

    DATA = "data"
    MODEL = "model"
    TRUST = "trust"
    TARGET = "target"


@dataclass(frozen=True, slots=True)
class Samples:
    """One client's rows: inputs, labels, and any attribute per row (for example `Blurry`).

    x           images (N, height, width, channels) as uint8 or floats 0..1, or features (N, features)
    y           classes (N,); numbers (N,) or labels (N, labels) of 0 and 1 where the task predicts such
    classes     the number of classes of the task; a client may have fewer
    attributes  columns of further values per row, by name
    own         facts about the client, numbers or words: its age, battery, job

    >>> night = {"night": np.array([1, 0, 0])}
    >>> len(Samples(np.zeros((3, 2)), np.array([0, 1, 1]), classes=2, attributes=night))
    3
    """

    x: NDArray[Any]
    y: NDArray[Any]
    classes: int
    attributes: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    own: Mapping[str, float | str] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.y)

    def read_only(self) -> Samples:
        """Return the same rows as read-only arrays; nothing is copied."""
        attributes = {name: read_only(column) for name, column in self.attributes.items()}
        return Samples(read_only(self.x), read_only(self.y), self.classes, attributes, self.own)


def read_only(array: NDArray[Kind]) -> NDArray[Kind]:
    """Return a read-only view; the array itself stays writable."""
    view = np.asarray(array).view()
    view.flags.writeable = False
    return view


@dataclass(frozen=True, slots=True)
class Training:
    """How clients train in a round: the shared model, a personal one, or a local one pulled by the shared one.

    personal    None: the model that was sent; `keep`, `reset`: the client's personal model, see `Personal`
    pull        how strongly the model that was sent pulls a local one; None: there is no local model
    sends_local the client trains and sends only its local model (FedAMP), not also the shared one (Ditto)
    """

    personal: Personal | None = None
    pull: float | None = None
    sends_local: bool = False


@dataclass(frozen=True, slots=True)
class Download:
    """What a client receives before it trains.

    The model to start from, its epochs (None: the learner's setting), and vectors for control variates. `uploads` says
    when the update is sent: with the facts, or later, and then possibly masked.
    """

    model: Model
    epochs: int | None = None
    lr: float | None = None
    training: Training = Training()
    vectors: Mapping[str, Model] = field(default_factory=dict)
    uploads: Uploads = "now"

    @property
    def nbytes(self) -> int:
        """Bytes on the wire."""
        return self.model.nbytes + sum(vector.nbytes for vector in self.vectors.values())


@dataclass(frozen=True, slots=True)
class SparseUpdate:
    """A reward on the wire: values to add to a personal model at `places`; None: everywhere."""

    values: Model
    places: NDArray[np.uint32] | None = None

    @property
    def nbytes(self) -> int:
        """Bytes on the wire."""
        return self.values.nbytes + (0 if self.places is None else self.places.nbytes)

    def added_to(self, model: Model) -> Model:
        """Return the model with the values added."""
        if self.places is None:
            return model + self.values
        changed = model.copy()
        changed[self.places] += self.values
        return changed


@dataclass(frozen=True, slots=True)
class Verdict:
    """A client's answer to a reward: accepted or not, its accuracy before and after, and the reason of a refusal."""

    accepted: bool
    before: float = float("nan")
    after: float = float("nan")
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Summed:
    """The sum of the updates that clients uploaded after they were weighed, and what it took.

    total       sum_i factors[i] * update_i over the clients that uploaded
    factors     the factor of each client in the sum; a client that did not upload is not in it
    failed      clients that did not upload, with reasons
    exact       whether the factors are those that were asked for; integers of a masked sum are not
    seconds     duration of the exchange
    facts       facts that the server measured at the upload
    numbers     for the record: the error bound of a masked sum
    """

    total: Model
    factors: Mapping[ClientId, float]
    failed: Mapping[ClientId, str] = field(default_factory=dict)
    bytes_down: int = 0
    bytes_up: int = 0
    exact: bool = True
    seconds: float = 0.0
    facts: Mapping[str, Mapping[ClientId, float]] = field(default_factory=dict)
    numbers: Mapping[str, float] = field(default_factory=dict)
    notes: tuple[Note, ...] = ()

    @property
    def mean(self) -> Model:
        """The weighted mean of the updates: the total divided by the sum of the factors that are in it.

        If all clients with a weight uploaded, the factors sum to 1, and the total stays as it is.
        """
        whole = sum(self.factors.values())
        return self.total if (self.exact and not self.failed) or not whole else self.total / np.float32(whole)


NOT_SUMMED = Summed(np.zeros(0, np.float32), {})
Upload: TypeAlias = Callable[[Mapping[ClientId, float], float | None], Summed]
"""Asks clients for the updates that they keep, each to be multiplied by a factor and clipped to a norm, and adds up."""


@dataclass(frozen=True, slots=True)
class Replies:
    """Unchecked replies of the clients; row i of `updates` and `facts[i]` belong to `ids[i]`.

    seconds         duration of each client by the server's clock
    vectors         named vectors in addition to the update, a row per client, from learners that send them
    server_facts    facts that the server measures: requested epochs, times by its clock
    notes           about single clients; notes about dropped clients do not count
    upload          asks for the updates, if clients have reported facts only; then `updates` has no columns
    """

    ids: tuple[ClientId, ...]
    updates: Updates
    facts: tuple[Mapping[str, Any], ...]
    failed: Mapping[ClientId, str] = field(default_factory=dict)
    seconds: Mapping[ClientId, float] = field(default_factory=dict)
    bytes_down: int = 0
    bytes_up: int = 0
    vectors: Mapping[str, Updates] = field(default_factory=dict)
    server_facts: Mapping[str, Mapping[ClientId, float]] = field(default_factory=dict)
    notes: tuple[Note, ...] = ()
    upload: Upload | None = None


@dataclass(frozen=True, slots=True)
class Cohort:
    """Clients of one round that passed the check, in id order, with a row each in updates, facts and vectors.

    `upload` asks for the updates if the clients have reported facts only.
    """

    index: int
    ids: tuple[ClientId, ...]
    updates: Updates
    facts: Mapping[str, Vector]
    vectors: Mapping[str, Updates] = field(default_factory=dict)
    upload: Upload | None = None

    def keep(self, places: NDArray[np.intp]) -> Cohort:
        """Return the cohort of only the clients at these places."""
        return Cohort(
            self.index,
            tuple(self.ids[place] for place in places),
            self.updates.keep(places),
            {name: column[places] for name, column in self.facts.items()},
            {name: rows.keep(places) for name, rows in self.vectors.items()},
            self.upload,
        )

    @property
    def answered(self) -> NDArray[np.bool_]:
        """Which clients answered in this round; the others are remembered."""
        return answered(self.facts, len(self.ids))

    def fresh(self) -> Cohort:
        """Return the cohort without remembered clients."""
        return self if self.answered.all() else self.keep(np.flatnonzero(self.answered))

    def with_facts(self, facts: Mapping[str, Vector]) -> Cohort:
        """Return the cohort with these facts added or replaced."""
        return replace(self, facts={**self.facts, **facts}) if facts else self


def answered(facts: Mapping[str, Vector], number: int) -> NDArray[np.bool_]:
    """Which of this number of clients, with these facts, answered in their round."""
    return facts[REMEMBERED] == 0 if REMEMBERED in facts else np.ones(number, dtype=np.bool_)


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Test results of one model, or of each client's personal model, on every client's test set.

    Clients without test rows, and clients that did not answer, have size 0. `losses` are sums over their rows, if
    requested. `values` are what a search judges by in place of accuracy, if `run.measure` is set: higher is better.
    """

    correct: NDArray[np.int64]
    sizes: NDArray[np.int64]
    losses: Vector | None = None
    values: Vector | None = None

    @property
    def accuracy(self) -> float:
        """Share of all test rows that are right: client accuracies weighted by test size [PMCFL, eq. 10]."""
        total = int(self.sizes.sum())
        return int(self.correct.sum()) / total if total else float("nan")

    @property
    def quality(self) -> float:
        """What a search judges by: the accuracy, or the mean of `values` over rows, where they are known."""
        if self.values is None:
            return self.accuracy
        return mean_by_rows(self.values, self.sizes)

    @property
    def loss(self) -> float:
        """Mean loss over all rows; NaN if losses were not requested or nobody has rows."""
        total = int(self.sizes.sum())
        return float("nan") if self.losses is None or not total else float(self.losses.sum()) / total

    @property
    def local(self) -> Vector:
        """Accuracy per client; NaN without test rows."""
        with np.errstate(invalid="ignore"):
            return np.asarray(self.correct / self.sizes, dtype=np.float64)


def mean_by_rows(values: Vector, rows: NDArray[Any]) -> float:
    """Mean of the values that are known, weighted by rows; NaN if none is."""
    known = ~np.isnan(values) & (rows > 0)
    return float(np.average(values[known], weights=rows[known])) if known.any() else float("nan")


NoteKind: TypeAlias = Literal[
    "empty-criterion",
    "flat-criterion",
    "idle-priority",
    "zero-scores",
    "zero-weights",
    "no-search",
    "undefined-objective",
    "sampled",
    "nobody",
    "initial",
    "stopped",
    "cap",
    "claim-cut",
    "claim-changed",
    "excluded",
    "clipped",
    "scaled",
    "privacy-void",
    "hidden",
    "stranger",
    "constant",
]


@dataclass(frozen=True, slots=True)
class Note:
    """A message to the user about the weights of a round, for one client or for all."""

    kind: NoteKind
    subject: str
    text: str
    client: ClientId | None = None


@dataclass(frozen=True, slots=True)
class SentRewards:
    """Rewards that the server sent, and each client's answer; empty if all share one model."""

    rewards: Mapping[ClientId, SparseUpdate] = field(default_factory=dict)
    verdicts: Mapping[ClientId, Verdict] = field(default_factory=dict)

    @property
    def nbytes(self) -> int:
        """Bytes on the wire."""
        return sum(reward.nbytes for reward in self.rewards.values())


@dataclass(frozen=True, slots=True)
class Groups:
    """Group of each client, numbered from 0 in client order, with the round's distances and the cut.

    cut         the distance from which clients are separated
    """

    labels: NDArray[np.intp]
    cut: float | None = None
    distances: Matrix | None = None

    @property
    def members(self) -> list[NDArray[np.intp]]:
        """Places of each group's clients."""
        return [np.flatnonzero(self.labels == group) for group in range(len(set(self.labels.tolist())))]

    def spread(self, weights: Vector) -> Matrix:
        """Return one weighting per group (groups, n): its clients' weights, 0 for the remaining clients."""
        numbers = np.arange(len(self.members))[:, np.newaxis]
        return np.asarray(np.where(self.labels == numbers, weights, 0.0))


def one_group(cohort: Cohort) -> Groups:
    """All clients of a cohort in one group."""
    return Groups(np.zeros(len(cohort.ids), dtype=np.intp))
