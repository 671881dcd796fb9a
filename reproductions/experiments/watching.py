"""`fedmerit watch` beside a run, in Chromium: how soon, how large, at what price. Writes docs/results/watch.md.

python -m reproductions.experiments.watching [DIR]  # needs Chromium; ten minutes; DIR keeps parts that are measured
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from threading import Event, Thread
from typing import Any

import numpy as np
from playwright.sync_api import Browser, Page, sync_playwright
from scipy import stats

from fedmerit import load_config, resume, run_config
from fedmerit.core.state import Record
from fedmerit.store.run_folder import environment
from fedmerit.store.status import status_file
from reproductions.experiments.large_ledger import CLIENTS, DRAWN, ROUNDS, made_rounds, start_run

PAGE = Path(__file__).parents[2] / "docs" / "results" / "watch.md"
PLAYED = ("task.clients=50", "run.fraction=0.2", "run.workers=1")
QUICK, SLOW = ("run.rounds=40", "train.epochs=50"), ("run.rounds=12", "train.epochs=1000")
"""Rounds of hundredths of a second, and of one."""
LIVE, PAIRS, PAUSE = 12, 4, 0.5
"""Rounds of the large run that come while the page is open; runs of each kind that are compared; seconds between
rounds where delays are measured, since digits take only hundredths of them."""
ALONE, READ, SHOWN = "nobody watches", "`watch`, a reader without a browser", "`watch`, Chromium on the same cores"
OBSERVE = """
window.seen = [];
const look = () => {
  const about = document.documentElement.dataset;
  const told = [Number(about.round), Number(about.updated)];
  requestAnimationFrame(() => setTimeout(() => window.seen.push([...told, Date.now()])));
};
new MutationObserver(look).observe(document, { attributes: true, subtree: true, attributeFilter: ["data-updated"] });
"""
"""Each update: the last round shown, the milliseconds that the page took, and when the frame with it was painted."""
SAYS = "\n## What it says\n"
HEAD = """\
# `fedmerit watch`: how soon, how large, at what price

    .venv/bin/python -m reproductions.experiments.watching

Headless Chromium {version}, no graphics card, on {cores} cores ({cpu}, {instructions}), which run, server and browser
share. "Painted" is the first frame after the page has shown a round.

