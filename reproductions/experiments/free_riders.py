"""What do free riders get out of M2F? Zero senders, noise senders and mimics on MNIST and digits.

FEDMERIT_DATA=... python -m reproductions.experiments.free_riders run  # about an hour; resumes what was stopped
python -m reproductions.experiments.free_riders tell                   # prints the tables

A fifth of the clients do not train: their models change only by rewards. They claim their rows and epochs as the others
do, and send zeros, Gaussian noise with the honest updates' median norm, or a copy of the honest update that is nearest
to the one they would have trained, with noise. The null row repeats M2F with other batches.
"""

from __future__ import annotations

import argparse
import json
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from fedmerit import Recipe, Run, Task, fedavg, federate, load_task
from fedmerit.core.attacks.answers import FreeRider
from fedmerit.core.attacks.attack import Attackers, Coalition, Scene, draw_attackers
from fedmerit.core.collect.schedules import Schedule
from fedmerit.core.criteria.reputation import Reputation
from fedmerit.core.criteria.robust import NearestDistance
from fedmerit.core.parts import NO_WORDS, Words
from fedmerit.core.recipes import m2f, standalone
from fedmerit.core.seeds import generator
from fedmerit.core.types import Model, Vector
from fedmerit.core.updates import Updates
from fedmerit.errors import NoteWarning
from fedmerit.study.statistics import interval

ROOT = Path(__file__).parents[2]
RUNS = ROOT / "runs" / "free-riders"
SHARE, SEEDS = 0.2, (1, 2, 3, 4, 5, 6, 7, 8, 9, 10)
RATES, EPOCHS = ((0.2, 6), (0.5, 6), (1.0, 8)), (1, 3)
"""Lazy, normal and diligent clients, and the range of their epochs [M2F, sec. 5]."""
TASKS: Mapping[str, Mapping[str, Any]] = {
    "mnist-two-groups": {
        "alpha": 1.0,
        "size": [75, 150],
        "model": "mnist-mlp",
        "validation": 0.1,
        "train": {"lr": 0.05, "batch": 10},
    },
    "digits": {
        "partition": "label-groups",
        "groups": [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]],
        "clients": 20,
        "validation": 0.1,
        "test": "matched",
        "train": {"lr": 0.05, "batch": 10},
    },
}
ROUNDS = {"mnist-two-groups": 25, "digits": 30}
QUALITY = ("Participation", "SimulatedComputation", "DataRatio")
RECIPES: Mapping[str, Recipe] = {
    "M2F": m2f(*QUALITY),
    "M2F, NearestDistance": m2f(*QUALITY, "NearestDistance", "reputation:NearestDistance"),
    "FedAvg": fedavg(),
    "standalone": standalone(),
}
SEES, NULL = "M2F, NearestDistance", "M2F, null"


@dataclass(frozen=True)
class NoiseSender(FreeRider):
    """Send Gaussian noise with the median norm of the honest updates; `client` seeds it."""

    client: int

    kind: ClassVar[str] = "noise"
    needs: ClassVar[Words] = NO_WORDS

    def collude(self, scene: Scene) -> Model:
        """Draw the noise of a round."""
        honest = scene.honest
        return noise(honest, self.client) * np.float32(np.median(honest.norms))


@dataclass(frozen=True)
class NoisyMimic(FreeRider):
    """Copy the honest update that is nearest to the client's own, plus noise of `strength` times its norm."""

    client: int
    strength: float
    trained: list[Model] = field(default_factory=list, compare=False)

    kind: ClassVar[str] = "noisy mimic"
    needs: ClassVar[Words] = NO_WORDS

    def answer(self, update: Model, *rest: Any) -> tuple[Model, dict[str, float]]:
        """Send zeros for now, and note the direction of the client's rows."""
        self.trained[:] = [update.copy()]
        return super().answer(update, *rest)

    def collude(self, scene: Scene) -> Model:
        """Copy the nearest honest update."""
        honest = scene.honest
        copied = honest.row(int(honest.cosines_to(self.trained[0]).argmax()))
        return copied + noise(honest, self.client) * np.float32(self.strength * np.linalg.norm(copied))


