"""Host: what a round may use of the server and the clients, as one value, wherever they run.

A `Fleet` reaches the clients; `ServerSetup` is what the server has: names, learner, rows. `Host.of` combines both for a
run. The protocols are small: a part that only needs evaluations asks for `Judges`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from fedmerit.core.learner import (
    ControlledLearner,
    LayeredLearner,
    Learner,
    NamedLearner,
    NamedTensors,
    OnePassLearner,
    PanelLearner,
    ProbabilisticLearner,
    PulledLearner,
    ScheduledLearner,
)
from fedmerit.core.models.rewards import Acceptance
from fedmerit.core.objectives import Objective, Predictions
from fedmerit.core.parts import NO_WORDS, Words
from fedmerit.core.server.controls import Control
from fedmerit.core.targets import has_losses, has_probabilities, target_of
from fedmerit.core.types import (
    AskedRows,
    ClientId,
    Download,
    Evaluation,
    Model,
    Replies,
    Samples,
    SparseUpdate,
    SplitName,
    Verdict,
)

if TYPE_CHECKING:
    from fedmerit.core.collect.masking import MaskedTotal, Masking


@dataclass(frozen=True, slots=True)
class Release:
    """One release of noisy numbers by a Poisson-sampled Gaussian mechanism; recorded before the numbers are used."""

    round: int
    multiplier: float
    fraction: float


def no_account(release: Release) -> None:
    """Record nothing: for tests, and for runs without an account."""


Predict: TypeAlias = Callable[[Iterable[Model]], Predictions]
"""Evaluates models on the server's rows."""
Train: TypeAlias = Callable[[Model, int], Model]
"""Trains a model on the server's rows, with this seed."""
Limits: TypeAlias = Mapping[str, float]
"""The largest value that a client may claim, by fact: what the federation knows beyond the facts' ranges."""


@dataclass(frozen=True, slots=True)
class ServerSetup:
    """What the server has: the clients' names and learner, its rows, and limits for claims.

    names    display names of the clients; client i is the i-th
    rows     the server's rows to score models on, or None
    limits   the largest value that a client may claim, by fact
    faster   a faster `Predict` for `rows` with the same results, for example on several cores
    notes    what was done to the data before the run, for the ledger

    >>> from fedmerit import load_task
    >>> task = load_task("digits", clients=4)
    >>> server = ServerSetup(task.federation.names, task.learner, limits={"labels": 10})
    >>> len(server.first_model(seed=0)), server.layers()[:2]
    (2410, ((32, 64), (32,)))
    """

    names: tuple[str, ...]
    learner: Learner
    rows: Samples | None = None
    limits: Limits = field(default_factory=dict)
    faster: Predict | None = None
    notes: tuple[str, ...] = ()

    def first_model(self, seed: int) -> Model:
        """Return the model before the first round."""
        return self.learner.start(seed)

    def layers(self) -> Sequence[tuple[int, ...]]:
        """Return the shapes of the model's layers; one layer if the learner does not report them."""
        learner = self.learner
        return learner.layers if isinstance(learner, LayeredLearner) else ((len(learner.start(0)),),)

    @property
    def control(self) -> Control | None:
        """What the server keeps for clients in addition to the model (SCAFFOLD, FedDyn); None for most learners."""
        return self.learner.control if isinstance(self.learner, ControlledLearner) else None

    def rate(self, index: int, rounds: int | None) -> float | None:
        """Return the clients' learning rate in round `index` of `rounds`; None: the learner's setting."""
        return self.learner.rate(index, rounds) if isinstance(self.learner, ScheduledLearner) else None

    def name_tensors(self, model: Model) -> NamedTensors | None:
        """Return the model's tensors by the names of its library; None if the learner does not report them."""
        return self.learner.name_tensors(model) if isinstance(self.learner, NamedLearner) else None

    @property
    def predict(self) -> Predict | None:
        """Evaluates models on the server's rows; None without rows."""
        return None if self.rows is None else self.faster or self._one_by_one

    @property
    def predict_many(self) -> Predict | None:
        """Evaluates many models, faster if the learner can batch them; equal up to rounding."""
        learner, rows = self.learner, self.rows
        if rows is None or not isinstance(learner, PanelLearner) or learner.models_at_once < 2:
            return self.predict

        def ask(models: Iterable[Model]) -> Predictions:
            waiting, parts = iter(models), []
            while batch := list(islice(waiting, learner.models_at_once)):
                parts.append(learner.predict_each(np.stack(batch), rows.x))
            probabilities = np.concatenate(parts)
            return Predictions(rows.y, rows.classes, rows.attributes, probabilities.argmax(axis=2), probabilities)

        return ask

    @property
    def train(self) -> Train | None:
        """Trains a model on the server's rows; None without rows."""
        rows = self.rows
        return None if rows is None else lambda model, seed: self.learner.train(model, rows, seed)

    def _one_by_one(self, models: Iterable[Model]) -> Predictions:
        assert self.rows is not None  # `predict` has checked it
        return predict_rows(self.learner, self.rows, models)