"""


def main(kept: Path) -> None:
    """Measure what is not in the folder yet, a part after the other, then write the page."""
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None:
        raise SystemExit("no chromium: apt-get install chromium")
    kept.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path)
        head = HEAD.format(version=browser.version, **environment())
        for part in PARTS:
            if not (kept / f"{part.__name__}.md").exists():
                (kept / f"{part.__name__}.md").write_text(part(browser, Path(scratch)), encoding="utf-8")
        browser.close()
    parts = [(kept / f"{part.__name__}.md").read_text(encoding="utf-8") for part in PARTS]
    told = PAGE.read_text(encoding="utf-8").partition(SAYS)[2] if PAGE.exists() else ""  # people's words stay
    PAGE.write_text(head + "\n".join(parts) + SAYS + told, encoding="utf-8")


def play(folder: Path, kept: Path, pause: float, settings: Sequence[str]) -> None:
    """A real run in a process of its own, which waits after its first round until readers are there.

    Keeps when each round was committed, and the seconds of CPU and wall since.
    """
    stamps: list[float] = []
    begun = [0.0, 0.0]

    def on_record(record: Record) -> None:
        stamps.append(time.time())
        if len(stamps) == 1:
            until(kept.with_suffix(".go").exists)
            begun[:] = time.process_time(), time.perf_counter()
        time.sleep(pause)

    if folder.exists():
        resume(folder, on_record=on_record).ledger.close()
    else:
        run_config(load_config(None, [*PLAYED, *settings]), folder, on_record).ledger.close()
    took = {"cpu": time.process_time() - begun[0], "wall": time.perf_counter() - begun[1], "stamps": stamps}
    kept.write_text(json.dumps(took), encoding="utf-8")


def started(folder: Path, kept: Path, pause: float, settings: Sequence[str] = QUICK) -> subprocess.Popen[bytes]:
    """The process of such a run, once its ledger is there."""
    play = [sys.executable, "-m", "reproductions.experiments.watching", "play"]
    process = subprocess.Popen([*play, str(folder), str(kept), str(pause), *settings])
    until((folder / "ledger.db").exists)
    return process


@contextmanager
def watched(folder: Path) -> Iterator[str]:
    """The command itself, in a process of its own: its link."""
    command = [str(Path(sys.executable).parent / "fedmerit"), "watch", str(folder), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().split()[-1]
        finally:
            process.terminate()


def opened(browser: Browser, link: str, width: int = 1280, height: int = 900) -> Page:
    """The page, ready, with all charts drawn that there are."""
    page = browser.new_page(viewport={"width": width, "height": height})
    page.set_default_timeout(400_000)
    page.add_init_script(OBSERVE)
    page.goto(link)
    page.locator("html[data-ready]").wait_for(state="attached")
    page.evaluate("document.getElementById('weights-plot').scrollIntoView()")
    return page


def until(holds: Callable[[], bool], seconds: float = 400.0) -> float:
    """Wait until something holds: the seconds that took."""
    begin = time.perf_counter()
    while not holds():
        if time.perf_counter() - begin > seconds:
            raise SystemExit("it did not come")
        time.sleep(0.01)
    return time.perf_counter() - begin


def delays(page: Page, stamps: Sequence[float], first: int) -> list[float]:
    """For each round that came after one: the milliseconds from its commit to the first frame that shows it."""
    seen = page.evaluate("window.seen")
    found = []
    for index, stamp in enumerate(stamps, 1):
        painted = [at for shown, _, at in seen if shown >= index]
        if index > first and painted:
            found.append(painted[0] - 1000 * stamp)
    return found


def spread(values: Sequence[float], digits: int = 0) -> str:
    """Median, and the least and the largest."""
    return f"{median(values):,.{digits}f} ({min(values):,.{digits}f} to {max(values):,.{digits}f})"


def soon(browser: Browser, scratch: Path) -> str:
    """A real run, watched by two at once."""
    folder, kept = scratch / "soon", scratch / "soon.json"
    process = started(folder, kept, PAUSE)
    with watched(folder) as link:
        pages = [opened(browser, link), opened(browser, link, 390, 844)]
        kept.with_suffix(".go").touch()
        process.wait()
        for page in pages:
            page.locator("#now-says", has_text="is finished").wait_for()
            page.wait_for_timeout(500)
        stamps = json.loads(kept.read_text())["stamps"]
        lines = [
            f"| {name} | {len(found)} | {spread(found)} | {sum(one > 1000 for one in found)} |"
            for name, page in zip(("desktop", "phone"), pages, strict=True)
            for found in [delays(page, stamps, 1)]
        ]
        for page in pages:
            page.close()
    between = median(np.diff(stamps).tolist())
    return "\n".join(
        [
            "## How soon: a real run, two readers at once\n",
            f"Digits, 10 of 50 clients a round, {len(stamps)} rounds, one every {between:.2f} s. Milliseconds from",
            "a round's commit to its being painted: median (least to largest).\n",
            "| window | rounds | milliseconds | of these later than 1 s |",
            "| --- | ---: | ---: | ---: |",
            *lines,
            "",
        ]
    )


def large(browser: Browser, scratch: Path) -> str:
    """The last rounds of a large run come while the page is open."""
    lines = [one_large(browser, scratch / f"large{drawn}", drawn) for drawn in DRAWN]
    return "\n".join(
        [
            f"## How large: {CLIENTS:,} clients x {ROUNDS} rounds\n",
            f"The ledger of [report.md](report.md); its last {LIVE} rounds come while the page is open, one a second.",
            "Milliseconds: per update, as the page itself counts them (data at hand to tables and text shown); CPU of",
            "the page's main thread per round, with all charts; from commit to painted. MB: the page's JavaScript",
            "after collecting garbage; its process (unshared pages). Charts of a run of this size follow every few",
            "seconds: each rests ten times as long as it took to draw.\n",
            "| clients a round | update | main thread | commit to painted | JavaScript | process |",
            "| ---: | ---: | ---: | ---: | ---: | ---: |",
            *lines,
            "",
        ]
    )


def one_large(browser: Browser, folder: Path, drawn: int) -> str:
    """A row of the table."""
    with start_run(folder) as ledger, status_file(folder) as tell:
        rounds = made_rounds(drawn)
        for _ in range(ROUNDS - LIVE):
            ledger.append(next(rounds))
        with watched(folder) as link:
            before = set(renderers())
            page = opened(browser, link)
            page.wait_for_timeout(3000)
            devtools = page.context.new_cdp_session(page)
            devtools.send("Performance.enable", {"timeDomain": "threadTicks"})
            busy = metric(devtools, "TaskDuration")
            page.evaluate("window.seen.length = 0")
            stamps = [0.0] * (ROUNDS - LIVE)
            for record in rounds:
                tell(record.index, "train", record.ids[:10])
                ledger.append(record)
                stamps.append(time.time())
                page.locator(f'html[data-round="{record.index}"]').wait_for(state="attached")
                page.wait_for_timeout(1000)
            busy = 1000 * (metric(devtools, "TaskDuration") - busy) / LIVE
            updates = [float(took) for _, took, _ in page.evaluate("window.seen")]
            painted = delays(page, stamps, ROUNDS - LIVE)
            devtools.send("HeapProfiler.collectGarbage")
            heap = metric(devtools, "JSHeapUsedSize") / 1e6
            process = max(private(pid) for pid in renderers() if pid not in before) / 1e6
            page.close()
    return f"| {drawn:,} | {spread(updates)} | {busy:.0f} | {spread(painted)} | {heap:.0f} | {process:.0f} |"


def metric(devtools: Any, name: str) -> float:
    """One of the browser's own counts."""
    found = devtools.send("Performance.getMetrics")["metrics"]
    return float(next(one["value"] for one in found if one["name"] == name))


