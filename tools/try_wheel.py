"""Try a wheel: install it, without extras, into a fresh environment and ask the command for help.

python tools/try_wheel.py dist
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).parents[1]


def main() -> None:
    """The one wheel of the folder; a step that fails ends it with that step's status."""
    (wheel,) = Path(sys.argv[1]).resolve().glob("*.whl")
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        programs = Path(folder) / "bin"
        install = [programs / "python", "-m", "pip", "install", "--quiet", "-c", ROOT / "constraints.txt", wheel]
        for command in (install, [programs / "fedmerit", "--help"], [programs / "fedmerit", "criteria"]):
            done = subprocess.run(command, stdout=subprocess.DEVNULL)
            if done.returncode:
                sys.exit(f"{' '.join(map(str, command))}: ended with {done.returncode}")
    print(f"{wheel.name}: installs, and `fedmerit --help` and `fedmerit criteria` run")


if __name__ == "__main__":
    main()
