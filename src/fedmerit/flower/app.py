"""The apps that Flower starts: a ServerApp and a ClientApp for any task and recipe, from one TOML text.

The run's configuration has two keys: `fedmerit`, the text of a configuration as `fedmerit run` reads it, and `out`, the
run folder on the server's machine. A run in an existing folder is resumed. A node that is started with `data` and
`name` has its own rows, and the server never learns where. Other nodes simulate: they load the configuration's task and
keep only the rows of their partition; the server keeps no client's rows.
"""

from __future__ import annotations

import logging
import os
import tomllib
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from flwr.app import Context
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from fedmerit.config.privacy import recipe_of
from fedmerit.config.run import make_collect
from fedmerit.config.schema import Config, make_config
from fedmerit.core.state import Record
from fedmerit.core.suspects import Watch
from fedmerit.engine.logs import start_logs
from fedmerit.engine.loop import with_control
from fedmerit.engine.preflight import BELIEVED, check_server
from fedmerit.engine.progress import NewNotes
from fedmerit.engine.run import run_on
from fedmerit.errors import ConfigError
from fedmerit.flower.admission import Enrolment, read_enrolment
from fedmerit.flower.clientapp import make_client_app
from fedmerit.flower.gridfleet import GridFleet
from fedmerit.tasks.attackers import find_attackers
from fedmerit.tasks.registry import ClientHalf, Task, make_client, make_node, make_server, make_task

SEED = "FEDMERIT_SEED"
TEXT, OUT, PATIENCE, TIMEOUT, ENROLLED, LOG = "fedmerit", "out", "patience", "timeout", "enrolled", "log"
SOURCE, NAME = "data", "name"
"""Keys of a node's configuration: where its rows are, and which client it is."""
log = logging.getLogger("flwr")
start_logs()


@lru_cache(maxsize=2)
def _load_half(text: str, partition: int | None, source: str, name: str) -> ClientHalf:
    """The rows of a partition, or a node's own rows without one; loaded once per process."""
    config = make_config(tomllib.loads(text))
    return make_node(config, source, name) if partition is None else make_client(config, partition)


@lru_cache(maxsize=2)
def _load_task(text: str) -> Task:
    """Loaded once per process."""
    return make_task(make_config(tomllib.loads(text)))


def _half_of(context: Context) -> ClientHalf:
    node = context.node_config
    partition = None if SOURCE in node else int(node["partition-id"])
    return _load_half(str(context.run_config[TEXT]), partition, str(node.get(SOURCE)), str(node.get(NAME, "")))


client = make_client_app(_half_of)
server = ServerApp()


@server.main()
def main(grid: Grid, context: Context) -> None:
    """Wait for the clients, then run the rounds."""
    settings = context.run_config
    timeout, patience = float(settings.get(TIMEOUT, 600.0)), float(settings.get(PATIENCE, 120.0))
    enrolled, log_to = settings.get(ENROLLED), str(settings.get(LOG, "")).splitlines()
    enrolment = read_enrolment(Path(str(enrolled))) if enrolled else None
    serve(grid, str(settings[TEXT]), Path(str(settings[OUT])), timeout, patience, enrolment, log_to)


def simulation_apps(text: str, out: Path, log_to: Sequence[str] = ()) -> tuple[ServerApp, ClientApp]:
    """Apps that contain their configuration, for Flower's simulation, which passes none."""
    app = ServerApp()
    app.main()(lambda grid, context: serve(grid, text, out, log_to=log_to))
    # all clients take turns in the same processes, so each of these loads the whole task once
    return app, make_client_app(lambda context: _load_task(text).client(int(context.node_config["partition-id"])))


def serve(
    grid: Grid,
    text: str,
    out: Path,
    timeout: float = 600.0,
    patience: float = 120.0,
    enrolment: Enrolment | None = None,
    log_to: Sequence[str] = (),
) -> None:
    """The ServerApp: all clients of the task on the grid, rounds into the folder `out` and the sinks `log_to`."""
    config = make_config(tomllib.loads(text))
    if config.run.device != "cpu":
        raise ConfigError("run.device is for clients of one machine, and nodes of Flower train on CPUs; leave it out")
    half = make_server(config)
    recipe, wait = with_control(recipe_of(config), half), config.run.wait
    splits = frozenset({"test rows"} | ({"validation rows"} if config.task.validation > 0 else set()))
    collect = make_collect(config.run, recipe)
    check_server(half, recipe, collect, config.run.audit, splits if config.task.nodes else BELIEVED)
    deadline = config.run.deadline or timeout
    fleet = GridFleet(
        grid,
        half,
        timeout=deadline,
        wait=wait.make() if wait else None,
        enrolment=enrolment,
        attackers=find_attackers(config.task, len(half.names), config.run.seed),
    )
    fleet.meet(len(half.names), patience=patience)
    log.info("fedmerit: %d clients are there", len(fleet.nodes))
    done = run_on(fleet, with_server_seed(config), out, RoundLog(), log_to)
    log.info("fedmerit: accuracy %.4f; kept in %s", done.accuracy, out)


def with_server_seed(config: Config) -> Config:
    """The configuration with FEDMERIT_SEED, where it is set, for the server's draws; data still use `run.seed`.

    Nodes can read the configuration, and with `run.seed` foresee which clients are drawn and which judge.
    """
    seed = os.environ.get(SEED)
    if seed is None:
        return config
    if config.task.attack:
        raise ConfigError(f"who attacks is drawn by run.seed, on nodes and server alike; unset {SEED}, or task.attack")
    if not seed.isdecimal():
        raise ConfigError(f"{SEED} is a whole number >= 0; it is not shown here")
    return config.model_copy(update={"run": config.run.model_copy(update={"seed": int(seed)})})


class RoundLog:
    """Logs each round: clients, accuracy, suspects, and the notes that a run shows on a console."""

    def __init__(self) -> None:
        self._watch, self._new_notes = Watch(), NewNotes()

    def __call__(self, record: Record) -> None:
        """One line per round, one for each new suspect and each new note."""
        tested = record.evaluation
        accuracy = "" if tested is None else f", accuracy {tested.accuracy:.4f}"
        log.info("fedmerit: round %d, %d clients%s", record.index, len(record.ids), accuracy)
        for suspect in self._watch(record):
            log.warning("fedmerit: client %d stands out %s", suspect.client, suspect.summary)
        for line in self._new_notes(record):
            log.warning("fedmerit: %s", line)
