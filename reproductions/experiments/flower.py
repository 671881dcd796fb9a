"""Every recipe on every fleet, and what Flower costs: tables of docs/results/flower.md.

python -m reproductions.experiments.flower conform  # local, in process, simulation, deployment; can be resumed
python -m reproductions.experiments.flower cost     # our ServerApp and Merit against Flower's FedAvg on one deployment
python -m reproductions.experiments.flower tell     # prints the tables of what was run
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from time import perf_counter

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg
from safetensors.numpy import load_file

from fedmerit import DS, LD, Run, prioritized, run_config
from fedmerit.config.schema import Config, dump_config, make_config
from fedmerit.flower import InProcessGrid, Merit
from fedmerit.flower.app import client
from fedmerit.flower.app import main as serve
from fedmerit.flower.loopback import loopback
from fedmerit.flower.start import run_settings, write_app
from fedmerit.flower.supernode import BIN

ROOT = Path(__file__).parents[2]
RUNS = ROOT / "runs" / "flower"
NODES, ROUNDS = 4, 2
TASK = {"data": "digits", "partition": "dirichlet", "alpha": 1.0, "clients": NODES, "validation": 0.2, "server": 100}
M2F = {"name": "m2f", "criteria": ["Participation", "SimulatedComputation", "DataRatio"]}
RECIPES: Mapping[str, Mapping[str, object]] = {
    "fedavg": {"name": "fedavg"},
    "prioritized": {"name": "prioritized", "criteria": ["DS", "LD", "MW"], "normalise": "max"},
    "device_aware": {"name": "device_aware", "criteria": ["LD", "DS"], "normalise": "max"},
    "momentum": {"name": "fedavg", "server": {"optimizer": {"name": "momentum", "momentum": 0.5}}},
    "adaptive": {"name": "adaptive", "criteria": ["LD", "DS"]},
    "m2f, keep": M2F,
    "m2f, reset": M2F | {"models": {"training": "reset"}},
    "fedval": {"name": "fedval", "criteria": ["validated:accuracy", "validated:balanced_accuracy"]},
    "qffl": {"name": "qffl"},
    "agnostic": {"name": "agnostic"},
}
FLEETS = ("local", "in process", "simulation", "deployment")
COST_ROUNDS = 5
SIZES = (10_000, 1_000_000)
"""Parameters of the models whose aggregation is timed without any network."""


def main() -> None:
    """Run, or tell."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("conform", "cost", "tell"))
    {"conform": conform, "cost": cost, "tell": tell}[parser.parse_args().what]()


def config_of(recipe: str) -> Config:
    """Four unlike clients of scikit-learn's digits, two rounds."""
    run = {"rounds": ROUNDS, "fraction": 1.0, "workers": 1, "schedule": {"rates": [[1.0, 1]], "epochs": [1, 3]}}
    return make_config(
        {"task": TASK, "train": {"lr": 0.5, "batch": "full"}, "recipe": dict(RECIPES[recipe]), "run": run}
    )


def folder_of(recipe: str, fleet: str) -> Path:
    """Where a run is kept."""
    return RUNS / f"{recipe}-{fleet}".replace(",", "").replace(" ", "-")


def conform() -> None:
    """Every recipe on every fleet, what is there already left out."""
    RUNS.mkdir(parents=True, exist_ok=True)
    for recipe in RECIPES:
        out = {fleet: folder_of(recipe, fleet) for fleet in FLEETS}
        if not done(out["local"]):
            run_config(config_of(recipe), out["local"])
        if not done(out["in process"]):
            in_process(recipe, out["in process"])
        if not done(out["simulation"]):
            simulate(recipe, out["simulation"])
        print(f"{recipe}: local, in process and simulated", flush=True)
    missing = [recipe for recipe in RECIPES if not done(folder_of(recipe, "deployment"))]
    if missing:
        deploy(missing)


def done(folder: Path) -> bool:
    """Whether a run came to its end there."""
    return (folder / "model.safetensors").exists()


def in_process(recipe: str, out: Path) -> None:
    """On Flower's messages without processes."""
    settings = run_settings(config_of(recipe), out)
    context = Context(run_id=1, node_id=1, node_config={}, state=RecordDict(), run_config=settings)
    serve(InProcessGrid(client, NODES, settings), context)


def simulate(recipe: str, out: Path) -> None:
    """In Flower's simulation, a process of its own for each."""
    path = RUNS / "config.toml"
    path.write_text(dump_config(config_of(recipe)))
    command = [BIN / "fedmerit", "flower", path, "--simulation", "--out", out]
    environment = os.environ | {"FLWR_HOME": str(RUNS / "home")}
    subprocess.run([str(word) for word in command], env=environment, capture_output=True, check=True)


def deploy(recipes: Sequence[str]) -> None:
    """All on one deployment of real SuperNodes."""
    shutil.rmtree(RUNS / "link", ignore_errors=True)
    with loopback(RUNS / "link", NODES) as made:
        for recipe in recipes:
            app = RUNS / "link" / f"app-{folder_of(recipe, 'deployment').name}"
            write_app(app, config_of(recipe), folder_of(recipe, "deployment"))
            made.run(app, recipe)
            made.wait_for(recipe, "kept in", 900)
            print(f"{recipe}: deployed", flush=True)


