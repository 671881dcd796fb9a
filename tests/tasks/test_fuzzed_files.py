"""Data files of strangers: 1,000 damaged files are rows, or one clear line; bombs and pipes are refused at once.

FEDMERIT_FUZZ is how many times as many are tried (`make fuzz`).
"""

import gzip
import io
import os
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from helpers import CommandLine, one_line

from fedmerit.cli.rows_file import read_rows
from fedmerit.config import reading
from fedmerit.errors import DataError, UserError
from fedmerit.tasks import source
from fedmerit.tasks.datasets.celeba import decode
from fedmerit.tasks.datasets.mnist import read_idx
from fedmerit.tasks.formats import table_files
from fedmerit.tasks.formats.delimited import read_delimited
from fedmerit.tasks.formats.table_files import read_table

TIMES = int(os.environ.get("FEDMERIT_FUZZ", "1"))


def csv_bytes() -> bytes:
    rows = [f"ward {i % 3};{i};{i * 0.37:.2f};{'yes' if i % 2 else 'no'}" for i in range(40)]
    return "\n".join(["ward;age;dose;ill", *rows]).encode()


def npz_bytes() -> bytes:
    file = io.BytesIO()
    np.savez_compressed(file, x=np.arange(60.0).reshape(20, 3), y=np.arange(20))
    return file.getvalue()


def parquet_bytes() -> bytes:
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    file = io.BytesIO()
    parquet.write_table(pyarrow.table({"age": list(range(30)), "dose": [0.5, 1.5, 2.5] * 10}), file)
    return file.getvalue()


def png_bytes() -> bytes:
    image = pytest.importorskip("PIL.Image")
    file = io.BytesIO()
    image.fromarray(np.arange(192, dtype=np.uint8).reshape(8, 8, 3)).save(file, "png")
    return file.getvalue()


def idx_bytes() -> bytes:
    return struct.pack(">IIII", 0x803, 3, 4, 4) + bytes(range(48))


READERS: dict[str, tuple[Callable[[], bytes], Callable[[Path], object]]] = {
    "table.csv": (csv_bytes, read_table),
    "text.csv": (csv_bytes, read_delimited),
    "packed.csv.gz": (lambda: gzip.compress(csv_bytes()), read_table),
    "table.parquet": (parquet_bytes, read_table),
    "rows.parquet": (parquet_bytes, read_rows),
    "arrays.npz": (npz_bytes, lambda path: source.read_npz(path, ["x", "y"], kinds="iubUf")),
    "picture.png": (png_bytes, lambda path: decode(path.read_bytes(), str(path))),
    "images.idx": (idx_bytes, lambda path: read_idx(path, 4, 4)),
    "images.gz": (lambda: gzip.compress(idx_bytes()), lambda path: read_idx(path, 4, 4)),
}


def damaged(random: np.random.Generator, data: bytes) -> bytes:
    changed = bytearray(data)
    way = random.integers(4)
    if way == 0:
        return bytes(changed[: random.integers(len(changed))])
    if way == 1:
        start = random.integers(len(changed))
        return bytes(changed[:start] + random.bytes(int(random.integers(1, 40))) + changed[start:])
    for place in random.integers(0, len(changed), random.integers(1, 12)):
        changed[place] = random.integers(256) if way == 2 else random.choice(list(b",;\n\"'0e-\t\x00"))
    return bytes(changed)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", READERS)
def test_100_damaged_files_of_each_kind_are_rows_or_one_clear_line(name: str, tmp_path: Path):
    make, read = READERS[name]
    whole, random = make(), np.random.default_rng(24)
    path, refused = tmp_path / name, list[str]()
    path.write_bytes(whole)
    read(path)
    for trial in range(100 * TIMES):
        path.write_bytes(damaged(random, whole))
        os.utime(path, ns=(trial, trial))  # tables are remembered by when they changed
        try:
            read(path)
        except UserError as error:
            refused.append(str(error))
    assert all(0 < len(text) < 2000 for text in refused)


@pytest.mark.parametrize("name", ["x.csv", "x.parquet", "x.npz"])
def test_pipes_and_devices_are_refused_at_once(name: str, tmp_path: Path):
    os.mkfifo(tmp_path / name)
    with pytest.raises(UserError, match="ordinary file"):
        read_rows(tmp_path / name)
    (tmp_path / f"zero{name}").symlink_to("/dev/zero")
    with pytest.raises(UserError, match="ordinary file"):
        read_rows(tmp_path / f"zero{name}")


def test_bombs_are_refused_before_they_are_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for module in (source, table_files, reading):
        monkeypatch.setattr(module, "MOST_BYTES", 1 << 20)
    with zipfile.ZipFile(tmp_path / "x.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.npy", bytes(5 << 20))
    with pytest.raises(DataError, match=r"unpacks to|once it is unpacked"):
        source.read_npz(tmp_path / "x.npz", ["x"])
    (tmp_path / "x.csv.gz").write_bytes(gzip.compress(b"a,b\n" + b"1,2\n" * (1 << 20)))
    with pytest.raises(DataError, match=r"unpacks to|once it is unpacked"):
        read_table(tmp_path / "x.csv.gz")
    with pytest.raises(DataError, match=r"unpacks to|once it is unpacked"):
        reading.unpacked(gzip.compress(bytes(5 << 20)), tmp_path, 1 << 20)


def test_an_array_that_claims_terabytes_is_one_clear_line(tmp_path: Path):
    header = b"{'descr': '<f8', 'fortran_order': False, 'shape': (4500000000000,), }"
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        archive.writestr("x.npy", b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header)
    with pytest.raises(DataError, match="not a readable npz file"):
        source.read_npz(tmp_path / "x.npz", ["x"])


def test_a_table_of_100_000_clients_is_refused_in_one_line(tmp_path: Path, cli: CommandLine):
    path = tmp_path / "many.csv"
    path.write_text("who,x,ill\n" + "".join(f"c{i},{i % 7},{i % 2}\n" for i in range(100_000)), encoding="utf-8")
    settings = [f"task.data=table:{path}", "task.client=who", "task.label=ill", "run.rounds=1", "run.workers=1"]
    arguments = [word for one in settings for word in ("--set", one)]
    config = tmp_path / "x.toml"
    config.write_text("", encoding="utf-8")
    line = one_line(cli("run", config, "--out", tmp_path / "run", *arguments))
    assert "100000 distinct clients" in line
