"""Adapters: LoRA against full fine-tuning of a small transformer, next character of six roles of Shakespeare.

FEDMERIT_DATA=... python -m reproductions.experiments.adapters run --seeds 1,2,3,4,5   # resumes what was stopped
FEDMERIT_DATA=... python -m reproductions.experiments.adapters tell                    # prints the tables
python -m reproductions.experiments.adapters memory lora local                         # or full; or grid

Needs `pip install peft`. The base is trained on other roles by this script; nothing is downloaded. The learning rates
are the best of RATES on validation windows (the last tenth of each role's training windows), seed 11.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
import warnings
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file
from scipy import stats
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, scaled_dot_product_attention

from fedmerit import Federation, Task, TorchLearner, fedavg, federate
from fedmerit.config.schema import TrainConfig
from fedmerit.tasks.datasets.shakespeare import ALPHABET, FILE, LENGTH, encode, read_roles
from fedmerit.tasks.source import find_file

RUNS = Path(__file__).parents[2] / "runs" / "adapters"
CLIENTS, BASE_ROLES = 6, 40
"""The roles with most text are clients; the base is trained on roles of other plays."""
WIDTH, LAYERS, HEADS, RANK = 64, 2, 4, 4
ROUNDS, BATCH, MOST, BASE_EPOCHS = 4, 32, 240, 8
"""MOST: training windows of a role."""
RATES = {"lora": (0.0003, 0.001, 0.003), "full": (0.0001, 0.0003, 0.001)}
TUNING, ROWS = 11, ("alone", "federated", "pooled")
Windows = NDArray[np.int64]


class Block(nn.Module):
    """Attention to the characters before, then two dense layers, each added to its normalised input."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.first, self.second = heads, nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        """Map (rows, characters, width) to the same shape."""
        rows, length, width = x.shape
        query, key, value = self.qkv(self.first(x)).view(rows, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(rows, length, width))
        return x + self.down(torch.relu(self.up(self.second(x))))  # type: ignore[no-any-return]


class Transformer(nn.Module):
    """Predict every next character of a row; `logits` are those of the character after the row."""

    def __init__(self, width: int = WIDTH, layers: int = LAYERS, heads: int = HEADS) -> None:
        super().__init__()
        self.characters, self.places = nn.Embedding(len(ALPHABET), width), nn.Embedding(LENGTH, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, len(ALPHABET))

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        """Return the logits, and the mean loss of the characters within the rows."""
        x = x.long()
        states = self.characters(x) + self.places.weight[: x.shape[1]]
        logits = self.head(self.norm(self.blocks(states)))
        return {"logits": logits[:, -1], "within": cross_entropy(logits[:, :-1].flatten(0, 1), x[:, 1:].flatten())}


def loss(outputs: Mapping[str, Tensor], y: Tensor) -> Tensor:
    """Mean loss of all characters but the first."""
    return (outputs["within"] * (LENGTH - 1) + cross_entropy(outputs["logits"], y)) / LENGTH


def model_of(kind: str, base: Path | None, **size: int) -> nn.Module:
    """Build the transformer with the values of the base; with `lora`, freeze it and add PEFT's adapters."""
    module = Transformer(**size)
    if base is not None:
        module.load_state_dict(load_file(base))
    if kind == "full":
        return module
    import peft

    config = peft.LoraConfig(r=RANK, lora_alpha=2 * RANK, target_modules=["qkv", "out", "up", "down"])
    return peft.get_peft_model(module, config)  # type: ignore[no-any-return]


def windows(text: str) -> Windows:
    """Split a text into windows of 81 characters that overlap in one."""
    characters = encode(text).astype(np.int64)
    starts = np.arange(0, len(characters) - LENGTH, LENGTH)
    rows: Windows = characters[starts[:, None] + np.arange(LENGTH + 1)]
    return rows


def roles() -> tuple[dict[str, str], str]:
    """Return the clients' names and texts, and the text for the base."""
    texts = sorted(read_roles(find_file("shakespeare", FILE)), key=lambda role: -len(role[1]))
    clients = dict(texts[:CLIENTS])
    plays = {name.partition(":")[0] for name in clients}
    others = [text for name, text in texts[CLIENTS:] if name.partition(":")[0] not in plays]
    return clients, "\n".join(others[:BASE_ROLES])


