"""`fedmerit watch` in a browser: rounds appear as they are kept; killed, finished and second readers; who may ask."""

from __future__ import annotations

import http.client
import json
import shutil
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from browser_runs import ROUNDS
from opened_report import DESKTOP, PATIENCE

from fedmerit.errors import FolderError
from fedmerit.report.live import LiveRun
from fedmerit.report.live_view import View, piece
from fedmerit.report.run_detail import run_detail
from fedmerit.report.watch import Watched, WatchServer
from fedmerit.store.run_folder import open_ledger
from fedmerit.store.status import STATUS, status_file

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

AXE = Path(__file__).parents[2] / "tools" / "axe" / "node_modules" / "axe-core" / "axe.min.js"
PHONE: dict[str, Any] = {"viewport": {"width": 390, "height": 844}, "is_mobile": True, "has_touch": True}
BY_ROUND = ("rounds", "weights", "evaluations", "rewards", "distances", "audits", "candidates", "observations")


@contextmanager
def served(folder: Path, host: str = "127.0.0.1") -> Iterator[WatchServer]:
    server = WatchServer(host, 0, Watched(folder))
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    yield server
    server.closing = True
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


def test_an_index_lists_what_a_folder_holds_and_is_searched(chromium: Browser, runs: Path) -> None:
    said: list[str] = []
    with served(runs) as server:
        made = chromium.new_context(**DESKTOP)
        made.set_default_timeout(PATIENCE)
        page = made.new_page()
        page.on("console", lambda message: said.append(message.text))
        page.goto(server.address)
        page.locator("#list tbody tr").nth(5).wait_for()
        page.locator("#search-box").fill("plain seed2")
        assert page.locator("#list tbody th").all_inner_texts() == ["plain-seed2"]
        assert "finished" in page.locator("#list tbody tr").inner_text()
        assert axe(page) == []
        made.close()
    assert said == []


@pytest.fixture
def run(runs: Path) -> Path:
    return runs / "grouped"


def test_pieces_come_to_the_whole(runs: Path, tmp_path: Path) -> None:
    for name in ("grouped", "audited"):
        growing = Growing(runs / name, tmp_path / name, 2)
        view, live = View(growing.folder), LiveRun(growing.folder)
        before, _ = view.look()
        live.refresh()
        half = live.detail(0, "", sums=True)
        for index in (3, 4):
            growing.play(index)
        view._looked = 0.0
        after, _ = view.look()
        (_, told), *_ = piece(before, after)["rows"]
        assert told["curve"]["from"] == 2  # new points alone
        assert told["curve"]["round"] == [3, 4]
        more = live.detail(2, half["rounds"]["hash"][1], sums=False)
        assert (more["after"], more["rounds"]["round"]) == (2, [3, 4])
        assert live.detail(2, "another", sums=False)["after"] == 0  # a round that changed: all of it
        with open_ledger(runs / name) as ledger:
            whole = run_detail(ledger, ledger.rounds())
        for column in ("weight", "score", "ids"):
            assert half["rounds"][column] + more["rounds"][column] == whole["rounds"][column]
        assert more["lineages"] == whole["lineages"]


def test_states_are_told_rightly(runs: Path, tmp_path: Path) -> None:
    growing = Growing(runs / "plain-seed1", tmp_path / "run", 2)
    live = LiveRun(growing.folder)
    live.refresh()
    assert live.now()["state"] == "silent"
    with status_file(growing.folder) as tell:
        tell(3, "train", (1, 2))
        now = live.now()
        assert (now["state"], now["stage"], now["clients"], now["played"]) == ("running", "train", [1, 2], 2)
        told = json.loads((growing.folder / STATUS).read_text())
    assert not (growing.folder / STATUS).exists()
    (growing.folder / STATUS).write_text(json.dumps(told | {"started": "1"}))  # a later process of the same number
    assert live.now()["state"] == "killed"
    with pytest.raises(OSError, match="full"), status_file(growing.folder) as tell:
        raise OSError("the disk is full")
    assert (live.now()["state"], live.now()["reason"]) == ("failed", "OSError: the disk is full")
    (growing.folder / STATUS).unlink()
    for index in range(3, ROUNDS + 1):
        growing.play(index)
    growing.finish()
    live.refresh()
    assert live.now()["state"] == "finished"


def test_a_commit_in_the_same_tick_of_the_clock_is_seen(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    growing = Growing(runs / "plain-seed1", tmp_path / "run", 2)
    live, tick = LiveRun(growing.folder), time.time_ns() + 10**9
    monkeypatch.setattr("fedmerit.report.live.SETTLED", 10**12)
    monkeypatch.setattr("fedmerit.report.live._stat", lambda path: (tick, 1))  # SQLite writes over its log: same size
    assert live.refresh()
    growing.play(3)
    assert live.refresh()
    assert live.rounds[-1]["round"] == 3


class Reply(NamedTuple):
    status: int
    policy: str | None
    body: bytes


def ask(server: WatchServer, method: str, path: str, host: str | None = None) -> Reply:
    port = server.server_address[1]
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    connection.request(method, path, headers={"Host": host or f"127.0.0.1:{port}"})
    with closing(connection), connection.getresponse() as reply:
        return Reply(reply.status, reply.getheader("Content-Security-Policy"), reply.read())


def test_only_this_machine_reads_and_nobody_writes(run: Path, tmp_path: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in run.rglob("*")}
    with served(run) as server:
        assert ask(server, "GET", "/", "evil.example").status == 403  # a name of a stranger that leads here
        assert ask(server, "GET", "/", "localhost:1").status == 302
        assert [ask(server, method, "/").status for method in ("POST", "PUT", "DELETE")] == [501] * 3
        assert ask(server, "GET", "/view/../../etc/passwd").status == 404
        page = ask(server, "GET", f"/view/{server.watched.alone}/")
        assert page.status == 200
        assert page.policy == "frame-ancestors 'none'"
        assert b"connect-src 'self'" in page.body
    with served(run, "0.0.0.0") as server:
        assert len(server.token) >= 16
        assert server.token in server.address
        assert ask(server, "GET", "/").status == 403
        assert ask(server, "GET", f"/{server.token}/").status == 302
    assert {path: path.stat().st_mtime_ns for path in run.rglob("*")} == before
    with pytest.raises(FolderError, match="no run and no study"):
        Watched(tmp_path)
