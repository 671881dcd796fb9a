"""A secure deployment: strangers are refused, and an app in which Merit took FedAvg's place runs on who is admitted."""

from __future__ import annotations

import importlib.util
import re
import stat
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from flwr.app import Context, RecordDict

from fedmerit.flower import InProcessGrid
from fedmerit.flower.keys import make_certificates, make_node_key
from fedmerit.flower.loopback import loopback

EXAMPLES = Path(__file__).parents[2] / "examples"
CHANGED = re.compile(r"^[+-](?![+-])", re.MULTILINE)


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def quickstart(tmp_path: Path) -> Path:
    """The example's files, as a user has them."""
    folder = tmp_path / "quickstart-app"
    for path in (EXAMPLES / "flower-quickstart").rglob("*"):
        if path.suffix in (".py", ".toml", ".patch"):
            target = folder / path.relative_to(EXAMPLES / "flower-quickstart")
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(path.read_text())
    return folder


def patch(folder: Path) -> None:
    subprocess.run(["git", "apply", "-p0", "merit.patch"], cwd=folder, check=True, env={"GIT_DIR": "/nonexistent"})


def test_strangers_are_refused_and_the_patched_quickstart_runs(tmp_path: Path, quickstart: Path):
    patch(quickstart)
    strangers = load(EXAMPLES / "flower_secure.py").strangers
    with loopback(tmp_path / "link", 2, secure=True) as made:
        ends = strangers(made)
        assert set(ends) == {"unregistered key", "no key", "wrong authority", "plain text"}
        for name, how in ends.items():
            assert how.startswith("refused"), (name, how)
        assert "CERTIFICATE_VERIFY_FAILED" in ends["wrong authority"]
        settings = quickstart / "pyproject.toml"
        settings.write_text(settings.read_text().replace("rounds = 3", "rounds = 2"))  # an exchange takes seconds
        made.run(quickstart)
        made.processes["run"].wait(600)
        said = made.log("run")
    assert re.findall(r"^round (\d): accuracy", said, re.MULTILINE) == ["1", "2"], said[-2000:]
    assert "Recipe: " in said  # the summary names it


def test_the_diff_from_fedavg_to_merit_is_under_ten_lines(quickstart: Path, monkeypatch: pytest.MonkeyPatch):
    assert len(CHANGED.findall((quickstart / "merit.patch").read_text())) < 10
    accuracies = []
    for patched in (False, True):
        if patched:
            patch(quickstart)
        with monkeypatch.context() as changed:
            changed.syspath_prepend(str(quickstart))
            for name in [name for name in sys.modules if name.partition(".")[0] == "quickstart"]:
                changed.delitem(sys.modules, name)
            accuracies.append(play_quickstart())
    assert len(accuracies[0]) == len(accuracies[1]) == 3
    assert accuracies[0] != accuracies[1]  # other weights, another model


def play_quickstart() -> list[str]:
    import io
    from contextlib import redirect_stdout

    from quickstart import client_app, server_app  # type: ignore[import-not-found]

    settings = {"rounds": 3, "lr": 0.1, "epochs": 1}
    context = Context(run_id=1, node_id=1, node_config={}, state=RecordDict(), run_config=settings)
    said = io.StringIO()
    with redirect_stdout(said):
        server_app.main(InProcessGrid(client_app.app, 3, settings), context)
    return said.getvalue().splitlines()


def test_private_keys_are_their_owners_alone(tmp_path: Path):
    certificates, key = make_certificates(tmp_path), make_node_key(tmp_path, "node")
    for path in (certificates.server_key, key.private):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert "PRIVATE" not in certificates.authority.read_text() + key.public.read_text()
    assert key.public.read_text().startswith("ecdsa-sha2-nistp384 ")
