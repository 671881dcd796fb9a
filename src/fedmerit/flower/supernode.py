"""A fast SuperNode that keeps its site's policy: Flower's own, with a fork server for its ClientApps.

    python -m fedmerit.flower.supernode --kit DIR                            # of `fedmerit flower provision`
    python -m fedmerit.flower.supernode --superlink HOST:PORT ...            # or the options of flower-supernode
    python -m fedmerit.flower.supernode fork-server FOLDER OWNER MODULE ...

Flower starts `flwr-clientapp` for each message, and that process spends most of its time importing Flower, torch and
fedmerit. A fork server imports them once. Each fork runs Flower's unchanged command in the environment of the launcher
that requested it (processes.py), and ends when that launcher is killed. The fork itself reads the client's rows and the
user's code, so each message uses the current files. The fork server ends with the process OWNER, which is the
SuperNode. If it leads a process group, as for a whole federation, it ends the group. It has one thread, because forking
is only safe then.
"""

import gc
import importlib
import json
import logging
import os
import select
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from flwr.app import Message
from uvicorn.config import LOGGING_CONFIG

from fedmerit.engine.logs import as_json, start_logs
from fedmerit.errors import UserError
from fedmerit.flower import processes
from fedmerit.flower.kit import Kit, expand_kit, take_option
from fedmerit.flower.policy import POLICY, policy_of_node, refusal

COMMANDS: Mapping[str, tuple[str, str]] = {
    "flwr-clientapp": ("flwr.supernode.cli", "flwr_clientapp"),
    "flwr-serverapp": ("flwr.superlink.cli", "flwr_serverapp"),
    "flower-superexec": ("fedmerit.flower.superexec", "watchful_superexec"),
    "flower-supernode": ("flwr.supernode.cli", "flower_supernode"),
    "flower-superlink": ("fedmerit.flower.superlink", "patient_superlink"),
    "flwr": ("flwr.cli.app", "app"),
}
"""The function that each of Flower's scripts calls; SuperLink and SuperExec are fedmerit's, with longer timeouts and
with reports of deaths."""
BIN = Path(sys.executable).parent
SOCKET = "socket"
FORK_SERVER = "fork-server"
CLIENT_MODULES = ("flwr.supernode.cli.flwr_clientapp", "torch", "fedmerit.flower.app")
"""The modules that a ClientApp imports."""
FEDERATION_MODULES = (
    *CLIENT_MODULES,
    *("flwr.cli.app", "flwr.superlink.main", "flwr.superlink.cli", "flwr.supernode.main", "flwr.supercore.cli"),
    *("flwr.supernode.start_client_internal", "flwr.superlink.runtime.run_serverapp", "sklearn.datasets"),
)
"""The modules that the processes of a federation on one machine import."""
REAP_SECONDS = 5.0
"""Seconds after which an idle fork server collects ended forks."""
QUIET: Mapping[str, str] = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
}
"""The processes send no telemetry, do not look for updates and install no packages."""
POLL_INTERVAL = "FLWR_SUPEREXEC_TASK_POLL_INTERVAL"
"""Environment variable: seconds between two requests of a SuperExec for new tasks; Flower's default is 1."""
log = logging.getLogger("flwr")


def become_supernode(words: Sequence[str]) -> None:
    """Start a fork server that ends with this process, then run Flower's SuperNode in this process.

    `--kit DIR` stands for the options of a site's kit, and `--policy FILE` names the site's policy. If no fork server
    is possible, Flower starts each ClientApp itself.
    """
    policy, words = take_option(expand_kit(words, Kit.node_words), "--policy")
    os.environ.update({**QUIET, POLL_INTERVAL: os.environ.get(POLL_INTERVAL, "0.2")})
    if policy is not None:
        os.environ[POLICY] = str(Path(policy).absolute())
    words = [*guard_supernode(), *words]
    try:
        folder = make_launchers() if processes.is_supported() else None
    except OSError as error:
        log.warning("fedmerit: cannot start the fork server, so ClientApps start slowly: %s", error)
        folder = None
    folders = [*([] if folder is None else [str(folder)]), str(BIN), os.environ["PATH"]]
    os.environ["PATH"] = os.pathsep.join(folders)
    if folder is not None:
        subprocess.Popen([sys.executable, *server_words(folder, os.getpid())], stdin=subprocess.DEVNULL)
    if start_logs():
        LOGGING_CONFIG.update(as_json(LOGGING_CONFIG))
    sys.argv = ["flower-supernode", *words]
    importlib.import_module("flwr.supernode.cli").flower_supernode()


