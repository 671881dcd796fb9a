"""Merit: a Flower Strategy for existing apps; Flower collects the replies, `core.round.aggregate_round` does the rest.

The app's ClientApp stays as it is and adds facts to its MetricRecord (`facts` helps). Recipes in which clients have
personal models, SCAFFOLD and FedDyn need the whole federation (`fedmerit flower`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeGuard, cast

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg, Result
from flwr.serverapp.strategy.strategy_utils import sample_nodes

from fedmerit.config.account import epsilon_of_releases, require_account
from fedmerit.core.collect.collect import Poisson
from fedmerit.core.facts import (
    ATTRIBUTE,
    CONTRIBUTION,
    ENERGY,
    MOST_SAMPLES,
    OF_TRAINING,
    SAMPLES,
    VALIDATED,
    find_fact,
    measure,
)
from fedmerit.core.host import Clients, Host, Limits
from fedmerit.core.learner import MOST_LOSS
from fedmerit.core.models.shared import Assignment
from fedmerit.core.objectives import Predictions
from fedmerit.core.parts import Words, check_words, declared
from fedmerit.core.recipe import RECIPE_WORDS, Recipe
from fedmerit.core.recipes import privacy_of
from fedmerit.core.release import Release
from fedmerit.core.round import aggregate_round
from fedmerit.core.server.private_sum import PrivateSum, check_selection
from fedmerit.core.state import Clock, Record, State, Tested, make_record
from fedmerit.core.suspects import Watch
from fedmerit.core.types import EMPTY, AskedRows, ClientId, Evaluation, Model, Replies, Samples
from fedmerit.core.updates import Updates
from fedmerit.core.weights.weigh import ClientWeight, by_client
from fedmerit.errors import ConfigError
from fedmerit.fleet.client import energy_left
from fedmerit.flower.arrays import Unfit, flat, unflat, vector_bytes
from fedmerit.flower.book import Book, Names
from fedmerit.flower.fence import FencedGrid
from fedmerit.flower.records import alike_metrics, reason_of

log = logging.getLogger("flwr")
OF_LABELS = ("labels", "coverage", "balance")

WORDS: Words = frozenset({"evaluation", "validation rows", "test rows", "losses", "answers in their round"})
"""What a strategy on its own gives: the app's nodes test models on whichever rows they hold."""
Look = Callable[[Sequence[ArrayRecord]], Predictions]
Combine = Callable[[list[RecordDict], str], MetricRecord]


def facts(y: Any, classes: int, recipe: Recipe | None = None, *, x: Any = None, **attributes: Any) -> dict[str, float]:
    """Facts of a client for its MetricRecord: those that a recipe asks for, or without one all that labels tell.

    Labels, rows and attributes may be torch tensors, numpy arrays, pandas columns or lists. One number, word or truth
    value is a fact of the client's own, `age=34` or `job="nurse"`, for criteria `fact:age in 20..35`; the energy that
    is left is read from the device, or given. An app that trains by the clock adds `seconds` itself, and `loss` where a
    recipe needs it.

    metrics = MetricRecord({"num-examples": len(y), **facts(y, 10)})
    """
    labels = np.asarray(y, dtype=np.int64).reshape(-1)
    rows = np.empty((len(labels), 0)) if x is None else np.asarray(x)
    columns = {name: np.asarray(column) for name, column in attributes.items()}
    own = {name: _own(column.item()) for name, column in columns.items() if not column.ndim}
    columns = {name: column for name, column in columns.items() if column.ndim}
    asked = [*OF_LABELS, *(ATTRIBUTE + name for name in columns)] if recipe is None else recipe.client_facts
    apps_own = {SAMPLES, *OF_TRAINING} - {ENERGY}
    told = [name for name in asked if name not in apps_own]
    energy = {ENERGY: energy_left(own)} if ENERGY in told else {}
    return measure(Samples(rows, labels, classes, columns, own), told, energy)


