"""A release: wheel and source archive, twice to the same bytes, then tried where nothing else is installed.

    python tools/release.py dist            # build and try the wheel alone (make wheel)
    python tools/release.py dist --tests    # also run all tests against the installed wheel (make release)

Nothing is published.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import os
import subprocess
import sys
import tarfile
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).parents[1]
EVERYTHING = "torch,data,report,flower,privacy,onnx,dev"
ALONE = (
    ("--help",),
    ("list", "criteria"),
    ("weigh", "clients.csv", "--priority", "CB,DS"),
    ("explain", "run"),
    ("report", "run", "--text"),
)
"""What works without torch: commands in a folder with a table of clients and the folder of a run."""


def main() -> None:
    """Build, compare, check, try; a step that fails ends it with that step's words."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where wheel and source archive go")
    parser.add_argument("--tests", action="store_true", help="run all tests against the installed wheel")
    asked = parser.parse_args()
    built = build(asked.folder.resolve())
    with tempfile.TemporaryDirectory() as again:
        same(built, build(Path(again)))
    with tempfile.TemporaryDirectory() as folder:
        call(environment(Path(folder), "twine"), "-m", "twine", "check", "--strict", *built)
    wheel = next(path for path in built if path.suffix == ".whl")
    try_alone(wheel)
    if asked.tests:
        test_installed(wheel)
    for path in built:
        print(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}")


def build(folder: Path) -> list[Path]:
    """Wheel and source archive, dated by the last commit."""
    stamp = subprocess.run(["git", "log", "-1", "--format=%ct"], cwd=ROOT, capture_output=True, text=True, check=True)
    os.environ["SOURCE_DATE_EPOCH"] = stamp.stdout.strip()
    call(sys.executable, "-m", "build", "--quiet", "--outdir", folder, ROOT)
    for archive in folder.glob("*.tar.gz"):
        settle_archive(archive, int(stamp.stdout))
    return sorted(folder.iterdir())


def settle_archive(path: Path, stamp: int) -> None:
    """The same files in the order of their names, of nobody and of one date: setuptools keeps those of the disk."""
    with tarfile.open(path) as archive:
        members = [(one, archive.extractfile(one)) for one in sorted(archive.getmembers(), key=lambda one: one.name)]
        content = [(one, b"" if file is None else file.read()) for one, file in members]
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for one, data in content:
            one.mtime, one.uid, one.gid, one.uname, one.gname, one.pax_headers = stamp, 0, 0, "", "", {}
            one.mode = 0o755 if one.isdir() or one.mode & 0o100 else 0o644
            archive.addfile(one, io.BytesIO(data))
    path.write_bytes(gzip.compress(packed.getvalue(), mtime=stamp))


def same(first: list[Path], second: list[Path]) -> None:
    """Refuse two builds of one commit that differ."""
    for one, other in zip(first, second, strict=True):
        if one.name != other.name or one.read_bytes() != other.read_bytes():
            sys.exit(f"{one.name} is not built to the same bytes twice")


def try_alone(wheel: Path) -> None:
    """The wheel without extras in a fresh environment: it needs no torch to weigh, explain and show."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        (place / "clients.csv").write_bytes((ROOT / "examples" / "clients.csv").read_bytes())
        small = ["--set", "run.rounds=2", "--set", "task.clients=4"]
        ours = Path(sys.executable).parent / "fedmerit"
        call(ours, "run", ROOT / "examples" / "digits.toml", *small, "--out", place / "run")
        python = environment(place / "alone", str(wheel))
        for command in ALONE:
            call(python.parent / "fedmerit", *command, cwd=place)
        missing = subprocess.run([python, "-c", "import torch"], capture_output=True)
        if not missing.returncode:
            sys.exit("the wheel alone pulled torch in")


def test_installed(wheel: Path) -> None:
    """All tests, against the wheel instead of the sources."""
    with tempfile.TemporaryDirectory() as folder:
        python = environment(Path(folder) / "whole", f"{wheel}[{EVERYTHING}]")
        where = "import fedmerit, pathlib; print(pathlib.Path(fedmerit.__file__).parent)"
        found = subprocess.run([python, "-c", where], capture_output=True, text=True, check=True, cwd=ROOT).stdout
        if str(ROOT / "src") in found:
            sys.exit(f"the tests would see the sources, {found.strip()}, and not the wheel")
        call(python, "-m", "pytest", "-n", "2", "--dist", "worksteal", cwd=ROOT)


def environment(folder: Path, what: str) -> Path:
    """A fresh environment with `what` installed by our pins: its Python."""
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    call(python, "-m", "pip", "install", "--quiet", "-c", ROOT / "constraints.txt", what)
    return python


def call(*command: str | Path, cwd: Path | None = None) -> None:
    """Run it with its output hidden unless it fails."""
    clean = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(list(map(str, command)), cwd=cwd, env=clean, text=True, capture_output=True)
    if done.returncode:
        print(done.stdout[-4000:], done.stderr[-4000:], sep="\n", file=sys.stderr)
        sys.exit(f"{' '.join(map(str, command))}: ended with {done.returncode}")


if __name__ == "__main__":
    main()
