"""Task `digits`: 1,797 digits of 8 x 8 pixels, included in scikit-learn; needs no download."""

from importlib.util import find_spec
from pathlib import Path

import numpy as np

from fedmerit.config.schema import TaskConfig
from fedmerit.core.seeds import generator
from fedmerit.tasks.build import build_federation
from fedmerit.tasks.federation import Federation, Raw
from fedmerit.tasks.registry import TaskSpec
from fedmerit.tasks.source import missing

TRAIN_SHARE = 0.8
BRIGHTEST = 16


def read_digits() -> tuple[Raw, Raw]:
    """Read training and test rows; the split is the same in every run."""
    table = np.loadtxt(_file(), delimiter=",")
    x = np.rint(table[:, :-1].reshape(-1, 8, 8, 1) * 255 / BRIGHTEST).astype(np.uint8)
    y = table[:, -1].astype(np.int64)
    rows = generator(0, "digits split").permutation(len(y))
    cut = round(TRAIN_SHARE * len(y))
    return Raw(x[rows[:cut]], y[rows[:cut]], 10), Raw(x[rows[cut:]], y[rows[cut:]], 10)


def _file() -> Path:
    """File that `sklearn.datasets.load_digits` reads: importing that takes two seconds, reading the file a tenth."""
    library = find_spec("sklearn")
    if library is None or library.origin is None:
        raise missing("sklearn", "No module named 'sklearn'")
    return Path(library.origin).parent / "datasets" / "data" / "digits.csv.gz"


def _load(config: TaskConfig, seed: int) -> Federation:
    return build_federation(*read_digits(), config, DIGITS, seed)


DIGITS = TaskSpec(
    name="digits",
    about="1,797 handwritten digits of 8 x 8 pixels, 10 classes; included in scikit-learn",
    load=_load,
    models=("digits-mlp", "digits-linear"),
    clients=20,
)
