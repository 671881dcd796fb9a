"""Adult, COMPAS, German credit, partitions by attribute, the server's rows and planted kinds of clients."""

import gzip
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from task_files import real_folder

from fedmerit.config.schema import TaskConfig, make_config
from fedmerit.errors import ConfigError, DataError, UserError
from fedmerit.tasks.attackers import KINDS, assign
from fedmerit.tasks.federation import Federation
from fedmerit.tasks.registry import find_task


def adult(seed: int = 0, **settings: object) -> Federation:
    real_folder("adult")
    return find_task("adult").load(make_config({"task": {"data": "adult", **settings}}).task, seed)


def test_natural_clients_of_adult_are_those_with_a_doctorate_and_the_others() -> None:
    plain, federation = adult(), adult(partition="natural")
    assert federation.names == ("doctorate", "others")
    assert (federation.train.sizes.tolist(), federation.test.sizes.tolist()) == ([413, 32148], [181, 16100])
    assert federation.train.x.sum() == pytest.approx(plain.train.x.sum(), rel=1e-4)
    years = federation.train.x[:, 1]
    assert len(np.unique(years[:413])) == 1
    assert years[0] not in years[413:]


def test_adult_as_published() -> None:
    federation = adult()
    assert federation.train.x.shape == (32561, 91)
    assert (federation.train.y.sum(), federation.test.y.sum(), len(federation.test.y)) == (7841, 3846, 16281)
    assert federation.train.attributes["sex"].sum() == 21790
    assert federation.train.attributes["white"].sum() == 27816
    assert sorted(np.unique(federation.train.attributes["race"]).tolist()) == [0, 1, 2, 3, 4]
    assert sorted(np.unique(federation.train.attributes["age"]).tolist()) == [0, 1, 2]
    assert federation.train.x[:, 0].mean() == pytest.approx(0, abs=1e-4)
    assert federation.train.x[:, 0].std() == pytest.approx(1, abs=1e-4)


def test_compas_as_published() -> None:
    real_folder("compas")
    federation = find_task("compas").load(TaskConfig(data="compas"), 0)
    assert len(federation.train.y) + len(federation.test.y) == 6172
    assert federation.train.x.shape[1] == 15
    assert federation.train.y.sum() + federation.test.y.sum() == 2809
    races = np.concatenate([federation.train.attributes["race"], federation.test.attributes["race"]])
    assert np.bincount(races).tolist() == [3175, 31, 2103, 509, 11, 343]


def test_the_servers_rows_are_nobody_elses() -> None:
    plain, apart = adult(), adult(server=2000)
    assert (len(apart.server), apart.train.sizes.sum()) == (2000, 30561)
    assert apart.test.y.tolist() == plain.test.y.tolist()
    everything = np.concatenate([apart.server.x, apart.train.x])
    order = [np.lexsort(rows.T) for rows in (everything, plain.train.x)]
    assert np.array_equal(everything[order[0]], plain.train.x[order[1]])
    assert 0.5 < apart.server.attributes["sex"].mean() < 0.8
    with pytest.raises(DataError, match="leaves no rows for clients"):
        adult(server=40000)


@pytest.mark.parametrize(("partition", "attribute"), [("attribute", "sex"), ("attribute-label", "sex+race")])
def test_partitions_by_attribute_make_clients_unlike(partition: str, attribute: str) -> None:
    even = adult(partition="iid").train
    uneven = adult(partition=partition, attribute=attribute, alpha=0.3).train
    shares = [[split.attributes["sex"][split.rows(client)].mean() for client in range(20)] for split in (even, uneven)]
    assert np.std(shares[1]) > 3 * np.std(shares[0])
    assert uneven.sizes.sum() == 32561
    labels = [uneven.y[uneven.rows(client)].mean() for client in range(20)]
    if partition == "attribute-label":
        assert np.std(labels) > 0.1
    with pytest.raises(DataError, match="needs the attribute 'colour'"):
        adult(partition=partition, attribute="colour")


def test_kinds_do_what_they_say() -> None:
    shares = dict.fromkeys(KINDS, 0.2)
    fair, planted = adult(seed=3), adult(seed=3, kinds=shares)
    kinds = assign(20, shares, 3)
    assert sorted(kinds.values()) == sorted(list(KINDS) * 4)
    for client in range(20):
        before, after = fair.samples(client), planted.samples(client)
        women = before.attributes["sex"] == 0
        kind = kinds[client]
        assert planted.names[client] == f"{client} {kind}"
        if kind == "imbalanced":
            kept = (after.attributes["sex"] == 0).sum() / women.sum()
            assert 0.02 < kept < 0.2
            assert (after.attributes["sex"] == 1).sum() == (~women).sum()
            continue
        assert len(after) == len(before)
        changed = before.y != after.y
        if kind == "biased":
            assert changed.sum() == pytest.approx(0.5 * (women & (before.y == 1)).sum(), rel=0.4)
            assert (women & (before.y == 1))[changed].all()
        if kind == "poisoned":
            assert np.array_equal(changed, women)
        if kind == "poor":
            assert 0.15 < changed.mean() < 0.35
            assert not np.array_equal(before.x, after.x)
        if kind == "free_rider":
            assert len(np.unique(after.x, axis=0)) == 1
    assert planted.test.y.tolist() == fair.test.y.tolist()


