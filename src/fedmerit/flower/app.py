"""ServerApp and ClientApp for any task and recipe, configured by one TOML text.

Flower's run configuration has two required keys: `fedmerit`, the text of a configuration as `fedmerit run` reads it,
and `out`, the run folder on the server's machine. If the folder exists, its run is resumed. A node that is started with
`data` and `name` reads its own rows, and the server does not learn where they are. Other nodes simulate: each loads the
configuration's task and keeps only the rows of its partition. The server keeps no client's rows.
"""

import logging
import os
import tomllib
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from flwr.app import Context
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from fedmerit.config.privacy import make_collect, recipe_of
from fedmerit.config.schema import Config, make_config
from fedmerit.core.attacks.attack import Attackers
from fedmerit.core.collect.wait import Wait
from fedmerit.core.host import ServerSetup
from fedmerit.core.parts import declared
from fedmerit.core.reasons import called
from fedmerit.core.state import Record
from fedmerit.core.suspects import Watch
from fedmerit.engine.logs import start_logs
from fedmerit.engine.loop import with_control
from fedmerit.engine.preflight import BELIEVED, check_attackers, check_server
from fedmerit.engine.progress import NewNotes
from fedmerit.engine.run import run_on
from fedmerit.errors import ConfigError
from fedmerit.flower.admission import Enrolment, read_enrolment
from fedmerit.flower.clientapp import make_client_app
from fedmerit.flower.gridfleet import NO_PULL, GridFleet
from fedmerit.tasks.attackers import find_attackers
from fedmerit.tasks.registry import ClientHalf, Task, make_client, make_node, make_server, make_task

SEED = "FEDMERIT_SEED"
TEXT, OUT, PATIENCE, TIMEOUT, ENROLLED = "fedmerit", "out", "patience", "timeout", "enrolled"
SOURCE, NAME = "data", "name"
"""Keys of a node's configuration: where its rows are, and which client it is."""
log = logging.getLogger("flwr")
start_logs()


@lru_cache(maxsize=2)
def _load_half(text: str, partition: int | None, source: str, name: str) -> ClientHalf:
    """Load the rows of a partition, or the node's own rows if it has no partition; cached per process."""
    config = make_config(tomllib.loads(text))
    return make_node(config, source, name) if partition is None else make_client(config, partition)


@lru_cache(maxsize=2)
def _load_task(text: str) -> Task:
    """Load the task; cached per process."""
    return make_task(make_config(tomllib.loads(text)))


def _half_of(context: Context) -> ClientHalf:
    """Load the data and the learner of a node."""
    node = context.node_config
    partition = None if SOURCE in node else int(node["partition-id"])
    return _load_half(str(context.run_config[TEXT]), partition, str(node.get(SOURCE)), str(node.get(NAME, "")))


client = make_client_app(_half_of)
server = ServerApp()


@server.main()
def main(grid: Grid, context: Context) -> None:
    """Read the settings of Flower's run configuration, then serve."""
    settings = context.run_config
    timeout, patience = float(settings.get(TIMEOUT, 600.0)), float(settings.get(PATIENCE, 120.0))
    enrolled = settings.get(ENROLLED)
    enrolment = read_enrolment(Path(str(enrolled))) if enrolled else None
    serve(grid, str(settings[TEXT]), Path(str(settings[OUT])), timeout, patience, enrolment)


def simulation_apps(text: str, out: Path) -> tuple[ServerApp, ClientApp]:
    """Make apps that contain their configuration, because Flower's simulation passes none."""
    app = ServerApp()
    app.main()(lambda grid, context: serve(grid, text, out))
    # all clients run in the same processes, so each process loads the whole task once
    return app, make_client_app(lambda context: _load_task(text).client(int(context.node_config["partition-id"])))


def serve(
    grid: Grid,
    text: str,
    out: Path,
    timeout: float = 600.0,
    patience: float = 120.0,
    enrolment: Enrolment | None = None,
) -> None:
    """Wait for all clients of the task, then run the rounds, written to the folder `out`.

    timeout    seconds in which a client must answer, unless `run.deadline` is set
    patience   seconds to wait until all clients are connected
    enrolment  keys and limits of the clients; None accepts every node
    """
    config = make_config(tomllib.loads(text))
    half, attackers, wait = *prepare(config), config.run.wait
    deadline = config.run.deadline or timeout
    fleet = GridFleet(
        grid,
        half,
        timeout=deadline,
        wait=Wait(wait.min_fraction, wait.seconds) if wait else None,
        enrolment=enrolment,
        attackers=attackers,
        wire=config.run.wire,
    )
    fleet.meet(len(half.names), patience=patience)
    log.info("fedmerit: %d clients are connected", len(fleet.nodes))
    done = run_on(fleet, with_server_seed(config), out, RoundLog(half.names))
    log.info("fedmerit: accuracy %.4f; the run is in %s", done.accuracy, out)


def prepare(config: Config) -> tuple[ServerSetup, Attackers]:
    """Build the server's part of a run and the simulated attackers, and check that the run is possible on Flower."""
    if config.run.device != "cpu":
        raise ConfigError(
            f"Flower nodes train on CPUs, but run.device = {config.run.device!r}; remove run.device, or use "
            "`fedmerit run`"
        )
    half = make_server(config)
    recipe = with_control(recipe_of(config), half)
    if "pulled training" in declared(recipe.models, "needs"):
        raise ConfigError(NO_PULL)
    splits = frozenset({"test rows"} | ({"validation rows"} if config.task.validation > 0 else set()))
    collect = make_collect(config, recipe)
    check_server(half, recipe, collect, config.run.audit, splits if config.task.nodes else BELIEVED)
    attackers = find_attackers(config.task, len(half.names), config.run.seed)
    check_attackers(attackers, recipe, half, collect, config.run.rounds, rows_here=False)
    return half, attackers


def with_server_seed(config: Config) -> Config:
    """Replace `run.seed` by the environment variable FEDMERIT_SEED, if it is set; data still use `run.seed`.

    Nodes can read the configuration. With `run.seed` they could predict which clients the server selects.
    """
    seed = os.environ.get(SEED)
    if seed is None:
        return config
    if config.task.attack:
        raise ConfigError(
            f"{SEED} cannot be used with task.attack: nodes and server both draw the attackers by run.seed; unset one"
        )
    if not seed.isdecimal():
        raise ConfigError(f"{SEED} must be a whole number >= 0 (its value is not shown)")
    return config.model_copy(update={"run": config.run.model_copy(update={"seed": int(seed)})})


class RoundLog:
    """Log each round: number of clients, accuracy, new suspects and new notes."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names, self._watch, self._new_notes = names, Watch(), NewNotes(names)

    def __call__(self, record: Record) -> None:
        """One line per round, one for each new suspect and each new note."""
        tested = record.evaluation
        accuracy = "" if tested is None else f", accuracy {tested.accuracy:.4f}"
        log.info("fedmerit: round %d, %d clients%s", record.index, len(record.ids), accuracy)
        for suspect in self._watch(record):
            log.warning("fedmerit: %s is a suspect: %s", called(self._names[suspect.client]), suspect.summary)
        for line in self._new_notes(record):
            log.warning("fedmerit: %s", line)
