"""The SuperExec reports a ServerApp that died, and keeps the report until the SuperLink answers."""

import subprocess
from pathlib import Path

import pytest

from fedmerit.flower.keys import make_authority
from fedmerit.flower.loopback import free_port
from fedmerit.flower.superexec import SERVERAPP, Deaths
from fedmerit.flower.supernode import BIN


def test_a_death_is_reported_until_the_superlink_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", str(BIN), prepend=":")
    make_authority(tmp_path)
    authority, deaths = tmp_path / "ca.crt", Deaths()
    address = ("--runtime-api-address", f"127.0.0.1:{free_port()}", "--root-certificates", str(authority))
    alive, dead = (
        deaths.start([SERVERAPP, *address, "--token", "a" * 64], stderr=subprocess.DEVNULL) for _ in range(2)
    )
    other = deaths.start([str(BIN / "python"), "-c", ""])
    try:
        assert set(deaths.started) == {alive, dead}  # only ServerApps are watched
        assert other.wait() == 0
        dead.kill()
        dead.wait()
        deaths.report()
        assert set(deaths.started) == {alive, dead}  # nobody listens: the report is tried again
    finally:
        alive.kill()
        alive.wait()
