"""A site's policy: what is refused gets a clear answer and a line of the log, and nothing is computed for it."""

import io
import json
import random
import zipfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.common.constant import ErrorCode

from fedmerit.config.schema import dump_config, make_config
from fedmerit.errors import ConfigError, RunFailed
from fedmerit.flower import InProcessGrid
from fedmerit.flower.app import OUT, TEXT, client, main
from fedmerit.flower.clientapp import make_client_app
from fedmerit.flower.messages import HELLO, pack
from fedmerit.flower.policy import POLICY, Policy, read_policy
from fedmerit.flower.start import write_app
from fedmerit.store.ledger import Ledger

NODES, LENGTH = 4, 64 * 32 + 32 + 32 * 10 + 10


def config(**recipe: Any) -> str:
    task = {"data": "digits", "clients": NODES, "partition": "dirichlet", "alpha": 1.0}
    recipe = {"name": "prioritized", "criteria": ["CB", "DS"]} | recipe
    return dump_config(make_config({"task": task, "recipe": recipe, "run": {"rounds": 1, "fraction": 1.0}}))


@pytest.fixture
def policy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    def write(text: str) -> Path:
        log = tmp_path / "answers.jsonl"
        path = tmp_path / f"policy{len(list(tmp_path.glob('policy*')))}.toml"  # read once per process
        path.write_text(f'log = "{log}"\n{text}')
        monkeypatch.setenv(POLICY, str(path))
        return log

    return write


