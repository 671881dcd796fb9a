"""One lying judge of 30: in how many rounds does it change which step `adaptive` takes, by each way to count?

python -m reproductions.experiments.judges  # prints the shares that docs/results/steps.md tells
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace

import numpy as np

from fedmerit import Run, StepSearch, adaptive, federate, load_task
from fedmerit.core.learner import MOST_LOSS
from fedmerit.core.recipes import ADAPTIVE
from fedmerit.core.types import Evaluation

JUDGES, ROUNDS, SEEDS = 30, 40, (1, 2, 3)
Lie = Callable[[int, int, np.random.Generator], float]
"""(candidate, candidates, random) -> the share of the largest loss that the liar claims."""
LIES: dict[str, Lie] = {
    "the boldest is best": lambda place, number, random: float(place != 0),
    "the most careful is best": lambda place, number, random: float(place != number - 1),
    "at random": lambda place, number, random: random.random(),
}


@dataclass(frozen=True)
class Watched(StepSearch):
    """The same search, which keeps what the judges answered."""

    kept: list[tuple[Evaluation, list[Evaluation], int | None, int]] = field(default_factory=list, compare=False)

    def decide(self, before: Evaluation, candidates: Sequence[Evaluation], last: int | None = None) -> int:
        """Decide as StepSearch does, and keep the answers."""
        place = StepSearch.decide(self, before, candidates, last)
        self.kept.append((before, list(candidates), last, place))
        return place


def main() -> None:
    """A line per way to count, and what it does to the model."""
    for count, majority in (("median", 0.0), ("mean", 0.0), ("median", 2 / 3), ("median", 0.8)):
        played = [play(count, majority, seed) for seed in SEEDS]
        changed = [one for run, search in played for one in changes(search, ROUNDS)]
        early, late = (np.mean([mean_accuracy(run, last) for run, _ in played]) for last in (range(10), range(30, 40)))
        print(
            f"{count}, majority {majority:.2f}: {np.mean(changed):.1%} of {len(changed)} choices change; accuracy "
            f"{early:.1%} in rounds 1 to 10, {late:.1%} in 31 to 40",
            flush=True,
        )


def play(count: str, majority: float, seed: int) -> tuple[Run, Watched]:
    """An honest run, and what its judges said."""
    ours = {one.name: getattr(ADAPTIVE, one.name) for one in fields(ADAPTIVE)}
    search = Watched(**ours | {"count": count, "majority": majority})
    train = {"lr": 0.1, "epochs": 2, "batch": 10}
    split = {"partition": "dirichlet", "alpha": 0.5, "clients": JUDGES, "validation": 0.2}
    task = load_task("digits", seed=seed, train=train, **split)
    return federate(task, replace(adaptive(), search=search), rounds=ROUNDS, fraction=1.0, seed=seed), search


def mean_accuracy(run: Run, rounds: range) -> float:
    """Of the model, over some rounds."""
    return float(np.mean([run.ledger.rounds()[index]["accuracy"] for index in rounds]))


def changes(search: Watched, seed: int) -> Iterator[bool]:
    """Of every round and lie, whether one judge changed the choice."""
    random = np.random.default_rng(seed)
    for before, answers, last, place in search.kept:
        for lie in LIES.values():
            liar = int(random.choice(np.flatnonzero(before.sizes)))
            yield StepSearch.decide(search, before, list(lied(answers, liar, lie, random)), last) != place


def lied(answers: Sequence[Evaluation], liar: int, lie: Lie, random: np.random.Generator) -> Iterator[Evaluation]:
    """The answers with one judge's losses made up."""
    for place, answer in enumerate(answers):
        assert answer.losses is not None
        losses = answer.losses.copy()
        losses[liar] = lie(place, len(answers), random) * MOST_LOSS * answer.sizes[liar]
        yield replace(answer, losses=losses)


if __name__ == "__main__":
    main()
