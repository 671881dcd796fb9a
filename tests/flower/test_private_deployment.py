"""Merit with privacy on real SuperNodes: its account, the fixed denominator, and the clip that the nodes make."""

import json
from pathlib import Path

import pytest
import tomli_w

from fedmerit.config.privacy import epsilon_after
from fedmerit.flower.loopback import loopback

NODES, ROUNDS = 2, 2
APP = """
import json
import logging
from pathlib import Path

import numpy as np
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp

from fedmerit import prioritized
from fedmerit.core.recipes import private
from fedmerit.core.server.private_sum import PrivateSum
from fedmerit.core.weights.weigh import scale
from fedmerit.flower import Merit, clip_mod

client = ClientApp(mods=[clip_mod(1.0)])
server = ServerApp()


@client.train()
def train(message, context):
    model = message.content["arrays"]["w"].numpy().copy()
    model[0] += 2  # twice the clip
    metrics = MetricRecord({"num-examples": 50})
    return Message(RecordDict({"arrays": ArrayRecord({"w": Array(model)}), "metrics": metrics}), reply_to=message)


@server.main()
def main(grid, context):
    privacy = PrivateSum(noise=1e-6, fraction=1.0, delta=0.1, reproducible=True)
    recipe = private(prioritized("DS", normalise=scale({"DS": 100})), privacy)
    nodes = {"min_train_nodes": 2, "min_available_nodes": 2, "fraction_evaluate": 0.0}
    strategy = Merit(recipe, **nodes)
    rounds = int(context.run_config["rounds"])
    result = strategy.start(grid, ArrayRecord({"w": Array(np.zeros(3, np.float32))}), num_rounds=rounds)
    told = {
        "model": result.arrays["w"].numpy().tolist(),
        "epsilon": [record.epsilon for record in strategy.records],
        "norms": [record.diagnostics.norms.tolist() for record in strategy.records],
    }
    Path(context.run_config["out"]).write_text(json.dumps(told))
    logging.getLogger("flwr").info("all is told")
"""


def write_app(folder: Path, out: Path) -> None:
    folder.mkdir()
    (folder / "private_app.py").write_text(APP)
    components = {"serverapp": "private_app:server", "clientapp": "private_app:client"}
    flower = {"publisher": "fedmerit", "components": components, "config": {"out": str(out), "rounds": ROUNDS}}
    about = {"name": "private-app", "version": "1.0.0", "license": "Apache-2.0", "dependencies": []}
    build = {"requires": ["hatchling"], "build-backend": "hatchling.build"}
    project = {"build-system": build, "project": about, "tool": {"flwr": {"app": flower}}}
    (folder / "pyproject.toml").write_text(tomli_w.dumps(project))


def test_two_supernodes_are_clipped_and_accounted_for(tmp_path: Path) -> None:
    write_app(tmp_path / "app", tmp_path / "told.json")
    with loopback(tmp_path, NODES, forked=True) as made:
        made.run(tmp_path / "app")
        made.wait_for("run", "all is told", 600)
    told = json.loads((tmp_path / "told.json").read_text())
    assert told["model"] == pytest.approx([ROUNDS * 0.5, 0, 0], abs=1e-4)  # half a score, clipped to 1, over q K = 2
    assert told["norms"] == [pytest.approx([1.0] * NODES, rel=1e-6)] * ROUNDS, "no longer update left a node"
    assert told["epsilon"] == pytest.approx([epsilon_after(1e-6, 1.0, index, 0.1) for index in (1, 2)])
