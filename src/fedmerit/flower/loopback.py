"""A federation of real processes on this machine: a SuperLink, SuperNodes and runs on loopback.

`secure` makes kits as `fedmerit flower provision` does, for TLS, a registered key for every node, and an operator key
that is required to start a run (superlink.py); it follows no site policies.
`lasting` stores the SuperLink's state in a database and runs ServerApps under a SuperExec, so that each process can be
restarted. `forked` forks all of Flower's commands from one process that has imported them, so that many nodes need
little memory and start fast.
"""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from shutil import rmtree

import tomli_w

from fedmerit.errors import ConfigError, RunFailed
from fedmerit.flower import processes
from fedmerit.flower.keys import AUTHORITY
from fedmerit.flower.kit import NODE_KEY, OPERATOR_KEY, Kit, provision, read_kit
from fedmerit.flower.superlink import log_in, read_operator_key
from fedmerit.flower.supernode import BIN, COMMANDS, FEDERATION_MODULES, QUIET, SOCKET, make_launchers, server_words

HOST, LINK, NAME, EXEC, FORK_SERVER = "127.0.0.1", "superlink", "here", "superexec", "fork server"
KITS = "kits"


@dataclass
class Loopback:
    """The processes of one federation; `folder` has Flower's home and a log of each process."""

    folder: Path
    configs: Sequence[str] = ()
    """The configuration of each node."""
    secure: bool = False
    lasting: bool = False
    quick: bool = True
    """Whether nodes fork their ClientApps from a fork server; otherwise Flower starts a process for each message."""
    forked: bool = False
    """Whether all processes are forked from one fork server, instead of one per node."""
    port: int = field(default_factory=lambda: free_port())
    launchers: Path | None = field(default=None, init=False)
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict, init=False)
    log_starts: dict[str, int] = field(default_factory=dict, init=False)
    """The offset in its log at which each process starts, because a restarted process appends to the same file."""
    supervisor: subprocess.Popen[bytes] | None = field(default=None, init=False)
    """The process that ends the others if this process is killed."""

    @property
    def address(self) -> str:
        """HOST:PORT of the SuperLink."""
        return f"{HOST}:{self.port}"

    @property
    def server(self) -> Kit | None:
        """The server's kit of a secure federation."""
        return read_kit(self.folder / KITS / "server") if self.secure else None

    def environment(self) -> dict[str, str]:
        """The environment of the processes: `QUIET`, and a separate home for Flower."""
        folders = [*([] if self.launchers is None else [str(self.launchers)]), str(BIN), os.environ["PATH"]]
        paths = {"FLWR_HOME": str(self.folder / "home"), "PATH": os.pathsep.join(folders)}
        return dict(os.environ) | dict(QUIET) | paths

    def superlink(self) -> None:
        """Start the SuperLink and wait until it listens; after a kill it restarts on the same port and database."""
        if self.forked and self.launchers is None:
            self._start_fork_server()
        if self.secure:
            clients = [(f"node{place}", config) for place, config in enumerate(self.configs)]
            provision(clients, HOST, self.port, self.folder / KITS)
        server, separate = self.server, self.lasting or self.secure
        authority, key = (None, None) if server is None else (server.folder / AUTHORITY, server.folder / OPERATOR_KEY)
        write_connection(self.folder / "home", self.address, authority, key)
        command, connection = ["flower-superlink", "--insecure"], ["--insecure", "--runtime-api-address", self.address]
        if server is not None:
            command = ["python", "-P", "-m", "fedmerit.flower.superlink", "--kit", str(server.folder)]
            connection = server.superexec_words()
        command += ["--host", HOST, "--port", str(self.port)]
        command += ["--database", str(self.folder / "link.db"), "--isolation", "process"] if separate else []
        self.start(LINK, *command)
        self.wait_for(LINK, "Uvicorn running", 180)
        if separate and EXEC not in self.processes:
            command = ["flower-superexec"] if self.forked else ["python", "-P", "-m", "fedmerit.flower.superexec"]
            self.start(EXEC, *command, *connection)

    def trust(self) -> tuple[str, ...]:
        """The options to connect to the SuperLink: with TLS, or in plain text."""
        server = self.server
        return ("--insecure",) if server is None else ("--root-certificates", str(server.folder / AUTHORITY))

    def supernode(self, place: int) -> None:
        """Start the node of client `place`; in a secure federation, with its kit."""
        config, key = self.configs[place], list[str]()
        if self.secure:
            kit = read_kit(self.folder / KITS / f"node{place}")
            config, key = kit.node_config, ["--auth-supernode-private-key", str(kit.folder / NODE_KEY)]
        self.start_supernode(f"node{place}", config, *self.trust(), *key)

    def start_supernode(self, name: str, config: str, *options: str) -> None:
        """Start a SuperNode with any options, for example one that the SuperLink will not admit."""
        fast = self.quick and not self.forked
        program = ("python", "-P", "-m", "fedmerit.flower.supernode") if fast else ("flower-supernode",)
        where = ("--superlink", self.address, "--host", HOST, "--port", str(free_port()))
        self.start(name, *program, *where, "--node-config", config, *options)

    def run(self, app: Path, name: str = "run") -> None:
        """Start a run of an app, and stream the ServerApp's log to a file."""
        self.start(name, "flwr", "run", str(app), NAME, "--stream")

    def start(self, name: str, *command: str) -> None:
        """Start a process in its own group; append its output to its log."""
        words, environment = self._command(*command), self.environment()
        with (self.folder / f"{name}.log").open("ab") as log:
            self.log_starts[name] = log.tell()
            process = subprocess.Popen(
                words, env=environment, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )
        self.processes[name] = process
        self._tell_supervisor(f"+{process.pid}")

    def call(self, *command: str) -> str:
        """Run a command, and return its output."""
        words, environment = self._command(*command), self.environment()
        pipe, merged = subprocess.PIPE, subprocess.STDOUT
        return subprocess.run(words, env=environment, stdout=pipe, stderr=merged, text=True, check=False).stdout

    def _command(self, program: str, *words: str) -> list[str]:
        """The command line of a program of this Python environment, or of its launcher."""
        folder = BIN if self.launchers is None or program not in COMMANDS else self.launchers
        return [str(folder / program), *words]

    def _start_fork_server(self) -> None:
        """Start the process that all other processes are forked from, and wait until it listens."""
        launchers = make_launchers(COMMANDS)
        self.start(FORK_SERVER, "python", *server_words(launchers, os.getpid(), FEDERATION_MODULES))
        self.launchers, ends = launchers, time.monotonic() + 60
        while not (launchers / SOCKET).exists():
            if time.monotonic() > ends:
                raise RunFailed(f"the fork server does not listen after 60 s; its log: {self.log(FORK_SERVER)[-500:]}")
            time.sleep(0.02)

    def wait_for(self, name: str, text: str, seconds: float = 60.0) -> None:
        """Wait until the process logs this text; fail if it ends before, or after `seconds`."""
        ends = time.monotonic() + seconds
        while text not in self.log(name):
            ended = self.processes[name].poll() is not None
            if (ended and text not in self.log(name)) or time.monotonic() > ends:
                raise RunFailed(f"{name} did not log {text!r}; its log:\n{self.log(name)[-2000:]}")
            time.sleep(0.1)

    def log(self, name: str) -> str:
        """The output of a process since its last start."""
        return (self.folder / f"{name}.log").read_bytes()[self.log_starts[name] :].decode(errors="replace")

    def kill(self, name: str) -> None:
        """Send SIGKILL to a process and its descendants, as if its machine failed."""
        process = self.processes.pop(name)
        processes.end_family(process.pid)
        process.wait()
        self._tell_supervisor(f"-{process.pid}")

    def end(self) -> None:
        """End all processes of the federation."""
        for name in list(self.processes):
            self.kill(name)
        if self.launchers is not None:
            rmtree(self.launchers, ignore_errors=True)
            self.launchers = None
        if self.supervisor is not None:
            self.supervisor.communicate()
            self.supervisor = None

    def _tell_supervisor(self, line: str) -> None:
        """Report a started (`+PID`) or ended (`-PID`) process to the supervisor."""
        if self.supervisor is None:
            command = [sys.executable, "-I", processes.__file__, "supervise"]
            self.supervisor = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)
        assert self.supervisor.stdin is not None
        with suppress(BrokenPipeError):
            self.supervisor.stdin.write(f"{line}\n".encode())
            self.supervisor.stdin.flush()


