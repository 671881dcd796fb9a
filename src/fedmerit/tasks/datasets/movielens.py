"""Task `movielens`: the rating that a person gives a film, 943 people as clients (MovieLens 100k).

The latest fifth of a person's ratings are test rows, those before them validation rows. Facts of the clients: age,
gender and occupation. The user part of the model stays at the client (`learn.factors`).
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedmerit.config.schema import TaskConfig, TrainConfig
from fedmerit.core.learner import Learner
from fedmerit.errors import ConfigError, DataError
from fedmerit.learn.factors import FactorLearner, with_history
from fedmerit.tasks.build import build_federation, settle
from fedmerit.tasks.federation import Federation, Ids, Raw, Split
from fedmerit.tasks.formats.table_files import Table, read_table
from fedmerit.tasks.registry import TaskSpec
from fedmerit.tasks.source import find_file

SOURCE = "MovieLens 100k: F. M. Harper and J. A. Konstan, The MovieLens Datasets, ACM TiiS 5(4), 2015"
FILMS = 1682
TEST_SHARE = 0.2
HISTORY = 200
"""Number of training ratings, the latest ones, from which a person's user part is computed."""
MODELS = {
    "movielens-ratings": FactorLearner(FILMS),
    "movielens-ranking": FactorLearner(FILMS, unseen=0.1, ridge=1.0),
}
UNUSED = ("batch", "optimizer", "momentum", "prox")
"""Keys of [train] that have no effect on this learner."""


def read_ratings() -> Raw:
    """Read all ratings, ordered by person and time; the latest fifth of each person's are marked for testing."""
    path = find_file("movielens", "ratings.csv.gz")
    table = read_table(path)
    person, film, rating, time = (_whole(table, path, name) for name in ("user_id", "movie_id", "rating", "timestamp"))
    if film.min() < 1 or film.max() > FILMS or rating.min() < 1 or rating.max() > 5:
        raise DataError(
            f"{path} must have films 1 to {FILMS} and ratings 1 to 5 (got films {film.min()} to {film.max()}, ratings "
            f"{rating.min()} to {rating.max()}); download it again"
        )
    order = np.lexsort((film, time, person))  # a person often rates several films in the same second
    _, first, sizes = np.unique(person[order], return_index=True, return_counts=True)
    place = np.arange(len(order)) - np.repeat(first, sizes)
    tested = place >= np.repeat(sizes - np.rint(TEST_SHARE * sizes).astype(np.int64), sizes)
    films, ratings, ids = film[order, np.newaxis] - 1, rating[order].astype(np.float32), Ids("person", person[order])
    return Raw(films, ratings, 1, ids=ids, for_test=tested, target="number")


def read_facts(names: tuple[str, ...]) -> dict[str, tuple[float | str, ...]]:
    """Read age, gender and occupation of the people with these names."""
    path = find_file("movielens", "users.csv")
    table = read_table(path)
    lines = {f"person {person}": line for line, person in enumerate(_whole(table, path, "user_id").tolist())}
    if missing := [name for name in names if name not in lines]:
        raise DataError(f"{path} has no line for {missing[0]}; download it again")
    # read_table reads "none" as a missing value; here it is an occupation
    words = {key: [word or "none" for word in _column(table, path, key)] for key in ("gender", "occupation")}
    facts = {"age": _whole(table, path, "age").astype(np.float64).tolist(), **words}
    return {key: tuple(values[lines[name]] for name in names) for key, values in facts.items()}


def _column(table: Table, path: Path, name: str) -> NDArray[np.generic]:
    if name not in table.columns:
        raise DataError(f"{path} needs the column {name} (got {', '.join(table.columns)}); download it again")
    return table.columns[name]


def _whole(table: Table, path: Path, name: str) -> NDArray[np.int64]:
    column = _column(table, path, name)
    if column.dtype.kind != "f" or not np.array_equal(column, np.rint(column)):
        raise DataError(f"{path}: {name} must be whole numbers; download it again")
    return column.astype(np.int64)


def _load(config: TaskConfig, seed: int) -> Federation:
    config = settle(config, MOVIELENS)
    if config.server or config.kinds or config.test != "slices":
        raise ConfigError(
            "task 'movielens' is split by person and time, without rows of the server or planted clients; remove "
            "task.server, task.kinds and task.test"
        )
    data = build_federation(read_ratings(), None, config.model_copy(update={"validation": 0.0}), MOVIELENS, seed)
    train, validation = _split_by_time(data.train, config.validation)
    return replace(
        data,
        train=_with_histories(train, train),
        validation=_with_histories(validation, train),
        test=_with_histories(data.test, train),
        report=(SOURCE,),
        facts=read_facts(data.names),
    )


def _split_by_time(train: Split, share: float) -> tuple[Split, Split]:
    """Split off the last rows of each client, but never all of them."""
    held = np.minimum(np.rint(share * train.sizes).astype(np.int64), train.sizes - 1)
    late = np.arange(len(train.y)) >= np.repeat(train.offsets[1:] - held, train.sizes)
    kept = np.append(0, np.cumsum(train.sizes - held))
    return Split(train.x[~late], train.y[~late], kept), Split(train.x[late], train.y[late], np.append(0, held.cumsum()))


def _with_histories(split: Split, train: Split) -> Split:
    """Add each client's training ratings to its rows, so that it can compute its user part from any of them."""
    width = min(HISTORY, int(train.sizes.max()))
    clients = [(split.rows(client), train.rows(client)) for client in range(len(split.sizes))]
    rows = [with_history(split.x[its, 0], train.x[old, 0], train.y[old], width) for its, old in clients]
    return replace(split, x=np.concatenate(rows))


def _learner(model: str, train: TrainConfig) -> Learner:
    given = [key for key in UNUSED if key in train.model_fields_set]
    if given:
        raise ConfigError(f"train.{given[0]} has no effect on task 'movielens'; use lr, epochs and weight_decay")
    return replace(MODELS[model], lr=train.lr, epochs=train.epochs, weight_decay=train.weight_decay)


MOVIELENS = TaskSpec(
    name="movielens",
    about="the rating, 1 to 5, of a film by a person (MovieLens 100k), split by time; 943 people with their facts",
    load=_load,
    models=tuple(MODELS),
    partitions=("natural",),
    learner=_learner,
)