def noise(honest: Updates, client: int) -> Model:
    """Draw a Gaussian vector with an expected norm of 1; the round's updates are its seed, as attacks have no state."""
    random = generator(client, "noise", *honest.norms.view(np.uint64).tolist())
    return random.standard_normal(honest.length, dtype=np.float32) / np.float32(np.sqrt(honest.length))


KINDS = ("none", "zero", "noise", "mimic 0.1", "mimic 0.3")
"""The number of a mimic is its noise in norms of the copied update."""


def attack(kind: str, client: int) -> FreeRider:
    """Return what a free rider of this kind sends."""
    name, _, strength = kind.partition(" ")
    return {"zero": FreeRider(), "noise": NoiseSender(client), "mimic": NoisyMimic(client, float(strength or 0))}[name]


@cache
def task_of(data: str, seed: int) -> Task:
    """Load the clients of a seed once."""
    return load_task(data, seed=seed, **TASKS[data])


def riders_of(task: Task, seed: int) -> list[int]:
    """Return the clients that do not train, the same for every kind."""
    return sorted(draw_attackers([Coalition(FreeRider(), SHARE)], len(task.federation.names), seed).members)


def rows() -> Iterator[tuple[str, str]]:
    """Yield pairs of a recipe and a kind; alone, all clients train."""
    kinds = {SEES: ("none", *KINDS[3:]), "FedAvg": ("none", "mimic 0.1"), "standalone": ("none",)}
    yield from ((name, kind) for name in RECIPES for kind in kinds.get(name, KINDS))
    yield NULL, "none"


def file_of(data: str, row: str, kind: str, seed: int) -> Path:
    """Return the file of a run's figures."""
    return RUNS / f"{data}-{row}-{kind}-{seed}.json".replace(", ", "-").replace(" ", "-")


def measure(data: str, row: str, kind: str, seed: int) -> None:
    """Run once, unless the figures are there."""
    path = file_of(data, row, kind, seed)
    if path.exists():
        return
    task, rounds = task_of(data, seed), ROUNDS[data]
    riders = riders_of(task, seed)
    if kind != "none":  # each in a coalition of its own: members of one send the same vector
        coalitions = tuple(Coalition(attack(kind, client), SHARE) for client in riders)
        task = replace(task, attackers=Attackers(coalitions, {client: place for place, client in enumerate(riders)}))
    recipe, draw = RECIPES["M2F" if row == NULL else row], seed + 1000 * (row == NULL)
    schedule = Schedule(rounds, RATES, EPOCHS)
    run = federate(task, recipe, rounds=rounds, selection=schedule, seed=draw, evaluate_every=rounds)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(figures_of(run, set(riders))))
    print(path.stem, flush=True)


def figures_of(run: Run, riders: set[int]) -> dict[str, float]:
    """Return accuracies, and the free riders' share of the entries and of the weight in groups with honest clients.

    A client alone in its group gets its own update back, which is no reward. `criterion` is the last value of
    NearestDistance's reputation, and `flagged` the share of the clients with less than one half.
    """
    accuracies = np.asarray(run.local_accuracy[-1])
    last, sent, weights = dict[int, float](), np.zeros(2), list[float]()
    entries = {(one.round, one.client): one.entries for one in run.ledger.rewards()}
    for index in range(1, run.ledger.last_round() + 1):
        clients = run.explain(index)
        honest = {one.group for one in clients if one.id not in riders}
        together = [one for one in clients if one.group in honest]
        weights.append(sum(one.weight for one in together if one.id in riders) / max(len(honest), 1))
        for one in together:
            sent[int(one.id in riders)] += entries.get((index, one.id), 0)
        last |= {one.id: one.facts.get("reputation:NearestDistance", np.nan) for one in clients}
    of_kind = {
        "riders": sorted(riders),
        "honest": [client for client in range(len(accuracies)) if client not in riders],
    }
    figures = {name: float(accuracies[ids].mean()) for name, ids in of_kind.items()}
    figures |= {"weight": float(np.mean(weights)), "entries": float(sent[1] / sent.sum()) if sent.any() else np.nan}
    for name, ids in of_kind.items():
        values = np.array([last.get(client, np.nan) for client in ids])
        figures |= {f"criterion {name}": float(values.mean()), f"flagged {name}": float((values < 0.5).mean())}
    return figures


