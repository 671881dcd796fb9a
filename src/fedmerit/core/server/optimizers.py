"""Server optimizers: the step of the server along a round's aggregate.

The aggregate is a pseudo-gradient: SGD adds it, the remaining optimizers use earlier rounds too [Reddi 2021]. An
optimizer's state consists of vectors as long as the model; a checkpoint restores them to the bit.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, ClassVar

import numpy as np
from annotated_types import Interval

from fedmerit.core.parts import PURE, Doc, part
from fedmerit.core.server.server import OPTIMIZER_WHY, SERVER_MODEL, Aggregate, mix
from fedmerit.core.types import EMPTY, Model, Own


@part("optimizer", "momentum")
class Momentum:
    """Momentum (FedAvgM): m = momentum * m + update; model + lr * m [FedAvgM].

    momentum   share of the last step that is kept
    lr         server learning rate

    >>> step, model = Momentum(momentum=0.5), np.zeros(1, np.float32)
    >>> model, own = step(model, Aggregate(np.ones(1, np.float32)))
    >>> step(model, Aggregate(np.ones(1, np.float32)), own, 2)[0].tolist()
    [2.5]
    """

    momentum: Annotated[float, Interval(ge=0, lt=1), Doc("share of the last step that is kept")] = 0.9
    lr: Annotated[float, Interval(gt=0), Doc("server learning rate")] = 1.0
    gives, needs, why = PURE, SERVER_MODEL, OPTIMIZER_WHY

    def __call__(self, model: Model, aggregate: Aggregate, own: Own = EMPTY, index: int = 1) -> tuple[Model, Own]:
        """Keep `momentum` for the next round."""
        update, momentum, lr = aggregate.update, np.float32(self.momentum), np.float32(self.lr)
        velocity = momentum * own["momentum"] + update if "momentum" in own else update
        return model + lr * velocity, {"momentum": velocity}


@part("optimizer", "heavy-ball")
class HeavyBall:
    """Heavy-ball step: model + lr * update + momentum * (model - model before the last round) [Polyak 1964].

    Searches try it: earlier rounds count only by the step that they took, so lr may change from round to round. With a
    constant lr it equals `Momentum`.

    >>> step, model = HeavyBall(lr=2, momentum=0.5), np.zeros(1, np.float32)
    >>> model, own = step(model, Aggregate(np.ones(1, np.float32)))
    >>> step(model, Aggregate(np.ones(1, np.float32)), own, 2)[0].tolist()
    [5.0]
    """

    lr: Annotated[float, Interval(gt=0), Doc("server learning rate")] = 1.0
    momentum: Annotated[float, Interval(ge=0, lt=1), Doc("share of the last step that is kept")] = 0.0
    gives, needs, why = PURE, SERVER_MODEL, OPTIMIZER_WHY

    def __call__(self, model: Model, aggregate: Aggregate, own: Own = EMPTY, index: int = 1) -> tuple[Model, Own]:
        """Keep `move` for the next round."""
        basis = (aggregate.update, *((own["move"],) if "move" in own else ()))
        stepped = mix(model, basis, (self.lr, self.momentum))
        return stepped, {"move": stepped - model}

    def mixture(self, own: Own) -> tuple[float, float]:
        """Return (lr, momentum); momentum is 0 before the first step."""
        return self.lr, self.momentum if "move" in own else 0.0

    @property
    def effective_lr(self) -> float:
        """Total step along a constant update, in updates: lr / (1 - momentum)."""
        return self.lr / (1 - self.momentum)


BETA1, TAU = 0.9, 1e-3
"""Decay of the mean in Adam and Yogi, and what is added to the divisor, as in the paper."""


@part("optimizer", "adam")
class Adam:
    """Adam (FedAdam): m = 0.9 m + 0.1 update, v = beta2 v + (1 - beta2) update^2 [Reddi 2021, Alg. 2].

    The next model is model + lr * m / (sqrt(v) + 0.001). m starts at 0 and v at 1e-6, as in the paper. With `correct`,
    v starts at 0 and lr is corrected for the bias, as in Flower: lr * sqrt(1 - beta2^(t+1)) / (1 - 0.9^(t+1)) in
    round t.

    lr        server learning rate
    beta2     decay of v
    correct   correct the bias of m and v, as Flower does

    >>> zero, update = np.zeros(1, np.float32), Aggregate(np.ones(1, np.float32))
    >>> [f"{one(zero, update)[0][0]:.4f}" for one in (Adam(), Adam(correct=True))]
    ['0.0990', '0.0735']
    """

    lr: Annotated[float, Interval(gt=0), Doc("server learning rate")] = 0.1
    beta2: Annotated[float, Interval(ge=0, lt=1), Doc("decay of the mean square")] = 0.99
    correct: Annotated[bool, Doc("start v at 0 and correct the bias, as Flower does")] = False
    gives, needs, why = PURE, SERVER_MODEL, OPTIMIZER_WHY

    def __call__(self, model: Model, aggregate: Aggregate, own: Own = EMPTY, index: int = 1) -> tuple[Model, Own]:
        """Keep `first` and `second` for the next round."""
        square, before = np.square(aggregate.update), _second(own, model, 0.0 if self.correct else TAU)
        second = np.asarray(np.float32(self.beta2) * before + np.float32(1 - self.beta2) * square, np.float32)
        lr = self.lr
        if self.correct:
            lr *= math.sqrt(1 - self.beta2 ** (index + 1)) / (1 - BETA1 ** (index + 1))
        return _move(model, aggregate, own, second, lr)


@part("optimizer", "yogi")
class Yogi:
    """Yogi (FedYogi): Adam with v = v - (1 - beta2) update^2 sign(v - update^2) [Reddi 2021, Alg. 2].

    lr      server learning rate
    beta2   how fast v changes

    >>> update = Aggregate(np.ones(1, np.float32))
    >>> model, _ = Yogi(lr=0.1)(np.zeros(1, np.float32), update)
    >>> f"{model[0]:.4f}"
    '0.0990'
    """

    lr: Annotated[float, Interval(gt=0), Doc("server learning rate")] = 0.1
    beta2: Annotated[float, Interval(ge=0, lt=1), Doc("how fast the mean square changes")] = 0.99
    gives, needs, why = PURE, SERVER_MODEL, OPTIMIZER_WHY

    def __call__(self, model: Model, aggregate: Aggregate, own: Own = EMPTY, index: int = 1) -> tuple[Model, Own]:
        """Keep `first` and `second` for the next round."""
        square, before = np.square(aggregate.update), _second(own, model, TAU)
        second = before - np.float32(1 - self.beta2) * square * np.sign(before - square)
        return _move(model, aggregate, own, second, self.lr)


EPSILON = 1e-3
"""The paper's epsilon in the divisor of FedExP."""


