"""Settings: TOML in, frozen and validated values out; every mistake named with a way out."""

import tomllib
from pathlib import Path

import pytest

from fedmerit import UserError
from fedmerit.config.schema import Config, dump_config, load_config, make_config


def written(folder: Path, text: str) -> Path:
    path = folder / "run.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_an_empty_file_is_the_default_run(tmp_path: Path):
    assert load_config(written(tmp_path, "")) == Config()


def test_the_dump_holds_every_setting_that_has_a_value():
    sections = tomllib.loads(dump_config(Config()))
    defaults = Config().model_dump(exclude_none=True)
    assert {name: set(section) for name, section in sections.items()} == {
        name: set(section) for name, section in defaults.items()
    }


def test_values_are_frozen():
    with pytest.raises(ValueError, match="frozen"):
        Config().run.rounds = 3  # type: ignore[misc]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"train": {"rl": 0.1}}, r"unknown key 'train.rl'.*valid here: algorithm, batch"),
        ({"train": {"bacth": 3}}, r"unknown key 'train.bacth' \(did you mean 'batch'\?\)"),
        ({"train": {"learning_rate": 0.1}}, r"'train.learning_rate' \(did you mean 'train.lr'\?\)"),
        ({"train": {"rounds": 3}}, r"'train.rounds' \(did you mean 'run.rounds'\?\)"),
        ({"rnu": {}}, r"unknown key 'rnu' \(did you mean 'run'\?\); valid here: facts, .*, train"),
        ({"train": {"lr": 0}}, r"train.lr: .*greater than 0 \(got 0\)"),
        ({"train": {"lr": -0.1}}, r"train.lr: .*greater than 0 \(got -0.1\)"),
        ({"train": {"lr": float("nan")}}, r"train.lr: .*finite number \(got nan\)"),
        ({"train": {"lr": float("inf")}}, r"train.lr: .*finite number \(got inf\)"),
        ({"train": {"lr": "fast"}}, r"train.lr: .*number.* \(got 'fast'\)"),
        ({"train": {"momentum": 1.0}}, "train.momentum"),
        ({"train": {"momentum": float("nan")}}, "train.momentum"),
        ({"train": {"weight_decay": -1}}, "train.weight_decay"),
        ({"train": {"prox": float("inf")}}, "train.prox"),
        ({"train": {"batch": 0}}, r"train.batch: .*or 'full' \(got 0\); the default is 32"),
        ({"train": {"batch": "half"}}, "train.batch"),
        ({"train": {"epochs": 0}}, "train.epochs"),
        ({"run": {"workers": 0}}, r"run.workers: .*greater than or equal to 1 \(got 0\)"),
        ({"run": {"rounds": 0}}, "run.rounds"),
        ({"run": {"rounds": 2.5}}, "run.rounds"),
        ({"run": {"rounds": True}}, "run.rounds"),
        ({"run": {"fraction": 0}}, "run.fraction"),
        ({"run": {"fraction": 1.01}}, "run.fraction"),
        ({"run": {"fraction": float("nan")}}, "run.fraction"),
        ({"run": {"seed": -1}}, "run.seed"),
        ({"run": {"evaluate_every": 0}}, "run.evaluate_every"),
        ({"run": 3}, r"run: .*a table such as \[run\]"),
        ({"task": {"partition": "idd"}}, "task.partition: .*did you mean 'iid'"),
        ({"task": {"clients": 0}}, "task.clients"),
        ({"task": {"alpha": 0}}, "task.alpha"),
        ({"task": {"kinds": {"poor": "1"}}}, r"task\.kinds"),
        ({"task": {"kinds": {"poor": True}}}, r"task\.kinds"),
        ({"task": {"kinds": {"poor": float("nan")}}}, r"task\.kinds"),
    ],
)
def test_a_setting_that_cannot_be_is_named(values: dict[str, object], message: str):
    with pytest.raises(UserError, match=message):
        make_config(values)


@pytest.mark.parametrize(
    ("override", "section", "key", "value"),
    [
        ("train.lr=0.05", "train", "lr", 0.05),
        (" train.lr = 0.05 ", "train", "lr", 0.05),
        ("train.batch=full", "train", "batch", "full"),
        ('train.batch="full"', "train", "batch", "full"),
        ("train.batch=12", "train", "batch", 12),
        ("recipe.criteria=CB,DS", "recipe", "criteria", ["CB", "DS"]),
        ('recipe.criteria=["CB", "DS"]', "recipe", "criteria", ["CB", "DS"]),
        ("task.data=my.module:TASK", "task", "data", "my.module:TASK"),
        ("task.groups=[[0], [1, 2]]", "task", "groups", ((0,), (1, 2))),
    ],
)
def test_settings_can_be_overridden(tmp_path: Path, override: str, section: str, key: str, value: object):
    config = load_config(written(tmp_path, "[train]\nlr = 0.9\n[recipe]\nname = 'prioritized'"), [override])
    assert getattr(getattr(config, section), key) == value


def test_the_last_override_wins_and_reaches_into_tables(tmp_path: Path):
    overrides = [
        "run.seed=1",
        "run.seed=2",
        "recipe.name=prioritized",
        "recipe.score.name=owa",
        "recipe.score.weights=[1.0]",
    ]
    config = load_config(written(tmp_path, ""), overrides)
    assert config.run.seed == 2
    assert config.recipe.values == {"name": "prioritized", "score": {"name": "owa", "weights": [1.0]}}


@pytest.mark.parametrize("override", ["", "lr=3", "train.lr", "=", "train.lr.x=3", "train.=3"])
def test_an_override_that_cannot_be_is_refused(tmp_path: Path, override: str):
    with pytest.raises(UserError, match=r"--set|cannot set|unknown key"):
        load_config(written(tmp_path, "[train]\nlr = 0.9"), [override])


@pytest.mark.parametrize("content", [b"[run\n", b"run = ", b"\xff\xfe\x00", b"[run]\nseed = 1\nseed = 2\n"])
def test_a_file_that_is_no_toml_is_refused(tmp_path: Path, content: bytes):
    path = tmp_path / "broken.toml"
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"broken\.toml is not valid TOML"):
        load_config(path)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path):
    with pytest.raises(UserError, match="no configuration file"):
        load_config(tmp_path / "none.toml")
    with pytest.raises(UserError, match="is a folder"):
        load_config(tmp_path)
