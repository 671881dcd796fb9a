"""M2F's two experiments on MNIST, run and told: tables, figures, claims (SPEC A3, C).

.venv/bin/python experiments/m2f.py run --seeds 1,2,3 --size 1500      # resumes what was stopped
.venv/bin/python experiments/m2f.py groups --seeds 1,2,3               # are planted groups found?
.venv/bin/python experiments/m2f.py tell                               # writes docs/results/m2f.md and its figures
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.metrics import adjusted_rand_score

from fedmerit import Account, Fairness, Run, fairness_of, load_config, resume, run_config
from fedmerit.config import Config

ROOT = Path(__file__).parents[1]
RUNS, RESULTS = ROOT / "runs" / "m2f", ROOT / "docs" / "results"
KINDS: Mapping[str, Sequence[str]] = {
    "keep": (),
    "reset": ("recipe.reward.training=reset",),
    "fedavg": ("recipe={name='fedavg'}", "task.validation=0.1"),
}
EXPERIMENTS: Mapping[int, Sequence[str]] = {
    1: ("task.smallest=1.0", "run.schedule.epochs=3"),  # same size, 3 epochs; only the rates differ
    2: ("task.smallest=0.5", "run.schedule.epochs=[1,3]"),
}
PLANTED: Mapping[str, Sequence[str]] = {
    "2 groups": (),
    "4 groups": ("task.groups=[[0,1],[2,3],[4,5,6],[7,8,9]]",),
    "2 groups, alpha 0.3": ("task.alpha=0.3",),
    "2 groups, a fifth foreign": ("task.mix=0.2",),
    "2 groups, two fifths foreign": ("task.mix=0.4",),
}
WAYS: Mapping[str, Sequence[str]] = {
    "keep, round": (),
    "keep, all": ("recipe.groups.over=all",),
    "reset, round": ("recipe.reward.training=reset",),
}
FIGURES: Mapping[int, Sequence[int]] = {2: (0, 6, 13), 3: (20, 26, 33)}
TABLES: Mapping[int, Sequence[int]] = {2: (1, 5, 9, 12, 14, 16), 3: (21, 24, 29, 35, 37, 39)}
NAMES = ("lazy", "normal", "diligent")
RATES = {20: "lazy", 50: "normal", 100: "diligent"}
COLOURS = ("#b2182b", "#e08214", "#2166ac", "#666666")


def main() -> None:
    """Run, or tell."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("run", "groups", "tell"))
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--size", type=int, default=1500, help="rows per client; the paper's are about 1500")
    parser.add_argument("--experiments", default="1,2")
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--workers", type=int, default=None)
    options = parser.parse_args()
    seeds = [int(seed) for seed in options.seeds.split(",")]
    if options.what == "run":
        for seed in seeds:
            for experiment in map(int, options.experiments.split(",")):
                for kind in options.kinds.split(","):
                    changes = (*EXPERIMENTS[experiment], *KINDS[kind], f"task.size={options.size}")
                    go(RUNS / f"{experiment}-{kind}-{seed}", changes, seed, options.workers)
    elif options.what == "groups":
        for seed in seeds:
            for name, planted in PLANTED.items():
                for way, settings in WAYS.items():
                    changes = (*planted, *settings, "run.rounds=12", f"task.size={options.size}")
                    go(RUNS / f"groups-{slug(name)}-{slug(way)}-{seed}", changes, seed, options.workers)
    else:
        tell()


def go(folder: Path, changes: Sequence[str], seed: int, workers: int | None) -> None:
    """Run into a folder, or go on with what is there."""
    extra = [f"run.workers={workers}"] if workers else []
    config: Config = load_config(ROOT / "examples" / "m2f.toml", [*changes, f"run.seed={seed}", *extra])
    print(folder.name, flush=True)
    folder.parent.mkdir(parents=True, exist_ok=True)

    def say(record: Any) -> None:
        if record.index % 10 == 0:
            print(f"  round {record.index}: {record.evaluation.accuracy:.4f}", flush=True)

    resume(folder, on_record=say) if folder.exists() else run_config(config, folder, say)


def slug(name: str) -> str:
    """A name as part of a folder's."""
    return name.replace(",", "").replace(" ", "-")


def finished(pattern: str) -> dict[str, Run]:
    """The finished runs whose folders match, by name."""
    return {path.name: Run.load(path) for path in sorted(RUNS.glob(pattern)) if (path / "model.safetensors").exists()}


