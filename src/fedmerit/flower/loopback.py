"""A federation of real processes on this machine: a SuperLink, SuperNodes and runs on loopback, ended by their ids.

`secure` adds TLS, a key for every node, of which the SuperLink admits registered ones alone, and a key of the
operator's, without which nobody starts a run (superlink.py). `lasting` keeps the SuperLink's state in a database and
its ServerApps in processes of a SuperExec, so that one that dies can be started again. `forked` has all of Flower's
commands forked from one process that has imported them: many nodes then need little memory and start at once.
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
from fedmerit.flower import keeper
from fedmerit.flower.keeper import end_family
from fedmerit.flower.keys import Certificates, NodeKey, make_certificates, make_node_key, make_operator_key
from fedmerit.flower.starter import COMMANDS, SOCKET, WHOLE, make_folder
from fedmerit.flower.superlink import FILE, log_in, read_operator_key

BIN = Path(sys.executable).parent
HOST, LINK, NAME, EXEC, STARTER = "127.0.0.1", "superlink", "here", "superexec", "starter"
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
    """Whether nodes fork their ClientApps from a starter; otherwise Flower starts each by itself."""
    forked: bool = False
    """Whether all are forked from one starter, in place of one for each node; nodes then keep no resident worker."""
    shims: Path | None = None
    port: int = field(default_factory=lambda: free_port())
    certificates: Certificates | None = None
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    begins: dict[str, int] = field(default_factory=dict)
    """Where in its log each process begins: one that is started again continues the same file."""
    keys: dict[int, NodeKey] = field(default_factory=dict)
    keeper: subprocess.Popen[bytes] | None = None
    """Ends what we started when we are killed."""

    @property
    def address(self) -> str:
        """Where the SuperLink listens."""
        return f"{HOST}:{self.port}"

    @property
    def operator_key(self) -> Path:
        """Of a secure federation: the file with the key that starts runs."""
        return self.folder / "keys" / "operator.key"

    def environment(self) -> dict[str, str]:
        """Ours, made quiet, with a home of its own for Flower."""
        first = () if self.shims is None else (str(self.shims),)
        path = os.pathsep.join([*first, str(BIN), os.environ["PATH"]])
        return dict(os.environ) | dict(QUIET) | {"FLWR_HOME": str(self.folder / "home"), "PATH": path}

    def superlink(self) -> None:
        """Start the SuperLink, anew on the same port and database after it was killed, and wait until it listens."""
        if self.forked and self.shims is None:
            self._start_starter()
        if self.secure and self.certificates is None:
            self.certificates = make_certificates(self.folder / "keys")
            make_operator_key(self.operator_key)
        certificates, secret = self.certificates, (FILE, str(self.operator_key)) if self.secure else ()
        write_connection(self.folder / "home", self.address, None if certificates is None else certificates.authority)
        if self.secure:
            log_in(self.folder / "home", self.address, read_operator_key(self.operator_key))
        ours = ("python", "-P", "-m", "fedmerit.flower.superlink") if self.secure else ("flower-superlink",)
        tls = ("--insecure",) if certificates is None else _tls(certificates)
        admits = ("--enable-supernode-auth", *secret) if self.secure else ()
        lasts = ("--database", str(self.folder / "link.db")) if self.lasting else ()
        apart = ("--isolation", "process") if self.lasting or self.secure else ()
        self.start(LINK, *ours, *tls, *admits, *lasts, *apart, "--host", HOST, "--port", str(self.port))
        self.wait_for(LINK, "Uvicorn running", 180)
        if apart and EXEC not in self.processes:
            self.start(EXEC, "flower-superexec", *self.trust(), *secret, "--runtime-api-address", self.address)

    def trust(self) -> tuple[str, ...]:
        """How others come to the SuperLink: by the authority's certificate, or in plain text."""
        certificates = self.certificates
        return ("--insecure",) if certificates is None else ("--root-certificates", str(certificates.authority))

    def supernode(self, place: int, of: int, config: str = "") -> None:
        """Start the node of client `place`, or of any `config`; a node with a key is registered first."""
        key: tuple[str, ...] = ()
        if self.secure:
            if place not in self.keys:
                self.keys[place] = make_node_key(self.folder / "keys", f"node{place}")
                self.register(self.keys[place])
            key = ("--auth-supernode-private-key", str(self.keys[place].private))
        config = config or f"partition-id={place} num-partitions={of}"
        config += " resident=false" if self.forked else ""
        self.start_supernode(f"node{place}", config, *self.trust(), *key)

    def start_supernode(self, name: str, config: str, *options: str) -> None:
        """Start any SuperNode, also one that the SuperLink will not admit."""
        where = ("--superlink", self.address, "--host", HOST, "--port", str(free_port()))
        own = self.quick and not self.forked
        program = ("python", "-P", "-m", "fedmerit.flower.supernode") if own else ("flower-supernode",)
        self.start(name, *program, *where, "--node-config", config, *options)

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
                self._command(*command),
                env=self.environment(),
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._tell_keeper(f"+{self.processes[name].pid}")

    def call(self, *command: str) -> str:
        """Run a command to its end; what it said."""
        done = subprocess.run(
            self._command(*command),
            env=self.environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        return done.stdout

    def _command(self, program: str, *words: str) -> list[str]:
        """A program of this environment, or the shim that stands for it."""
        folder = BIN if self.shims is None or program not in COMMANDS else self.shims
        return [str(folder / program), *words]

    def _start_starter(self) -> None:
        """The process that all others are forked from; what is asked of it meanwhile waits."""
        shims = make_folder(os.getpid(), COMMANDS, self.port)
        words = ("-P", "-m", "fedmerit.flower.starter", str(shims), str(os.getpid()))
        self.start(STARTER, "python", *words, *WHOLE)
        self.shims, ends = shims, time.monotonic() + 60
        while not (shims / SOCKET).exists():
            if time.monotonic() > ends:
                raise RunFailed(f"the starter of all processes did not begin to listen: {self.log(STARTER)[-500:]}")
            time.sleep(0.02)

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
        end_family(process.pid)
        process.wait()
        self._tell_keeper(f"-{process.pid}")

    def end(self) -> None:
        """End everything that we started."""
        for name in list(self.processes):
            self.kill(name)
        if self.shims is not None:
            rmtree(self.shims, ignore_errors=True)
            self.shims = None
        if self.keeper is not None and self.keeper.stdin is not None:
            self.keeper.stdin.close()
            self.keeper.wait()
            self.keeper = None

    def _tell_keeper(self, line: str) -> None:
        """Who was begun and who has ended, for the process that ends the rest when we are gone."""
        if self.keeper is None:
            command = [sys.executable, "-I", keeper.__file__]
            self.keeper = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)
        assert self.keeper.stdin is not None
        with suppress(BrokenPipeError):
            self.keeper.stdin.write(f"{line}\n".encode())
            self.keeper.stdin.flush()


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
    """A SuperLink and that many SuperNodes, all connected; all of them ended at the end, also by SIGTERM.

    `configs` are the nodes' own configurations, where they are not partitions of one task.
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


def write_connection(home: Path, address: str, authority: Path | None) -> None:
    """Flower's own configuration with one connection, named `here`."""
    safety = {"insecure": True} if authority is None else {"root-certificates": str(authority.absolute())}
    home.mkdir(parents=True, exist_ok=True)
    settings = {"superlink": {"default": NAME, NAME: {"address": address, **safety}}}
    (home / "config.toml").write_text(tomli_w.dumps(settings), encoding="utf-8")


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
