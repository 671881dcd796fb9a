"""Environments: each peer in a virtual environment of its own, made once, with pinned versions."""

from __future__ import annotations

import hashlib
import platform
import subprocess
import sys
import venv
from functools import cache
from pathlib import Path

HERE = Path(__file__).parent
PLACE = HERE / ".envs"
TORCH = "2.13.0"
CHECK = """
import importlib.metadata as m
names = sorted(d.metadata["Name"].lower() for d in m.distributions())
print(m.version("torch"), *[name for name in names if name.startswith(("nvidia-cu", "nvidia-nccl", "triton"))])
"""


class NotInstalled(Exception):
    """An environment could not be made, and why."""


@cache
def python(name: str) -> Path:
    """The interpreter of an environment; `ours` is the one that runs the bench."""
    if name == "ours":
        return Path(sys.executable)
    folder = PLACE / name
    stamp, wanted = folder / ".stamp", _fingerprint(name)
    if not stamp.is_file() or stamp.read_text(encoding="utf-8") != wanted:
        print(f"making the environment of {name} ...", flush=True)
        _make(name, folder)
        stamp.write_text(wanted, encoding="utf-8")
    return folder / "bin" / "python"


def _fingerprint(name: str) -> str:
    pins = (HERE / "peers" / f"{name}.txt").read_bytes()
    return f"{platform.python_version()} {hashlib.sha256(pins).hexdigest()}"


def _make(name: str, folder: Path) -> None:
    """A new environment with exactly the pinned torch; a plain `torch` would pull gigabytes of CUDA."""
    venv.create(folder, clear=True, with_pip=True)
    constraint = folder / "torch.txt"
    constraint.write_text(f"torch=={TORCH}\n", encoding="utf-8")
    pins, log = HERE / "peers" / f"{name}.txt", folder / "pip.log"
    command = [folder / "bin" / "python", "-m", "pip", "install", "--no-input", "-c", constraint, "-r", pins]
    with log.open("w", encoding="utf-8") as out:
        done = subprocess.run(command, stdout=out, stderr=subprocess.STDOUT, timeout=1800, check=False)
    if done.returncode:
        errors = [line for line in log.read_text(encoding="utf-8").splitlines() if line.startswith("ERROR")]
        raise NotInstalled(f"pip failed: {errors[-1] if errors else log}")
    found = subprocess.run([folder / "bin" / "python", "-c", CHECK], capture_output=True, text=True, check=False)
    release, *cuda = found.stdout.split() or ["none"]
    if release.partition("+")[0] != TORCH or cuda:
        raise NotInstalled(
            f"torch {TORCH} without CUDA was asked for; got {found.stdout.strip() or found.stderr[-200:]}"
        )
