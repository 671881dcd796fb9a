"""The local fleet: clients simulated on this machine, in this process or in several worker processes."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fedmerit.core.learner import LayeredLearner
from fedmerit.core.objectives import Objective, Predictions
from fedmerit.core.rewards import Acceptance, wrong_part
from fedmerit.core.types import ClientId, Download, Evaluation, Model, Replies, SparseUpdate, SplitName, Verdict
from fedmerit.core.updates import Updates
from fedmerit.errors import ConfigError, RunFailed
from fedmerit.fleet.blocks import Block
from fedmerit.fleet.client import group_size
from fedmerit.fleet.personal import PersonalModels, any_saved
from fedmerit.fleet.pool import Failed, Here, Pool
from fedmerit.fleet.worker import OWN, Place, Rows, Said, SharedSplit, Worker
from fedmerit.tasks.federation import Split
from fedmerit.tasks.registry import Task

Facts: TypeAlias = dict[str, float]
OwnTest: TypeAlias = tuple[ClientId, int]
"""A client, and OWN or the row of a model that was sent."""

TOGETHER = 8  # clients whose rewards are tested at once: so many models lie in shared memory for it
TEST_ROWS = 1000  # rows per testing job: the same cut for any number of workers, so that the bits are the same


class LocalFleet:
    """Clients of a task; with one worker everything happens in this process, else each worker is single-threaded.

    Data lies in shared memory once. Models go out and updates come back in shared rows; only ids, facts and row
    numbers are sent. A client's own model, where it keeps one, stays in a row of its own.
    Use as a context manager, or call `close`.
    """

    def __init__(self, task: Task, workers: int = 1, memory: int | None = None, spill_to: Path | None = None) -> None:
        self._memory, self._spill_to = quarter_of_ram() if memory is None else memory, spill_to
        self._names, self._learner, self._classes = task.federation.names, task.learner, task.federation.classes
        self._train = SharedSplit.of(task.federation.train)
        self._asked = {
            "test": SharedSplit.of(task.federation.test),
            "validation": SharedSplit.of(task.federation.validation),
        }
        if server := task.federation.server:
            offsets = np.array([0, len(server)], dtype=np.int64)
            self._asked["server"] = SharedSplit.of(Split(server.x, server.y, offsets, server.attributes))
        preload = ["fedmerit.fleet.worker", type(task.learner).__module__]
        self._pool: Pool | Here = Here() if workers == 1 else Pool(workers, preload)
        self._worker: Worker | None = None
        self._own: PersonalModels | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the workers."""
        self._pool.close()

    def names(self) -> Sequence[str]:
        """The federation's names."""
        return self._names

    def start(self, seed: int) -> Model:
        """The learner's first model."""
        return self._learner.start(seed)

    def train(self, index: int, parcels: Mapping[ClientId, Download], needs: Sequence[str], seed: int) -> Replies:
        """Every client trains from its parcel, those with most rows first; who fails is named with the reason."""
        ids = sorted(parcels)
        if any(parcel.own for parcel in parcels.values()):
            self._make_own()
        sent = {client: parcels[client].model for client in ids if not (parcels[client].own and self._has_own(client))}
        models = {id(model): model for model in sent.values()}
        worker = self._equip(list(models.values()), len(ids))
        slots = {client: list(models).index(id(model)) for client, model in sent.items()}
        places = [Place(c, slots.get(c, OWN), row, parcels[c].epochs) for row, c in enumerate(ids)]
        facts, seconds, failed = self._train_groups(places, tuple(needs), seed, index)
        self._book_own(index, [place for place in places if place.client in facts], parcels)
        good = np.array([row for row, client in enumerate(ids) if client in facts], dtype=np.intp)
        release = worker.updates.release if worker.updates.on_disk else None
        updates = Updates(worker.updates.array[: len(ids)], good, release)
        kept = tuple(ids[row] for row in good)
        told = tuple(facts[client] for client in kept)
        return Replies(kept, updates, told, failed, seconds, sum(m.nbytes for m in sent.values()), updates.nbytes)

    def _train_groups(
        self, places: Sequence[Place], needs: tuple[str, ...], seed: int, index: int
    ) -> tuple[dict[ClientId, Facts], dict[ClientId, float], dict[ClientId, str]]:
        """Facts and seconds of who trained, reasons of who failed. Groups depend on the round, never on the workers."""
        offsets = self._train.offsets.array
        work = {p: int(offsets[p.client + 1] - offsets[p.client]) * (p.epochs or 1) for p in places}
        largest_first = sorted(places, key=lambda place: (-work[place], place.client))
        size = group_size(self._learner)
        groups = [tuple(largest_first[start : start + size]) for start in range(0, len(places), size)]
        facts: dict[ClientId, Facts] = {}
        seconds: dict[ClientId, float] = {}
        failed: dict[ClientId, str] = {}
        while groups:
            jobs = [("train", group, needs, seed, index) for group in groups]
            groups = []
            for job, result in self._pool.map(jobs):
                group = job[1]
                if not isinstance(result, Failed):
                    for place, (told, took) in zip(group, result, strict=True):
                        facts[place.client], seconds[place.client] = told, took
                elif len(group) > 1:
                    groups += [(place,) for place in group]  # one of them spoils it: each alone
                else:
                    failed[group[0].client] = result.reason
        return facts, seconds, failed

    def layers(self) -> Sequence[int]:
        """The learner's, or one where it does not know."""
        learner = self._learner
        return learner.layers if isinstance(learner, LayeredLearner) else (len(learner.start(0)),)

    def reward(
        self, index: int, parts: Mapping[ClientId, SparseUpdate], acceptance: Acceptance
    ) -> Mapping[ClientId, Verdict]:
        """Each client tests its own model without and with its part, and takes it or leaves it."""
        own, verdicts = (
            self._make_own(),
            {client: Verdict(False, reason=self._wrong(client, parts)) for client in parts},
        )
        good = [client for client in sorted(parts) if not verdicts[client].reason]
        for start in range(0, len(good), TOGETHER):
            some = good[start : start + TOGETHER]
            offered = [parts[client].added_to(own.rows.array[client]) for client in some]
            self._equip(offered, 1)
            models = [(client, model) for slot, client in enumerate(some) for model in (OWN, slot)]
            shares = self._own_accuracy("validation", models)
            for slot, (client, model) in enumerate(zip(some, offered, strict=True)):
                before, after = shares[client, OWN], shares[client, slot]
                verdicts[client] = Verdict(acceptance(before, after), before, after)
                if verdicts[client].accepted:
                    own.put(client, model, index)
        own.release()
        return verdicts

    def _wrong(self, client: ClientId, parts: Mapping[ClientId, SparseUpdate]) -> str:
        if not self._has_own(client):
            return "it has no model of its own to add a reward to"
        return wrong_part(parts[client], self._make_own().rows.array.shape[1])

    def has_server_rows(self) -> bool:
        """Whether the task sets some apart."""
        return "server" in self._asked

    def validate(self, models: Iterable[Model]) -> Predictions:
        """A few models at a time, each in a job of its own."""
        if not self.has_server_rows():
            raise ConfigError("the server has no rows to score models on; set task.server = 1000")
        waiting, said = iter(models), list[Said]()
        while some := list(islice(waiting, TOGETHER)):
            self._equip(some, 1)
            said += self._said("server", [(0, slot) for slot in range(len(some))]).values()
        return self._answers("server", 0, said)

    def audit(
        self, model: Model, objectives: Sequence[Objective], *, own: bool
    ) -> Mapping[ClientId, Mapping[str, float]]:
        """One job per client that has test rows."""
        self._equip([model], 1)
        clients = np.flatnonzero(np.diff(self._asked["test"].offsets.array)).tolist()
        keys = [(client, OWN if own and self._has_own(client) else 0) for client in clients]
        said = self._said("test", keys)
        told = {key[0]: self._answers("test", key[0], [said[key]]) for key in keys}
        return {
            client: {objective.name: float(objective(answers)[0]) for objective in objectives}
            for client, answers in told.items()
        }

    def _said(self, on: str, models: Sequence[OwnTest]) -> dict[OwnTest, Said]:
        """What each client's model, own or sent, says of the client's rows; in the order asked."""
        said: dict[OwnTest, Said] = {}
        for job, result in self._pool.map([("answer", on, client, model) for client, model in models]):
            if isinstance(result, Failed):
                raise RunFailed(f"testing failed: {result.reason}")
            said[job[2], job[3]] = result
        return {key: said[key] for key in models}

    def _answers(self, on: str, client: ClientId, said: Sequence[Said]) -> Predictions:
        split = self._asked[on].split()
        rows = split.rows(client)
        attributes = {name: column[rows] for name, column in split.attributes.items()}
        chances = [one for _, one in said if one is not None]
        return Predictions(
            split.y[rows],
            self._classes,
            attributes,
            np.stack([predicted for predicted, _ in said]),
            np.stack(chances) if chances else None,
        )

    def evaluate_personal(self, model: Model, on: SplitName = "test") -> Evaluation:
        """One job per client."""
        self._equip([model], 1)
        models = [(client, OWN if self._has_own(client) else 0) for client in range(len(self._names))]
        sizes = np.diff(self._asked[on].offsets.array)
        right = self._own_right(on, models)
        return Evaluation(np.array([right[key] for key in models], dtype=np.int64), sizes)

    def _own_accuracy(self, on: SplitName, models: Sequence[OwnTest]) -> dict[OwnTest, float]:
        """The share of its rows that each client gets right; NaN where it has none."""
        sizes = np.diff(self._asked[on].offsets.array)
        right = self._own_right(on, models)
        return {key: right[key] / int(sizes[key[0]]) if sizes[key[0]] else float("nan") for key in models}

    def _own_right(self, on: SplitName, models: Sequence[OwnTest]) -> dict[OwnTest, int]:
        """How many of its rows each client gets right with its own model (OWN) or with one of the models sent."""
        right: dict[OwnTest, int] = {}
        for job, result in self._pool.map([("test own", on, client, model) for client, model in models]):
            if isinstance(result, Failed):
                raise RunFailed(f"client {self._names[job[2]]} could not test its own model: {result.reason}")
            right[job[2], job[3]] = result
        return right

    def save(self, run: Path, round: int) -> None:
        """The own models that clients kept in this round."""
        if self._own is not None:
            self._own.save(run, round)

    def load(self, run: Path, round: int) -> bool:
        """The own models as they were after a round; False where one is damaged."""
        if not any_saved(run):
            return True
        return self._make_own().load(run, round)

    def _make_own(self) -> PersonalModels:
        """Rows for own models, made when first asked for: most runs have none."""
        if self._own is None:
            length = len(self._learner.start(0))
            taken = self._worker.updates.array.nbytes if self._worker else 0
            self._own = PersonalModels(self._block(len(self._names), length, self._memory - taken))
        return self._own

    def _has_own(self, client: ClientId) -> bool:
        return self._own is not None and client in self._own

    def _book_own(self, index: int, places: Sequence[Place], parcels: Mapping[ClientId, Download]) -> None:
        """Book the clients' own models: here, so that a worker that dies leaves nothing half done."""
        worker, own = self._worker, self._own
        if worker is None or own is None:
            return
        for client, slot, row, _ in places:
            start = own.rows.array[client] if slot == OWN else worker.models.array[slot]
            if parcels[client].own == "keep":
                own.put(client, start + worker.updates.array[row], index)
            elif parcels[client].own == "reset" and slot != OWN:
                own.put(client, start, index)
        own.release()

    def evaluate(
        self, models: Sequence[Model], on: SplitName = "test", clients: Sequence[ClientId] | None = None
    ) -> Sequence[Evaluation]:
        """One pass over the clients' rows per model, then a count per client; no loop over clients."""
        worker = self._equip(models, 1)
        offsets = self._asked[on].offsets.array
        asked = None
        if clients is not None:
            asked = np.zeros(len(offsets) - 1, dtype=np.bool_)
            asked[list(clients)] = True
        jobs = [("test", on, len(models), job) for job in _test_jobs(offsets, asked)]
        for _, result in self._pool.map(jobs):
            if isinstance(result, Failed):
                raise RunFailed(f"testing failed: {result.reason}")
        counts = np.zeros((len(models), offsets[-1] + 1), dtype=np.int64)
        np.cumsum(worker.right.array[: len(models), : offsets[-1]], axis=1, out=counts[:, 1:])
        found = [Evaluation(np.diff(row[offsets]), np.diff(offsets)) for row in counts]
        return found if asked is None else [Evaluation(one.correct * asked, one.sizes * asked) for one in found]

    def _equip(self, models: Sequence[Model], rows: int) -> Worker:
        """Put the models where the workers find them; make the shared rows larger where they do not suffice."""
        worker, own = self._worker, self._own.rows if self._own else None
        if (
            worker is None
            or len(worker.models.array) < len(models)
            or len(worker.updates.array) < rows
            or worker.own is not own
        ):
            length = len(models[0]) if models else len(self._learner.start(0))
            rows = max(rows, len(worker.updates.array) if worker else 0)
            slots = max(len(models), 1, len(worker.models.array) if worker else 0)
            worker = Worker(
                self._learner,
                self._classes,
                self._train,
                self._asked,
                models=Block((slots, length), np.float32),
                updates=self._block(rows, length, self._memory),
                right=Block((slots, max(len(split.y.array) for split in self._asked.values())), np.bool_),
                own=own,
            )
            self._pool.equip(worker)
            self._worker = worker
        for slot, model in enumerate(models):
            worker.models.array[slot] = model
        return worker

    def _block(self, rows: int, length: int, budget: int) -> Block:
        """In memory up to a budget, past it in a file."""
        if rows * length * 4 <= budget:
            return Block((rows, length), np.float32)
        return Block((rows, length), np.float32, self._spill_to or Path(tempfile.gettempdir()))


def _test_jobs(offsets: NDArray[np.int64], asked: NDArray[np.bool_] | None) -> list[tuple[Rows, ...]]:
    """Ranges of rows to be tested together: neighbours joined, long ones cut, short ones gathered up to TEST_ROWS.

    They depend on who is asked alone, never on the workers, so that the bits are the same.
    """
    edges = np.array([0, len(offsets) - 1])
    if asked is not None:
        edges = np.flatnonzero(np.diff(np.concatenate([[False], asked, [False]]).astype(np.int8)))
    jobs: list[list[Rows]] = [[]]
    room = TEST_ROWS
    for start, stop in offsets[edges].reshape(-1, 2).tolist():
        while start < stop:
            end = min(start + room, stop)
            jobs[-1].append((start, end))
            room, start = room - (end - start), end
            if not room:
                jobs.append([])
                room = TEST_ROWS
    return [tuple(job) for job in jobs if job]


def quarter_of_ram() -> int:
    """Bytes for updates where nobody said how many."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 4
