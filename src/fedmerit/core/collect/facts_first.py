"""Facts first: clients train and report facts, the server weighs them, and only then do they upload their updates.

The weights are known before the first update arrives. So the server adds up one update at a time (`add_uploads`), or
receives updates that masks hide (`Masking`). A client that fails between the two exchanges, or whose update is not a
finite vector of the model's length, is dropped. The remaining clients keep their scores, and their weights are divided
by their sum; a noisy sum ([privacy]) is not divided.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from time import perf_counter
from typing import Annotated, ClassVar, Protocol, runtime_checkable

import numpy as np

from fedmerit.core.collect.collect import InTime, Selection, Uniform
from fedmerit.core.collect.masking import MIN_CLIENTS, Masking, in_units, read_total
from fedmerit.core.facts import UNITS_FACT
from fedmerit.core.models.shared import Job
from fedmerit.core.parts import FACTS_ONLY, Doc, Words, part
from fedmerit.core.search.search import Candidate
from fedmerit.core.stages.clip import clip_factors
from fedmerit.core.state import View
from fedmerit.core.types import ClientId, Download, Model, Note, Replies, Summed, Uploads, Vector, one_group
from fedmerit.core.updates import add_row, square
from fedmerit.core.weights.weigh import shares
from fedmerit.errors import ConfigError

HIDDEN = "their norms, directions and outliers are hidden"
SEEN = Note("hidden", "updates", f"updates were added up as they came and not kept: {HIDDEN}")
MASKED = Note("hidden", "updates", f"the server received updates under masks, and knows only their sum: {HIDDEN}")


@runtime_checkable
class SummingAggregator(Protocol):
    """An aggregator that needs nothing of the updates but one weighted sum.

    max_norm   updates are clipped to this norm before they are added; None: they are not
    """

    @property
    def max_norm(self) -> float | None: ...  # noqa: D102

    def factors(self, candidate: Candidate) -> Vector:
        """Return the factor of each client's update in the sum."""


@part("collect", "facts-first")
class FactsFirst:
    """Ask the selected clients for facts, and the weighed ones for their updates.

    selection   draws the clients of a round
    masking     updates are hidden by masks, so that the server learns only their sum; None: the server sees them

    >>> from fedmerit.core.collect.collect import Uniform
    >>> FactsFirst(Uniform(0.5)).demands
    frozenset({'facts only'})
    """

    selection: Annotated[Selection, Doc("draws the clients of a round")]
    masking: Annotated[Masking | None, Doc("hide single updates from the server")] = None

    demands: ClassVar[Words] = FACTS_ONLY
    name: ClassVar[str] = 'run.facts = "first"'
    why: ClassVar[Mapping[str, str]] = {
        "facts only": 'set run.facts = "together", without privacy.masked, or use criteria that read only facts, such '
        "as DS, LD, CB or fact:NAME, with one model and the mean",
    }
    select = InTime.select

    def check(self, clients: int) -> None:
        """Refuse masks for rounds of a fixed number of clients that cannot hide each other."""
        drawn = len(self.selection(1, clients, 0)) if isinstance(self.selection, Uniform) else clients
        if self.masking is not None and drawn < MIN_CLIENTS:
            raise ConfigError(
                f"privacy.masked needs at least {MIN_CLIENTS} clients in a round, whose sum hides each of them (got "
                f"{drawn} of {clients}); set run.fraction = {min(1.0, MIN_CLIENTS / clients):.2g} or more, or remove it"
            )

    def collect(self, downloads: Mapping[ClientId, Download], facts: Sequence[str], view: View) -> Replies:
        """Let the clients train and report facts; the replies ask for the updates later."""
        uploads: Uploads = "later" if self.masking is None else "masked"
        later = {client: replace(download, uploads=uploads) for client, download in downloads.items()}
        replies = InTime(self.selection).collect(later, facts, view)
        return replace(replies, upload=partial(self._upload, view))

    def _upload(self, view: View, factors: Mapping[ClientId, float], max_norm: float | None) -> Summed:
        begun, clients, length = perf_counter(), view.host.clients, len(view.model)
        if self.masking is None:
            asked = [client for client, factor in factors.items() if factor]
            summed = add_uploads(clients.upload(view.index, asked), factors, length, max_norm)
        else:
            masking = self.masking if max_norm is None else Masking(max_norm, unbiased=False)
            units = in_units(factors)
            if len(units) < MIN_CLIENTS:
                reason = f"a masked sum needs at least {MIN_CLIENTS} clients with a weight (got {len(units)})"
                return Summed(np.zeros(length, np.float32), {}, dict.fromkeys(factors, reason))
            summed = read_total(clients.upload_masked(view.index, units, masking, length), units, masking)
            summed = replace(summed, facts={UNITS_FACT: {one: float(number) for one, number in units.items()}})
        return replace(
            summed, notes=(*summed.notes, SEEN if self.masking is None else MASKED), seconds=perf_counter() - begun
        )


