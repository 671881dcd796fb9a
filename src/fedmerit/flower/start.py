"""Start runs on Flower: on an existing SuperLink, on local processes, or in Flower's simulation."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import tomli_w

from fedmerit.config.own import is_own
from fedmerit.config.schema import Config, dump_config
from fedmerit.config.task import SEVERAL, TABLE
from fedmerit.engine.preflight import check_config
from fedmerit.errors import ConfigError, RunFailed
from fedmerit.flower.app import simulation_apps
from fedmerit.flower.loopback import NAME, QUIET, loopback, node_config, write_connection
from fedmerit.flower.processes import temp_folder
from fedmerit.flower.supernode import BIN
from fedmerit.store.run_folder import MODEL
from fedmerit.tasks.registry import make_task

Say = Callable[[str], None]
FINISHED = "finished:completed"
"""The status that Flower gives a run whose ServerApp ended normally."""
NOT_ENDED = "the run did not finish; start it again with the same --out to resume it"


def on_superlink(
    config: Config,
    out: Path,
    superlink: str,
    authority: Path | None,
    *,
    plain: bool,
    say: Say,
    enrolled: Path | None = None,
    key: Path | None = None,
) -> None:
    """Submit a run to a SuperLink, and stream its log.

    superlink  the name of a connection in Flower's config.toml, or HOST:PORT
    authority  with HOST:PORT, the authority's certificate for TLS; `plain` instead of it uses plain text
    say        called with each line of the log
    enrolled   the enrolment file, on the server's machine
    key        the operator's key, if the SuperLink requires one
    """
    address = ":" in superlink
    if address and (authority is None) != plain:
        raise ConfigError(
            f"{superlink} is an address, which needs --root-certificates FILE for TLS, or --insecure for plain text"
        )
    if not address and (authority or plain or key):
        raise ConfigError(
            f"{superlink} is the name of a connection, which has its certificate in Flower's config.toml and its key "
            "by `fedmerit flower key FILE --login HOST:PORT`; give no certificate and key here, or give HOST:PORT"
        )
    with temp_folder() as folder:
        write_app(folder / "app", config, out, enrolled)
        environment, name = os.environ | QUIET, superlink
        if address:
            write_connection(folder / "home", superlink, authority, key)
            environment["FLWR_HOME"], name = str(folder / "home"), NAME
        started = _flwr(["run", str(folder / "app"), name, "--format", "json"], environment)
        if not started.get("success"):
            raise RunFailed(f"Flower did not start the run: {started.get('error-message', 'no reason given')}")
        number = str(started["run-id"])
        say(f"started run {number} on {superlink}")
        command, pipe = [str(BIN / "flwr"), "log", number, name, "--stream"], subprocess.PIPE
        with subprocess.Popen(command, env=environment, stdout=pipe, stderr=subprocess.STDOUT, text=True) as process:
            assert process.stdout is not None
            _follow(process.stdout, say)
        status = _flwr(["list", name, "--run-id", number, "--format", "json"], environment)["runs"][0]["status"]
    if status != FINISHED:
        raise RunFailed(f"{NOT_ENDED} (Flower's status: {status})")


def on_loopback(config: Config, out: Path, *, secure: bool, say: Say, nodes: Sequence[str] = ()) -> None:
    """Start a SuperLink and a SuperNode per client on this machine, run, and end them.

    `nodes` are texts NAME=FILE, for nodes with their own rows.
    """
    configs = _node_configs(config, nodes)
    clients = len(configs) or _count_clients(config)
    with temp_folder() as folder:
        write_app(folder / "app", config, out)
        kind = "with TLS and a key for each node" if secure else "in plain text"
        say(f"starting a SuperLink and {clients} SuperNodes on loopback, {kind}")
        with loopback(folder, clients, secure=secure, configs=configs) as federation:
            federation.run(folder / "app")
            _follow(_tail(folder / "run.log", federation.processes["run"]), say)
    if not (out / MODEL).exists():
        raise RunFailed(NOT_ENDED)


def on_simulation(config: Config, out: Path, client_cpus: int = 1) -> None:
    """Run in Flower's simulation: Ray runs as many clients at a time as the machine has CPUs / `client_cpus`.

    The environment variable RAY_ADDRESS names an existing Ray cluster; without it, Ray starts on this machine.
    """
    if find_spec("ray") is None:
        raise ConfigError("Flower's simulation needs Ray, which is not installed: install the extra `simulation`")
    from flwr.simulation import run_simulation

    os.environ |= QUIET
    clients = _count_clients(config)
    server, client = simulation_apps(dump_config(located(config)), out.absolute())
    resources: dict[str, Any] = {"client_resources": {"num_cpus": client_cpus, "num_gpus": 0.0}}
    run_simulation(server, client, num_supernodes=clients, backend_config=resources)
    if not (out / MODEL).exists():
        raise RunFailed(NOT_ENDED)


def write_app(folder: Path, config: Config, out: Path, enrolled: Path | None = None) -> None:
    """Write a configuration as a Flower app, into a new folder for `flwr run`."""
    components = {"serverapp": "fedmerit.flower.app:server", "clientapp": "fedmerit.flower.app:client"}
    app = {"publisher": "fedmerit", "components": components, "config": run_settings(config, out, enrolled)}
    project = {
        "name": "fedmerit-app",
        "version": "1.0.0",
        "description": "a federation of fedmerit",
        "license": "Apache-2.0",
        "dependencies": [f"fedmerit[torch,data,flower]=={version('fedmerit')}"],
    }
    build = {"requires": ["hatchling"], "build-backend": "hatchling.build"}
    tables = {"build-system": build, "project": project, "tool": {"flwr": {"app": app}}}
    folder.mkdir(parents=True)
    (folder / "pyproject.toml").write_text(tomli_w.dumps(tables, multiline_strings=True), encoding="utf-8")


def run_settings(config: Config, out: Path, enrolled: Path | None = None) -> dict[str, Any]:
    """Make Flower's run configuration of the app (app.py); `enrolled` is a file on the server's machine."""
    settings = {
        "out": str(out.absolute()),
        "timeout": 600.0,
        "patience": 120.0,
        "fedmerit": dump_config(located(config)),
        "enrolled": "" if enrolled is None else str(enrolled.absolute()),
    }
    return {name: value for name, value in settings.items() if value != ""}


def located(config: Config) -> Config:
    """Make the paths of a configuration absolute, because Flower's processes run in other folders."""
    nodes, update = config.task.nodes, dict[str, object]()
    if config.task.data.startswith(TABLE):
        update["data"] = TABLE + SEVERAL.join(map(_absolute, config.task.data.removeprefix(TABLE).split(SEVERAL)))
    if nodes is not None and nodes.server and not is_own(nodes.server):
        update["nodes"] = nodes.model_copy(update={"server": _absolute(nodes.server)})
    return config.model_copy(update={"task": config.task.model_copy(update=update)})


