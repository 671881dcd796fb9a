"""`fedmerit report --live`: rounds appear as they are kept; killed, finished and second readers; who may ask."""

from __future__ import annotations

import http.client
import json
import shutil
import socket
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from browser_runs import ROUNDS
from helpers import CommandLine, one_line
from opened_report import DESKTOP, PATIENCE

from fedmerit.errors import FolderError
from fedmerit.report.live import MOST_CONNECTIONS, Handler, LivePage, LiveServer, run_state
from fedmerit.store.run_folder import open_ledger
from fedmerit.store.status import STATUS, status_file

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

AXE = Path(__file__).parents[2] / "tools" / "axe" / "node_modules" / "axe-core" / "axe.min.js"
PHONE: dict[str, Any] = {"viewport": {"width": 390, "height": 844}, "is_mobile": True, "has_touch": True}
BY_ROUND = ("rounds", "weights", "evaluations", "rewards", "distances", "audits", "candidates", "observations")


@contextmanager
def served(folder: Path, host: str = "127.0.0.1") -> Iterator[LiveServer]:
    server = LiveServer(host, 0, folder)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


class Growing:
    """A copy of a run whose later rounds are kept back, and come when they are asked for."""

    def __init__(self, run: Path, folder: Path, rounds: int) -> None:
        self.folder, self._whole = shutil.copytree(run, folder), run
        (folder / "model.safetensors").unlink()
        self._db = sqlite3.connect(folder / "ledger.db", isolation_level=None)
        for table in (*BY_ROUND, "events", "chain"):
            self._db.execute(f"DELETE FROM {table} WHERE round > {rounds}")
        self._db.execute("ATTACH ? AS whole", (str(run / "ledger.db"),))

    def play(self, index: int) -> None:
        self._db.execute("BEGIN")
        for table in (*BY_ROUND, "events", "chain"):
            self._db.execute(f"INSERT INTO {table} SELECT * FROM whole.{table} WHERE round = {index}")
        self._db.execute("COMMIT")

    def finish(self) -> None:
        self._db.close()
        shutil.copy(self._whole / "model.safetensors", self.folder)


def opened(browser: Browser, address: str, said: list[str], **context: Any) -> Page:
    made = browser.new_context(**(DESKTOP | context))
    made.set_default_timeout(PATIENCE)
    page = made.new_page()
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.goto(address)
    page.locator("html[data-ready]").wait_for(state="attached")
    return page


def test_rounds_appear_as_they_are_kept(chromium: Browser, runs: Path, tmp_path: Path) -> None:
    growing, said = Growing(runs / "searched", tmp_path / "run", 1), list[str]()
    with served(growing.folder) as server, status_file(growing.folder) as tell:
        tell(2, "train", (0, 3))
        page = opened(chromium, server.address, said)
        page.locator("#now-stage", has_text="Round 2: clients train").wait_for()
        assert page.locator("#now-training li").all_inner_texts() == ["client 0", "client 3"]
        page.locator("#weights-plot").scroll_into_view_if_needed()
        page.locator("#weights-plot .main-svg").first.wait_for()
        for index in (2, 3):
            growing.play(index)
            page.locator(f'html[data-round="{index}"]').wait_for(state="attached")
        assert page.locator("#explain-round").input_value() == "3"  # who looks at the last round stays there
        assert page.locator("#runs-table").inner_text().count("3 of 4") == 1
        page.locator("#explain-round").select_option("1")
        second = opened(chromium, server.address, said, **PHONE)
        growing.play(4)
        for one in (page, second):
            one.locator('html[data-round="4"]').wait_for(state="attached")
        assert page.locator("#explain-round").input_value() == "1"
        assert page.evaluate("document.getElementById('weights-plot').data[0].x") == [1, 2, 3, 4]
        with open_ledger(growing.folder) as ledger:
            tried = [one.weighting for one in ledger.candidates(4)]
        second.locator("#search-table caption", has_text="Round 4").wait_for()
        assert second.locator("#search-table tbody th").all_inner_texts() == tried
        growing.finish()
        (growing.folder / STATUS).unlink()
        page.locator("#now-says", has_text="is finished").wait_for()
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
        assert axe(second) == []
        for one in (page, second):
            one.context.close()
    assert said == []


def axe(page: Page) -> Any:
    if not AXE.is_file():
        return []
    page.evaluate(AXE.read_text())
    return page.evaluate("async () => (await axe.run()).violations.map(({ id, nodes }) => [id, nodes[0].target])")


@pytest.fixture
def run(runs: Path) -> Path:
    return runs / "grouped"


