"""Facts before updates: the server's memory, and masked sums in seconds and bytes, next to Flower's SecAgg+.

    python benchmarks/facts_first.py memory                 100 clients x 6.6 million values, 8 x 24.9 million
    python benchmarks/facts_first.py memory --deployment    8 x 24.9 million on a SuperLink with 8 SuperNodes
    python benchmarks/facts_first.py masked [--clients 1000]    seconds and bytes of a round, all in one process
    python benchmarks/facts_first.py crowd                  a masked and a plain round of 10,000 clients, locally

Memory is the peak of the resident memory (getrusage) of a process that has only the server, minus what it had before
the round; on a deployment the process is the ServerApp's.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Array, Context, Message
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from numpy.typing import NDArray

from fedmerit import Federation, Recipe, Split, Task, fedavg
from fedmerit.core.collect.collect import Collect, InTime, Uniform
from fedmerit.core.collect.facts_first import FactsFirst
from fedmerit.core.collect.masking import Masking
from fedmerit.core.host import Fleet, Host, ServerSetup
from fedmerit.core.round import initial_state, run_round
from fedmerit.core.state import Record
from fedmerit.core.types import Model, Samples
from fedmerit.fleet.local import LocalFleet
from fedmerit.flower import GridFleet, InProcessGrid, make_client_app
from fedmerit.flower.messages import HELLO, TRAIN, UPLOAD, pack

MIB = 1 << 20
CASES = {(100, 6_600_000): "100 clients x 6.6 million", (8, 24_900_000): "8 clients x 24.9 million (95 MiB)"}
CLIENTS, VALUES, NEIGHBOURS = (10, 100, 1000), 100_000, 58
MOST_LEGACY = 100
"""Flower's SecAgg+ needs three minutes for 100 clients, and more than half an hour for 1,000."""
MOST_SUPERNODES = 8
APP = """\
import facts_first
server = facts_first.server_app({kind!r}, {clients}, {values}, {out!r})
client = facts_first.client_app(facts_first.task({clients}, {values}))
"""
PROJECT = """\
project = {name = "memory", version = "1.0.0", description = "", license = "Apache-2.0"}
[tool.flwr.app]
publisher = "fedmerit"
components = {serverapp = "memory:server", clientapp = "memory:client"}
"""


@dataclass(frozen=True)
class Drift:
    """A learner without training: each client's update is random, and as long as asked for."""

    values: int

    def start(self, seed: int) -> Model:
        """Return a model of zeros."""
        return np.zeros(self.values, np.float32)

    def train(self, model: Model, samples: Samples, seed: int, epochs: int | None = None) -> Model:
        """Return a model near the one that was sent."""
        moved: Model = model + np.random.default_rng(seed).normal(0, 1e-3, self.values).astype(np.float32)
        return moved

    def predict(self, model: Model, x: NDArray[Any]) -> NDArray[Any]:
        """Predict one class."""
        return np.zeros(len(x), np.int64)


def task(clients: int, values: int) -> Task:
    """Return clients with four rows each."""
    rows = 4 * clients
    offsets = np.arange(0, rows + 1, 4)
    split = Split(np.zeros((rows, 1), np.float32), np.arange(rows) % 2, offsets)
    names = tuple(str(client) for client in range(clients))
    return Task(Federation(names, split, split, 2), Drift(values))


def play(fleet: Fleet, collect: Collect, recipe: Recipe | None = None) -> tuple[Record, float]:
    """Run one round without evaluation; return its record and seconds."""
    recipe, host = recipe or fedavg(), Host.of(fleet, 1)
    state, _ = initial_state(recipe, host, fleet.server.first_model(0), 0)
    begun = time.perf_counter()
    _, record = run_round(state, recipe, host, collect, 0, evaluate=False)
    return record, time.perf_counter() - begun


class Answering(InProcessGrid):
    """A grid whose nodes make a reply when it is pulled, so that only the server's memory is measured."""

    def __init__(self, clients: int, values: int) -> None:
        super().__init__(make_client_app(lambda context: None), clients)  # type: ignore[arg-type, return-value]
        self.sent = dict[str, Message]()
        self.update = Array(np.full(values, 1e-3, np.float32))  # serialised once: a reply that has arrived

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Store the messages."""
        ids = []
        for message in messages:
            message_id = str(next(self._numbers))
            message.metadata.__dict__["_message_id"] = message_id
            self.sent[message_id] = message
            ids.append(message_id)
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Make the replies."""
        return [self.answer(self.sent.pop(message_id)) for message_id in message_ids if message_id in self.sent]

    def answer(self, message: Message) -> Message:
        """Answer as a node would."""
        client, kind = message.metadata.dst_node_id - 1000, message.metadata.message_type
        if kind == HELLO:
            return Message(pack(config={"client": client, "name": "", "personal": 0}), reply_to=message)
        later = kind == TRAIN and message.content.config_records["config"]["uploads"] != "now"
        arrays = (
            None
            if later
            else {"update": Array(self.update.dtype, self.update.shape, self.update.stype, self.update.data)}
        )
        if kind == UPLOAD:
            return Message(pack(arrays), reply_to=message)
        return Message(pack(arrays, {"personal": 0}, {"samples": 4.0}), reply_to=message)


