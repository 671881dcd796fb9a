"""W10: a ledger of 500 rounds x 1,000 clients written, and read as a frame and as a report."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter, process_time

from ours.timed import Timed

from fedmerit.report.html import write_report
from fedmerit.store.frames import make_frame, run_frame
from fedmerit.store.run_folder import open_ledger

sys.path.append(str(Path(__file__).parents[2]))
from reproductions.experiments.large_ledger import CLIENTS, ROUNDS, make_run

WRITE, FRAME, LINES, REPORT = "ledger, written", 'frame("weights")', "the same frame, line by line", "report, written"


def by_lines(folder: Path) -> object:
    """The frame as one makes it of a ledger's own values, a client at a time."""
    with open_ledger(folder) as ledger:
        lines = [
            {"round": index, "client": row.id, "score": row.score, "weight": row.weight}
            | {f"fact {name}": value for name, value in row.facts.items()}
            | {f"criterion {name}": value for name, value in row.criteria.items()}
            | {f"normalised {name}": value for name, value in row.normalised.items()}
            for index in range(1, ledger.last_round() + 1)
            for row in ledger.weights(index)
        ]
    return make_frame(lines, ("round", "client"))


def frame(folder: Path) -> object:
    """The frame as a user asks for it."""
    with open_ledger(folder) as ledger:
        return run_frame(ledger, "weights")


def main() -> None:
    """Write once, read in turn."""
    job = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    timed, rounds = Timed(job["times"]), 10 if job["quick"] else ROUNDS
    with TemporaryDirectory(dir=job["folder"]) as scratch:
        folder, page = Path(scratch) / "run", Path(scratch) / "report.html"
        wall, cpu = perf_counter(), process_time()
        make_run(folder, CLIENTS, rounds)
        timed.note(WRITE, (perf_counter() - wall, process_time() - cpu))
        timed.interleaved(
            {
                FRAME: lambda: frame(folder),
                LINES: lambda: by_lines(folder),
                REPORT: lambda: write_report([folder], page, force=True),
            }
        )
    timed.answer()


if __name__ == "__main__":
    main()
