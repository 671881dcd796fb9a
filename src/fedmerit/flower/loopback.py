"""A federation of real processes on this machine: a SuperLink, SuperNodes and runs on loopback, ended by their ids.

`secure` adds TLS and a key for every node, and the SuperLink admits registered keys alone. `lasting` keeps the
SuperLink's state in a database and its ServerApps in processes of a SuperExec, so that one that dies can be started
again.
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

import tomli_w

from fedmerit.errors import ConfigError, RunFailed
from fedmerit.flower.keys import Certificates, NodeKey, make_certificates, make_node_key

BIN = Path(sys.executable).parent
HOST, LINK, NAME, EXEC = "127.0.0.1", "superlink", "here", "superexec"
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
    port: int = field(default_factory=lambda: free_port())
    certificates: Certificates | None = None
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    begins: dict[str, int] = field(default_factory=dict)
    """Where in its log each process begins: one that is started again continues the same file."""

    @property
    def address(self) -> str:
        """Where the SuperLink listens."""
        return f"{HOST}:{self.port}"

    def environment(self) -> dict[str, str]:
        """Ours, made quiet, with a home of its own for Flower."""
        path = f"{BIN}{os.pathsep}{os.environ['PATH']}"
        return dict(os.environ) | dict(QUIET) | {"FLWR_HOME": str(self.folder / "home"), "PATH": path}

    def superlink(self) -> None:
        """Start the SuperLink, anew on the same port and database after it was killed, and wait until it listens."""
        if self.secure and self.certificates is None:
            self.certificates = make_certificates(self.folder / "keys")
        certificates = self.certificates
        write_connection(self.folder / "home", self.address, None if certificates is None else certificates.authority)
        tls = ("--insecure",) if certificates is None else _tls(certificates)
        admits = ("--enable-supernode-auth",) if self.secure else ()
        lasts = ("--database", str(self.folder / "link.db"), "--isolation", "process") if self.lasting else ()
        self.start(LINK, "flower-superlink", *tls, *admits, *lasts, "--host", HOST, "--port", str(self.port))
        self.wait_for(LINK, "Uvicorn running")
        if self.lasting and EXEC not in self.processes:
            self.start(EXEC, "flower-superexec", *self.trust(), "--runtime-api-address", self.address)

    def trust(self) -> tuple[str, ...]:
        """How others come to the SuperLink: by the authority's certificate, or in plain text."""
        certificates = self.certificates
        return ("--insecure",) if certificates is None else ("--root-certificates", str(certificates.authority))

    def supernode(self, place: int, of: int, config: str = "") -> None:
        """Start the node of client `place`, or of any `config`; a node with a key is registered first."""
        key: tuple[str, ...] = ()
        if self.secure:
            pair = make_node_key(self.folder / "keys", f"node{place}")
            self.register(pair)
            key = ("--auth-supernode-private-key", str(pair.private))
        config = config or f"partition-id={place} num-partitions={of}"
        self.start_supernode(f"node{place}", config, *self.trust(), *key)

    def start_supernode(self, name: str, config: str, *options: str) -> None:
        """Start any SuperNode, also one that the SuperLink will not admit."""
        where = ("--superlink", self.address, "--host", HOST, "--port", str(free_port()))
        self.start(name, "flower-supernode", *where, "--node-config", config, *options)

    def register(self, key: NodeKey) -> None:
        """Tell the SuperLink that the node with this key may come."""
        output = self.call("flwr", "supernode", "register", str(key.public), NAME)
        if "registered successfully" not in output:
            raise RunFailed(f"the SuperLink did not register a node's key: {output.strip()[-300:]}")

    def run(self, app: Path, name: str = "run") -> None:
        """Start a run of an app; its log follows the ServerApp's."""
        self.start(name, "flwr", "run", str(app), NAME, "--stream")

    def start(self, name: str, *command: str) -> None:
        """Start a process in a group of its own; what it says is appended to its log."""
        with (self.folder / f"{name}.log").open("ab") as log:
            self.begins[name] = log.tell()
            self.processes[name] = subprocess.Popen(
                [str(BIN / command[0]), *command[1:]],
                env=self.environment(),
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def call(self, *command: str) -> str:
        """Run a command to its end; what it said."""
        done = subprocess.run(
            [str(BIN / command[0]), *command[1:]],
            env=self.environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        return done.stdout

    def wait_for(self, name: str, text: str, seconds: float = 60.0) -> None:
        """Until the process says that; it must not end before."""
        ends = time.monotonic() + seconds
        while text not in self.log(name):
            ended = self.processes[name].poll() is not None
            if (ended and text not in self.log(name)) or time.monotonic() > ends:
                raise RunFailed(f"{name} never said {text!r}; it said:\n{self.log(name)[-2000:]}")
            time.sleep(0.1)

    def log(self, name: str) -> str:
        """All that a process said since it was started."""
        return (self.folder / f"{name}.log").read_bytes()[self.begins[name] :].decode(errors="replace")

    def kill(self, name: str) -> None:
        """SIGKILL to a process and all that it started, as when its machine dies."""
        process = self.processes.pop(name)
        children = descendants(process.pid)
        with suppress(ProcessLookupError):  # all of its group have ended by themselves
            os.killpg(process.pid, signal.SIGKILL)
        for pid in children:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait()

    def end(self) -> None:
        """End everything that we started."""
        for name in list(self.processes):
            self.kill(name)


@contextmanager
def loopback(
    folder: Path, nodes: int, *, secure: bool = False, lasting: bool = False, configs: Sequence[str] = ()
) -> Iterator[Loopback]:
    """A SuperLink and that many SuperNodes, all connected; all of them ended at the end, also by SIGTERM.

    `configs` are the nodes' own configurations, where they are not partitions of one task.
    """
    folder.mkdir(parents=True, exist_ok=True)
    federation = Loopback(folder, secure, lasting)
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


def write_connection(home: Path, address: str, authority: Path | None) -> None:
    """Flower's own configuration with one connection, named `here`."""
    safety = {"insecure": True} if authority is None else {"root-certificates": str(authority.absolute())}
    home.mkdir(parents=True, exist_ok=True)
    settings = {"superlink": {"default": NAME, NAME: {"address": address, **safety}}}
    (home / "config.toml").write_text(tomli_w.dumps(settings), encoding="utf-8")


def descendants(pid: int) -> list[int]:
    """Children of a process, their children, and so on; Flower starts some in sessions of their own."""
    listed = subprocess.run(["ps", "-eo", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
    parents = {int(child): int(parent) for child, parent in map(str.split, listed.splitlines())}
    family = [pid]
    for one in family:  # grows while we go
        family += [child for child, parent in parents.items() if parent == one]
    return family[1:]


def free_port() -> int:
    """A port on loopback that nobody listens on now."""
    with socket.socket() as one:
        one.bind((HOST, 0))
        return int(one.getsockname()[1])


def node_config(data: str, name: str) -> str:
    """What a SuperNode with rows of its own is told: where they are, and who it is."""
    wrong = next((text for text in (data, name) if "'" in text or "\n" in text), None)
    if wrong is not None:
        raise ConfigError(f"a node's data and name are written between single quotes; {wrong!r} holds one")
    return f"data='{data}' name='{name}'"


def _tls(certificates: Certificates) -> Sequence[str]:
    files = {"ca-certfile": certificates.authority, "certfile": certificates.server, "keyfile": certificates.server_key}
    return [word for name, path in files.items() for word in (f"--ssl-{name}", str(path))]
