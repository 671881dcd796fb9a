"""Merit: a Flower Strategy that weights the clients of an existing app by a recipe.

The ClientApp only adds facts to its MetricRecord (`fedmerit.flower.facts`). Recipes with personal models, SCAFFOLD and
FedDyn also change the clients, and need `fedmerit flower run`.
"""

from __future__ import annotations

import inspect
import logging
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial, wraps
from itertools import product
from pathlib import Path
from textwrap import TextWrapper
from typing import Any, cast

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg, Result

from fedmerit.config.privacy import epsilon_of_releases, require_account
from fedmerit.core.collect.collect import Poisson
from fedmerit.core.collect.memory import LastAnswers
from fedmerit.core.facts import CONTRIBUTION, MOST_SAMPLES, SAMPLES, VALIDATED, find_fact
from fedmerit.core.host import Clients, Host, Limits
from fedmerit.core.learner import MOST_LOSS
from fedmerit.core.models.shared import Assignment
from fedmerit.core.objectives import Predictions
from fedmerit.core.parts import Words, check_words, declared
from fedmerit.core.recipe import RECIPE_WORDS, Recipe
from fedmerit.core.recipes import fedavg, privacy_of
from fedmerit.core.round import aggregate_round
from fedmerit.core.server.private_sum import PrivateSum, check_selection
from fedmerit.core.showing import printable
from fedmerit.core.state import Clock, Record, State, Tested, make_record
from fedmerit.core.suspects import Watch
from fedmerit.core.types import EMPTY, AskedRows, ClientId, Evaluation, Model, Replies
from fedmerit.core.weights.weigh import ClientWeight
from fedmerit.errors import ConfigError, RunFailed
from fedmerit.flower.grid import SafeGrid, exchange
from fedmerit.flower.inbox import Inbox
from fedmerit.flower.messages import (
    InvalidRecord,
    consistent_metrics,
    read_replies,
    reason_of,
    to_arrays,
    to_vector,
    vector_bytes,
)
from fedmerit.flower.reported import find_key, metrics_of, missing_line, scalars, without_facts
from fedmerit.flower.run_writer import PARTITION, RunWriter
from fedmerit.flower.versions import warn_if_untested
from fedmerit.store.reasons import nothing_weighed, why

log = logging.getLogger("flwr")
INDENT = " " * 18
"""The width of Flower's prefix, a tab and `> `."""
WRAPPER = TextWrapper(80, INDENT, INDENT, break_long_words=False, break_on_hyphens=False)

WORDS: Words = frozenset({"evaluation", "validation rows", "test rows", "losses"})
"""What a strategy provides to a recipe. The app decides which rows its nodes test models on."""
ROUNDING = 1e-3
"""The largest difference between an accuracy that a node reports and the recorded one."""
ServerEvaluate = Callable[[Sequence[ArrayRecord]], Predictions]
ServerMetrics = Callable[[int, ArrayRecord], MetricRecord | None]


def _guarded(start: Callable[..., Result]) -> Callable[..., Result]:
    """Wrap a strategy's `start`: an unreadable reply drops only its node, results are kept, no run ends in silence."""
    signature = inspect.signature(start)

    @wraps(start)
    def guarded(self: Merit, *args: Any, **settings: Any) -> Result:
        call = signature.bind(self, *args, **settings)
        values, grid = call.arguments, call.arguments.get("grid")
        if grid is None or isinstance(grid, SafeGrid):  # a subclass that calls super().start(...) is guarded there
            return start(*call.args, **call.kwargs)
        values["grid"], self._guards = SafeGrid(grid, self._receive), True
        if values.get("evaluate_fn") is not None:
            values["evaluate_fn"] = partial(self._evaluate_server, values["evaluate_fn"])
        try:
            result = start(*call.args, **call.kwargs)
        finally:
            self._grid = grid  # the wrapper refers to this strategy, which would keep its folder locked
        self._require_learning()
        return result

    return guarded