def add_uploads(
    uploads: Iterable[tuple[ClientId, Model | str]],
    factors: Mapping[ClientId, float],
    length: int,
    max_norm: float | None = None,
) -> Summed:
    """Add up updates as they come, in client order; the bits are those of `Updates.combine`.

    Only the total and one update are in memory. In place of an update there may be the reason why it is missing.

    >>> rows = [(0, np.ones(2, np.float32)), (1, "no answer within 60 s"), (2, np.full(2, np.nan, np.float32))]
    >>> added = add_uploads(rows, {0: 0.5, 1: 0.25, 2: 0.25}, length=2)
    >>> added.total.tolist(), added.mean.tolist(), added.failed[2]
    ([0.5, 0.5], [1.0, 1.0], 'update contains NaN, infinity or values too large to square')
    """
    total, used, failed = np.zeros(length, np.float32), dict[ClientId, float](), dict[ClientId, str]()
    received = 0
    for client, sent in uploads:
        row = sent if isinstance(sent, str) else sent.astype(np.float32, copy=False)  # may be sent in half precision
        reason = row if isinstance(row, str) else _wrong(row, length)
        if isinstance(row, str) or isinstance(sent, str) or reason:
            failed[client] = reason
            continue
        received += sent.nbytes
        used[client] = factors[client]
        norm = np.sqrt(np.array([square(row)]))
        add_row(total, row, factors[client] if max_norm is None else factors[client] * clip_factors(norm, max_norm)[0])
    return Summed(total, used, failed, bytes_up=received)


def _wrong(row: Model, length: int) -> str:
    if row.shape != (length,):
        return f"update has shape {row.shape}, but the model has {length} values"
    return "" if np.isfinite(square(row)) else "update contains NaN, infinity or values too large to square"


def receive_uploads(job: Job) -> Job:
    """Ask the weighed clients of a job for their updates, if they have reported facts only.

    The job that is returned has the sum, and only the clients that uploaded or have weight 0.
    """
    cohort, aggregator = job.cohort, job.recipe.server.aggregator
    if cohort.upload is None or not cohort.ids:
        return job
    assert isinstance(aggregator, SummingAggregator)  # `FactsFirst` demands "facts only" of all parts
    (candidate,) = job.candidates
    factors = dict(zip(cohort.ids, aggregator.factors(candidate).tolist(), strict=True))
    summed = cohort.upload(factors, aggregator.max_norm)
    places = np.array([place for place, client in enumerate(cohort.ids) if client not in summed.failed], np.intp)
    kept = cohort.keep(places)
    columns = {
        name: np.array([values.get(client, 0.0) for client in kept.ids]) for name, values in summed.facts.items()
    }
    weights = candidate.weights
    if weights is not None and summed.failed:
        taken = weights.take(places)
        weights = replace(taken, weights=shares(taken.weights)) if len(places) else None
    chosen = replace(candidate, weights=weights)
    return replace(job, cohort=kept.with_facts(columns), groups=one_group(kept), candidates=(chosen,), summed=summed)
