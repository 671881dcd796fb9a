"""Steps: how far and where the server moves the model by a round's aggregate.

An aggregate is a pseudo-gradient: the plain step adds it, others carry what earlier rounds learned [Reddi 2021]. What a
step remembers are named vectors as long as the model; the state keeps them and checkpoints restore them to the bit.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from fedmerit.core.types import NOTHING, Model
from fedmerit.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Aggregate:
    """What a round learned: the weighted sum of the updates, and sum_k w_k ||update_k||^2, by which they disagree."""

    update: Model
    mean_square: float = 0.0


class Step(Protocol):
    """From the model and a round's aggregate to the next model.

    >>> Plain()(np.ones(2, np.float32), Aggregate(np.full(2, 0.5, np.float32)))[0].tolist()
    [1.5, 1.5]
    """

    def __call__(
        self, model: Model, aggregate: Aggregate, parts: Mapping[str, Model] = NOTHING, index: int = 1
    ) -> tuple[Model, Mapping[str, Model]]:
        """The next model, and what the step remembers; `parts` is what it remembered, `index` counts rounds from 1."""


@dataclass(frozen=True, slots=True)
class Plain:
    """model + update: every recipe of the four papers.

    >>> Plain()(np.ones(1, np.float32), Aggregate(np.ones(1, np.float32)))[0].tolist()
    [2.0]
    """

    def __call__(
        self, model: Model, aggregate: Aggregate, parts: Mapping[str, Model] = NOTHING, index: int = 1
    ) -> tuple[Model, Mapping[str, Model]]:
        """Nothing is remembered."""
        return model + aggregate.update, NOTHING


@dataclass(frozen=True, slots=True)
class Momentum:
    """m = carry * m + update; model + length * m, or with `nesterov` model + length * (update + carry * m) [FedAvgM].

    >>> step, model = Momentum(carry=0.5), np.zeros(1, np.float32)
    >>> model, parts = step(model, Aggregate(np.ones(1, np.float32)))
    >>> step(model, Aggregate(np.ones(1, np.float32)), parts, 2)[0].tolist()
    [2.5]
    """

    carry: float = 0.9
    length: float = 1.0
    nesterov: bool = False

    def __post_init__(self) -> None:
        _check(0 <= self.carry < 1, "step.carry lies in 0..1, below 1", self.carry)
        _check(0 < self.length < math.inf, "step.length is above 0", self.length)

    def __call__(
        self, model: Model, aggregate: Aggregate, parts: Mapping[str, Model] = NOTHING, index: int = 1
    ) -> tuple[Model, Mapping[str, Model]]:
        """Remembers `momentum`."""
        update, carry, length = aggregate.update, np.float32(self.carry), np.float32(self.length)
        momentum = carry * parts["momentum"] + update if "momentum" in parts else update
        move = update + carry * momentum if self.nesterov else momentum
        return model + length * move, {"momentum": momentum}


@dataclass(frozen=True, slots=True)
class HeavyBall:
    """model + length * update + carry * (model - model before the last round) [Polyak 1964].

    What a search tries in a round: what was taken earlier counts by the move that it made alone, so that lengths may
    change from round to round. With one length it is `Momentum`.

    >>> step, model = HeavyBall(length=2, carry=0.5), np.zeros(1, np.float32)
    >>> model, parts = step(model, Aggregate(np.ones(1, np.float32)))
    >>> step(model, Aggregate(np.ones(1, np.float32)), parts, 2)[0].tolist()
    [5.0]
    """

    length: float = 1.0
    carry: float = 0.0

    def __post_init__(self) -> None:
        _check(0 < self.length < math.inf, "a step's length is above 0", self.length)
        _check(0 <= self.carry < 1, "a step's carry lies in 0..1, below 1", self.carry)

    def __call__(
        self, model: Model, aggregate: Aggregate, parts: Mapping[str, Model] = NOTHING, index: int = 1
    ) -> tuple[Model, Mapping[str, Model]]:
        """Remembers `move`."""
        basis = (aggregate.update, *((parts["move"],) if "move" in parts else ()))
        stepped = mix(model, basis, (self.length, self.carry))
        return stepped, {"move": stepped - model}

    @property
    def reach(self) -> float:
        """How far it would go in the end if all updates were alike, in updates: length / (1 - carry)."""
        return self.length / (1 - self.carry)


def mix(start: Model, basis: Sequence[Model], coefficients: Sequence[float]) -> Model:
    """start + sum_i coefficients[i] * basis[i], in this order, so that servers and clients build the same bits.

    >>> mix(np.ones(1, np.float32), [np.ones(1, np.float32)], [0.5]).tolist()
    [1.5]
    """
    model = start
    for vector, coefficient in zip(basis, coefficients, strict=False):
        if coefficient:
            model = model + (vector if coefficient == 1 else np.float32(coefficient) * vector)
    return model


def coefficients_of(step: Step) -> tuple[float, float] | None:
    """The update's and the last move's coefficients in steps that are sums of the two; None for others."""
    if isinstance(step, Plain):
        return 1.0, 0.0
    return (step.length, step.carry) if isinstance(step, HeavyBall) else None


@dataclass(frozen=True, slots=True)
class Adam:
    """m = beta1 m + (1 - beta1) update, v = beta2 v + (1 - beta2) update^2 [Reddi 2021, Alg. 2].

    The next model is model + length * m / (sqrt(v) + tau). With `correct` the length is corrected for the zeros that m
    and v begin with, as Flower does it: length * sqrt(1 - beta2^(t+1)) / (1 - beta1^(t+1)) in round t.

    >>> model, _ = Adam(length=0.1)(np.zeros(1, np.float32), Aggregate(np.ones(1, np.float32)))
    >>> f"{model[0]:.4f}"
    '0.0735'
    """

    length: float = 0.1
    beta1: float = 0.9
    beta2: float = 0.99
    tau: float = 1e-3
    correct: bool = True

    def __post_init__(self) -> None:
        _check_adaptive(self.length, self.tau, self.beta1, self.beta2)

    def __call__(
        self, model: Model, aggregate: Aggregate, parts: Mapping[str, Model] = NOTHING, index: int = 1
    ) -> tuple[Model, Mapping[str, Model]]:
        """Remembers `first` and `second`."""
        square = np.square(aggregate.update)
        second = np.asarray(
            np.float32(self.beta2) * _part(parts, "second", model) + np.float32(1 - self.beta2) * square, np.float32
        )
        length = self.length
        if self.correct:
            length *= math.sqrt(1 - self.beta2 ** (index + 1)) / (1 - self.beta1 ** (index + 1))
        return _move(model, aggregate, parts, second, length, self.beta1, self.tau)


@dataclass(frozen=True, slots=True)
class Yogi:
    """As Adam, with v = v - (1 - beta2) update^2 sign(v - update^2) and no correction [Reddi 2021, Alg. 2].

    >>> model, _ = Yogi(length=0.1)(np.zeros(1, np.float32), Aggregate(np.ones(1, np.float32)))
    >>> f"{model[0]:.4f}"
    '0.0990'
    """

    length: float = 0.1
    beta1: float = 0.9
    beta2: float = 0.99
    tau: float = 1e-3

    def __post_init__(self) -> None:
        _check_adaptive(self.length, self.tau, self.beta1, self.beta2)

    def __call__(
        self, model: Model, aggregate: Aggregate, parts: Mapping[str, Model] = NOTHING, index: int = 1
    ) -> tuple[Model, Mapping[str, Model]]:
        """Remembers `first` and `second`."""
        square, before = np.square(aggregate.update), _part(parts, "second", model)
        second = before - np.float32(1 - self.beta2) * square * np.sign(before - square)
        return _move(model, aggregate, parts, second, self.length, self.beta1, self.tau)


@dataclass(frozen=True, slots=True)
class Adagrad:
    """As Adam, with v = v + update^2, beta1 = 0 and no correction [Reddi 2021, Alg. 2].

    >>> model, _ = Adagrad(length=0.1)(np.zeros(1, np.float32), Aggregate(np.ones(1, np.float32)))
    >>> f"{model[0]:.4f}"
    '0.0999'
    """

    length: float = 0.1
    beta1: float = 0.0
    tau: float = 1e-3

    def __post_init__(self) -> None:
        _check_adaptive(self.length, self.tau, self.beta1)

    def __call__(
        self, model: Model, aggregate: Aggregate, parts: Mapping[str, Model] = NOTHING, index: int = 1
    ) -> tuple[Model, Mapping[str, Model]]:
        """Remembers `first` and `second`."""
        second = _part(parts, "second", model) + np.square(aggregate.update)
        return _move(model, aggregate, parts, second, self.length, self.beta1, self.tau)


@dataclass(frozen=True, slots=True)
class Extrapolated:
    """model + length * update, length = max(1, sum_k w_k ||update_k||^2 / (2 (||update||^2 + epsilon))) [FedExP].

    The more the clients' updates disagree, the shorter their mean and the longer the step. The paper's weights are 1/n
    and its last model is the mean of the last two; here the weights are those earned, and the last model is the last.

    >>> opposed = Aggregate(np.array([0.5, 0.0], np.float32), mean_square=2.0)
    >>> f"{Extrapolated()(np.zeros(2, np.float32), opposed)[0][0]:.3f}"
    '1.992'
    """

    epsilon: float = 1e-3

    def __post_init__(self) -> None:
        _check(0 <= self.epsilon < math.inf, "step.epsilon is 0 or more", self.epsilon)

    def __call__(
        self, model: Model, aggregate: Aggregate, parts: Mapping[str, Model] = NOTHING, index: int = 1
    ) -> tuple[Model, Mapping[str, Model]]:
        """Nothing is remembered."""
        squared = float(np.dot(aggregate.update, aggregate.update)) + self.epsilon
        length = max(1.0, aggregate.mean_square / (2 * squared)) if squared > 0 else 1.0
        return model + np.float32(length) * aggregate.update, NOTHING


def _part(parts: Mapping[str, Model], name: str, model: Model) -> Model:
    """What was remembered; zeros in the first round."""
    return parts[name] if name in parts else np.zeros_like(model)


def _move(
    model: Model,
    aggregate: Aggregate,
    parts: Mapping[str, Model],
    second: Model,
    length: float,
    beta1: float,
    tau: float,
) -> tuple[Model, Mapping[str, Model]]:
    """model + length * m / (sqrt(v) + tau), and what is remembered."""
    first = np.float32(beta1) * _part(parts, "first", model) + np.float32(1 - beta1) * aggregate.update
    move = np.float32(length) * first / (np.sqrt(second) + np.float32(tau))
    return np.asarray(model + move, np.float32), {"first": first, "second": second}


def _check_adaptive(length: float, tau: float, *betas: float) -> None:
    _check(0 < length < math.inf, "step.length is above 0", length)
    _check(0 < tau < math.inf, "step.tau is above 0", tau)
    _check(all(0 <= beta < 1 for beta in betas), "step.beta1 and step.beta2 lie in 0..1, below 1", betas)


def _check(good: bool, rule: str, received: object) -> None:
    if not good:
        raise ConfigError(f"{rule}; got {received}")
