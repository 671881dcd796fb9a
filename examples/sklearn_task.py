"""A learner that is not torch: scikit-learn's SGDClassifier behind the same three methods.

python examples/sklearn_task.py
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import SGDClassifier

from fedmerit import LD, MW, Samples, fedavg, federate, load_task, prioritized


@dataclass(frozen=True)
class LinearSVM:
    """A linear classifier as one flat row: the coefficients of all classes, then the intercepts."""

    features: int
    classes: int
    epochs: int = 3

    def start(self, seed: int) -> NDArray[np.float32]:
        """All zeros: the seed is not needed."""
        return np.zeros((self.features + 1) * self.classes, dtype=np.float32)

    def train(
        self, model: NDArray[np.float32], samples: Samples, seed: int, epochs: int | None = None
    ) -> NDArray[np.float32]:
        """A few passes of SGD from the received coefficients."""
        machine = SGDClassifier(learning_rate="constant", eta0=0.01, random_state=seed % 2**32)
        machine.partial_fit(self.flatten(samples.x[:1]), samples.y[:1], classes=np.arange(self.classes))
        machine.coef_, machine.intercept_ = self.unpack(model)
        for _ in range(epochs or self.epochs):
            machine.partial_fit(self.flatten(samples.x), samples.y)
        return np.concatenate([machine.coef_.ravel(), machine.intercept_]).astype(np.float32)

    def predict(self, model: NDArray[np.float32], x: NDArray[Any]) -> NDArray[np.int64]:
        """The class with the largest margin."""
        coefficients, intercepts = self.unpack(model)
        return np.asarray(np.argmax(self.flatten(x) @ coefficients.T + intercepts, axis=1), dtype=np.int64)

    def unpack(self, model: NDArray[np.float32]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The flat row as scikit-learn's two arrays."""
        cut = self.features * self.classes
        values = model.astype(np.float64)
        return values[:cut].reshape(self.classes, self.features), values[cut:].copy()

    def flatten(self, x: NDArray[Any]) -> NDArray[np.float64]:
        """uint8 images to rows of floats in 0..1."""
        return x.reshape(len(x), -1) / 255.0


def main() -> None:
    """FedAvg and a priority on scikit-learn's digits."""
    task = replace(load_task("digits", partition="shards", clients=20), learner=LinearSVM(64, 10))
    for name, recipe in {"FedAvg": fedavg(), "LD > MW": prioritized(LD, MW)}.items():
        print(f"{name:8} {federate(task, recipe, rounds=30, fraction=0.5, seed=1)}")


if __name__ == "__main__":
    main()
