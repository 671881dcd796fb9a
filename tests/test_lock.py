"""locked.txt and constraints.txt say the same, and what `make setup` installs is all in them."""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

from packaging.requirements import Requirement

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


def test_the_lock_has_all_that_setup_installs_and_a_hash_for_each() -> None:
    blocks = re.split(r"^(?=\S+==)", (ROOT / "locked.txt").read_text(), flags=re.MULTILINE)[1:]
    assert all(re.search(r"--hash=sha256:[0-9a-f]{64}", block) for block in blocks)
    missing = (
        closure() - {name for name, _ in pins("locked.txt")} - {"torch"}
    )  # of which machines take different builds
    assert not missing, f"locked.txt lacks {sorted(missing)}; {AGAIN}"
