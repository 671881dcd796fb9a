"""What each client is truly worth: train every coalition of clients, and divide the gain by Shapley's rule.

v(S) is a measure of the final model that the clients of S train together from the same first model, on all clients'
test rows; v of nobody is that of the first model. With all 2^n coalitions the Shapley and Banzhaf values are exact for
this training. What remains is the noise of training, which several seeds show.
"""

import csv
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from io import StringIO
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray
from rich.console import RenderableType
from rich.text import Text

from fedmerit.config.privacy import recipe_of
from fedmerit.config.schema import Config, dump_config
from fedmerit.core.criteria.contribution import (
    MOST_EXACT,
    Coalitions,
    all_coalitions,
    banzhaf,
    sampled_shapley,
    shapley,
)
from fedmerit.core.learner import SharedRowsLearner
from fedmerit.core.objectives import direction, find_objective, measure_label
from fedmerit.core.recipe import Recipe
from fedmerit.core.recipes import fedavg
from fedmerit.core.seeds import derive, train_seed
from fedmerit.core.system import cores
from fedmerit.core.targets import has_probabilities
from fedmerit.core.types import Samples, Vector
from fedmerit.engine.measure import default_measure
from fedmerit.engine.run import federate
from fedmerit.errors import ConfigError, FolderError, NoteWarning
from fedmerit.fleet.client import learner_at
from fedmerit.store.files import write_new_file
from fedmerit.store.run_folder import CONFIG
from fedmerit.study.text_table import TextTable
from fedmerit.tasks.registry import Task, make_task

WORST_CLIENT = "worst_group:client"
"""Accuracy of the client with the lowest one: each client's test rows are a group."""
ORDERS = 200
"""Orders of clients that are drawn where there are more than `MOST_EXACT`."""
MODELS_AT_ONCE = 64
Models = NDArray[np.float32]


@dataclass(frozen=True)
class ClientValues:
    """Measures of the models of all coalitions, by seed.

    names    of the clients
    seeds    of the trainings
    members  (m, n): which clients are in each coalition
    tables   for each measure the values (seeds, m), where higher is better: errors are negated

    >>> members = np.array([[False, False], [True, False], [False, True], [True, True]])
    >>> values = ClientValues(("a", "b"), (1,), members, {"accuracy": np.array([[0.1, 0.5, 0.7, 0.9]])})
    >>> values.shapley("accuracy").round(3).tolist()
    [[0.3, 0.5]]
    """

    names: tuple[str, ...]
    seeds: tuple[int, ...]
    members: Coalitions
    tables: Mapping[str, NDArray[np.float64]]

    def shapley(self, measure: str) -> NDArray[np.float64]:
        """Shapley values (seeds, clients): exact up to 12 clients, otherwise by drawn orders."""
        return np.array([self._divide(table)[0] for table in self.tables[measure]])

    def banzhaf(self, measure: str) -> NDArray[np.float64] | None:
        """Banzhaf values (seeds, clients); None where not every coalition was trained."""
        number = len(self.names)
        if number > MOST_EXACT:
            return None
        return np.array([banzhaf(self._lookup(table), number) for table in self.tables[measure]])

    def sampling_error(self, measure: str) -> float:
        """Largest standard error of a Shapley value by drawn orders; 0 where it is exact."""
        return max(float(self._divide(table)[1].max()) for table in self.tables[measure])

    def reliability(self, measure: str) -> float:
        """Spearman correlation to be expected between the mean values and those of as many other seeds.

        r = mean Spearman correlation of two seeds; s seeds have s r / (1 + (s - 1) r) [Spearman-Brown]. NaN for one
        seed.
        """
        values, number = self.shapley(measure), len(self.seeds)
        pairs = [(i, j) for i in range(number) for j in range(i)]
        if not pairs:
            return float("nan")
        one = float(np.mean([scipy.stats.spearmanr(values[i], values[j])[0] for i, j in pairs]))
        return number * one / (1 + (number - 1) * one)

    def _divide(self, table: Vector) -> tuple[Vector, Vector]:
        number, value = len(self.names), self._lookup(table)
        if number <= MOST_EXACT:
            return shapley(value, number), np.zeros(number)
        return sampled_shapley(value, number, ORDERS, seed=0)

    def _lookup(self, table: Vector) -> Callable[[Coalitions], Vector]:
        place = {row.tobytes(): at for at, row in enumerate(self.members)}
        return lambda coalitions: table[[place[row.tobytes()] for row in coalitions]]


