"""The model card of a run on one page: use, data, measures with intervals, weights, privacy, limits; Markdown or HTML.

The ledger has most of it. Shares of labels and measures of groups also need the run's data: they are read again if the
task is a table or built in. A module that the run folder names is never imported.
"""

from __future__ import annotations

import html
import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import scipy
from numpy.typing import NDArray

from fedmerit.config.schema import Config, make_config
from fedmerit.config.task import TABLE
from fedmerit.core.criteria.table import display_name
from fedmerit.core.facts import SAMPLES
from fedmerit.core.host import predict_rows
from fedmerit.core.models.shared import OneModel
from fedmerit.core.objectives import Predictions, find_objective
from fedmerit.core.state import SERVER
from fedmerit.core.types import ACCURACY, Samples, Vector
from fedmerit.engine.finished import Run, stored_encoder
from fedmerit.errors import UserError
from fedmerit.report.weights_page import page_html
from fedmerit.store.files import check_new_file, write_new_file
from fedmerit.store.ledger import Ledger, kept_recipe
from fedmerit.store.run_folder import MODEL, PACKAGES
from fedmerit.study.metrics import audits_by_objective, known_of_clients
from fedmerit.study.statistics import LEVEL
from fedmerit.study.text_table import UNKNOWN, TextTable, markdown_text
from fedmerit.tasks.encoding import Encoder
from fedmerit.tasks.federation import Federation
from fedmerit.tasks.registry import TASKS, find_task, make_federation

TITLE = "Model card"
MOST_CLIENTS, MOST_LABELS, REASONS = 20, 6, 3
"""Rows and columns of tables, and reasons of the largest and of the smallest weights: a card is one page."""
FEW_ROWS = 30
"""Test rows of a client below which its measures are called uncertain."""
SERVER_ROWS = "the server's rows"
INTERVALS = (
    "Intervals: of shares of rows by Wilson's method; of means over clients by a bootstrap over the clients "
    "(percentiles of 9,999 resamples); of other measures of a client or group by a bootstrap over its rows (499). "
    "Values on the server's rows have none."
)
RESAMPLES, ROW_RESAMPLES = 9999, 499
WHY = "Why, in the last round (fedmerit explain has the reasons of all clients and rounds):"
NO_PRIVACY = (
    "No differential privacy: the model may reveal who took part. This card has figures of single clients; ask them "
    "before you publish it."
)
Block: TypeAlias = str | tuple[str, ...] | TextTable
"""A paragraph, a list, or a table."""
OMITTED = (
    "Left out because the run is private: epsilon covers the model only. Numbers of rows, labels, accuracies and "
    "weights of clients have no noise and must not be published."
)


@dataclass(frozen=True, slots=True)
class Measured:
    """A measure after the last evaluated round: overall and of each client, with its interval if it has one."""

    name: str
    overall: str
    where: str
    clients: Mapping[int, str]


def write_card(run: Run, out: Path, *, force: bool = False) -> None:
    """Write the card of a run to a new file: HTML if its name ends in .html, else Markdown."""
    check_new_file(out, "another --card", force=force)
    write_new_file(out, card(run, as_html=out.suffix.lower() == ".html"), "another --card")


def card(run: Run, *, as_html: bool = False) -> str:
    """Make the model card as Markdown, or as an HTML page."""
    sections = _Card.of(run).sections()
    if as_html:
        return page_html(TITLE, "".join([f"<h1>{TITLE}</h1>", *(_html(name, sections[name]) for name in sections)]))
    parts = [f"# {TITLE}", *(part for name in sections for part in (f"## {name}", *map(_text, sections[name])))]
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


def measured(ledger: Ledger, number: int, first: str | None = None) -> list[Measured]:
    """Accuracy and audited measures of a round; the one named `first` leads."""
    tested = _tested(ledger, number)
    right, rows = (sum(pair[place] for pair in tested.values()) for place in (0, 1))
    by_client = {client: proportion(*pair) for client, pair in tested.items()}
    measures = [Measured(ACCURACY, proportion(right, rows), "all clients' test rows", by_client)]
    for name, by_round in audits_by_objective(ledger, number).items():
        known, server = known_of_clients(by_round[number]), by_round[number].get(SERVER)
        where = f"mean over {len(known)} clients, by test rows" if server is None else SERVER_ROWS
        sizes = [tested.get(client, (0, 1))[1] for client in known]
        overall = _mean([*known.values()], sizes) if server is None else f"{server:.3f}"
        measures.append(Measured(name, overall, where, {client: f"{value:.3f}" for client, value in known.items()}))
    return sorted(measures, key=lambda each: each.name != first)