def test_another_attribute_can_have_the_disadvantaged_group() -> None:
    fair, planted = adult(), adult(kinds={"poisoned": 1.0}, attribute="white")
    changed = fair.train.y != planted.train.y
    assert np.array_equal(changed, fair.train.attributes["white"] == 0)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"kinds": {"evil": 0.1}}, "imbalanced"),
        ({"kinds": {"poor": 1.2}}, "task.kinds: .*less than or equal to 1"),
        ({"kinds": {"poor": 0.7, "biased": 0.7}}, "at most 1"),
        ({"kinds": {"poisoned": 0.5}, "attribute": "colour"}, "colour"),
    ],
)
def test_mistakes(settings: dict[str, object], says: str) -> None:
    with pytest.raises((ConfigError, DataError, UserError), match=says):
        adult(**settings)


def test_two_classes_are_needed_to_flip() -> None:
    digits = find_task("digits")
    with pytest.raises(DataError, match="attribute"):
        digits.load(TaskConfig(kinds={"poisoned": 0.5}), 0)
    free = digits.load(TaskConfig(kinds={"free_rider": 0.25, "poor": 0.25}), 0)
    assert sum("free_rider" in name for name in free.names) == 5
    assert free.train.x.dtype == np.uint8


@pytest.mark.parametrize("content", [b"a,b\n1,2\n", b"", b"\xff\xfe\x00"])
def test_files_that_are_no_compas(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    (tmp_path / "compas").mkdir()
    (tmp_path / "compas" / "compas-scores-two-years.csv").write_bytes(content)
    monkeypatch.setenv("FEDMERIT_DATA", str(tmp_path))
    with pytest.raises(DataError, match=r"lacks the columns|not a readable table"):
        find_task("compas").load(TaskConfig(data="compas"), 0)


NUMBERS = 7
MAN = "A11 6 A34 A43 1169 A65 A75 4 A93 A101 4 A121 67 A143 A152 2 A173 1 A192 A201 1"
WOMAN = "A12 48 A32 A410 5951 A61 A73 2 A92 A101 2 A121 22 A143 A152 1 A173 1 A191 A202 2"


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[bytes], None]:
    def write_rows(content: bytes) -> None:
        (tmp_path / "german-credit").mkdir()
        (tmp_path / "german-credit" / "german.data.gz").write_bytes(gzip.compress(content))
        monkeypatch.setenv("FEDMERIT_DATA", str(tmp_path))

    return write_rows


def load_credit(**settings: object) -> Federation:
    return find_task("german-credit").load(TaskConfig(data="german-credit", **settings), 0)  # type: ignore[arg-type]


def test_rows_of_our_own(write: Callable[[bytes], None]) -> None:
    write("\n".join([MAN, WOMAN] * 20).encode() + b"\n")
    federation = load_credit(clients=2)
    x, y, test = federation.train.x, federation.train.y, federation.test
    assert (x.shape, len(test.y)) == ((32, 63), 8)
    men = federation.train.attributes["sex"] == 1
    assert np.array_equal(men, y == 1)  # the man is a good risk, the woman is none
    assert federation.train.attributes["age"][men].tolist() == [2] * int(men.sum())
    assert federation.train.attributes["age"][~men].tolist() == [0] * int((~men).sum())
    assert np.array_equal(federation.train.attributes["foreign"], men)
    numbers, codes = x[:, :NUMBERS], x[:, NUMBERS:]
    assert codes.sum(axis=1).tolist() == [13] * 32  # one code of each column
    assert codes[men][:, :4].tolist() == [[1, 0, 0, 0]] * int(men.sum())
    assert codes[~men][:, 19].tolist() == [1] * int((~men).sum())  # A410, the last purpose
    assert numbers.mean(axis=0) == pytest.approx(0, abs=1e-6)
    assert (numbers[men][:, 0] < numbers[~men][:, 0].min()).all()  # 6 months, 48 months
    assert (numbers[:, -1] == 0).all()  # one liable person each: nothing to standardise


def test_german_credit_as_published() -> None:
    real_folder("german-credit")
    federation = load_credit()
    assert (federation.train.x.shape, len(federation.test.y)) == ((800, 63), 200)
    assert federation.train.y.sum() + federation.test.y.sum() == 700
    sexes = np.concatenate([federation.train.attributes["sex"], federation.test.attributes["sex"]])
    assert sexes.sum() == 690


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "has no row"),
        (b"A11 6\n", "21 cells .got 2"),
        (MAN.replace("A93", "A96").encode(), "personal must be one of A91, A92, A93, A94, A95 .row 1 has 'A96'"),
        (MAN.replace("1169", "much").encode(), "amount must be an integer .row 1 has 'much'"),
        ((MAN[:-1] + "3").encode(), "risk must be one of 2, 1 .row 1 has '3'"),
        (b"\xff\xfe", "not a readable table"),
    ],
)
def test_files_that_are_none(write: Callable[[bytes], None], content: bytes, says: str) -> None:
    write(content)
    with pytest.raises(DataError, match=says):
        load_credit()