def guard_supernode() -> list[str]:
    """Make Flower's SuperNode refuse the apps that the policy does not allow; return further options for it."""
    policy = policy_of_node()
    if policy is None:
        return []
    internal: Any = importlib.import_module("flwr.supernode.start_client_internal")
    pull = internal._pull_and_store_message

    def pull_allowed(**given: Any) -> int | None:
        """Pull a message; if its app is refused, store the refusal as the reply, and none of its code runs."""
        received = list[Message]()

        def receive() -> Any:
            answer = given["receive"]()
            received.extend([] if answer is None else [answer[0]])
            return answer

        def get_fab(fab_hash: str, run: int) -> Any:
            fab = given["get_fab"](fab_hash, run)
            reason = policy.refuses_app(fab.content)
            if reason is not None:
                raise PermissionError(reason)
            return fab

        try:
            return pull(**{**given, "receive": receive, "get_fab": get_fab})  # type: ignore[no-any-return]
        except PermissionError as error:
            metadata = received[0].metadata
            policy.write(metadata.run_id, metadata.message_type, str(error), {})
            internal._insert_message(refusal(received[0], str(error)), given["state"], given["object_store"])
            return metadata.run_id

    internal._pull_and_store_message = pull_allowed
    return ["--trusted-entities", policy.trusted_entities] if policy.trusted_entities else []


def make_launchers(names: Iterable[str] = ("flwr-clientapp",)) -> Path:
    """Make a private folder for the PATH of a SuperNode, with a launcher for each of these commands."""
    processes.remove_dead_folders()
    folder = Path(tempfile.mkdtemp(prefix=processes.PREFIX))
    for name in names:
        words = [sys.executable, "-IS", processes.__file__, "launch", str(folder / SOCKET), str(BIN / name)]
        path = folder / name
        path.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n', encoding="utf-8")
        path.chmod(0o700)
    return folder


def server_words(folder: Path, owner: int, modules: Sequence[str] = CLIENT_MODULES) -> list[str]:
    """The arguments with which Python starts a fork server."""
    return ["-P", "-m", "fedmerit.flower.supernode", FORK_SERVER, str(folder), str(owner), *modules]


def serve(folder: Path, owner: int, modules: Iterable[str]) -> socket.socket | None:
    """Fork a process for each launcher until the process `owner` ends; in each fork, return the connection."""
    watched = os.pidfd_open(owner)
    with processes.locked(folder), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(folder / SOCKET))
        listener.listen(128)
        for module in modules:
            importlib.import_module(module)
        gc.collect()
        gc.freeze()  # forks share imported memory until something writes to it, which the garbage collector would do
        while True:
            ready, _, _ = select.select([listener.fileno(), watched], [], [], REAP_SECONDS)
            with suppress(ChildProcessError):  # collect forks that have ended
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
            if watched in ready:
                break
            if not ready:
                continue
            connection, _ = listener.accept()
            with suppress(OSError):
                processes.check_peer(connection)
                if os.fork() == 0:
                    os.close(watched)
                    return connection
            connection.close()
    shutil.rmtree(folder, ignore_errors=True)
    if os.getpgrp() == os.getpid():  # the fork server of a whole federation: the group has only its forks
        os.killpg(0, signal.SIGKILL)
    return None


def become(connection: socket.socket) -> None:
    """In a fork: run the launcher's command with its streams and environment, and report the exit code."""
    request = _take_place(connection)
    module, function = COMMANDS[request["name"]]
    connection.sendall(processes.BEGUN)
    threading.Thread(target=_end_with, args=(connection,), daemon=True).start()
    sys.argv = [request["name"], *request["words"]]
    code = 1
    try:
        code = _code(getattr(importlib.import_module(module), function)())
    except SystemExit as error:
        code = _code(error.code)
        raise
    finally:
        with suppress(OSError):  # not closed: the launcher waits until this process has ended
            connection.sendall(bytes([code & 0xFF]))


def _take_place(connection: socket.socket) -> dict[str, Any]:
    """Read a launcher's request, and adopt its standard streams, folder and environment."""
    _, streams, _, _ = socket.recv_fds(connection, 1, 3)
    if len(streams) != 3:
        raise ConnectionError(f"a request must have three streams (got {len(streams)})")
    request: dict[str, Any] = json.loads(connection.makefile("rb").readline())
    for target, stream in enumerate(streams):
        os.dup2(stream, target)
        os.close(stream)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    return request


def _code(value: object) -> int:
    """Convert the return value of a script to an exit code, as Python does."""
    return value if isinstance(value, int) else int(value is not None)


def _end_with(connection: socket.socket) -> None:
    """Wait until the launcher's end of the connection closes, which means that it was killed; then end this process."""
    with suppress(OSError):
        connection.recv(1)
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    if sys.argv[1:2] == [FORK_SERVER]:
        launcher = serve(Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4:])
        if launcher is not None:
            become(launcher)
    else:
        try:
            become_supernode(sys.argv[1:])
        except UserError as error:
            sys.exit(f"error: {error}")
