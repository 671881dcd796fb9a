"""Sinks for experiment trackers: MLflow, Weights & Biases, trackio."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from time import time
from typing import Any
from uuid import uuid4

from fedmerit.engine.logged import LoggedRound, LoggedRun

EXPERIMENT = "fedmerit"
AT_ONCE = 1000
"""Metrics of one request to MLflow, its limit; its limit for parameters is a tenth of it."""
LONGEST = 500
"""Signs of a parameter's value that every version of MLflow takes."""


class MlflowSink:
    """WHERE is a database file (made where missing) or a tracking server's URI; settings are the run's parameters.

    A kill in the middle of a round of more than 1,000 numbers may leave the first of them twice, with the same values.
    """

    keeps_files = True

    def __init__(self, where: str, run: LoggedRun, place: str | None) -> None:
        from mlflow.tracking import MlflowClient

        self._run = run
        self._client = MlflowClient(tracking_uri=where if "://" in where else _database(where))
        if place is not None:
            self.place = place
            self._last = int(self._client.get_run(place).data.metrics.get("round", 0))
            self._client.update_run(place, status="RUNNING")
            return
        found = self._client.get_experiment_by_name(EXPERIMENT)
        experiment = found.experiment_id if found else self._make_experiment(where)
        self.place, self._last = str(self._client.create_run(experiment, run_name=run.name).info.run_id), 0
        self._log_params(run.settings)

    def _make_experiment(self, where: str) -> str:
        beside = None if "://" in where else Path(where).expanduser().absolute().with_suffix(".artifacts").as_uri()
        return str(self._client.create_experiment(EXPERIMENT, artifact_location=beside))

    def _log_params(self, settings: Mapping[str, Any]) -> None:
        from mlflow.entities import Param

        for some in _parts([Param(key, str(value)[:LONGEST]) for key, value in settings.items()], AT_ONCE // 10):
            self._client.log_batch(self.place, params=some)

    def last_round(self) -> int:
        """The last value of the metric `round`, which is logged after all others."""
        return self._last

    def log(self, one: LoggedRound) -> None:
        """A metric per measure and client; the step is the round."""
        from mlflow.entities import Metric

        now = int(time() * 1000)
        metrics = [Metric(name, value, now, one.index) for name, value in self._run.scalars(one).items()]
        for some in _parts(metrics, AT_ONCE):
            self._client.log_batch(self.place, metrics=some)
        self._last = one.index

    def keep(self, files: Sequence[Path]) -> None:
        """As artifacts; the run is finished then."""
        for path in files:
            self._client.log_artifact(self.place, str(path))
        self._client.set_terminated(self.place, "FINISHED")

    def close(self) -> None:
        """Nothing is held."""


class WandbSink:
    """WHERE is a project. Offline, unless WANDB_MODE says otherwise: `wandb sync` sends it later."""

    keeps_files = True

    def __init__(self, where: str, run: LoggedRun, place: str | None) -> None:
        import wandb

        self._run, self.place = run, place or uuid4().hex[:8]
        self._wandb = wandb.init(
            project=where,
            name=run.name,
            id=self.place,
            resume="allow",
            mode=os.environ.get("WANDB_MODE") or "offline",
            config=dict(run.settings),
            reinit="create_new",
        )

    def last_round(self) -> None:
        """Offline runs cannot be asked: the run's folder keeps it."""

    def log(self, one: LoggedRound) -> None:
        """One line of its history; the step is the round."""
        self._wandb.log(self._run.scalars(one), step=one.index)

    def keep(self, files: Sequence[Path]) -> None:
        """As one artifact."""
        import wandb

        self._wandb.log_artifact(_artifact(wandb, self.place, files))

    def close(self) -> None:
        """Write out what is left."""
        self._wandb.finish()


class TrackioSink:
    """WHERE is a project of trackio, on this machine."""

    keeps_files = True

    def __init__(self, where: str, run: LoggedRun, place: str | None) -> None:
        import trackio

        self._run = run
        self.place = place or f"{run.name}-{uuid4().hex[:8]}"
        self._trackio = trackio.init(
            where, name=self.place, resume="allow", config=dict(run.settings), embed=False, auto_log_gpu=False
        )

    def last_round(self) -> None:
        """It sends in the background: the run's folder keeps it."""

    def log(self, one: LoggedRound) -> None:
        """One line of its metrics; the step is the round."""
        self._trackio.log(self._run.scalars(one), step=one.index)

    def keep(self, files: Sequence[Path]) -> None:
        """As one artifact."""
        import trackio

        self._trackio.log_artifact(_artifact(trackio, self.place, files))

    def close(self) -> None:
        """Send what is left."""
        self._trackio.finish()


def _database(where: str) -> str:
    path = Path(where).expanduser().absolute()
    path.parent.mkdir(parents=True, exist_ok=True)
    return f"sqlite:///{path}"


def _parts(items: Sequence[Any], size: int) -> Iterator[list[Any]]:
    rest = iter(items)
    while some := list(islice(rest, size)):
        yield some


def _artifact(tracker: Any, place: str, files: Sequence[Path]) -> Any:
    """The run's files as one artifact: trackio has the names of wandb."""
    artifact = tracker.Artifact(f"run-{place}", type="run")
    for path in files:
        artifact.add_file(str(path))
    return artifact
