"""The run folder of a Flower strategy: client numbers of nodes, ledger, checkpoints and model.

Flower gives nodes random ids of 19 digits. A RunWriter assigns each node a client number and a name, which stay the
same while the node is connected, also if the ServerApp restarts.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import ArrayRecord

from fedmerit.core.learner import NamedTensors
from fedmerit.core.recipe import Recipe
from fedmerit.core.recipe_json import part_to_json
from fedmerit.core.showing import printable
from fedmerit.core.state import SERVER, Record, State
from fedmerit.core.types import EMPTY, ClientId, Evaluation, Note, Replies
from fedmerit.engine.loop import newest_state
from fedmerit.errors import ConfigError, FolderError
from fedmerit.store.files import write_new_file
from fedmerit.store.ledger import Ledger
from fedmerit.store.model_files import write_checkpoint, write_model
from fedmerit.store.run_folder import APP, LEDGER, MODEL, check_versions, held, make_folder, named_form, recipe_meta

PARTITION = "partition-id"
"""The metric in which a node reports its index in the list of names."""
NODES = "nodes.json"
"""The file with the client of each node."""


class RunWriter:
    """Assign client numbers to nodes, and write their rounds to the folder `out`, or to memory if it is None.

    names   a name per `partition-id`, which nodes then report; without names, they are called `node 1`, `node 2`, ...
            in the order of arrival

    If the folder exists, its run is resumed: `state` is its newest state, and `done` its last round.
    """

    def __init__(
        self, out: Path | None, recipe: Recipe, settings: Mapping[str, Any], names: Sequence[str] = ()
    ) -> None:
        self.names, self.by_claim = list(names), bool(names)
        if not all(isinstance(name, str) and name.strip() for name in names):
            raise ConfigError(
                f"names must be a list of texts, one per partition-id (got {names!r:.80}); name each node"
            )
        if len(set(names)) != len(names):
            raise ConfigError(f"names of nodes must differ (got {names!r:.80}); rename one")
        self._out, self._lock = out, ExitStack()
        self._clients: dict[int, ClientId] = {}
        self.state: State | None = None
        form = part_to_json(recipe)
        if out is None:
            self.ledger = Ledger.create(None, self.names, recipe_meta(form))
        else:
            self._open(out, recipe, form, json.dumps({"recipe": named_form(recipe), **settings}))

    def _open(self, out: Path, recipe: Recipe, form: str, settings: str) -> None:
        """Make the folder, or resume the run in it."""
        if not out.exists():
            make_folder(out, settings, self.names, form)
        self.ledger = Ledger.open(out / LEDGER, write=True)
        self._lock.enter_context(held(out, LEDGER))  # until this process ends
        meta, names = self.ledger.meta(), self.ledger.names()
        if meta.get("settings") != settings:
            raise FolderError(f"{out} has a run with another recipe or other settings; choose another `out`")
        check_versions(out, meta)
        if self.by_claim and names != self.names:
            raise FolderError(
                f"{out} has a run with other client names ({', '.join(names[:5])}); use these names, or another `out`"
            )
        self.names = names
        if (out / NODES).is_file():
            clients = json.loads((out / NODES).read_text(encoding="utf-8"))
            self._clients = {int(node): client for node, client in clients.items()}
        self.state = newest_state(out, self.ledger, recipe)

    @property
    def done(self) -> int:
        """The last round in the folder when this process started; 0 for a new run."""
        return 0 if self.state is None else self.state.history.rounds

    def clients_of(self, nodes: Iterable[int]) -> dict[int, ClientId]:
        """The client of each node; with a list of names, only of nodes that have reported their partition-id."""
        if not self.by_claim:
            return {node: self._identify(node) for node in sorted(nodes)}
        return {node: self._clients[node] for node in nodes if node in self._clients}

    def name_of(self, node: int) -> str:
        """The name of a node's client, or its id if it is not a client."""
        return self.names[self._clients[node]] if node in self._clients else f"node {node}"

    def describe(self, app: str) -> None:
        """Note the name of the Flower app, once, for the title of the report."""
        if app and APP not in self.ledger.meta():
            self.ledger.describe(APP, printable(app, 80))

    def by_client(self, replies: Replies) -> tuple[Replies, dict[ClientId, int], dict[int, str]]:
        """Convert replies by node to replies by client.

        Returns the replies, the node of each client, and the nodes that are not a client, with the reason.
        """
        failed: dict[ClientId, str] = {}
        strangers: dict[int, str] = {}
        rows: dict[ClientId, int] = {}
        for row, (node, facts) in enumerate(zip(replies.ids, replies.facts, strict=True)):
            try:
                client = self._identify(node, facts.get(PARTITION))
                if client in rows:
                    raise ValueError(f"another node of this round also reported to be {self.names[client]}")
                rows[client] = row
            except ValueError as error:
                strangers[node] = str(error)
        clients = self.clients_of(replies.failed)
        for node, reason in replies.failed.items():
            if node not in clients or clients[node] in rows:
                strangers[node] = reason
            else:
                failed[clients[node]] = reason
        ids = tuple(sorted(rows))
        places = np.array([rows[client] for client in ids], dtype=np.intp)
        facts_of = tuple(replies.facts[place] for place in places)
        by_client = replace(replies, ids=ids, updates=replies.updates.keep(places), facts=facts_of, failed=failed)
        return by_client, {client: replies.ids[rows[client]] for client in ids}, strangers

    def _identify(self, node: int, claim: Any = None) -> ClientId:
        """Return the client of a node; assign one to a new node."""
        if node in self._clients:
            return self._clients[node]
        if self.by_claim:
            if not isinstance(claim, int) or not 0 <= claim < len(self.names):
                raise ValueError(
                    f"metric {PARTITION!r} must be a whole number from 0 to {len(self.names) - 1} (got {claim!r:.80}); "
                    f'report "{PARTITION}": context.node_config["{PARTITION}"]'
                )
            client = claim
        else:
            client = len(self.names)
            self.names.append(f"node {client + 1}")
        # a client that reconnects has a new node id, which replaces the old one
        self._clients = {other: place for other, place in self._clients.items() if place != client} | {node: client}
        return client

    def write(self, state: State, record: Record, arrays: ArrayRecord, strangers: Mapping[int, str]) -> Record:
        """Write a round: first the models, then the ledger; return the record with a note on each unknown node.

        `arrays` is the model under the names that the app uses.
        """
        notes = (
            Note("stranger", str(node), f"node {node}, which is not a named client, was left out: {reason}")
            for node, reason in sorted(strangers.items())
        )
        record = replace(record, notes=(*record.notes, *notes))
        for client in range(len(self.ledger.names()), len(self.names)):
            self.ledger.add_client(client, self.names[client])
        files: dict[str, str] = {}
        if self._out is not None:
            write_new_file(self._out / NODES, json.dumps(self._clients))
            files = write_checkpoint(self._out, state, self.ledger.identity())
            named = {name: array.numpy() for name, array in arrays.items()}
            files[MODEL] = write_model(self._out / MODEL, state.model, record.index, NamedTensors(named, tuple(named)))
        self.ledger.append(record, files=files)
        return record

    def amend(
        self,
        record: Record,
        tests: Mapping[int, tuple[int, int, float]],
        metrics: Mapping[int, Mapping[str, float]],
        server: Mapping[str, float] = EMPTY,
    ) -> Record:
        """Add tests to the last round: (correct rows, rows, loss) and metrics by node, and the server's metrics."""
        correct, sizes = np.zeros((2, len(self.names)), dtype=np.int64)
        for node, client in self.clients_of(tests).items():
            correct[client], sizes[client], _ = tests[node]
        evaluation = Evaluation(correct, sizes) if tests else record.evaluation
        audit = {client: metrics[node] for node, client in self.clients_of(metrics).items()}
        audit |= {SERVER: server} if server else {}
        record = replace(record, evaluation=evaluation, audit={**record.audit, **audit})
        self.ledger.append(record, again=True)
        return record
