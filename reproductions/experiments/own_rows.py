"""Eight SuperNodes, each with a Parquet file of its own: who opens what, and whether the ledger is that of one machine.

python -m reproductions.experiments.own_rows RUNS  # a new folder for data, logs and runs; needs strace

Needs root, to give every node a view of the disk in which the other hospitals' folders are empty. The server's view is
whole: what it does not open, it could. Every process is traced; what is printed goes to docs/results/flower.md.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as arrow
import pyarrow.parquet as parquet

from fedmerit import Federation, Run, Task, federate
from fedmerit.config.privacy import recipe_of
from fedmerit.config.run import make_selection
from fedmerit.config.schema import Config, make_config
from fedmerit.flower.loopback import HOST, NAME, free_port, node_config, write_connection
from fedmerit.flower.processes import descendants
from fedmerit.flower.start import on_superlink
from fedmerit.flower.supernode import BIN, QUIET
from fedmerit.tasks.registry import make_learner

HOSPITALS, ROUNDS = 8, 2
WORDS = ("clinic", "home", "street")
RECIPES: Mapping[str, dict[str, Any]] = {
    "fedval": {"name": "fedval", "criteria": ["validated:accuracy", "validated:parity:sex"]},
    "m2f": {"name": "m2f", "criteria": ["Participation", "SimulatedComputation", "DataRatio"]},
}
TRACE = ("strace", "-f", "--seccomp-bpf", "-e", "trace=open,openat,openat2", "-qq", "-o")


@dataclass(frozen=True)
class Hospital:
    """A node: its name and its home."""

    name: str
    home: Path

    @property
    def rows(self) -> Path:
        """Its file."""
        return self.home / "rows.parquet"


def frame(rows: int, seed: int) -> arrow.Table:
    """Patients of one hospital."""
    random = np.random.default_rng(seed)
    age, came = random.normal(60, 10, rows), random.integers(0, 3, rows)
    died = age + 8 * came + random.normal(0, 8, rows) > 68
    words = {"sex": ("f", "m"), "died": ("no", "yes")}
    drawn = {"sex": random.integers(0, 2, rows), "died": died.astype(int)}
    texts = {name: [words[name][one] for one in codes] for name, codes in drawn.items()}
    numbers = {"age": age, "pressure": random.normal(120, 15, rows)}
    return arrow.table(numbers | texts | {"came": [WORDS[one] for one in came]})


def make_hospitals(folder: Path) -> list[Hospital]:
    """Eight homes, each closed by its mode."""
    hospitals = []
    for place in range(HOSPITALS):
        one = Hospital(f"Hospital {place + 1}", folder / f"hospital{place + 1}")
        one.home.mkdir(mode=0o700)
        parquet.write_table(frame(80 + 20 * place, place), one.rows)
        hospitals.append(one)
    return hospitals


def settings(recipe: str, server: Path) -> Config:
    """Names and layout; no path of a hospital."""
    columns = {"age": "number", "pressure": "number", "sex": ["f", "m"], "came": list(WORDS)}
    nodes: dict[str, Any] = {"names": [f"Hospital {place + 1}" for place in range(HOSPITALS)]}
    nodes |= {"classes": ["no", "yes"], "columns": columns}
    task = {"data": "nodes", "label": "died", "attributes": ["sex"], "validation": 0.2, "nodes": nodes}
    task |= {"server": str(server)} if recipe == "fedval" else {}
    run: dict[str, Any] = {"rounds": ROUNDS, "evaluate_every": ROUNDS}
    run |= {"schedule": {"epochs": [1, 3]}} if recipe == "m2f" else {"fraction": 1.0}
    return make_config({"task": task, "train": {"lr": 0.5, "batch": 16}, "recipe": RECIPES[recipe], "run": run})


def on_one_machine(config: Config, hospitals: list[Hospital], server: Path) -> Run:
    """The same rows as one table, by the loader for tables, on the local fleet."""
    tables = [parquet.read_table(one.rows) for one in hospitals]
    owned = [t.append_column("hospital", [[one.name] * len(t)]) for one, t in zip(hospitals, tables, strict=True)]
    keys: dict[str, Any] = {"label": "died", "client": "hospital", "attributes": ["sex"]}
    order = ["age", "pressure", "sex", "came"]
    data = Federation.from_frame(arrow.concat_tables(owned), **keys, features=order, validation=0.2)
    if config.task.server:
        rows = parquet.read_table(server)
        whole = rows.append_column("hospital", [["server"] * len(rows)])
        data = replace(data, server=Federation.from_frame(whole, **keys, features=order, test=0.0).samples(0))
    task = Task(data, make_learner(config.task, config.train))
    return federate(task, recipe_of(config), rounds=ROUNDS, selection=make_selection(config.run), evaluate_every=ROUNDS)


def start(name: str, folder: Path, home: Path, hidden: Sequence[Path], *command: str) -> subprocess.Popen[bytes]:
    """A traced process in a session of its own; it sees empty folders in place of those that are hidden from it."""
    home.mkdir(parents=True, exist_ok=True)
    environment = dict(os.environ) | dict(QUIET) | {"FLWR_HOME": str(home), "HOME": str(home), "OMP_NUM_THREADS": "1"}
    environment["PATH"] = f"{BIN}{os.pathsep}{os.environ['PATH']}"
    hide = " && ".join(["true", *(f"mount -t tmpfs -o ro none {shlex.quote(str(path))}" for path in hidden)])
    view = ("unshare", "--mount", "sh", "-c", f'{hide} && exec "$@"', "sh") if hidden else ()
    with (folder / f"{name}.log").open("ab") as log:
        return subprocess.Popen(
            [*TRACE, str(folder / f"{name}.trace"), *view, str(BIN / command[0]), *command[1:]],
            env=environment,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def wait_for(path: Path, text: str, seconds: float = 180.0) -> None:
    """Until a log says that."""
    ends = time.monotonic() + seconds
    while text not in path.read_text(errors="replace"):
        if time.monotonic() > ends:
            sys.exit(f"{path} never said {text!r}:\n{path.read_text(errors='replace')[-2000:]}")
        time.sleep(0.2)


def opened(trace: Path, hospitals: list[Hospital]) -> dict[str, tuple[int, int]]:
    """Of each hospital's file: how often a traced process opened it, and how often it tried in vain."""
    text = trace.read_text(errors="replace")
    found = {}
    for one in hospitals:
        results = re.findall(rf'"{re.escape(str(one.rows))}"[^\n]*\) = (-?\d+)', text)
        found[one.name] = (sum(int(result) >= 0 for result in results), sum(int(result) < 0 for result in results))
    return found


