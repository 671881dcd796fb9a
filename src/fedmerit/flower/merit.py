"""Merit: a Flower Strategy that weights the clients of an existing app by a recipe.

The ClientApp only adds facts to its MetricRecord (`fedmerit.flower.facts`). Recipes with personal models, SCAFFOLD and
FedDyn also change the clients, and need `fedmerit flower run`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg, Result
from flwr.serverapp.strategy.strategy_utils import sample_nodes

from fedmerit.config.privacy import epsilon_of_releases, require_account
from fedmerit.core.collect.collect import Poisson
from fedmerit.core.facts import CONTRIBUTION, MOST_SAMPLES, SAMPLES, VALIDATED, find_fact
from fedmerit.core.host import Clients, Host, Limits
from fedmerit.core.learner import MOST_LOSS
from fedmerit.core.models.shared import Assignment
from fedmerit.core.objectives import Predictions
from fedmerit.core.parts import Words, check_words, declared
from fedmerit.core.recipe import RECIPE_WORDS, Recipe
from fedmerit.core.recipes import privacy_of
from fedmerit.core.round import aggregate_round
from fedmerit.core.server.private_sum import PrivateSum, check_selection
from fedmerit.core.state import Clock, Record, State, Tested, make_record
from fedmerit.core.suspects import Watch
from fedmerit.core.types import EMPTY, AskedRows, ClientId, Evaluation, Model, Replies
from fedmerit.core.updates import Updates
from fedmerit.core.weights.weigh import ClientWeight, by_client
from fedmerit.errors import ConfigError
from fedmerit.flower.grid import SafeGrid, error_text
from fedmerit.flower.messages import (
    InvalidRecord,
    consistent_metrics,
    read_replies,
    reason_of,
    to_arrays,
    to_vector,
    vector_bytes,
)
from fedmerit.flower.run_writer import Names, RunWriter
from fedmerit.store.reasons import why

log = logging.getLogger("flwr")

WORDS: Words = frozenset({"evaluation", "validation rows", "test rows", "losses", "answers in their round"})
"""What a strategy provides to a recipe. The app decides which rows its nodes test models on."""
ServerEvaluate = Callable[[Sequence[ArrayRecord]], Predictions]
Combine = Callable[[list[RecordDict], str], MetricRecord]


class Merit(FedAvg):
    """A Flower Strategy that weights clients by a recipe, drops invalid replies, and logs the reason of each weight.

    recipe           how clients are weighted, for example `prioritized("LD", "DS")`
    seed             of all random choices
    server_evaluate  predicts with models on the server's rows, for recipes with `validated:` criteria
    limits           the largest value that a node may report for a fact: `{"samples": 5000, "labels": 10}`
    out              a run folder for ledger, checkpoints and model, for `fedmerit report` and `fedmerit explain`; if it
                     exists, its run is resumed
    names            names of the nodes: a list, indexed by the metric `partition-id` that nodes then report, or a
                     mapping from Flower's node ids
    settings         those of Flower's FedAvg: `fraction_train`, `min_available_nodes`, ...

    A recipe with a search tests candidates with the app's evaluate function. It must report `num-examples`, `accuracy`
    and, for a search by loss, the mean `loss`. A recipe with `privacy` selects each of the `min_available_nodes` nodes
    with probability `fraction_train`, and the server clips updates and adds noise.

    `records` has the record of every round, with client numbers 0, 1, ... instead of Flower's node ids.

    >>> from fedmerit import DS, LD, prioritized
    >>> strategy = Merit(prioritized(LD, DS), fraction_train=0.5, min_available_nodes=10)
    >>> strategy.recipe.priority
    ('LD', 'DS')

    In a ServerApp: `strategy.start(grid=grid, initial_arrays=arrays, num_rounds=3)`.
    """

    def __init__(
        self,
        recipe: Recipe,
        *,
        seed: int = 0,
        server_evaluate: ServerEvaluate | None = None,
        limits: Limits = EMPTY,
        out: Path | str | None = None,
        names: Names = (),
        **settings: Any,
    ) -> None:
        if "shared test" not in declared(recipe.models, "gives"):
            raise ConfigError(
                "Merit needs one model that all clients share, and this recipe trains several; run it with "
                "`fedmerit flower run` (docs/flower.md)"
            )
        rows = {"server rows"} if server_evaluate is not None else set()
        check_words(recipe.parts, WORDS | rows, only=lambda word: word not in RECIPE_WORDS)
        unknown = [name for name in recipe.required_facts if _needs_a_fleet(name)]
        if unknown:
            raise ConfigError(
                f"the recipe needs {', '.join(unknown)}, which a Flower strategy cannot measure; use "
                "`fedmerit flower run`, or, for `clock`, ReportedComputation, which reads the `seconds` that clients "
                "report"
            )
        super().__init__(**settings)
        self._privacy = privacy_of(recipe)
        if self._privacy is not None:
            require_account()
            check_selection(self._privacy, Poisson(self.fraction_train), self.min_available_nodes)
        self.recipe, self.seed, self.server_evaluate, self.limits = recipe, seed, server_evaluate, limits
        self.records: list[Record] = []
        self._watch = Watch()
        self._messages: list[Message] = []
        self._tests: list[Message] = []
        run = {"run": {"seed": seed, "fraction": self.fraction_train}}
        self._run = RunWriter(None if out is None else Path(out), recipe, run, names)
        self._state = self._run.state
        self._candidate_bytes = 0

    def summary(self) -> None:
        """Log the settings at the start."""
        log.info("\t├──> Recipe: %s", self.recipe)
        super().summary()

    def start(self, grid: Grid, *arguments: Any, **settings: Any) -> Result:
        """Run the rounds as FedAvg does, on a grid on which an unreadable reply drops only its node."""
        return super().start(cast(Grid, SafeGrid(grid)), *arguments, **settings)

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Make FedAvg's messages, and store their model, because updates are differences from it."""
        self._grid, self._like, self._messages = grid, arrays, []
        if server_round <= self._run.done:
            return []
        model = to_vector(arrays)
        self._state = replace(self._state or State(model), model=model)
        if self._privacy is None:
            self._messages = list(super().configure_train(server_round, arrays, config, grid))
        else:
            config["server-round"] = server_round
            record = RecordDict({self.arrayrecord_key: arrays, self.configrecord_key: config})
            nodes = self._draw_nodes(self._privacy, server_round)
            self._messages = list(self._construct_messages(record, nodes, MessageType.TRAIN))
        self._run.clients_of(message.metadata.dst_node_id for message in self._messages)  # number new nodes by id
        return self._messages

    def _draw_nodes(self, privacy: PrivateSum, server_round: int) -> list[int]:
        """Select each node with the probability that the privacy accounting assumes; the result may be empty."""
        _, connected = sample_nodes(self._grid, self.min_available_nodes, 0)
        nodes, selection = sorted(connected), Poisson(privacy.fraction, secret=not privacy.reproducible)
        return [nodes[place] for place in selection(server_round, len(nodes), self.seed)]

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Check replies, weight clients, search, aggregate; without a valid reply the model does not change."""
        assert self._state is not None  # Flower calls configure_train first
        if server_round <= self._run.done:
            return to_arrays(self._state.model, self._like), None
        clock, by_node = Clock(), self._read_replies(list(replies))
        collected, nodes, strangers = self._run.by_client(by_node)
        self._candidate_bytes = 0
        assignment = Assignment((self._state.model,), dict.fromkeys(collected.ids, 0))
        result = aggregate_round(self._state, self.recipe, collected, self._host(), assignment, self.seed, clock)
        self._state, names, privacy = result.state, self._run.names, self._privacy
        arrays = to_arrays(result.state.model, self._like)
        down = vector_bytes(self._like) * len(self._messages) + self._candidate_bytes
        tested = Tested(result.moved.evaluation)
        record = make_record(self.recipe.priority, result, tested, down, collected.bytes_up, clock)
        for client, reason in result.dropped.items():
            log.info("\t> %s dropped: %s", names[client], reason)
        for note in result.notes:
            log.info("\t> %s%s", "" if note.client is None else f"{names[note.client]} ", note.text)
        if privacy is not None:
            record = replace(record, epsilon=epsilon_of_releases(privacy, self._run.ledger.releases()))
            log.info("\t> epsilon %.3g at delta %g", record.epsilon, privacy.delta)
        for suspect in self._watch(record):
            log.warning("\t> %s is a suspect: %s", names[suspect.client], suspect.summary)
        named = {name: array.numpy() for name, array in arrays.items()}
        self.records.append(self._run.write(result.state, record, named, strangers))
        for line in why(self._run.ledger).splitlines():
            log.info("\t> %s", line)
        if privacy is not None:  # the accounting does not cover the app's own metrics, so they are not released
            return arrays, None
        if record.weights is None:
            return None, None
        contents = {client: self._contents[nodes[client]] for client in result.cohort.ids}
        return arrays, self._metrics(contents, self.train_metrics_aggr_fn)

    def _host(self) -> Host:
        """What a round can use: nodes that test models, and the app's evaluation on the server's rows."""
        clients = cast(Clients, self)  # a recipe with one model calls only `judges` and `evaluate`
        names = tuple(map(str, range(self.min_available_nodes)))
        predict = None if self.server_evaluate is None else self._predict
        return Host(clients, names, WORDS, self.limits, predict, book=self._run.ledger.book)

    def _metrics(self, contents: Mapping[int, RecordDict], combine: Combine) -> MetricRecord | None:
        """Aggregate the app's own metrics as FedAvg does, over nodes whose metric names agree with the majority."""
        consistent, rejected = consistent_metrics(contents, self.weighted_by_key)
        for node, reason in rejected.items():
            log.warning("\t> metrics of node %d are ignored: %s", node, reason)
        try:
            return combine(list(consistent.values()), self.weighted_by_key) if consistent else None
        except (ValueError, TypeError, KeyError, ArithmeticError) as error:
            log.warning("\t> metrics cannot be aggregated and are dropped: %s", reason_of(error))
            return None

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Make FedAvg's messages, and store them to match replies with nodes."""
        done = server_round <= self._run.done
        self._tests = [] if done else list(super().configure_evaluate(server_round, arrays, config, grid))
        return self._tests

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Aggregate the nodes' tests as FedAvg does, without errors and invalid answers."""
        answers = {reply.metadata.reply_to_message_id: reply for reply in replies if not reply.has_error()}
        nodes = {message.metadata.message_id: message.metadata.dst_node_id for message in self._tests}
        contents = {node: answers[name].content for name, node in nodes.items() if name in answers}
        if contents:
            tests, _ = read_replies(self._read_test, contents)
            counts = {node: (correct, size) for node, (correct, size, _) in tests.items()}
            self.records[-1] = self._run.amend(self.records[-1], counts)
        return self._metrics(contents, self.evaluate_metrics_aggr_fn)

    def _read_test(self, content: RecordDict, *, losses: bool = False) -> tuple[int, int, float]:
        """Read correct rows, rows and summed loss from the reply of an app's evaluate function; check their range."""
        metrics = {name: value for record in content.metric_records.values() for name, value in record.items()}
        size, accuracy = metrics.get(self.weighted_by_key), metrics.get("accuracy")
        loss = metrics.get("loss") if losses else 0.0
        if not isinstance(size, int) or not 0 <= size <= MOST_SAMPLES:
            raise InvalidRecord(
                f"`{self.weighted_by_key}` must be a whole number from 0 to {MOST_SAMPLES:g} (got {size!r:.80})"
            )
        if not isinstance(accuracy, float | int) or not 0 <= accuracy <= 1:
            raise InvalidRecord(f"`accuracy` must be a number from 0 to 1 (got {accuracy!r:.80})")
        if not isinstance(loss, float | int) or not 0 <= loss <= MOST_LOSS:
            raise InvalidRecord(f"`loss` must be a number from 0 to {MOST_LOSS:g} (got {loss!r:.80})")
        return round(accuracy * size), size, loss * size

    def _read_replies(self, messages: Sequence[Message]) -> Replies:
        """Convert trained models to updates, by node; each message accepts one reply."""
        sent = {message.metadata.message_id: message.metadata.dst_node_id for message in self._messages}
        assert self._state is not None
        start, rows = self._state.model, dict[int, int]()
        matrix = np.empty((len(sent), len(start)), np.float32)
        facts: dict[int, Mapping[str, Any]] = {}
        failed: dict[int, str] = {}
        self._contents: dict[int, RecordDict] = {}
        received = 0
        for message in messages:
            node = sent.pop(message.metadata.reply_to_message_id, None)
            if node is None:
                continue
            row = matrix[len(rows)]
            try:
                facts[node] = self._read_reply(message, row)
                row -= start
                rows[node], self._contents[node] = len(rows), message.content
                received += sum(vector_bytes(arrays) for arrays in message.content.array_records.values())
            except Exception as error:  # whatever a node sent, it is dropped and the round continues
                failed[node] = reason_of(error)
        failed |= dict.fromkeys(sent.values(), "no answer")
        ids = tuple(sorted(rows))
        places = np.array([rows[node] for node in ids], dtype=np.intp)
        return Replies(ids, Updates(matrix, places), tuple(facts[node] for node in ids), failed, bytes_up=received)

    def _read_reply(self, message: Message, row: Model) -> dict[str, Any]:
        """Return the facts that a node reported, and write its model to the row."""
        if message.has_error():
            raise InvalidRecord(error_text(message))
        arrays, metrics = list(message.content.array_records.values()), list(message.content.metric_records.values())
        if len(arrays) != 1 or len(metrics) != 1:
            raise InvalidRecord(
                f"a reply must have one ArrayRecord and one MetricRecord (got {len(arrays)} and {len(metrics)})"
            )
        facts = dict(metrics[0])
        if self.weighted_by_key in facts:
            facts[SAMPLES] = facts[self.weighted_by_key]
        to_vector(arrays[0], self._like, row)
        return facts

    @property
    def largest_share(self) -> float:
        """n times the largest weight of any round so far: 1 for equal weights.

        Flower's wrappers for differential privacy calibrate the noise for weights of 1/n. With other weights, one
        update counts up to this many times as much, and the noise must be that much larger for the same guarantee.
        """
        rounds = [record.weights.weights for record in self.records if record.weights is not None]
        return max((float(len(weights) * weights.max()) for weights in rounds), default=1.0)

    def explain(self, number: int) -> list[ClientWeight]:
        """The weight of each client in a round, with its facts, criteria and score."""
        record = next((record for record in self.records if record.index == number), None)
        if record is None or record.weights is None:
            return []
        groups = None if record.groups is None else record.groups.labels
        return by_client(record.weights, record.priority, record.ids, record.facts, groups)

    def judges(self) -> Sequence[ClientId]:
        """The clients whose nodes are connected."""
        return sorted(self._run.clients_of(self._grid.get_node_ids()).values())

    def _predict(self, models: Iterable[Model]) -> Predictions:
        """Predict with models on the server's rows."""
        assert self.server_evaluate is not None  # the constructor checked it
        return self.server_evaluate([to_arrays(model, self._like) for model in models])

    def evaluate(
        self,
        models: Sequence[Model],
        on: AskedRows = "test",
        clients: Sequence[ClientId] | None = None,
        *,
        losses: bool = False,
    ) -> Sequence[Evaluation]:
        """Test every candidate on every node with the app's evaluate function, in one exchange."""
        nodes = self._run.clients_of(self._grid.get_node_ids())
        judges = [(node, client) for node, client in nodes.items() if clients is None or client in clients]
        self._candidate_bytes += vector_bytes(self._like) * len(models) * len(judges)
        messages, cells = [], []
        for place, model in enumerate(models):
            arrays = to_arrays(model, self._like)
            for node, client in judges:
                config = ConfigRecord({"candidate": place, "on": on})
                content = RecordDict({self.arrayrecord_key: arrays, self.configrecord_key: config})
                messages.append(Message(content, dst_node_id=node, message_type=MessageType.EVALUATE))
                cells.append((place, client))
        replies = list(self._grid.send_and_receive(messages))
        sent = {message.metadata.message_id: place for place, message in enumerate(messages)}
        contents = {
            sent.pop(reply.metadata.reply_to_message_id): reply.content
            for reply in replies
            if not reply.has_error() and reply.metadata.reply_to_message_id in sent
        }
        correct, summed, sizes = np.zeros((3, len(models), len(self._run.names)))
        for place, answer in read_replies(lambda reply: self._read_test(reply, losses=losses), contents)[0].items():
            correct[cells[place]], sizes[cells[place]], summed[cells[place]] = answer
        whole = (sizes == sizes[0]).all(axis=0)  # a client counts only if it tested all candidates on the same rows
        rows = (sizes[0] * whole).astype(np.int64)
        return [
            Evaluation((right * whole).astype(np.int64), rows, loss * whole if losses else None)
            for right, loss in zip(correct, summed, strict=True)
        ]


def _needs_a_fleet(name: str) -> bool:
    """Whether a fact is measured by the server of `fedmerit flower run`, which a strategy does not have."""
    return find_fact(name).source == "server" and not name.startswith((VALIDATED, CONTRIBUTION))
