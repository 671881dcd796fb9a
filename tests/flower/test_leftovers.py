"""What a kill leaves behind: no process, no temporary folder after the next start; keys are never written over."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509

from fedmerit.errors import FolderError
from fedmerit.flower import processes
from fedmerit.flower.keys import make_certificates, make_node_key, renew_certificates, valid_until
from fedmerit.flower.start import LOCK, PREFIX, temp_folder

STARTER = """
import subprocess, sys, time
command = [sys.executable, "-I", sys.argv[1], "supervise"]
supervisor = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)
for _ in range(2):  # each with a child in a session of its own, as Flower's processes have
    code = "import subprocess, sys, time; subprocess.Popen(['sleep', '600'], start_new_session=True); time.sleep(600)"
    child = subprocess.Popen([sys.executable, "-S", "-c", code], start_new_session=True)
    supervisor.stdin.write(f"+{child.pid}\\n".encode())
    print(child.pid, flush=True)
ended = subprocess.Popen(["sleep", "600"], start_new_session=True)
supervisor.stdin.write(f"+{ended.pid}\\n-{ended.pid}\\n".encode())
print(ended.pid, flush=True)
supervisor.stdin.flush()
time.sleep(600)
"""


def alive(pid: int) -> bool:
    """Whether the process is there, and not merely waiting to be noticed."""
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


def until(condition: object, seconds: float = 60.0) -> bool:
    ends = time.monotonic() + seconds
    while not condition() and time.monotonic() < ends:  # type: ignore[operator]
        time.sleep(0.05)
    return bool(condition())  # type: ignore[operator]


def test_everything_ends_with_a_starter_that_is_killed():
    starter = subprocess.Popen(
        [sys.executable, "-S", "-c", STARTER, processes.__file__], stdout=subprocess.PIPE, text=True
    )
    assert starter.stdout is not None
    *begun, taken_back = (int(starter.stdout.readline()) for _ in range(3))
    try:
        assert until(lambda: all(len(processes.descendants(pid)) == 1 for pid in begun))
        family = [pid for one in begun for pid in (one, *processes.descendants(one))]
        starter.send_signal(signal.SIGKILL)
        starter.wait()
        assert until(lambda: not any(map(alive, family)))
        assert alive(taken_back)
    finally:
        starter.stdout.close()
        os.kill(taken_back, signal.SIGKILL)


def test_temporary_folders_of_dead_runs_go_at_the_next_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    dead, other, elsewhere = tmp_path / f"{PREFIX}dead", tmp_path / f"{PREFIX}not-ours", tmp_path / "elsewhere"
    for folder in (dead, other, elsewhere):
        folder.mkdir()
    (dead / LOCK).touch()
    (elsewhere / LOCK).touch()
    (tmp_path / f"{PREFIX}link").symlink_to(elsewhere)
    with temp_folder() as first:
        assert not dead.exists()
        assert stat.S_IMODE(first.stat().st_mode) == 0o700
        with temp_folder() as second:
            assert first.exists()
            assert second != first
    assert not first.exists()
    assert other.exists()
    assert elsewhere.exists()


def test_a_key_is_not_written_over_nor_through_a_link(tmp_path: Path):
    key = make_node_key(tmp_path, "node")
    before = key.private.read_bytes()
    with pytest.raises(FolderError, match="keys are not written over"):
        make_node_key(tmp_path, "node")
    assert key.private.read_bytes() == before
    target = tmp_path / "target"
    (tmp_path / "linked").symlink_to(target)
    with pytest.raises(FolderError, match="keys are not written over"):
        make_node_key(tmp_path, "linked")
    assert not target.exists()
    with pytest.raises(FolderError):
        make_certificates(make_certificates(tmp_path / "keys").authority.parent)


def test_the_servers_certificate_is_renewed_and_nodes_keep_their_authority(tmp_path: Path):
    made = make_certificates(tmp_path)
    authority, old, old_key = (path.read_bytes() for path in (made.authority, made.server, made.server_key))
    ends = renew_certificates(tmp_path)
    assert made.authority.read_bytes() == authority
    assert made.server.read_bytes() != old
    assert made.server_key.read_bytes() != old_key
    assert stat.S_IMODE(made.server_key.stat().st_mode) == stat.S_IMODE(made.authority_key.stat().st_mode) == 0o600
    assert valid_until(made.server) == ends > datetime.now(UTC) + timedelta(days=80)
    assert valid_until(made.authority) > datetime.now(UTC) + timedelta(days=1000)
    issuer = x509.load_pem_x509_certificate(authority)
    x509.load_pem_x509_certificate(made.server.read_bytes()).verify_directly_issued_by(issuer)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ca.crt", "ca.key", "server.key", "server.pem"]
    with pytest.raises(FolderError, match="no authority"):
        renew_certificates(tmp_path / "elsewhere")