def tell() -> None:
    """Everything that was run, as one page."""
    runs = finished("[12]-*")
    lines = ["# M2F on MNIST", "", *_setting(runs)]
    lines += ["", "## Are planted groups found?", "", *_groups()]
    for experiment in (1, 2):
        lines += ["", f"## Experiment {experiment}", "", *_classes(runs, experiment), "", *_fairness(runs, experiment)]
    for number, clients in FIGURES.items():
        figure = RESULTS / f"m2f-figure{number}.svg"
        figure.write_text(_svg(runs, clients))
        lines += [
            "",
            f"![Local accuracy of clients {clients} and FedAvg, experiment 1, mean of the seeds]({figure.name})",
        ]
    for number, clients in TABLES.items():
        lines += ["", f"Seed 1 of experiment 2 in the form of the paper's Table {number} (`keep`):", ""]
        lines += _table(runs, clients)
    (RESULTS / "m2f.tables.md").write_text("\n".join(lines) + "\n")
    print(RESULTS / "m2f.tables.md")


def _setting(runs: Mapping[str, Run]) -> list[str]:
    sizes = {run.ledger.meta()["config"].partition("size = ")[2].split("\n")[0] for run in runs.values()}
    return [f"{len(runs)} finished runs; rows per client: {', '.join(sorted(sizes))}."]


def _groups() -> list[str]:
    """Mean and range over the seeds."""
    header = (
        "data",
        "way",
        "seeds",
        "groups found in rounds 1, 3, 6, 9, 12",
        "ARI in round 1",
        "rounds 4 to 12",
        "range",
    )
    lines = ["| " + " | ".join(header) + " |", "| --- " * len(header) + "|"]
    for name in PLANTED:
        for way in WAYS:
            runs = list(finished(f"groups-{slug(name)}-{slug(way)}-[0-9]*").values())
            if not runs:
                continue
            number = 4 if "4 groups" in name else 2
            scores = np.array([[_agreement(run, row["round"], number) for row in run.ledger.rounds()] for run in runs])
            counts = [" ".join(str(run.ledger.rounds()[i - 1]["groups"]) for i in (1, 3, 6, 9, 12)) for run in runs]
            later = scores[:, 3:].mean(axis=1)
            cells = (name, way, str(len(runs)), "; ".join(counts), f"{scores[:, 0].mean():.2f}", f"{later.mean():.3f}")
            lines.append("| " + " | ".join(cells) + f" | {scores[:, 3:].min():.2f} to {scores[:, 3:].max():.2f} |")
    return lines


