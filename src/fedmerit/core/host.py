"""Host: what a round may use of the server and the clients, wherever they are, as one value.

A `Fleet` reaches the clients; `ServerSetup` is what the server itself has: names, learner, rows. `Host.of` puts both
together for a run. The protocols are small: a part that only needs answers about models asks for `Judges`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Protocol, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from fedmerit.core.facts import SITE
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
from fedmerit.core.server.centring import Centre, SummingClients
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
from fedmerit.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Release:
    """One release of noisy numbers, by a Poisson-sampled Gaussian mechanism; booked before anybody sees them."""

    round: int
    multiplier: float
    fraction: float


def no_account(release: Release) -> None:
    """Book nothing: the host of a test, or of a run without an account."""


Predict: TypeAlias = Callable[[Iterable[Model]], Predictions]
"""Ask models about the server's rows."""
Train: TypeAlias = Callable[[Model, int], Model]
"""Train a model on the server's rows, with this seed."""
Limits: TypeAlias = Mapping[str, float]
"""The most that a client may claim, by fact: what the federation knows beyond the facts' own ranges."""
ServerFact: TypeAlias = Callable[[Replies], Mapping[ClientId, float]]
"""A fact that the server knows of the clients of a round."""


@dataclass(frozen=True, slots=True)
class ServerSetup:
    """What the server has: the clients' names, how they learn, rows of its own, and what clients may claim.

    names    what people call the clients; client i is the i-th
    rows     rows to score models on; None where the server has none
    limits   the most that a client may claim, by fact: what the federation knows of it
    centre   how inputs are centred before round 1, see `core.centring`; None where they are left as they are
    faster   another way to ask models about `rows` with the same answers, for example on several cores
    notes    what was done to the data before the run, for the ledger
    sites    the site of each client, which the limit `site-cap` reads; empty: unknown

    >>> from fedmerit import load_task
    >>> task = load_task("digits", clients=4)
    >>> server = ServerSetup(task.federation.names, task.learner, limits={"labels": 10})
    >>> len(server.first_model(seed=0)) == sum(server.layers())
    True
    """

    names: tuple[str, ...]
    learner: Learner
    rows: Samples | None = None
    limits: Limits = field(default_factory=dict)
    centre: Centre | None = None
    faster: Predict | None = None
    notes: tuple[str, ...] = ()
    sites: tuple[str, ...] = ()

    def first_model(self, seed: int) -> Model:
        """The model before the first round."""
        return self.learner.start(seed)

    def layers(self, length: int | None = None) -> Sequence[int]:
        """The lengths of the model's layers, in its order; one layer where the learner does not know.

        Of a model that is longer (`length`), the rest is a layer: what its inputs are centred by.
        """
        learner = self.learner
        known = learner.layers if isinstance(learner, LayeredLearner) else (len(learner.start(0)),)
        rest = 0 if length is None else length - sum(known)
        return (*known, rest) if rest else known

    @property
    def control(self) -> Control | None:
        """What the server keeps for clients in addition to the model (SCAFFOLD, FedDyn); most learners need nothing."""
        return self.learner.control if isinstance(self.learner, ControlledLearner) else None

    def rate(self, index: int, rounds: int | None) -> float | None:
        """The clients' learning rate in a round, of so many; None where it is as the learner is set up."""
        return self.learner.rate(index, rounds) if isinstance(self.learner, ScheduledLearner) else None

    def site_numbers(self) -> dict[ClientId, float]:
        """Each client's site as a number, in the order in which sites first occur."""
        if len(self.sites) != len(self.names):
            raise ConfigError(
                f"site-cap needs the site of each of {len(self.names)} clients ({len(self.sites)} are known); set "
                "task.sites, for example {north = [0, 1], south = [2]}, or give Federation its `sites`"
            )
        numbers = {site: float(number) for number, site in enumerate(dict.fromkeys(self.sites))}
        return {client: numbers[site] for client, site in enumerate(self.sites)}

    def name_tensors(self, model: Model) -> NamedTensors | None:
        """The model's tensors by the names of its library; None where the learner does not know them."""
        return self.learner.name_tensors(model) if isinstance(self.learner, NamedLearner) else None

    @property
    def predict(self) -> Predict | None:
        """How models are asked about the server's rows; None where it has none."""
        return None if self.rows is None else self.faster or self._one_by_one

    @property
    def predict_many(self) -> Predict | None:
        """How a great many models are asked, where the learner knows a quicker way; equal up to rounding."""
        learner, rows = self.learner, self.rows
        if rows is None or not isinstance(learner, PanelLearner) or learner.models_at_once < 2:
            return self.predict

        def ask(models: Iterable[Model]) -> Predictions:
            waiting, parts = iter(models), []
            while some := list(islice(waiting, learner.models_at_once)):
                parts.append(learner.predict_each(np.stack(some), rows.x))
            known = np.concatenate(parts)
            return Predictions(rows.y, rows.classes, rows.attributes, known.argmax(axis=2), known)

        return ask

    @property
    def train(self) -> Train | None:
        """How a model is trained on the server's rows; None where it has none."""
        rows = self.rows
        return None if rows is None else lambda model, seed: self.learner.train(model, rows, seed)

    def _one_by_one(self, models: Iterable[Model]) -> Predictions:
        assert self.rows is not None  # `predict` asks before
        return predict_rows(self.learner, self.rows, models)


def predict_rows(learner: Learner, rows: Samples, models: Iterable[Model]) -> Predictions:
    """What models say of rows: classes, and probabilities where the learner knows them."""
    outputs = [predict_all(learner, model, rows.x) for model in models]
    known = [probabilities for _, probabilities in outputs if probabilities is not None]
    predicted = np.stack([one for one, _ in outputs])
    chances = np.stack(known) if known else None
    return Predictions(rows.y, rows.classes, rows.attributes, predicted, chances, target_of(learner))


