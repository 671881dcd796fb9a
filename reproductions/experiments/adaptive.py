"""What does a coalition reach that knows robust's rule, sees all updates, and stays below what excludes clients?

python -m reproductions.experiments.adaptive --seeds 1 2 3  # digits, as in examples/attack.toml; prints a table

Before each answer the coalition plays the server's rule, with all that the server remembers, on the round's updates
with its own in place, and takes the strongest of its answers for which no more of its members are excluded than with
the weakest. No server tells clients that much: what it reaches is a bound on what those reach who know less.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmerit import load_task, robust
from fedmerit.config.task import TaskConfig
from fedmerit.core.attacks import Backdoor
from fedmerit.core.collect.collect import InTime, Uniform
from fedmerit.core.criteria.robust import RARE_SHARE, UNMOVED
from fedmerit.core.facts import SAMPLES
from fedmerit.core.host import Host
from fedmerit.core.recipe import Recipe
from fedmerit.core.round import run_round, run_stages
from fedmerit.core.seeds import generator
from fedmerit.core.state import State, View
from fedmerit.core.types import Cohort, Model, Replies
from fedmerit.core.updates import Updates
from fedmerit.fleet.local import LocalFleet
from fedmerit.tasks.attackers import find_attackers, make_probe

Rows = NDArray[np.float32]
ROUNDS, CLIENTS = 25, 20
LONGEST = 2.0
"""Answers are made at most this many median norms long: robust clips what is longer."""


def against(own: Rows, honest: Rows, strength: float, random: np.random.Generator) -> Rows:
    """Each its own honest update, minus so many times the mean of the honest ones."""
    return np.asarray(own - np.float32(strength) * honest.mean(axis=0))


def dressed(own: Rows, honest: Rows, strength: float, random: np.random.Generator) -> Rows:
    """The same in noise of each one's own instead of its update, as long as two updates."""
    noise = random.standard_normal(own.shape, dtype=np.float32)
    noise *= 2 * np.median(np.linalg.norm(honest, axis=1)) / np.linalg.norm(noise, axis=1, keepdims=True)
    return np.asarray(noise - np.float32(strength) * honest.mean(axis=0))


def flipped(own: Rows, honest: Rows, strength: float, random: np.random.Generator) -> Rows:
    """The mean of the honest updates, and so much instead of it of what each learned of flipped labels."""
    return np.asarray(np.float32(1 - strength) * honest.mean(axis=0) + np.float32(strength) * own)


def trigger(own: Rows, honest: Rows, strength: float, random: np.random.Generator) -> Rows:
    """What each learned of rows with a trigger, with so much of it left where most clients move nothing."""
    norms = np.linalg.norm(honest, axis=1, keepdims=True)
    moved = np.abs(honest) > UNMOVED * norms / np.sqrt(honest.shape[1])
    rare = moved.sum(axis=0) <= RARE_SHARE * (len(honest) + len(own))
    return np.where(rare, np.float32(strength) * own, own)


def split_trigger(own: Rows, honest: Rows, strength: float, random: np.random.Generator) -> Rows:
    """The same, but each coordinate that few move is left to one of the attackers alone, many times as large."""
    damped = trigger(own, honest, 0.0, random)
    turn = random.integers(len(own), size=own.shape[1])
    mine = turn == np.arange(len(own))[:, np.newaxis]
    return np.asarray(damped + np.where(mine, np.float32(strength * len(own)), np.float32(0)) * (own - damped))


WEAKER = (1.0, 0.8, 0.6, 0.4, 0.3, 0.2, 0.1, 0.0)
Answer = Callable[[Rows, Rows, float, np.random.Generator], Rows]
ATTACKS: Mapping[str, tuple[Answer, tuple[float, ...], str | None]] = {
    "against": (against, (4.0, 3.0, 2.0, 1.5, 1.2, 1.0, 0.7, 0.5, 0.3, 0.1, 0.0), None),
    "dressed": (dressed, (4.0, 3.0, 2.0, 1.5, 1.0, 0.7, 0.5, 0.3, 0.1, 0.0), None),
    "flipped": (flipped, WEAKER, "label-flip"),
    "trigger": (trigger, WEAKER, "backdoor"),
    "split trigger": (split_trigger, WEAKER, "backdoor"),
}
"""How answers are made, how strong, strongest first, and what the attackers' rows are."""


