"""MovieLens: split by time, histories without later ratings, facts, ranking by hand, and the real ratings."""

import gzip
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from fleets import on_flower, run_rounds
from helpers import CommandLine

from fedmerit import Federation, Samples, Split, fedavg, federate, load_task, prioritized
from fedmerit.errors import ConfigError, DataError
from fedmerit.fleet.local import LocalFleet
from fedmerit.learn.factors import CODE
from fedmerit.tasks.datasets.movielens import FILMS
from reproductions.experiments.movielens import measure_ranking, recommend

PEOPLE, RATED = 16, 40
JOBS = ("student", "none", "doctor", "none")
TRAIN = {"lr": 0.5, "epochs": 2}


@pytest.fixture
def films(data: Path) -> Path:
    """Ratings of a planted taste: odd people like odd films; film numbers up to 80, in random order of time."""
    folder = data / "movielens"
    folder.mkdir()
    random = np.random.default_rng(5)
    lines: list[str] = []
    for person in range(1, PEOPLE + 1):
        for time, film in enumerate(random.permutation(80)[:RATED] + 1):
            rating = np.clip(3 + (1.5 if (person + film) % 2 else -1.5) + random.normal(0, 0.3), 1, 5)
            lines.append(f"{person},{film},{round(rating)},{1000 + time // 2}")
    random.shuffle(lines)
    with gzip.open(folder / "ratings.csv.gz", "wt") as file:
        file.write("\n".join(["user_id,movie_id,rating,timestamp", *lines]))
    users = [f"{n},{15 + n},{'FM'[n % 2]},{JOBS[n % 4]},12345" for n in range(PEOPLE, 0, -1)]
    (folder / "users.csv").write_text("\n".join(["user_id,age,gender,occupation,zip_code", *users]))
    return folder


def test_the_latest_ratings_are_test_rows_and_never_in_a_history(films: Path):
    data = load_task("movielens", validation=0.25).federation
    with gzip.open(films / "ratings.csv.gz", "rt") as file:
        lines = [list(map(int, line.split(","))) for line in file.read().splitlines()[1:]]
    assert data.names == tuple(f"person {n}" for n in range(1, PEOPLE + 1))
    assert {tuple(split.sizes) for split in (data.train, data.validation, data.test)} == {
        (size,) * PEOPLE for size in (24, 8, 8)
    }
    for client in range(PEOPLE):
        when = {film - 1: time for person, film, _, time in lines if person == client + 1}
        stars = {film - 1: rating for person, film, rating, _ in lines if person == client + 1}
        parts = [split.samples(client, 1) for split in (data.train, data.validation, data.test)]
        times = [[when[int(film)] for film in part.x[:, 0]] for part in parts]
        assert max(times[0]) <= min(times[1])
        assert max(times[1]) <= min(times[2])
        for part in parts:
            assert [stars[int(film)] for film in part.x[:, 0]] == part.y.tolist()
            history = {tuple(divmod(int(code), CODE)) for row in part.x for code in row[1:] if code}
            assert history == {(int(film), stars[int(film)]) for film in parts[0].x[:, 0]}


def test_facts_of_people_are_criteria(films: Path):
    task = load_task("movielens", train=TRAIN)
    assert {name: values[:3] for name, values in task.federation.facts.items()} == {
        "age": (16.0, 17.0, 18.0),
        "gender": ("M", "F", "M"),
        "occupation": ("none", "doctor", "none"),
    }
    for criterion, members in {
        "fact:gender is F": {n for n in range(PEOPLE) if n % 2},
        "fact:age in 20..25": {n for n in range(PEOPLE) if 20 <= 16 + n <= 25},
        "fact:occupation is none": {n for n in range(PEOPLE) if (n + 1) % 2},
    }.items():
        run = federate(task, prioritized(criterion, "DS"), rounds=1, fraction=1.0)
        assert {row.id for row in run.explain(1) if row.weight > 0} == members
    fewer = load_task("movielens", clients=3, seed=2).federation
    assert [f"person {age - 15:.0f}" for age in fewer.facts["age"]] == list(fewer.names)


def test_only_item_factors_travel_and_the_fleets_agree(films: Path):
    task = load_task("movielens", clients=6, train=TRAIN)
    assert len(task.learner.start(0)) == FILMS * 9  # nothing per person
    models = []
    with LocalFleet(task) as one, LocalFleet(task, workers=2) as two:
        for fleet in (one, two, on_flower(task)):
            states, records = run_rounds(fleet, fedavg(), 2, evaluate=True)
            models.append(states[-1].model)
            assert records[-1].evaluation is not None
    assert models[0].tobytes() == models[1].tobytes()
    assert models[0] == pytest.approx(models[2], abs=1e-6)


