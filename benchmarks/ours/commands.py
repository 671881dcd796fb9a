"""W8 and W9: start-up of commands and apps, and `weigh` of many clients; each command in a process of its own."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from ours.timed import Timed, fedmerit

ROOT = Path(__file__).parents[2]
DIGITS = ROOT / "examples" / "digits.toml"
CLIENTS = ROOT / "examples" / "clients.csv"
HELP, FEW, RUN = "fedmerit --help", "fedmerit weigh examples/clients.csv", "fedmerit run examples/digits.toml"
BARE_RUN = "a bare torch script that does the same"
APP, APP_TORCH = "a ClientApp's imports", "a ClientApp's imports, with torch's learner"
WEIGH = "fedmerit weigh, {:,} clients"
MANY, MOST = 100_000, 1_000_000


def start_up(_: Path, quick: bool) -> dict[str, list[str]]:
    """Commands and imports that every user waits for."""
    rounds = ["--set", "run.rounds=2"] if quick else []
    app = "import fedmerit.flower.clientapp"
    return {
        HELP: fedmerit("--help"),
        FEW: fedmerit("weigh", str(CLIENTS), "--priority", "class balance > dataset size"),
        RUN: fedmerit("run", str(DIGITS), "--out", "run", *rounds),
        BARE_RUN: [sys.executable, "-m", "peers.bare_digits"],
        APP: [sys.executable, "-c", app],
        APP_TORCH: [sys.executable, "-c", f"{app}, fedmerit.learn.sgd"],
    }


def weigh(folder: Path, quick: bool) -> dict[str, list[str]]:
    """Tables of many clients, three criteria."""
    made = {}
    for clients in (MANY, MOST):
        path, random = folder / f"{clients}.csv", np.random.default_rng(1)
        values = random.random((clients // (1000 if quick else 1), 3)).round(6)
        lines = (f"client-{place},{a},{b},{c}" for place, (a, b, c) in enumerate(values.tolist()))
        path.write_text("\n".join(["client,DS,LD,CB", *lines, ""]), encoding="utf-8")
        made[WEIGH.format(clients)] = fedmerit("weigh", str(path), "--priority", "DS,LD,CB")
    return made


def main() -> None:
    """The job names the table."""
    job = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    timed = Timed(job["times"])
    with TemporaryDirectory(dir=job["folder"]) as folder:
        commands = {"start-up": start_up, "weigh": weigh}[job["variant"]](Path(folder), job["quick"])
        timed.commands(commands, Path(folder))
    timed.answer()


if __name__ == "__main__":
    main()