def coalitions_of(number: int) -> Coalitions:
    """All 2^n coalitions, or for more than 12 clients those that `ORDERS` drawn orders pass through.

    >>> coalitions_of(2).tolist()
    [[False, False], [True, False], [False, True], [True, True]]
    """
    if number <= MOST_EXACT:
        return all_coalitions(number)
    found: dict[bytes, NDArray[np.bool_]] = {}

    def record(coalitions: Coalitions) -> Vector:
        found.update((row.tobytes(), row.copy()) for row in coalitions)
        return np.zeros(len(coalitions))

    sampled_shapley(record, number, ORDERS, seed=0)
    return np.array(list(found.values()))


def train_coalitions(task: Task, recipe: Recipe, members: Coalitions, rounds: int, seed: int) -> Models:
    """Train the model of each coalition for some rounds in which all its members take part: (m, values).

    FedAvg, w_S = sum over i in S of n_i / n(S) * train_i(w_S), trains client i for all coalitions together if the
    learner can; the draws are those of `federate`. Other recipes and learners train one coalition after the other.
    """
    if recipe == fedavg() and trains_together(task):
        rows = members * task.federation.train.sizes.astype(np.float64)
        totals = rows.sum(axis=1, keepdims=True)
        return train_weightings(task, np.divide(rows, totals, out=rows, where=totals > 0), rounds, seed)
    first = task.server().first_model(derive(seed, "model"))
    ids_of = [tuple(map(int, np.flatnonzero(row))) for row in members]
    return np.stack([_one_by_one(task, recipe, ids, rounds, seed) if ids else first for ids in ids_of])


def trains_together(task: Task) -> bool:
    """Whether `train_weightings` applies: plain SGD of dense layers, and no attackers."""
    learner = task.learner
    return isinstance(learner, SharedRowsLearner) and learner.trains_each and not task.attackers.members


def train_weightings(task: Task, weights: NDArray[np.float64], rounds: int, seed: int) -> Models:
    """Train a model for each row of constant weights (m, n): w = w + sum over i of weight_i * (train_i(w) - w).

    A client is trained for all models in which its weight is not 0 by one matrix product over shared minibatches.
    """
    server, models = task.server(), np.tile(task.server().first_model(derive(seed, "model")), (len(weights), 1))
    for index in range(1, rounds + 1):
        learner, updates = learner_at(task.learner, server.rate(index, rounds)), np.zeros(models.shape)
        assert isinstance(learner, SharedRowsLearner)  # see `trains_together`
        for client in range(weights.shape[1]):
            inside, rows = np.flatnonzero(weights[:, client]), task.federation.samples(client)
            if not (len(inside) and len(rows)):
                continue
            trained = learner.train_each(models[inside], rows, train_seed(seed, index, client))
            updates[inside] += weights[inside, client, np.newaxis] * (trained - models[inside])
        models = (models + updates).astype(np.float32)
    return models


def _one_by_one(task: Task, recipe: Recipe, ids: tuple[int, ...], rounds: int, seed: int) -> NDArray[np.float32]:
    """Train one coalition by `federate`."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NoteWarning)  # notes on small coalitions say nothing about the federation
        return federate(task, recipe, rounds=rounds, seed=seed, selection=Members(ids), evaluate_every=rounds).model


@dataclass(frozen=True, slots=True)
class Members:
    """Selection of the same clients in every round."""

    ids: tuple[int, ...]

    def __call__(self, index: int, clients: int, seed: int) -> Mapping[int, int | None]:
        """Return the members, with the task's epochs."""
        return dict.fromkeys(self.ids)


