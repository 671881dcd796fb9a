"""[run]: number of rounds, selection of clients, timeouts, seed, device."""

from collections.abc import Sequence
from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from fedmerit.config.sections import Count, Positive, Range, Section, core_field
from fedmerit.core.collect.collect import Poisson, Selection, Uniform
from fedmerit.core.collect.schedules import Schedule
from fedmerit.core.objectives import find_objective


class ScheduleConfig(Section):
    """[run.schedule]: each client takes part in its own share of the rounds; replaces run.fraction."""

    rates: tuple[tuple[float, Count], ...] = Field(
        ((1.0, 1),), description="pairs [participation rate, number of clients], assigned in client order and repeated"
    )
    epochs: Range | None = Field(
        None, description="epochs of each client: a number, or [min, max] to draw from; default: `train.epochs`"
    )


class WaitConfig(Section):
    """[run.wait]: the round's timeout on Flower, after which it continues without the missing clients."""

    min_fraction: Annotated[float, Field(gt=0, le=1)] = Field(
        0.8, description="share of the selected clients that must have answered"
    )
    seconds: Positive = Field(60.0, description="timeout of a round, in seconds")


class EarlyStopping(Section):
    """[run.stop]: stop once the measure on the clients' validation rows has not become better for `patience` rounds.

    Higher is better; a run passes errors such as `mae` with a minus.

    >>> stop = EarlyStopping(patience=2)
    >>> stop([0.5, 0.7, 0.7]), stop([0.5, 0.7, 0.7, 0.6])
    (False, True)
    """

    patience: Count = Field(5, description="stop after this many rounds without a better measure")

    def __call__(self, values: Sequence[float]) -> bool:
        """Whether the last `patience` rounds brought no better value."""
        if len(values) <= self.patience:
            return False
        return max(values[-self.patience :]) <= max(values[: -self.patience])


class RunConfig(Section):
    """[run]: number of rounds, selection of clients, seed, device."""

    rounds: Count = Field(20, description="number of rounds")
    fraction: float = core_field(Uniform, "fraction")
    selection: Literal["uniform", "poisson"] = Field(
        "uniform",
        description="`uniform`: a fixed number of clients; `poisson`: each client with that probability, for [privacy]",
    )
    schedule: ScheduleConfig | None = Field(
        None, description="participation of each client, see [run.schedule]; default: none"
    )
    wait: WaitConfig | None = Field(
        None, description="timeout of a round, see [run.wait]; default: wait for all clients"
    )
    stop: EarlyStopping | None = Field(None, description="early stopping, see [run.stop]; default: never")
    seed: Annotated[int, Field(ge=0, strict=True)] = Field(0, description="seed of every random draw")
    workers: Count | None = Field(
        None, description="worker processes; default: one per core, or one with an accelerator"
    )
    device: Annotated[str, Field(pattern=r"^(auto|cpu|mps|cuda(:\d+)?)$")] = Field(
        "cpu",
        description="device for training: `cpu`, `cuda`, `cuda:1`, `mps`, or `auto` (an accelerator if there is one)",
    )
    memory: Positive | None = Field(
        None, description="GiB of updates kept in memory before they go to disk; default: a quarter of RAM"
    )
    wire: Literal["float32", "float16"] = Field(
        "float32",
        description="type of the numbers that clients send: `float16` halves the bytes of updates, which the server "
        "adds up in float32; the model goes to the clients in float32",
    )
    deadline: Positive | None = Field(
        None, description="seconds in which a client of `fedmerit flower run` must answer; default: 600"
    )
    evaluate_every: Count = Field(
        1, description="test the model on all clients every this many rounds, and after the last"
    )
    measure: str | None = Field(
        None,
        description="measure of results, stopping, tuning and searches: `auc`, `balanced_accuracy`, `f1`, `mae` ... "
        "(`fedmerit list objectives`); default: `mae` for numbers, `auc` for two classes of which the rarer has fewer "
        "than 40 % of the training rows, else `accuracy`; a search then keeps the measure of its paper",
    )
    facts: Literal["together", "first"] | None = Field(
        None,
        description="`together`: clients send facts and update at once; `first`: they send facts, are weighed, and "
        "then upload; default: `together`, with `privacy.masked` `first`",
    )
    audit: tuple[str, ...] = Field(
        (),
        description="objectives to record, on the server's rows and on each client's test rows; default: none",
    )

    @field_validator("measure")
    @classmethod
    def _check_measure(cls, value: str | None) -> str | None:
        return None if value is None else find_objective(value).name

    @model_validator(mode="after")
    def _nothing_idle(self) -> Self:
        if self.schedule is not None and self.selection != "uniform":
            raise ValueError(
                "selection has no effect with a schedule, which selects the clients; remove one of the two"
            )
        if self.stop is not None and self.evaluate_every != 1:
            raise ValueError("early stopping needs a test after every round; remove evaluate_every")
        return self


def make_selection(run: RunConfig, *, secret: bool = False) -> Selection:
    """Make the selection of clients: [run.schedule], else `run.fraction` of them, uniform or Poisson.

    A `secret` Poisson sample does not derive from the seed.
    """
    if run.schedule is not None:
        return Schedule(run.rounds, run.schedule.rates, run.schedule.epochs)
    if run.selection == "poisson":
        return Poisson(run.fraction, secret)
    return Uniform(run.fraction)
