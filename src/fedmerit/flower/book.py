"""The book of a Flower strategy: who the nodes are, and the run's folder with ledger, checkpoints and model.

Flower numbers nodes at random, with 19 digits. A book gives each a client's number and a name, and keeps them: a node
stays who it is while it lives, and after the ServerApp was started again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmerit.core.learner import NamedTensors
from fedmerit.core.recipe import Recipe
from fedmerit.core.recipe_json import part_to_json
from fedmerit.core.state import Record, State
from fedmerit.core.types import ClientId, Evaluation, Note, Replies
from fedmerit.engine.loop import newest_state
from fedmerit.errors import ConfigError, FolderError
from fedmerit.store.files import write_new_file
from fedmerit.store.ledger import Ledger
from fedmerit.store.model_files import write_checkpoint, write_model
from fedmerit.store.reasons import why
from fedmerit.store.run_folder import LEDGER, MODEL, check_versions, held, make_folder, recipe_meta

PARTITION = "partition-id"
"""The metric by which a node says which of the names is its."""
NODES = "nodes.json"
"""The file of the folder that says which client each node is."""

Names = Sequence[str] | Mapping[int, str]


class Book:
    """Names for nodes, and a ledger of their rounds: in the folder `out`, or in memory without one.

    names   a name for each `partition-id`, which nodes then report; or names by Flower's numbers of the nodes. Who is
            in none of them is called `node 1`, `node 2` ... in the order of arrival

    A folder in which a run was begun is continued: `state` is where it stands, and `done` its last round.
    """

    def __init__(self, out: Path | None, recipe: Recipe, settings: Mapping[str, Any], names: Names = ()) -> None:
        self._out, self._held = out, ExitStack()
        self._given: Mapping[int, str] = names if isinstance(names, Mapping) else {}
        self.names: list[str] = [] if isinstance(names, Mapping) else list(names)
        self._by_claim = bool(self.names)
        if not all(isinstance(name, str) for name in (*self.names, *self._given.values())):
            raise ConfigError(f"names are texts, one per partition-id or by node number; got {names!r:.80}")
        if len(set(self.names)) != len(self.names) or len(set(self._given.values())) != len(self._given):
            raise ConfigError("names tell nodes apart, and two are the same")
        self._clients: dict[int, ClientId] = {}
        self.state: State | None = None
        self._open(recipe, settings)

    def _open(self, recipe: Recipe, settings: Mapping[str, Any]) -> None:
        form = part_to_json(recipe)
        if self._out is None:
            self.ledger = Ledger.create(None, self.names, recipe_meta(form))
            return
        told = json.dumps({"recipe": json.loads(form), **settings})
        if not self._out.exists():
            make_folder(self._out, told, self.names, form)
        self.ledger = Ledger.open(self._out / LEDGER, write=True)
        self._held.enter_context(held(self._out, LEDGER))  # until this process ends
        meta = self.ledger.meta()
        if meta.get("settings") != told:
            raise FolderError(f"{self._out} holds another run: its recipe or settings differ; choose another `out`")
        check_versions(self._out, meta)
        kept = self.ledger.names()
        if self._by_claim and kept != self.names:
            raise FolderError(
                f"{self._out} holds a run of other names, {', '.join(kept[:5])}; give these, or a new `out`"
            )
        self.names = kept
        if (self._out / NODES).is_file():
            kept_nodes = json.loads((self._out / NODES).read_text(encoding="utf-8"))
            self._clients = {int(node): client for node, client in kept_nodes.items()}
        self.state = newest_state(self._out, self.ledger, recipe)

    @property
    def done(self) -> int:
        """The last round that is kept; 0 before the first."""
        return 0 if self.state is None else self.state.history.rounds

    def clients_of(self, nodes: Iterable[int]) -> dict[int, ClientId]:
        """The clients that these nodes are, as far as they are known."""
        return {node: self._clients[node] for node in nodes if node in self._clients}

    def by_client(self, replies: Replies) -> tuple[Replies, dict[ClientId, int], dict[int, str]]:
        """Replies by client in place of nodes; the nodes of those; and who failed without being known."""
        failed: dict[ClientId, str] = {}
        strangers: dict[int, str] = {}
        rows: dict[ClientId, int] = {}
        for row, (node, facts) in enumerate(zip(replies.ids, replies.facts, strict=True)):
            try:
                client = self._meet(node, facts.get(PARTITION))
                if client in rows:
                    raise ValueError(f"another node of this round is {self.names[client]}, too")
                rows[client] = row
            except ValueError as error:
                strangers[node] = str(error)
        for node, reason in replies.failed.items():
            known = self._clients.get(node) if self._by_claim else self._meet(node, None)
            if known is None or known in rows:
                strangers[node] = reason
            else:
                failed[known] = reason
        ids = tuple(sorted(rows))
        places = np.array([rows[client] for client in ids], dtype=np.intp)
        facts_by_client = tuple(replies.facts[place] for place in places)
        translated = replace(
            replies, ids=ids, updates=replies.updates.keep(places), facts=facts_by_client, failed=failed, seconds={}
        )
        return translated, {client: replies.ids[rows[client]] for client in ids}, strangers

    def _meet(self, node: int, claim: Any) -> ClientId:
        """Which client the node is; it stays that one."""
        if node in self._clients:
            return self._clients[node]
        if self._by_claim:
            if not isinstance(claim, int) or not 0 <= claim < len(self.names):
                raise ValueError(f"a node tells its place among {len(self.names)} names by the metric {PARTITION!r}")
            client = claim
        else:
            client = len(self.names)
            self.names.append(self._given.get(node, f"node {client + 1}"))
        self._clients = {other: place for other, place in self._clients.items() if place != client} | {node: client}
        return client

    def keep(
        self, state: State, record: Record, arrays: Mapping[str, NDArray[Any]], strangers: Mapping[int, str]
    ) -> Record:
        """A round: first the models, then the ledger. `arrays` are the model by its names; the record as it is kept."""
        unknown = (
            Note("stranger", str(node), f"node {node}, which is none of the names, was left out: {reason}")
            for node, reason in sorted(strangers.items())
        )
        record = replace(record, notes=(*record.notes, *unknown))
        for client in range(len(self.ledger.names()), len(self.names)):
            self.ledger.add_client(client, self.names[client])
        if self._out is not None:
            write_new_file(self._out / NODES, json.dumps(self._clients))
            write_checkpoint(self._out, state, self.ledger.identity())
            write_model(self._out / MODEL, state.model, record.index, NamedTensors(arrays, tuple(arrays)))
        self.ledger.append(record)
        return record

    def amend(self, record: Record, tests: Mapping[int, tuple[int, int]]) -> Record:
        """The last round once more, with the nodes' tests of its model: right rows and rows, by node."""
        right, sizes = np.zeros((2, len(self.names)), dtype=np.int64)
        for node, client in self.clients_of(tests).items():
            right[client], sizes[client] = tests[node]
        record = replace(record, evaluation=Evaluation(right, sizes))
        self.ledger.append(record, again=True)
        return record

    def reasons(self) -> list[str]:
        """Why each client of the last round got its weight, a line each, the heaviest first."""
        return why(self.ledger).splitlines()
