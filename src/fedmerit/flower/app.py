"""The apps that Flower starts: a ServerApp and a ClientApp for any task and recipe, from one TOML text.

The run's configuration has two keys: `fedmerit`, the text of a configuration as `fedmerit run` takes it, and `out`, the
folder for the run on the server's machine. A run that was begun there is resumed. A node that is started with `data`
and `name` has rows of its own, and the server never learns where. Others, which simulate, load the task that the
configuration names and keep the rows of their partition alone; the server keeps those of none.
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
from fedmerit.engine.run import run_on
from fedmerit.errors import ConfigError
from fedmerit.flower.clientapp import make_client_app
from fedmerit.flower.enrolment import Enrolment, read_enrolment
from fedmerit.flower.gridfleet import GridFleet
from fedmerit.tasks.registry import ClientHalf, Task, make_client, make_node, make_server, make_task

SEED = "FEDMERIT_SEED"
TEXT, OUT, PATIENCE, TIMEOUT, ENROLLED, LOG = "fedmerit", "out", "patience", "timeout", "enrolled", "log"
SOURCE, NAME = "data", "name"
"""Of a node's own configuration: where its rows are, and which client it is."""
log = logging.getLogger("flwr")
start_logs()
CUTS = ("claim-cut", "claim-changed", "clipped")
"""Notes on clients of whom less counted than they sent: told in the log, each once."""


@lru_cache(maxsize=2)
def _half(text: str, client: int) -> ClientHalf:
    """Loaded once per process."""
    return make_client(make_config(tomllib.loads(text)), client)


@lru_cache(maxsize=2)
def _task(text: str) -> Task:
    """Loaded once per process."""
    return make_task(make_config(tomllib.loads(text)))


@lru_cache(maxsize=2)
def _own_half(text: str, source: str, name: str) -> ClientHalf:
    """Loaded once per process."""
    return make_node(make_config(tomllib.loads(text)), source, name)


def _half_of(context: Context) -> ClientHalf:
    text, node = str(context.run_config[TEXT]), context.node_config
    if SOURCE in node:
        return _own_half(text, str(node[SOURCE]), str(node.get(NAME, "")))
    return _half(text, int(node["partition-id"]))


client = make_client_app(_half_of)
server = ServerApp()


@server.main()
def main(grid: Grid, context: Context) -> None:
    """Wait for the clients, then play the rounds."""
    settings = context.run_config
    timeout, patience = float(settings.get(TIMEOUT, 600.0)), float(settings.get(PATIENCE, 120.0))
    enrolment, log_to = _enrolment(settings.get(ENROLLED)), str(settings.get(LOG, "")).splitlines()
    serve(grid, str(settings[TEXT]), Path(str(settings[OUT])), timeout, patience, enrolment, log_to)


def apps_for(text: str, out: Path, log_to: Sequence[str] = ()) -> tuple[ServerApp, ClientApp]:
    """Apps that know their configuration, for Flower's simulation: it gives none."""
    own = ServerApp()

    @own.main()
    def play(grid: Grid, context: Context) -> None:
        serve(grid, text, out, log_to=log_to)

    # all clients take turns in the same processes, so each of these loads the whole task once
    return own, make_client_app(lambda context: _task(text).client(int(context.node_config["partition-id"])))


def _enrolment(path: object) -> Enrolment | None:
    """Whose key is which client, from a file on the server's machine; None where the run has no such file."""
    return read_enrolment(Path(str(path))) if path else None


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
    own_rows = frozenset({"test rows"} | ({"validation rows"} if config.task.validation > 0 else set()))
    check_server(
        half, recipe, make_collect(config.run, recipe), config.run.audit, own_rows if config.task.nodes else BELIEVED
    )
    deadline = config.run.deadline or timeout
    fleet = GridFleet(grid, half, timeout=deadline, wait=wait.make() if wait else None, enrolment=enrolment)
    fleet.meet(len(half.names), patience=patience)
    log.info("fedmerit: %d clients are there", len(fleet.nodes))
    done = run_on(fleet, with_own_seed(config), out, Told(), log_to)
    log.info("fedmerit: accuracy %.4f; kept in %s", done.accuracy, out)


def with_own_seed(config: Config) -> Config:
    """The server's draws from FEDMERIT_SEED, where its machine has one; data are dealt out by `run.seed` in any case.

    Nodes see the configuration, and with it `run.seed`: who knows the seed can foresee who is drawn and who judges.
    """
    own = os.environ.get(SEED)
    if own is None:
        return config
    if config.task.attack:
        raise ConfigError(f"who attacks is drawn by run.seed, on nodes and server alike; unset {SEED}, or task.attack")
    if not own.isdecimal():
        raise ConfigError(f"{SEED} is a whole number >= 0; it is not shown here")
    return config.model_copy(update={"run": config.run.model_copy(update={"seed": int(own)})})


class Told:
    """What the log says of each round: who came, how well the model does, who was left out, cut or stands out."""

    def __init__(self) -> None:
        self._watch = Watch()
        self._told: set[tuple[str, str]] = set()

    def __call__(self, record: Record) -> None:
        """One line per round, and one for each claim that was cut and each client that is suspected, when it begins."""
        tested = record.evaluation
        accuracy = "" if tested is None else f", accuracy {tested.accuracy:.4f}"
        left_out = f", left out: {dict(record.dropped)}" if record.dropped else ""
        log.info("fedmerit: round %d, %d clients%s%s", record.index, len(record.ids), accuracy, left_out)
        for suspect in self._watch(record):
            log.warning("fedmerit: client %d stands out %s", suspect.client, suspect.summary)
        for note in record.notes:
            if note.kind in CUTS and (note.kind, note.subject) not in self._told:
                self._told.add((note.kind, note.subject))
                log.warning("fedmerit: %s%s", "" if note.client is None else f"client {note.client} ", note.text)
