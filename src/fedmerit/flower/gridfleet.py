"""A fleet over a Flower Grid: one exchange per stage, each reply checked and given to the client it belongs to."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from flwr.app import Message, RecordDict
from flwr.common.constant import ErrorCode
from flwr.serverapp import Grid

from fedmerit.core.learner import LayeredLearner, Learner, ProbabilisticLearner
from fedmerit.core.objectives import Objective, Predictions
from fedmerit.core.rewards import Acceptance
from fedmerit.core.types import (
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
from fedmerit.core.updates import Updates
from fedmerit.errors import ConfigError, RunFailed
from fedmerit.fleet.blocks import Block
from fedmerit.fleet.personal import PersonalModels, any_saved
from fedmerit.flower.records import (
    AUDIT,
    EVALUATE,
    HELLO,
    REWARD,
    REWARDED,
    TRAIN,
    TRAINED,
    Unfit,
    counts,
    numbers,
    pack,
    part_arrays,
    setting,
    tag_of,
    vector,
    verdict,
)

POLL = 0.2
"""Seconds between looks for replies."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """What came of one exchange: contents by client, reasons of who failed, seconds each took."""

    contents: Mapping[ClientId, RecordDict]
    failed: Mapping[ClientId, str]
    seconds: Mapping[ClientId, float]
    gone: Sequence[ClientId] = ()
    """Those of the failed whose node is gone, says the grid."""


@dataclass
class GridFleet:
    """The clients of a federation on Flower; client i is the node whose partition-id is i.

    The server needs the learner (for the first model and to score models on rows of its own), the clients' names and,
    for server validation, its own rows. Clients keep their own models in the state of their nodes; the server keeps
    copies, made of the updates that it saw, for nodes that lost theirs and for a run that is gone on with.
    """

    grid: Grid
    learner: Learner
    client_names: Sequence[str]
    server: Samples | None = None
    timeout: float = 3600.0
    nodes: dict[ClientId, int] = field(default_factory=dict)
    copies: PersonalModels | None = None
    tags: dict[ClientId, int] = field(default_factory=dict)
    """Which state of its own model each client should have, and which it says it has; see `records.tag_of`."""
    told: dict[ClientId, int] = field(default_factory=dict)

    def names(self) -> Sequence[str]:
        """The clients' names."""
        return self.client_names

    def start(self, seed: int) -> Model:
        """The learner's first model."""
        return self.learner.start(seed)

    def layers(self) -> Sequence[int]:
        """The learner's, or one where it does not know."""
        return self.learner.layers if isinstance(self.learner, LayeredLearner) else (len(self.learner.start(0)),)

    def meet(self, at_least: int = 1, patience: float = 60.0) -> None:
        """Find out which client each connected node is; wait until at least so many are there."""
        ends = time.monotonic() + patience
        while True:
            self._ask_new_nodes()
            if len(self.nodes) >= at_least:
                return
            if time.monotonic() > ends:
                raise RunFailed(f"{len(self.nodes)} of {at_least} clients came within {patience:g} s")
            time.sleep(POLL)

    def _ask_new_nodes(self) -> None:
        """Nodes that are gone are forgotten; new ones say who they are."""
        connected = set(self.grid.get_node_ids())
        self.nodes = {client: node for client, node in self.nodes.items() if node in connected}
        new = sorted(connected - set(self.nodes.values()))
        for node, content in self._send({node: (node, pack(config={})) for node in new}, HELLO).contents.items():
            try:
                client, tag = setting(content, "client", int), setting(content, "own", int)
            except Unfit:
                continue
            if 0 <= client < len(self.client_names):
                self.nodes[client], self.told[client] = node, tag

    def train(self, index: int, parcels: Mapping[ClientId, Download], needs: Sequence[str], seed: int) -> Replies:
        """One message per client; a model goes only to who has none of its own."""
        self._ask_new_nodes()
        starts = {c: self._own(c, parcel.model) if parcel.own else parcel.model for c, parcel in parcels.items()}
        sent = {client for client, parcel in parcels.items() if not (parcel.own and self._has_own(client))}
        contents = {}
        for client, parcel in sorted(parcels.items()):
            config = {"round": index, "seed": seed, "epochs": parcel.epochs or 0, "own": parcel.own or ""}
            model = {"model": starts[client]} if client in sent else {}
            contents[client] = pack(model, config | {"needs": list(needs)})
        length = len(next(iter(parcels.values())).model) if parcels else 0
        for client in contents:
            self.told.pop(client, None)  # its own model may change now; unless it answers, we do not know
        found = self._ask(contents, TRAIN)
        rows, failed, told = {}, dict(found.failed), {}
        for client, content in found.contents.items():
            try:
                update, tag = vector(content, "update", length), setting(content, "own", int)
            except Unfit as error:
                failed[client] = str(error)
                continue
            rows[client], told[client], self.told[client] = update, numbers(content), tag
        ids = tuple(sorted(rows))
        matrix = np.stack([rows[client] for client in ids]) if ids else np.empty((0, length), dtype=np.float32)
        updates = Updates(matrix)
        for client in ids:
            if parcels[client].own == "keep":
                self._book(client, starts[client] + rows[client], index, TRAINED)
            elif parcels[client].own == "reset" and client in sent:
                self._book(client, starts[client], index, TRAINED)
        down = sum(starts[client].nbytes for client in sent)
        return Replies(ids, updates, tuple(told[client] for client in ids), failed, found.seconds, down, updates.nbytes)

    def reward(
        self, index: int, parts: Mapping[ClientId, SparseUpdate], acceptance: Acceptance
    ) -> Mapping[ClientId, Verdict]:
        """Each client tests its own model without and with its part."""
        config = {"round": index, "sigma": float(acceptance.sigma)}
        found = self._ask({client: pack(part_arrays(part), config) for client, part in parts.items()}, REWARD)
        verdicts = {client: Verdict(False, reason=reason) for client, reason in found.failed.items()}
        for client, content in found.contents.items():
            verdicts[client] = verdict(content)
            if verdicts[client].accepted and self.copies is not None:
                self._book(client, parts[client].added_to(self.copies.rows.array[client]), index, REWARDED)
        for client in found.failed:
            self.told.pop(client, None)
        self.told |= {client: self.tags[client] for client in found.contents if client in self.tags}
        return verdicts

    def evaluate(
        self, models: Sequence[Model], on: SplitName = "test", clients: Sequence[ClientId] | None = None
    ) -> Sequence[Evaluation]:
        """All models in one message per client; who does not answer counts as without rows."""
        asked = range(len(self.client_names)) if clients is None else clients
        arrays = {str(place): model for place, model in enumerate(models)}
        config = {"on": on, "models": len(models)}
        return self._tested({client: pack(arrays, config) for client in asked}, len(models))

    def evaluate_personal(self, model: Model, on: SplitName = "test") -> Evaluation:
        """Each client its own model; one is sent along to who has none."""
        config = {"on": on, "models": 1}
        contents = {
            client: pack({} if self._has_own(client) else {"0": self._own(client, model)}, config)
            for client in range(len(self.client_names))
        }
        return self._tested(contents, 1)[0]

    def _tested(self, contents: Mapping[ClientId, RecordDict], models: int) -> list[Evaluation]:
        right = np.zeros((models, len(self.client_names)), dtype=np.int64)
        sizes = np.zeros(len(self.client_names), dtype=np.int64)
        for client, content in self._ask(contents, EVALUATE).contents.items():
            try:
                correct, (size,) = counts(content, "correct", models), counts(content, "size", 1)
            except Unfit:
                continue
            if max(correct) <= size:
                right[:, client], sizes[client] = correct, size
        return [Evaluation(row, sizes) for row in right]

    def has_server_rows(self) -> bool:
        """Whether the server was given some."""
        return self.server is not None

    def validate(self, models: Iterable[Model]) -> Predictions:
        """Scored here: the server's rows never leave it."""
        rows, learner = self.server, self.learner
        if rows is None:
            raise ConfigError("the server has no rows to score models on; set task.server = 1000")
        predicted, chances = [], []
        for model in models:
            predicted.append(learner.predict(model, rows.x))
            chances += [learner.predict_proba(model, rows.x)] if isinstance(learner, ProbabilisticLearner) else []
        known = np.stack(chances) if chances else None
        return Predictions(rows.y, rows.classes, rows.attributes, np.stack(predicted), known)

    def audit(
        self, model: Model, objectives: Sequence[Objective], *, own: bool
    ) -> Mapping[ClientId, Mapping[str, float]]:
        """Clients measure and send the numbers alone."""
        names = [objective.name for objective in objectives]
        config, contents = {"objectives": names}, {}
        for client in range(len(self.client_names)):
            asked = self._own(client, model) if own else model
            contents[client] = pack({} if own and self._has_own(client) else {"model": asked}, config)
        found = {client: numbers(content) for client, content in self._ask(contents, AUDIT).contents.items()}
        return {
            client: {name: float(said[name]) for name in names}
            for client, said in sorted(found.items())
            if all(isinstance(said.get(name), float | int) for name in names)
        }

    def save(self, run: Path, round: int) -> None:
        """The copies of what clients kept in this round."""
        if self.copies is not None:
            self.copies.save(run, round)

    def load(self, run: Path, round: int) -> bool:
        """The copies as they were after a round; whatever clients have now, they are sent these."""
        if not any_saved(run):
            return True
        self.tags = {}
        return self._make_copies(len(self.learner.start(0))).load(run, round)

    def _make_copies(self, length: int) -> PersonalModels:
        """Rows for the copies, made when first asked for: most runs have none."""
        if self.copies is None:
            self.copies = PersonalModels(Block((len(self.client_names), length), np.float32))
        return self.copies

    def _book(self, client: ClientId, model: Model, index: int, stage: int) -> None:
        """As the client does it: a model that ran away is not kept."""
        if self._make_copies(len(model)).put(client, model, index):
            self.tags[client] = tag_of(index, stage)

    def _has_own(self, client: ClientId) -> bool:
        """Whether the client has the own model that it should have; one whose answer was lost has another."""
        return client in self.tags and self.told.get(client) == self.tags[client]

    def _own(self, client: ClientId, otherwise: Model) -> Model:
        """The client's own model as we know it, or another where it has none."""
        copies = self.copies
        return otherwise if copies is None or client not in copies else np.array(copies.rows.array[client])

    def _ask(self, contents: Mapping[ClientId, RecordDict], kind: str) -> Exchange:
        """One message for each client that is connected."""
        there = {c: (self.nodes[c], content) for c, content in contents.items() if c in self.nodes}
        found = self._send(there, kind)
        for client in found.gone:
            del self.nodes[client]  # not asked again, and waited for, before it is back
        away = {client: "its node is not connected" for client in contents if client not in there}
        return Exchange(found.contents, {**away, **found.failed}, found.seconds)

    def _send(self, contents: Mapping[int, tuple[int, RecordDict]], kind: str) -> Exchange:
        """Push, then pull until all have answered or time is up; replies belong to the message they reply to."""
        messages = [Message(content, dst_node_id=node, message_type=kind) for node, content in contents.values()]
        begun = time.monotonic()
        ids = list(self.grid.push_messages(messages)) if messages else []
        waiting = {name: key for name, key in zip(ids, contents, strict=False) if name}
        got: dict[int, RecordDict] = {}
        failed = {key: "its message could not be sent" for key in contents if key not in waiting.values()}
        seconds: dict[int, float] = {}
        gone: list[int] = []
        while waiting:
            replies = list(self.grid.pull_messages(list(waiting)))
            for reply in replies:
                key = waiting.pop(reply.metadata.reply_to_message_id, None)
                if key is None:
                    continue  # not an answer to anything that is open: late, repeated or made up
                seconds[key] = time.monotonic() - begun
                if reply.has_error():
                    failed[key] = f"its node answered with an error: {reply.error.reason or reply.error.code}"
                    gone += [key] if reply.error.code == ErrorCode.NODE_UNAVAILABLE else []
                else:
                    got[key] = reply.content
            if not replies and time.monotonic() - begun > self.timeout:
                break
            if waiting and not replies:
                time.sleep(POLL)
        failed |= dict.fromkeys(waiting.values(), f"no answer within {self.timeout:g} s")
        return Exchange(got, failed, seconds, gone)