def predict_rows(learner: Learner, rows: Samples, models: Iterable[Model]) -> Predictions:
    """Evaluate models on rows: classes, and probabilities if the learner has them."""
    outputs = [predict_all(learner, model, rows.x) for model in models]
    available = [probabilities for _, probabilities in outputs if probabilities is not None]
    predicted = np.stack([one for one, _ in outputs])
    chances = np.stack(available) if available else None
    return Predictions(rows.y, rows.classes, rows.attributes, predicted, chances, target_of(learner))


def predict_all(learner: Learner, model: Model, x: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.float32] | None]:
    """Predictions of a model and, if the learner has them, the probabilities; in one pass if possible."""
    if not has_probabilities(learner):
        return learner.predict(model, x), None
    if isinstance(learner, OnePassLearner):
        return learner.predict_both(model, x)
    return learner.predict(model, x), cast(ProbabilisticLearner, learner).predict_proba(model, x)


class Judges(Protocol):
    """Clients that test models."""

    def judges(self) -> Sequence[ClientId]:
        """Return the clients that can be asked."""

    def evaluate(
        self,
        models: Sequence[Model],
        on: AskedRows = "test",
        clients: Sequence[ClientId] | None = None,
        *,
        losses: bool = False,
    ) -> Sequence[Evaluation]:
        """Test one or several models on the rows of every client, or of these, in one exchange; with `losses` too.

        Models that are `Mixtures` are sent as the vectors that they are made of.
        """


class PersonalClients(Protocol):
    """Clients that keep a personal model."""

    def send_rewards(
        self, index: int, rewards: Mapping[ClientId, SparseUpdate], acceptance: Acceptance
    ) -> Mapping[ClientId, Verdict]:
        """Send updates for personal models; each client tests its reward on its validation rows and answers."""

    def evaluate_personal(self, model: Model, on: SplitName = "test") -> Evaluation:
        """Let each client test its personal model on its rows; a client without one tests this model."""


class Clients(Judges, PersonalClients, Protocol):
    """All that a round asks of the clients. A client that fails is listed in the replies; it never ends the round."""

    def train(self, index: int, downloads: Mapping[ClientId, Download], facts: Sequence[str], seed: int) -> Replies:
        """Send a download to each client, let it train, and collect updates and the requested facts.

        If the downloads say so (`uploads`), the clients keep their updates, and those of the replies have no columns.
        """

    def upload(self, index: int, clients: Sequence[ClientId]) -> Iterator[tuple[ClientId, Model | str]]:
        """Yield the updates that clients keep since `train`, in client order, or why there is none.

        An update may be valid only until the next one.
        """

    def upload_masked(self, index: int, units: Mapping[ClientId, int], masking: Masking, length: int) -> MaskedTotal:
        """Return the sum of the updates that clients keep, as integers times their units, modulo 2^32."""

    def audit(
        self,
        model: Model,
        objectives: Sequence[Objective],
        *,
        personal: bool,
        on: AskedRows = "test",
        clients: Sequence[ClientId] | None = None,
    ) -> Mapping[ClientId, Mapping[str, float]]:
        """Measure objectives of the model, or of each personal model, on the rows of every client, or of these.

        Clients without rows are left out; a value is NaN where the rows do not define it.
        """