def cost() -> None:
    """Seconds of a run on one deployment, the quickstart with FedAvg and with Merit; and of the aggregation alone."""
    took: dict[str, dict[str, float]] = {"aggregation": {str(size): aggregation(size) for size in SIZES}}
    (RUNS / "cost.json").write_text(json.dumps(took))
    print(took, flush=True)
    shutil.rmtree(RUNS / "cost", ignore_errors=True)
    with loopback(RUNS / "cost", NODES) as made:
        for turn in range(2):  # in turns: the machine's noise falls on both
            for name in ("FedAvg", "Merit"):
                app = quickstart(RUNS / "cost" / f"{name}-{turn}", patched=name == "Merit")
                run = f"run {name} {turn}"
                made.run(app, run)
                made.processes[run].wait(3000)
                took.setdefault(name, {})[str(turn)] = seconds(made.log(run))
                print(name, took[name], flush=True)
                (RUNS / "cost.json").write_text(json.dumps(took))


def quickstart(app: Path, *, patched: bool) -> Path:
    """The example in a folder of its own, with FedAvg or with Merit."""
    shutil.copytree(ROOT / "examples" / "flower-quickstart", app)
    if patched:
        subprocess.run(["git", "apply", "-p0", "merit.patch"], cwd=app, env={"GIT_DIR": "/nonexistent"}, check=True)
    text = (app / "pyproject.toml").read_text()
    (app / "pyproject.toml").write_text(text.replace("rounds = 3", f"rounds = {COST_ROUNDS}"))
    return app


def seconds(log: str) -> float:
    """What Flower's own log says a strategy took; NaN where it did not come to its end."""
    found = re.findall(r"Strategy execution finished in ([0-9.]+)s", log)
    return float(found[-1]) if found else float("nan")


def aggregation(size: int, nodes: int = 10) -> float:
    """How much longer Merit's aggregation takes than FedAvg's: milliseconds per client and round, median of 9."""
    app, model = ClientApp(), ArrayRecord({"w": Array(np.zeros(size, dtype=np.float32))})

    @app.train()
    def train(message: Message, context: Context) -> Message:
        metrics = MetricRecord({"num-examples": 10, "labels": 3.0})
        return Message(RecordDict({"arrays": model, "metrics": metrics}), reply_to=message)

    recipe = prioritized(LD, DS, normalise="max")
    differences = []
    for _ in range(9):
        times = []
        for strategy in (FedAvg(fraction_evaluate=0.0), Merit(recipe, fraction_evaluate=0.0)):
            grid = InProcessGrid(app, nodes)
            replies = list(grid.send_and_receive(strategy.configure_train(1, model, ConfigRecord(), grid)))
            begun = perf_counter()
            strategy.aggregate_train(1, replies)
            times.append(perf_counter() - begun)
        differences.append(times[1] - times[0])
    return 1000 * float(np.median(differences)) / nodes


def tell() -> None:
    """The tables."""
    print("\n".join([*_conformance(), "", *_cost()]))


def _conformance() -> list[str]:
    lines = [
        f"Largest difference from the local fleet, {NODES} clients, {ROUNDS} rounds:",
        "",
        "| recipe | " + " | ".join(f"{fleet}: weights | models" for fleet in FLEETS[1:]) + " |",
        "| --- " * 7 + "|",
    ]
    for recipe in RECIPES:
        cells = []
        for fleet in FLEETS[1:]:
            ours, theirs = folder_of(recipe, "local"), folder_of(recipe, fleet)
            found = differences(ours, theirs) if done(theirs) else ("not run", "not run")
            cells += [one if isinstance(one, str) else f"{one:.1e}" if one else "0" for one in found]
        lines.append(f"| {recipe} | {' | '.join(cells)} |")
    return lines


def differences(ours: Path, theirs: Path) -> tuple[float, float]:
    """The largest difference of any weight in any round, and of any value of the models, own ones included."""
    runs, weights = (Run.load(ours), Run.load(theirs)), 0.0
    for row in runs[0].ledger.rounds():
        mine, other = ({one.id: one.weight for one in run.explain(row["round"])} for run in runs)
        if mine.keys() != other.keys():
            raise SystemExit(f"other clients took part: {sorted(mine)} and {sorted(other)}")
        weights = max(weights, *(abs(mine[client] - other[client]) for client in mine))
    names = sorted(path.relative_to(ours) for path in [ours / "model.safetensors", *(ours / "personal").glob("*")])
    models = [[load_file(run / name)["model"] for run in (ours, theirs)] for name in names]
    return weights, max(float(np.abs(one - two).max()) for one, two in models)


def _cost() -> list[str]:
    path = RUNS / "cost.json"
    if not path.exists():
        return ["(cost not run)"]
    took = json.loads(path.read_text())
    lines = ["| | seconds of 5 rounds, first turn | second turn |", "| --- " * 3 + "|"]
    for name in ("FedAvg", "Merit"):
        cells = " | ".join(f"{one:.1f}" for one in took.get(name, {}).values()) or "not run | not run"
        lines += [f"| the quickstart with {name} | {cells} |"]
    lines += ["", "| parameters | Merit's aggregation more than FedAvg's, ms per client and round |", "| --- | --- |"]
    return lines + [f"| {int(size):,} | {value:.2f} |" for size, value in took["aggregation"].items()]


if __name__ == "__main__":
    main()