def train_base(path: Path) -> None:
    """Train the base on roles of other plays."""
    rows = torch.from_numpy(windows(roles()[1]))
    torch.manual_seed(0)
    module = Transformer()
    steps = BASE_EPOCHS * (len(rows) // BATCH + 1)
    optimizer = torch.optim.Adam(module.parameters(), lr=0.003)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.003, total_steps=steps)
    for _ in range(BASE_EPOCHS):
        for batch in torch.randperm(len(rows)).split(BATCH):  # type: ignore[no-untyped-call]
            optimizer.zero_grad()
            loss(module(rows[batch, :-1]), rows[batch, -1]).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            schedule.step()
    print(f"base: {len(rows)} windows, {sum(one.numel() for one in module.parameters()):,} parameters", flush=True)
    save_file(module.state_dict(), path)


def task_of(kind: str, lr: float, *, tuning: bool = False) -> Task:
    """Make the federation of the six roles; to tune, the last tenth of the training windows are the test windows."""
    train, test = {}, {}
    for name, text in roles()[0].items():
        cut = int(len(text) * 0.8)
        own = windows(text[:cut])[:MOST]
        split = len(own) * 9 // 10
        train[name], test[name] = (own[:split], own[split:]) if tuning else (own, windows(text[cut:]))
    clients = {name: (rows[:, :-1], rows[:, -1]) for name, rows in train.items()}
    tests = {name: (rows[:, :-1], rows[:, -1]) for name, rows in test.items()}
    data = Federation.from_clients(clients, classes=len(ALPHABET), test=tests)
    config = TrainConfig(lr=lr, epochs=1, batch=BATCH, optimizer="adam")
    return Task(data, TorchLearner(partial(model_of, kind, RUNS / "base.safetensors"), config, loss=loss))


def total_loss(module: nn.Module, task: Task, clients: range) -> tuple[float, int]:
    """Sum of the losses of the test characters of these clients, and their number."""
    test, summed, count = task.federation.test, 0.0, 0
    with torch.inference_mode():
        for client in clients:
            x, y = (torch.from_numpy(part[test.rows(client)].astype(np.int64)) for part in (test.x, test.y))
            summed, count = summed + float(loss(module(x), y)) * y.numel() * LENGTH, count + y.numel() * LENGTH
    return summed, count


def perplexity(row: str, kind: str, lr: float, seed: int, *, tuning: bool = False) -> dict[str, Any]:
    """Perplexity of the test characters of all roles, and the bytes of a round."""
    task, everybody = task_of(kind, lr, tuning=tuning), range(CLIENTS)
    settings: dict[str, Any] = {"rounds": ROUNDS, "seed": seed, "evaluate_every": ROUNDS, "fraction": 1.0}
    parts, sent = list[tuple[float, int]](), {}
    if row == "alone":
        for client in everybody:
            names = [name for place, name in enumerate(task.federation.names) if place != client]
            own = replace(task, federation=task.federation.without(names))
            parts.append(total_loss(federate(own, fedavg(), **settings).module(), own, range(1)))
    else:
        run = federate(task.pooled() if row == "pooled" else task, fedavg(), **settings)
        parts.append(total_loss(run.module(), task, everybody))
        (last,) = run.ledger.rounds()[-1:]
        sent = {"values": len(run.model), "down": last["bytes_down"], "up": last["bytes_up"]}
    summed, count = np.sum(parts, axis=0)
    return {"perplexity": float(np.exp(summed / count)), **sent}


def stored(name: str, compute: Any) -> Any:
    """Read a result, or compute and write it."""
    path = RUNS / f"{name}.json"
    if not path.exists():
        begun = time.process_time()
        result = compute()
        path.write_text(json.dumps(result | {"cpu_seconds": time.process_time() - begun}))
        print(name, path.read_text(), flush=True)
    return json.loads(path.read_text())


def best_rate(kind: str) -> float:
    """The learning rate with the best federated perplexity on validation windows."""
    found = {
        lr: stored(f"tune-{kind}-{lr}", partial(perplexity, "federated", kind, lr, TUNING, tuning=True))["perplexity"]
        for lr in RATES[kind]
    }
    return min(found, key=lambda lr: found[lr])