def test_ranking_by_hand():
    nothing = np.zeros((1, 3), np.int16)
    tested = Split(np.array([[4, 0], [7, 0], [9, 0]], np.int16), np.array([5.0, 4.0, 3.0]), np.array([0, 3]))
    data = Federation(("one",), Split(nothing[:, :2], np.ones(1), np.array([0, 1])), tested, 1, target="number")
    recall, ndcg = measure_ranking(np.array([1, 4, 9, 2]), data, 0)  # 4 and 7 are liked; 4 is second of four
    assert recall == 0.5
    assert ndcg == pytest.approx((1 / np.log2(3)) / (1 + 1 / np.log2(3)))
    tested = Split(tested.x, np.ones(3), tested.offsets)
    unliked = Federation(("one",), data.train, tested, 1, target="number")
    assert np.isnan(measure_ranking(np.array([1]), unliked, 0)).all()


def test_rated_films_are_not_recommended(films: Path):
    task = load_task("movielens", validation=0.25, train=TRAIN)
    data, model = task.federation, task.learner.start(1)
    top = recommend(task.learner, model, data, 2, top=FILMS)
    seen = [split.x[split.rows(2), 0] for split in (data.train, data.validation)]
    scores = task.learner.predict(model, np.insert(data.train.x[data.train.rows(2)][:1, 1:], 0, top[:1], axis=1))
    assert not set(np.concatenate(seen).tolist()) & set(top[: FILMS - 32].tolist())
    assert scores[0] == max(
        task.learner.predict(model, np.insert(data.train.x[data.train.rows(2)][:1, 1:], 0, film, axis=1))[0]
        for film in set(range(FILMS)) - set(np.concatenate(seen).tolist())
    )


def test_mistakes_are_one_message(films: Path, cli: CommandLine, tmp_path: Path):
    (tmp_path / "run.toml").write_text('[task]\ndata = "movielens"\nserver = 5\n[run]\nrounds = 1\n')
    answer = cli("run", tmp_path / "run.toml", "--out", tmp_path / "run")
    assert answer.code == 2
    assert "remove task.server" in " ".join(answer.err.split())
    for settings in ({"server": 5}, {"kinds": {"poor": 0.5}}, {"test": "matched"}):
        with pytest.raises(ConfigError, match=r"split by person and time.*remove task\.server"):
            load_task("movielens", **settings)
    with pytest.raises(ConfigError, match=r"train\.batch has no effect on task 'movielens'"):
        load_task("movielens", train={"batch": 8})
    with pytest.raises(ConfigError, match="does not support partition 'iid'"):
        load_task("movielens", partition="iid")
    (films / "users.csv").write_text("user_id,age,gender,occupation\n1,20,F,none\n")
    with pytest.raises(DataError, match="no line for person 2"):
        load_task("movielens")
    (films / "users.csv").write_text("user_id,gender\n" + "\n".join(f"{n},F" for n in range(1, 99)))
    with pytest.raises(DataError, match="needs the column occupation"):
        load_task("movielens")
    for text, message in {
        "1,1700,3,5": "films 1 to 1682",
        "1,17,6,5": "ratings 1 to 5",
        "1,17,2.5,5": "rating must be whole numbers",
        "1,17,two,5": "rating must be whole numbers",
    }.items():
        with gzip.open(films / "ratings.csv.gz", "wt") as file:
            file.write(f"user_id,movie_id,rating,timestamp\n{text}\n")
        with pytest.raises(DataError, match=message):
            load_task("movielens")


def test_the_real_ratings(data_folder: Callable[[str], Path]):
    data_folder("movielens")
    task = load_task("movielens", train=TRAIN)
    data = task.federation
    assert (len(data.names), len(data.train.y), len(data.test.y)) == (943, 80_000, 20_000)
    assert data.facts["gender"].count("F") == 273
    assert len(set(data.facts["occupation"])) == 21
    assert any("Harper" in line for line in data.report)
    rows = Samples(data.train.x, data.train.y, 1)
    model = task.learner.train(task.learner.start(1), rows, 1, epochs=1)
    errors = [np.square(task.learner.predict(each, data.test.x) - data.test.y).mean() for each in (0 * model, model)]
    assert errors[1] < errors[0]
