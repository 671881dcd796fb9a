"""An audit of the environment without a network (`make audit`), and with known advisories where a copy is at hand.

make audit [ADVISORIES=DIR]

1. Every installed file has the hash that its package's RECORD states.
2. Every installed package has the version of locked.txt, if it is in there.
3. With ADVISORIES, a folder with OSV files such as a clone of github.com/pypa/advisory-database: no installed version
   is among those that an advisory lists. The result is as new as that copy, so its newest date is printed.

What cannot be checked offline: advisories that are newer than the copy, and whether an index has withdrawn a version;
`pip-audit --requirement locked.txt --require-hashes --disable-pip` asks for them over a network.
Exits with 1 on a finding.
"""

from __future__ import annotations

import base64
import json
import re
import sys
from collections.abc import Iterator
from hashlib import new
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Any

LOCK = Path(__file__).parents[1] / "locked.txt"
WRITTEN_LATER = (".pyc", "RECORD", "INSTALLER", "REQUESTED", "direct_url.json")
"""Files that pip writes or changes when it installs."""


def canonical(name: str) -> str:
    """As packages are compared by name."""
    return re.sub(r"[-_.]+", "-", name).lower()


def changed_files(package: Distribution) -> Iterator[str]:
    """Files of a package that are not what its RECORD states; scripts get another first line and are left out."""
    for file in package.files or ():
        path = Path(str(file.locate()))
        if file.hash is None or file.name.endswith(WRITTEN_LATER) or path.parent.name == "bin":
            continue
        if not path.is_file():
            yield f"{file} is missing"
            continue
        digest = base64.urlsafe_b64encode(new(file.hash.mode, path.read_bytes()).digest()).rstrip(b"=").decode()
        if digest != file.hash.value:
            yield f"{file} was changed"


def advisories(folder: Path) -> Iterator[dict[str, Any]]:
    """Every advisory of a folder, in JSON or YAML."""
    for path in sorted(folder.rglob("*.json")):
        yield json.loads(path.read_text(encoding="utf-8"))
    for path in sorted(folder.rglob("PYSEC-*.yaml")):
        import yaml

        yield yaml.safe_load(path.read_text(encoding="utf-8"))


def known_weaknesses(folder: Path, versions: dict[str, str]) -> tuple[list[str], int, str]:
    """Advisories on installed versions, the number that was read, and the newest date."""
    found, count, newest = list[str](), 0, ""
    for advisory in advisories(folder):
        count, newest = count + 1, max(newest, str(advisory.get("modified", ""))[:10])
        for affected in advisory.get("affected", []) if not advisory.get("withdrawn") else []:
            name = canonical(affected.get("package", {}).get("name", ""))
            if versions.get(name, "").partition("+")[0] in affected.get("versions", ()):
                found.append(f"{name} {versions[name]}: {advisory['id']} {', '.join(advisory.get('aliases', []))}")
    return found, count, newest


def main() -> int:
    """Print findings; 1 if there are any."""
    packages = {canonical(one.metadata["Name"]): one for one in distributions()}
    versions = {name: one.version for name, one in packages.items()}
    locked = dict(re.findall(r"^([A-Za-z0-9][\w.-]*)==([^\s;\\]+)", LOCK.read_text(encoding="utf-8"), re.MULTILINE))
    findings = [f"{name}: {text}" for name, one in sorted(packages.items()) for text in changed_files(one)]
    print(f"{len(packages)} packages: {len(findings)} files differ from their RECORD")
    others = [
        f"{name} {versions[canonical(name)]} is installed, {version} is locked"
        for name, version in locked.items()
        if versions.get(canonical(name), version) != version
    ]
    print(f"{len(locked)} locked versions: {len(others)} differ")
    findings += others
    if len(sys.argv) > 1:
        weak, count, newest = known_weaknesses(Path(sys.argv[1]), versions)
        print(f"{count} advisories, the newest of {newest}: {len(weak)} concern installed versions")
        findings += weak
    else:
        print("no advisories were given, so known weaknesses were not looked for: make audit ADVISORIES=DIR")
    for finding in findings:
        print(finding)
    return 1 if findings else 0


if __name__ == "__main__":
    raise SystemExit(main())