def predict_all(learner: Learner, model: Model, x: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.float32] | None]:
    """What a model predicts for rows and, where the learner knows them, the probabilities; in one pass where it can."""
    if not has_probabilities(learner):
        return learner.predict(model, x), None
    if isinstance(learner, OnePassLearner):
        return learner.predict_both(model, x)
    return learner.predict(model, x), cast(ProbabilisticLearner, learner).predict_proba(model, x)


class Judges(Protocol):
    """Clients that test models."""

    def judges(self) -> Sequence[ClientId]:
        """Those there are to ask."""

    def evaluate(
        self,
        models: Sequence[Model],
        on: AskedRows = "test",
        clients: Sequence[ClientId] | None = None,
        *,
        losses: bool = False,
    ) -> Sequence[Evaluation]:
        """Test one or several models on the rows of every client, or of some, in one exchange; with `losses` too.

        Models that are `Mixtures` travel as the vectors that they are made of.
        """


class PersonalClients(Protocol):
    """Clients that keep a personal model."""

    def send_rewards(
        self, index: int, rewards: Mapping[ClientId, SparseUpdate], acceptance: Acceptance
    ) -> Mapping[ClientId, Verdict]:
        """Send updates to add to personal models; each client tests its own on its validation rows and answers."""

    def evaluate_personal(self, model: Model, on: SplitName = "test") -> Evaluation:
        """Each client tests its personal model on its rows; who has none, this one."""


class Clients(Judges, PersonalClients, SummingClients, Protocol):
    """All that a round asks of the clients. A client that fails is named in the replies; it never ends the round."""

    def train(self, index: int, downloads: Mapping[ClientId, Download], facts: Sequence[str], seed: int) -> Replies:
        """Deliver a download to each client, let it train, and collect updates and the facts asked for."""

    def audit(
        self, model: Model, objectives: Sequence[Objective], *, personal: bool
    ) -> Mapping[ClientId, Mapping[str, float]]:
        """Objectives of the model, or of each personal one, on each client's test rows; NaN where unknown."""


class Fleet(Clients, Protocol):
    """The clients, wherever they are, with the server that they belong to; `run_on` runs a configuration on any.

    >>> from fedmerit import load_task
    >>> from fedmerit.fleet.local import LocalFleet
    >>> with LocalFleet(load_task("digits", clients=4), workers=1) as fleet:
    ...     evaluation = fleet.evaluate([fleet.server.first_model(seed=0)])[0]
    >>> len(evaluation.local)
    4
    """

    @property
    def server(self) -> ServerSetup:
        """What the server has."""

    def save(self, run: Path, index: int) -> None:
        """Before a round is booked: put into the run's folder what clients kept in it, where that is ours to do."""

    def load(self, run: Path, index: int) -> bool:
        """On a resume: give clients what they had after a round; False where that cannot be had."""


def one_layer(length: int) -> Sequence[int]:
    """The model as one layer, for learners that do not know their layers."""
    return (length,)


@dataclass(frozen=True, slots=True)
class Host:
    """What a round may use; a Flower strategy makes one that gives fewer words.

    clients         train, test, keep personal models
    names           client i is the i-th
    gives           words for `core.parts.check_words`
    limits          the most that a client may claim, by fact
    predict         asks models about the server's rows; `predict_many` may be quicker for a great many models
    train           trains a model on the server's rows
    layers          the lengths of the layers of a model with this many entries
    trainable       entries before the centring at the end of the model, which no round moves; None: all
    client_lr       the clients' learning rate in a round; None: as their learner is set up
    first_model     draws a model with a seed
    server_facts    facts that the server knows itself: `site`, `link`
    book            writes a release to the account, and syncs it, before it returns
    """

    clients: Clients
    names: tuple[str, ...]
    gives: Words = NO_WORDS
    limits: Limits = field(default_factory=dict)
    predict: Predict | None = None
    predict_many: Predict | None = None
    train: Train | None = None
    layers: Callable[[int], Sequence[int]] = one_layer
    trainable: int | None = None
    client_lr: Callable[[int], float | None] = lambda index: None
    first_model: Callable[[int], Model] | None = None
    server_facts: Mapping[str, ServerFact] = field(default_factory=dict)
    book: Callable[[Release], None] = no_account

    @classmethod
    def of(cls, fleet: Fleet, rounds: int | None = None, book: Callable[[Release], None] = no_account) -> Host:
        """The host of a run of this many rounds on a fleet."""
        server = fleet.server
        return cls(
            fleet,
            server.names,
            server_words(server) | CLIENT_WORDS,
            server.limits,
            server.predict,
            server.predict_many,
            server.train,
            server.layers,
            None if server.centre is None else sum(server.layers()),
            lambda index: server.rate(index, rounds),
            server.first_model,
            {SITE: lambda replies: server.site_numbers()},
            book,
        )


CLIENT_WORDS: Words = frozenset({"evaluation", "personal storage"})
"""What all our fleets give."""


def server_words(server: ServerSetup) -> Words:
    """What a server's rows and learner give."""
    learner, has_rows = server.learner, server.rows is not None and len(server.rows) > 0
    found = {
        "server rows": has_rows,
        "server training": has_rows,
        "losses": has_losses(learner),
        "pulled training": isinstance(learner, PulledLearner),
        "control vectors": server.control is not None,
    }
    return frozenset(word for word, given in found.items() if given)