def renderers() -> list[int]:
    """The processes of pages."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if b"--type=renderer" in path.read_bytes():
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


def private(pid: int) -> int:
    """Bytes of a process that it shares with no other."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(1024 * int(line.split()[1]) for line in lines if line.startswith("Private_"))


def price(browser: Browser, scratch: Path) -> str:
    """The same run with nobody, with a reader and with a browser, in turns."""
    took: dict[str, list[dict[str, float]]] = {ALONE: [], READ: [], SHOWN: []}
    for turn in range(PAIRS):
        for kind in [*took][:: 1 if turn % 2 else -1]:
            folder = scratch / f"{turn}-{[*took].index(kind)}"
            kept = folder.with_suffix(".json")
            process = started(folder, kept, 0.0, SLOW)
            with followed(browser, folder, kind):
                kept.with_suffix(".go").touch()
                process.wait()
            took[kind].append(json.loads(kept.read_text()))
    lines = [price_row(kind, runs, took[ALONE]) for kind, runs in took.items()]
    return "\n".join(
        [
            "## At what price: the same run, watched and not\n",
            f"The same clients with 1,000 epochs, 12 rounds, {PAIRS} times each, in turns. Seconds of its process",
            "after its first round: median (least to largest); ratios are of the turns' pairs, with the 95 % interval",
            "of their mean (t).\n",
            "| | CPU seconds | wall seconds | CPU, watched / not | wall, watched / not |",
            "| --- | ---: | ---: | ---: | ---: |",
            *lines,
            "",
        ]
    )


