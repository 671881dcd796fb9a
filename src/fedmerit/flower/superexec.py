"""A SuperExec that reports the death of a ServerApp.

    python -m fedmerit.flower.superexec --kit DIR                        # or the options of `flower-superexec`

Flower's SuperExec starts ServerApps and never looks at them again. The SuperLink then misses a killed ServerApp only
when its heartbeats end, which takes minutes. This one reports the end of each process with the task's own token; the
SuperLink ignores the report for a task that has finished.
"""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
from flwr.common.constant import SubStatus
from flwr.proto.runtime_pb2 import PushTaskOutputRequest
from flwr.supercore.interceptors import RuntimeTokenHttpInterceptor, RuntimeVersionHttpInterceptor
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.supercore.superexec.executor import subprocess_executor

from fedmerit.engine.logs import start_logs
from fedmerit.errors import UserError
from fedmerit.flower.kit import Kit, expand_kit, take_option
from fedmerit.flower.supernode import BIN, QUIET
from fedmerit.flower.versions import require_tested

SERVERAPP = "flwr-serverapp"
LOOK_SECONDS = 1.0
"""Seconds between two looks at the started processes."""


class Deaths:
    """The started ServerApps, each with its command, until their end is reported."""

    def __init__(self) -> None:
        self.started: dict[subprocess.Popen[bytes], Sequence[str]] = {}

    def start(self, words: Sequence[str], **options: Any) -> subprocess.Popen[bytes]:
        """Start a process in place of `subprocess.Popen`, and remember a ServerApp."""
        process = subprocess.Popen(words, **options)
        self.started |= {process: words} if words[0] == SERVERAPP else {}
        return process

    def report(self) -> None:
        """Report the processes that have ended; try again at the next look if the SuperLink does not answer."""
        for process, words in list(self.started.items()):
            if process.poll() is None:
                continue
            try:
                report_death(words, process.returncode)
            except httpx.TransportError:
                continue
            except httpx.HTTPStatusError as error:  # 4xx: the task has finished, so that its token is no longer valid
                if error.response.is_server_error:
                    continue
            del self.started[process]

    def watch(self) -> None:
        """Report ended processes until this process ends."""
        while True:
            time.sleep(LOOK_SECONDS)
            self.report()


def report_death(words: Sequence[str], code: int) -> None:
    """Tell the SuperLink that the process of a task has ended; `words` are its command."""
    names = ("--token", "--root-certificates", "--runtime-api-address")
    token, authority, address = (take_option(words, name)[0] for name in names)
    version = RuntimeVersionHttpInterceptor("SuperExec")
    certificates = None if authority is None else Path(authority).read_bytes()
    client = RuntimeHttpClient.from_server_address(
        str(address), authority is None, certificates, interceptors=[version, RuntimeTokenHttpInterceptor(str(token))]
    )
    how = f"signal {-code}" if code < 0 else f"exit code {code}"
    try:
        details = f"the process of the ServerApp ended ({how})"
        client.PushTaskOutput(PushTaskOutputRequest(sub_status=SubStatus.FAILED, details=details))
    finally:
        client.close()


def watchful_superexec() -> None:
    """Start Flower's SuperExec with a thread that reports the end of the processes it starts."""
    from flwr.supercore.cli import flower_superexec

    deaths = Deaths()
    vars(subprocess_executor)["subprocess"] = SimpleNamespace(Popen=deaths.start, DEVNULL=subprocess.DEVNULL)
    threading.Thread(target=deaths.watch, daemon=True).start()
    flower_superexec()


def main(arguments: Sequence[str]) -> None:
    """Start the SuperExec of a kit, or with the options of `flower-superexec`."""
    require_tested()
    start_logs()
    os.environ.update({"PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}", **QUIET})
    sys.argv = ["flower-superexec", *expand_kit(arguments, Kit.superexec_words)]
    watchful_superexec()


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except UserError as error:
        sys.exit(f"error: {error}")