def difference(theirs: Run, ours: Run) -> tuple[float, float, float]:
    """The largest differences of weights, of facts, and of the model's values."""
    weights, facts = [0.0], [0.0]
    for number in range(1, ROUNDS + 1):
        for his, our in zip(theirs.explain(number), ours.explain(number), strict=True):
            assert his.facts.keys() == our.facts.keys()
            weights.append(abs(his.weight - our.weight))
            facts += [abs(his.facts[name] - our.facts[name]) for name in our.facts]
    return max(weights), max(facts), float(np.abs(theirs.model - ours.model).max())


def main() -> None:
    """Start, run both recipes, compare, and say who opened what."""
    if len(sys.argv) != 2 or not shutil.which("strace") or os.geteuid() != 0:
        sys.exit(__doc__)
    folder = Path(sys.argv[1]).absolute()
    folder.mkdir(parents=True)
    hospitals, server = make_hospitals(folder), folder / "server.parquet"
    parquet.write_table(frame(120, 99), server)
    address = f"{HOST}:{free_port()}"
    processes = {
        "superlink": start(
            *("superlink", folder, folder / "link", ()),
            *("flower-superlink", "--insecure", "--host", HOST, "--port", address.partition(":")[2]),
        )
    }
    try:
        wait_for(folder / "superlink.log", "Uvicorn running")
        write_connection(folder / "home", address, None)
        os.environ["FLWR_HOME"] = str(folder / "home")
        for place, one in enumerate(hospitals, 1):
            where = ("--superlink", address, "--host", HOST, "--port", str(free_port()))
            told = ("--node-config", node_config(str(one.rows), one.name))
            others = [other.home for other in hospitals if other is not one]
            command = ("flower-supernode", "--insecure", *where, *told)
            processes[one.name] = start(f"node{place}", folder, one.home / "flower", others, *command)
        for place in range(1, HOSPITALS + 1):
            wait_for(folder / f"node{place}.log", "SuperNode ID")
        for recipe in RECIPES:
            begun = time.monotonic()
            on_superlink(settings(recipe, server), folder / recipe, print, superlink=NAME)
            print(f"{recipe}: {time.monotonic() - begun:.0f} s", flush=True)
    finally:
        for process in processes.values():
            for pid in [*descendants(process.pid), process.pid]:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            process.wait()
    for recipe in RECIPES:
        theirs = Run.load(folder / recipe)
        off = difference(theirs, on_one_machine(settings(recipe, server), hospitals, server))
        print(f"{recipe}: weights differ by at most {off[0]:.1e}, facts by {off[1]:.1e}, the model by {off[2]:.1e}")
    print("| process and its children | opened its own file | opened another's | tried to |")
    print("| --- | --- | --- | --- |")
    for trace in ["superlink", *(f"node{place}" for place in range(1, HOSPITALS + 1))]:
        counts = opened(folder / f"{trace}.trace", hospitals)
        own = f"Hospital {trace.removeprefix('node')}"
        strange = [count for name, count in counts.items() if name != own]
        mine = counts.get(own, (0, 0))[0] if own in counts else "has none"
        print(f"| {trace} | {mine} | {sum(done for done, _ in strange)} | {sum(tried for _, tried in strange)} |")


if __name__ == "__main__":
    main()