@part("optimizer", "fedexp")
class FedExP:
    """FedExP: model + lr * update, lr = max(1, sum_k w_k ||update_k||^2 / (2 (||update||^2 + 0.001))) [FedExP].

    The more the clients' updates disagree, the smaller their mean and the larger lr. The paper's weights are 1/n and
    its final model is the mean of the last two; here the weights are the earned ones, and the final model is the last.

    >>> opposed = Aggregate(np.array([0.5, 0.0], np.float32), mean_square=2.0)
    >>> f"{FedExP()(np.zeros(2, np.float32), opposed)[0][0]:.3f}"
    '1.992'
    """

    needs = frozenset({"server model", "weighted mean"})
    why: ClassVar[Mapping[str, str]] = {
        "weighted mean": "its lr depends on the spread of the updates, which one client can stretch; use the mean with "
        "a clip, or another optimizer",
        "accounted": "its lr depends on the norms of the updates; use sgd, momentum, adam or yogi",
    }

    def __call__(self, model: Model, aggregate: Aggregate, own: Own = EMPTY, index: int = 1) -> tuple[Model, Own]:
        """Keep nothing for the next round."""
        squared = float(np.dot(aggregate.update, aggregate.update)) + EPSILON
        lr = max(1.0, aggregate.mean_square / (2 * squared))
        return model + np.float32(lr) * aggregate.update, EMPTY


def _second(own: Own, model: Model, root: float) -> Model:
    """v before the round; root^2 before the first."""
    stored: Model | None = own.get("second")
    return np.full_like(model, root**2) if stored is None else stored


def _move(model: Model, aggregate: Aggregate, own: Own, second: Model, lr: float) -> tuple[Model, Own]:
    """Return model + lr * m / (sqrt(v) + TAU), and the state."""
    last = own["first"] if "first" in own else np.zeros_like(model)
    first = np.float32(BETA1) * last + np.float32(1 - BETA1) * aggregate.update
    move = np.float32(lr) * first / (np.sqrt(second) + np.float32(TAU))
    return np.asarray(model + move, np.float32), {"first": first, "second": second}
