"""Recommender: what does "women first" or "age 20 to 35 first" do to these people and to the rest? MovieLens 100k.

FEDMERIT_DATA=... python -m reproductions.experiments.movielens run --seeds 1,2,3   # resumes what was stopped
FEDMERIT_DATA=... python -m reproductions.experiments.movielens tell                # prints the tables

Data: F. M. Harper and J. A. Konstan, The MovieLens Datasets: History and Context, ACM TiiS 5(4), 2015.
Learning rates and epochs were chosen on validation rows (the last tenth of each person's training ratings), seed 11.
"""

from __future__ import annotations

import argparse
import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from fedmerit import Federation, Learner, Recipe, Samples, Task, fedavg, federate, load_task, prioritized
from fedmerit.core.seeds import generator
from fedmerit.core.types import ClientId, Model, Vector
from fedmerit.errors import NoteWarning
from fedmerit.learn.factors import FactorLearner
from fedmerit.tasks.datasets.movielens import FILMS

RUNS = Path(__file__).parents[2] / "runs" / "movielens"
ROUNDS, FRACTION, LR, EPOCHS = 50, 0.1, 0.5, 2
MODELS = ("movielens-ratings", "movielens-ranking")
POOLED = {"movielens-ratings": (0.01, 10), "movielens-ranking": (0.003, 20)}
"""Learning rate and epochs where all ratings lie in one place."""
ALONE = 3
"""Epochs of a person alone."""
WOMEN, AGE = "fact:gender is F", "fact:age in 20..35"
RECIPES: Mapping[str, Recipe] = {
    "FedAvg": fedavg(),
    "FedAvg again (null)": fedavg(),
    "women first": prioritized(WOMEN, "DS"),
    "age 20 to 35 first": prioritized(AGE, "DS"),
    "size, then women": prioritized("DS", WOMEN),
    "size, then age 20 to 35": prioritized("DS", AGE),
    "random 273 first": prioritized("fact:drawn is yes", "DS"),
    "random as many first": prioritized("fact:drawn is yes", "DS"),
}
ROWS = (*list(RECIPES)[:4], "alone", "pooled", *list(RECIPES)[4:])
"""In the order in which they are run: what the question needs, then the controls."""
MEASURES = ("squared error", "absolute error", "recall@10", "NDCG@10")
LIKED = 4
"""Lowest rating of a test row whose film should have been recommended."""
Groups = Mapping[str, NDArray[np.bool_]]


def recommend(learner: Learner, model: Model, data: Federation, client: ClientId, top: int = 10) -> NDArray[np.int64]:
    """Return the `top` films with the highest predicted rating, best first, without films that the person rated."""
    rated = [split.x[split.rows(client), 0] for split in (data.train, data.validation)]
    rows = np.tile(data.train.x[data.train.offsets[client]], (FILMS, 1))
    rows[:, 0] = np.arange(FILMS)
    scores = learner.predict(model, rows)
    scores[np.concatenate(rated)] = -np.inf
    return np.argsort(-scores, kind="stable")[:top]


def measure_ranking(recommended: NDArray[np.int64], data: Federation, client: ClientId) -> tuple[float, float]:
    """Return recall and NDCG of a recommendation, by the films of the test rows rated `LIKED` or better; NaN for none.

    recall = liked films recommended / liked films, NDCG = sum over them of 1 / log2(1 + place) / its largest value.
    """
    rows = data.test.rows(client)
    liked = data.test.x[rows, 0][data.test.y[rows] >= LIKED]
    hits, discounts = np.isin(recommended, liked), 1 / np.log2(np.arange(2, 2 + len(recommended)))
    if not len(liked):
        return float("nan"), float("nan")
    return float(hits.sum() / len(liked)), float(hits @ discounts / discounts[: len(liked)].sum())


def groups_of(task: Task) -> Groups:
    """People by gender and by age."""
    facts = task.federation.facts
    women, young = np.array(facts["gender"]) == "F", np.abs(np.array(facts["age"], float) - 27.5) <= 7.5
    return {"all": np.ones(len(women), bool), "women": women, "men": ~women, "20 to 35": young, "other ages": ~young}


def play(row: str, model: str, task: Task, seed: int) -> Sequence[Model]:
    """The final model of each person; one for all, except alone."""
    learner, data = task.learner, task.federation
    assert isinstance(learner, FactorLearner)
    if row == "pooled":
        lr, epochs = POOLED[model]
        rows = Samples(data.train.x, data.train.y, data.classes)
        return [replace(learner, lr=lr).train(learner.start(seed), rows, seed, epochs)] * len(data.names)
    if row == "alone":
        people = range(len(data.names))
        return [learner.train(learner.start(seed), data.samples(one), seed, ALONE) for one in people]
    if row.startswith("random"):
        size = int(groups_of(task)["women" if "273" in row else "20 to 35"].sum())
        drawn = set(generator(seed, row).permutation(len(data.names))[:size].tolist())
        column = tuple("yes" if one in drawn else "no" for one in range(len(data.names)))
        task = replace(task, federation=replace(data, facts={"drawn": column}))
    seed = seed + 1000 if "null" in row else seed
    run = federate(task, RECIPES[row], rounds=ROUNDS, fraction=FRACTION, seed=seed, evaluate_every=ROUNDS, workers=1)
    return [run.model] * len(data.names)


