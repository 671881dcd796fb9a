"""Run Merit's tests on the oldest supported and on the newest released version of Flower (`make test-flower-versions`).

.venv/bin/python tools/flower_versions.py [VERSION...]

Each version gets a fresh environment below build/ with the pins of constraints.txt; then only Flower is replaced, so
that a failure has one cause. Prints a line per version; exits with 1 if a test fails.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).parents[1]
TESTS = ("test_merit.py", "test_merit_folder.py", "test_merit_errors.py", "test_merit_apps.py", "test_private_merit.py")


def bounds() -> tuple[str, str]:
    """The oldest supported version, and the newest one below 2 on the package index."""
    (oldest,) = re.findall(r'^flower = \["flwr>=([\d.]+),', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    command = [sys.executable, "-m", "pip", "index", "versions", "flwr"]
    answer = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    released = re.findall(r"(?<![\d.])1\.\d+\.\d+(?![\w.])", answer.partition("Available versions:")[2])
    return f"{oldest}.0", released[0]


def test(version: str) -> bool:
    """Install a version of Flower into a fresh environment, and run the tests."""
    folder = ROOT / "build" / f"flower-{version}"
    venv.create(folder, clear=True, with_pip=True)
    python, project = folder / "bin" / "python", f"{ROOT}[torch,data,report,flower,simulation,dev]"
    for what in (["-c", ROOT / "constraints.txt", "-e", project], ["--no-deps", f"flwr=={version}"]):
        # make exports PIP_CONSTRAINT, which would pin Flower
        environment = {**os.environ, "PIP_CONSTRAINT": ""}
        subprocess.run([python, "-m", "pip", "install", "--quiet", *what], check=True, env=environment)
    run = ["pytest", "-n", "2", *(ROOT / "tests" / "flower" / name for name in TESTS)]
    return subprocess.run([python, "-m", *run], cwd=ROOT, check=False).returncode == 0


def main() -> None:
    """Test the versions on the command line, or both bounds."""
    results = {version: test(version) for version in sys.argv[1:] or bounds()}
    for version, passed in results.items():
        print(f"flwr {version}: {'passed' if passed else 'FAILED'}")
    sys.exit(not all(results.values()))


if __name__ == "__main__":
    main()