def proportion(right: int, rows: int) -> str:
    """A share with its 95 % interval by Wilson's method.

    >>> proportion(8, 10)
    '0.800 (0.490 to 0.943)'
    """
    if not rows:
        return UNKNOWN
    low, high = scipy.stats.binomtest(right, rows).proportion_ci(LEVEL, "wilson")
    return f"{right / rows:.3f} ({low:.3f} to {high:.3f})"


def _mean(values: Sequence[float], sizes: Sequence[int]) -> str:
    """The mean of clients' values weighted by their test rows, with its bootstrap interval over the clients."""
    if len(values) < 2:
        return f"{values[0]:.3f}" if values else UNKNOWN
    drawn = np.random.default_rng(0).integers(len(values), size=(RESAMPLES, len(values)))
    means = np.average(np.array(values)[drawn], axis=1, weights=np.array(sizes)[drawn])
    return _with_interval(float(np.average(values, weights=sizes)), means)


def _with_interval(value: float, resampled: Sequence[float] | Vector) -> str:
    low, high = np.nanquantile(resampled, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return f"{value:.3f} ({low:.3f} to {high:.3f})"


def of_rows(name: str, judged: Predictions, rows: NDArray[np.int64]) -> str:
    """A measure on some rows, with its bootstrap interval over these rows."""
    objective, drawn = find_objective(name), np.random.default_rng(0).choice(rows, (ROW_RESAMPLES, len(rows)))
    value, *values = (float(objective(judged.at(places))[0]) for places in (rows, *drawn))
    return UNKNOWN if np.isnan(value) else _with_interval(value, values)


def _tested(ledger: Ledger, number: int) -> dict[int, tuple[int, int]]:
    """Correct test rows and all test rows of each client after a round."""
    return {client: (right, rows) for index, client, right, rows in ledger.evaluations(number - 1) if index == number}


@dataclass(frozen=True, slots=True)
class _Card:
    """What a card is made of: the last evaluated round, and configuration, encoder and data as far as they are known.

    A private run has no `data`.
    """

    run: Run
    last: Mapping[str, Any]
    names: Sequence[str]
    tested: Mapping[int, tuple[int, int]]
    config: Config | None
    encoder: Encoder | None
    data: Federation | None

    @classmethod
    def of(cls, run: Run) -> _Card:
        rounds = [row for row in run.ledger.rounds() if row["accuracy"] is not None]
        if not rounds:
            raise UserError("the run has no evaluated round yet; resume it, or run it to its end")
        settings = json.loads(run.ledger.meta().get("config", "null"))
        config, tested = make_config(settings) if settings else None, _tested(run.ledger, rounds[-1]["round"])
        data = None if rounds[-1]["epsilon"] is not None else _read_data(run, config, tested)
        encoder = run.encoder or (data.encoder if data else stored_encoder(run.folder, run.ledger))
        return cls(run, rounds[-1], run.ledger.names(), tested, config, encoder, data)

    def sections(self) -> dict[str, list[Block]]:
        """The card's sections in the usual order."""
        return {
            "Model details": [self._details()],
            "Intended use": [*self._use()],
            "Data": [OMITTED] if self._private else [*self._data()],
            "Measures": [*self._measures()],
            "Weights": [*self._weights()],
            "Privacy": [self._privacy()],
            "Limitations": [tuple(self._limits())],
        }

    @property
    def _private(self) -> bool:
        return self.last["epsilon"] is not None

    def _table(self, title: str, header: Sequence[str], cells: Callable[[int], Sequence[str]]) -> TextTable:
        """A table with a row for each client, or for those with the most test rows."""
        by_size = sorted(range(len(self.names)), key=lambda client: -self.tested.get(client, (0, 0))[1])
        rows = tuple((self.names[client], *cells(client)) for client in sorted(by_size[:MOST_CLIENTS]))
        more = len(self.names) - MOST_CLIENTS
        below = (f"{more} further clients are not listed; these have the most test rows.",) if more > 0 else ()
        return TextTable(title, ("client", *header), rows, below)

    def _details(self) -> tuple[str, ...]:
        meta, config = self.run.ledger.meta(), self.config
        model, training = "made in Python", ""
        if config is not None:
            task, train = config.task, config.train
            name = find_task(task.data).models[0] if task.model == "default" and self.data else task.model
            model = f"{name}, trained on {task.data}"
            training = f"; {train.optimizer} with lr {train.lr:g}, {train.epochs} epochs; seed {config.run.seed}"
        return (
            f"Model: {model}; file {MODEL}",
            f"Training: {len(self.names)} clients, {self.last['round']} rounds{training}",
            f"Versions: {', '.join(f'{name} {meta[name]}' for name in PACKAGES if name in meta)}",
            f"Date of this card: {date.today().isoformat()}",
            f"Last hash of the ledger: {self.run.ledger.head()}",
        )

    def _use(self) -> Iterator[str]:
        encoder, what = self.encoder, "The model predicts the label of a row of inputs."
        if encoder is not None:
            label = self.config.task.label if self.config and encoder.kind == "classes" else ""
            words = ", ".join(encoder.labels)
            what = f"The model predicts {f'{label} ({words})' if label else words} from {', '.join(encoder.names)}."
        yield f"{what} It is meant for rows that were collected as the clients below collect theirs."
        yield "Not meant for other populations, nor for decisions about people that no person checks."

    def _data(self) -> Iterator[Block]:
        data, ledger = self.data, self.run.ledger
        by_round = (ledger.weights(row["round"]) for row in ledger.rounds())
        rows = {one.id: one.facts.get(SAMPLES, 0.0) for weights in by_round for one in weights}
        rows |= dict(enumerate(data.train.sizes.tolist())) if data else {}
        header, shares = self._label_shares()

        def cells(client: int) -> Sequence[str]:
            train, test = rows.get(client), self.tested.get(client, (0, 0))[1]
            return (UNKNOWN if train is None else f"{train:,.0f}", f"{test:,}", *shares.get(client, ()))

        title = f"Rows of each client{', and labels of its training rows' if header else ''}"
        yield self._table(title, ("training", "test", *header), cells)
        if data is not None and data.report:
            yield ("Columns:", *data.report)

    def _words(self) -> Sequence[str]:
        return self.encoder.labels if self.encoder else [*map(str, range(self.data.classes if self.data else 0))]

    def _label_shares(self) -> tuple[list[str], dict[int, Sequence[str]]]:
        """Shares of the labels in each client's training rows, or of the commonest one, if they are known."""
        data, words = self.data, self._words()
        if data is None or data.target == "number":
            return [], {}
        hits = data.train.y[:, None] == np.arange(data.classes)
        clients = np.flatnonzero(data.train.sizes).tolist()
        shares = {client: 100 * hits[data.train.rows(client)].mean(axis=0) for client in clients}
        if len(words) > MOST_LABELS:
            return ["commonest"], {i: [f"{words[int(one.argmax())]} ({one.max():.0f} %)"] for i, one in shares.items()}
        return [f"{word} (%)" for word in words], {i: [f"{each:.0f}" for each in one] for i, one in shares.items()}

    def _measures(self) -> Iterator[Block]:
        measures = measured(self.run.ledger, self.last["round"], self.run.ledger.measure)
        if self._private:
            yield OMITTED
            measures = [each for each in measures if each.where == SERVER_ROWS]
        if measures:
            rows = tuple((each.name, each.overall, each.where) for each in measures)
            right = [f"Here {event.text}." for event in self.run.ledger.events() if event.kind == "target"]
            title = f"After round {self.last['round']}, with 95 % intervals"
            yield TextTable(title, ("measure", "value", "measured on"), rows, (INTERVALS, *right))
        if self._private:
            return
        columns, judged = [each for each in measures if each.clients], self._judged()

        def cell(column: Measured, client: int) -> str:
            if judged is None or self.data is None or column.name == ACCURACY or client not in column.clients:
                return column.clients.get(client, UNKNOWN)
            return of_rows(column.name, judged, np.arange(len(judged.y))[self.data.test.rows(client)])

        header = [each.name for each in columns]
        yield self._table("On each client's test rows", header, lambda client: [cell(each, client) for each in columns])
        names = (ACCURACY, *([self.run.ledger.measure] if self.run.ledger.measure != ACCURACY else []))
        if judged is not None and (groups := tuple(self._groups(judged, names))):
            yield TextTable("Groups, on all clients' test rows", ("group", "test rows", *names), groups)

    def _judged(self) -> Predictions | None:
        """Predictions of all test rows; needs data, a shared model, and a module that we know."""
        recipe, task = kept_recipe(self.run.ledger), self.config.task if self.config else None
        if not (self.data and task and recipe and isinstance(recipe.models, OneModel)) or ":" in task.model:
            return None
        test, learner = self.data.test, self.run.estimator().learner
        return predict_rows(learner, Samples(test.x, test.y, self.data.classes, test.attributes), [self.run.model])

    def _groups(self, judged: Predictions, names: Sequence[str]) -> Iterator[tuple[str, ...]]:
        """Accuracy and the run's measure of each group of the attributes."""
        right = judged.target.right(judged.predicted[0], judged.y)
        kinds = {column.name: column.kinds for column in self.encoder.columns} if self.encoder else {}
        for name in self.config.task.attributes if self.config else ():
            words, codes = kinds.get(name, ()), judged.attributes[name]  # words are in the order of the codes
            for code in np.unique(codes).tolist():
                rows = np.flatnonzero(codes == code)
                share = proportion(int(right[rows].sum()), len(rows))
                others = (of_rows(each, judged, rows) for each in names[1:])
                yield f"{name}: {words[code] if words else code}", f"{len(rows):,}", share, *others

    def _weights(self) -> Iterator[Block]:
        order = ", then ".join(map(display_name, self.last["priority"]))
        yield f"{f'Recipe {self.config.recipe.name}. ' if self.config else ''}Clients are weighed by {order}."
        if self._private:
            yield OMITTED
            return
        earned, rounds = defaultdict[int, float](float), defaultdict[int, int](int)
        for row in self.run.ledger.rounds():
            for one in self.run.ledger.weights(row["round"]):
                earned[one.id] += one.weight
                rounds[one.id] += 1
        total = sum(earned.values()) or 1
        yield self._table(
            f"Share of all weight; equal is {1 / len(self.names):.2%}",
            ("share", "rounds"),
            lambda i: (f"{earned[i] / total:.2%}", f"{rounds[i]}"),
        )
        lines = self.run.why().splitlines()
        yield (WHY, *(lines if len(lines) <= 2 * REASONS else [*lines[:REASONS], *lines[-REASONS:]]))

    def _privacy(self) -> str:
        if not self._private:
            return NO_PRIVACY
        privacy = self.config.privacy if self.config else None
        delta = f" and delta {privacy.delta:g}" if privacy else ""
        void = " The noise came from the seed, so this guarantee is void." if privacy and privacy.reproducible else ""
        spent = f"epsilon {self.last['epsilon']:.3g}{delta}"
        return f"Client-level differential privacy of the model: {spent}. The server is trusted.{void}"

    def _limits(self) -> Iterator[str]:
        yield "One run with one seed, tested on rows of the same clients: other populations were not tested."
        yield from (event.text for event in self.run.ledger.events(self.last["round"]) if event.kind == "constant")
        yield "Facts that weights are based on are reported by the clients."
        few = sum(rows < FEW_ROWS for _, rows in self.tested.values())
        if few and not self._private:
            yield f"{few} of {len(self.names)} clients have fewer than {FEW_ROWS} test rows: their intervals are wide."
        if self.data is not None and self.data.target == "classes":
            counts = np.bincount(self.data.test.y, minlength=self.data.classes)
            share = counts.max() / max(counts.sum(), 1)
            word = self._words()[int(counts.argmax())]
            yield f'Always answering "{word}" is right on {share:.1%} of the test rows.'
        if self.encoder is not None and len(self.encoder.names) > len(self.encoder.columns):
            yield "Rows of new clients are scaled with medians over the clients, which was not tested."
        if self.data is None and not self._private:
            yield "The data were not at hand for this card: shares of labels and measures of groups are missing."


def _read_data(run: Run, config: Config | None, tested: Mapping[int, tuple[int, int]]) -> Federation | None:
    """The data of the run if they are built in or a table, on this machine, and the same as in the run."""
    if config is None or not (config.task.data in TASKS or config.task.data.startswith(TABLE)):
        return None
    try:
        data = make_federation(config.task, config.run.seed)
    except UserError:
        return None
    sizes = {client: rows for client, (_, rows) in tested.items()}
    same = [*data.names] == run.ledger.names() and dict(enumerate(data.test.sizes.tolist())) == sizes
    stored = stored_encoder(run.folder, run.ledger)
    return data if same and stored in (None, data.encoder) else None


def _text(block: Block) -> str:
    """A block as Markdown; a first line that ends in a colon introduces its list."""
    if isinstance(block, TextTable):
        return block.markdown()
    intro, items = _split(block)
    return "\n".join([*(f"{markdown_text(line)}\n" for line in intro), *(f"- {markdown_text(line)}" for line in items)])


def _html(name: str, blocks: Sequence[Block]) -> str:
    """A section as HTML."""
    parts = [f"<h2>{html.escape(name)}</h2>"]
    for block in blocks:
        if isinstance(block, TextTable):
            parts.append(block.html())
            continue
        intro, items = _split(block)
        parts += [f"<p>{html.escape(line)}</p>" for line in intro]
        parts += ["<ul>", *(f"<li>{html.escape(line)}</li>" for line in items), "</ul>"] if items else []
    return "".join(parts)


def _split(block: str | tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Paragraphs and items of a block."""
    if isinstance(block, str):
        return (block,), ()
    return (block[:1], block[1:]) if block[0].endswith(":") else ((), block)