def measure_models(task: Task, models: Models, rows: Samples, measures: Sequence[str]) -> dict[str, Vector]:
    """Measures of models on rows; errors are negated, so that higher is better."""
    predict = replace(task.server(), rows=rows).predict_many
    assert predict is not None  # there are rows
    found: dict[str, list[Vector]] = {name: [] for name in measures}
    for start in range(0, len(models), MODELS_AT_ONCE):
        predictions = predict(models[start : start + MODELS_AT_ONCE])
        for name, values in found.items():
            values.append(direction(name) * find_objective(name)(predictions))
    return {name: np.concatenate(values) for name, values in found.items()}


def all_test_rows(task: Task) -> Samples:
    """All clients' test rows, with the attribute `client`."""
    data = task.federation
    owners = np.repeat(np.arange(len(data.names)), data.test.sizes)
    return Samples(data.test.x, data.test.y, data.classes, {**data.test.attributes, "client": owners})


def measures_of(config: Config, task: Task) -> tuple[str, ...]:
    """The run's measure, accuracy, loss and the worst client's accuracy where they apply, and `run.audit`."""
    classes = task.federation.target == "classes"
    usual = ("accuracy", "log_loss") if classes and has_probabilities(task.learner) else ()
    chosen = config.run.measure or default_measure(task.learner, task.federation)
    return tuple(dict.fromkeys([chosen, *usual, *([WORST_CLIENT] if classes else []), *config.run.audit]))


def value_coalitions(
    config: Config,
    seeds: Sequence[int],
    out: Path | None = None,
    jobs: int | None = None,
    on_seed: Callable[[int], None] = lambda seed: None,
) -> ClientValues:
    """Train and measure all coalitions of a configuration's clients for each seed, which is one process.

    config   the data has the seed of the configuration; the first model and the batches have `seeds`. Unless it sets
             `train.schedule`, the learning rate falls over the rounds: at a constant rate most of the differences
             between coalitions would be noise
    out      a folder for one CSV file per seed; seeds that it has are not trained again
    jobs     parallel processes; default: one per core
    on_seed  called when a seed is finished
    """
    config = _falling(config)
    task = make_task(config)
    _check(config, task)
    members, measures = coalitions_of(len(task.federation.names)), measures_of(config, task)
    names = tuple(task.federation.names)
    known = {} if out is None else _read(out, config, members, measures)
    missing = [seed for seed in seeds if seed not in known]
    work = partial(_tables_of, config, members, measures)
    with ProcessPoolExecutor(max(1, min(jobs or cores(), len(missing))), mp_context=get_context("forkserver")) as pool:
        for seed, table in zip(missing, pool.map(work, missing), strict=True):
            known[seed] = table
            if out is not None:
                write_new_file(out / f"seed-{seed}.csv", _table_text(names, members, measures, table), "another --out")
            on_seed(seed)
    stacked = {name: np.stack([known[seed][at] for seed in seeds]) for at, name in enumerate(measures)}
    return ClientValues(names, tuple(seeds), members, stacked)


def _falling(config: Config) -> Config:
    if "schedule" in config.train.model_fields_set:
        return config
    return config.model_copy(update={"train": config.train.model_copy(update={"schedule": "cosine"})})


def _check(config: Config, task: Task) -> None:
    """Refuse what has no value per coalition."""
    if config.privacy is not None:
        raise ConfigError("--coalitions trains without noise, and would reveal what [privacy] protects; remove it")
    if "shared test" not in getattr(recipe_of(config).models, "gives", ()):
        raise ConfigError(f"--coalitions needs a recipe with one shared model (got {config.recipe.name}); use fedavg")
    if not len(task.federation.test.y):
        raise ConfigError("--coalitions needs test rows; set task.test")


