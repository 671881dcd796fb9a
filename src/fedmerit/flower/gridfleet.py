"""A fleet over a Flower Grid: one exchange per stage, each reply checked and given to the client it belongs to."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Message, RecordDict
from flwr.serverapp import Grid

from fedmerit.core.collect.late import Wait
from fedmerit.core.facts import find_fact
from fedmerit.core.host import ServerSetup
from fedmerit.core.learner import LOSS_UNIT
from fedmerit.core.models.rewards import Acceptance
from fedmerit.core.objectives import Objective
from fedmerit.core.seeds import attack_seed, train_seed
from fedmerit.core.server.centring import Sums
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
from fedmerit.fleet.client import extra_names
from fedmerit.fleet.personal import PersonalStore, saved_length
from fedmerit.flower.door import Door
from fedmerit.flower.enrolment import Enrolment, admitted, fingerprint
from fedmerit.flower.exchange import POLL, Exchange, pull, send
from fedmerit.flower.late import LateAnswers, LateMessage
from fedmerit.flower.records import (
    AUDIT,
    EVALUATE,
    EXTRA,
    HELLO,
    REWARD,
    REWARDED,
    SUM,
    TRAIN,
    TRAINED,
    as_sums,
    evaluation,
    models_as_records,
    numbers,
    pack,
    read_replies,
    reward_arrays,
    setting,
    shares,
    tag_of,
    vector,
    verdict,
)

log = logging.getLogger("flwr")


@dataclass
class GridFleet:
    """The clients of a federation on Flower; client i is the node whose partition-id is i.

    `server` is the server's own part: names, learner, rows of its own. Clients keep their personal models in the state
    of their nodes; the server keeps copies, made of the updates that it saw, for nodes that lost theirs and for a run
    that is resumed.
    """

    grid: Grid
    server: ServerSetup
    timeout: float = 3600.0
    nodes: dict[ClientId, int] = field(default_factory=dict)
    copies: PersonalStore | None = None
    tags: dict[ClientId, int] = field(default_factory=dict)
    """Which state of its personal model each client should have, and which it says it has; see `records.tag_of`."""
    reported_tags: dict[ClientId, int] = field(default_factory=dict)
    wait: Wait | None = None
    """How long an exchange waits for all; the late are not asked again before their answer is there."""
    late: LateAnswers = field(default_factory=LateAnswers)
    turned_away: Mapping[int, str] = field(default_factory=dict)
    """Nodes that could not say who they are when last asked, and what they said instead."""
    enrolment: Enrolment | None = None
    """Whose key is which client; without it a node is who it says it is."""
    door: Door = field(default_factory=Door)

    def __post_init__(self) -> None:
        self.late.used = self.wait is not None and self.wait.late == "use"

    def judges(self) -> Sequence[ClientId]:
        """The clients that are connected."""
        return sorted(self.nodes)

    def meet(self, at_least: int = 1, patience: float = 60.0) -> None:
        """Find out which client each connected node is; wait until at least so many are there."""
        ends = time.monotonic() + patience
        while True:
            self._ask_new_nodes()
            if len(self.nodes) >= at_least:
                return
            if time.monotonic() > ends:
                why = "".join(f"; a node said: {reason}" for reason in sorted(set(self.turned_away.values()))[:3])
                raise RunFailed(f"{len(self.nodes)} of {at_least} clients came within {patience:g} s{why}")
            time.sleep(POLL)

    def _ask_new_nodes(self) -> None:
        """Nodes that are gone are forgotten; new ones say who they are."""
        self.door.index += 1
        connected = set(self.grid.get_node_ids())
        self.nodes = {client: node for client, node in self.nodes.items() if node in connected}
        self.door.forget_all_but(connected)
        new = sorted(connected - set(self.nodes.values()) - self.door.mute.keys())
        exchange = self._send({node: (node, pack(config={})) for node in new}, HELLO)
        for node in exchange.mute:
            self.door.was_mute(node)
        self.turned_away = {**exchange.failed, **self._let_in(exchange.contents)}

    def _let_in(self, answers: Mapping[int, RecordDict]) -> Mapping[int, str]:
        """Let in who says who it is, and whose key says so where clients are enrolled; return who said neither."""
        claims, unread = read_replies(_hello, answers)
        claims = {node: claim for node, claim in claims.items() if 0 <= claim[0] < len(self.server.names)}
        good = {node: client for node, (client, _) in claims.items()}
        if self.enrolment is not None and good:
            keys = {int(info.node_id): fingerprint(bytes(info.public_key)) for info in self.grid.get_nodes()}
            good, refused = admitted(good, keys, self.enrolment)
            for node, reason in refused.items():
                self.door.refuse(node, reason)
        for node, client in sorted(good.items()):
            if self._is_there(client):
                self.door.refuse(node, f"it says that it is client {client}, which node {self.nodes[client]} is")
            else:
                self.nodes[client], self.reported_tags[client] = node, claims[node][1]
        return unread

    def _beyond_enrolled(self, reported: Mapping[ClientId, Mapping[str, Any]]) -> dict[ClientId, str]:
        """Who claims more than it is enrolled with, and why that is not believed."""
        if self.enrolment is None:
            return {}
        wrong = {
            client: [find_fact(name).wrong(facts.get(name), most) for name, most in limits.items() if name in facts]
            for client, facts in reported.items()
            if (limits := self.enrolment.limits_of(client))
        }
        return {client: next(filter(None, reasons)) for client, reasons in wrong.items() if any(reasons)}

    def _is_there(self, client: ClientId) -> bool:
        """Whether the node that is this client still answers as such: one that was killed may be listed for a while."""
        node = self.nodes.get(client)
        if node is None:
            return False
        answers, _ = read_replies(_hello, self._send({node: (node, pack(config={}))}, HELLO).contents)
        return node in answers and answers[node][0] == client

    def _welcome_back(self) -> None:
        """Greet nodes that did not answer in time, without waiting: who answers meanwhile is back."""
        due = self.door.due()
        if due:
            greetings = [Message(pack(config={}), dst_node_id=node, message_type=HELLO) for node in due]
            sent = zip(self.grid.push_messages(greetings), due, strict=False)
            self.door.greeted |= {name: node for name, node in sent if name}
        replies, broken = pull(self.grid, list(self.door.greeted))
        for name in broken:
            del self.door.greeted[name]
        named = {reply.metadata.reply_to_message_id: reply for reply in replies if not reply.has_error()}
        answers = {node: named[name].content for name, node in self.door.greeted.items() if name in named}
        for reply in replies:
            node = self.door.greeted.pop(reply.metadata.reply_to_message_id, None)
            if node is not None and node in answers:
                del self.door.mute[node]
        self._let_in(answers)

    def sum_features(self) -> Sums:
        """One message per client; who does not answer as it should is named."""
        self._ask_new_nodes()
        exchange = self._ask({client: pack(config={}) for client in range(len(self.server.names))}, SUM)
        answers, unread = read_replies(as_sums, exchange.contents)
        return answers, {**exchange.failed, **unread}

    def train(self, index: int, downloads: Mapping[ClientId, Download], facts: Sequence[str], seed: int) -> Replies:
        """One message per client; a model goes only to who has none of its own.

        Answers to earlier rounds that came since count here, where they are used; their clients are not asked as well.
        """
        if any(download.training.pull is not None for download in downloads.values()):
            raise ConfigError(
                "models that clients keep beside the shared one (recipe ditto) are for the local fleet: on Flower the "
                'server keeps a copy of every personal model; use `fedmerit run`, or recipe "finetuned"'
            )
        self._ask_new_nodes()
        self._hear_late_answers()
        stale = self.late.take(index) if downloads else {}
        starts = {
            c: self._personal(c, one.model) if one.training.personal else one.model for c, one in downloads.items()
        }
        sent = {
            client for client, one in downloads.items() if not (one.training.personal and self._has_personal(client))
        }
        contents, down = {}, 0
        for client, download in sorted(downloads.items()):
            if client in stale:
                continue
            seeds = {"seed": train_seed(seed, index, client), "attack": attack_seed(seed, index, client)}
            config: dict[str, Any] = {"round": index, **seeds, "facts": list(facts)}
            config |= {"epochs": download.plan.epochs or 0, "lr": download.lr or 0.0}
            config |= {"personal": download.training.personal or ""}
            config |= {"budget": download.plan.budget_seconds or 0.0}
            vectors = {EXTRA + name: values for name, values in download.vectors.items()}
            vectors |= {"model": starts[client]} if client in sent else {}
            contents[client] = pack(vectors, config)
            down += sum(values.nbytes for values in vectors.values()) if client in self.nodes else 0
        length = len(next(iter(downloads.values())).model) if downloads else 0
        for client in contents:
            self.reported_tags.pop(client, None)  # its personal model may change now; unless it answers, we do not know
        exchange = self._ask(contents, TRAIN, index)
        self._hear_late_answers()
        stale |= self.late.take(index) if downloads else {}
        names = extra_names(self.server.learner)
        vectors_of = {"update": "update"} | {name: EXTRA + name for name in names}

        def trained(content: RecordDict) -> tuple[dict[str, Model], int, dict[str, Any]]:
            rows = {name: vector(content, sent_as, length) for name, sent_as in vectors_of.items()}
            return rows, setting(content, "personal", int), numbers(content)

        late = {client: answer.content for client, answer in stale.items()}
        answers, unread = read_replies(trained, {**exchange.contents, **late})
        for client, reason in self._beyond_enrolled(
            {client: facts for client, (_, _, facts) in answers.items()}
        ).items():
            unread[client] = reason
            del answers[client]
        failed = {client: why for client, why in exchange.failed.items() if client not in late} | unread
        rows = {name: {client: answer[0][name] for client, answer in answers.items()} for name in vectors_of}
        reported = {client: facts for client, (_, _, facts) in answers.items()}
        self.reported_tags |= {client: tag for client, (_, tag, _) in answers.items()}
        ids = tuple(sorted(reported))
        received = {name: _matrix([of[client] for client in ids], length) for name, of in rows.items()}
        updates = received.pop("update")
        for client in ids:
            personal = downloads[client].training.personal if client in downloads else None
            if personal == "keep":
                self._book(client, starts[client] + rows["update"][client], index, TRAINED)
            elif personal == "reset" and client in sent:
                self._book(client, starts[client], index, TRAINED)
        return Replies(
            ids,
            updates,
            tuple(reported[client] for client in ids),
            failed,
            {**exchange.seconds, **{client: answer.seconds for client, answer in stale.items()}},
            bytes_down=down,
            bytes_up=updates.nbytes + sum(rows.nbytes for rows in received.values()),
            vectors=received,
            started={client: stale[client].index for client in ids if client in stale},
        )

    def send_rewards(
        self, index: int, rewards: Mapping[ClientId, SparseUpdate], acceptance: Acceptance
    ) -> Mapping[ClientId, Verdict]:
        """Each client tests its personal model without and with its reward."""
        config = {"round": index, "sigma": float(acceptance.sigma)}
        contents = {client: pack(reward_arrays(reward), config) for client, reward in rewards.items()}
        exchange = self._ask(contents, REWARD)
        verdicts = {client: Verdict(False, reason=reason) for client, reason in exchange.failed.items()}
        answers, unread = read_replies(verdict, exchange.contents)
        verdicts |= answers | {client: Verdict(False, reason=reason) for client, reason in unread.items()}
        for client in answers:
            if verdicts[client].accepted and self.copies is not None:
                self._book(client, rewards[client].added_to(self.copies.rows.array[client]), index, REWARDED)
        for client in exchange.failed:
            self.reported_tags.pop(client, None)
        self.reported_tags |= {client: self.tags[client] for client in exchange.contents if client in self.tags}
        return verdicts

    def evaluate(
        self,
        models: Sequence[Model],
        on: AskedRows = "test",
        clients: Sequence[ClientId] | None = None,
        *,
        losses: bool = False,
    ) -> Sequence[Evaluation]:
        """All models in one message per client; who does not answer counts as without rows."""
        asked = range(len(self.server.names)) if clients is None else clients
        arrays, config = models_as_records(models)
        config |= {"on": on, "losses": losses}
        return self._count_correct({client: pack(arrays, config) for client in asked}, len(models), losses)

    def evaluate_personal(self, model: Model, on: SplitName = "test") -> Evaluation:
        """Each client its personal model; one is sent along to who has none."""
        config: dict[str, Any] = {"on": on, "losses": False, "models": 1, "mixed": []}
        contents = {
            client: pack({} if self._has_personal(client) else {"0": self._personal(client, model)}, config)
            for client in range(len(self.server.names))
        }
        return self._count_correct(contents, 1)[0]

    def _count_correct(
        self, contents: Mapping[ClientId, RecordDict], models: int, losses: bool = False
    ) -> list[Evaluation]:
        right = np.zeros((models, len(self.server.names)), dtype=np.int64)
        lost = np.zeros((models, len(self.server.names)))
        sizes = np.zeros(len(self.server.names), dtype=np.int64)
        asked = partial(evaluation, models=models, losses=losses)
        answers, _ = read_replies(asked, self._ask(contents, EVALUATE).contents)
        for client, (correct, summed, size) in answers.items():
            right[:, client], lost[:, client], sizes[client] = correct, summed, size
        if not losses:
            return [Evaluation(row, sizes) for row in right]
        return [Evaluation(row, sizes, of_rows * LOSS_UNIT) for row, of_rows in zip(right, lost, strict=True)]

    def audit(
        self, model: Model, objectives: Sequence[Objective], *, personal: bool
    ) -> Mapping[ClientId, Mapping[str, float]]:
        """Clients measure and send the numbers alone."""
        names = [objective.name for objective in objectives]
        config, contents = {"objectives": names}, {}
        for client in range(len(self.server.names)):
            asked = self._personal(client, model) if personal else model
            contents[client] = pack({} if personal and self._has_personal(client) else {"model": asked}, config)
        return read_replies(partial(shares, names=names), self._ask(contents, AUDIT).contents)[0]

    def save(self, run: Path, index: int) -> None:
        """The copies of what clients kept in this round."""
        if self.copies is not None:
            self.copies.save(run, index)

    def load(self, run: Path, index: int) -> bool:
        """The copies as they were after a round; whatever clients have now, they are sent these."""
        saved = saved_length(run)
        if saved is None:
            return True
        self.tags = {}
        return self._make_copies(saved or len(self.server.first_model(0))).load(run, index)

    def _make_copies(self, length: int) -> PersonalStore:
        """Rows for the copies, made when first asked for: most runs have none."""
        if self.copies is None:
            self.copies = PersonalStore(Block((len(self.server.names), length), np.float32))
        return self.copies

    def _book(self, client: ClientId, model: Model, index: int, stage: int) -> None:
        """As the client does it: a model that ran away is not kept."""
        if self._make_copies(len(model)).put(client, model, index):
            self.tags[client] = tag_of(index, stage)

    def _has_personal(self, client: ClientId) -> bool:
        """Whether the client has the personal model that it should have; one whose answer was lost has another."""
        return client in self.tags and self.reported_tags.get(client) == self.tags[client]

    def _personal(self, client: ClientId, otherwise: Model) -> Model:
        """The client's personal model as we know it, or another where it has none."""
        copies = self.copies
        return otherwise if copies is None or client not in copies else np.array(copies.rows.array[client])

    def _ask(self, contents: Mapping[ClientId, RecordDict], kind: str, index: int | None = None) -> Exchange:
        """One message for each client that is connected, and not busy with an earlier one; `index`: to train in it.

        Only training asks more clients than it needs.
        """
        wait = self.wait if index is not None or self.wait is None else replace(self.wait, overselect=1.0)
        self._welcome_back()
        self._hear_late_answers()
        free = [client for client in contents if client in self.nodes and client not in self.late]
        exchange = self._send({client: (self.nodes[client], contents[client]) for client in free}, kind, wait)
        self.late.waiting |= {
            client: LateMessage(self.nodes[client], name, index) for client, name in exchange.unanswered.items()
        }
        for client in exchange.mute:
            self.door.was_mute(self.nodes[client])
        away = {client: "its node is not connected" for client in contents if client not in free}
        away |= {client: "late: still busy with an earlier message" for client in away if client in self.late}
        for client in (*exchange.gone, *exchange.mute):
            del self.nodes[client]  # not asked again, and waited for, before it is back
        return Exchange(exchange.contents, {**away, **exchange.failed}, exchange.seconds)

    def _hear_late_answers(self) -> None:
        """Who has answered after all, or has a new node, can be asked again."""
        for client in self.late.hear(self.grid, self.nodes):
            log.info("fedmerit: %s is back, too late for what it was asked", self.server.names[client])

    def _send(self, contents: Mapping[int, tuple[int, RecordDict]], kind: str, wait: Wait | None = None) -> Exchange:
        return send(self.grid, contents, kind, self.timeout, wait)


def _hello(content: RecordDict) -> tuple[ClientId, int]:
    """Which client a node says it is, and which state of its personal model it has."""
    return setting(content, "client", int), setting(content, "personal", int)


def _matrix(rows: Sequence[Model], length: int) -> Updates:
    return Updates(np.stack(rows) if rows else np.empty((0, length), dtype=np.float32))
