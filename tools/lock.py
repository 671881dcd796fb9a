"""Write locked.txt (`make lock`): the packages of `make setup`, each with the SHA-256 of every file that an index has.

.venv/bin/python tools/lock.py [EXTRA,EXTRA...]

Versions are those of constraints.txt. uv or pip says which of them the extras need; the index, PyPI or the one that
PIP_INDEX_URL names, has the hashes, of wheels for all systems. torch is left out: pip prefers files whose hash an index
tells, so a lock with torch would take PyPI's CUDA build where a folder of PIP_FIND_LINKS has the one for the CPU.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import unquote, urlsplit
from urllib.request import Request, urlopen

ROOT = Path(__file__).parents[1]
LOCK, CONSTRAINTS = ROOT / "locked.txt", ROOT / "constraints.txt"
INDEX = os.environ.get("PIP_INDEX_URL", "https://pypi.org/simple")
FOLDERS = os.environ.get("PIP_FIND_LINKS", "").split()
LINK = re.compile(r'href="([^"#]+)#sha256=([0-9a-f]{64})"')
HEAD = """\
# Made by `make lock` of constraints.txt: do not edit. `make setup` installs these with --require-hashes.
# Not in it: torch, of which machines take different builds (CPU, CUDA), and what its CUDA builds bring along.
"""


def canonical(name: str) -> str:
    """As packages are compared by name."""
    return re.sub(r"[-_.]+", "-", name).lower()


def pins(text: str) -> dict[str, str]:
    """Name and version of each line `name==version`."""
    found = re.findall(r"^([A-Za-z0-9][\w.-]*)==([^\s;\\]+)", text, re.MULTILINE)
    return {canonical(name): version for name, version in found}


def needed(extras: str) -> dict[str, str]:
    """What the extras need, but for the project itself: names and versions; found by uv where it is, else by pip."""
    uv = Path(sys.executable).with_name("uv")
    with tempfile.TemporaryDirectory() as folder:
        told = Path(folder) / "told"
        if uv.exists():
            wanted = Path(folder) / "build.in"
            wanted.write_text("setuptools\nsetuptools-scm\n")
            command = [
                str(uv),
                "pip",
                "compile",
                "--quiet",
                "--no-header",
                "--system-certs",
                "--python",
                sys.executable,
            ]
            command += ["-c", str(CONSTRAINTS), "-o", str(told), "pyproject.toml", str(wanted)]
            command += [word for extra in extras.split(",") for word in ("--extra", extra)]
            command += [word for place in FOLDERS for word in ("--find-links", place)]
            subprocess.run(command, cwd=ROOT, check=True)
            found = re.findall(r"^([A-Za-z0-9][\w.-]*)==(\S+)", told.read_text(), re.MULTILINE)
        else:
            command = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--quiet"]
            command += ["--report", str(told), "-c", str(CONSTRAINTS), "setuptools", "setuptools-scm", f".[{extras}]"]
            subprocess.run(command, cwd=ROOT, check=True, env={**os.environ, "PIP_CONSTRAINT": str(CONSTRAINTS)})
            installs = [one["metadata"] for one in json.loads(told.read_text())["install"]]
            found = [(one["name"], one["version"]) for one in installs if one["name"] != "fedmerit"]
    return {name: version.partition("+")[0] for name, version in found if name != "torch"}


def hashes(name: str, version: str) -> list[str]:
    """Of every file of this version that the index has."""
    with urlopen(Request(f"{INDEX.rstrip('/')}/{canonical(name)}/", headers={"Accept": "text/html"})) as answer:
        page = answer.read().decode()
    start = re.compile(rf"{re.escape(canonical(name))}-{re.escape(version)}(\+\w+)?(-|\.tar|\.zip)")
    found = set()
    for address, digest in LINK.findall(page):
        if is_of(start, unquote(urlsplit(address).path.rpartition("/")[2]), name):
            found.add(digest)
    if not found:
        raise SystemExit(f"the index {INDEX} has no file of {name} {version}")
    return sorted(found)


def is_of(start: re.Pattern[str], file: str, name: str) -> bool:
    """Whether a file is of the package and version; files are named by the package, with _ or -."""
    rest = file[len(name) :]
    return start.match(canonical(file[: len(name)]) + rest) is not None


def main() -> None:
    """Write the file; a version that differs from constraints.txt is an error."""
    wanted = needed(sys.argv[1] if len(sys.argv) > 1 else "torch,data,report,flower,onnx,dev")
    pinned = pins(CONSTRAINTS.read_text())
    loose = sorted(name for name, version in wanted.items() if pinned.get(canonical(name)) != version)
    if loose:
        raise SystemExit(f"constraints.txt does not pin: {', '.join(f'{name}=={wanted[name]}' for name in loose)}")
    names = sorted(wanted, key=canonical)
    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(lambda name: hashes(name, wanted[name]), names))
    lines = [
        f"{name}=={wanted[name]} \\\n" + " \\\n".join(f"    --hash=sha256:{digest}" for digest in digests)
        for name, digests in zip(names, found, strict=True)
    ]
    LOCK.write_text(HEAD + "\n".join(lines) + "\n")
    print(f"{LOCK.name}: {len(names)} packages, {sum(map(len, found))} files")


if __name__ == "__main__":
    main()