@contextmanager
def followed(browser: Browser, folder: Path, kind: str) -> Iterator[None]:
    """Somebody looks, or nobody does."""
    if kind == ALONE:
        yield
        return
    with watched(folder) as link:
        if kind == SHOWN:
            page = opened(browser, link)
            yield
            page.close()
            return
        done = Event()
        reader = Thread(target=read, args=(link, done))
        reader.start()
        yield
        done.set()
        reader.join()


def read(link: str, done: Event) -> None:
    """What the page asks for, without the page: the stream, and the detail of new rounds."""
    with urllib.request.urlopen(link) as page:
        place = page.geturl()
    after, known = 0, ""
    with urllib.request.urlopen(f"{place}events", timeout=60) as stream:
        for line in stream:
            if done.is_set():
                return
            if line.startswith(b"data: ") and b'"runs"' in line:
                with urllib.request.urlopen(f"{place}run/0?after={after}&hash={known}&sums=0") as reply:
                    rounds = json.load(reply)["rounds"]
                after, known = (rounds["round"] or [0])[-1], (rounds["hash"] or [""])[-1]


def price_row(kind: str, runs: Sequence[dict[str, float]], alone: Sequence[dict[str, float]]) -> str:
    """A row of the table."""
    cells = [spread([one[key] for one in runs], 2) for key in ("cpu", "wall")]
    for key in ("cpu", "wall"):
        ratios = np.array([one[key] / other[key] for one, other in zip(runs, alone, strict=True)])
        half = stats.t.ppf(0.975, len(ratios) - 1) * ratios.std(ddof=1) / np.sqrt(len(ratios))
        cells.append("" if kind == ALONE else f"{ratios.mean():.3f} ± {half:.3f}")
    return f"| {kind} | {' | '.join(cells)} |"


def states(browser: Browser, scratch: Path) -> str:
    """A run is killed, resumed and comes to its end, under the eyes of two."""
    folder, kept = scratch / "states", scratch / "states.json"
    said: list[tuple[str, float, list[str]]] = []
    process = started(folder, kept, PAUSE)
    with watched(folder) as link:
        pages = [opened(browser, link), opened(browser, link, 390, 844)]

        def told(what: str, text: str) -> None:
            begin = time.perf_counter()
            for page in pages:
                page.locator("#now-says", has_text=text).wait_for()
            took = time.perf_counter() - begin
            said.append((what, took, [page.locator("#now-says").inner_text() for page in pages]))

        kept.with_suffix(".go").touch()
        told("it runs", "states runs")
        until(lambda: int(pages[0].evaluate("document.documentElement.dataset.round ?? 0")) > 5)
        process.kill()
        process.wait()
        told("kill -9", "was killed")
        process = started(folder, kept, PAUSE)
        told("resumed", "states runs")
        process.wait()
        told("ended", "is finished")
        third = opened(browser, link)
        pages.append(third)
        told("opened after the end", "is finished")
        for page in pages:
            page.close()
    lines = [f"| {what} | {took:.1f} | {one_voice(texts)} |" for what, took, texts in said]
    return "\n".join(
        [
            "## Killed, resumed, finished: what two readers are told\n",
            "Seconds from the event until all windows say so; a third opens when the run has ended.\n",
            "| event | seconds | every window says |",
            "| --- | ---: | --- |",
            *lines,
            "",
        ]
    )


def one_voice(texts: Sequence[str]) -> str:
    """What all say; windows that disagree are shown apart."""
    return " / ".join(dict.fromkeys(texts))


PARTS = (soon, large, price, states)

if __name__ == "__main__":
    if sys.argv[1:2] == ["play"]:
        play(Path(sys.argv[2]), Path(sys.argv[3]), float(sys.argv[4]), sys.argv[5:])
    else:
        main(Path(sys.argv[1] if sys.argv[1:] else "runs/watching"))