def _tables_of(config: Config, members: Coalitions, measures: Sequence[str], seed: int) -> NDArray[np.float64]:
    """Train and measure all coalitions under one seed: (measures, coalitions)."""
    task = make_task(config)
    models = train_coalitions(task, recipe_of(config), members, config.run.rounds, seed)
    return np.array(list(measure_models(task, models, all_test_rows(task), measures).values()))


def _read(out: Path, config: Config, members: Coalitions, measures: Sequence[str]) -> dict[int, NDArray[np.float64]]:
    """Read the finished seeds of a folder, which must be of the same configuration; make the folder if it is new."""
    text = dump_config(config)
    if not out.exists():
        out.mkdir(parents=True)
        write_new_file(out / CONFIG, text, "another --out")
    if not (out / CONFIG).is_file() or (out / CONFIG).read_text(encoding="utf-8") != text:
        raise FolderError(f"{out} belongs to another configuration; give another --out")
    known = {}
    for path in out.glob("seed-*.csv"):
        with path.open(newline="", encoding="utf-8") as file:
            header, *lines = csv.reader(file)
        if header[-len(measures) :] != list(measures) or len(lines) != len(members):
            raise FolderError(f"{path} has other coalitions or measures; remove it, or give another --out")
        known[int(path.stem.removeprefix("seed-"))] = np.array([line[-len(measures) :] for line in lines], float).T
    return known


def _table_text(names: Sequence[str], members: Coalitions, measures: Sequence[str], table: NDArray[np.float64]) -> str:
    """CSV with a line per coalition: a column of 0 or 1 per client, then the measures."""
    text = StringIO()
    lines = ([*row.astype(int), *map(repr, values)] for row, values in zip(members, table.T.tolist(), strict=True))
    csv.writer(text, lineterminator="\n").writerows([[*names, *measures], *lines])
    return text.getvalue()


def values_dict(values: ClientValues) -> dict[str, Any]:
    """Values for JSON: for each measure and client the mean over the seeds, and how reliable the ranking is."""
    return {
        "clients": list(values.names),
        "seeds": list(values.seeds),
        "coalitions": len(values.members),
        "measures": {
            name: {
                "shapley": dict(zip(values.names, values.shapley(name).mean(axis=0).tolist(), strict=True)),
                "banzhaf": None
                if (found := values.banzhaf(name)) is None
                else dict(zip(values.names, found.mean(axis=0).tolist(), strict=True)),
                "standard_error": values.sampling_error(name),
                "reliability": None if np.isnan(known := values.reliability(name)) else known,
                "all": float(table[:, -1].mean()),
                "nobody": float(table[:, 0].mean()),
            }
            for name, table in values.tables.items()
        },
    }


def values_screen(values: ClientValues) -> Iterator[RenderableType]:
    """Table of the Shapley values: a line per client, most valuable first, a column per measure."""
    means = {name: values.shapley(name).mean(axis=0) for name in values.tables}
    first = next(iter(means))
    rows = [
        (values.names[client], *(f"{means[name][client]:+.4f}" for name in means))
        for client in np.argsort(-means[first], kind="stable")
    ]
    title = f"Shapley values of {len(values.names)} clients, {len(values.members):,} coalitions trained"
    yield TextTable(title, ("client", *map(_label, means)), tuple(rows)).screen()
    seeds = f"mean of {len(values.seeds)} seeds" if len(values.seeds) > 1 else "one seed"
    yield Text(f"{seeds}; values add up to the measure of all clients minus that of the untrained model", "dim")
    for name in means:
        notes = [f"reliability {values.reliability(name):.2f} (correlation with as many other seeds)"]
        notes += [f"standard error up to {error:.2g}"] if (error := values.sampling_error(name)) else []
        if len(values.seeds) > 1 or error:
            yield Text(f"{_label(name)}: {'; '.join(notes)}", "dim")


def _label(measure: str) -> str:
    return "worst client" if measure == WORST_CLIENT else measure_label(measure)