class Fleet(Clients, Protocol):
    """The clients, wherever they run, and their server; `run_on` runs a configuration on any fleet.

    >>> from fedmerit import load_task
    >>> from fedmerit.fleet.local import LocalFleet
    >>> with LocalFleet(load_task("digits", clients=4), workers=1) as fleet:
    ...     evaluation = fleet.evaluate([fleet.server.first_model(seed=0)])[0]
    >>> len(evaluation.local)
    4
    """

    @property
    def server(self) -> ServerSetup:
        """The server's names, learner and rows."""

    def save(self, run: Path, index: int) -> None:
        """Store the clients' state in the run's folder before a round is recorded, if the fleet owns that state."""

    def load(self, run: Path, index: int) -> bool:
        """Restore the clients' state after a round, for a resume; False if it is not available."""


def one_layer(length: int) -> Sequence[tuple[int, ...]]:
    """Treat the model as one layer, for learners that do not report layers."""
    return ((length,),)


@dataclass(frozen=True, slots=True)
class Host:
    """What a round may use; a Flower strategy builds one that gives fewer words.

    clients         train, test, keep personal models
    names           client i is the i-th
    gives           words for `core.parts.check_words`
    limits          the largest value that a client may claim, by fact
    predict         evaluates models on the server's rows; `predict_many` may be faster for many models
    train           trains a model on the server's rows
    layers          the shapes of the layers of a model with this many entries
    client_lr       the clients' learning rate in a round; None: their learner's setting
    lr              the learner's setting; None: unknown
    first_model     draws a model with a seed
    book            records a release in the privacy account, and syncs it to disk, before it returns
    measure         what a search judges by; None: the measure of its paper
    """

    clients: Clients
    names: tuple[str, ...]
    gives: Words = NO_WORDS
    limits: Limits = field(default_factory=dict)
    predict: Predict | None = None
    predict_many: Predict | None = None
    train: Train | None = None
    layers: Callable[[int], Sequence[tuple[int, ...]]] = one_layer
    client_lr: Callable[[int], float | None] = lambda index: None
    first_model: Callable[[int], Model] | None = None
    book: Callable[[Release], None] = no_account
    measure: Objective | None = None
    lr: float | None = None

    @classmethod
    def of(cls, fleet: Fleet, rounds: int | None = None, book: Callable[[Release], None] = no_account) -> Host:
        """Return the host of a run of this many rounds on a fleet."""
        server = fleet.server
        return cls(
            fleet,
            server.names,
            server_words(server) | CLIENT_WORDS,
            server.limits,
            server.predict,
            server.predict_many,
            server.train,
            lambda length: server.layers(),
            lambda index: server.rate(index, rounds),
            server.first_model,
            book,
            lr=getattr(server.learner, "lr", None),
        )


CLIENT_WORDS: Words = frozenset({"evaluation", "personal storage"})
"""Words that all our fleets give."""


def server_words(server: ServerSetup) -> Words:
    """Words that a server's rows and learner give."""
    learner, has_rows = server.learner, server.rows is not None and len(server.rows) > 0
    words = {
        "server rows": has_rows,
        "server training": has_rows,
        "losses": has_losses(learner),
        "pulled training": isinstance(learner, PulledLearner),
        "control vectors": server.control is not None,
    }
    return frozenset(word for word, given in words.items() if given)