def test_states_are_told_rightly(runs: Path, tmp_path: Path) -> None:
    growing = Growing(runs / "plain-seed1", tmp_path / "run", 2)
    live = LivePage(growing.folder)

    def state() -> dict[str, Any]:
        live.data()
        return run_state(live.runs[0])

    assert state()["state"] == "silent"
    with status_file(growing.folder) as tell:
        tell(3, "train", (1, 2))
        now = state()
        assert (now["state"], now["stage"], now["clients"]) == ("running", "train", (1, 2))
        told = json.loads((growing.folder / STATUS).read_text())
    assert not (growing.folder / STATUS).exists()
    (growing.folder / STATUS).write_text(json.dumps(told | {"started": "1"}))  # a later process of the same number
    assert state()["state"] == "killed"
    with pytest.raises(OSError, match="full"), status_file(growing.folder) as tell:
        raise OSError("the disk is full")
    assert (state()["state"], state()["reason"]) == ("failed", "OSError: the disk is full")
    (growing.folder / STATUS).unlink()
    for index in range(3, ROUNDS + 1):
        growing.play(index)
    growing.finish()
    live._due = 0.0
    assert state()["state"] == "finished"


def test_a_commit_in_the_same_tick_of_the_clock_is_seen(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    growing = Growing(runs / "plain-seed1", tmp_path / "run", 2)
    live, tick = LivePage(growing.folder), time.time_ns() + 10**9
    monkeypatch.setattr("fedmerit.report.live.SETTLED", 10**12)
    monkeypatch.setattr("fedmerit.report.live._stamp", lambda folder: (("ledger.db", tick, 1),))  # same time and size
    assert live.data()["version"] == 1
    growing.play(3)
    live._due = 0.0
    assert live.data()["runs"][0]["played"] == 3


class Reply(NamedTuple):
    status: int
    policy: str | None
    body: bytes


def ask(server: LiveServer, method: str, path: str, host: str | None = None) -> Reply:
    port = server.server_address[1]
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    connection.request(method, path, headers={"Host": host or f"127.0.0.1:{port}"})
    with closing(connection), connection.getresponse() as reply:
        return Reply(reply.status, reply.getheader("Content-Security-Policy"), reply.read())


def test_only_this_machine_reads_and_nobody_writes(run: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in run.rglob("*")}
    with served(run) as server:
        assert ask(server, "GET", "/", "evil.example").status == 403  # a name of a stranger that leads here
        assert [ask(server, method, "/").status for method in ("POST", "PUT", "DELETE")] == [501] * 3
        assert [ask(server, "GET", path).status for path in ("/run/1", "/run/../../etc/passwd", "/x")] == [404] * 3
        page = ask(server, "GET", "/", "localhost:1")
        assert page.status == 200
        assert page.policy == "frame-ancestors 'none'"
        assert b"connect-src 'self'" in page.body
    with served(run, "0.0.0.0") as server:
        assert len(server.token) >= 16
        assert server.token in server.address
        assert ask(server, "GET", "/").status == 403
        assert ask(server, "GET", f"/{server.token}/").status == 200
    assert {path: path.stat().st_mtime_ns for path in run.rglob("*")} == before


def test_silent_connections_are_bounded_and_closed(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Handler, "timeout", 0.5)
    before = threading.active_count()
    with served(run) as server, ExitStack() as stack:
        silent = [stack.enter_context(socket.create_connection(server.server_address)) for _ in range(300)]
        for one in silent[MOST_CONNECTIONS:]:
            one.settimeout(20)
            assert one.recv(1) == b""  # closed by the server
        assert threading.active_count() <= before + 1 + MOST_CONNECTIONS
        for one in silent[:MOST_CONNECTIONS]:
            one.settimeout(20)
            assert one.recv(1) == b""
        assert ask(server, "GET", "/now").status == 200


def test_a_study_without_a_run_is_waited_for(tmp_path: Path) -> None:
    (tmp_path / "study.toml").write_text('seeds = 1\n[[row]]\nname = "a"\n')
    with served(tmp_path) as server:
        assert ask(server, "GET", "/").status == 503
    with pytest.raises(FolderError, match="has no run yet"):
        LivePage(tmp_path).data()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "give one of --out FILE"),
        (("--live", "--out", "page.html"), "give one of --out FILE"),
        (("other", "--live"), "--live shows one run or study; got 2 folders"),
        (("--live",), "no run and no study in"),
    ],
)
def test_mistakes_are_one_line(cli: CommandLine, tmp_path: Path, arguments: tuple[str, ...], message: str) -> None:
    assert message in one_line(cli("report", tmp_path, *arguments))