def _agreement(run: Run, round: int, groups: int) -> float:
    """Adjusted Rand index of the round's groups against the planted ones: consecutive blocks of clients."""
    earned = run.explain(round)
    truth = [one.id * groups // len(run.ledger.names()) for one in earned]
    return float(adjusted_rand_score(truth, [one.group for one in earned]))


def _of(runs: Mapping[str, Run], experiment: int, kind: str) -> list[Run]:
    return [run for name, run in runs.items() if name.startswith(f"{experiment}-{kind}-")]


def _classes(runs: Mapping[str, Run], experiment: int) -> list[str]:
    """Speed and accuracy of lazy, normal and diligent clients, and of FedAvg's model with the same clients."""
    lines = [
        "| | clients | converged | median round of convergence | mean final accuracy | mean wobble |",
        "| --- " * 6 + "|",
    ]
    for kind in KINDS:
        found = [fairness_of(run.ledger) for run in _of(runs, experiment, kind)]
        wobbles = [_wobble(run) for run in _of(runs, experiment, kind)]
        for rounds, name in RATES.items():
            mine = [
                (a, w[a.client]) for f, w in zip(found, wobbles, strict=True) for a in f.accounts if a.rounds == rounds
            ]
            if mine:
                lines.append(
                    f"| {kind}, {name} | {_class_cells([a for a, _ in mine])} | {np.mean([w for _, w in mine]):.4f} |"
                )
    return lines


def _class_cells(accounts: Sequence[Account]) -> str:
    stays = [account.convergence.stays for account in accounts]
    rounds = [101 if stay is None else stay for stay in stays]
    median = np.median(rounds)
    shown = "not by 100" if median > 100 else f"{median:.0f}"
    accuracy = float(np.nanmean([account.accuracy for account in accounts]))
    return f"{len(accounts)} | {sum(stay is not None for stay in stays)} | {shown} | {accuracy:.4f}"


def _wobble(run: Run) -> Any:
    """The mean change of each client's accuracy from one round to the next over the last half: how it oscillates."""
    local = run.local_accuracy
    return np.abs(np.diff(local[len(local) // 2 :], axis=0)).mean(axis=0)


def _fairness(runs: Mapping[str, Run], experiment: int) -> list[str]:
    lines = [
        "| | rank correlation of contribution with accuracy | with round of convergence | gap between classes |",
        "| --- " * 4 + "|",
    ]
    for kind in KINDS:
        for name in ("group 1", "group 2"):
            found = [_part(fairness_of(run.ledger), name) for run in _of(runs, experiment, kind)]
            if found:
                cells = [" ".join(f"{one[place]:+.2f}" for one in found) for place in range(3)]
                lines.append(f"| {kind}, {name} | {' | '.join(cells)} |")
    return lines


def _part(found: Fairness, name: str) -> tuple[float, float, float]:
    """The figures among the clients of one label group."""
    from fedmerit import rank_correlation

    mine = [a for a in found.accounts if (a.client < 20) == (name == "group 1")]
    put_in = [a.contribution for a in mine]
    classes = [float(np.nanmean([a.accuracy for a in mine if a.rounds == rounds])) for rounds in RATES]
    return (
        rank_correlation(put_in, [a.accuracy for a in mine]),
        rank_correlation(put_in, [a.convergence.stays or 101 for a in mine]),
        max(classes) - min(classes),
    )


def _table(runs: Mapping[str, Run], clients: Sequence[int]) -> list[str]:
    lines = [
        "| client | epochs | rows | rate | average accuracy | convergent iteration | reached 90 % |",
        "| --- " * 7 + "|",
    ]
    run = runs.get("2-keep-1")
    if run is None:
        return ["(not run)"]
    accounts = fairness_of(run.ledger).accounts
    facts = {one.id: one.facts for row in run.ledger.rounds() for one in run.explain(row["round"])}
    for client in clients:
        mine, came = accounts[client], accounts[client].convergence
        average = "-" if came.average is None else f"{100 * came.average:.2f}"
        lines.append(
            f"| {client} | {facts[client]['epochs']:.0f} | {facts[client]['samples']:.0f} | {mine.rounds / 100:g} | "
            f"{average} | {came.stays or '-'} | {came.reached or '-'} |"
        )
    return lines


def _svg(runs: Mapping[str, Run], clients: Sequence[int]) -> str:
    """Curves of three clients under `keep` (full) and `reset` (dashed), and of FedAvg on their label group (grey)."""
    width, height, left, top = 640, 360, 50, 20
    x = np.linspace(left, width - 10, 100)

    def line(curve: Any, colour: str, dash: str = "") -> str:
        y = top + (1 - np.clip(curve, 0, 1)) * (height - top - 40)
        points = " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x, y, strict=True))
        return (
            f'<polyline fill="none" stroke="{colour}" stroke-width="1.5" stroke-dasharray="{dash}" points="{points}"/>'
        )

    parts = list(_axes(width, height, left, top))
    for kind, dash in (("keep", ""), ("reset", "5 3")):
        curves = [run.local_accuracy for run in _of(runs, 1, kind)]
        for client, colour in zip(clients, COLOURS, strict=False):
            if curves:
                parts.append(line(np.mean([curve[:, client] for curve in curves], axis=0), colour, dash))
    shared = [run.local_accuracy for run in _of(runs, 1, "fedavg")]
    group = slice(0, 20) if clients[0] < 20 else slice(20, 40)
    if shared:
        parts.append(line(np.mean([np.nanmean(curve[:, group], axis=1) for curve in shared], axis=0), COLOURS[3]))
    names = [f"client {client}: {name}" for client, name in zip(clients, NAMES, strict=True)]
    for place, (name, colour) in enumerate(zip([*names, "FedAvg"], COLOURS, strict=True)):
        parts.append(f'<text x="{width - 180}" y="{height - 120 + 16 * place}" fill="{colour}">{name}</text>')
    parts.append(f'<text x="{width - 180}" y="{height - 56}" fill="#333">full: keep, dashed: reset</text>')
    style = f'<rect width="{width}" height="{height}" fill="white"/>'
    font = 'font-family="sans-serif" font-size="12"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" {font}>'
    return f"{head}{style}{''.join(parts)}</svg>\n"


def _axes(width: int, height: int, left: int, top: int) -> Iterator[str]:
    for share in (0, 0.2, 0.4, 0.6, 0.8, 1):
        y = top + (1 - share) * (height - top - 40)
        yield f'<line x1="{left}" x2="{width - 10}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>'
        yield f'<text x="{left - 8}" y="{y + 4:.1f}" text-anchor="end" fill="#333">{share:g}</text>'
    for iteration in (1, 25, 50, 75, 100):
        x = left + (iteration - 1) / 99 * (width - 10 - left)
        yield f'<text x="{x:.1f}" y="{height - 22}" text-anchor="middle" fill="#333">{iteration}</text>'
    yield f'<text x="{width / 2}" y="{height - 6}" text-anchor="middle" fill="#333">iteration</text>'


if __name__ == "__main__":
    main()
