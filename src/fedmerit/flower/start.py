"""Runs on Flower started from here: on a SuperLink that is there, on processes of this machine, or simulated."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedmerit.config.schema import Config, dump_config
from fedmerit.engine.preflight import check_config
from fedmerit.errors import ConfigError, RunFailed
from fedmerit.flower.app import apps_for
from fedmerit.flower.loopback import NAME, QUIET, loopback, node_config, write_connection
from fedmerit.flower.new import located, write_app
from fedmerit.flower.scratch import scratch_folder
from fedmerit.flower.superlink import log_in, read_operator_key
from fedmerit.store.run_folder import MODEL
from fedmerit.tasks.registry import make_task

Say = Callable[[str], None]
FLWR = Path(sys.executable).parent / "flwr"
FINISHED = "finished:completed"
"""What Flower says of a run whose ServerApp came to its end."""
NOT_ENDED = "the run did not come to its end; start it again with the same --out to resume it"


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
    log: Sequence[str] = (),
) -> None:
    """Submit the run and follow it; `superlink` is the name of a connection that Flower knows, or host:port.

    `key` is the operator's, where the SuperLink asks for it.
    """
    address = ":" in superlink
    if address and (authority is None) != plain:
        raise ConfigError(
            f"{superlink} is an address: give --root-certificates FILE for TLS, or --insecure for plain text"
        )
    if not address and (authority or plain or key):
        raise ConfigError(
            f"{superlink} is the name of a connection, whose certificates Flower's config.toml names, and whose key is "
            "kept by `fedmerit flower login`"
        )
    with scratch_folder() as scratch:
        write_app(scratch / "app", config, out, enrolled, log)
        environment = os.environ | QUIET
        if address:
            write_connection(scratch / "home", superlink, authority)
            environment["FLWR_HOME"] = str(scratch / "home")
        if key is not None:
            log_in(scratch / "home", superlink, read_operator_key(key))
        name = NAME if address else superlink
        started = _flwr(["run", str(scratch / "app"), name, "--format", "json"], environment)
        if not started.get("success"):
            raise RunFailed(f"Flower did not start the run: {started.get('error-message', 'no reason given')}")
        number = str(started["run-id"])
        say(f"run {number} is on {superlink}")
        with subprocess.Popen(
            [str(FLWR), "log", number, name, "--stream"],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as process:
            assert process.stdout is not None
            _follow(process.stdout, say)
        status = _flwr(["list", name, "--run-id", number, "--format", "json"], environment)["runs"][0]["status"]
    if status != FINISHED:
        raise RunFailed(f"{NOT_ENDED}; Flower says {status}")


def on_loopback(
    config: Config, out: Path, *, secure: bool, say: Say, nodes: Sequence[str] = (), log: Sequence[str] = ()
) -> None:
    """Start a SuperLink and a SuperNode for each client on this machine, run, and end them.

    `nodes` are NAME=FILE, for nodes with rows of their own.
    """
    own = _own_rows(config, nodes)
    clients = len(own) or _checked_clients(config)
    with scratch_folder() as folder:
        write_app(folder / "app", config, out, log=log)
        kind = "with TLS and a key for each node" if secure else "in plain text"
        say(f"starting a SuperLink and {clients} SuperNodes on loopback, {kind}")
        with loopback(folder, clients, secure=secure, configs=own) as federation:
            federation.run(folder / "app")
            _follow(_tail(folder / "run.log", federation.processes["run"]), say)
    if not (out / MODEL).exists():
        raise RunFailed(NOT_ENDED)


def on_simulation(config: Config, out: Path, log: Sequence[str] = ()) -> None:
    """Flower's simulation: clients take turns in processes of Ray, one per core."""
    from flwr.simulation import run_simulation

    os.environ |= QUIET
    clients = _checked_clients(config)
    server, client = apps_for(dump_config(located(config)), out.absolute(), log)
    resources: dict[str, Any] = {"client_resources": {"num_cpus": 1, "num_gpus": 0.0}}
    run_simulation(server, client, num_supernodes=clients, backend_config=resources)
    if not (out / MODEL).exists():
        raise RunFailed(NOT_ENDED)


def _own_rows(config: Config, nodes: Sequence[str]) -> list[str]:
    """A configuration for each node that [task.nodes] names; none where the task is simulated."""
    layout = config.task.nodes
    if layout is None:
        if nodes:
            raise ConfigError(f"--node is for task.data = 'nodes'; this task is {config.task.data!r}")
        return []
    files = {name: path for name, _, path in (text.partition("=") for text in nodes)}
    if set(files) != set(layout.names) or not all(files.values()):
        raise ConfigError(
            f"each node of [task.nodes] needs its file on loopback: --node 'NAME=FILE' for {', '.join(layout.names)}; "
            f"got {', '.join(nodes) or 'none'}"
        )
    return [node_config(str(Path(files[name]).expanduser().absolute()), name) for name in layout.names]


def _checked_clients(config: Config) -> int:
    """How many clients the task has, once it is known to have what the recipe needs; its rows are let go again."""
    task = make_task(config)
    check_config(config, task, one_device=False)
    return len(task.federation.names)


def _follow(lines: Iterable[str], say: Say) -> None:
    """Tell what is said, without its colours."""
    for line in lines:
        text = re.sub(r"\x1b\[[0-9;]*m", "", line).rstrip()
        if text and text != "INFO :":
            say(text)


def _flwr(words: list[str], environment: Mapping[str, str]) -> dict[str, Any]:
    """What one of Flower's commands answers in JSON."""
    done = subprocess.run([str(FLWR), *words], env=environment, capture_output=True, text=True, check=False)
    try:
        answer = json.loads(done.stdout)
    except json.JSONDecodeError:
        raise RunFailed(f"flwr {words[0]} failed: {(done.stderr or done.stdout).strip()[-500:]}") from None
    return answer if isinstance(answer, dict) else {}


def _tail(path: Path, process: subprocess.Popen[bytes]) -> Iterator[str]:
    """The lines of a log as they come, until its process ends."""
    with path.open(encoding="utf-8", errors="replace") as log:
        while True:
            ended = process.poll() is not None
            yield from log
            if ended:
                return
            time.sleep(0.2)
