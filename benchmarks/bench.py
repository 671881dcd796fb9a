"""make bench: our engine against bare PyTorch and four peers on the same work; writes runs/bench.md.

.venv/bin/python benchmarks/bench.py --works W1,W3 --only ours,flower --repeats 3
.venv/bin/python benchmarks/bench.py --quick          # tiny works, to see whether everything runs
.venv/bin/python benchmarks/bench.py --isa avx2       # an AVX-512 machine plays one that has AVX2 alone
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path

import machine
import report
from contenders import CONTENDERS, chosen
from results import Result, Run
from runner import WORK, Outcome, run, write_job
from works import WORKS, Work, make_data

OUT = Path(__file__).parents[1] / "runs" / "bench.md"
Entry = tuple[str, Work]  # who takes part: a contender (or a size of W6), and its work


def main() -> None:
    """Run the works one after the other; what is measured is written after each."""
    options = arguments()
    WORK.mkdir(exist_ok=True)
    names = chosen(options.only)
    folder = WORK / ("quick" if options.quick else "results")
    results: list[Result] = []
    everything = ((isa, *named) for isa in options.isa for named in groups(options.works, options.quick).items())
    for isa, group, works in everything:
        os.environ.update(machine.AVX2 if isa == "avx2" else {})
        entries = list(participants(works, names))
        if not entries:
            continue
        result = begin(group, works, options.quick)
        for repeat in range(options.repeats):
            result.busy.append(machine.others_busy())
            if result.disturbed:
                print(f"others use {result.busy[-1]:.0%} of the cores: these figures will not be judged", flush=True)
            play(result, entries, repeat)
        result.save(folder)
        results.append(result)
        report.write(options.out, machine.facts(), merged(results, folder) if options.merge else results)
    report.show(results)
    print(f"written to {options.out}")


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--works", default=",".join(groups("", quick=False)), help="which works, for example W1,W3")
    parser.add_argument("--only", default="", help="which contenders of W1 to W3, for example ours,bare,flower")
    parser.add_argument("--repeats", type=int, default=3, help="how often the series is run (default 3)")
    both = ("native", "avx2")
    parser.add_argument("--isa", choices=both, help="instruction set (default: native, then avx2 if that differs)")
    parser.add_argument("--quick", action="store_true", help="tiny works, written to benchmarks/.work/quick.md")
    parser.add_argument("--merge", action="store_true", help="keep the sections of earlier runs for works not run now")
    parser.add_argument("--out", type=Path, help="the report (default runs/bench.md)")
    options = parser.parse_args()
    options.isa = [options.isa] if options.isa else both[: 1 + machine.has_avx512()]
    options.out = options.out or (WORK / "quick.md" if options.quick else OUT)
    if options.repeats < 1:
        parser.error("--repeats is 1 or more")
    return options


def groups(names: str, quick: bool) -> dict[str, list[Work]]:
    """The works by name, all if none is named; the sizes of W6 belong together."""
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    known = dict.fromkeys(work.name.partition("-")[0] for work in WORKS)
    if unknown := set(wanted) - set(known):
        raise SystemExit(f"--works: unknown {', '.join(sorted(unknown))}; valid: {', '.join(known)}")
    found = {
        name: [work for work in WORKS if work.name.partition("-")[0] == name]
        for name in known
        if name in wanted or not wanted
    }
    return {name: [work.quick() for work in works] if quick else works for name, works in found.items()}


def begin(group: str, works: Sequence[Work], quick: bool) -> Result:
    """A result with the machine's limits as they are now."""
    title = works[0].title if len(works) == 1 else "scaling: registered clients, 100 per round, linear model"
    command = "benchmarks/bench.py " + " ".join(sys.argv[1:])
    result = Result(group, title, works[0].kind, quick, f"{datetime.now():%Y-%m-%d %H:%M}", command.strip())
    result.commit = machine.commit()
    for threads in (1, 2):
        short = quick or result.kind == "parts"  # which are not held against the machine's limits
        outcome = run("ours", "machine", ["quick"] if short else [], threads, 120)
        if not outcome.error:
            result.limits[str(threads)] = values = dict(outcome.values)
            result.isa = values.pop("isa")
    return result


def participants(works: Sequence[Work], names: set[str]) -> Iterator[Entry]:
    """Who takes part in a group of works."""
    for work in works:
        if work.kind == "scaling":
            yield work.name, work
        else:
            yield from ((name, work) for name in work.contenders if name in names or name not in CONTENDERS)


def play(result: Result, entries: Sequence[Entry], repeat: int) -> None:
    """One repeat: everybody in turn, beginning with another one each time."""
    for place in range(len(entries)):
        name, work = entries[(place + repeat) % len(entries)]
        result.flops[name], result.clients[name] = work.flops, reported_clients(work)
        runs = result.runs.setdefault(name, [])
        for threads in settings(result, name, repeat):
            outcome = start(work, name, threads)
            runs.append(Run(repeat, threads, dict(outcome.values), outcome.error, outcome.peak))
            tell(work, name, threads, repeat, outcome)
    result.runs = {name: result.runs[name] for name, _ in entries}


def reported_clients(work: Work) -> int:
    """Clients per round, or how many are registered where that is the question."""
    return work.clients if work.kind == "scaling" else work.per_round


def settings(result: Result, name: str, repeat: int) -> tuple[int | None, ...]:
    """The threads to run with: all that are to be tried at first, then the fastest; none for who has failed."""
    if name not in CONTENDERS:
        return ({"2 threads": 2, "1 thread": 1}.get(name),) if repeat == 0 or result.good(name) else ()
    if repeat == 0:
        return CONTENDERS[name].threads
    return (result.fastest(name),) if result.good(name) else ()


def start(work: Work, name: str, threads: int | None) -> Outcome:
    """Run one contender on one work."""
    if work.kind == "aggregation":
        job = {"rows": work.per_round, "length": work.parameters, "times": work.rounds}
        return run("ours", "ours.aggregation", [write_job(job)], threads, work.limit)
    if work.kind == "parts":
        job = {"times": work.rounds, "quick": work.is_quick, "folder": str(WORK), "variant": work.model}
        return run("ours", work.module, [write_job(job)], None, work.limit)
    data = make_data(work, WORK / "data")
    if work.kind == "evaluation":
        return run("ours", "ours.evaluation", [write_job(work.job(data, "", None))], None, work.limit)
    who = CONTENDERS.get(name, CONTENDERS["ours"])
    job = work.job(data, who.variant or work.model, threads)
    return run(who.environment, who.module, [write_job(job)], threads, work.limit)


def tell(work: Work, name: str, threads: int | None, repeat: int, outcome: Outcome) -> None:
    """A line of progress."""
    seconds = outcome.values.get("seconds")
    told = outcome.error or (f"{min(seconds):.3f} s" if isinstance(seconds, list) else "done")
    setting = f", {threads} threads" if threads else ""
    print(f"{datetime.now():%H:%M:%S} {work.name} repeat {repeat + 1}: {name}{setting}: {told}", flush=True)


def merged(results: Sequence[Result], folder: Path) -> list[Result]:
    """These results, and earlier ones for the works that were not run now, in the works' order."""
    found = {(result.work, result.isa): result for result in map(Result.load, folder.glob("*.json"))}
    found |= {(result.work, result.isa): result for result in results}
    names = list(dict.fromkeys(work.name.partition("-")[0] for work in WORKS))
    return [found[key] for key in sorted(found, key=lambda key: (names.index(key[0]), key[1]))]


if __name__ == "__main__":
    main()
