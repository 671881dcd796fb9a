"""Merit: a Flower Strategy for existing apps; Flower collects the replies, `core.round.aggregate_round` does the rest.

The app's ClientApp stays as it is and adds facts to its MetricRecord (`facts` helps). Recipes in which clients have
personal models, SCAFFOLD and FedDyn need the whole federation (`fedmerit flower`).
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
"""What a strategy provides: the app's nodes test models on whichever rows they hold."""
ServerEvaluate = Callable[[Sequence[ArrayRecord]], Predictions]
Combine = Callable[[list[RecordDict], str], MetricRecord]


class Merit(FedAvg):
    """A recipe as a Strategy: it checks each reply, weights clients by merit, and drops invalid replies.

    recipe           how clients are weighted; a search asks nodes through the app's own evaluate function, all
                     candidates in one exchange, which must answer with `num-examples`, a metric `accuracy` and, for a
                     search by loss, the mean `loss`. A recipe with `privacy` is accounted for: each node takes part
                     with probability `fraction_train`, of `min_available_nodes` in all, and updates are clipped and
                     noised here
    server_evaluate  predicts with models on the server's rows, for recipes with `validated:` criteria
    limits           the largest values that a node may claim, by fact: `{"samples": 5000, "labels": 10}`
    out              a folder for ledger, checkpoints and model, as `fedmerit run` makes it; a run in it is resumed
    names            names of the nodes: by the metric `partition-id` that they then report, or by Flower's node ids

    `records` holds the record of every round, by clients 0, 1, ... in place of Flower's node ids; the log says why each
    client got its weight. Everything else is FedAvg's: fractions, minimal numbers of nodes, keys.
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
                "clients with personal models, or that choose among several, need the whole federation: see "
                "`fedmerit flower`"
            )
        rows = {"server rows"} if server_evaluate is not None else set()
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
        """FedAvg's rounds, on a grid on which an unreadable reply drops only its node."""
        return super().start(cast(Grid, SafeGrid(grid)), *arguments, **settings)

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """FedAvg's messages; the model in them is stored, because updates are differences from it."""
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
        self._run.clients_of(message.metadata.dst_node_id for message in self._messages)  # numbered by node id
        return self._messages

    def _draw_nodes(self, privacy: PrivateSum, server_round: int) -> list[int]:
        """Draw each node with the probability of the account, once all planned nodes are there; maybe none."""
        _, connected = sample_nodes(self._grid, self.min_available_nodes, 0)
        nodes, selection = sorted(connected), Poisson(privacy.fraction, secret=not privacy.reproducible)
        return [nodes[place] for place in selection(server_round, len(nodes), self.seed)]

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Check, weight, search, aggregate; without a valid reply the model stays."""
        assert self._state is not None  # configure_train comes first
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
            log.warning("\t> %s stands out %s", names[suspect.client], suspect.summary)
        named = {name: array.numpy() for name, array in arrays.items()}
        self.records.append(self._run.write(result.state, record, named, strangers))
        for line in why(self._run.ledger).splitlines():
            log.info("\t> %s", line)
        if privacy is not None:  # the app's own metrics are not in the account, and stay here
            return arrays, None
        if record.weights is None:
            return None, None
        contents = {client: self._contents[nodes[client]] for client in result.cohort.ids}
        return arrays, self._metrics(contents, self.train_metrics_aggr_fn)

    def _host(self) -> Host:
        """What a round may use here: connected nodes that test models, and the app's evaluation on server rows."""
        clients = cast(Clients, self)  # of the clients' methods a recipe with one model only calls these two
        names = tuple(map(str, range(self.min_available_nodes)))
        predict = None if self.server_evaluate is None else self._predict
        return Host(clients, names, WORDS, self.limits, predict, book=self._run.ledger.book)

    def _metrics(self, contents: Mapping[int, RecordDict], combine: Combine) -> MetricRecord | None:
        """The app's own metrics, aggregated as FedAvg does, of the nodes whose metrics agree with most nodes'."""
        consistent, rejected = consistent_metrics(contents, self.weighted_by_key)
        for node, reason in rejected.items():
            log.warning("\t> metrics of node %d do not count: %s", node, reason)
        try:
            return combine(list(consistent.values()), self.weighted_by_key) if consistent else None
        except (ValueError, TypeError, KeyError, ArithmeticError) as error:
            log.warning("\t> metrics do not fit together, none are kept: %s", reason_of(error))
            return None

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """FedAvg's messages, stored, because an answer belongs to the message that it replies to."""
        done = server_round <= self._run.done
        self._tests = [] if done else list(super().configure_evaluate(server_round, arrays, config, grid))
        return self._tests

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """The nodes' own tests, aggregated as FedAvg does; errors and invalid answers do not count."""
        answers = {reply.metadata.reply_to_message_id: reply for reply in replies if not reply.has_error()}
        asked = {message.metadata.message_id: message.metadata.dst_node_id for message in self._tests}
        contents = {node: answers[name].content for name, node in asked.items() if name in answers}
        if contents:
            tests, _ = read_replies(self._read_test, contents)
            counts = {node: (correct, size) for node, (correct, size, _) in tests.items()}
            self.records[-1] = self._run.amend(self.records[-1], counts)
        return self._metrics(contents, self.evaluate_metrics_aggr_fn)

    def _read_test(self, content: RecordDict, *, losses: bool = False) -> tuple[int, int, float]:
        """Correct rows, rows and the summed loss that an app's evaluate function reports, if they are possible."""
        metrics = {name: value for record in content.metric_records.values() for name, value in record.items()}
        size, accuracy = metrics.get(self.weighted_by_key), metrics.get("accuracy")
        loss = metrics.get("loss") if losses else 0.0
        if not isinstance(size, int) or not 0 <= size <= MOST_SAMPLES:
            raise InvalidRecord(f"{self.weighted_by_key} must be a whole number from 0 to {MOST_SAMPLES:g}")
        if not isinstance(accuracy, float | int) or not 0 <= accuracy <= 1:
            raise InvalidRecord("accuracy must be a number in 0..1")
        if not isinstance(loss, float | int) or not 0 <= loss <= MOST_LOSS:
            raise InvalidRecord(f"loss must be a number from 0 to {MOST_LOSS:g}")
        return round(accuracy * size), size, loss * size

    def _read_replies(self, messages: Sequence[Message]) -> Replies:
        """Trained models as updates, by node; a reply belongs to the message it replies to, and counts once."""
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
        """The facts that a node reported; its model is written to the row."""
        if message.has_error():
            raise InvalidRecord(error_text(message))
        arrays, metrics = list(message.content.array_records.values()), list(message.content.metric_records.values())
        if len(arrays) != 1 or len(metrics) != 1:
            raise InvalidRecord(
                f"a reply has one ArrayRecord and one MetricRecord; got {len(arrays)} and {len(metrics)}"
            )
        facts = dict(metrics[0])
        if self.weighted_by_key in facts:
            facts[SAMPLES] = facts[self.weighted_by_key]
        to_vector(arrays[0], self._like, row)
        return facts

    @property
    def largest_share(self) -> float:
        """n times the largest weight of any round so far: 1 for equal weights.

        Flower's wrappers for differential privacy add noise for weights of 1/n. With other weights, one node's update
        counts up to this many times as much, and the noise must be that much larger for the same guarantee.
        """
        rounds = [record.weights.weights for record in self.records if record.weights is not None]
        return max((float(len(weights) * weights.max()) for weights in rounds), default=1.0)

    def explain(self, number: int) -> list[ClientWeight]:
        """The weight of each client in a round, with what it was computed from."""
        record = next((record for record in self.records if record.index == number), None)
        if record is None or record.weights is None:
            return []
        groups = None if record.groups is None else record.groups.labels
        return by_client(record.weights, record.priority, record.ids, record.facts, groups)

    def judges(self) -> Sequence[ClientId]:
        """The clients whose nodes are connected."""
        return sorted(self._run.clients_of(self._grid.get_node_ids()).values())

    def _predict(self, models: Iterable[Model]) -> Predictions:
        """Predictions of models on the server's rows."""
        assert self.server_evaluate is not None  # checked at the start
        return self.server_evaluate([to_arrays(model, self._like) for model in models])

    def evaluate(
        self,
        models: Sequence[Model],
        on: AskedRows = "test",
        clients: Sequence[ClientId] | None = None,
        *,
        losses: bool = False,
    ) -> Sequence[Evaluation]:
        """Every candidate on every node, in one exchange, by the app's own evaluate function."""
        nodes = self._run.clients_of(self._grid.get_node_ids())
        asked = [(node, client) for node, client in nodes.items() if clients is None or client in clients]
        self._candidate_bytes += vector_bytes(self._like) * len(models) * len(asked)
        messages, cells = [], []
        for place, model in enumerate(models):
            arrays = to_arrays(model, self._like)
            for node, client in asked:
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
        for place, answer in read_replies(lambda one: self._read_test(one, losses=losses), contents)[0].items():
            correct[cells[place]], sizes[cells[place]], summed[cells[place]] = answer
        whole = (sizes == sizes[0]).all(axis=0)  # an answer about some candidates only cannot compare them
        rows = (sizes[0] * whole).astype(np.int64)
        return [
            Evaluation((right * whole).astype(np.int64), rows, loss * whole if losses else None)
            for right, loss in zip(correct, summed, strict=True)
        ]


def _only_a_fleet_knows(name: str) -> bool:
    """Whether only the server of a whole federation measures this fact."""
    return find_fact(name).source == "server" and not name.startswith((VALIDATED, CONTRIBUTION))
