"""A secure deployment: strangers are refused, and an app in which Merit took FedAvg's place runs on who is admitted."""

import importlib
import importlib.util
import json
import re
import runpy
import sqlite3
import stat
import subprocess
import sys
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from flwr.app import Context, RecordDict
from flwr.common.constant import ACCESS_TOKEN_KEY
from flwr.supercore import sql_mixin
from flwr.supercore.corestate import in_memory_corestate, sql_corestate

from fedmerit.engine.logs import VARIABLE, JsonLines, start_logs
from fedmerit.errors import ConfigError, FolderError
from fedmerit.flower import InProcessGrid
from fedmerit.flower.keys import (
    make_authority,
    make_node_key,
    make_operator_key,
    sign_server,
    valid_until,
)
from fedmerit.flower.loopback import loopback
from fedmerit.flower.superlink import (
    HEARTBEAT_SECONDS,
    KEY_OPTION,
    main,
    patient_superlink,
    plugin_for,
    read_operator_key,
)
from fedmerit.report.doctor import check_superlink

EXAMPLES = Path(__file__).parents[2] / "examples"
CHANGED = re.compile(r"^[+-](?![+-])", re.MULTILINE)


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


def certified(folder: Path) -> None:
    make_authority(folder)
    sign_server(folder, folder)


def patch(folder: Path) -> None:
    subprocess.run(["git", "apply", "-p0", "merit.patch"], cwd=folder, check=True, env={"GIT_DIR": "/nonexistent"})


def test_strangers_are_refused_and_the_patched_quickstart_runs(tmp_path: Path, quickstart: Path):
    patch(quickstart)
    example = runpy.run_path(str(EXAMPLES / "flower_secure.py"))
    with loopback(tmp_path / "link", 2, secure=True, forked=True) as made:
        assert check_superlink(made.address, made.server.folder / "ca.crt").status == "ok"
        make_authority(tmp_path / "b")
        for authority, why in ((None, "plain text"), (tmp_path / "b" / "ca.crt", "CERTIFICATE_VERIFY")):
            found = check_superlink(made.address, authority)
            assert (found.status, why in found.text) == ("failed", True), found
        keyless = example["without_the_key"](made)
        assert set(keyless) == {"a run", "a node of his", "the list of runs", "ServerApps of ours"}
        assert set(keyless.values()) == {"refused"}
        listed = json.loads(made.call("flwr", "list", "here", "--format", "json"))
        assert listed["runs"] == []  # nothing was begun, and who has the key may look
        ends = example["strangers"](made)
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


