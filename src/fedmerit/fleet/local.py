"""The local fleet: clients simulated on this machine, in this process or in several workers."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fedmerit.core.collect.masking import MaskedTotal, Masking, add_unmasked
from fedmerit.core.learner import LOSS_UNIT
from fedmerit.core.models.rewards import Acceptance, wrong_reward
from fedmerit.core.objectives import Objective, Predictions
from fedmerit.core.system import quarter_of_ram
from fedmerit.core.targets import target_of
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
    Training,
    Verdict,
)
from fedmerit.core.updates import Updates
from fedmerit.errors import RunFailed
from fedmerit.fleet.blocks import Block
from fedmerit.fleet.client import WIRES, Job, extra_names, group_size, sent_bytes, train_clients
from fedmerit.fleet.personal import PersonalStore, saved_length
from fedmerit.fleet.pool import Failed, Here, Pool, refuse_while_imported
from fedmerit.fleet.worker import PERSONAL, Output, Place, Rows, SharedSplit, Worker
from fedmerit.tasks.federation import Split
from fedmerit.tasks.registry import Task

Facts: TypeAlias = dict[str, float]
ModelOf: TypeAlias = tuple[ClientId, int]
"""A client, and PERSONAL or the row of a model that it received."""

TEST_ROWS = 1000  # rows per testing job: the same for any number of workers, so that the bits are the same
AT_ONCE = 8  # models in shared memory while rewards are tested


class LocalFleet:
    """Clients of a task; one worker runs in this process, several are single-threaded processes.

    Data is in shared memory once. Models and updates are in shared rows; only ids, facts and row numbers are sent. A
    client's personal model, if any, stays in a separate row. Use it as a context manager, or call `close`.
    """

    def __init__(
        self,
        task: Task,
        workers: int = 1,
        memory: int | None = None,
        spill_to: Path | None = None,
        wire: str = "float32",
    ) -> None:
        refuse_while_imported()
        self._wire = wire
        self._memory, self._spill_to = quarter_of_ram() if memory is None else memory, spill_to
        self._names, self._learner, self._classes = task.federation.names, task.learner, task.federation.classes
        self.attackers, self._own = task.attackers, task.federation.own_facts
        self.server = replace(task.server(), faster=self._predict_server)  # all workers score models on its rows
        self._train = SharedSplit.of(task.federation.train)
        splits = {"test": task.federation.test, "validation": task.federation.validation}
        self._asked = {on: SharedSplit.of(split) for on, split in splits.items()}
        if server := task.federation.server:
            one = np.array([0, len(server)])
            self._asked["server"] = SharedSplit.of(Split(server.x, server.y, one, server.attributes))
        preload = ["fedmerit.fleet.worker", type(task.learner).__module__]
        self._pool: Pool | Here = Pool(workers, preload) if workers > 1 else Here()
        self._worker: Worker | None = None
        self._personal: PersonalStore | None = None
        self._counts_losses, self._trains_local = False, False
        self._kept: dict[ClientId, Model] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the workers."""
        self._pool.close()

    def judges(self) -> Sequence[ClientId]:
        """Return all clients."""
        return range(len(self._names))

    def train(self, index: int, downloads: Mapping[ClientId, Download], facts: Sequence[str], seed: int) -> Replies:
        """Train every client from its download, those with most rows first; failed clients are listed with reasons."""
        ids = sorted(downloads)
        self._trains_local |= any(download.training.pull is not None for download in downloads.values())
        if self._trains_local or any(download.training.personal for download in downloads.values()):
            self._make_personal(max(len(download.model) for download in downloads.values()))
        sent = {c: downloads[c].model for c in ids if not (downloads[c].training.personal and self._has_personal(c))}
        extras = [vector for client in ids for vector in downloads[client].vectors.values()]
        vectors = list({id(vector): vector for vector in [*sent.values(), *extras]}.values())  # shared ones once
        slots = {id(vector): slot for slot, vector in enumerate(vectors)}
        worker = self._equip(vectors, len(ids))
        places = [
            Place(
                client,
                slots[id(sent[client])] if client in sent else PERSONAL,
                row,
                downloads[client].epochs,
                tuple((name, slots[id(vector)]) for name, vector in downloads[client].vectors.items()),
                downloads[client].lr,
                self._pulled(client, downloads[client].training, slots, sent),
            )
            for row, client in enumerate(ids)
        ]
        reported, seconds, failed = self._train_groups(places, tuple(facts), seed, index)
        self._book_personal(index, [place for place in places if place.client in reported], downloads)
        good = np.array([row for row, client in enumerate(ids) if client in reported], dtype=np.intp)
        updates, *extra_updates = [
            Updates(block.array[: len(ids)], good, block.release if block.on_disk else None)
            for block in (worker.updates, *worker.extras.values())
        ]
        trained = tuple(ids[row] for row in good)
        if any(download.uploads != "now" for download in downloads.values()):
            self._kept = dict(zip(trained, (updates.row(place) for place in range(len(trained))), strict=True))
            updates = Updates(np.empty((len(trained), 0), np.float32))
        return Replies(
            trained,
            updates,
            tuple(reported[client] for client in trained),
            failed,
            seconds,
            bytes_down=sum(vector.nbytes for vector in [*sent.values(), *extras]),
            bytes_up=sent_bytes((updates, *extra_updates), self._wire),
            vectors=dict(zip(worker.extras, extra_updates, strict=True)),
        )

    def upload(self, index: int, clients: Sequence[ClientId]) -> Iterator[tuple[ClientId, Model | str]]:
        """Yield the rows that the clients trained in this round."""
        for client in clients:
            yield client, self._kept.pop(client).astype(WIRES[self._wire], copy=False)
            if self._worker is not None and self._worker.updates.on_disk:
                self._worker.updates.release()  # a row that was added up takes no memory here

    def upload_masked(self, index: int, units: Mapping[ClientId, int], masking: Masking, length: int) -> MaskedTotal:
        """Add up integers without masks: on one machine there is nobody to hide updates from."""
        return add_unmasked(self.upload(index, list(units)), index, units, masking, length)

    def rows_of(self, clients: Sequence[ClientId]) -> Samples:
        """Return the training rows of these clients, for attackers that pool them."""
        split = self._train.split()
        rows = np.concatenate([np.arange(split.rows(client).start, split.rows(client).stop) for client in clients])
        return Samples(split.x[rows], split.y[rows], self._classes)

    def train_on(self, samples: Samples, download: Download, seed: int) -> Model:
        """Train in this process, and return the update."""
        vectors, epochs, lr = download.vectors, download.epochs, download.lr
        return train_clients(self._learner, [Job(download.model, samples, seed, epochs, vectors, lr)], ())[0].update

    def _pulled(
        self, client: ClientId, training: Training, slots: Mapping[int, int], sent: Mapping[ClientId, Model]
    ) -> tuple[int, float, bool] | None:
        """Row of the client's local model, at first that of the model sent, its pull, and whether it is sent back."""
        if training.pull is None:
            return None
        row = PERSONAL if self._has_personal(client) else slots[id(sent[client])]
        return row, training.pull, training.sends_local

    def _train_groups(
        self, places: Sequence[Place], names: tuple[str, ...], seed: int, index: int
    ) -> tuple[dict[ClientId, Facts], dict[ClientId, float], dict[ClientId, str]]:
        """Facts and seconds of trained clients, reasons of failed ones. Groups do not depend on the workers."""
        offsets = self._train.offsets.array
        work = {p: int(offsets[p.client + 1] - offsets[p.client]) * (p.epochs or 1) for p in places}
        largest_first = sorted(places, key=lambda place: (-work[place], place.client))
        size = group_size(self._learner)
        groups = [tuple(largest_first[start : start + size]) for start in range(0, len(places), size)]
        facts: dict[ClientId, Facts] = {}
        seconds: dict[ClientId, float] = {}
        failed: dict[ClientId, str] = {}
        while groups:
            jobs = [("train_clients", group, names, seed, index) for group in groups]
            groups = []
            for job, result in self._pool.map(jobs):
                group = job[1]
                if not isinstance(result, Failed):
                    for place, (reported, took) in zip(group, result, strict=True):
                        facts[place.client], seconds[place.client] = reported, took
                elif len(group) > 1:
                    groups += [(place,) for place in group]  # one client failed the group: repeat each separately
                else:
                    failed[group[0].client] = result.reason
        return facts, seconds, failed

    def send_rewards(
        self, index: int, rewards: Mapping[ClientId, SparseUpdate], acceptance: Acceptance
    ) -> Mapping[ClientId, Verdict]:
        """Let each client test its personal model without and with its reward, and accept or reject it."""
        personal = self._make_personal()
        verdicts = {client: Verdict(False, reason=self._wrong(client, rewards[client])) for client in rewards}
        good = [client for client in sorted(rewards) if not verdicts[client].reason]
        for start in range(0, len(good), AT_ONCE):
            batch = good[start : start + AT_ONCE]
            offered = [rewards[client].added_to(personal.rows.array[client]) for client in batch]
            self._equip(offered, 1)
            models = [(client, model) for slot, client in enumerate(batch) for model in (PERSONAL, slot)]
            accuracies = self._accuracy("validation", models)
            for slot, (client, model) in enumerate(zip(batch, offered, strict=True)):
                before, after = accuracies[client, PERSONAL], accuracies[client, slot]
                verdicts[client] = Verdict(acceptance(before, after), before, after)
                if verdicts[client].accepted:
                    personal.put(client, model, index)
        personal.release()
        return verdicts

    def _wrong(self, client: ClientId, reward: SparseUpdate) -> str:
        if not self._has_personal(client):
            return "it has no personal model for a reward"
        return wrong_reward(reward, self._make_personal().rows.array.shape[1])

    def _predict_server(self, models: Iterable[Model]) -> Predictions:
        """Evaluate a few models at a time, each in a separate job."""
        waiting, outputs = iter(models), list[Output]()
        while batch := list(islice(waiting, AT_ONCE)):
            self._equip(batch, 1)
            outputs += self._ask("answer", "server", [(0, slot) for slot in range(len(batch))]).values()
        rows = self._asked["server"].split().samples(0, self._classes)
        available = [chances for _, chances in outputs if chances is not None]
        probabilities = np.stack(available) if available else None
        predicted = np.stack([one for one, _ in outputs])
        return Predictions(rows.y, rows.classes, rows.attributes, predicted, probabilities, target_of(self._learner))

    def audit(
        self,
        model: Model,
        objectives: Sequence[Objective],
        *,
        personal: bool,
        on: AskedRows = "test",
        clients: Sequence[ClientId] | None = None,
    ) -> Mapping[ClientId, Mapping[str, float]]:
        """Run one job per client with such rows."""
        self._add_training_rows(on)
        self._equip([model], 1)
        sizes = np.diff(self._asked[on].offsets.array)
        asked = [client for client in (range(len(sizes)) if clients is None else clients) if sizes[client]]
        keys = [(client, PERSONAL if personal and self._has_personal(client) else 0) for client in asked]
        answers = self._ask("audit", on, keys, tuple(objectives))
        return {client: answers[client, slot] for client, slot in keys}

    def _add_training_rows(self, on: AskedRows) -> None:
        """Let workers test models on training rows; most runs do so only at the end, and the results need memory."""
        if on == "training" and on not in self._asked:
            self._asked, self._worker = {**self._asked, on: self._train}, None

    def _ask(self, kind: str, on: str, models: Sequence[ModelOf], *more: Any) -> dict[ModelOf, Any]:
        """Evaluate each client's model, personal or received, on the client's rows; in the order requested."""
        answers: dict[ModelOf, Any] = {}
        for job, result in self._pool.map([(kind, on, client, model, *more) for client, model in models]):
            if isinstance(result, Failed):
                whose = "the server" if on == "server" else f"client {self._names[job[2]]}"
                raise RunFailed(f"{whose} could not test a model: {result.reason}")
            answers[job[2], job[3]] = result
        return {key: answers[key] for key in models}

    def evaluate_personal(self, model: Model, on: SplitName = "test") -> Evaluation:
        """Run one job per client."""
        self._equip([model], 1)
        models = [(client, PERSONAL if self._has_personal(client) else 0) for client in range(len(self._names))]
        right = self._ask("count_right", on, models)
        return Evaluation(np.array(list(right.values())), np.diff(self._asked[on].offsets.array))

    def _accuracy(self, on: SplitName, models: Sequence[ModelOf]) -> dict[ModelOf, float]:
        """Accuracy of each client; NaN without rows."""
        sizes = np.diff(self._asked[on].offsets.array)
        right = self._ask("count_right", on, models)
        return {key: right[key] / int(sizes[key[0]]) if sizes[key[0]] else float("nan") for key in models}

    def save(self, run: Path, index: int) -> None:
        """Write the personal models that were stored in this round."""
        if self._personal is not None:
            self._personal.save(run, index)

    def load(self, run: Path, index: int) -> bool:
        """Restore the personal models after a round; False if one is damaged."""
        saved = saved_length(run)
        return True if saved is None else self._make_personal(saved).load(run, index)

    def _make_personal(self, length: int | None = None) -> PersonalStore:
        """Allocate rows for personal models on first use: most runs have none."""
        if self._personal is None:
            length = length or len(self._learner.start(0))
            taken = self._worker.updates.array.nbytes if self._worker else 0
            self._personal = PersonalStore(self._block(len(self._names), length, self._memory - taken))
        return self._personal

    def _has_personal(self, client: ClientId) -> bool:
        return self._personal is not None and client in self._personal

    def _book_personal(self, index: int, places: Sequence[Place], downloads: Mapping[ClientId, Download]) -> None:
        """Store the clients' personal models here, so that a worker that dies leaves nothing half done."""
        worker, personal = self._worker, self._personal
        if worker is None or personal is None:
            return
        for client, slot, row, *_ in places:
            if downloads[client].training.pull is not None and worker.local_model is not None:
                personal.put(client, worker.local_model.array[row], index)
                continue
            start = personal.rows.array[client] if slot == PERSONAL else worker.models.array[slot]
            if downloads[client].training.personal == "keep":
                personal.put(client, start + worker.updates.array[row], index)
            elif downloads[client].training.personal == "reset" and slot != PERSONAL:
                personal.put(client, start, index)
        personal.release()

    def evaluate(
        self,
        models: Sequence[Model],
        on: AskedRows = "test",
        clients: Sequence[ClientId] | None = None,
        *,
        losses: bool = False,
    ) -> Sequence[Evaluation]:
        """Use one pass over the clients' rows per model, then a count per client; no loop over clients."""
        mask = None
        if clients is not None:
            mask = np.zeros(len(self._names), dtype=np.bool_)
            mask[list(clients)] = True
        parts = (models[start : start + AT_ONCE] for start in range(0, len(models), AT_ONCE))
        return [one for part in parts for one in self._evaluate(part, on, mask, losses)]

    def _evaluate(
        self, models: Sequence[Model], on: AskedRows, mask: NDArray[np.bool_] | None, losses: bool
    ) -> list[Evaluation]:
        """Evaluate as many models as fit in shared memory."""
        self._counts_losses |= losses
        self._add_training_rows(on)
        worker = self._equip(models, 1)
        offsets = self._asked[on].offsets.array
        jobs = [("test_rows", on, len(models), job, losses) for job in _testing_jobs(offsets, mask)]
        for _, result in self._pool.map(jobs):
            if isinstance(result, Failed):
                raise RunFailed(f"testing failed: {result.reason}")
        everybody = np.ones(len(offsets) - 1, np.int64) if mask is None else mask.astype(np.int64)
        correct, sizes = _per_client(worker.right, len(models), offsets), np.diff(offsets) * everybody
        if not losses:
            return [Evaluation(row * everybody, sizes) for row in correct]
        assert worker.losses is not None  # `_equip` allocated it
        summed = _per_client(worker.losses, len(models), offsets) * everybody * LOSS_UNIT
        return [Evaluation(row * everybody, sizes, of_rows) for row, of_rows in zip(correct, summed, strict=True)]

    def _equip(self, models: Sequence[Model], rows: int) -> Worker:
        """Copy the models to shared rows; enlarge these if they do not suffice."""
        worker, personal = self._worker, self._personal.rows if self._personal else None
        if (
            worker is None
            or len(worker.models.array) < len(models)
            or len(worker.updates.array) < rows
            or worker.personal is not personal
            or (self._counts_losses and worker.losses is None)
            or (self._trains_local and worker.local_model is None)
        ):
            own = len(self._learner.start(0)) if personal is None else personal.array.shape[1]
            length = len(models[0]) if models else own
            rows = max(rows, len(worker.updates.array) if worker else 0)
            slots = max(len(models), 1, len(worker.models.array) if worker else 0)
            tested = (slots, max(len(split.y.array) for split in self._asked.values()))
            worker = Worker(
                self._learner,
                self._classes,
                self._train,
                self._asked,
                models=Block((slots, length), np.float32),
                updates=self._block(rows, length, self._memory),
                extras={name: self._block(rows, length, self._memory) for name in extra_names(self._learner)},
                right=Block(tested, np.bool_),
                losses=Block(tested, np.int32) if self._counts_losses else None,
                personal=personal,
                local_model=self._block(rows, length, self._memory) if self._trains_local else None,
                attackers=self.attackers,
                own=self._own,
                wire=self._wire,
            )
            self._pool.equip(worker)
            self._worker = worker
        for slot, model in enumerate(models):
            worker.models.array[slot] = model
        return worker

    def _block(self, rows: int, length: int, budget: int) -> Block:
        return Block.of_updates(rows, length, budget, self._spill_to)


def _per_client(rows: Block, models: int, offsets: NDArray[np.int64]) -> NDArray[np.int64]:
    """Sum over each client's rows, for each model."""
    counts = np.zeros((models, offsets[-1] + 1), dtype=np.int64)
    np.cumsum(rows.array[:models, : offsets[-1]], axis=1, out=counts[:, 1:])
    return np.diff(counts[:, offsets], axis=1)


def _testing_jobs(offsets: NDArray[np.int64], mask: NDArray[np.bool_] | None) -> list[tuple[Rows, ...]]:
    """Ranges of rows to test together: neighbours joined, long ones cut, short ones combined up to TEST_ROWS.

    They depend only on the clients asked, never on the workers, so that the bits are the same.
    """
    edges = np.array([0, len(offsets) - 1])
    if mask is not None:
        edges = np.flatnonzero(np.diff(np.concatenate([[False], mask, [False]]).astype(np.int8)))
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
