"""Small things that tests build on: a command line, a federation of random rows, a learner without torch."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import scipy.stats

from fedmerit import Federation, InTime, Recipe, Run, Samples, Split, Task, Uniform, resume, run_config
from fedmerit.core.host import Host, ServerSetup
from fedmerit.core.round import run_round
from fedmerit.core.state import Record, State
from fedmerit.core.types import Evaluation, Replies, Verdict
from fedmerit.core.updates import Updates
from fedmerit.errors import RunStopped


class Answer(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@dataclass(frozen=True)
class CommandLine:
    monkeypatch: pytest.MonkeyPatch
    capsys: pytest.CaptureFixture[str]
    module: str = "fedmerit.cli"

    def __call__(self, *arguments: str | Path) -> Answer:
        main = import_module(self.module).main
        self.monkeypatch.setattr(sys, "argv", ["fedmerit", *map(str, arguments)])
        self.capsys.readouterr()
        code: object = 0
        try:
            main()
        except SystemExit as end:
            code = end.code
        out, err = self.capsys.readouterr()
        return Answer(code if isinstance(code, int) else 0 if code is None else 1, out, err)


def spawn(*arguments: str | Path) -> Answer:
    """The command line in a process of its own."""
    command = [sys.executable, "-c", "from fedmerit.cli import main; main()", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"COLUMNS": "100"}, check=False)
    return Answer(done.returncode, done.stdout, done.stderr)


def processes_of(home: Path) -> dict[int, str]:
    """The command lines of living processes to which a deployment gave a home for Flower below this folder."""
    found = {}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            alive = (process / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
            if alive and f"FLWR_HOME={home}/".encode() in (process / "environ").read_bytes():
                found[int(process.name)] = (process / "cmdline").read_text().replace("\0", " ")
        except OSError:  # it ended meanwhile
            continue
    return found


def contents(folder: Path) -> dict[str, bytes]:
    """The files of a run folder, once every ledger that nobody holds any more has been closed."""
    gc.collect()  # a sqlite3 connection that is merely dropped lives on until then
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def one_line(answer: Answer) -> str:
    """The message of a user's mistake: exit code 2, one line on stderr, no traceback, nothing on stdout."""
    assert answer.code == 2, answer
    assert answer.out == ""
    assert "Traceback" not in answer.err
    lines = answer.err.splitlines()
    assert len(lines) == 1, answer.err
    return lines[0]


@dataclass(frozen=True)
class SoftmaxLearner:
    """Softmax regression in numpy: full-batch gradient steps."""

    features: int = 4
    classes: int = 3
    lr: float = 0.5
    epochs: int = 2

    def start(self, seed: int) -> np.ndarray:
        random = np.random.default_rng(seed)
        return (0.01 * random.normal(size=self.features * self.classes)).astype(np.float32)

    def train(self, model: np.ndarray, samples: Samples, seed: int, epochs: int | None = None) -> np.ndarray:
        weights = model.reshape(self.features, self.classes).astype(np.float64)
        for _ in range(epochs or self.epochs):
            odds = np.exp(samples.x @ weights)
            wrong = odds / odds.sum(axis=1, keepdims=True) - np.eye(self.classes)[samples.y]
            weights = weights - self.lr * samples.x.T @ wrong / len(samples)
        return weights.astype(np.float32).ravel()

    def predict(self, model: np.ndarray, x: np.ndarray) -> np.ndarray:
        return np.asarray(np.argmax(x @ model.reshape(self.features, self.classes), axis=1), dtype=np.int64)


class ProbabilisticSoftmax(SoftmaxLearner):
    """One that says how sure it is."""

    def predict_proba(self, model: np.ndarray, x: np.ndarray) -> np.ndarray:
        odds = np.exp(x @ model.reshape(self.features, self.classes).astype(np.float64))
        return np.asarray(odds / odds.sum(axis=1, keepdims=True), dtype=np.float32)


