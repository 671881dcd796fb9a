"""Task `digits`: the 1,797 digits of 8 x 8 pixels that come with scikit-learn; needs no download."""

from __future__ import annotations

import numpy as np

from fedmerit.config.schema import TaskConfig
from fedmerit.core.seeds import generator
from fedmerit.errors import ConfigError
from fedmerit.tasks.build import build
from fedmerit.tasks.extras import need
from fedmerit.tasks.federation import Federation
from fedmerit.tasks.hub import hub_name
from fedmerit.tasks.raw import Raw
from fedmerit.tasks.task_spec import TaskSpec

TRAIN_SHARE = 0.8
BRIGHTEST = 16


def read_digits() -> tuple[Raw, Raw]:
    """Training and test rows; the split is the same in every run."""
    bunch = need("sklearn.datasets").load_digits()
    x = np.rint(bunch.images * 255 / BRIGHTEST).astype(np.uint8)[..., np.newaxis]
    y = bunch.target.astype(np.int64)
    rows = generator(0, "digits split").permutation(len(y))
    cut = round(TRAIN_SHARE * len(y))
    return Raw(x[rows[:cut]], y[rows[:cut]], 10), Raw(x[rows[cut:]], y[rows[cut:]], 10)


def _load(config: TaskConfig, seed: int) -> Federation:
    if hub_name(config, default="") is not None:
        raise ConfigError(
            f"task 'digits' comes with scikit-learn and is on no hub; got task.source = {config.source!r}; "
            'set task.source = "folder"'
        )
    return build(*read_digits(), config, DIGITS, seed)


DIGITS = TaskSpec(
    name="digits",
    about="1,797 handwritten digits of 8 x 8 pixels, 10 classes; comes with scikit-learn",
    load=_load,
    models=("digits-mlp", "digits-linear"),
    clients=20,
)
