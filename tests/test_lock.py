"""locked.txt, constraints.txt and pyproject.toml agree; `make setup` installs only what is locked; the audit."""

from __future__ import annotations

import base64
import json
import re
import tomllib
from hashlib import sha256
from importlib.metadata import Distribution, PackageNotFoundError, requires
from pathlib import Path

from packaging.requirements import Requirement

from tools import audit

ROOT = Path(__file__).parents[1]
AGAIN = "run `make lock`"


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def pins(name: str) -> list[tuple[str, str]]:
    found = re.findall(r"^([A-Za-z0-9][\w.-]*)==([^\s;]+)", (ROOT / name).read_text(), re.MULTILINE)
    return [(canonical(package), version) for package, version in found]


def closure() -> set[str]:
    """What the extras of `make setup` need here, by what the installed packages say."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (extras,) = re.findall(r"^EXTRAS := (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    lines = [*project["dependencies"], "setuptools", "setuptools-scm"]
    lines += [line for extra in extras.split(",") for line in project["optional-dependencies"][extra]]
    left, seen = [Requirement(line) for line in lines], set[tuple[str, str]]()
    while left:
        wanted = left.pop()
        for extra in ("", *wanted.extras):
            if (wanted.name, extra) in seen:
                continue
            seen.add((wanted.name, extra))
            try:
                further = [Requirement(line) for line in requires(wanted.name) or ()]
            except PackageNotFoundError:  # for another system
                continue
            left += [one for one in further if one.marker is None or one.marker.evaluate({"extra": extra})]
    return {canonical(name) for name, _ in seen}


def test_the_lock_has_the_versions_of_the_constraints() -> None:
    pinned = pins("constraints.txt")
    assert len(dict(pinned)) == len(set(pinned)), "constraints.txt has two versions of a package"
    other = {name: version for name, version in pins("locked.txt") if dict(pinned).get(name) != version}
    assert not other, f"locked.txt has other versions than constraints.txt; {AGAIN}"


def test_the_lock_satisfies_the_project() -> None:
    """Every requirement of every extra allows the version that is locked; torch is only in the constraints."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lines = [*project["dependencies"], *(line for some in project["optional-dependencies"].values() for line in some)]
    locked = dict(pins("constraints.txt")) | dict(pins("locked.txt"))
    wanted = [one for one in map(Requirement, lines) if canonical(one.name) in locked]
    assert {canonical(one.name) for one in wanted} >= {"numpy", "torch", "flwr", "pytest"}
    assert [str(one) for one in wanted if not one.specifier.contains(locked[canonical(one.name)])] == []


def test_the_audit_finds_changed_files_and_known_weaknesses(tmp_path: Path) -> None:
    about, advisory = tmp_path / "toy-1.0.dist-info", {"id": "X-1", "modified": "2026-01-02", "affected": []}
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: toy\nVersion: 1.0\n")
    digest = base64.urlsafe_b64encode(sha256(b"x = 1\n").digest()).rstrip(b"=").decode()
    (about / "RECORD").write_text(f"toy.py,sha256={digest},6\ntoy-1.0.dist-info/RECORD,,\n")
    package = Distribution.at(about)
    assert list(audit.changed_files(package)) == ["toy.py is missing"]
    for text, found in {"x = 1\n": [], "x = 2\n": ["toy.py was changed"]}.items():
        (tmp_path / "toy.py").write_text(text)
        assert list(audit.changed_files(package)) == found
    advisory["affected"] = [{"package": {"name": "Toy"}, "versions": ["0.9", "1.0"]}]
    (tmp_path / "X-1.json").write_text(json.dumps(advisory))
    assert audit.known_weaknesses(tmp_path, {"toy": "1.0"}) == (["toy 1.0: X-1 "], 1, "2026-01-02")
    assert audit.known_weaknesses(tmp_path, {"toy": "1.1"})[0] == []


def test_the_lock_has_all_that_setup_installs_and_a_hash_for_each() -> None:
    blocks = re.split(r"^(?=\S+==)", (ROOT / "locked.txt").read_text(), flags=re.MULTILINE)[1:]
    assert all(re.search(r"--hash=sha256:[0-9a-f]{64}", block) for block in blocks)
    missing = (
        closure() - {name for name, _ in pins("locked.txt")} - {"torch"}
    )  # of which machines take different builds
    assert not missing, f"locked.txt lacks {sorted(missing)}; {AGAIN}"