def _own(value: float | str) -> float | str:
    return str(value).lower() if isinstance(value, bool) else value


class Merit(FedAvg):
    """A recipe as a Strategy: replies are checked one by one, weighed by merit, and what does not fit is left out.

    `records` holds every round's record. A search asks nodes through the app's own evaluate function, all candidates in
    one exchange; it must answer with `num-examples`, a metric `accuracy` and, for a search by loss, the mean `loss`.
    `look` scores models on the server's rows, for recipes with `validated:` criteria. `limits` are the most that a node
    may claim, by fact: `{"samples": 5000, "labels": 10}`. A recipe with `privacy` is accounted for: each node takes
    part with the chance `fraction_train`, of `min_available_nodes` in all, and updates are clipped and noised here.
    `out` is a folder for ledger, checkpoints and model, as `fedmerit run` makes it; a run that was begun there is
    continued. `names` are the nodes' names: by the metric `partition-id` that they then report, or by Flower's numbers
    of the nodes. With either, records go by clients 0, 1, ... in place of nodes, and the log says why each got its
    weight. Everything else is FedAvg's: fractions, least numbers of nodes, keys.
    """

    def __init__(
        self,
        recipe: Recipe,
        *,
        seed: int = 0,
        look: Look | None = None,
        limits: Limits = EMPTY,
        out: Path | str | None = None,
        names: Names = (),
        **settings: Any,
    ) -> None:
        if "shared test" not in declared(recipe.models, "gives"):
            raise ConfigError(
                "clients with personal models, or that choose among several, need the whole federation: see "
                "`fedmerit flower`"
            )
        rows = {"server rows"} if look is not None else set()
        check_words(recipe.parts, WORDS | rows, only=lambda word: word not in RECIPE_WORDS)
        unknown = [name for name in recipe.required_facts if _only_a_fleet_knows(name)]
        if unknown:
            raise ConfigError(
                f"the recipe needs {', '.join(unknown)}, which a Flower strategy cannot know; use the whole federation "
                "(see `fedmerit flower`), and for `clock` ReportedComputation, which reads the `seconds` that "
                "clients report"
            )
        super().__init__(**settings)
        self._privacy = privacy_of(recipe)
        if self._privacy is not None:
            require_account()
            check_selection(self._privacy, Poisson(self.fraction_train), self.min_available_nodes)
        self.recipe, self.seed, self.look, self.limits = recipe, seed, look, limits
        self.records: list[Record] = []
        self._watch = Watch()
        self._state: State | None = None
        self._messages: list[Message] = []
        self._tests: list[Message] = []
        self._book: Book | None = None
        if out is not None or names:
            kept = {"run": {"seed": seed, "fraction": self.fraction_train}}
            self._book = Book(None if out is None else Path(out), recipe, kept, names)
            self._state = self._book.state
        self._candidate_bytes = 0
        self._booked: list[Release] = []
        self._contents: dict[ClientId, RecordDict] = {}

    def summary(self) -> None:
        """What the log says at the start."""
        log.info("\t├──> Recipe: %s", self.recipe)
        super().summary()

    def start(self, grid: Grid, *arguments: Any, **settings: Any) -> Result:
        """FedAvg's rounds, on a grid on which a reply that cannot be read costs its node alone."""
        return super().start(FencedGrid(grid), *arguments, **settings)

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """FedAvg's messages; the model that they carry is remembered, to know updates by."""
        self._grid, self._like = grid, arrays
        if self._is_done(server_round):
            self._messages = []
            return []
        model = flat(arrays)
        self._state = replace(self._state or State(model), model=model)
        if self._privacy is None:
            self._messages = list(super().configure_train(server_round, arrays, config, grid))
        else:
            config["server-round"] = server_round
            record = RecordDict({self.arrayrecord_key: arrays, self.configrecord_key: config})
            nodes = self._by_chance(self._privacy, server_round)
            self._messages = list(self._construct_messages(record, nodes, MessageType.TRAIN))
        return self._messages

    def _is_done(self, server_round: int) -> bool:
        """Whether the folder has that round: the run is continued after it."""
        return self._book is not None and server_round <= self._book.done

    def _by_chance(self, privacy: PrivateSum, server_round: int) -> list[int]:
        """Each node with the chance of the account, once all that the run is planned for are there; maybe nobody."""
        _, connected = sample_nodes(self._grid, self.min_available_nodes, 0)
        nodes, selection = sorted(connected), Poisson(privacy.fraction, secret=not privacy.reproducible)
        return [nodes[place] for place in selection(server_round, len(nodes), self.seed)]

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Check, weigh, search, aggregate; without anybody to weigh the model stays."""
        assert self._state is not None  # configure_train comes first
        if self._is_done(server_round):
            return unflat(self._state.model, self._like), None
        clock, collected = Clock(), self._replies(list(replies))
        strangers: dict[int, str] = {}
        if self._book is not None:
            collected, nodes, strangers = self._book.by_client(collected)
            self._contents = {client: self._contents[node] for client, node in nodes.items()}
        self._candidate_bytes = 0
        assignment = Assignment((self._state.model,), dict.fromkeys(collected.ids, 0))
        result = aggregate_round(self._state, self.recipe, collected, self._host(), assignment, self.seed, clock)
        for client, reason in result.dropped.items():
            log.info("\t> %s dropped: %s", self._called(client), reason)
        for note in result.notes:
            log.info("\t> %s%s", "" if note.client is None else f"{self._called(note.client)} ", note.text)
        cohort, down = result.cohort, vector_bytes(self._like) * len(self._messages) + self._candidate_bytes
        tested, privacy = Tested(result.moved.evaluation), self._privacy
        record = make_record(self.recipe.priority, result, tested, down, collected.bytes_up, clock)
        if privacy is not None:
            record = replace(record, epsilon=epsilon_of_releases(privacy, self._releases()))
            log.info("\t> epsilon %.3g at delta %g", record.epsilon, privacy.delta)
        self.records.append(record)
        for suspect in self._watch(self.records[-1]):
            log.warning("\t> %s stands out %s", self._called(suspect.client), suspect.summary)
        self._state = result.state
        if self._book is not None:
            arrays = {name: array.numpy() for name, array in unflat(result.state.model, self._like).items()}
            self.records[-1] = self._book.keep(result.state, record, arrays, strangers)
            for line in self._book.reasons():
                log.info("\t> %s", line)
        if privacy is not None:  # the app's own metrics are not in the account, and stay here
            return unflat(result.state.model, self._like), None
        if record.weights is None:
            return None, None
        contents = {node: self._contents[node] for node in cohort.ids}
        return unflat(result.state.model, self._like), self._metrics(contents, self.train_metrics_aggr_fn)

    def _host(self) -> Host:
        """What a round may use here: connected nodes that test models, and the app's look at the server's rows."""
        clients = cast(Clients, self)  # of the clients' methods a recipe with one model only calls these two
        names = tuple(map(str, range(self.min_available_nodes)))
        predict = None if self.look is None else self._predict
        return Host(clients, names, WORDS, self.limits, predict, book=self._booking)

    def _booking(self, release: Release) -> None:
        """Book a release in the folder's ledger, or here where there is none, before any noise is drawn."""
        if self._book is None:
            self._booked.append(release)
        else:
            self._book.ledger.book(release)

    def _releases(self) -> list[Release]:
        return self._booked if self._book is None else self._book.ledger.releases()

    def _metrics(self, contents: Mapping[ClientId, RecordDict], combine: Combine) -> MetricRecord | None:
        """The app's own metrics, aggregated as FedAvg does, of the nodes whose metrics are as most nodes' are."""
        fitting, others = alike_metrics(contents, self.weighted_by_key)
        for node, reason in others.items():
            log.warning("\t> metrics of node %d do not count: %s", node, reason)
        try:
            return combine(list(fitting.values()), self.weighted_by_key) if fitting else None
        except (ValueError, TypeError, KeyError, ArithmeticError) as error:
            log.warning("\t> metrics do not fit together, none are kept: %s", reason_of(error))
            return None

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """The nodes' own tests, aggregated as FedAvg does; who answers with an error or otherwise does not count."""
        answers = {reply.metadata.reply_to_message_id: reply for reply in replies if not reply.has_error()}
        asked = {message.metadata.message_id: message.metadata.dst_node_id for message in self._tests}
        contents = {node: answers[name].content for name, node in asked.items() if name in answers}
        if self._book is not None and contents:
            self.records[-1] = self._book.amend(self.records[-1], self._tested(contents))
        return self._metrics(contents, self.evaluate_metrics_aggr_fn)

    def _tested(self, contents: Mapping[int, RecordDict]) -> dict[int, tuple[int, int]]:
        """Right rows and rows of each node that tested the model and says what can be."""
        tests = {}
        for node, told in ((node, _told(content)) for node, content in contents.items()):
            size, accuracy = told.get(self.weighted_by_key), told.get("accuracy")
            if isinstance(size, int) and 0 <= size <= MOST_SAMPLES and _between(accuracy, 1):
                tests[node] = round(accuracy * size), size
        return tests

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """FedAvg's messages, remembered: an answer belongs to the message that it replies to."""
        done = self._is_done(server_round)
        self._tests = [] if done else list(super().configure_evaluate(server_round, arrays, config, grid))
        return self._tests

    def _called(self, client: ClientId) -> str:
        """A client's name, or its node's number."""
        return f"node {client}" if self._book is None else self._book.names[client]

    def _replies(self, messages: Sequence[Message]) -> Replies:
        """Trained models as updates; a reply belongs to the message it replies to, and counts once."""
        sent = {message.metadata.message_id: message.metadata.dst_node_id for message in self._messages}
        assert self._state is not None
        start, rows = self._state.model, dict[ClientId, int]()
        matrix = np.empty((len(sent), len(start)), np.float32)
        facts: dict[ClientId, Mapping[str, Any]] = {}
        failed: dict[ClientId, str] = {}
        self._contents, received = {}, 0
        for message in messages:
            node = sent.pop(message.metadata.reply_to_message_id, None)
            if node is None:
                continue
            row = matrix[len(rows)]
            try:
                facts[node] = self._read(message, row)
                row -= start
                rows[node], self._contents[node] = len(rows), message.content
                received += sum(vector_bytes(arrays) for arrays in message.content.array_records.values())
            except Exception as error:  # whatever a node sent, it is left out and the others go on
                failed[node] = reason_of(error)
        failed |= dict.fromkeys(sent.values(), "no answer")
        ids = tuple(sorted(rows))
        places = np.array([rows[node] for node in ids], dtype=np.intp)
        told = tuple(facts[node] for node in ids)
        return Replies(ids, Updates(matrix, places), told, failed, bytes_up=received)

    def _read(self, message: Message, row: Model) -> dict[str, Any]:
        """The facts that a node reported; its model goes into the row."""
        if message.has_error():
            raise Unfit(f"its node answered with an error: {message.error.reason or message.error.code}")
        arrays, metrics = list(message.content.array_records.values()), list(message.content.metric_records.values())
        if len(arrays) != 1 or len(metrics) != 1:
            raise Unfit(f"a reply has one ArrayRecord and one MetricRecord; got {len(arrays)} and {len(metrics)}")
        facts = dict(metrics[0])
        if self.weighted_by_key in facts:
            facts[SAMPLES] = facts[self.weighted_by_key]
        flat(arrays[0], self._like, row)
        return facts

    @property
    def largest_share(self) -> float:
        """n times the largest weight of any round so far: 1 for equal weights.

        Flower's wrappers for differential privacy make noise for weights of 1/n. With others, one node's update counts
        up to this many times as much, and the noise must be that much larger for the same guarantee.
        """
        rounds = [record.weights.weights for record in self.records if record.weights is not None]
        return max((float(len(weights) * weights.max()) for weights in rounds), default=1.0)

    def explain(self, number: int) -> list[ClientWeight]:
        """How each node of a round came to its weight; `id` is Flower's number of the node, or the client's."""
        record = next((record for record in self.records if record.index == number), None)
        if record is None or record.weights is None:
            return []
        groups = None if record.groups is None else record.groups.labels
        return by_client(record.weights, record.priority, record.ids, record.facts, groups)

    def judges(self) -> Sequence[ClientId]:
        """The connected nodes, or the clients that they are."""
        nodes = sorted(self._grid.get_node_ids())
        return nodes if self._book is None else sorted(self._book.clients_of(nodes).values())

    def _predict(self, models: Iterable[Model]) -> Predictions:
        """The server's look at models."""
        assert self.look is not None  # checked at the start
        return self.look([unflat(model, self._like) for model in models])

    def evaluate(
        self,
        models: Sequence[Model],
        on: AskedRows = "test",
        clients: Sequence[ClientId] | None = None,
        *,
        losses: bool = False,
    ) -> Sequence[Evaluation]:
        """Every candidate on every node, in one exchange, by the app's own evaluate function."""
        nodes = sorted(self._grid.get_node_ids())
        whom = {node: node for node in nodes} if self._book is None else self._book.clients_of(nodes)
        columns = nodes if self._book is None else list(range(len(self._book.names)))
        place_of = {client: place for place, client in enumerate(columns)}
        asked = [node for node, client in whom.items() if clients is None or client in clients]
        self._candidate_bytes += vector_bytes(self._like) * len(models) * len(asked)
        messages, whose = [], []
        for place, model in enumerate(models):
            arrays = unflat(model, self._like)
            for node in asked:
                config = ConfigRecord({"candidate": place, "on": on})
                content = RecordDict({self.arrayrecord_key: arrays, self.configrecord_key: config})
                messages.append(Message(content, dst_node_id=node, message_type=MessageType.EVALUATE))
                whose.append((place, place_of[whom[node]]))
        replies = list(self._grid.send_and_receive(messages))
        keys = {message.metadata.message_id: key for message, key in zip(messages, whose, strict=True)}
        right, lost, sizes = np.zeros((3, len(models), len(columns)))
        for reply in replies:
            key = keys.pop(reply.metadata.reply_to_message_id, None)
            said = {} if reply.has_error() else _told(reply.content)
            size, accuracy = said.get(self.weighted_by_key), said.get("accuracy")
            loss = said.get("loss") if losses else 0.0
            if key is None or not (isinstance(size, int) and 0 <= size <= MOST_SAMPLES):
                continue
            if _between(accuracy, 1) and _between(loss, MOST_LOSS):
                right[key], lost[key], sizes[key] = round(accuracy * size), loss * size, size
        whole = (sizes == sizes[0]).all(axis=0)  # who answered about some candidates only says nothing about the rest
        answered = (sizes[0] * whole).astype(np.int64)
        return [
            Evaluation((row * whole).astype(np.int64), answered, of_rows * whole if losses else None)
            for row, of_rows in zip(right, lost, strict=True)
        ]


def _only_a_fleet_knows(name: str) -> bool:
    """Facts that the server of a whole federation measures itself."""
    return find_fact(name).source == "server" and not name.startswith((VALIDATED, CONTRIBUTION))


def _between(value: Any, high: float) -> TypeGuard[float]:
    """Whether this is a number from 0 to `high`."""
    return isinstance(value, float | int) and 0 <= value <= high


def _told(content: RecordDict) -> dict[str, Any]:
    return {name: value for record in content.metric_records.values() for name, value in record.items()}
