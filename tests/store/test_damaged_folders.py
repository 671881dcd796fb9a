"""Damaged, forged and swapped run folders: `verify` names the file, and every reading command ends with one message."""

import os
import re
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from helpers import CommandLine, stopped

from fedmerit import load_config, run_config
from fedmerit.config.schema import Config
from fedmerit.core.state import State
from fedmerit.store.ledger_tables import extend_chain
from fedmerit.store.model_files import read_checkpoint, read_model, write_checkpoint, write_model, write_sealed
from fedmerit.store.run_folder import open_ledger
from fedmerit.store.verify import SUMS, write_sums

Damage = Callable[[Path, Path], object]
"""Called with the folder to damage, and with that of another run of the same table."""

BEFORE, CHECKPOINT = "checkpoints/00000001.safetensors", "checkpoints/00000002.safetensors"
ROWS = "clinic,age,dose\nnorth,6,1\n"


def settings(table: Path, *more: str) -> Config:
    task = [f"task.data=table:{table}", "task.client=clinic", "task.label=died", "task.model=linear"]
    recipe = ["recipe.name=prioritized", "recipe.criteria=DS,CB", "train.epochs=1", "run.fraction=1.0"]
    return load_config(None, [*task, *recipe, "run.rounds=3", "run.workers=1", *more])


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run, another one with another seed, and one that was stopped after round 2."""
    home = tmp_path_factory.mktemp("runs")
    lines = [f"{'north' if i % 3 else 'south'},{i % 7},{i * i % 5},{int(i % 7 > 3)}" for i in range(90)]
    (home / "table.csv").write_text("\n".join(["clinic,age,dose,died", *lines]))
    (home / "rows.csv").write_text(ROWS)
    run_config(settings(home / "table.csv"), home / "finished")
    run_config(settings(home / "table.csv", "run.seed=1"), home / "other")
    stopped(settings(home / "table.csv"), home / "stopped")
    return home


def truncate(name: str, share: float = 0.5) -> Damage:
    return lambda run, _: os.truncate(run / name, int(share * (run / name).stat().st_size))


def write(name: str, content: str | bytes) -> Damage:
    return lambda run, _: (run / name).write_bytes(content.encode() if isinstance(content, str) else content)


def flip(name: str, place: float) -> Damage:
    def damage(run: Path, _: Path) -> None:
        data = bytearray((run / name).read_bytes())
        data[int(place * (len(data) - 1))] ^= 16
        (run / name).write_bytes(data)

    return damage


def remove(name: str) -> Damage:
    return lambda run, _: (run / name).unlink()


def folder(name: str) -> Damage:
    def damage(run: Path, _: Path) -> None:
        (run / name).unlink()
        (run / name).mkdir()

    return damage


def pipe(name: str) -> Damage:
    def damage(run: Path, _: Path) -> None:
        (run / name).unlink()
        os.mkfifo(run / name)

    return damage


def swap(name: str) -> Damage:
    return lambda run, other: shutil.copyfile(other / name, run / name)


def forge_model(run: Path, _: Path) -> None:
    """Another model under a correct seal, and correct sums: only the chain tells."""
    found = read_model(run / "model.safetensors")
    write_model(run / "model.safetensors", found[0] + 1, found[1])


def resealed(damage: Damage) -> Damage:
    """The damage, after which SHA256SUMS fits again."""

    def both(run: Path, other: Path) -> None:
        damage(run, other)
        write_sums(run)

    return both


def forge_checkpoint(run: Path, _: Path) -> None:
    with open_ledger(run) as ledger:
        identity = ledger.identity()
        found = read_checkpoint(run, 2, identity)
        state = ledger.history()
    write_checkpoint(run, State(found[0] * np.float32(9), state, found[1]), identity)


def unsealed_checkpoint(run: Path, _: Path) -> None:
    write_sealed(run / CHECKPOINT, {"model": np.zeros(3, np.float32)}, {"round": 2, "run": ""})


def forge_encoder(run: Path, _: Path) -> None:
    text = (run / "encoder.json").read_text()
    (run / "encoder.json").write_text(text.replace('"median": 1.0', '"median": 2.0', 1))


def sql(*statements: str, chain: int | None = None) -> Damage:
    """Edit the ledger; with `chain` the hashes from that round on are made to fit."""

    def damage(run: Path, _: Path) -> None:
        with closing(sqlite3.connect(run / "ledger.db")) as db, db:
            for statement in statements:
                db.execute(statement)
            if chain is not None:
                extend_chain(db, chain)

    return damage


TEXTS = {
    "rounds": ("priority", "seconds", "score", "normalise"),
    "weights": ("facts", "criteria", "normalised"),
    "candidates": (),
}
FINISHED: dict[str, tuple[str, Damage]] = {
    **{
        f"{name} is truncated": (name, truncate(name))
        for name in ("ledger.db", "model.safetensors", "encoder.json", "config.toml", "best.safetensors", "data.json")
    },
    **{
        f"{name} is empty": (name, truncate(name, 0))
        for name in ("ledger.db", "model.safetensors", "encoder.json", "config.toml", SUMS)
    },
    **{
        f"{name} is a folder": (name, folder(name))
        for name in (
            "ledger.db",
            "model.safetensors",
            "encoder.json",
            "config.toml",
            "best.safetensors",
            "data.json",
            SUMS,
        )
    },
    **{
        f"{name} is a pipe": (name, pipe(name))
        for name in ("model.safetensors", "encoder.json", "config.toml", "data.json", "ledger.db", SUMS)
    },
    **{
        f"{name} is missing": (name, remove(name))
        for name in ("ledger.db", "model.safetensors", "encoder.json", "config.toml", "best.safetensors", "data.json")
    },
    **{
        f"{name} is of another run": (name, swap(name))
        for name in ("ledger.db", "model.safetensors", "config.toml", "best.safetensors", SUMS)
    },
    **{
        f"{name} is noise": (name, write(name, bytes(range(256)) * 9))
        for name in ("ledger.db", "model.safetensors", "encoder.json", "config.toml", "data.json", SUMS)
    },
    **{
        f"a bit of {name} flips at {place}": (name, flip(name, place))
        for name in ("model.safetensors", "ledger.db")
        for place in (0.02, 0.5, 0.99)
    },
    **{
        f"{table}.{column} is not JSON": ("ledger.db", sql(f"UPDATE {table} SET {column} = '{{nothing'"))
        for table, columns in TEXTS.items()
        for column in columns
    },
    **{
        f"{table}.{column} is other JSON": ("ledger.db", sql(f"UPDATE {table} SET {column} = '[[1]]'"))
        for table, columns in TEXTS.items()
        for column in columns
    },
    **{
        f"meta {key} is not JSON": ("ledger.db", sql(f"UPDATE meta SET value = 'nothing' WHERE key = '{key}'"))
        for key in ("config", "recipe")
    },
    **{
        f"meta {key} is other JSON": ("ledger.db", sql(f"UPDATE meta SET value = '[1]' WHERE key = '{key}'"))
        for key in ("config", "recipe")
    },
    **{
        f"meta {key} is gone": ("ledger.db", sql(f"DELETE FROM meta WHERE key = '{key}'"))
        for key in ("config", "recipe")
    },
    **{
        f"no {table}": ("ledger.db", sql(f"DELETE FROM {table}"))
        for table in ("clients", "rounds", "weights", "evaluations", "chain", "files", "meta")
    },
    "a client's name is bytes": ("ledger.db", sql("UPDATE clients SET name = x'ff00'")),
    "a client's weight is text": ("ledger.db", sql("UPDATE weights SET weight = 'much'")),
    "an accuracy is text": ("ledger.db", sql("UPDATE rounds SET accuracy = 'good'")),
    "a round is renumbered": ("ledger.db", sql("UPDATE rounds SET round = 9 WHERE round = 3")),
    "a name leads out of the folder": ("ledger.db", sql("INSERT INTO files VALUES (3, '../table.csv', 'x')", chain=3)),
    "the forged model is sealed": ("model.safetensors", resealed(forge_model)),
    "a swapped model is summed": ("model.safetensors", resealed(swap("model.safetensors"))),
    "a swapped best model is summed": ("best.safetensors", resealed(swap("best.safetensors"))),
    "a forged encoder is summed": ("encoder.json", resealed(forge_encoder)),
    "a changed configuration is summed": (
        "config.toml",
        resealed(
            lambda run, _: (run / "config.toml").write_text(
                (run / "config.toml").read_text().replace("rounds = 3", "rounds = 4")
            )
        ),
    ),
    "a further model is summed": (
        "more.safetensors",
        resealed(lambda run, other: shutil.copy(other / "model.safetensors", run / "more.safetensors")),
    ),
    "encoder.json is other JSON": ("encoder.json", write("encoder.json", "[]")),
    "encoder.json is deep": ("encoder.json", write("encoder.json", "[" * 100_000)),
    "SHA256SUMS has no sums": (SUMS, write(SUMS, "nothing\n")),
}  # fmt: skip
STOPPED: dict[str, tuple[str, Damage]] = {
    "the checkpoint is a folder": (CHECKPOINT, folder(CHECKPOINT)),
    "the checkpoint is truncated": (CHECKPOINT, truncate(CHECKPOINT)),
    "the checkpoint is noise": (CHECKPOINT, write(CHECKPOINT, b"x" * 999)),
    "a bit of the checkpoint flips": (CHECKPOINT, flip(CHECKPOINT, 0.9)),
    "the checkpoint is a pipe": (CHECKPOINT, pipe(CHECKPOINT)),
    "the checkpoint is of round 1": (CHECKPOINT, lambda run, _: shutil.copyfile(run / BEFORE, run / CHECKPOINT)),
    "the forged checkpoint is sealed": (CHECKPOINT, forge_checkpoint),
    "the checkpoint is not sealed by us": (CHECKPOINT, unsealed_checkpoint),
    "the ledger's last round is forged": ("ledger.db", sql("UPDATE weights SET weight = 0.5 WHERE round = 2")),
    "the encoder is forged": ("encoder.json", forge_encoder),
    "the encoder is missing": ("encoder.json", remove("encoder.json")),
}  # fmt: skip


def commands(run: Path, home: Path, out: Path) -> Iterator[list[str | Path]]:
    yield from (["explain", run], ["explain", run, "--json"], ["explain", run, "--client", "north"])
    yield from (["explain", run, "--suspects"], ["explain", run, "--contributions"], ["explain", run, "--fairness"])
    yield from (["report", run, "--text"], ["report", run, "--out", out / "page.html"])
    yield from (["what-if", run, "--priority", "CB"], ["what-if", run, "--priority", "LD > DS"])
    yield from (["predict", run, home / "rows.csv"], ["predict", run, home / "rows.csv", "--client", "north"])
    yield from (["export", run, "--onnx", out / "model.onnx"], ["export", run, "--card", out / "card.md"])
    yield ["export", run, "--table", "weights", "--out", out / "w.csv"]
    if "checkpoints" in {path.name for path in run.iterdir()}:
        yield ["run", "--resume", run]


@pytest.mark.parametrize("name", [*FINISHED, *STOPPED])
def test_every_damage_is_named_and_no_command_fails_inside(
    name: str, runs: Path, tmp_path: Path, cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedmerit.engine.finished.onnx_bytes", lambda *parts: b"converting takes seconds")
    whole = runs / ("finished" if name in FINISHED else "stopped")
    run = Path(shutil.copytree(whole, tmp_path / "run"))
    file, damage = (FINISHED | STOPPED)[name]
    damage(run, runs / "other")
    said = cli("verify", run)
    assert said.code in (1, 2), said
    assert file in said.out + said.err
    for command in commands(run, runs, tmp_path):
        answer = cli(*command)
        assert answer.code in (0, 1, 2), (command, answer)
        assert not re.search("failed:|Traceback", said.err + answer.err), (command, answer)
        if answer.code:
            assert len(answer.err.splitlines()) == 1, (command, answer)