def test_the_diff_from_fedavg_to_merit_is_under_ten_lines(
    quickstart: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    assert len(CHANGED.findall((quickstart / "merit.patch").read_text())) < 10
    accuracies = []
    for patched in (False, True):
        if patched:
            patch(quickstart)
        with monkeypatch.context() as changed:
            changed.syspath_prepend(str(quickstart))
            for name in [name for name in sys.modules if name.partition(".")[0] == "quickstart"]:
                changed.delitem(sys.modules, name)
            accuracies.append(play_quickstart(capsys))
    assert len(accuracies[0]) == len(accuracies[1]) == 3
    assert accuracies[0] != accuracies[1]  # other weights, another model


def play_quickstart(capsys: pytest.CaptureFixture[str]) -> list[str]:
    from quickstart import client_app, server_app  # type: ignore[import-not-found]

    settings = {"rounds": 3, "lr": 0.1, "epochs": 1}
    context = Context(run_id=1, node_id=1, node_config={}, state=RecordDict(), run_config=settings)
    server_app.main(InProcessGrid(client_app.app, 3, settings), context)
    return capsys.readouterr().out.splitlines()


def test_only_the_whole_key_is_let_in(tmp_path: Path):
    make_operator_key(tmp_path / "operator.key")
    key = read_operator_key(tmp_path / "operator.key")
    plugin = plugin_for(key)()
    for given in ("", key[:-1], key + "0", key.swapcase() + "a"):
        assert plugin.validate_tokens_in_metadata([(ACCESS_TOKEN_KEY, given)]) == (False, None)
    assert plugin.validate_tokens_in_metadata([]) == (False, None)
    admitted, account = plugin.validate_tokens_in_metadata([(ACCESS_TOKEN_KEY, key)])
    assert admitted
    assert account is not None
    with pytest.raises(FolderError, match="never overwritten"):
        make_operator_key(tmp_path / "operator.key")


@pytest.mark.parametrize(
    ("content", "mode", "words"),
    [
        (b"short", 0o600, "at least 32"),
        (b"a" * 40 + b"\n", 0o600, "without a line break"),
        (b"a" * 600, 0o600, "512"),
        (b"\xff" * 40, 0o600, "letters and digits"),
        (b"a" * 40, 0o644, "chmod 600"),
    ],
)
def test_keys_that_are_none_or_lie_open_are_refused(content: bytes, mode: int, words: str, tmp_path: Path):
    path = tmp_path / "operator.key"
    path.write_bytes(content)
    path.chmod(mode)
    with pytest.raises(ConfigError, match=words):
        read_operator_key(path)


def test_a_superlink_that_would_ask_for_nothing_does_not_start(tmp_path: Path):
    make_operator_key(tmp_path / "operator.key")
    for options in ([], [KEY_OPTION, str(tmp_path / "operator.key")], ["--isolation", "process"]):
        with pytest.raises(ConfigError, match="--isolation process"):
            main(options)


def test_our_superlink_waits_for_its_database_and_for_serverapps(monkeypatch: pytest.MonkeyPatch):
    for module, name in (
        (sql_mixin, "SQLITE_PRAGMAS"),
        (sql_corestate, "HEARTBEAT_DEFAULT_INTERVAL"),
        (in_memory_corestate, "HEARTBEAT_DEFAULT_INTERVAL"),
    ):
        monkeypatch.setattr(module, name, getattr(module, name))  # as they were, when this test ends
    begun, module = list[int](), importlib.import_module("flwr.superlink.cli.flower_superlink")
    monkeypatch.setattr(module, "get_uvicorn_log_config", module.get_uvicorn_log_config)
    monkeypatch.setattr(start_logs.__module__ + ".LOGGERS", ())  # the loggers of this process stay
    monkeypatch.setenv(VARIABLE, "json")
    monkeypatch.setattr("flwr.superlink.cli.flower_superlink", lambda: begun.append(1))
    patient_superlink()
    assert begun == [1]
    assert {one["()"] for one in module.get_uvicorn_log_config(20)["formatters"].values()} == {JsonLines}
    with closing(sqlite3.connect(":memory:")) as connection:
        sql_mixin._set_sqlite_pragmas(connection, None)
        assert connection.execute("PRAGMA busy_timeout").fetchone() == (60_000,)
    assert vars(sql_corestate)["HEARTBEAT_DEFAULT_INTERVAL"] == HEARTBEAT_SECONDS


def test_private_keys_are_their_owners_alone(tmp_path: Path):
    certified(tmp_path)
    key = make_node_key(tmp_path, "node")
    for path in (tmp_path / "server.key", key):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    public = (tmp_path / "node.pub").read_text()
    assert "PRIVATE" not in (tmp_path / "ca.crt").read_text() + public
    assert public.startswith("ecdsa-sha2-nistp384 ")


def test_a_key_is_not_written_over_nor_through_a_link(tmp_path: Path):
    key = make_node_key(tmp_path, "node")
    before = key.read_bytes()
    with pytest.raises(FolderError, match="keys are never overwritten"):
        make_node_key(tmp_path, "node")
    assert key.read_bytes() == before
    target = tmp_path / "target"
    (tmp_path / "linked").symlink_to(target)
    with pytest.raises(FolderError, match="keys are never overwritten"):
        make_node_key(tmp_path, "linked")
    assert not target.exists()
    certified(tmp_path)
    with pytest.raises(FolderError):
        make_authority(tmp_path)


def test_the_servers_certificate_is_renewed_and_nodes_keep_their_authority(tmp_path: Path):
    certified(tmp_path)
    names = ["ca.crt", "ca.key", "server.key", "server.pem"]
    before = {name: (tmp_path / name).read_bytes() for name in names}
    ends = sign_server(tmp_path, tmp_path)
    changed = [name for name in names if (tmp_path / name).read_bytes() != before[name]]
    assert changed == ["server.key", "server.pem"]
    assert {stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("ca.key", "server.key")} == {0o600}
    assert valid_until(tmp_path / "server.pem") == ends > datetime.now(UTC) + timedelta(days=80)
    assert valid_until(tmp_path / "ca.crt") > datetime.now(UTC) + timedelta(days=1000)
    issuer = x509.load_pem_x509_certificate(before["ca.crt"])
    x509.load_pem_x509_certificate((tmp_path / "server.pem").read_bytes()).verify_directly_issued_by(issuer)
    assert sorted(path.name for path in tmp_path.iterdir()) == names
    with pytest.raises(FolderError, match="cannot sign a certificate"):
        sign_server(tmp_path / "elsewhere", tmp_path)
