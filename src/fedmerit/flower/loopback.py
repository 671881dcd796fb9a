"""A federation of real processes on this machine: a SuperLink, SuperNodes and runs on loopback.

`secure` adds TLS, a key for every node, of which the SuperLink admits registered ones only, and an operator key,
without which nobody starts a run (superlink.py). `lasting` keeps the SuperLink's state in a database and its ServerApps
in processes of a SuperExec, so that each can be started again. `forked` forks all of Flower's commands from one process
that has imported them: many nodes then need little memory and start at once.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from shutil import rmtree

import tomli_w

from fedmerit.errors import ConfigError, RunFailed
from fedmerit.flower import processes
from fedmerit.flower.keys import Certificates, NodeKey, make_certificates, make_node_key, make_operator_key
from fedmerit.flower.superlink import KEY_OPTION, log_in, read_operator_key
from fedmerit.flower.supernode import BIN, COMMANDS, FEDERATION_MODULES, SOCKET, make_launchers, server_words

HOST, LINK, NAME, EXEC, FORK_SERVER = "127.0.0.1", "superlink", "here", "superexec", "fork server"
QUIET: Mapping[str, str] = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
}
"""Nothing that we start sends telemetry, looks for updates or installs packages."""


@dataclass
class Loopback:
    """The processes of one federation; `folder` holds Flower's home, the keys and a log of each process."""

    folder: Path
    secure: bool = False
    lasting: bool = False
    quick: bool = True
    """Whether nodes fork their ClientApps from a fork server; otherwise Flower starts each one."""
    forked: bool = False
    """Whether all processes are forked from one fork server, instead of one per node."""
    port: int = field(default_factory=lambda: free_port())
    certificates: Certificates | None = None
    launchers: Path | None = field(default=None, init=False)
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict, init=False)
    log_starts: dict[str, int] = field(default_factory=dict, init=False)
    """Where in its log each process begins: a restarted one continues the same file."""
    keys: dict[int, NodeKey] = field(default_factory=dict, init=False)
    supervisor: subprocess.Popen[bytes] | None = field(default=None, init=False)
    """Ends what we started when we are killed."""

    @property
    def address(self) -> str:
        """Where the SuperLink listens."""
        return f"{HOST}:{self.port}"

    @property
    def operator_key(self) -> Path:
        """The file of a secure federation with the key that starts runs."""
        return self.folder / "keys" / "operator.key"

    def environment(self) -> dict[str, str]:
        """Our environment, made quiet, with a separate home for Flower."""
        folders = [*([] if self.launchers is None else [str(self.launchers)]), str(BIN), os.environ["PATH"]]
        own = {"FLWR_HOME": str(self.folder / "home"), "PATH": os.pathsep.join(folders)}
        return dict(os.environ) | dict(QUIET) | own

    def superlink(self) -> None:
        """Start the SuperLink and wait until it listens; a killed one restarts on the same port and database."""
        if self.forked and self.launchers is None:
            self._start_fork_server()
        if self.secure and self.certificates is None:
            self.certificates = make_certificates(self.folder / "keys")
            make_operator_key(self.operator_key)
        authority = None if self.certificates is None else self.certificates.authority
        write_connection(self.folder / "home", self.address, authority, self.operator_key if self.secure else None)
        secret = [KEY_OPTION, str(self.operator_key)] if self.secure else []
        command = ["python", "-P", "-m", "fedmerit.flower.superlink"] if self.secure else ["flower-superlink"]
        command += ["--host", HOST, "--port", str(self.port), *secret]
        command += ["--insecure"] if self.certificates is None else self.certificates.superlink_options()
        command += ["--enable-supernode-auth"] if self.secure else []
        command += ["--database", str(self.folder / "link.db")] if self.lasting else []
        separate = self.lasting or self.secure
        command += ["--isolation", "process"] if separate else []
        self.start(LINK, *command)
        self.wait_for(LINK, "Uvicorn running", 180)
        if separate and EXEC not in self.processes:
            self.start(EXEC, "flower-superexec", *self.trust(), *secret, "--runtime-api-address", self.address)

    def trust(self) -> tuple[str, ...]:
        """The options to reach the SuperLink: with the authority's certificate, or in plain text."""
        certificates = self.certificates
        return ("--insecure",) if certificates is None else ("--root-certificates", str(certificates.authority))

    def supernode(self, place: int, of: int, config: str = "") -> None:
        """Start the node of client `place`, or with another `config`; a node with a key is registered first."""
        key: tuple[str, ...] = ()
        if self.secure:
            if place not in self.keys:
                self.keys[place] = make_node_key(self.folder / "keys", f"node{place}")
                self.register(self.keys[place])
            key = ("--auth-supernode-private-key", str(self.keys[place].private))
        partition = f"partition-id={place} num-partitions={of}"
        self.start_supernode(f"node{place}", config or partition, *self.trust(), *key)

    def start_supernode(self, name: str, config: str, *options: str) -> None:
        """Start any SuperNode, also one that the SuperLink will not admit."""
        own = self.quick and not self.forked
        program = ("python", "-P", "-m", "fedmerit.flower.supernode") if own else ("flower-supernode",)
        where = ("--superlink", self.address, "--host", HOST, "--port", str(free_port()))
        self.start(name, *program, *where, "--node-config", config, *options)

    def register(self, key: NodeKey) -> None:
        """Register a node's key with the SuperLink."""
        output = self.call("flwr", "supernode", "register", str(key.public), NAME)
        if "registered successfully" not in output:
            raise RunFailed(f"the SuperLink did not register a node's key: {output.strip()[-300:]}")

    def run(self, app: Path, name: str = "run") -> None:
        """Start a run of an app; its log follows the ServerApp's."""
        self.start(name, "flwr", "run", str(app), NAME, "--stream")

    def start(self, name: str, *command: str) -> None:
        """Start a process in its own group; its output is appended to its log."""
        words, environment = self._command(*command), self.environment()
        with (self.folder / f"{name}.log").open("ab") as log:
            self.log_starts[name] = log.tell()
            process = subprocess.Popen(
                words, env=environment, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )
        self.processes[name] = process
        self._tell_supervisor(f"+{process.pid}")

    def call(self, *command: str) -> str:
        """Run a command to its end; its output."""
        words, environment = self._command(*command), self.environment()
        pipe, together = subprocess.PIPE, subprocess.STDOUT
        return subprocess.run(words, env=environment, stdout=pipe, stderr=together, text=True, check=False).stdout

    def _command(self, program: str, *words: str) -> list[str]:
        """A program of this environment, or its launcher."""
        folder = BIN if self.launchers is None or program not in COMMANDS else self.launchers
        return [str(folder / program), *words]

    def _start_fork_server(self) -> None:
        """Start the process that all others are forked from; requests wait until it has imported everything."""
        launchers = make_launchers(COMMANDS)
        self.start(FORK_SERVER, "python", *server_words(launchers, os.getpid(), FEDERATION_MODULES))
        self.launchers, ends = launchers, time.monotonic() + 60
        while not (launchers / SOCKET).exists():
            if time.monotonic() > ends:
                raise RunFailed(f"the fork server did not begin to listen: {self.log(FORK_SERVER)[-500:]}")
            time.sleep(0.02)

    def wait_for(self, name: str, text: str, seconds: float = 60.0) -> None:
        """Wait until the process logs this text; it must not end before."""
        ends = time.monotonic() + seconds
        while text not in self.log(name):
            ended = self.processes[name].poll() is not None
            if (ended and text not in self.log(name)) or time.monotonic() > ends:
                raise RunFailed(f"{name} never said {text!r}; it said:\n{self.log(name)[-2000:]}")
            time.sleep(0.1)

    def log(self, name: str) -> str:
        """The output of a process since it was started."""
        return (self.folder / f"{name}.log").read_bytes()[self.log_starts[name] :].decode(errors="replace")

    def kill(self, name: str) -> None:
        """SIGKILL to a process and all that it started, as when its machine dies."""
        process = self.processes.pop(name)
        processes.end_family(process.pid)
        process.wait()
        self._tell_supervisor(f"-{process.pid}")

    def end(self) -> None:
        """End everything that we started."""
        for name in list(self.processes):
            self.kill(name)
        if self.launchers is not None:
            rmtree(self.launchers, ignore_errors=True)
            self.launchers = None
        if self.supervisor is not None:
            self.supervisor.communicate()
            self.supervisor = None

    def _tell_supervisor(self, line: str) -> None:
        """Report a process that was started or has ended."""
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
    lasting: bool = False,
    quick: bool = True,
    forked: bool = False,
    configs: Sequence[str] = (),
) -> Iterator[Loopback]:
    """A SuperLink and this many connected SuperNodes; all are ended at the end, also by SIGTERM.

    `configs` are the nodes' configurations, where they are not partitions of one task.
    """
    folder.mkdir(parents=True, exist_ok=True)
    federation = Loopback(folder, secure, lasting, quick, forked)
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        federation.superlink()
        for place in range(nodes):
            federation.supernode(place, nodes, configs[place] if configs else "")
        for place in range(nodes):
            federation.wait_for(f"node{place}", "SuperNode ID", 120)
        yield federation
    finally:
        federation.end()
        signal.signal(signal.SIGTERM, before)


def write_connection(home: Path, address: str, authority: Path | None, key: Path | None = None) -> None:
    """Write Flower's configuration with one connection, named `here`; with the operator's key, log in, too."""
    safety = {"insecure": True} if authority is None else {"root-certificates": str(authority.absolute())}
    home.mkdir(parents=True, exist_ok=True)
    settings = {"superlink": {"default": NAME, NAME: {"address": address, **safety}}}
    (home / "config.toml").write_text(tomli_w.dumps(settings), encoding="utf-8")
    if key is not None:
        log_in(home, address, read_operator_key(key))


def free_port() -> int:
    """A port on loopback on which nothing listens now."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def node_config(data: str, name: str) -> str:
    """The configuration of a SuperNode with its own rows: where they are, and which client it is."""
    wrong = next((text for text in (data, name) if "'" in text or "\n" in text), None)
    if wrong is not None:
        raise ConfigError(f"a node's data and name are written between single quotes; {wrong!r} holds one")
    return f"data='{data}' name='{name}'"
