"""Server optimizers: how far and in which direction the server moves the model by a round's aggregate.

An aggregate is a pseudo-gradient: SGD adds it, the others use what earlier rounds learned [Reddi 2021]. An optimizer's
own state are vectors as long as the model; a checkpoint restores them to the bit.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, ClassVar

import numpy as np
from annotated_types import Interval

from fedmerit.core.parts import ACCOUNTED, Doc, part
from fedmerit.core.server.server import OPTIMIZER_WHY, SERVER_MODEL, Aggregate, mix
from fedmerit.core.types import EMPTY, Model, Own


@part("optimizer", "momentum")
class Momentum:
    """m = momentum * m + update; model + lr * m [FedAvgM].

    >>> step, model = Momentum(momentum=0.5), np.zeros(1, np.float32)
    >>> model, own = step(model, Aggregate(np.ones(1, np.float32)))
    >>> step(model, Aggregate(np.ones(1, np.float32)), own, 2)[0].tolist()
    [2.5]
    """

    momentum: Annotated[float, Interval(ge=0, lt=1), Doc("share of the last move that is kept")] = 0.9
    lr: Annotated[float, Interval(gt=0), Doc("server learning rate")] = 1.0
    gives, needs, why = ACCOUNTED, SERVER_MODEL, OPTIMIZER_WHY

    def __call__(self, model: Model, aggregate: Aggregate, own: Own = EMPTY, index: int = 1) -> tuple[Model, Own]:
        """Remembers `momentum`."""
        update, momentum, lr = aggregate.update, np.float32(self.momentum), np.float32(self.lr)
        kept = momentum * own["momentum"] + update if "momentum" in own else update
        return model + lr * kept, {"momentum": kept}


@part("optimizer", "heavy-ball")
class HeavyBall:
    """model + lr * update + momentum * (model - model before the last round) [Polyak 1964].

    What a search tries in a round: earlier rounds count only by the move that they made, so lr may change from round to
    round. With one lr it is `Momentum`.

    >>> step, model = HeavyBall(lr=2, momentum=0.5), np.zeros(1, np.float32)
    >>> model, own = step(model, Aggregate(np.ones(1, np.float32)))
    >>> step(model, Aggregate(np.ones(1, np.float32)), own, 2)[0].tolist()
    [5.0]
    """

    lr: Annotated[float, Interval(gt=0), Doc("server learning rate")] = 1.0
    momentum: Annotated[float, Interval(ge=0, lt=1), Doc("share of the last move that is kept")] = 0.0
    gives, needs, why = ACCOUNTED, SERVER_MODEL, OPTIMIZER_WHY

    def __call__(self, model: Model, aggregate: Aggregate, own: Own = EMPTY, index: int = 1) -> tuple[Model, Own]:
        """Remembers `move`."""
        basis = (aggregate.update, *((own["move"],) if "move" in own else ()))
        stepped = mix(model, basis, (self.lr, self.momentum))
        return stepped, {"move": stepped - model}

    def mixture(self, own: Own) -> tuple[float, float]:
        """Momentum counts once there is a last move."""
        return self.lr, self.momentum if "move" in own else 0.0

    @property
    def effective_lr(self) -> float:
        """How far it would go in the end if all updates were alike, in updates: lr / (1 - momentum)."""
        return self.lr / (1 - self.momentum)


@part("optimizer", "adam")
class Adam:
    """m = beta1 m + (1 - beta1) update, v = beta2 v + (1 - beta2) update^2 [Reddi 2021, Alg. 2].

    The next model is model + lr * m / (sqrt(v) + tau). With `correct` the lr is corrected for the zeros that m and v
    begin with, as Flower does it: lr * sqrt(1 - beta2^(t+1)) / (1 - beta1^(t+1)) in round t.

    >>> model, _ = Adam(lr=0.1)(np.zeros(1, np.float32), Aggregate(np.ones(1, np.float32)))
    >>> f"{model[0]:.4f}"
    '0.0735'
    """

    lr: Annotated[float, Interval(gt=0), Doc("server learning rate")] = 0.1
    beta1: Annotated[float, Interval(ge=0, lt=1), Doc("decay of the mean")] = 0.9
    beta2: Annotated[float, Interval(ge=0, lt=1), Doc("decay of the mean square")] = 0.99
    tau: Annotated[float, Interval(gt=0), Doc("added to the divisor: larger is less adaptive")] = 1e-3
    correct: Annotated[bool, Doc("correct lr for the zeros that the means begin with, as Flower")] = True
    gives, needs, why = ACCOUNTED, SERVER_MODEL, OPTIMIZER_WHY

    def __call__(self, model: Model, aggregate: Aggregate, own: Own = EMPTY, index: int = 1) -> tuple[Model, Own]:
        """Remembers `first` and `second`."""
        square = np.square(aggregate.update)
        second = np.asarray(
            np.float32(self.beta2) * _moment(own, "second", model) + np.float32(1 - self.beta2) * square, np.float32
        )
        lr = self.lr
        if self.correct:
            lr *= math.sqrt(1 - self.beta2 ** (index + 1)) / (1 - self.beta1 ** (index + 1))
        return _move(model, aggregate, own, second, lr, self.beta1, self.tau)


@part("optimizer", "yogi")
class Yogi:
    """As Adam, with v = v - (1 - beta2) update^2 sign(v - update^2) and no correction [Reddi 2021, Alg. 2].

    >>> model, _ = Yogi(lr=0.1)(np.zeros(1, np.float32), Aggregate(np.ones(1, np.float32)))
    >>> f"{model[0]:.4f}"
    '0.0990'
    """

    lr: Annotated[float, Interval(gt=0), Doc("server learning rate")] = 0.1
    beta1: Annotated[float, Interval(ge=0, lt=1), Doc("decay of the mean")] = 0.9
    beta2: Annotated[float, Interval(ge=0, lt=1), Doc("how fast the mean square changes")] = 0.99
    tau: Annotated[float, Interval(gt=0), Doc("added to the divisor: larger is less adaptive")] = 1e-3
    gives, needs, why = ACCOUNTED, SERVER_MODEL, OPTIMIZER_WHY

    def __call__(self, model: Model, aggregate: Aggregate, own: Own = EMPTY, index: int = 1) -> tuple[Model, Own]:
        """Remembers `first` and `second`."""
        square, before = np.square(aggregate.update), _moment(own, "second", model)
        second = before - np.float32(1 - self.beta2) * square * np.sign(before - square)
        return _move(model, aggregate, own, second, self.lr, self.beta1, self.tau)


@part("optimizer", "adagrad")
class Adagrad:
    """As Adam, with v = v + update^2, beta1 = 0 and no correction [Reddi 2021, Alg. 2].

    >>> model, _ = Adagrad(lr=0.1)(np.zeros(1, np.float32), Aggregate(np.ones(1, np.float32)))
    >>> f"{model[0]:.4f}"
    '0.0999'
    """

    lr: Annotated[float, Interval(gt=0), Doc("server learning rate")] = 0.1
    beta1: Annotated[float, Interval(ge=0, lt=1), Doc("decay of the mean")] = 0.0
    tau: Annotated[float, Interval(gt=0), Doc("added to the divisor: larger is less adaptive")] = 1e-3
    gives, needs, why = ACCOUNTED, SERVER_MODEL, OPTIMIZER_WHY

    def __call__(self, model: Model, aggregate: Aggregate, own: Own = EMPTY, index: int = 1) -> tuple[Model, Own]:
        """Remembers `first` and `second`."""
        second = _moment(own, "second", model) + np.square(aggregate.update)
        return _move(model, aggregate, own, second, self.lr, self.beta1, self.tau)


@part("optimizer", "fedexp")
class FedExP:
    """model + lr * update, lr = max(1, sum_k w_k ||update_k||^2 / (2 (||update||^2 + epsilon))) [FedExP].

    The more the clients' updates disagree, the shorter their mean and the longer the step. The paper's weights are 1/n
    and its last model is the mean of the last two; here the weights are those earned, and the last model is the last.

    >>> opposed = Aggregate(np.array([0.5, 0.0], np.float32), mean_square=2.0)
    >>> f"{FedExP()(np.zeros(2, np.float32), opposed)[0][0]:.3f}"
    '1.992'
    """

    epsilon: Annotated[float, Interval(ge=0), Doc("added to the divisor: larger is more careful")] = 1e-3
    needs = frozenset({"server model", "weighted mean"})
    why: ClassVar[Mapping[str, str]] = {
        "weighted mean": "its lr depends on the spread of the updates, which one client can stretch; use the mean with "
        "a clip, or another optimizer",
        "accounted": "its lr depends on the norms of the updates; use sgd, momentum, adam, yogi or adagrad",
    }

    def __call__(self, model: Model, aggregate: Aggregate, own: Own = EMPTY, index: int = 1) -> tuple[Model, Own]:
        """Nothing is remembered."""
        squared = float(np.dot(aggregate.update, aggregate.update)) + self.epsilon
        lr = max(1.0, aggregate.mean_square / (2 * squared)) if squared > 0 else 1.0
        return model + np.float32(lr) * aggregate.update, EMPTY


def _moment(own: Own, name: str, model: Model) -> Model:
    """A moment that was remembered; zeros in the first round."""
    moment: Model = own[name] if name in own else np.zeros_like(model)
    return moment


def _move(
    model: Model, aggregate: Aggregate, own: Own, second: Model, lr: float, beta1: float, tau: float
) -> tuple[Model, Own]:
    """model + lr * m / (sqrt(v) + tau), and what is remembered."""
    first = np.float32(beta1) * _moment(own, "first", model) + np.float32(1 - beta1) * aggregate.update
    move = np.float32(lr) * first / (np.sqrt(second) + np.float32(tau))
    return np.asarray(model + move, np.float32), {"first": first, "second": second}