def peak() -> int:
    """Return the peak resident memory of this process, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def resident() -> int:
    """Return the resident memory of this process now, in bytes."""
    return int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[1]) * resource.getpagesize()


def collector(kind: str) -> Collect:
    """Facts first, or facts with the updates."""
    return FactsFirst(Uniform(1.0)) if kind == "first" else InTime(Uniform(1.0))


def measure_server(kind: str, clients: int, values: int, fleet_kind: str) -> None:
    """Print the memory of a round as JSON; runs in a fresh process."""
    collect = collector(kind)
    before = resident()
    if fleet_kind == "grid":
        fleet = GridFleet(Answering(clients, values), ServerSetup(tuple(map(str, range(clients))), Drift(values)))
        fleet.meet(clients)
        _, seconds = play(fleet, collect)
    else:
        with (
            tempfile.TemporaryDirectory() as folder,
            LocalFleet(task(clients, values), memory=1, spill_to=Path(folder)) as local,
        ):  # the clients' updates are in a file
            _, seconds = play(local, collect)
    print(json.dumps({"memory": peak() - before, "seconds": seconds}))


def client_app(made: Task) -> ClientApp:
    """Return the nodes' app of a task."""
    return make_client_app(lambda context: made.client(int(context.node_config["partition-id"])))


def server_app(kind: str, clients: int, values: int, out: str) -> ServerApp:
    """Return an app that writes its memory and seconds to a file."""
    made, server = task(clients, values), ServerApp()

    @server.main()
    def main(grid: Grid, context: Context) -> None:
        before = resident()
        fleet = GridFleet(grid, made.server())
        fleet.meet(clients)
        _, seconds = play(fleet, collector(kind))
        Path(out).write_text(json.dumps({"memory": peak() - before, "seconds": seconds}), encoding="utf-8")

    return server


def measure_deployment(kind: str, clients: int, values: int) -> dict[str, float]:
    """Run a round on a SuperLink with a SuperNode per client; the ServerApp measures itself."""
    from fedmerit.flower.loopback import loopback

    with tempfile.TemporaryDirectory() as folder:
        app, out = Path(folder) / "app", Path(folder) / "peak.json"
        (app / "memory").mkdir(parents=True)
        code = APP.format(kind=kind, clients=clients, values=values, out=str(out))
        (app / "memory" / "__init__.py").write_text(code, encoding="utf-8")
        (app / "pyproject.toml").write_text(PROJECT, encoding="utf-8")
        here, paths = str(Path(__file__).parent), os.environ.get("PYTHONPATH")
        os.environ["PYTHONPATH"] = here if paths is None else f"{here}{os.pathsep}{paths}"
        with loopback(Path(folder) / "link", clients) as federation:
            federation.run(app)
            federation.processes["run"].wait(1800)
            if not out.exists():
                raise SystemExit(federation.log("run")[-3000:])
        found: dict[str, float] = json.loads(out.read_text(encoding="utf-8"))
    return found


def measure(kind: str, clients: int, values: int, fleet: str) -> dict[str, float]:
    """Measure a round in fresh processes."""
    if fleet == "deployment":
        return measure_deployment(kind, clients, values)
    command = [sys.executable, __file__, "server", kind, str(clients), str(values), fleet]
    found: dict[str, float] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return found


def memory(*, deployment: bool) -> None:
    """Print memory in models (4 bytes a value) for stored and streamed sums."""
    print("| | fleet | stored: models | s | facts first: models | s |\n| --- | --- | ---: | ---: | ---: | ---: |")
    for (clients, values), name in CASES.items():
        if deployment and clients > MOST_SUPERNODES:
            continue
        for fleet in ("deployment",) if deployment else ("grid", "local"):
            found = [measure(kind, clients, values, fleet) for kind in ("together", "first")]
            cells = [f"{one['memory'] / (4 * values):.1f} | {one['seconds']:.1f}" for one in found]
            print(f"| {name} | {fleet} | {' | '.join(cells)} |", flush=True)


def grid_fleet(made: Task) -> GridFleet:
    """Return a fleet of real ClientApps in this process."""
    grid = InProcessGrid(client_app(made), len(made.federation.names))
    fleet = GridFleet(grid, made.server())
    fleet.meet(len(made.federation.names))
    return fleet


