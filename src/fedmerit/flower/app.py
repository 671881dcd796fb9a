"""The apps that Flower starts: a ServerApp and a ClientApp for any task and recipe, from one TOML text.

The run's configuration has two keys: `fedmerit`, the text of a configuration as `fedmerit run` takes it, and `out`, the
folder for the run on the server's machine. A run that was begun there is resumed. A node that is started with `data`
and `name` has rows of its own, and the server never learns where. Others, which simulate, load the task that the
configuration names and keep the rows of their partition alone; the server keeps those of none.
"""

from __future__ import annotations

import logging
import tomllib
from functools import lru_cache
from pathlib import Path

from flwr.app import Context
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from fedmerit.config.privacy import recipe_of
from fedmerit.config.schema import make_config
from fedmerit.core.state import Record
from fedmerit.core.suspects import Watch
from fedmerit.engine.loop import make_selection
from fedmerit.engine.preflight import check_server, check_validation
from fedmerit.engine.run import run_on
from fedmerit.flower.clientapp import make_client_app
from fedmerit.flower.gridfleet import GridFleet
from fedmerit.tasks.registry import ClientHalf, Task, make_client, make_node, make_server, make_task

TEXT, OUT, PATIENCE, TIMEOUT = "fedmerit", "out", "patience", "timeout"
SOURCE, NAME = "data", "name"
"""Of a node's own configuration: where its rows are, and which client it is."""
log = logging.getLogger("flwr")
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
    serve(grid, str(settings[TEXT]), Path(str(settings[OUT])), timeout, patience)


def apps_for(text: str, out: Path) -> tuple[ServerApp, ClientApp]:
    """Apps that know their configuration, for Flower's simulation: it gives none."""
    own = ServerApp()

    @own.main()
    def play(grid: Grid, context: Context) -> None:
        serve(grid, text, out)

    # all clients take turns in the same processes, so each of these loads the whole task once
    return own, make_client_app(lambda context: _task(text).client(int(context.node_config["partition-id"])))


def serve(grid: Grid, text: str, out: Path, timeout: float = 600.0, patience: float = 120.0) -> None:
    """The ServerApp: all clients of the task on the grid, rounds into the folder `out`."""
    config = make_config(tomllib.loads(text))
    half = make_server(config)
    recipe, wait = recipe_of(config), config.run.wait
    check_server(half, recipe, make_selection(config.run), config.run.audit)
    if config.task.nodes is not None:
        check_validation(recipe, any_rows=config.task.validation > 0)
    fleet = GridFleet(grid, half, timeout=config.run.deadline or timeout, wait=wait.make() if wait else None)
    fleet.meet(len(half.names), patience=patience)
    log.info("fedmerit: %d clients are there", len(fleet.nodes))
    done = run_on(fleet, config, out, Told())
    log.info("fedmerit: accuracy %.4f; kept in %s", done.accuracy, out)


class Told:
    """What the log says of each round: who came, how well the model does, who was left out, cut or stands out."""

    def __init__(self) -> None:
        self._watch = Watch()
        self._told: set[tuple[str, str]] = set()

    def __call__(self, record: Record) -> None:
        """One line per round, and one for each claim that was cut and each client that is suspected, when it begins."""
        tested = record.evaluation
        accuracy = "" if tested is None else f", accuracy {tested.accuracy:.4f}"
        left_out = f", left out: {dict(record.left_out)}" if record.left_out else ""
        log.info("fedmerit: round %d, %d clients%s%s", record.index, len(record.ids), accuracy, left_out)
        for suspect in self._watch(record):
            log.warning("fedmerit: client %d stands out %s", suspect.client, suspect.summary)
        for note in record.notes:
            if note.kind in CUTS and (note.kind, note.subject) not in self._told:
                self._told.add((note.kind, note.subject))
                log.warning("fedmerit: %s%s", "" if note.client is None else f"client {note.client} ", note.text)