class Merit(FedAvg):
    """A Flower Strategy that weights clients by a recipe, drops invalid replies, and logs the reason of each weight.

    recipe           how clients are weighted, for example `prioritized("LD", "DS")`; default: `fedavg()`, which needs
                     only the `num-examples` that every app reports
    seed             of all random choices
    accuracy_key     the metric of the app's evaluate function that is the accuracy, from 0 to 1; default: `accuracy`,
                     `eval_acc`, `val_accuracy` or another usual name, which is logged
    loss_key         the same for the mean loss
    server_evaluate  predicts with models on the server's rows, for recipes with `validated:` criteria
    limits           the largest value that a node may report for a fact: `{"samples": 5000, "labels": 10}`
    out              a run folder for ledger, checkpoints and model, for `fedmerit report` and `fedmerit explain`; if it
                     exists, its run is resumed
    names            names of the nodes, indexed by the metric `partition-id` that nodes then report
    settings         those of Flower's FedAvg: `fraction_train`, `min_available_nodes`, ...

    If no node reports a fact that the recipe needs, the first round raises an error with the line to add. A run that
    changes the model in no round raises an error at its end. The app's own metrics are aggregated without facts, and
    the results of `evaluate` and of `evaluate_fn` are kept in the ledger under their names.

    A recipe with a search tests candidates with the app's evaluate function. It must report `num-examples`, the
    accuracy and, for a search by loss, the mean loss. A recipe with `privacy` selects each of the
    `min_available_nodes` nodes with probability `fraction_train`, and the server clips updates and adds noise.

    `records` has the record of every round, with client numbers 0, 1, ... instead of Flower's node ids.

    >>> from fedmerit import DS, LD, prioritized
    >>> strategy = Merit(prioritized(LD, DS), fraction_train=0.5, min_available_nodes=10)
    >>> strategy.recipe.priority
    ('LD', 'DS')

    In a ServerApp: `strategy.start(grid=grid, initial_arrays=arrays, num_rounds=3)`.
    """

    def __init__(
        self,
        recipe: Recipe | None = None,
        *,
        seed: int = 0,
        accuracy_key: str | None = None,
        loss_key: str | None = None,
        server_evaluate: ServerEvaluate | None = None,
        limits: Limits = EMPTY,
        out: Path | str | None = None,
        names: Sequence[str] = (),
        **settings: Any,
    ) -> None:
        recipe = fedavg() if recipe is None else recipe
        if not isinstance(recipe, Recipe):
            raise ConfigError(
                f'recipe must be a Recipe, for example prioritized("LD", "DS") (got {recipe!r:.80}); settings of '
                "FedAvg are passed by name: Merit(fraction_train=0.5)"
            )
        warn_if_untested()
        if "shared test" not in declared(recipe.models, "gives"):
            raise ConfigError(
                "Merit needs one model that all clients share, and this recipe trains several; run it with "
                "`fedmerit flower run` (docs/flower.md)"
            )
        check_words(
            recipe.parts,
            WORDS if server_evaluate is None else WORDS | {"server rows"},
            only=lambda word: word not in RECIPE_WORDS,
        )
        unknown = [
            name
            for name in recipe.required_facts
            if find_fact(name).source == "server" and not name.startswith((VALIDATED, CONTRIBUTION))
        ]
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
        self._metric_keys = {"accuracy": accuracy_key, "loss": loss_key}
        self._like = ArrayRecord()
        self._messages: list[Message] = []
        self._inbox: Inbox | None = None
        self._sent = self._judged = self._told_accuracy = self._guards = False
        self._reported: set[str] = set()
        self._warned: set[tuple[str, int]] = set()
        self._tests: list[Message] = []
        settings = {"run": {"seed": seed, "fraction": self.fraction_train}}
        self._run = RunWriter(None if out is None else Path(out), recipe, settings, names)
        self._state = self._run.state
        self._candidate_bytes = 0

    start = _guarded(FedAvg.start)

    def summary(self) -> None:
        """Log the settings at the start."""
        log.info("\t├──> Recipe: %s", self.recipe)
        super().summary()

    def __init_subclass__(cls, **options: Any) -> None:
        """Guard the `start` of a subclass that has its own loop over the rounds."""
        super().__init_subclass__(**options)
        if "start" in vars(cls):
            cls.start = _guarded(cls.start)

    def _require_learning(self) -> None:
        """Raise an error if no round so far has changed the model."""
        changed = (
            one.diagnostics is not None and one.diagnostics.norms.any()
            for one in self.records
            if one.weights is not None
        )
        if self._privacy is not None or not (self._sent and self.records) or any(changed):
            return
        last, reason = self.records[-1], "All updates are 0: every ClientApp returned the model that it received."
        reason = nothing_weighed(self._run.ledger, last.index) if last.weights is None else reason
        raise RunFailed(f"nothing was learned: no round of {len(self.records)} changed the model. {reason}")

    def _receive(self, reply: Message) -> None:
        """Read a training reply as it arrives, so that it is not held until all are there.

        A subclass with its own `aggregate_train` may want the arrays of the replies, so there they stay.
        """
        if self._inbox is not None and type(self).aggregate_train is Merit.aggregate_train:
            self._inbox.read(reply, release=True)

    def _evaluate_server(
        self, evaluate_fn: ServerMetrics, server_round: int, arrays: ArrayRecord
    ) -> MetricRecord | None:
        """Evaluate on the server with the app's function, and keep the result."""
        metrics = evaluate_fn(server_round, arrays)
        if metrics is not None and self.records and self.records[-1].index == server_round:
            values, key = scalars(metrics), self._metric_keys["accuracy"]
            named = {"accuracy": values[key]} if key in values else {}
            self.records[-1] = self._run.amend(self.records[-1], {}, {}, named | values)
        return metrics

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Make FedAvg's messages, and store their model, because updates are differences from it."""
        self._grid, self._like, self._messages = grid, arrays, []
        self._run.describe(getattr(getattr(grid, "run", None), "fab_id", ""))
        if server_round <= self._run.done:
            return []
        model = to_vector(arrays)
        self._state = replace(self._state or State(model), model=model)
        if self._privacy is None:
            fraction, everyone = self.fraction_train, isinstance(self.recipe.memory, LastAnswers)
            self.fraction_train = 1.0 if everyone and server_round == 1 else fraction
            self._messages = list(super().configure_train(server_round, arrays, config, grid))
            self.fraction_train = fraction
        else:
            config["server-round"] = server_round
            record, train = RecordDict({self.arrayrecord_key: arrays, self.configrecord_key: config}), MessageType.TRAIN
            nodes = self._draw_nodes(self._privacy, server_round)
            self._messages = [Message(record, dst_node_id=node, message_type=train) for node in nodes]
        self._run.clients_of(message.metadata.dst_node_id for message in self._messages)  # number new nodes by id
        self._inbox, self._clock = Inbox(self._messages, model, arrays, self.weighted_by_key), Clock()
        self._sent = self._sent or bool(self._messages)
        return self._messages

    def _draw_nodes(self, privacy: PrivateSum, server_round: int) -> list[int]:
        """Select each node with the probability that the privacy accounting assumes; the result may be empty."""
        from flwr.serverapp.strategy.strategy_utils import sample_nodes  # not part of Flower's public interface

        _, connected = sample_nodes(self._grid, self.min_available_nodes, 0)
        nodes, selection = sorted(connected), Poisson(privacy.fraction, secret=not privacy.reproducible)
        return [nodes[place] for place in selection(server_round, len(nodes), self.seed)]

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Check replies, weight clients, search, aggregate; without a valid reply the model does not change."""
        if self._state is None or not self._like or (self._inbox is None and server_round > self._run.done):
            raise RunFailed(
                "Merit.aggregate_train needs the messages of Merit.configure_train, which was not called in round "
                f"{server_round}; a subclass with its own configure_train must call super().configure_train(...)"
            )
        if self._inbox is None or server_round <= self._run.done:
            return to_arrays(self._state.model, self._like), None
        clock, inbox, self._inbox = self._clock, self._inbox, None
        for reply in replies:
            inbox.read(reply)
        clock.lap("train")
        by_node = inbox.replies()
        self._require_facts(by_node)
        collected, nodes, strangers = self._run.by_client(by_node)
        self._warn_of_missing(collected, strangers)
        self._candidate_bytes = 0
        assignment = Assignment((self._state.model,), dict.fromkeys(collected.ids, 0))
        result = aggregate_round(self._state, self.recipe, collected, self._host(), assignment, self.seed, clock)
        self._state, names, privacy = result.state, self._run.names, self._privacy
        arrays = to_arrays(result.state.model, self._like)
        down = vector_bytes(self._like) * len(self._messages) + self._candidate_bytes
        tested = Tested(result.moved.evaluation)
        record = make_record(self.recipe.priority, result, tested, down, collected.bytes_up, clock)
        for client, reason in result.dropped.items():
            _tell(f"{names[client]} dropped: {reason}")
        for note in result.notes:
            _tell(note.text if note.client is None else f"{names[note.client]} {note.text}")
        if privacy is not None:
            record = replace(record, epsilon=epsilon_of_releases(privacy, self._run.ledger.releases()))
            _tell(f"epsilon {record.epsilon:.3g} at delta {privacy.delta:g}")
        for suspect in self._watch(record):
            _tell(f"{names[suspect.client]} is a suspect: {suspect.summary}", logging.WARNING)
        self.records.append(self._run.write(result.state, record, arrays, strangers))
        for line in why(self._run.ledger).splitlines() if record.weights is not None or not result.dropped else ():
            _tell(line)
        if privacy is not None:  # the accounting does not cover the app's own metrics, so they are not released
            return arrays, None
        if not self._guards:  # Flower's wrappers have their own loop, whose end is not known here
            self._require_learning()
        if record.weights is None:
            return None, None
        contents = {nodes[client]: inbox.contents[nodes[client]] for client in result.cohort.fresh().ids}
        return arrays, self._metrics(contents, self.train_metrics_aggr_fn)

    def _host(self) -> Host:
        """What a round can use: nodes that test models, and the app's evaluation on the server's rows."""
        clients = cast(Clients, self)  # a recipe with one model calls only `judges` and `evaluate`
        # A private sum counts the clients that can be drawn, which are `min_available_nodes`.
        names = self._run.names if self._privacy is None else map(str, range(self.min_available_nodes))
        predict = None if self.server_evaluate is None else partial(self._predict, self.server_evaluate)
        return Host(clients, tuple(names), WORDS, self.limits, predict, book=self._run.ledger.book)

    def _require_facts(self, replies: Replies) -> None:
        """Raise an error if no node has ever reported a fact that the recipe needs."""
        needed = [*([PARTITION] if self._run.by_claim else []), *self.recipe.client_facts]
        self._reported |= {name for facts in replies.facts for name in needed if name in facts}
        missing = [name for name in needed if name not in self._reported]
        if missing and replies.ids:
            names = ", ".join(f"`{self.weighted_by_key if name == SAMPLES else name}`" for name in missing)
            needs = "`names`" if missing == [PARTITION] else "the recipe"
            line = missing_line(missing, self.weighted_by_key)
            use, where = "    from fedmerit.flower import facts\n", "\nwith the labels `y` of the node's training rows"
            raise ConfigError(
                f"no node reports {names}, which {needs} needs.\n"
                "Add it to the metrics of the ClientApp's train reply:\n"
                + (f"{use}    {line}{where}, numbers from 0 to `classes` - 1" if "**facts(" in line else f"    {line}")
            )

    def _warn_of_missing(self, replies: Replies, strangers: Mapping[int, str]) -> None:
        """Warn once per client that does not report a required fact, and of nodes that are not a named client."""
        for name in self.recipe.client_facts:
            new = [
                client
                for client, facts in zip(replies.ids, replies.facts, strict=True)
                if name not in facts and (name, client) not in self._warned
            ]
            self._warned |= {(name, client) for client in new}
            if new:
                who, line = ", ".join(map(self._run.names.__getitem__, new)), missing_line([name], self.weighted_by_key)
                _tell(f"dropped because `{name}` is missing: {who}. Their ClientApp must have:", logging.WARNING, line)
        for node, reason in strangers.items():
            _tell(f"node {node} is left out: {reason}", logging.WARNING)

    def _metrics(
        self, contents: Mapping[int, RecordDict], combine: Callable[[list[RecordDict], str], MetricRecord]
    ) -> MetricRecord | None:
        """Aggregate the app's own metrics as FedAvg does, over nodes whose metric names agree with the majority."""
        consistent, rejected = consistent_metrics(self._without_facts(contents), self.weighted_by_key)
        for node, reason in rejected.items():
            _tell(f"metrics of {self._run.name_of(node)} are ignored: {reason}", logging.WARNING)
        try:
            return combine(list(consistent.values()), self.weighted_by_key) if consistent else None
        except (ValueError, TypeError, KeyError, ArithmeticError) as error:
            _tell(f"metrics cannot be aggregated and are dropped: {reason_of(error)}", logging.WARNING)
            return None

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Make FedAvg's messages, and store them to match replies with nodes."""
        self._tests = (
            list(super().configure_evaluate(server_round, arrays, config, grid))
            if server_round > self._run.done
            else []
        )
        return self._tests

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Aggregate the nodes' tests as FedAvg does, without errors and invalid answers."""
        answers = {reply.metadata.reply_to_message_id: reply for reply in replies if not reply.has_error()}
        nodes = {message.metadata.message_id: message.metadata.dst_node_id for message in self._tests}
        if not self._tests and server_round > self._run.done:  # a subclass made its own messages
            nodes = {name: reply.metadata.src_node_id for name, reply in answers.items()}
        contents = {node: answers[name].content for name, node in nodes.items() if name in answers}
        if contents and self.records:
            tests, rejected = self._read_tests(contents)
            if not tests and not self._told_accuracy:
                self._told_accuracy = True
                _tell(f"no accuracy of the nodes is kept: {next(iter(rejected.values()))}", logging.WARNING)
            own, _ = consistent_metrics(self._without_facts(contents), self.weighted_by_key)
            metrics = {node: scalars(metrics_of(content), self.weighted_by_key) for node, content in own.items()}
            self.records[-1] = self._run.amend(self.records[-1], tests, metrics)
        return self._metrics(contents, self.evaluate_metrics_aggr_fn)

    def _without_facts(self, contents: Mapping[int, RecordDict]) -> dict[int, RecordDict]:
        return {
            node: without_facts(content, self.recipe.client_facts, self.weighted_by_key)
            for node, content in contents.items()
        }

    def _read_tests(
        self, contents: Mapping[int, RecordDict], *, losses: bool = False
    ) -> tuple[dict[int, tuple[int, int, float]], dict[int, str]]:
        """Read correct rows, rows and summed loss of each reply; reasons for the unusable ones.

        Some apps count batches, not rows. If rounding to whole rows would change the accuracy, each counts 1,000 times.
        """
        keys = {kind: self._key(kind, list(contents.values())) for kind in ("accuracy", *(["loss"] if losses else []))}
        tests, rejected = read_replies(partial(self._read_test, keys=keys), contents)
        shares = [(share, size) for share, size, _ in tests.values() if size]
        unit = 1000 if any(abs(share - round(share * size) / size) > ROUNDING for share, size in shares) else 1
        return {
            node: (round(share * size * unit), size * unit, loss * size * unit)
            for node, (share, size, loss) in tests.items()
        }, rejected

    def _key(self, kind: str, contents: Sequence[RecordDict]) -> str | None:
        """The metric that is the accuracy or the loss: the given one, or a usual name, which is logged once."""
        if self._metric_keys[kind] is None and (found := find_key(kind, contents)):
            self._metric_keys[kind] = found
            if found != kind:
                _tell(f"the {kind} of the nodes is their metric `{found}`")
        return self._metric_keys[kind]

    def _read_test(self, content: RecordDict, keys: Mapping[str, str | None]) -> tuple[float, int, float]:
        """Read accuracy, rows and mean loss from the reply of an app's evaluate function; check their range."""
        metrics = metrics_of(content)
        size = metrics.get(self.weighted_by_key)
        if not isinstance(size, float | int) or not 0 <= size <= MOST_SAMPLES or size != int(size):
            raise InvalidRecord(
                f"`{self.weighted_by_key}` must be a whole number from 0 to {MOST_SAMPLES:g} (got {size!r:.80})"
            )
        values = {"loss": 0.0}
        for kind, key in keys.items():
            value, high = metrics.get(key or kind), {"accuracy": 1.0, "loss": MOST_LOSS}[kind]
            if not isinstance(value, float | int) or not 0 <= value <= high:
                raise InvalidRecord(
                    f"`{key or kind}` must be a number from 0 to {high:g} (got {value!r:.80}; its metrics are "
                    f"{', '.join(metrics):.200}); name another one with Merit(..., {kind}_key=...)"
                )
            values[kind] = float(value)
        return values["accuracy"], int(size), values["loss"]

    def explain(self, number: int) -> list[ClientWeight]:
        """The weight of each client in a round, with its facts, criteria and score."""
        return self._run.ledger.weights(number)

    def judges(self) -> Sequence[ClientId]:
        """The clients whose nodes are connected."""
        return sorted(self._run.clients_of(self._grid.get_node_ids()).values())

    def _predict(self, server_evaluate: ServerEvaluate, models: Iterable[Model]) -> Predictions:
        """Predict with models on the server's rows."""
        return server_evaluate([to_arrays(model, self._like) for model in models])

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
        cells = list(product(range(len(models)), (client for _, client in judges)))
        contents = list[tuple[int, RecordDict]]()
        for place, model in enumerate(models):
            config = ConfigRecord({"candidate": place, "on": on})
            record = RecordDict({self.arrayrecord_key: to_arrays(model, self._like), self.configrecord_key: config})
            contents += [(node, record) for node, _ in judges]
        result = exchange(
            self._grid, dict(enumerate(contents)), MessageType.EVALUATE, math.inf, lambda content: content
        )
        correct, summed, sizes = np.zeros((3, len(models), len(self._run.names)))
        tests, rejected = self._read_tests(result.answers, losses=losses)
        rejected |= result.failed
        self._require_judges(bool(tests), {cells[place][1]: reason for place, reason in rejected.items()})
        for place, answer in tests.items():
            correct[cells[place]], sizes[cells[place]], summed[cells[place]] = answer
        whole = (sizes == sizes[0]).all(axis=0)  # a client counts only if it tested all candidates on the same rows
        rows = (sizes[0] * whole).astype(np.int64)
        return [
            Evaluation((right * whole).astype(np.int64), rows, loss * whole if losses else None)
            for right, loss in zip(correct, summed, strict=True)
        ]

    def _require_judges(self, judged: bool, rejected: Mapping[ClientId, str]) -> None:
        """Raise an error if no node has ever tested a candidate of the search; later, a warning."""
        reasons = (f"{self._run.names[client]}: {reason}" for client, reason in sorted(rejected.items()))
        reason = printable(next(reasons, "no node answered"))
        if not (judged or self._judged):
            raise RunFailed(
                "the recipe's search tests candidate models with the app's evaluate function, and no node returned a "
                f"usable result ({reason})"
            )
        if not judged:
            _tell(f"no node tested the candidates of this round ({reason})", logging.WARNING)
        self._judged = True


def _tell(text: str, level: int = logging.INFO, code: str = "") -> None:
    """Log a sentence in lines of 80 columns, and a line of code that must not be wrapped."""
    log.log(level, "\t> %s", "\n".join([WRAPPER.fill(text).lstrip(), *([INDENT + code] if code else [])]))
