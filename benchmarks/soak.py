"""Soak test: a long run that is killed at random times and resumed, against the same run without kills.

python benchmarks/soak.py runs/soak [--rounds 2000] [--clients 50] [--minutes 60] [--seed 1]

While the run goes on, memory, open files and the size of the ledger are sampled to samples.csv. At the end the models
and all numbers of both ledgers are compared, and soak.json has the figures. The same command continues a soak that was
itself stopped. Linux: the figures are read from /proc.
"""

from __future__ import annotations

import argparse
import csv
import json
import random
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing, suppress
from hashlib import sha256
from pathlib import Path

import numpy as np

TIMES = {"rounds": "seconds"}
"""Columns that no two runs have in common."""
WITHOUT = ("meta", "chain", "files")
"""Tables that name versions, or hash the times of rounds."""
LIVES = (5.0, 25.0)
"""Shortest and longest time between two kills, in seconds."""


def command(folder: Path, config: Path) -> list[str]:
    """Start the run in a folder, or resume it."""
    main = [sys.executable, "-c", "from fedmerit.cli import main; main()", "run"]
    started = (folder / "ledger.db").exists()
    return (
        [*main, "--resume", str(folder), "--json"] if started else [*main, str(config), "--out", str(folder), "--json"]
    )


def rounds_of(folder: Path) -> int:
    """Rounds in the ledger so far."""
    with suppress(sqlite3.Error), closing(sqlite3.connect(f"file:{folder / 'ledger.db'}?mode=ro", uri=True)) as db:
        return int(db.execute("SELECT coalesce(max(round), 0) FROM rounds").fetchone()[0])
    return 0


def sample(pid: int, folder: Path) -> dict[str, float]:
    """Memory in MB, open files, rounds and bytes of the ledger at this moment."""
    status = Path(f"/proc/{pid}/status").read_text()
    memory = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS"))
    files = len(list(Path(f"/proc/{pid}/fd").iterdir()))
    return {
        "pid": pid,
        "seconds": round(time.time(), 1),
        "memory_mb": round(memory / 1024, 1),
        "files": files,
        "rounds": rounds_of(folder),
        "ledger_bytes": (folder / "ledger.db").stat().st_size,
    }


def live(folder: Path, config: Path, samples: Path, life: float) -> bool:
    """Run for some seconds, then kill; True if the run came to its end before."""
    end = time.monotonic() + life
    with subprocess.Popen(command(folder, config), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as run:
        while run.poll() is None:
            time.sleep(0.5)
            with suppress(OSError, StopIteration):
                row = sample(run.pid, folder)
                new = not samples.exists()
                with samples.open("a", newline="") as file:
                    writer = csv.DictWriter(file, row)
                    if new:
                        writer.writeheader()
                    writer.writerow(row)
            if time.monotonic() > end:
                run.send_signal(signal.SIGKILL)
                run.wait()
        if run.returncode not in (0, -signal.SIGKILL):
            raise SystemExit(f"the run failed: {run.stderr.read() if run.stderr else ''}")
        return run.returncode == 0


def numbers(folder: Path) -> str:
    """SHA-256 of all rows of the ledger but times, versions and hashes."""
    digest = sha256()
    with closing(sqlite3.connect(folder / "ledger.db")) as db:
        tables = [name for (name,) in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name")]
        for table in (name for name in tables if name not in WITHOUT and not name.startswith("sqlite_")):
            columns = [row[1] for row in db.execute(f"PRAGMA table_info({table})") if row[1] != TIMES.get(table)]
            for row in db.execute(f"SELECT {', '.join(columns)} FROM {table} ORDER BY 1, 2"):
                digest.update(repr(row).encode())
    return digest.hexdigest()


def growth(samples: Path) -> dict[str, object]:
    """Memory and open files in the first and the last fifth of the rounds, and bytes of the ledger per round."""
    with samples.open() as file:
        rows = [{key: float(value) for key, value in row.items()} for row in csv.DictReader(file)]
    old = {row["pid"]: row["seconds"] for row in reversed(rows)}
    warm = [row for row in rows if row["rounds"] and row["seconds"] - old[row["pid"]] > 8] or rows  # after the imports
    last = max(row["rounds"] for row in warm)
    figures: dict[str, object] = {}
    for name in ("memory_mb", "files"):
        fifths = [
            [row[name] for row in warm if low * last <= row["rounds"] <= high * last]
            for low, high in ((0, 0.2), (0.8, 1))
        ]
        figures[name] = {
            "first fifth, median": float(np.median(fifths[0])),
            "last fifth, median": float(np.median(fifths[1])),
            "largest": max(row[name] for row in warm),
        }
    whole = max(rows, key=lambda row: row["rounds"])
    return figures | {"ledger_bytes_per_round": round(whole["ledger_bytes"] / whole["rounds"])}


def main() -> None:
    """Soak, compare, report."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--rounds", type=int, default=2000)
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    config, samples, kills = given.out / "config.toml", given.out / "samples.csv", given.out / "kills.txt"
    config.write_text(
        f'[task]\ndata = "digits"\nmodel = "digits-linear"\npartition = "dirichlet"\nclients = {given.clients}\n'
        '[train]\nepochs = 1\n[recipe]\nname = "prioritized"\ncriteria = ["LD", "DS"]\n'
        f"[run]\nrounds = {given.rounds}\nfraction = 1.0\nworkers = 1\nseed = {given.seed}\n"
    )
    draw, end = random.Random(given.seed), time.monotonic() + 60 * given.minutes
    ended = (given.out / "killed" / "model.safetensors").exists()
    while not ended and time.monotonic() < end:
        ended = live(given.out / "killed", config, samples, draw.uniform(*LIVES))
        if not ended:
            with kills.open("a") as file:
                file.write(f"{rounds_of(given.out / 'killed')}\n")
            print(f"killed after round {rounds_of(given.out / 'killed')}", flush=True)
    told = kills.read_text().split() if kills.exists() else []
    result = {"rounds": rounds_of(given.out / "killed"), "clients": given.clients, "kills": len(told), "ended": ended}
    result |= growth(samples)
    if ended:
        (given.out / "whole" / "model.safetensors").exists() or live(
            given.out / "whole", config, given.out / "whole.csv", 1e9
        )
        models = [(given.out / name / "model.safetensors").read_bytes() for name in ("killed", "whole")]
        result["same model"] = models[0] == models[1]
        result["same numbers in the ledger"] = numbers(given.out / "killed") == numbers(given.out / "whole")
    (given.out / "soak.json").write_text(json.dumps(result, indent=1))
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
