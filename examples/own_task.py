"""Your own data and your own torch model: a page of Python.

    python examples/own_task.py

Or from configuration: with this folder on PYTHONPATH, `task.data = "own_task:MOONS"`.
"""

from __future__ import annotations

import numpy as np
from torch import nn

from fedmerit import DS, Attribute, Federation, Learner, Split, Task, fedavg, federate, prioritized
from fedmerit.config.schema import TaskConfig, TrainConfig
from fedmerit.learn.sgd import TorchLearner
from fedmerit.tasks.registry import TaskSpec

CLIENTS = 12


def moons(rows: int, random: np.random.Generator, noise: float) -> tuple[np.ndarray, np.ndarray]:
    """Two half circles that interlock: one class each."""
    label = random.integers(0, 2, rows)
    angle = random.uniform(0, np.pi, rows)
    x = np.stack([np.cos(angle) + label, np.sin(angle) * (1 - 2 * label) + 0.4 * label], axis=1)
    return (x + random.normal(0, noise, x.shape)).astype(np.float32), label.astype(np.int64)


def split(sizes: list[int], noises: list[float], random: np.random.Generator) -> Split:
    """The clients' rows one after the other; `calibrated` marks rows from a good instrument."""
    parts = [moons(size, random, noise) for size, noise in zip(sizes, noises, strict=True)]
    good = [np.full(size, noise < 0.3) for size, noise in zip(sizes, noises, strict=True)]
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    x, y = np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts])
    return Split(x, y, offsets, {"calibrated": np.concatenate(good)})


def load(config: TaskConfig, seed: int) -> Federation:
    """Every third client has a noisy instrument, and much data."""
    random = np.random.default_rng(seed)
    noisy = [client % 3 == 0 for client in range(CLIENTS)]
    train = split([300 if bad else 60 for bad in noisy], [0.9 if bad else 0.15 for bad in noisy], random)
    test = split([50] * CLIENTS, [0.15] * CLIENTS, random)
    return Federation(tuple(f"lab {client}" for client in range(CLIENTS)), train, test, classes=2)


def network() -> nn.Module:
    """Any module; with one output it would be trained as a yes-no question."""
    return nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 2))


def learner(model: str, train: TrainConfig) -> Learner:
    """The learner for configuration files."""
    return TorchLearner(network, train)


MOONS = TaskSpec("moons", "two moons measured by good and bad instruments", load, ("network",), learner=learner)


def main() -> None:
    """FedAvg trusts the big noisy labs; a priority on calibration does not."""
    task = Task(load(TaskConfig(), seed=1), TorchLearner(network, TrainConfig(lr=0.3, epochs=5, batch=20)))
    calibrated = prioritized(Attribute("calibrated"), DS)
    for name, recipe in {"FedAvg": fedavg(), "calibrated > DS": calibrated}.items():
        run = federate(task, recipe, rounds=20, fraction=0.5, seed=1)
        print(f"{name:16} accuracy {run.accuracy:.3f}")
    heaviest = max(run.explain(20), key=lambda row: row.weight)
    print(f"heaviest in round 20: {task.federation.names[heaviest.id]}, weight {heaviest.weight:.1%}, {heaviest.facts}")


if __name__ == "__main__":
    main()
