"""WeighBench: what is each client worth, which method knows it, and what is its weight worth?

    python -m benchmarks.weighbench --out runs/weighbench            # four tasks, about an hour on two cores
    python -m benchmarks.weighbench --out runs/weighbench --tasks heart,medpar --kinds natural
    python -m benchmarks.weighbench --out runs/weighbench --tables   # print the tables of what is there

A cell that is finished is one file; the same command resumes. Needs the data folder FEDMERIT_DATA.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from benchmarks.weighbench.cells import KINDS, RANKABLE, TASKS
from benchmarks.weighbench.measure import Key, measure, path_of
from benchmarks.weighbench.tables import print_tables, write_csv
from fedmerit.core.system import cores


def main() -> None:
    """Measure the missing cells, then print the tables."""
    options = arguments()
    options.out.mkdir(parents=True, exist_ok=True)
    if not options.tables:
        missing = [key for key in keys(options) if not path_of(options.out, key).exists()]
        with ProcessPoolExecutor(options.jobs or cores(), mp_context=get_context("forkserver")) as pool:
            jobs = (missing, itertools.repeat(options.out), itertools.repeat(options.methods))
            for number, line in enumerate(pool.map(measure, *jobs), start=1):
                print(f"{number} of {len(missing)}: {line}", flush=True)
    print_tables(options.out)
    if options.csv:
        write_csv(options.out, options.csv)


def arguments() -> argparse.Namespace:
    """Options of the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder of the cells")
    parser.add_argument("--tasks", default=",".join(RANKABLE), help=f"of {', '.join(TASKS)}")
    parser.add_argument("--kinds", default=",".join(kind for kind in KINDS if kind != "natural"))
    parser.add_argument("--clients", default="8", help="numbers of clients")
    parser.add_argument("--splits", default="0,1,2,3,4", help="numbers of splits")
    parser.add_argument("--methods", default="", help="only methods whose name contains this")
    parser.add_argument("--jobs", type=int, help="parallel processes; default: one per core")
    parser.add_argument("--csv", type=Path, help="folder to write truth.csv and methods.csv to")
    parser.add_argument("--tables", action="store_true", help="measure nothing")
    return parser.parse_args()


def keys(options: argparse.Namespace) -> Iterator[Key]:
    """Cells of the options, one split of everything first."""
    splits, clients = (tuple(map(int, text.split(","))) for text in (options.splits, options.clients))
    for split, number, kind, name in itertools.product(
        splits, clients, options.kinds.split(","), options.tasks.split(",")
    ):
        yield name, kind, number, split


if __name__ == "__main__":
    main()
