"""A folder that `flwr run` takes: a configuration of ours as a Flower app."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

import tomli_w

from fedmerit.config.own import is_own
from fedmerit.config.schema import Config, dump_config
from fedmerit.config.task import TABLE
from fedmerit.errors import FolderError

README = """# A Flower app made by fedmerit

    flwr run . SUPERLINK --stream

runs the configuration that stands in pyproject.toml under [tool.flwr.app.config] on the SuperNodes of that SuperLink.
Each SuperNode is one client. With task.data = "nodes" it has rows of its own: start it with
--node-config "data='FILE' name='NAME'". Otherwise the task is simulated: start it with
--node-config "partition-id=I num-partitions=N", and with FEDMERIT_DATA set where the task needs it. The run's
ledger, checkpoints and model go to the folder `out` on the ServerApp's machine.
"""


def write_app(folder: Path, config: Config, out: Path, enrolled: Path | None = None, log: Sequence[str] = ()) -> None:
    """The folder with pyproject.toml and README.md."""
    if folder.exists():
        raise FolderError(f"{folder} exists; give a new folder for the app")
    folder.mkdir(parents=True)
    (folder / "README.md").write_text(README, encoding="utf-8")
    (folder / "pyproject.toml").write_text(
        tomli_w.dumps(project(config, out, enrolled, log), multiline_strings=True), encoding="utf-8"
    )


def located(config: Config) -> Config:
    """With the whole path of a table, and of the server's own rows: Flower's processes run in folders of their own."""
    nodes, update = config.task.nodes, dict[str, object]()
    if config.task.data.startswith(TABLE):
        update["data"] = f"{TABLE}{_whole(config.task.data.removeprefix(TABLE))}"
    if nodes is not None and nodes.server and not is_own(nodes.server):
        update["nodes"] = nodes.model_copy(update={"server": str(_whole(nodes.server))})
    return config.model_copy(update={"task": config.task.model_copy(update=update)}) if update else config


def _whole(path: str) -> Path:
    return Path(path).expanduser().absolute()


def project(config: Config, out: Path, enrolled: Path | None = None, log: Sequence[str] = ()) -> dict[str, object]:
    """pyproject.toml of the app; `enrolled` is the file on the server's machine that says whose key is which client.

    `log` names the sinks of the ServerApp.
    """
    components = {"serverapp": "fedmerit.flower.app:server", "clientapp": "fedmerit.flower.node:client"}
    settings = {
        "out": str(out.absolute()),
        "timeout": 600.0,
        "patience": 120.0,
        "fedmerit": dump_config(located(config)),
        **({} if enrolled is None else {"enrolled": str(enrolled.absolute())}),
        **({"log": "\n".join(log)} if log else {}),
    }
    return {
        "build-system": {"requires": ["hatchling"], "build-backend": "hatchling.build"},
        "project": {
            "name": "fedmerit-app",
            "version": "1.0.0",
            "description": "a federation of fedmerit",
            "license": "Apache-2.0",
            "dependencies": [f"fedmerit[torch,data,flower]=={version('fedmerit')}"],
        },
        "tool": {"flwr": {"app": {"publisher": "fedmerit", "components": components, "config": settings}}},
    }