@contextmanager
def loopback(
    folder: Path,
    nodes: int,
    *,
    secure: bool = False,
    quick: bool = True,
    forked: bool = False,
    configs: Sequence[str] = (),
    started: bool = True,
) -> Iterator[Loopback]:
    """Start a SuperLink and connected SuperNodes; end them on exit, also after SIGTERM.

    `configs` are the nodes' configurations, if they are not partitions of one task. Nodes that are not `started` here
    are started by `Loopback.supernode`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    federation = Loopback(folder, configs or partitions(nodes), secure, quick=quick, forked=forked)
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    places = range(nodes if started else 0)
    try:
        federation.superlink()
        for place in places:
            federation.supernode(place)
        for place in places:
            federation.wait_for(f"node{place}", "SuperNode ID", 120)
        yield federation
    finally:
        federation.end()
        signal.signal(signal.SIGTERM, before)


def write_connection(home: Path, address: str, authority: Path | None, key: Path | None = None) -> None:
    """Write Flower's configuration with one connection, named `here`; with the operator's key, also log in."""
    safety = {"insecure": True} if authority is None else {"root-certificates": str(authority.absolute())}
    home.mkdir(parents=True, exist_ok=True)
    settings = {"superlink": {"default": NAME, NAME: {"address": address, **safety}}}
    (home / "config.toml").write_text(tomli_w.dumps(settings), encoding="utf-8")
    if key is not None:
        log_in(home, address, read_operator_key(key))


def free_port() -> int:
    """Find a free port on loopback."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def partitions(nodes: int) -> list[str]:
    """Make the `--node-config` of SuperNodes whose clients are the partitions of a simulated task."""
    return [f"partition-id={place} num-partitions={nodes}" for place in range(nodes)]


def node_config(data: str, name: str) -> str:
    """Make the `--node-config` of a SuperNode with its own rows: their location, and the client's name."""
    wrong = next((text for text in (data, name) if "'" in text or "\n" in text), None)
    if wrong is not None:
        raise ConfigError(f"data and name of a node must not contain ' or a line break (got {wrong!r}); rename it")
    return f"data='{data}' name='{name}'"
