"""One lying judge of 30: in how many rounds does it change which step `adaptive` takes?

.venv/bin/python experiments/judges.py            # prints the shares that docs/results/steps.md tells
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace

import numpy as np

from fedmerit import BoldestFirst, adaptive, federate, load_task
from fedmerit.core.learner import MOST_LOSS
from fedmerit.core.panel import Panel
from fedmerit.core.recipes import ADAPTIVE
from fedmerit.core.search import Choice, SearchState
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
class Watched(BoldestFirst):
    """The same search, which keeps what the judges answered."""

    kept: list[tuple[Evaluation, list[Evaluation], int]] = field(default_factory=list, compare=False)

    def choose(self, panel: Panel, state: SearchState) -> Choice:
        """As it does, with a note of it."""
        choice = super().choose(panel, state)
        if panel.before is not None:
            self.kept.append((panel.before, [panel.evaluations[i] for i in range(len(panel))], choice.place))
        return choice


def main() -> None:
    """A line per way to count."""
    for count in ("median", "mean"):
        changed = [one for seed in SEEDS for one in changes(count, seed)]
        print(f"{count}: {np.mean(changed):.1%} of {len(changed)} choices change")


def changes(count: str, seed: int) -> Iterator[bool]:
    """Of every round and lie, whether one judge changed the choice."""
    search = Watched(**{one.name: getattr(ADAPTIVE, one.name) for one in fields(ADAPTIVE)} | {"count": count})
    train = {"lr": 0.1, "epochs": 2, "batch": 10}
    split = {"partition": "dirichlet", "alpha": 0.5, "clients": JUDGES, "validation": 0.2}
    task = load_task("digits", seed=seed, train=train, **split)
    federate(task, replace(adaptive(), search=search), rounds=ROUNDS, fraction=1.0, seed=seed)
    random = np.random.default_rng(seed)
    for before, answers, place in search.kept:
        for lie in LIES.values():
            liar = int(random.choice(np.flatnonzero(before.sizes)))
            told = lied(answers, liar, lie, random)
            yield search.pick([search.gain(before, one) for one in told]) != place


def lied(answers: Sequence[Evaluation], liar: int, lie: Lie, random: np.random.Generator) -> Iterator[Evaluation]:
    """The answers with one judge's losses made up."""
    for place, answer in enumerate(answers):
        assert answer.losses is not None
        losses = answer.losses.copy()
        losses[liar] = lie(place, len(answers), random) * MOST_LOSS * answer.sizes[liar]
        yield replace(answer, losses=losses)


if __name__ == "__main__":
    main()
