"""Write two real tables for heart.toml and medpar.toml: four hospitals with a raw file each, 54 hospitals in one file.

    python examples/real_hospitals.py hospitals
    fedmerit doctor examples/heart.toml
    fedmerit compare examples/heart.toml --out runs/heart

FEDMERIT_DATA is the folder that holds heart-disease/ and medpar/ (docs/your-files.md).
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

HEART = "age,sex,cp,trestbps,chol,fbs,restecg,thalach,exang,oldpeak,slope,ca,thal,num"
"""Columns of UCI's files, which have no header."""


def main(out: str = "hospitals") -> None:
    """Add a header to each hospital's raw file, and copy the table of 54 hospitals."""
    data, folder = Path(os.environ["FEDMERIT_DATA"]), Path(out)
    (folder / "heart").mkdir(parents=True, exist_ok=True)
    for raw in sorted((data / "heart-disease").glob("processed.*.data")):
        site = raw.name.split(".")[1]
        (folder / "heart" / f"{site}.csv").write_text(f"{HEART}\n{raw.read_text()}", encoding="utf-8")
    (folder / "medpar.csv").write_bytes((data / "medpar" / "medpar.csv").read_bytes())
    print(f"written: {folder / 'heart'}/*.csv and {folder / 'medpar.csv'}")


if __name__ == "__main__":
    main(*sys.argv[1:2])
