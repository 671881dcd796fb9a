"""[run]: the number of rounds, which clients take part, how long they are waited for, and the seed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, Self

from annotated_types import Interval
from pydantic import Field, model_validator

from fedmerit.config.sections import Count, Positive, Range, Section, core_field
from fedmerit.core.collect.collect import Collect, InTime, LateAnswers, Poisson, Selection, Uniform
from fedmerit.core.collect.late import Delayed, Wait
from fedmerit.core.collect.schedules import Schedule
from fedmerit.core.parts import Doc, check_settings
from fedmerit.core.recipe import Recipe
from fedmerit.core.recipes import privacy_of


class ScheduleConfig(Section):
    """[run.schedule]: each client takes part in its own share of the rounds, instead of run.fraction."""

    rates: tuple[tuple[float, Count], ...] = Field(
        ((1.0, 1),), description="pairs [rate, clients], dealt in client order and again until all have one"
    )
    epochs: Range | None = Field(
        None, description="epochs of each client: one number, or [least, most] to draw from; default: train.epochs"
    )


class WaitConfig(Section):
    """[run.wait]: after this time a round continues with a share of the clients that were asked."""

    min_fraction: Annotated[float, Field(gt=0, le=1)] = Field(
        0.8, description="share of the asked clients that must have answered"
    )
    seconds: Positive = Field(60.0, description="how long a round waits for all of them")
    overselect: Annotated[float, Field(ge=1, le=10)] = Field(
        1.0, description="ask this many times the clients that a round needs, and continue with the first answers"
    )
    late: LateAnswers = Field(
        "drop", description="answers that come later: `drop`, or `use` them in the round in which they come"
    )

    def make(self) -> Wait:
        """The rule of the core."""
        return Wait(self.min_fraction, self.seconds, self.overselect, self.late)


class DelaysConfig(Section):
    """[run.delays]: simulated clients that answer late, for studies on one machine."""

    share: float = core_field(Delayed, "delayed")
    seconds: float = core_field(
        Delayed, "seconds", description="the mean delay, drawn from an exponential distribution"
    )
    base_seconds: float = core_field(Delayed, "base_seconds")


@dataclass(frozen=True, slots=True)
class EarlyStopping:
    """Stop once the best accuracy on validation rows has not risen by more than `least` for `patience` rounds.

    >>> stop = EarlyStopping(patience=2)
    >>> stop([0.5, 0.7, 0.7]), stop([0.5, 0.7, 0.7, 0.6])
    (False, True)
    """

    patience: Annotated[
        int, Interval(ge=1), Doc("rounds without a rise of the best accuracy, after which the run ends")
    ] = 5
    least: Annotated[float, Interval(ge=0, lt=1), Doc("a smaller rise does not count")] = 0.0

    def __post_init__(self) -> None:
        check_settings(self)

    def __call__(self, accuracies: Sequence[float]) -> bool:
        """Whether the last rounds brought nothing over those before them."""
        if len(accuracies) <= self.patience:
            return False
        return max(accuracies[-self.patience :]) <= max(accuracies[: -self.patience]) + self.least


class StopConfig(Section):
    """[run.stop]: end the run early, by the accuracy on the clients' validation rows."""

    patience: int = core_field(EarlyStopping, "patience")
    least: float = core_field(EarlyStopping, "least")

    def make(self) -> EarlyStopping:
        """The rule."""
        return EarlyStopping(self.patience, self.least)


class RunConfig(Section):
    """[run]: how long, with how many clients, from which seed."""

    rounds: Count = Field(20, description="rounds of training")
    fraction: float = core_field(Uniform, "fraction")
    selection: Literal["uniform", "poisson"] = Field(
        "uniform",
        description="`uniform`: that share, rounded; `poisson`: each client with that chance, as [privacy] needs it",
    )
    schedule: ScheduleConfig | None = Field(None, description="who takes part when, see [run.schedule]")
    wait: WaitConfig | None = Field(None, description="how long a round waits for its clients, see [run.wait]")
    delays: DelaysConfig | None = Field(None, description="simulated clients that are late, see [run.delays]")
    stop: StopConfig | None = Field(None, description="when to end before that, see [run.stop]; default: never")
    seed: Annotated[int, Field(ge=0, strict=True)] = Field(0, description="every random draw derives from it")
    workers: Count | None = Field(None, description="worker processes; default: one per core, with an accelerator one")
    device: Annotated[str, Field(pattern=r"^(auto|cpu|mps|cuda(:\d+)?)$")] = Field(
        "cpu", description="where clients train: `cpu`, `cuda`, `cuda:1`, `mps`, or `auto`: an accelerator or the CPU"
    )
    memory: Positive | None = Field(
        None, description="GiB for updates before they go to disk; default: a quarter of RAM"
    )
    deadline: Positive | None = Field(
        None, description="seconds that a client may train before it is ended and left out; default: none"
    )
    evaluate_every: Count = Field(1, description="test the model on all clients every k rounds (always after the last)")
    audit: tuple[str, ...] = Field(
        (), description="objectives to write down of the model: on the server's rows and on each client's test rows"
    )

    @model_validator(mode="after")
    def _nothing_idle(self) -> Self:
        uniform = self.schedule is None and self.selection == "uniform"
        overselect = self.wait.overselect if self.wait else 1.0
        if self.schedule is not None and self.selection != "uniform":
            raise ValueError(
                "selection has no effect with a schedule, which says who takes part; leave one of them out"
            )
        if overselect > 1 and not uniform:
            raise ValueError(
                "wait.overselect needs a fraction drawn uniformly; remove schedule and selection, or overselect"
            )
        if overselect > 1 and overselect * self.fraction > 1:
            raise ValueError(
                f"wait.overselect asks {overselect:g} times as many clients as a round needs, and there are not as "
                f"many: set fraction to {1 / overselect:.2g} or less"
            )
        if self.delays is not None and self.wait is None:
            raise ValueError("delays have no effect where everybody is waited for; set run.wait, too")
        if self.stop is not None and self.evaluate_every != 1:
            raise ValueError("a run that may stop after any round tests every one; leave evaluate_every at 1")
        return self


def make_selection(run: RunConfig, *, secret: bool = False) -> Selection:
    """Who takes part: [run.schedule], else `run.fraction` of the clients, drawn uniformly or independently.

    A `secret` Poisson sample does not derive from the seed.
    """
    if run.schedule is not None:
        return Schedule(run.rounds, run.schedule.rates, run.schedule.epochs)
    if run.selection == "poisson":
        return Poisson(run.fraction, secret)
    return Uniform(run.fraction, run.wait.overselect if run.wait else 1.0)


def make_collect(run: RunConfig, recipe: Recipe) -> Collect:
    """How a round gets its answers: all in time, or from clients that are late in a simulation.

    The sample of a private recipe stays secret.
    """
    privacy, delays = privacy_of(recipe), run.delays
    selection = make_selection(run, secret=privacy is not None and not privacy.reproducible)
    if delays is None or run.wait is None:
        return InTime(selection, late=run.wait.late if run.wait else "drop")
    return Delayed(
        selection,
        run.wait.make(),
        delayed=delays.share,
        seconds=delays.seconds,
        base_seconds=delays.base_seconds,
    )