def run(seeds: list[int]) -> None:
    """Compute what is missing."""
    torch.set_num_threads(1)
    RUNS.mkdir(parents=True, exist_ok=True)
    if not (RUNS / "base.safetensors").exists():
        train_base(RUNS / "base.safetensors")
    for seed in seeds:
        for kind in RATES:
            lr = best_rate(kind)
            for row in ROWS:
                stored(f"{row}-{kind}-{seed}", partial(perplexity, row, kind, lr, seed))


def tell() -> None:
    """Print the tables."""
    base, whole = model_of("full", RUNS / "base.safetensors").eval(), task_of("full", 0.1)
    summed, count = total_loss(base, whole, range(CLIENTS))
    print(f"base: {np.exp(summed / count):.3f}; rates { ({kind: best_rate(kind) for kind in RATES}) }")
    found: dict[str, list[Any]] = {}
    for kind in RATES:
        for row in ROWS:
            found[f"{row} {kind}"] = [
                json.loads(path.read_text()) for path in sorted(RUNS.glob(f"{row}-{kind}-*.json"))
            ]
            print(f"| {row}, {kind} | {interval([one['perplexity'] for one in found[f'{row} {kind}']])} |")
    for row in ROWS:
        pairs = zip(found[f"{row} lora"], found[f"{row} full"], strict=True)
        print(f"{row}: LoRA - full {interval([one['perplexity'] - other['perplexity'] for one, other in pairs])}")
    for kind in RATES:
        pairs = zip(found[f"federated {kind}"], found[f"alone {kind}"], strict=True)
        print(f"{kind}: federated - alone {interval([a['perplexity'] - b['perplexity'] for a, b in pairs])}")
        print(f"{kind}: {found[f'federated {kind}'][0]}")
    print(f"CPU seconds: {sum(json.loads(p.read_text())['cpu_seconds'] for p in RUNS.glob('*.json')):.0f}")


def interval(values: list[float]) -> str:
    """The mean with its 95 % interval by Student's t."""
    half = stats.t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / np.sqrt(len(values))
    return f"{np.mean(values):.3f} [{np.mean(values) - half:.3f}, {np.mean(values) + half:.3f}]"


def memory(kind: str, where: str) -> None:
    """Peak memory of one round of three clients with a random transformer of 100M parameters."""
    rows = windows("to be, or not to be " * 60)
    clients = {f"client {place}": (rows[place::3][:4, :16], rows[place::3][:4, 16]) for place in range(3)}
    data = Federation.from_clients(clients, classes=len(ALPHABET), test=clients)
    build = partial(model_of, kind, None, width=768, layers=14, heads=12)
    task = Task(data, TorchLearner(build, TrainConfig(lr=0.01, epochs=1, batch=4), loss=loss))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    if where == "grid":
        from flwr.app import Context

        from fedmerit import InTime, Uniform
        from fedmerit.core.host import Host
        from fedmerit.core.round import run_round
        from fedmerit.core.state import State
        from fedmerit.flower import GridFleet, InProcessGrid, make_client_app
        from fedmerit.tasks.registry import ClientHalf

        def half(context: Context) -> ClientHalf:
            return task.client(int(context.node_config["partition-id"]))

        fleet = GridFleet(InProcessGrid(make_client_app(half), 3), task.server())
        fleet.meet(3)
        state = State(fleet.server.first_model(1))
        _, record = run_round(state, fedavg(), Host.of(fleet), InTime(Uniform(1.0)), seed=1, evaluate=False)
        sent = record.bytes_up
    else:
        sent = federate(task, fedavg(), rounds=1, fraction=1.0).ledger.rounds()[-1]["bytes_up"]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(f"{kind}, {where}: peak {peak / 2**10:,.0f} MiB, {before / 2**10:,.0f} before the run; {sent:,} bytes up")


def main() -> None:
    """The command line."""
    warnings.simplefilter("ignore")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("run", "tell", "memory"))
    parser.add_argument("what", nargs="*", help="of memory: lora or full, local or grid")
    parser.add_argument("--seeds", default="1,2,3,4,5")
    options = parser.parse_args()
    match options.command:
        case "run":
            run([int(seed) for seed in options.seeds.split(",")])
        case "tell":
            tell()
        case "memory":
            memory(*options.what)


if __name__ == "__main__":
    main()
