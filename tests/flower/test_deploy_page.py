"""docs/deploy.md is the transcript of a deployment: this test runs its commands and compares its outputs."""

import csv
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fedmerit import Run
from fedmerit.flower.keys import AUTHORITY
from fedmerit.flower.kit import OPERATOR_KEY, read_kit
from fedmerit.flower.loopback import free_port, write_connection
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

    def wait_for(self, name: str, text: str, seconds: float = 600) -> float:
        return self.until(lambda: text in self.log(name), seconds)

    def until(self, condition: Callable[[], bool], seconds: float = 600) -> float:
        begun = time.monotonic()
        while not condition():
            assert time.monotonic() - begun < seconds
            time.sleep(0.1)
        return time.monotonic() - begun

    def processes(self, word: str) -> list[int]:
        """Living processes of this deployment whose command line has this word, by their home for Flower."""
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            try:
                alive = (process / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
                ours = f"FLWR_HOME={self.folder}".encode() in (process / "environ").read_bytes()
                command = (process / "cmdline").read_text().replace("\0", " ")
            except OSError:  # it ended meanwhile
                continue
            found += [int(process.name)] if alive and ours and word in command else []
        return found

    def end(self) -> None:
        for process in self.started.values():
            kill(process)
        self.started.clear()


def kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a machine: the process and all its descendants."""
    if process.poll() is None:
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
    """The output has the page's text, in which long lines are wrapped and `...` stands for any lines."""
    real = " ".join(plain(output, site))
    for part in " ".join(plain(shown, site)).split("..."):
        found = real.find(part.strip())
        assert found >= 0, (part, output)
        real = real[found + len(part.strip()) :]


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
    site.until(lambda: not site.processes("flwr-serverapp") and not site.processes("flwr-clientapp"), 60)
    assert len(site.processes("fork-server")) == 4  # one per node and none per run
    assert_shown(log, site.log("server"), site)
    assert_shown(refused, site.call(grep), site)
    run = Run.load(site.folder / "runs/first")
    assert {event.client for event in run.events() if event.kind == "left-out"} == {3}
    assert [one.id for one in run.explain(3)] == [0, 1, 2]
    answers = [json.loads(line) for line in (site.folder / "kits/hospital-4/answers.jsonl").read_text().splitlines()]
    assert {line["kind"] for line in answers if line["answer"] == "refused"} >= {"train", "evaluate"}


SUPERLINK = f"{sys.executable} -m fedmerit.flower.superlink --kit .."
RUN = "fedmerit flower run hospitals.toml --kit kits/server --set run.rounds=8 --out runs/second"


def test_no_kill_loses_a_round_and_each_is_noticed_in_time(site: Site):
    noticed: dict[str, float] = {}
    site.start("second", RUN)
    site.wait_for("second", "fedmerit: round 1,")

    kill(site.started.pop("hospital3"))
    noticed["node"] = site.wait_for("second", "Hospital 3 left out")
    site.start("hospital3", "sh hospital-3/start.sh")

    site.started["second"].send_signal(signal.SIGINT)
    assert site.started["second"].wait(60) == 130
    assert "`fedmerit flower follow second` shows it" in site.log("second").replace("\n", " ")
    site.start("follow", "fedmerit flower follow second --kit kits/server")
    site.wait_for("follow", "fedmerit: round 1,")

    for time_of in (1, 2):
        (superlink,) = site.processes("fedmerit.flower.superlink")
        os.kill(superlink, signal.SIGKILL)
        lost = "lost the connection to the SuperLink"
        noticed[f"SuperLink {time_of}"] = site.until(lambda: site.log("follow").count(lost) >= time_of)  # noqa: B023
        rounds = site.log("follow").count("fedmerit: round")
        site.start(f"superlink{time_of}", f"env FEDMERIT_LOG=json sh -c 'cd kits/server/state && exec {SUPERLINK}'")
        site.until(lambda: site.log("follow").count("fedmerit: round") > rounds)  # noqa: B023
        events = [json.loads(line) for line in site.log(f"superlink{time_of}").splitlines()]
        assert {"flwr", "uvicorn.error"} <= {event["logger"] for event in events}

    (serverapp,) = site.processes("flwr-serverapp")
    os.kill(serverapp, signal.SIGKILL)
    begun = time.monotonic()
    assert site.started["follow"].wait(60) == 1
    noticed["ServerApp"] = time.monotonic() - begun
    assert "the process of the ServerApp ended (signal 9)" in site.log("follow")

    site.start("resumed", RUN)
    site.wait_for("resumed", "the run is in")
    assert site.started["resumed"].wait(60) == 0
    rounds = [row["round"] for row in Run.load(site.folder / "runs/second").ledger.rounds()]
    assert rounds == list(range(1, 9))
    (site.folder / "noticed").write_text(json.dumps(noticed))
    assert noticed["ServerApp"] < 30


def test_a_run_is_stopped_by_its_name(site: Site):
    site.start("third", RUN.replace("second", "third"))
    site.wait_for("third", "fedmerit: round 1,")
    assert "stopped run third" in site.call("fedmerit flower stop third --kit kits/server")
    assert site.started["third"].wait(60) == 1
    assert "finished:stopped" in site.log("third")
    assert "has ended" in site.call("fedmerit flower stop third --kit kits/server")
    assert "has no run fourth" in site.call("fedmerit flower stop fourth --kit kits/server")


HOSTILE = """
import time
from pathlib import Path
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp

client = ClientApp()
server = ServerApp()

@client.query()
def leak(message, context):
    Path("SERVED").touch()
    return Message(RecordDict(), reply_to=message)

@server.main()
def main(grid, context):
    node, content = sorted(grid.get_node_ids())[0], RecordDict({"c": ConfigRecord({"x": 1})})
    waiting, reasons = set(), {}
    messages = [Message(content, dst_node_id=node, message_type="query") for _ in range(1000)]
    waiting |= set(grid.push_messages(messages))
    while waiting:
        for reply in grid.pull_messages(list(waiting)):
            waiting.discard(reply.metadata.reply_to_message_id)
            reason = reply.error.reason if reply.has_error() else "SERVED"
            reasons[reason] = reasons.get(reason, 0) + 1
        time.sleep(1)
    print("answers:", reasons, flush=True)
"""


def test_none_of_1000_requests_of_an_app_with_code_is_served(site: Site):
    app = site.folder / "app"
    app.mkdir()
    (app / "leak.py").write_text(HOSTILE.replace("SERVED", str(site.folder / "served"), 1))
    components = '[tool.flwr.app]\npublisher = "x"\n[tool.flwr.app.components]\n'
    project = '[project]\nname = "leak"\nversion = "1.0.0"\nlicense = "Apache-2.0"\ndescription = "x"\n'
    (app / "pyproject.toml").write_text(f'{project}{components}serverapp = "leak:server"\nclientapp = "leak:client"\n')
    kit = read_kit(site.folder / "kits/server")
    write_connection(site.folder / "flwr-hostile", kit.address, kit.folder / AUTHORITY, kit.folder / OPERATOR_KEY)
    before = len((site.folder / "kits/hospital-1/answers.jsonl").read_text().splitlines())
    begun = time.monotonic()
    site.start("hostile", f"flwr run {app} here --stream")
    site.wait_for("hostile", "answers:", 1500)
    (site.folder / "hostile-seconds").write_text(f"{time.monotonic() - begun:.0f}")
    assert '{"refused by the site\'s policy: the app brings code: leak.py": 1000}' in site.log("hostile")
    assert not (site.folder / "served").exists()
    logs = [(site.folder / f"kits/hospital-{n}/answers.jsonl").read_text().count("brings code") for n in range(1, 5)]
    assert sum(logs) == 1000, (logs, before)


def test_nothing_stays_behind(site: Site):
    site.end()
    time.sleep(3)
    assert site.processes("") == []
