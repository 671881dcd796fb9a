"""docs/deploy.md is the transcript of a deployment: this test runs its commands and compares its outputs."""

from __future__ import annotations

import csv
import json
import os
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedmerit import Run
from fedmerit.flower.loopback import free_port
from fedmerit.flower.processes import end_family
from fedmerit.flower.supernode import BIN

pytestmark = pytest.mark.long
ROOT = Path(__file__).parents[2]
SECTION = (ROOT / "docs/deploy.md").read_text().partition("## One deployment")[2].partition("\n## ")[0]
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", SECTION, flags=re.M | re.S)
OURS = {r"\d{15,}": "N", r"\d+ ms": "N ms", r"\d{4}-\d\d-\d\d[T\d:+]*": "DATE", r"\d+ days": "N days", r"N{1,}\b": "N"}
"""What differs from run to run, on both sides."""


class Site:
    """The machines of the page as one folder: `/data` is a folder in it, the server is localhost."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port, self.started = folder, free_port(), dict[str, subprocess.Popen[bytes]]()
        (folder / "data").mkdir()
        rows = list(csv.DictReader((ROOT / "examples/hospitals.csv").read_text().splitlines()))
        for number in range(1, 5):
            mine = [row for row in rows if row["hospital"] == f"hospital {number}"]
            with (folder / f"data/hospital{number}.csv").open("w") as file:
                table = csv.DictWriter(file, [name for name in rows[0] if name != "hospital"], extrasaction="ignore")
                table.writeheader()
                table.writerows(mine)
        paths = {"PATH": f"{BIN}:{os.environ['PATH']}", "FLWR_HOME": str(folder / "flwr"), "OMP_NUM_THREADS": "1"}
        self.environment = os.environ | paths

    def real(self, command: str) -> str:
        """The command with this machine's names."""
        command = command.replace("server.example", "localhost").replace("/data/", f"{self.folder}/data/")
        return re.sub(r"(?<![\w/])(hospital-\d)", r"kits/\1", command)

    def call(self, command: str) -> str:
        done = subprocess.run(
            ["sh", "-c", self.real(command)], cwd=self.folder, env=self.environment, capture_output=True, text=True
        )
        return done.stdout + done.stderr

    def start(self, name: str, command: str) -> None:
        with (self.folder / f"{name}.log").open("wb") as log:
            environment = self.environment | {"FLWR_HOME": str(self.folder / f"flwr-{name}")}
            words = ["sh", "-c", f"exec {self.real(command)}"]
            self.started[name] = subprocess.Popen(
                words, cwd=self.folder, env=environment, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text()

    def wait_for(self, name: str, text: str, seconds: float = 300) -> float:
        begun = time.monotonic()
        while text not in self.log(name):
            assert time.monotonic() - begun < seconds, (text, self.log(name)[-3000:])
            time.sleep(0.1)
        return time.monotonic() - begun

    def end(self) -> None:
        for process in self.started.values():
            end_family(process.pid)
            process.wait()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    made = Site(tmp_path_factory.mktemp("deployment"))
    yield made
    made.end()


def plain(text: str, site: Site) -> list[str]:
    """Lines without what differs from run to run."""
    text = text.replace(f"{site.folder}/", "/").replace(f"localhost:{site.port}", "server.example:9092")
    for pattern, replacement in OURS.items():
        text = re.sub(pattern, replacement, text)
    return [re.sub(r"\s+", " ", line).strip() for line in text.splitlines() if line.strip()]


def assert_shown(shown: str, output: str, site: Site) -> None:
    """Each line of the page's output is in the real output, in this order."""
    lines = iter(plain(output, site))
    for line in plain(shown, site):
        assert line == "..." or any(line == real for real in lines), (line, output)


def test_the_page_is_what_happens(site: Site):
    begun = time.monotonic()
    (config, provision, made, start, policy, doctor, healthy, server, log, grep, refused) = [text for _, text in BLOCKS]
    (site.folder / "hospitals.toml").write_text(config)
    assert_shown(made, site.call(f"{provision.strip()} --port {site.port}"), site)
    for number in range(1, 5):  # each on its own machine, so that each would have the port 9094
        path = site.folder / f"kits/hospital-{number}/node.env"
        path.write_text(path.read_text().replace("PORT=9094", f"PORT={free_port()}"))
    (site.folder / "kits/hospital-4/policy.toml").write_text(policy)
    for number in range(1, 5):
        site.start(f"hospital{number}", start.strip().replace("1", str(number)))
    site.start("server", server)
    site.wait_for("server", "fedmerit: round 1,")
    seconds = time.monotonic() - begun
    (site.folder / "seconds").write_text(f"from nothing to the first round: {seconds:.0f} s\n")
    assert_shown(healthy, site.call(doctor), site)
    site.wait_for("server", "the run is in")
    time.sleep(5)
    assert_shown(log, site.log("server"), site)
    assert_shown(refused, site.call(grep), site)
    run = Run.load(site.folder / "runs/first")
    assert {event.client for event in run.events() if event.kind == "left-out"} == {3}
    assert [one.id for one in run.explain(3)] == [0, 1, 2]
    answers = [json.loads(line) for line in (site.folder / "kits/hospital-4/answers.jsonl").read_text().splitlines()]
    assert {line["kind"] for line in answers if line["answer"] == "refused"} == {"train"}