def lines(log: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []


def ask(content: RecordDict, kind: str, text: str | None = None, place: int = 0) -> Message:
    """Send one message to the app of a node, as its SuperNode does."""
    settings = {TEXT: config() if text is None else text}
    grid = InProcessGrid(client, NODES, settings)
    (identity,) = grid.push_messages([Message(content, dst_node_id=1000 + place, message_type=kind)])
    (reply,) = grid.pull_messages([identity])
    return reply


def training(facts: list[str]) -> RecordDict:
    settings = {"round": 1, "seed": 1, "attack": 1, "epochs": 0, "lr": 0.0, "facts": facts, "personal": ""}
    settings |= {"uploads": "now", "wire": "float32"}
    return pack({"model": np.zeros(LENGTH, np.float32)}, settings)


def test_a_refused_fact_drops_the_client_with_the_reason_in_the_ledger(tmp_path: Path, policy: Any):
    log = policy("[facts]\nsamples = 10\nlabels = 0")
    context = Context(1, 1, {}, RecordDict(), {TEXT: config(), OUT: str(tmp_path / "run"), "patience": 1.0})
    reason = "refused by the site's policy: it does not report balance; [facts] has samples, labels"
    with pytest.raises(RunFailed, match="no client trained"):  # all nodes of this grid have the same policy
        main(InProcessGrid(client, NODES, context.run_config), context)
    events = [event for event in Ledger.open(tmp_path / "run" / "ledger.db").events() if event.kind == "left-out"]
    assert {event.client: event.text for event in events} == dict.fromkeys(range(NODES), reason)
    told = Counter((line["kind"], line["answer"]) for line in lines(log))
    assert told[("train", "refused")] == NODES
    assert told[(HELLO, "given")] >= NODES
    assert ("train", "given") not in told


def test_facts_are_rounded_down_to_their_step(policy: Any):
    log = policy("[facts]\nsamples = 25\nbalance = 0.05\nlabels = 0")
    exact = {"samples": 430.0, "labels": 10.0, "balance": 0.15}
    reply = ask(training(list(exact)), "train")
    found = dict(reply.content["metrics"])
    assert found["samples"] % 25 == 0
    assert found["samples"] <= exact["samples"]
    assert found["labels"] == exact["labels"]
    assert found == lines(log)[0]["numbers"]
    for value, rounded in ((0.15, 0.15), (0.149, 0.10), (1.0, 1.0), (0.0, 0.0)):
        record = RecordDict({"metrics": MetricRecord({"balance": value})})
        Policy(facts={"balance": 0.05}).round_facts(record)
        assert record["metrics"]["balance"] == pytest.approx(rounded)


@pytest.mark.parametrize(
    ("text", "changes", "reason"),
    [
        ('recipes = ["fedavg"]', {}, "it does not run recipe prioritized; `recipes` allows fedavg"),
        ("", {"criteria": ["parts:leak"]}, "it does not run parts:leak; `modules` allows none"),
        ("min_rows = 100_000", {}, "it answers from 100000 rows or more"),
        ("[facts]\nlabels = 0", {}, "it does not report balance; [facts] has labels"),
    ],
)
def test_each_rule_is_a_clear_answer(text: str, changes: dict[str, Any], reason: str, policy: Any):
    log, run = policy(text), config()
    run = run.replace('"CB"', '"parts:leak"') if changes else run
    reply = ask(training(["balance"]), "train", run)
    assert reply.error.code == ErrorCode.MOD_FAILED_PRECONDITION
    assert reply.error.reason == f"refused by the site's policy: {reason}"
    assert lines(log) == [{**lines(log)[0], "kind": "train", "answer": "refused", "reason": reply.error.reason}]


def test_an_audit_of_rows_that_are_too_few_or_of_an_unlisted_objective_is_refused(policy: Any):
    audit = pack({"model": np.zeros(LENGTH, np.float32)}, {"objectives": ["accuracy"], "on": "test"})
    policy("[facts]\nsamples = 0")
    assert "it does not report accuracy" in ask(audit, "evaluate.audit").error.reason
    policy("min_rows = 100")  # more than the test rows, fewer than the training rows
    assert "100 rows or more" in ask(audit, "evaluate.audit").error.reason
    assert not ask(training(["samples"]), "train").has_error()
    policy("min_rows = 1_000")
    dodging = training(["samples"])
    dodging["config"]["on"] = "validation"  # of which the node has none
    assert "1000 rows or more" in ask(dodging, "train").error.reason
    policy("min_rows = 10_000")
    assert "10000 rows or more" in ask(audit, "evaluate.audit").error.reason
    policy("")
    assert set(ask(audit, "evaluate.audit").content["metrics"]) == {"accuracy"}


def hostile(random: random.Random) -> tuple[RecordDict, str, str | None]:
    """A request that breaks the policy, or makes no sense."""
    kinds = ("train", "train.reward", "evaluate", "evaluate.audit", "train.upload", HELLO)
    bad = config().replace("prioritized", "robust")
    own = config().replace('"CB"', f'"module{random.randrange(99)}:leak"')
    wrong = ConfigRecord({"facts": ["samples"], "round": "x", "models": -1})
    broken = [pack({"model": np.zeros(3)}, {"facts": ["samples"]}), pack(config={"on": [1]}), RecordDict()]
    broken += [RecordDict({"config": wrong}), training([])]
    return random.choice(
        [
            (training([random.choice(["balance", "seconds", "attribute:sex", "x" * 999])]), "train", None),
            (pack(config={"objectives": ["parity:sex"], "on": "test"}), "evaluate.audit", None),
            (random.choice(broken), random.choice(kinds), own),
            (random.choice(broken), random.choice(kinds), bad),
            (random.choice(broken), random.choice(kinds), "not = [toml"),
            (random.choice(broken[:-1]), "train", None),
            (random.choice(broken), f"query.leak{random.randrange(9)}", None),
        ]
    )


def test_none_of_1000_hostile_or_disallowed_requests_is_served(policy: Any):
    log = policy('recipes = ["prioritized"]\n[facts]\nsamples = 10\nlabels = 0')
    draw = random.Random(39)
    for _ in range(1000):
        reply = ask(*hostile(draw))
        assert reply.has_error(), reply
        assert 0 < len(reply.error.reason) <= 600
    answers = Counter(line["answer"] for line in lines(log))
    assert answers == {"refused": 1000}
    assert not ask(training(["samples"]), "train").has_error()  # the node still serves what is allowed


def bundle(project: str, *others: str) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name in ("pyproject.toml", *others):
            archive.writestr(name, project)
    return buffer.getvalue()


CLIENT = "fedmerit.flower.app:client"
APP = '[tool.flwr.app.components]\nclientapp = "{}"\n'


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (bundle(APP.format(CLIENT), "steal.py"), "the app brings code: steal.py"),
        (bundle(APP.format(CLIENT), "pyproject.toml.py"), "the app brings code: pyproject.toml.py"),
        (bundle(APP.format(CLIENT), ".info/../steal.py"), "the app brings code: .info/../steal.py"),
        (bundle(APP.format("os:system")), "is not fedmerit.flower.app:client"),
        (bundle("[tool"), "cannot be read"),
        (bundle("a" * (1 << 21)), "too large"),
        (b"no archive", "cannot be read"),
    ],
)
def test_apps_with_code_are_refused_before_they_run(content: bytes, reason: str):
    assert reason in str(Policy().refuses_app(content))
    assert Policy(apps="any").refuses_app(content) is None


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of Flower's pathspec
def test_apps_of_fedmerit_are_allowed(tmp_path: Path):
    from flwr.cli.build import build_fab_from_disk

    write_app(tmp_path / "app", make_config({"task": {"data": "digits"}}), tmp_path / "run")
    assert Policy().refuses_app(build_fab_from_disk(tmp_path / "app")) is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("min_row = 3", "min_rows"),
        ("[facts]\nbalance = -1", "must be greater than or equal to 0"),
        ('apps = "all"', "apps"),
        ("x", "TOML"),
    ],
)
def test_a_wrong_policy_is_one_clear_error(text: str, message: str, tmp_path: Path):
    (tmp_path / "policy.toml").write_text(text)
    with pytest.raises(ConfigError, match=message):
        read_policy(tmp_path / "policy.toml")
    with pytest.raises(ConfigError, match="no policy file"):
        read_policy(tmp_path / "none.toml")


def test_without_a_policy_nothing_changes(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv(POLICY, raising=False)
    assert set(ask(training(["balance"]), "train").content["metrics"]) == {"balance"}
    assert make_client_app(lambda context: pytest.fail("no rows are needed"))
