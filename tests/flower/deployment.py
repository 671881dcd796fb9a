"""A real deployment on loopback: a SuperLink and SuperNodes as processes, ended by their ids."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

BIN = Path(sys.executable).parent
QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
}


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@dataclass
class Deployment:
    """Processes of one federation; `folder` holds Flower's home and the logs."""

    folder: Path
    link: str = field(init=False)
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def start(self, name: str, *command: str) -> None:
        with (self.folder / f"{name}.log").open("wb") as log:
            self.processes[name] = subprocess.Popen(
                [str(BIN / command[0]), *command[1:]],
                env=self.environment(),
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def environment(self) -> dict[str, str]:
        path = f"{BIN}{os.pathsep}{os.environ['PATH']}"
        return os.environ | QUIET | {"FLWR_HOME": str(self.folder / "home"), "PATH": path}

    def superlink(self) -> None:
        self.link = f"127.0.0.1:{free_port()}"
        (self.folder / "home").mkdir(parents=True, exist_ok=True)
        connection = f'[superlink]\ndefault = "here"\n[superlink.here]\naddress = "{self.link}"\ninsecure = true\n'
        (self.folder / "home" / "config.toml").write_text(connection)
        host, port = self.link.split(":")
        self.start("superlink", "flower-superlink", "--insecure", "--host", host, "--port", port)
        self.wait_for("superlink", "Uvicorn running")

    def supernode(self, place: int, of: int) -> None:
        mine = f"partition-id={place} num-partitions={of}"
        where = ("--superlink", self.link, "--host", "127.0.0.1", "--port", str(free_port()))
        self.start(f"node{place}", "flower-supernode", "--insecure", *where, "--node-config", mine)

    def wait_for(self, name: str, text: str, seconds: float = 60.0) -> None:
        ends = time.monotonic() + seconds
        while text not in self.log(name):
            if time.monotonic() > ends or self.processes[name].poll() is not None:
                raise AssertionError(f"{name} never said {text!r}:\n{self.log(name)[-2000:]}")
            time.sleep(0.2)

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def kill(self, name: str) -> None:
        """SIGKILL to the process and its children, by the group that we gave it."""
        process = self.processes.pop(name)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def run(self, app: Path) -> None:
        self.start("run", "flwr", "run", str(app), "here", "--stream")


@contextmanager
def deployment(folder: Path, nodes: int) -> Iterator[Deployment]:
    """A SuperLink and that many SuperNodes."""
    made = Deployment(folder)
    try:
        made.superlink()
        for place in range(nodes):
            made.supernode(place, nodes)
        for place in range(nodes):
            made.wait_for(f"node{place}", "SuperNode ID")
        yield made
    finally:
        for name in list(made.processes):
            made.kill(name)