def _absolute(path: str) -> str:
    return str(Path(path).expanduser().absolute())


def _node_configs(config: Config, nodes: Sequence[str]) -> list[str]:
    """Make a node configuration for each name of [task.nodes]; empty if the task is simulated."""
    layout = config.task.nodes
    if layout is None:
        if nodes:
            raise ConfigError(f"--node needs task.data = 'nodes' (got {config.task.data!r}); remove --node")
        return []
    files = {name: path for name, _, path in (text.partition("=") for text in nodes)}
    if set(files) != set(layout.names) or not all(files.values()):
        raise ConfigError(
            f"each node of [task.nodes] needs a file on loopback (got {', '.join(nodes) or 'none'}); give --node "
            f"'NAME=FILE' for {', '.join(layout.names)}"
        )
    return [node_config(_absolute(files[name]), name) for name in layout.names]


def _count_clients(config: Config) -> int:
    """Count the clients of the task, after checking that the task fits the recipe."""
    task = make_task(config)
    check_config(config, task)
    return len(task.federation.names)


def _follow(lines: Iterable[str], say: Say) -> None:
    """Pass log lines to `say`, without colours."""
    for line in lines:
        text = re.sub(r"\x1b\[[0-9;]*m", "", line).rstrip()
        if text and text != "INFO :":
            say(text)


def _flwr(words: list[str], environment: Mapping[str, str]) -> dict[str, Any]:
    """Run a command of Flower, and return its JSON answer."""
    done = subprocess.run([str(BIN / "flwr"), *words], env=environment, capture_output=True, text=True, check=False)
    try:
        answer = json.loads(done.stdout)
    except json.JSONDecodeError:
        raise RunFailed(f"flwr {words[0]} failed: {(done.stderr or done.stdout).strip()[-500:]}") from None
    return answer if isinstance(answer, dict) else {}


def _tail(path: Path, process: subprocess.Popen[bytes]) -> Iterator[str]:
    """Yield the lines of a log as they are written, until its process ends."""
    with path.open(encoding="utf-8", errors="replace") as log:
        while True:
            ended = process.poll() is not None
            yield from log
            if ended:
                return
            time.sleep(0.2)