def legacy(made: Task) -> tuple[float, int]:
    """Run one round of Flower's SecAgg+ in this process; return seconds and the bytes of the masked vectors."""
    from flwr.client import ClientApp, NumPyClient
    from flwr.client.mod import secaggplus_mod
    from flwr.common import ndarrays_to_parameters
    from flwr.server import LegacyContext, ServerConfig
    from flwr.server.strategy import FedAvg
    from flwr.server.workflow import DefaultWorkflow, SecAggPlusWorkflow

    clients, values = len(made.federation.names), made.learner.start(0)

    class Client(NumPyClient):  # type: ignore[misc]
        def fit(self, parameters: Any, config: Mapping[str, Any]) -> Any:
            return [np.asarray(parameters[0]) + np.float32(1e-3)], 4, {}

    app = ClientApp(client_fn=lambda context: Client().to_client(), mods=[secaggplus_mod])
    grid = Counting(app, clients)
    strategy = FedAvg(
        fraction_fit=1.0, fraction_evaluate=0.0, min_fit_clients=clients, min_available_clients=clients,
        initial_parameters=ndarrays_to_parameters([values]),
    )  # fmt: skip
    context = LegacyContext(
        context=Context(run_id=1, node_id=0, node_config={}, state=_no_state(), run_config={}),
        config=ServerConfig(num_rounds=1), strategy=strategy,
    )  # fmt: skip
    number = min(clients, NEIGHBOURS + 1)
    secure = SecAggPlusWorkflow(num_shares=number, reconstruction_threshold=number // 2 + 1, clipping_range=8.0)
    begun = time.perf_counter()
    DefaultWorkflow(fit_workflow=secure)(grid, context)
    return time.perf_counter() - begun, grid.bytes


def _no_state() -> Any:
    from flwr.app import RecordDict

    return RecordDict()


class Counting(InProcessGrid):
    """A grid that counts the bytes of arrays and settings in replies, and of settings in messages."""

    bytes = 0

    def deliver(self, message: Message) -> Message:
        """Count, and deliver."""
        from fedmerit.flower.secure_sum import _size

        reply = super().deliver(message)
        self.bytes += _size(reply.content) if not reply.has_error() else 0
        return reply


def masked(clients: Sequence[int], values: int) -> None:
    """Print seconds (all nodes one after the other, in this process) and bytes per client of a round."""
    print(f"{values:,} values; seconds of all nodes and the server together, in one process; bytes sent per client")
    print("| clients | plain | masked | Flower's SecAgg+ | plain | masked | Flower's SecAgg+ |")
    print("| ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    for number in clients:
        made = task(number, values)
        seconds, sent = [], []
        collectors: list[Callable[[], Collect]] = [
            lambda: FactsFirst(Uniform(1.0)),
            lambda: FactsFirst(Uniform(1.0), Masking()),
        ]
        for make in collectors:
            record, took = play(grid_fleet(made), make())
            assert len(record.ids) == number, record.dropped
            seconds.append(took)
            sent.append(record.bytes_up / number)
        cells = [f"{one:.2f}" for one in seconds] + ["not run"]
        sizes = [f"{one / 1000:,.0f} kB" for one in sent] + ["not run"]
        if number <= MOST_LEGACY:
            took, total = legacy(made)
            cells[-1], sizes[-1] = f"{took:.2f}", f"{total / number / 1000:,.0f} kB"
        cells += sizes
        print(f"| {number} | {' | '.join(cells)} |", flush=True)


def crowd() -> None:
    """Print the seconds and the memory of a round of 10,000 clients, plain and masked, on the local fleet."""
    for name, collect in (("facts first", FactsFirst(Uniform(1.0))), ("masked", FactsFirst(Uniform(1.0), Masking()))):
        with LocalFleet(task(10_000, 10_000)) as fleet:
            record, seconds = play(fleet, collect)
        print(f"{name}: {len(record.ids)} clients, {seconds:.1f} s, error bound {record.numbers.get('error', 0):.2g}")


def main() -> None:
    """Read the arguments."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["memory", "masked", "crowd", "server"])
    parser.add_argument("rest", nargs="*")
    parser.add_argument("--clients", type=int, nargs="*", default=list(CLIENTS))
    parser.add_argument("--values", type=int, default=VALUES)
    parser.add_argument("--deployment", action="store_true", help="memory on a SuperLink with SuperNodes")
    chosen = parser.parse_args()
    if chosen.what == "server":
        kind, clients, values, fleet = chosen.rest
        measure_server(kind, int(clients), int(values), fleet)
    elif chosen.what == "masked":
        masked(chosen.clients, chosen.values)
    elif chosen.what == "memory":
        memory(deployment=chosen.deployment)
    else:
        crowd()


if __name__ == "__main__":
    main()
