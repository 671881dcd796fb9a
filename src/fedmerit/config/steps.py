"""recipe.step: one section per step of the server, each beside the way to make it; a closed table."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, TypeAlias

from pydantic import Field

from fedmerit.config.own import own_part
from fedmerit.config.sections import OWN, NotNegative, Positive, Section, name_of, one_of
from fedmerit.core.server import optimizers as steps

Below1 = Annotated[float, Field(ge=0, lt=1)]


class StepConfig(Section):
    """A step by name, with the keys that have an effect in it."""

    name: str
    about: ClassVar[str]

    @abstractmethod
    def make(self) -> steps.Step:
        """The step itself."""


class PlainStep(StepConfig):
    """[recipe.step] that adds the aggregate."""

    name: Literal["plain"] = "plain"
    about = "model + aggregate: every recipe of the four papers"

    def make(self) -> steps.Step:
        """The aggregate as it is."""
        return steps.Plain()


class MomentumStep(StepConfig):
    """[recipe.step] of FedAvgM."""

    name: Literal["momentum"] = "momentum"
    about = "FedAvgM: m = carry * m + aggregate; model + length * m"
    carry: Below1 = Field(0.9, description="how much of the last move is carried on")
    length: Positive = Field(1.0, description="how far to move")
    nesterov: bool = Field(False, description="move by aggregate + carry * m, which looks ahead")

    def make(self) -> steps.Step:
        """Moves that carry on."""
        return steps.Momentum(self.carry, self.length, self.nesterov)


class _Adaptive(StepConfig):
    """The keys of steps that divide by the root of what they saw."""

    length: Positive = Field(0.1, description="how far to move: the server's learning rate")
    tau: Positive = Field(1e-3, description="added to the divisor: larger is less adaptive")


class AdamStep(_Adaptive):
    """[recipe.step] of FedAdam."""

    name: Literal["adam"] = "adam"
    about = "FedAdam: moves by the mean aggregate / its root mean square"
    beta1: Below1 = Field(0.9, description="how long the mean remembers")
    beta2: Below1 = Field(0.99, description="how long the mean square remembers")
    correct: bool = Field(True, description="correct the length for the zeros that the means begin with")

    def make(self) -> steps.Step:
        """As Flower's FedAdam."""
        return steps.Adam(self.length, self.beta1, self.beta2, self.tau, self.correct)


class YogiStep(_Adaptive):
    """[recipe.step] of FedYogi."""

    name: Literal["yogi"] = "yogi"
    about = "FedYogi: as adam, with a mean square that changes by the sign of what is new"
    beta1: Below1 = Field(0.9, description="how long the mean remembers")
    beta2: Below1 = Field(0.99, description="how fast the mean square changes")

    def make(self) -> steps.Step:
        """As Flower's FedYogi."""
        return steps.Yogi(self.length, self.beta1, self.beta2, self.tau)


class AdagradStep(_Adaptive):
    """[recipe.step] of FedAdagrad."""

    name: Literal["adagrad"] = "adagrad"
    about = "FedAdagrad: divides by the root of the sum of all squares so far"
    beta1: Below1 = Field(0.0, description="how long the mean remembers")

    def make(self) -> steps.Step:
        """As Flower's FedAdagrad."""
        return steps.Adagrad(self.length, self.beta1, self.tau)


class ExtrapolatedStep(StepConfig):
    """[recipe.step] of FedExP."""

    name: Literal["extrapolated"] = "extrapolated"
    about = "FedExP: the more the updates disagree, the longer the step"
    epsilon: NotNegative = Field(1e-3, description="added to the divisor: larger is more careful")

    def make(self) -> steps.Step:
        """The length that the updates suggest."""
        return steps.Extrapolated(self.epsilon)


class OwnStep(StepConfig):
    """[recipe.step] of a user's own."""

    name: str = OWN
    about = "a step of your own"

    def make(self) -> steps.Step:
        """What the user's module defines."""
        step: steps.Step = own_part("step", self.name, "a step: (model, aggregate, parts, index)", ["__call__"])
        return step


_STEPS = (PlainStep, MomentumStep, AdamStep, YogiStep, AdagradStep, ExtrapolatedStep)
STEPS: Mapping[str, type[StepConfig]] = {name_of(section): section for section in _STEPS}
"""Add a class here, and it can be configured and documented."""

if TYPE_CHECKING:
    AnyStep: TypeAlias = StepConfig
else:
    AnyStep = one_of((*_STEPS, OwnStep), "plain")
    """A step by name, bare or as a table."""
