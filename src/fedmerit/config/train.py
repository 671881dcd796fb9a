"""[train]: what a client does with the model it received; the learning rate's schedule by name, in a closed table."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal, Self, TypeAlias, get_args

from pydantic import Field, model_validator

from fedmerit.config.sections import (
    Count,
    NotNegative,
    Positive,
    Section,
    name_of,
    named,
    refuse_idle,
    sections_in,
)
from fedmerit.core import lr_schedules as schedules


class LrScheduleConfig(Section):
    """A schedule by name, with the keys that have an effect in it."""

    name: str
    about: ClassVar[str]

    @abstractmethod
    def make(self) -> schedules.LrSchedule:
        """The schedule itself."""


class ConstantLr(LrScheduleConfig):
    """[train.schedule] that leaves the learning rate as it is."""

    name: Literal["constant"] = "constant"
    about = "`train.lr` in every round"

    def make(self) -> schedules.LrSchedule:
        """Always 1."""
        return schedules.Constant()


class StepLr(LrScheduleConfig):
    """[train.schedule] that goes down in steps."""

    name: Literal["step"] = "step"
    about = "times `factor` after every so many rounds"
    every: Count = Field(10, description="rounds between steps")
    factor: Annotated[float, Field(gt=0, le=1)] = Field(0.5, description="what a step multiplies by")

    def make(self) -> schedules.LrSchedule:
        """Down by a factor."""
        return schedules.StepDecay(self.every, self.factor)


class CosineLr(LrScheduleConfig):
    """[train.schedule] along half a cosine."""

    name: Literal["cosine"] = "cosine"
    about = "half a cosine over `run.rounds`, from `train.lr` down to `least` of it"
    least: Annotated[float, Field(ge=0, le=1)] = Field(0.0, description="the share of `train.lr` at the end")

    def make(self) -> schedules.LrSchedule:
        """Slowly, fast, slowly."""
        return schedules.Cosine(self.least)


class WarmUpLr(LrScheduleConfig):
    """[train.schedule] that begins small."""

    name: Literal["warm-up"] = "warm-up"
    about = "up in equal steps to `train.lr`, reached in round `rounds`"
    rounds: Count = Field(5, description="the first round with all of `train.lr`")

    def make(self) -> schedules.LrSchedule:
        """Up, then constant."""
        return schedules.WarmUp(self.rounds)


AnyLrSchedule: TypeAlias = Annotated[
    ConstantLr | StepLr | CosineLr | WarmUpLr, Field(discriminator="name"), named("constant")
]
"""A schedule by name: add a class here, and it can be configured and documented."""

LR_SCHEDULES: Mapping[str, type[LrScheduleConfig]] = {
    name_of(section): section for section in sections_in(AnyLrSchedule) if issubclass(section, LrScheduleConfig)
}


Algorithm: TypeAlias = Literal["sgd", "scaffold", "feddyn"]
ALGORITHMS: tuple[Algorithm, ...] = get_args(Algorithm)


class TrainConfig(Section):
    """[train]: what a client does with the model it received."""

    lr: Positive = Field(0.1, description="learning rate of local training")
    epochs: Count = Field(5, description="passes over the client's rows")
    batch: Count | Literal["full"] = Field("full", description="rows per step, or `full`")
    optimizer: Literal["sgd", "adam", "adamw"] = Field(
        "sgd", description="`sgd`, `adam`, `adamw`: begun anew by each client in each round"
    )
    momentum: Annotated[float, Field(ge=0, lt=1)] = Field(0.0, description="momentum of local SGD, reset each round")
    weight_decay: NotNegative = Field(
        0.0, description="L2 penalty on the parameters; with adamw, decay beside the gradient"
    )
    clip: Positive | None = Field(None, description="the longest gradient of a batch; default: as long as it is")
    prox: NotNegative = Field(0.0, description="FedProx mu: pull towards the received model")
    schedule: AnyLrSchedule | None = Field(
        None, description="the learning rate over the rounds, by name or as a table; default: constant"
    )
    algorithm: Algorithm = Field("sgd", description="what corrects a client's gradients: nothing, or control variates")
    alpha: Positive = Field(0.01, description="FedDyn's alpha: pull towards the received model")

    @model_validator(mode="after")
    def _nothing_idle(self) -> Self:
        if self.optimizer != "sgd":
            refuse_idle(self, ("momentum",), f"with optimizer = {self.optimizer!r}, which has its own; leave it out")
        if self.algorithm != "feddyn":
            refuse_idle(self, ("alpha",), f"with algorithm = {self.algorithm!r}; it is feddyn's")
        if self.algorithm == "feddyn":
            refuse_idle(self, ("prox",), "beside algorithm = 'feddyn', whose alpha is that pull; leave it out")
        if self.algorithm == "scaffold" and (self.optimizer != "sgd" or self.momentum or self.prox):
            raise ValueError(
                "algorithm = 'scaffold' knows a client's mean gradient by where plain SGD ended: leave out optimizer, "
                "momentum and prox"
            )
        return self


def train_keys(algorithm: str) -> tuple[str, ...]:
    """The keys of [train] that go with this algorithm."""
    return tuple(key for key in TrainConfig.model_fields if key != "alpha" or algorithm == "feddyn")
