"""Start runs on Flower: on an existing SuperLink, on local processes, or in Flower's simulation."""

import json
import os
import re
import ssl
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import tomli_w

from fedmerit.config.own import is_own
from fedmerit.config.privacy import recipe_of
from fedmerit.config.schema import Config, dump_config
from fedmerit.config.task import SEVERAL, TABLE
from fedmerit.core.reasons import called
from fedmerit.engine.preflight import check_config
from fedmerit.errors import ConfigError, DataError, RunFailed, RunStopped
from fedmerit.flower.app import prepare, simulation_apps
from fedmerit.flower.https import check_health
from fedmerit.flower.keys import AUTHORITY
from fedmerit.flower.kit import ENROLLED, OPERATOR_KEY, ROWS, read_kit
from fedmerit.flower.loopback import NAME, loopback, node_config, partitions, write_connection
from fedmerit.flower.processes import temp_folder
from fedmerit.flower.supernode import BIN, QUIET
from fedmerit.store.run_folder import MODEL
from fedmerit.tasks.registry import make_task

Say = Callable[[str], None]
FINISHED = "finished:completed"
"""The status that Flower gives a run whose ServerApp ended normally."""
START_SECONDS, PATIENCE_SECONDS = 60.0, 600.0
"""Seconds to wait for a SuperLink before a run, and during one after the connection was lost."""
NOT_ENDED = "the run did not finish; start it again with the same --out to resume it"


def on_superlink(config: Config, out: Path, say: Say, *, kit: Path | None = None, superlink: str | None = None) -> None:
    """Submit a run to a SuperLink, and stream its log.

    say        called with each line of the log
    kit        the server's kit: address, certificate and operator's key
    superlink  in place of a kit, the name of a connection in Flower's config.toml
    """
    check_app(config, say)
    with _connected(kit, superlink) as link, temp_folder() as folder:
        link.wait(START_SECONDS, say)
        write_app(folder / "app", config, out, None if kit is None else kit / ENROLLED)
        number = link.submit(folder / "app")
        say(f"started run {app_name(out)} (number {number}) on {link.address or link.name}")
        _follow_run(link, number, app_name(out), say)


def follow(run: str | None, say: Say, *, kit: Path | None, superlink: str | None) -> None:
    """Show the log of a run on a SuperLink until it ends; `run` is its name or number, by default the newest one."""
    with _connected(kit, superlink) as link:
        found = link.find(run)
        _follow_run(link, found["run-id"], found["fab-name"], say)


def stop(run: str | None, say: Say, *, kit: Path | None, superlink: str | None) -> None:
    """Stop a run on a SuperLink; by default the newest one."""
    with _connected(kit, superlink) as link:
        found = link.find(run)
        if found["status"].startswith("finished"):
            raise ConfigError(f"run {found['fab-name']} has ended ({found['status']}); there is nothing to stop")
        link.call("stop", found["run-id"], link.name)
        say(f"stopped run {found['fab-name']}; start it again with the same --out to resume it")


@dataclass(frozen=True, slots=True)
class Link:
    """A connection of Flower's command `flwr` to a SuperLink."""

    name: str
    environment: Mapping[str, str]
    address: str = ""
    """HOST:PORT, if it is known, and the authority's certificate."""
    authority: Path | None = None

    def call(self, *words: str) -> dict[str, Any]:
        """Run a command of Flower, and return its JSON answer; raise RunFailed if it has no success."""
        command = [str(BIN / "flwr"), *words, "--format", "json"]
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True, check=False)
        try:
            answer: dict[str, Any] = json.loads(done.stdout)
        except json.JSONDecodeError:
            answer = {"error-message": (done.stderr or done.stdout).strip().rpartition("\n")[2][-500:]}
        if not answer.get("success"):
            raise RunFailed(f"flwr {words[0]} failed: {answer.get('error-message') or 'no reason given'}")
        return answer

    def submit(self, app: Path) -> str:
        """Start a run of an app, and return its number."""
        return str(self.call("run", str(app), self.name)["run-id"])

    def wait(self, seconds: float, say: Say) -> None:
        """Wait until the SuperLink answers, if its address is known."""
        ends, silent = time.monotonic() + seconds, False
        while self.address:
            try:
                check_health(self.address, self.authority)
                return
            except OSError as error:
                if time.monotonic() > ends or isinstance(error, ssl.SSLError):
                    raise RunFailed(
                        f"the SuperLink at {self.address} does not answer ({error}); start it; check with `fedmerit "
                        "doctor --kit DIR`"
                    ) from None
                if not silent:
                    say(f"waiting for the SuperLink at {self.address}")
                silent = True
                time.sleep(1)

    def find(self, run: str | None) -> dict[str, str]:
        """Find a run by its name or number; the newest one by default."""
        runs = self.call("list", self.name)["runs"]
        chosen = [one for one in runs if run in (None, one["fab-name"], one["run-id"])]
        if not chosen:
            names = ", ".join(dict.fromkeys(one["fab-name"] for one in runs)) or "none"
            raise ConfigError(f"the SuperLink has no run {run or ''} (it has: {names}); give one of these")
        return dict(chosen[0])

    def stream(self, number: str, seen: int, say: Say) -> int:
        """Pass the log of a run to `say` without the lines that were seen; return the number of lines it has."""
        command = [str(BIN / "flwr"), "log", number, self.name, "--stream"]
        environment = {**self.environment, "PYTHONUNBUFFERED": "1"}
        lines = 0
        with subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        ) as process:
            assert process.stdout is not None
            for line in process.stdout:
                lines += 1
                text = re.sub(r"\x1b\[[0-9;]*m", "", line).rstrip()  # without colours
                if lines > seen and text not in ("", "INFO :") and not text.startswith("Using SuperLink: "):
                    say(text)
        return max(lines, seen)