class Coalition:
    """A fleet in which some clients answer by one of the attacks; `state` is what the server knows before the round."""

    def __init__(self, fleet: LocalFleet, members: set[int], attack: str, recipe: Recipe, seed: int) -> None:
        self._fleet, self._members, self._recipe, self._seed = fleet, members, recipe, seed
        self._answer, self._strengths, _ = ATTACKS[attack]
        self.state: State | None = None
        self.taken: list[float] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._fleet, name)

    def train(self, index: int, *asked: Any) -> Replies:
        """The fleet's replies, with the strongest answers that are not seen in place of the attackers'."""
        replies = self._fleet.train(index, *asked)
        rows = np.stack([replies.updates.row(place) for place in range(len(replies.ids))])
        bad = np.array([client in self._members for client in replies.ids])
        if not bad.any() or bad.all():
            return replies
        made = {strength: self._made(rows, bad, strength, index) for strength in self._strengths}
        left = {strength: self._weighed(replies, one, bad, index) for strength, one in made.items()}
        best = next(strength for strength in self._strengths if left[strength] >= left[self._strengths[-1]])
        self.taken.append(best)
        return replace(replies, updates=Updates(made[best]))

    def _made(self, rows: Rows, bad: NDArray[np.bool_], strength: float, index: int) -> Rows:
        honest, random = rows[~bad], generator(self._seed, "adaptive", index)
        answers = self._answer(rows[bad], honest, strength, random)
        most = LONGEST * np.median(np.linalg.norm(honest, axis=1))
        lengths = np.linalg.norm(answers, axis=1, keepdims=True)
        made = rows.copy()
        made[bad] = answers * (most / np.maximum(lengths, 1e-12)).astype(np.float32)
        return made

    def _weighed(self, replies: Replies, rows: Rows, bad: NDArray[np.bool_], index: int) -> int:
        """How many of the attackers would not be excluded."""
        assert self.state is not None  # the loop sets it
        samples = np.array([facts[SAMPLES] for facts in replies.facts], dtype=np.float64)
        cohort = Cohort(index, replies.ids, Updates(rows), {SAMPLES: samples})
        view = View.of(self.state, Host.of(self._fleet), self._seed)
        cohort, _ = run_stages(self._recipe.measuring, cohort, view)
        return int((cohort.facts["SimilarityFilter"][bad] > 0).sum())


def run(attack: str, share: float, seed: int) -> tuple[float, float, float, float]:
    """Final accuracy, how often the trigger succeeds, the attackers' mean weight, and the mean strength taken."""
    kind = ATTACKS[attack][2]
    poison = {} if kind is None else {"attack": {"kind": kind, "share": share}}
    train = {"lr": 0.5, "epochs": 5, "batch": "full"}
    settings: dict[str, Any] = {"clients": CLIENTS, "partition": "dirichlet", "alpha": 0.5, "server": 200}
    task = load_task("digits", **settings, **poison, seed=seed, train=train)
    config = TaskConfig(attack={"kind": kind or "mimic", "share": share})
    members, recipe, weights = set(find_attackers(config, CLIENTS, seed).members), robust(), list[float]()
    with LocalFleet(task, workers=1) as local:
        fleet: Any = Coalition(local, members, attack, recipe, seed)
        host, collect = Host.of(fleet, ROUNDS), InTime(Uniform(0.5))
        state = State(local.server.first_model(seed))
        for index in range(1, ROUNDS + 1):
            fleet.state = state
            state, record = run_round(state, recipe, host, collect, seed, evaluate=index == ROUNDS)
            if record.weights is not None:
                held = zip(record.ids, record.weights.weights.tolist(), strict=True)
                weights.append(sum(weight for client, weight in held if client in members))
        assert record.evaluation is not None
        return record.evaluation.accuracy, _success(state.model, task), float(np.mean(weights)), _mean(fleet.taken)


def _success(model: Model, task: Any) -> float:
    test = task.federation.test
    return make_probe(Backdoor(), test.x, test.y, task.federation.classes).success(task.learner, model)


def _mean(values: list[float]) -> float:
    return float(np.mean(values)) if values else float("nan")


def main() -> None:
    """Print a line per attack and share, means over the seeds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--share", type=float, nargs="+", default=[0.2, 0.4])
    parser.add_argument("--attack", nargs="+", default=[*ATTACKS], choices=[*ATTACKS])
    chosen = parser.parse_args()
    print("| attack | attackers | accuracy | by seed | trigger succeeds | weight | strength |", flush=True)
    print("| --- | ---: | ---: | --- | ---: | ---: | ---: |", flush=True)
    for share in chosen.share:
        for attack in chosen.attack:
            runs = [run(attack, share, seed) for seed in chosen.seeds]
            accuracy, success, weight, strength = np.mean(runs, axis=0)
            seeds = ", ".join(f"{one[0]:.3f}" for one in runs)
            cells = f"{accuracy:.3f} | {seeds} | {success:.1%} | {weight:.0%} | {strength:.2f}"
            print(f"| {attack} | {share:.0%} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
