"""A configuration as a Flower app: the folder that flwr takes, and the apps in it, on an in-process grid."""

import tomllib
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest
from flwr.app import Context, Message, RecordDict
from helpers import CommandLine, one_line
from safetensors.numpy import load_file

from fedmerit import Run, run_config
from fedmerit.config.schema import dump_config, load_config, make_config
from fedmerit.errors import RunFailed
from fedmerit.flower import InProcessGrid
from fedmerit.flower.app import TEXT, client, main
from fedmerit.flower.loopback import Loopback
from fedmerit.flower.start import check_app, write_app
from fedmerit.store.ledger import Ledger

TOML = """
[task]
data = "digits"
partition = "dirichlet"
alpha = 1.0
clients = 4
validation = 0.2
[train]
lr = 0.5
[recipe]
name = "device_aware"
criteria = ["LD", "DS"]
normalise = "max"
[run]
rounds = 3
fraction = 1.0
workers = 1
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "config.toml"
    path.write_text(TOML)
    return path


def app_context(config: Path, folder: Path) -> Context:
    write_app(folder / "app", load_config(config), folder / "run")
    settings = tomllib.loads((folder / "app" / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]
    return Context(run_id=1, node_id=1, node_config={}, state=RecordDict(), run_config=settings)


def test_a_configuration_runs_as_a_flower_app(cli: CommandLine, config: Path, tmp_path: Path):
    context = app_context(config, tmp_path)
    assert make_config(tomllib.loads(str(context.run_config[TEXT]))) == load_config(config)
    main(InProcessGrid(client, 4, context.run_config), context)
    ours, theirs = run_config(load_config(config), tmp_path / "local"), Run.load(tmp_path / "run")
    assert np.abs(ours.model - theirs.model).max() < 1e-5  # ten clients train at once on the local fleet: rounding
    for round in (1, 2, 3):
        assert [one.weight for one in ours.explain(round)] == pytest.approx(
            [one.weight for one in theirs.explain(round)]
        )
        assert [one.chosen for one in ours.ledger.candidates(round)] == [
            one.chosen for one in theirs.ledger.candidates(round)
        ]
    assert cli("report", tmp_path / "run", "--text").code == 0


M2F = ("recipe={name='m2f',criteria=['Participation','SimulatedComputation','DataRatio']}", "run.schedule.epochs=[1,3]")
RESET = ("recipe.models.training=reset",)


@pytest.mark.parametrize("changes", [(), M2F, (*M2F, *RESET)], ids=["device_aware", "m2f, keep", "m2f, reset"])
def test_a_server_that_is_started_again_goes_on(
    cli: CommandLine, config: Path, tmp_path: Path, changes: tuple[str, ...]
):
    """In a new run of Flower, in which nodes have lost all that they kept."""
    config.write_text(dump_config(load_config(config, changes)))
    whole = app_context(config, tmp_path)
    main(InProcessGrid(client, 4, whole.run_config), whole)
    (tmp_path / "second").mkdir()
    context = app_context(config, tmp_path / "second")
    with pytest.raises(ConnectionError):
        main(Dying(client, 4, context.run_config), context)
    assert 0 < Ledger.open(tmp_path / "second" / "run" / "ledger.db").last_round() < 3
    main(InProcessGrid(client, 4, context.run_config), context)
    runs = [Run.load(tmp_path / "run"), Run.load(tmp_path / "second" / "run")]
    assert runs[0].model.tobytes() == runs[1].model.tobytes()
    assert [row["round"] for row in runs[1].ledger.rounds()] == [1, 2, 3]
    assert runs[0].local_accuracy.tolist() == runs[1].local_accuracy.tolist()
    own = [sorted((folder / "run" / "personal").glob("*")) for folder in (tmp_path, tmp_path / "second")]
    assert len(own[0]) == len(own[1]) == (4 if changes else 0)
    for one, two in zip(own[0], own[1], strict=True):
        assert np.array_equal(load_file(one)["model"], load_file(two)["model"])


class Dying(InProcessGrid):
    """A connection that goes when the last round is evaluated."""

    asked = 0

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        messages = list(messages)
        self.asked += messages[0].metadata.message_type == "train"
        if self.asked == 3 and messages[0].metadata.message_type == "evaluate":
            raise ConnectionError("the SuperLink is gone")
        return super().push_messages(messages)


MISTAKES = {
    "no way": ((), "give one of"),
    "a node": (("--simulation", "--node", "a=b"), "--node goes with --loopback"),
    "value": (("--loopback", "--set", "train.lr=-1"), "train.lr"),
    "an address": (("--superlink", "127.0.0.1:1"), "name of a connection"),
    "no kit": (("--kit", "."), "is not a kit"),
}


@pytest.mark.parametrize("named", [(), ("run",)], ids=["without run", "run"])
@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_one_line(cli: CommandLine, config: Path, mistake: str, named: tuple[str, ...]):
    options, says = MISTAKES[mistake]
    assert says in one_line(cli("flower", *named, config, *options))


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (("run.device=cuda",), "Flower nodes train on CPUs"),
        (("recipe={name='ditto'}",), "do not run on Flower"),
        (("recipe={name='fedval',criteria=['validated:accuracy']}",), "server"),
        (("task.classes=3",), "task.classes"),
    ],
)
def test_a_configuration_is_checked_before_it_is_sent(
    changes: tuple[str, ...], says: str, cli: CommandLine, config: Path
):
    options = [word for change in changes for word in ("--set", change)]
    assert says in one_line(cli("flower", config, "--superlink", "somewhere", *options))


def test_data_that_only_the_server_has_is_said_and_not_an_error(tmp_path: Path):
    nodes = {"names": ["a", "b"], "classes": 2, "columns": [2]}
    said = list[str]()
    check_app(
        make_config({"task": {"data": "nodes", "server": str(tmp_path / "none.npz"), "nodes": nodes}}), said.append
    )
    assert len(said) == 1
    assert "is not on this machine" in said[0]


def test_a_missing_file_is_named(cli: CommandLine, tmp_path: Path):
    assert "no configuration file" in one_line(cli("flower", tmp_path / "none.toml", "--loopback"))


def test_a_process_that_is_started_again_is_waited_for_anew(tmp_path: Path):
    made = Loopback(tmp_path)
    try:
        made.start("python", "python", "-c", "print('ready', flush=True); input()")
        made.wait_for("python", "ready")
        made.kill("python")
        made.start("python", "python", "-c", "pass")
        with pytest.raises(RunFailed, match="did not log 'ready'"):
            made.wait_for("python", "ready", 30)
    finally:
        made.end()


def test_a_table_is_found_from_any_folder_and_gives_the_same_run(
    cli: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    lines = [f"{'north' if row % 3 else 'south'},{row % 7},{row % 2}" for row in range(60)]
    (tmp_path / "t.csv").write_text("\n".join(["site,v,ill", *lines]))
    text = (
        '[task]\ndata = "table:t.csv"\nclient = "site"\nlabel = "ill"\n[run]\nrounds = 2\nfraction = 1.0\nworkers = 1'
    )
    (tmp_path / "table.toml").write_text(text)
    monkeypatch.chdir(tmp_path)
    context = app_context(tmp_path / "table.toml", tmp_path)
    local = run_config(load_config(tmp_path / "table.toml"), tmp_path / "local")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    main(InProcessGrid(client, 2, context.run_config), context)
    assert np.allclose(Run.load(tmp_path / "run").model, local.model, atol=1e-6)
    assert "data" in {event.kind for event in Run.load(tmp_path / "run").events()}
