"""A table of eight hospitals, made from a seed: what a data scientist has in a file."""

from pathlib import Path
from typing import Any

import numpy as np

SIZES = (120, 40, 90, 30, 60, 150, 80, 50)


def hospital_columns(seed: int = 1) -> dict[str, Any]:
    """Age, pressure (with gaps), sex, ward and a name per row; who dies depends on age, pressure and ward."""
    random = np.random.default_rng(seed)
    rows = sum(SIZES)
    age, pressure = random.normal(60, 12, rows), random.normal(130, 15, rows)
    ward = random.choice(["heart", "lung", "other"], rows)
    risk = (age - 60) / 12 + (pressure - 130) / 15 + (ward == "heart") - 0.3
    gaps = random.random(rows) < 0.1
    return {
        "hospital": [f"hospital {place + 1}" for place, size in enumerate(SIZES) for _ in range(size)],
        "age": age.round(1).tolist(),
        "pressure": [None if gap else float(value) for gap, value in zip(gaps, pressure.round(1), strict=True)],
        "sex": random.choice(["f", "m"], rows).tolist(),
        "ward": ward.tolist(),
        "patient": [f"patient {row}" for row in range(rows)],
        "country": ["here"] * rows,
        "died": ["yes" if value > random.normal(0, 0.5) else "no" for value in risk],
    }


def write_hospitals(path: Path, seed: int = 1) -> Path:
    import pyarrow
    import pyarrow.parquet

    pyarrow.parquet.write_table(pyarrow.table(hospital_columns(seed)), path)
    return path