ALARMS: Mapping[str, Mapping[str, Any]] = {
    "digits, iid": {"partition": "iid"},
    "digits, Dirichlet 1": {"partition": "dirichlet", "alpha": 1.0},
    "digits, Dirichlet 0.3": {"partition": "dirichlet", "alpha": 0.3},
    "digits, Dirichlet 0.3, full batch": {
        "partition": "dirichlet",
        "alpha": 0.3,
        "train": {"lr": 0.3, "batch": "full"},
    },
    "digits, two labels each": {"partition": "shards"},
    "adult, Dirichlet 1": {"partition": "dirichlet", "alpha": 1.0, "train": {"lr": 0.05}},
}
"""Federations of honest clients, to count false alarms."""


def alarm(name: str, seed: int) -> None:
    """Measure the reputation of 20 honest clients under FedAvg, unless it is there."""
    path = file_of("alarm", name, "none", seed)
    if path.exists():
        return
    settings = {"clients": 20, "train": {"lr": 0.3, "epochs": 5}, **ALARMS[name]}
    rounds = 20 if name.startswith("digits") else 8
    recipe = replace(fedavg(), stages=(Reputation(NearestDistance()),))
    task = load_task(name.partition(",")[0], seed=seed, **settings)
    run = federate(task, recipe, rounds=rounds, fraction=1.0, seed=seed, evaluate_every=rounds)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps([one.facts["reputation:NearestDistance"] for one in run.explain(rounds)]))
    print(path.stem, flush=True)


def alarms() -> Iterator[str]:
    """Yield the table of false alarms."""
    yield "\n| honest clients | mean reputation | lowest | below 0.5 |\n| --- | ---: | ---: | ---: |"
    for name in ALARMS:
        files = [path for seed in SEEDS if (path := file_of("alarm", name, "none", seed)).exists()]
        values = np.array([json.loads(path.read_text()) for path in files]).ravel()
        yield f"| {name} | {values.mean():.2f} | {values.min():.2f} | {(values < 0.5).sum()} of {len(values)} |"


def values_of(data: str, row: str, kind: str, what: str) -> Vector:
    """Return a figure of each seed that is there."""
    files = [file_of(data, row, kind, seed) for seed in SEEDS]
    return np.array([json.loads(path.read_text())[what] if path.exists() else np.nan for path in files])


def cell(values: Vector, *, sign: bool = False) -> str:
    """Return the mean and its 95 % interval."""
    values = values[~np.isnan(values)]
    if not len(values):
        return "-"
    low, high = interval(values)
    form = "+.3f" if sign else ".3f"
    return f"{values.mean():{form}} [{low:{form}}, {high:{form}}]"


def tables() -> Iterator[str]:
    """Yield a table per task, then the values of the criterion."""
    header = ("recipe", "free riders", "accuracy of free riders", "of honest clients", "honest: minus M2F", "entries")
    for data in TASKS:
        alone = values_of(data, "M2F", "none", "honest")
        yield f"\n{data}, {ROUNDS[data]} rounds\n\n| {' | '.join((*header, 'weight'))} |"
        yield "| --- | --- | ---: | ---: | ---: | ---: | ---: |"
        for row, kind in rows():
            riders, honest, *shares = (
                values_of(data, row, kind, what) for what in ("riders", "honest", "entries", "weight")
            )
            means = (cell(riders), cell(honest), cell(honest - alone, sign=True), *map(cell, shares))
            yield f"| {row} | {kind} | {' | '.join(means)} |"
        yield "\n| kind | criterion of free riders | of honest clients | honest clients below 0.5 |"
        yield "| --- | ---: | ---: | ---: |"
        for kind in (kind for row, kind in rows() if row == SEES):
            names = ("criterion riders", "criterion honest", "flagged honest")
            found = (cell(values_of(data, SEES, kind, what)) for what in names)
            yield f"| {kind} | {' | '.join(found)} |"


def main() -> None:
    """Run, or tell."""
    warnings.simplefilter("ignore", NoteWarning)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("run", "tell"))
    parser.add_argument("--seeds", type=int, nargs="+", default=SEEDS)
    options = parser.parse_args()
    if options.what == "tell":
        print("\n".join([*tables(), *alarms()]))
        return
    for seed in options.seeds:
        for data in TASKS:
            for row, kind in rows():
                measure(data, row, kind, seed)
        for name in ALARMS:
            alarm(name, seed)


if __name__ == "__main__":
    main()
