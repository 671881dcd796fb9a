"""GridFleet: run a federation on a Flower Grid, one exchange of messages per stage of a round."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from flwr.app import Array, Message, RecordDict
from flwr.serverapp import Grid

from fedmerit.core.attacks.attack import NOBODY, Attackers
from fedmerit.core.collect.masking import MaskedTotal, Masking
from fedmerit.core.collect.wait import Wait
from fedmerit.core.host import ServerSetup
from fedmerit.core.learner import LOSS_UNIT, base_hash, wrong_base
from fedmerit.core.models.rewards import Acceptance
from fedmerit.core.objectives import Objective
from fedmerit.core.reasons import called
from fedmerit.core.seeds import attack_seed, train_seed
from fedmerit.core.types import (
    AskedRows,
    ClientId,
    Download,
    Evaluation,
    Model,
    Replies,
    SparseUpdate,
    SplitName,
    Verdict,
)
from fedmerit.core.updates import Updates
from fedmerit.errors import ConfigError, RunFailed
from fedmerit.fleet.blocks import Block
from fedmerit.fleet.client import WIRES, extra_names, sent_bytes
from fedmerit.fleet.personal import PersonalStore, saved_length
from fedmerit.flower.admission import Admission, Enrolment
from fedmerit.flower.grid import (
    POLL_SECONDS,
    Exchange,
    answered_late,
    exchange,
    exchange_in_order,
    pull,
    push,
)
from fedmerit.flower.messages import (
    AUDIT,
    EVALUATE,
    HELLO,
    REWARD,
    REWARDED,
    TRAIN,
    TRAINED,
    UPLOAD,
    VECTOR,
    array,
    arrays_in,
    audited,
    evaluation,
    models_as_records,
    numbers,
    pack,
    read_array,
    read_replies,
    setting,
    tag_of,
    to_array,
    verdict,
)
from fedmerit.flower.secure_sum import SignedKeys, masked_total, signed_keys

log = logging.getLogger("flwr")
Claim: TypeAlias = tuple[ClientId, int, str]
"""What a node answers to hello: its client, the version of its personal model, the hash of its base."""
NO_PULL = (
    "recipes ditto and fedamp, where clients train a local model near the one sent, do not run on Flower; "
    'use `fedmerit run`, or recipe "finetuned"'
)
"""The error for models that need pulled training."""


@dataclass
class GridFleet:
    """The clients of a federation on Flower; client i is the node whose partition-id is i.

    `server` is the server's part of the task: client names, learner and the server's own rows. Nodes store the personal
    models of their clients. The server stores copies, computed from the updates that it received, for nodes that lost
    their state and for a resumed run.
    """

    grid: Grid
    server: ServerSetup
    timeout: float = 3600.0
    wait: Wait | None = None
    """How long an exchange waits for all clients; a late client gets no message before its answer arrives."""
    enrolment: Enrolment | None = None
    attackers: Attackers = NOBODY
    """Simulated attackers; coalitions act in the collector (`Attacked`), all other attackers on their nodes."""
    wire: str = "float32"
    """The type of the numbers that clients send, a key of `WIRES`."""
    nodes: dict[ClientId, int] = field(default_factory=dict)
    copies: PersonalStore | None = None
    tags: dict[ClientId, int] = field(default_factory=dict)
    """The version of the personal model that each client should have (`tag_of`)."""
    reported_tags: dict[ClientId, int] = field(default_factory=dict)
    """The version of the personal model that each client last reported."""
    unidentified: Mapping[int, str] = field(default_factory=dict)
    """Nodes that did not report their client at the last scan, and what they answered instead."""

    def __post_init__(self) -> None:
        self.admission = Admission(self.enrolment)
        self.late: dict[ClientId, tuple[int, str]] = {}  # node and id of each unanswered message
        self.keys: dict[ClientId, SignedKeys] = {}

    def judges(self) -> Sequence[ClientId]:
        """The clients that are connected."""
        return sorted(self.nodes)

    def meet(self, at_least: int = 1, patience: float = 60.0) -> None:
        """Wait up to `patience` seconds until at least this many clients are connected."""
        ends = time.monotonic() + patience
        while True:
            self._identify_new_nodes()
            if len(self.nodes) >= at_least:
                return
            if time.monotonic() > ends:
                why = "".join(f"; a node reported: {reason}" for reason in sorted(set(self.unidentified.values()))[:3])
                absent = [called(name) for client, name in enumerate(self.server.names) if client not in self.nodes]
                raise RunFailed(
                    f"only {len(self.nodes)} of {at_least} clients connected within {patience:g} s{why}; missing: "
                    f"{', '.join(absent[:10])}"
                )
            time.sleep(POLL_SECONDS)

    def _identify_new_nodes(self) -> None:
        """Forget disconnected nodes, and ask new nodes which client they are."""
        connected = set(self.grid.get_node_ids())
        self.nodes = {client: node for client, node in self.nodes.items() if node in connected}
        self.admission.look(connected)
        new = sorted(connected - set(self.nodes.values()) - self.admission.mute.keys())
        result = exchange(self.grid, {node: (node, pack(config={})) for node in new}, HELLO, self.timeout, _hello)
        self.admission.mark_mute(result.mute)
        self.unidentified = {**result.failed, **self._admit(result.answers)}

    def _admit(self, answers: Mapping[int, Claim]) -> Mapping[int, str]:
        """Admit nodes by their claim, and by their key if clients are enrolled; return those with another base."""
        claims = {node: claim for node, claim in answers.items() if 0 <= claim[0] < len(self.server.names)}
        base, other_bases = base_hash(self.server.learner), dict[int, str]()
        needs_keys = self.enrolment is not None and claims
        keys = {int(info.node_id): bytes(info.public_key) for info in self.grid.get_nodes()} if needs_keys else {}
        for node, client in self.admission.admit({node: claim[0] for node, claim in claims.items()}, keys):
            if wrong := wrong_base(base, claims[node][2]):
                other_bases[node] = f"{self.server.names[client]} has another base than the server: {wrong}"
                self.admission.refuse(node, other_bases[node])
            elif self._is_connected(client):
                self.admission.refuse(
                    node, f"it claims to be {called(self.server.names[client])}, which is node {self.nodes[client]}"
                )
            else:
                self.nodes[client], self.reported_tags[client] = node, claims[node][1]
        return other_bases

    def _is_connected(self, client: ClientId) -> bool:
        """Whether the client's node still answers as this client; Flower lists a killed node for a while."""
        if client not in self.nodes:
            return False
        result = exchange(self.grid, {client: (self.nodes[client], pack(config={}))}, HELLO, self.timeout, _hello)
        return client in result.answers and result.answers[client][0] == client

    def _welcome_back(self) -> None:
        """Send hello messages to mute nodes without waiting, and admit nodes that answered an earlier one."""
        greeted, due = self.admission.greeted, self.admission.due()
        greetings = [Message(pack(config={}), dst_node_id=node, message_type=HELLO) for node in due]
        sent = zip(push(self.grid, greetings), due, strict=False)
        greeted |= {message_id: node for message_id, node in sent if message_id}
        answers = {}
        for message_id, node in list(greeted.items()):
            reply = pull(self.grid, message_id)
            if reply is not None:
                del greeted[message_id]
            if isinstance(reply, Message) and not reply.has_error():
                answers[node] = reply.content
                del self.admission.mute[node]
        self._admit(read_replies(_hello, answers)[0])

    def train(self, index: int, downloads: Mapping[ClientId, Download], facts: Sequence[str], seed: int) -> Replies:
        """Send one training message per client; the model goes only to clients without a personal model."""
        if any(download.training.pull is not None for download in downloads.values()):
            raise ConfigError(NO_PULL)
        self._identify_new_nodes()
        personal = {client: download.training.personal for client, download in downloads.items()}
        starts = {
            client: self._personal(client, download.model) if personal[client] else download.model
            for client, download in downloads.items()
        }
        sent = {client for client in downloads if not (personal[client] and self._has_personal(client))}
        contents, down = {}, 0
        shared: dict[int, Array] = {}  # clients that start from the same model share its bytes
        for client, download in sorted(downloads.items()):
            config = {
                "round": index,
                "seed": train_seed(seed, index, client),
                "attack": attack_seed(seed, index, client),
                "facts": list(facts),
                "epochs": download.epochs or 0,
                "lr": download.lr or 0.0,
                "uploads": download.uploads,
                "personal": personal[client] or "",
                "wire": self.wire,
            }
            vectors = {VECTOR + name: values for name, values in download.vectors.items()}
            vectors |= {"model": starts[client]} if client in sent else {}
            shared |= {id(values): to_array(values) for values in vectors.values() if id(values) not in shared}
            contents[client] = pack({name: shared[id(values)] for name, values in vectors.items()}, config)
            down += sum(values.nbytes for values in vectors.values()) if client in self.nodes else 0
        length = len(next(iter(downloads.values())).model) if downloads else 0
        for client in contents:
            self.reported_tags.pop(client, None)  # training may change the personal model: unknown until it answers
        modes = {download.uploads for download in downloads.values()}
        names = {"update": "update"} | {name: VECTOR + name for name in extra_names(self.server.learner)}
        sent_as = names if modes <= {"now"} else {}  # clients that keep their updates send none
        blocks = {name: Block.of_updates(len(contents), length) for name in sent_as}
        rows = count()

        def trained(content: RecordDict) -> tuple[int, int, dict[str, Any], SignedKeys | None]:
            row, keys = next(rows), signed_keys(content) if "masked" in modes else None
            for name, key in sent_as.items():
                blocks[name].array[row] = array(content, key, shape=(length,), dtypes=(WIRES[self.wire].str[1:],))
            return row, setting(content, "personal", int), numbers(content), keys

        result = self._ask(contents, TRAIN, trained)
        contents.clear()
        self.keys = {client: keys for client, (*_, keys) in result.answers.items() if keys}
        excessive = {
            client: reason
            for client, (_, _, claimed, _) in result.answers.items()
            if (reason := self.admission.excessive_claim(client, claimed)) is not None
        }
        answers = {client: answer for client, answer in result.answers.items() if client not in excessive}
        ids = tuple(answers)
        places = np.array([answers[client][0] for client in ids], dtype=np.intp)
        received = {
            name: Updates(block.array, places, block.release if block.on_disk else None)
            for name, block in blocks.items()
        }
        updates = received.pop("update") if sent_as else Updates(np.empty((len(ids), 0), np.float32))
        for place, client in enumerate(ids):
            self.reported_tags[client] = answers[client][1]
            if personal.get(client) == "keep":
                self._record_personal(client, starts[client] + updates.row(place), index, TRAINED)
            elif personal.get(client) == "reset" and client in sent:
                self._record_personal(client, starts[client], index, TRAINED)
        return Replies(
            ids,
            updates,
            tuple(answers[client][2] for client in ids),
            {**result.failed, **excessive},
            result.seconds,
            bytes_down=down,
            bytes_up=sent_bytes((updates, *received.values()), self.wire),
            vectors=received,
        )

    def upload(self, index: int, clients: Sequence[ClientId]) -> Iterator[tuple[ClientId, Model | str]]:
        """Yield the updates that the nodes keep, each as it is pulled, in client order."""
        messages, away = self._reachable({client: pack(config={"round": index}) for client in clients})
        yield from away.items()
        lost = []
        timeout = self.timeout if self.wait is None else self.wait.seconds
        dtypes = (WIRES[self.wire].str[1:],)

        def read(content: RecordDict) -> Model:  # without a copy: the bytes of the message are the vector
            return read_array(arrays_in(content)["update"], "update", dtypes=dtypes)

        for client, answer, is_lost in exchange_in_order(self.grid, messages, UPLOAD, timeout, read):
            lost += [client] if is_lost else []
            yield client, answer
        self._forget(lost)

    def upload_masked(self, index: int, units: Mapping[ClientId, int], masking: Masking, length: int) -> MaskedTotal:
        """Run the exchanges of a masked sum."""
        return masked_total(self._ask, self.keys, index, units, masking, length)

    def send_rewards(
        self, index: int, rewards: Mapping[ClientId, SparseUpdate], acceptance: Acceptance
    ) -> Mapping[ClientId, Verdict]:
        """Send each client its reward; the client tests its personal model without and with it."""
        config = {"round": index, "sigma": float(acceptance.sigma)}
        contents = {}
        for client, reward in rewards.items():
            places = {} if reward.places is None else {"places": reward.places}
            contents[client] = pack({"values": reward.values, **places}, config)
        result = self._ask(contents, REWARD, verdict)
        for client, answer in result.answers.items():
            if answer.accepted and self.copies is not None:
                offered = rewards[client].added_to(self.copies.rows.array[client])
                self._record_personal(client, offered, index, REWARDED)
        for client in result.failed:
            self.reported_tags.pop(client, None)
        self.reported_tags |= {client: self.tags[client] for client in result.answers if client in self.tags}
        return {client: Verdict(False, reason=reason) for client, reason in result.failed.items()} | result.answers

    def evaluate(
        self,
        models: Sequence[Model],
        on: AskedRows = "test",
        clients: Sequence[ClientId] | None = None,
        *,
        losses: bool = False,
    ) -> Sequence[Evaluation]:
        """Test all models in one message per client; a client that does not answer counts as having no rows."""
        judges = range(len(self.server.names)) if clients is None else clients
        arrays, config = models_as_records(models)
        config |= {"on": on, "losses": losses}
        return self._evaluate(dict.fromkeys(judges, pack(arrays, config)), len(models), losses)

    def evaluate_personal(self, model: Model, on: SplitName = "test") -> Evaluation:
        """Test each client's personal model; a client without one gets it in the message."""
        config: dict[str, Any] = {"on": on, "losses": False, "models": 1, "mixed": []}
        return self._evaluate(self._with_personal("0", model, config), 1)[0]

    def _with_personal(self, name: str, model: Model, config: Mapping[str, Any]) -> dict[ClientId, RecordDict]:
        """Make a message per client about its personal model; clients without it get it as the array `name`."""
        return {
            client: pack({} if self._has_personal(client) else {name: self._personal(client, model)}, config)
            for client in range(len(self.server.names))
        }

    def _evaluate(self, contents: Mapping[ClientId, RecordDict], models: int, losses: bool = False) -> list[Evaluation]:
        shape = models, len(self.server.names)
        correct, summed, sizes = np.zeros(shape, np.int64), np.zeros(shape), np.zeros(shape[1], np.int64)
        read = partial(evaluation, models=models, losses=losses)
        for client, answer in self._ask(contents, EVALUATE, read).answers.items():
            correct[:, client], summed[:, client], sizes[client] = answer
        return [
            Evaluation(right, sizes, loss * LOSS_UNIT if losses else None)
            for right, loss in zip(correct, summed, strict=True)
        ]

    def audit(
        self,
        model: Model,
        objectives: Sequence[Objective],
        *,
        personal: bool,
        on: AskedRows = "test",
        clients: Sequence[ClientId] | None = None,
    ) -> Mapping[ClientId, Mapping[str, float]]:
        """Let clients compute the objectives on their rows; they send only these numbers."""
        names = [objective.name for objective in objectives]
        config: dict[str, Any] = {"objectives": names, "on": on}
        asked = range(len(self.server.names)) if clients is None else clients
        shared = pack({"model": model}, config)
        contents = self._with_personal("model", model, config) if personal else dict.fromkeys(asked, shared)
        return self._ask(contents, AUDIT, partial(audited, names=names)).answers

    def save(self, run: Path, index: int) -> None:
        """Save the copies of personal models that changed in this round."""
        if self.copies is not None:
            self.copies.save(run, index)

    def load(self, run: Path, index: int) -> bool:
        """Load the copies as they were after a round; the server then sends them to all clients."""
        length = saved_length(run)
        if length is None:
            return True
        self.tags = {}
        return self._make_copies(length or len(self.server.first_model(0))).load(run, index)

    def _make_copies(self, length: int) -> PersonalStore:
        """Create the storage for the copies on first use, because most runs have none."""
        if self.copies is None:
            self.copies = PersonalStore(Block((len(self.server.names), length), np.float32))
        return self.copies

    def _record_personal(self, client: ClientId, model: Model, index: int, stage: int) -> None:
        """Store a copy of a personal model; like the client, the server does not store a diverged model."""
        if self._make_copies(len(model)).put(client, model, index):
            self.tags[client] = tag_of(index, stage)

    def _has_personal(self, client: ClientId) -> bool:
        """Whether the client has the expected version of its personal model; after a lost answer it may not."""
        return client in self.tags and self.reported_tags.get(client) == self.tags[client]

    def _personal(self, client: ClientId, otherwise: Model) -> Model:
        """The server's copy of the client's personal model; else `otherwise`."""
        copies = self.copies
        return otherwise if copies is None or client not in copies else np.array(copies.rows.array[client])

    def _ask(self, contents: Mapping[ClientId, RecordDict], kind: str, read: Callable[[RecordDict], Any]) -> Exchange:
        """Send a message to each client that is connected and not late; read each answer as it arrives."""
        messages, away = self._reachable(contents)
        result = exchange(self.grid, messages, kind, self.timeout, read, self.wait)
        self.late |= {client: (self.nodes[client], message_id) for client, message_id in result.unanswered.items()}
        self.admission.mark_mute(self.nodes[client] for client in result.mute)
        self._forget((*result.gone, *result.mute))
        return Exchange(result.answers, {**away, **result.failed}, result.seconds)

    def _reachable(
        self, contents: Mapping[ClientId, RecordDict]
    ) -> tuple[dict[ClientId, tuple[int, RecordDict]], dict[ClientId, str]]:
        """Return a message for each client that is connected and not late, and why the remaining ones get none."""
        self._welcome_back()
        for client in answered_late(self.grid, self.late, self.nodes):
            del self.late[client]
            log.info("fedmerit: %s is available again after a late answer", self.server.names[client])
        free = [client for client in contents if client in self.nodes and client not in self.late]
        away = {
            client: "late: still busy with an earlier message" if client in self.late else "its node is not connected"
            for client in contents
            if client not in free
        }
        return {client: (self.nodes[client], contents[client]) for client in free}, away

    def _forget(self, clients: Sequence[ClientId]) -> None:
        """Send these clients no message until they are admitted again."""
        for client in clients:
            del self.nodes[client]


def _hello(content: RecordDict) -> Claim:
    """Read the client that a node claims to be, the version of its personal model and the hash of its base, if any."""
    return setting(content, "client", int), setting(content, "personal", int), setting(content, "base", str)[:64]