def random_split(sizes: Sequence[int], seed: int, features: int = 4, classes: int = 3) -> Split:
    """Rows whose label is their largest feature, so that there is something to learn."""
    x = np.random.default_rng(seed).normal(size=(sum(sizes), features)).astype(np.float32)
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    return Split(x, x[:, :classes].argmax(axis=1).astype(np.int64), offsets)


def small_task(sizes: Sequence[int] = (5, 12, 20, 8), tests: Sequence[int] = (6, 6, 6, 6), learner: Any = None) -> Task:
    """A federation of random rows and a learner without torch."""
    names = tuple(f"client {i}" for i in range(len(sizes)))
    federation = Federation(names, random_split(sizes, 1), random_split(tests, 2), classes=3)
    return Task(federation, SoftmaxLearner() if learner is None else learner)


@dataclass(frozen=True)
class CannedFleet:
    """A fleet whose clients answer what a test wrote down for them."""

    updates: np.ndarray
    facts: Sequence[Mapping[str, Any]]
    failed: Mapping[int, str] = field(default_factory=dict)
    length: int = 2

    limits: Mapping[str, float] = field(default_factory=dict)

    @property
    def server(self) -> ServerSetup:
        names = tuple(str(i) for i in range(len(self.facts) + len(self.failed)))
        return ServerSetup(names, SoftmaxLearner(self.length, 1), limits=self.limits)

    def judges(self) -> Sequence[int]:
        return range(len(self.server.names))

    def train(self, index: int, downloads: Mapping[int, Any], facts: Sequence[str], seed: int) -> Replies:
        ids = tuple(client for client in sorted(downloads) if client not in self.failed)
        return Replies(ids, Updates(self.updates), tuple(self.facts), self.failed)

    def evaluate(
        self,
        models: Sequence[np.ndarray],
        on: str = "test",
        clients: Sequence[int] | None = None,
        *,
        losses: bool = False,
    ) -> Sequence[Evaluation]:
        one = np.ones(len(self.judges()), dtype=np.int64)
        return [Evaluation(one, one, one * np.square(model).sum() if losses else None) for model in models]

    def send_rewards(self, index: int, rewards: Mapping[int, Any], acceptance: Any) -> Mapping[int, Verdict]:
        return {client: Verdict(True) for client in rewards}


def run_canned(
    recipe: Recipe, fleet: CannedFleet, state: State | None = None, seed: int = 0, evaluate: bool = False, **more: Any
) -> tuple[State, Record]:
    """One round in which all clients of a canned fleet take part; it starts from zeros unless a state is given."""
    start = State(np.zeros(fleet.updates.shape[1], np.float32)) if state is None else state
    return run_round(start, recipe, Host.of(fleet), InTime(Uniform(1.0)), seed, evaluate, **more)


def stopped(config: Any, folder: Path, after: int = 2) -> Path:
    """The folder of a run that was stopped after a round."""

    def stop(record: Record) -> None:
        if record.index == after:
            raise RunStopped("enough")

    with pytest.raises(RunStopped):
        run_config(config, folder, stop)
    return folder


def stopped_and_resumed(config: Any, folder: Path, after: int = 2) -> Run:
    """A run that was stopped after a round, and resumed."""
    return resume(stopped(config, folder, after))


def least_epsilon(without: np.ndarray, with_one: np.ndarray, delta: float) -> float:
    """A lower bound on epsilon that holds with near certainty: the best threshold test, by Clopper and Pearson."""
    doubt, best = 1e-6, 0.0
    for threshold in np.quantile(np.concatenate([without, with_one]), np.linspace(0.02, 0.98, 49)):
        hits, false = int((with_one > threshold).sum()), int((without > threshold).sum())
        least = scipy.stats.beta.ppf(doubt, hits, len(with_one) - hits + 1) if hits else 0.0
        most = scipy.stats.beta.ppf(1 - doubt, false + 1, len(without) - false) if false < len(without) else 1.0
        best = max(best, float(np.log((least - delta) / most)) if least > delta else 0.0)
    return best
