"""Peak memory of a ServerApp with Merit and with Flower's FedAvg: 8 nodes, a model of 95 MB, two rounds.

    .venv/bin/python benchmarks/merit_memory.py                the strategies in a process each, nodes answer at once
    .venv/bin/python benchmarks/merit_memory.py --deployment   on a SuperLink with 8 SuperNodes on loopback

Prints the peak resident memory (getrusage) of each process, and how much of it came after the imports.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.serverapp.strategy import FedAvg

from fedmerit.flower import InProcessGrid, Merit

NODES, LAYERS, VALUES, ROUNDS = 8, 10, 2_490_000, 2
"""10 layers of 2.49 million float32 values are 95 MiB, about a ResNet-50."""
SETTINGS = {"min_train_nodes": NODES, "min_available_nodes": NODES, "fraction_evaluate": 0.0}
STRATEGIES = {"Flower's FedAvg": FedAvg, "Merit()": Merit}
APP = """
import resource, sys
import numpy as np
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg
from fedmerit.flower import Merit
server = ServerApp()
client = ClientApp()

@server.main()
def main(grid, context):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    layers = {{f"layer{{i}}": Array(np.full({values}, i, np.float32)) for i in range({layers})}}
    strategy = {strategy}(**{settings!r})
    strategy.start(grid=grid, initial_arrays=ArrayRecord(layers), num_rounds={rounds})
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    open({out!r}, "w").write(f"[{{before}}, {{peak}}]")

@client.train()
def train(message, context):
    arrays = message.content["arrays"]
    layers = {{name: Array(arrays[name].numpy() + np.float32(0.01)) for name in arrays}}
    content = {{"arrays": ArrayRecord(layers), "metrics": MetricRecord({{"num-examples": 10}})}}
    return Message(RecordDict(content), reply_to=message)
"""


class Answering(InProcessGrid):
    """A grid whose nodes make their reply when it is pulled, so that only the server's memory is measured."""

    def __init__(self) -> None:
        super().__init__(lambda message, context: message, NODES)  # type: ignore[arg-type]

    def deliver(self, message: Message) -> Message:
        return message

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        return [self.answer(message) for message in super().pull_messages(message_ids)]

    def answer(self, message: Message) -> Message:
        seed = message.metadata.dst_node_id
        layers = {name: Array(np.full(VALUES, seed * 1e-6, np.float32)) for name in message.content["arrays"]}
        content: dict[str, Any] = {"arrays": ArrayRecord(layers), "metrics": MetricRecord({"num-examples": seed})}
        return Message(RecordDict(content), reply_to=message)


def peak() -> int:
    """Peak resident memory of this process in KiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def one(name: str) -> None:
    """Run a strategy in this process; print the memory before it, and its peak."""
    before = peak()
    layers = {f"layer{place}": Array(np.full(VALUES, place, np.float32)) for place in range(LAYERS)}
    STRATEGIES[name](**SETTINGS).start(Answering(), ArrayRecord(layers), num_rounds=ROUNDS)
    print(json.dumps([before, peak()]))


def on_deployment(name: str) -> tuple[int, int]:
    """Run a strategy on a SuperLink with a SuperNode per client; the ServerApp measures itself."""
    from fedmerit.flower.loopback import loopback

    with tempfile.TemporaryDirectory() as folder:
        app, out = Path(folder) / "app", Path(folder) / "peak.json"
        (app / "memory").mkdir(parents=True)
        strategy = "Merit" if name == "Merit()" else "FedAvg"
        code = APP.format(
            values=VALUES, layers=LAYERS, rounds=ROUNDS, strategy=strategy, settings=SETTINGS, out=str(out)
        )
        (app / "memory" / "__init__.py").write_text(code)
        (app / "pyproject.toml").write_text(
            '[project]\nname = "memory"\nversion = "1.0.0"\ndescription = ""\nlicense = "Apache-2.0"\n'
            '[tool.flwr.app]\npublisher = "fedmerit"\n[tool.flwr.app.components]\n'
            'serverapp = "memory:server"\nclientapp = "memory:client"\n[tool.flwr.app.config]\n'
        )
        with loopback(Path(folder) / "link", NODES) as federation:
            federation.run(app)
            federation.processes["run"].wait(1800)
            if not out.exists():
                sys.exit(federation.log("run")[-3000:])
        before, most = json.loads(out.read_text())
    return before, most


def main() -> None:
    """Measure both strategies, each in a fresh process."""
    if sys.argv[1:2] == ["--one"]:
        one(sys.argv[2])
        return
    print(f"{NODES} nodes x {LAYERS * VALUES * 4 / 2**20:.0f} MiB, {ROUNDS} rounds: peak resident memory in MiB")
    for name in STRATEGIES:
        if "--deployment" in sys.argv:
            before, most = on_deployment(name)
        else:
            command = [sys.executable, __file__, "--one", name]
            answer = subprocess.run(command, capture_output=True, text=True, check=True).stdout
            before, most = json.loads(answer.splitlines()[-1])
        print(f"{name:16} {most / 1024:7.0f}  ({(most - before) / 1024:.0f} after the imports)")


if __name__ == "__main__":
    main()
