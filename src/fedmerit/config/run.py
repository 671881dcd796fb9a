"""[run]: the number of rounds, which clients take part, how long they are waited for, and the seed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from fedmerit.config.sections import Count, Positive, Section, core_field
from fedmerit.core.collect.collect import Collect, InTime, LateAnswers, Poisson, Selection, Uniform
from fedmerit.core.collect.late import Delayed, Wait
from fedmerit.core.collect.schedules import Available, Schedule


def _twice(value: Any) -> Any:
    """Accept one number where a least and a most are expected."""
    return (value, value) if isinstance(value, int) else value


class ScheduleConfig(Section):
    """[run.schedule]: each client takes part in its own share of the rounds, instead of run.fraction."""

    rates: tuple[tuple[float, Count], ...] = Field(
        ((1.0, 1),), description="pairs [rate, clients], dealt in client order and again until all have one"
    )
    epochs: Annotated[tuple[Count, Count], BeforeValidator(_twice)] | None = Field(
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


Hour = Annotated[float, Field(ge=0, le=24)]


class AvailabilityConfig(Section):
    """[run.availability]: hours of the day in which clients can be asked."""

    hours: Annotated[tuple[tuple[Hour, Hour, Count], ...], Field(min_length=1)] = Field(
        description="[from, to, clients], dealt in client order and again until all have some; 22 to 6 is over midnight"
    )
    clock: Literal["simulated", "server"] = Field(
        "simulated",
        description="`simulated`: rounds begin at `start` and then every `minutes`; `server`: its clock, UTC",
    )
    start: Hour = Field(0.0, description="simulated: the hour at which round 1 begins")
    minutes: Positive = Field(60.0, description="simulated: from the beginning of a round to that of the next")

    @model_validator(mode="after")
    def _nothing_idle(self) -> Self:
        if self.clock == "server" and {"start", "minutes"} & self.model_fields_set:
            raise ValueError("start and minutes are of the simulated clock; leave them out, or clock")
        return self


class StopConfig(Section):
    """[run.stop]: end the run early, by the accuracy on the clients' validation rows."""

    patience: Count = Field(5, description="rounds without a rise of the best accuracy, after which the run ends")
    least: Annotated[float, Field(ge=0, lt=1)] = Field(0.0, description="a rise by no more than this is none")


class RunConfig(Section):
    """[run]: how long, with how many clients, from which seed."""

    rounds: Count = Field(20, description="rounds of training")
    fraction: Annotated[float, Field(gt=0, le=1)] = Field(0.1, description="share of the clients drawn per round")
    selection: Literal["uniform", "poisson"] = Field(
        "uniform",
        description="`uniform`: that share, rounded; `poisson`: each client with that chance, as [privacy] needs it",
    )
    schedule: ScheduleConfig | None = Field(None, description="who takes part when, see [run.schedule]")
    budget_seconds: Positive | None = Field(
        None,
        description="clients train as many epochs as they can in this time, at least one; here by a column speed (rows "
        "per second) of [facts], on Flower by the clock",
    )
    wait: WaitConfig | None = Field(None, description="how long a round waits for its clients, see [run.wait]")
    delays: DelaysConfig | None = Field(None, description="simulated clients that are late, see [run.delays]")
    availability: AvailabilityConfig | None = Field(
        None, description="hours in which clients can be asked, see [run.availability]"
    )
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
        if self.schedule is not None and self.selection != "uniform":
            raise ValueError(
                "selection has no effect with a schedule, which says who takes part; leave one of them out"
            )
        if self.budget_seconds is not None and self.schedule is not None and self.schedule.epochs is not None:
            raise ValueError(
                "schedule.epochs has no effect with budget_seconds, which decides on epochs; leave one out"
            )
        if self.availability is not None and (self.schedule is not None or self.selection != "uniform"):
            raise ValueError(
                "availability draws uniformly of those who are there; leave schedule and selection out, or availability"
            )
        if self.wait is not None and self.wait.overselect > 1:
            self._check_overselect(self.wait.overselect)
        if self.delays is not None and self.wait is None:
            raise ValueError("delays have no effect where everybody is waited for; set run.wait, too")
        if self.stop is not None and self.evaluate_every != 1:
            raise ValueError("a run that may stop after any round tests every one; leave evaluate_every at 1")
        return self

    def _check_overselect(self, overselect: float) -> None:
        if self.schedule is not None or self.selection != "uniform":
            raise ValueError(
                "wait.overselect needs a fraction drawn uniformly; remove schedule and selection, or overselect"
            )
        if overselect * self.fraction > 1:
            raise ValueError(
                f"wait.overselect asks {overselect:g} times as many clients as a round needs, and there are not as "
                f"many: set fraction to {1 / overselect:.2g} or less"
            )


def make_selection(run: RunConfig, secret: bool = False, hour_of: Callable[[int], float] | None = None) -> Selection:
    """Who takes part: [run.schedule], else `run.fraction` of the clients, drawn uniformly or independently.

    secret      a Poisson sample does not derive from the seed
    hour_of     the hour of the day at which a round begins, for [run.availability]
    """
    if run.schedule is not None:
        return Schedule(run.rounds, run.schedule.rates, run.schedule.epochs)
    if run.selection == "poisson":
        return Poisson(run.fraction, secret)
    uniform = Uniform(run.fraction, run.wait.overselect if run.wait else 1.0)
    if run.availability is None:
        return uniform
    if hour_of is None:
        raise TypeError("run.availability needs `hour_of`, the clock of the rounds")
    return Available(uniform, run.availability.hours, hour_of)


def make_collect(run: RunConfig, secret: bool = False, hour_of: Callable[[int], float] | None = None) -> Collect:
    """How a round gets its answers: all in time, or from clients that are late in a simulation."""
    selection = make_selection(run, secret, hour_of)
    if run.delays is None or run.wait is None:
        return InTime(selection, run.budget_seconds, run.wait.late if run.wait else "drop")
    delays = run.delays
    return Delayed(selection, run.wait.make(), delays.share, delays.seconds, delays.base_seconds, run.budget_seconds)