def measured(task: Task, models: Sequence[Model]) -> NDArray[np.float64]:
    """The four measures of each person: mean errors over the test rows, and ranking of the films not rated before."""
    data, learner, lines = task.federation, task.learner, []
    for person, model in enumerate(models):
        rows = data.test.rows(person)
        errors = learner.predict(model, data.test.x[rows]) - data.test.y[rows]
        ranking = measure_ranking(recommend(learner, model, data, person), data, person)
        lines.append((np.square(errors).mean(), np.abs(errors).mean(), *ranking))
    return np.array(lines)


def run(seeds: Sequence[int]) -> None:
    """Measure every row that has no file yet."""
    warnings.simplefilter("ignore", NoteWarning)
    tasks = {model: load_task("movielens", model=model, train={"lr": LR, "epochs": EPOCHS}) for model in MODELS}
    places = [(row, seed, model) for part in (ROWS[:6], ROWS[6:]) for seed in seeds for row in part for model in MODELS]
    for row, seed, model in places:
        path = file_of(row, model, seed)
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            partial = path.with_suffix(".part")
            with partial.open("wb") as file:
                np.save(file, measured(tasks[model], play(row, model, tasks[model], seed)))
            partial.rename(path)
            print(path.name, flush=True)


def file_of(row: str, model: str, seed: int) -> Path:
    """Measures of all people, in the order of the clients."""
    return RUNS / f"{model}-{row}-{seed}.npy".replace(",", "").replace(" ", "-")


def value_of(people: NDArray[np.float64], measure: str, group: NDArray[np.bool_], sizes: Vector) -> float:
    """RMSE and MAE over the rows of the group; recall and NDCG over its people."""
    if measure in ("RMSE", "MAE"):
        errors = people[group, 0 if measure == "RMSE" else 1] @ sizes[group] / sizes[group].sum()
        return math.sqrt(errors) if measure == "RMSE" else float(errors)
    return float(np.nanmean(people[group, MEASURES.index(measure)]))


def interval(values: Vector, signed: bool = False) -> str:
    """Mean with Student's 95 % interval."""
    half = float(stats.t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / math.sqrt(len(values)))
    form = "+.4f" if signed else ".3f"
    return f"{values.mean():{form}} [{values.mean() - half:{form}}, {values.mean() + half:{form}}]"


def tell(seeds: Sequence[int]) -> Iterator[str]:
    """Print the tables."""
    task = load_task("movielens")
    groups, sizes = groups_of(task), task.federation.test.sizes.astype(float)

    def values(row: str, measure: str, group: str) -> Vector:
        model = MODELS[0] if measure in ("RMSE", "MAE") else MODELS[1]
        people = (np.load(file_of(row, model, seed)) for seed in seeds)
        return np.array([value_of(each, measure, groups[group], sizes) for each in people])

    yield ", ".join(f"{name}: {int(members.sum())}" for name, members in groups.items())
    measures = ("RMSE", "MAE", "recall@10", "NDCG@10")
    yield from ("", "| row | " + " | ".join(measures) + " |", "| --- |" + " ---: |" * len(measures))
    for row in ("FedAvg", "FedAvg again (null)", "alone", "pooled"):
        yield f"| {row} | " + " | ".join(interval(values(row, measure, "all")) for measure in measures) + " |"
    popular = np.zeros((FILMS, 9), np.float32)  # a model whose biases are the numbers of ratings: no draws, no interval
    popular[:, 0] = np.bincount(task.federation.train.x[:, 0], minlength=FILMS)
    people = measured(task, [popular.ravel()] * len(sizes))
    yield (
        "| most popular films | - | - | "
        + " | ".join(f"{value:.3f}" for value in np.nanmean(people, axis=0)[2:])
        + " |"
    )
    for pair, first, control, second in (
        (("women", "men"), "women first", "random 273 first", "size, then women"),
        (("20 to 35", "other ages"), "age 20 to 35 first", "random as many first", "size, then age 20 to 35"),
    ):
        columns = [(measure, group) for measure in ("RMSE", "NDCG@10") for group in pair]
        yield from ("", "| row | " + " | ".join(f"{measure}, {group}" for measure, group in columns) + " |")
        yield "| --- |" + " ---: |" * len(columns)
        yield "| FedAvg | " + " | ".join(f"{values('FedAvg', *column).mean():.3f}" for column in columns) + " |"
        against = [(row, "FedAvg") for row in ("FedAvg again (null)", first, control, second)] + [(first, control)]
        for row, base in against:
            gaps = (values(row, *column) - values(base, *column) for column in columns)
            yield f"| {row} - {base} | " + " | ".join(interval(gap, signed=True) for gap in gaps) + " |"


def main() -> None:
    """Run, or tell."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("run", "tell"))
    parser.add_argument("--seeds", default="1,2,3,4,5,6,7,8,9,10")
    options = parser.parse_args()
    seeds = [int(seed) for seed in options.seeds.split(",")]
    if options.what == "run":
        run(seeds)
    else:
        print("\n".join(tell(seeds)))


if __name__ == "__main__":
    main()