def _follow_run(link: Link, number: str, name: str, say: Say) -> None:
    """Show the log of a run until it ends, or until Ctrl-C ends this command."""
    try:
        _show_run(link, number, say)
    except KeyboardInterrupt:
        raise RunStopped(
            f"run {name} goes on without this command; with the same --kit or --superlink, `fedmerit flower follow "
            f"{name}` shows it and `fedmerit flower stop {name}` stops it"
        ) from None


def _show_run(link: Link, number: str, say: Say) -> None:
    """Show the log of a run until it ends; if the connection is lost, wait for the SuperLink and go on."""
    seen, ends, status = 0, time.monotonic() + PATIENCE_SECONDS, ""
    while not status.startswith("finished"):
        seen = link.stream(number, seen, say)
        try:
            found = link.find(number)
        except RunFailed:
            if time.monotonic() > ends:
                raise
            say("lost the connection to the SuperLink; the run goes on")
            link.wait(PATIENCE_SECONDS, say)
            continue
        status, ends = found["status"], time.monotonic() + PATIENCE_SECONDS
    if status != FINISHED:
        raise RunFailed(f"{NOT_ENDED} (Flower's status: {status}; {found['status-details']})")


@contextmanager
def _connected(kit: Path | None, superlink: str | None) -> Iterator[Link]:
    """Connect to the SuperLink of a kit, or by a connection of Flower's config.toml."""
    if (kit is None) == (superlink is None) or ":" in (superlink or ""):
        raise ConfigError("give --kit DIR, or --superlink with the name of a connection in Flower's config.toml")
    if kit is None:
        yield Link(str(superlink), os.environ | QUIET)
        return
    server = read_kit(kit)
    with temp_folder() as folder:
        write_connection(folder, server.address, kit / AUTHORITY, kit / OPERATOR_KEY)
        yield Link(NAME, os.environ | QUIET | {"FLWR_HOME": str(folder)}, server.address, kit / AUTHORITY)


def check_app(config: Config, say: Say) -> None:
    """Check a configuration before it is sent to a server; its data need not be on this machine."""
    nodes = config.task.nodes
    try:
        if nodes is None:
            task = make_task(config)
        elif (file := _server_file(config)) and not Path(file).exists():
            raise DataError(f"{file} does not exist")
    except DataError as error:
        recipe_of(config)
        say(f"the data is not on this machine, so only the recipe was checked: {error}")
        return
    if nodes is None:
        check_config(config, task)
    prepare(config)


def on_loopback(config: Config, out: Path, say: Say, nodes: Sequence[str] = ()) -> None:
    """Start a SuperLink and a SuperNode per client on this machine, run, and end them.

    `nodes` are texts NAME=FILE, for nodes with their own rows.
    """
    configs = _node_configs(config, nodes)
    clients = len(configs) or _count_clients(config)
    with temp_folder() as folder:
        write_app(folder / "app", config, out)
        say(f"starting a SuperLink and {clients} SuperNodes on loopback, in plain text")
        with loopback(folder, clients, configs=configs) as federation:
            link = Link(NAME, federation.environment())
            _show_run(link, link.submit(folder / "app"), say)


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
        "name": app_name(out),
        "version": "1.0.0",
        "description": "a federation of fedmerit",
        "license": "Apache-2.0",
        "dependencies": [f"fedmerit[torch,data,flower]=={version('fedmerit')}"],
    }
    build = {"requires": ["hatchling"], "build-backend": "hatchling.build"}
    tables = {"build-system": build, "project": project, "tool": {"flwr": {"app": app}}}
    folder.mkdir(parents=True)
    (folder / "pyproject.toml").write_text(tomli_w.dumps(tables, multiline_strings=True), encoding="utf-8")


def app_name(out: Path) -> str:
    """Make the name of a run on Flower from the name of its folder.

    >>> app_name(Path("runs/Trial 3"))
    'Trial-3'
    """
    return re.sub(r"[^A-Za-z0-9-]+", "-", out.name).strip("-") or "run"


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
    update = dict[str, object]()
    if config.task.data.startswith(TABLE):
        update["data"] = TABLE + SEVERAL.join(map(_absolute, config.task.data.removeprefix(TABLE).split(SEVERAL)))
    if file := _server_file(config):
        update["server"] = _absolute(file)
    return config.model_copy(update={"task": config.task.model_copy(update=update)})


def _server_file(config: Config) -> str:
    """The file with the server's rows; empty without one."""
    server = config.task.server
    return server if isinstance(server, str) and not is_own(server) else ""


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


def clients_of(config: Config) -> list[tuple[str, str]]:
    """The name and the node configuration of each client: with its own rows, or a partition of a simulated task."""
    layout = config.task.nodes
    if layout is not None:
        return [(name, node_config(ROWS, name)) for name in layout.names]
    names = make_task(config).federation.names
    return list(zip(map(called, names), partitions(len(names)), strict=True))


def _count_clients(config: Config) -> int:
    """Count the clients of the task, after checking that the task fits the recipe."""
    task = make_task(config)
    check_config(config, task)
    return len(task.federation.names)
