"""Are planted groups of clients found? ByCosine on MNIST with clients that hold other digits [M2F, Alg. 2].

python -m reproductions.experiments.groups run --seeds 1,2 --model mnist-mlp  # resumes what was stopped
python -m reproductions.experiments.groups tell                               # prints the table
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from sklearn.metrics import adjusted_rand_score

from fedmerit import Federation, Run, resume, run_config
from fedmerit.config.schema import TaskConfig, load_config
from fedmerit.core.types import Matrix
from fedmerit.tasks.datasets.mnist import TWO_GROUPS
from fedmerit.tasks.registry import TaskSpec

ROOT = Path(__file__).parents[2]
RUNS = ROOT / "runs" / "groups"
ROUNDS, SIZE = 20, 300
PLANTED: Mapping[str, Sequence[str]] = {
    "2 groups": (),
    "4 groups": ("task.groups=[[0,1],[2,3],[4,5,6],[7,8,9]]",),
    "2 groups, alpha 0.3": ("task.alpha=0.3",),
    "2 groups, a fifth foreign": ("task.data=reproductions.experiments.groups:FIFTH",),
    "2 groups, two fifths foreign": ("task.data=reproductions.experiments.groups:TWO_FIFTHS",),
}
WAYS: Mapping[str, Sequence[str]] = {
    "keep, round": (),
    "keep, round, silhouette": ("recipe.models.grouping.cut=silhouette",),
    "keep, all": ("recipe.models.grouping.over=all",),
    "keep, all, silhouette": ("recipe.models.grouping.over=all", "recipe.models.grouping.cut=silhouette"),
    "reset, round": ("recipe.models.training=reset",),
    "reset, all": ("recipe.models.training=reset", "recipe.models.grouping.over=all"),
    "reset, all, silhouette": (
        "recipe.models.training=reset",
        "recipe.models.grouping.over=all",
        "recipe.models.grouping.cut=silhouette",
    ),
}
RATES = {"m2f-cnn": 0.01, "mnist-mlp": 0.05}
"""Networks, and the learning rate of each."""


def foreign(share: float) -> TaskSpec:
    """mnist-two-groups where this share of a client's rows is that of a client of the other group."""

    def load(config: TaskConfig, seed: int) -> Federation:
        federation = TWO_GROUPS.load(config, seed)
        train, clients = federation.train, len(federation.names)
        x, y = train.x.copy(), train.y.copy()
        for client in range(clients):
            mine, other = train.rows(client), train.rows((client + clients // 2) % clients)
            rows = min(round(share * int(train.sizes[client])), other.stop - other.start)
            x[mine.start : mine.start + rows] = train.x[other.start : other.start + rows]
            y[mine.start : mine.start + rows] = train.y[other.start : other.start + rows]
        return replace(federation, train=replace(train, x=x, y=y))

    return replace(TWO_GROUPS, load=load)


FIFTH, TWO_FIFTHS = foreign(0.2), foreign(0.4)


def main() -> None:
    """Run, or tell."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("run", "tell"))
    parser.add_argument("--seeds", default="1,2")
    parser.add_argument("--model", choices=RATES, default="mnist-mlp")
    options = parser.parse_args()
    if options.what == "tell":
        print("\n".join(page()))
        return
    for seed in options.seeds.split(","):
        for planted in PLANTED:
            for way in WAYS:
                go(planted, way, options.model, int(seed))


def go(planted: str, way: str, model: str, seed: int) -> None:
    """One run, or what is left of it."""
    folder = RUNS / f"{planted}-{way}-{model}-{seed}".replace(",", "").replace(" ", "-")
    folder.parent.mkdir(parents=True, exist_ok=True)
    settings = (f"run.rounds={ROUNDS}", f"task.size={SIZE}", f"task.model={model}", f"train.lr={RATES[model]}")
    changes = [*PLANTED[planted], *WAYS[way], *settings, f"run.seed={seed}", "run.evaluate_every=5"]
    resume(folder) if folder.exists() else run_config(load_config(ROOT / "examples" / "m2f.toml", changes), folder)
    print(folder.name, flush=True)


def page() -> Iterator[str]:
    """What was run, as a page."""
    yield from (
        "# Are planted groups found?",
        "",
        *(f"    {line}" for line in (__doc__ or "").splitlines()[2:4]),
        "",
        f"MNIST, 40 clients in planted groups of labels, {SIZE} rows each, sizes and epochs (1 to 3) drawn, lazy,",
        "normal and diligent clients; M2F with average linkage, cut at the largest gap unless it says silhouette;",
        f"{ROUNDS} rounds. Agreement is the adjusted Rand index of a round's groups against the planted ones, of the",
        "clients of that round: 1 is the same, 0 is chance. `round`: distances of this round's updates alone (the",
        "paper); `all`: the mean of all rounds in which two clients met.",
        "",
    )
    header = ("data", "way", "network", "seeds", "groups in rounds 1, 5, 10, 20", "round 1", "from 4 on", "least, most")
    yield "| " + " | ".join(header) + " |"
    yield "| --- " * len(header) + "|"
    for model in RATES:
        for planted in PLANTED:
            for way in WAYS:
                pattern = f"{planted}-{way}-{model}-[0-9]*".replace(",", "").replace(" ", "-")
                runs = [Run.load(path) for path in sorted(RUNS.glob(pattern)) if (path / "model.safetensors").exists()]
                if runs:
                    yield line(planted, way, model, runs)


def line(planted: str, way: str, model: str, runs: Sequence[Run]) -> str:
    """Means over the seeds; the least and the most of any round from the fourth on."""
    scores = np.array([agreement(run, 4 if planted.startswith("4") else 2) for run in runs])
    found = [[run.ledger.rounds()[index - 1]["groups"] for index in (1, 5, 10, ROUNDS)] for run in runs]
    counts = "; ".join(" ".join(map(str, one)) for one in found)
    later = scores[:, 3:]
    cells = (planted, way, model, str(len(runs)), counts, f"{scores[:, 0].mean():.2f}", f"{later.mean():.2f}")
    return "| " + " | ".join(cells) + f" | {later.min():.2f}, {later.max():.2f} |"


def agreement(run: Run, groups: int) -> Matrix:
    """Of every round; the planted groups are consecutive blocks of clients."""
    clients, scores = len(run.ledger.names()), []
    for row in run.ledger.rounds():
        earned = run.explain(row["round"])
        truth = [one.id * groups // clients for one in earned]
        scores.append(float(adjusted_rand_score(truth, [one.group for one in earned])))
    return np.array(scores)


if __name__ == "__main__":
    main()
