"""Eight deliberately messy CSV files, the same for every call, and the list of what is wrong with them.

python tests/tasks/messy_hospitals.py FOLDER
"""

import sys
from pathlib import Path
from typing import Any

import numpy as np

SIZES = {
    "north": 90,
    "south": 80,
    "west": 70,
    "east": 75,
    "harbour": 65,
    "hill": 60,
    "river": 6,
    "lake": 55,
}
COLUMNS = (
    *("rownames", "patient", "age", "sex", "creatinine", "crp", "weight", "temperature", "ward", "pressure", "lactate"),
    *("smoker", "admitted", "country", "comment", "discharge", "died"),
)
CLEAN = ("pressure", "lactate", "smoker")
"""Columns in which nothing is wrong."""
PLANTED: dict[str, tuple[str, str, str]] = {
    "label typo": ("label", "died", ""),
    "label in capitals": ("label", "died", ""),
    "column that gives the label away": ("leak", "discharge", ""),
    "numeric ID": ("id", "rownames", ""),
    "text ID": ("id", "patient", ""),
    "negative code for missing": ("code", "creatinine", ""),
    "code of nines": ("code", "temperature", ""),
    "limit of detection": ("numbers", "crp", ""),
    "remark among numbers": ("numbers", "crp", ""),
    "spelling of a column": ("names", "creatinine", "west"),
    "column twice in the header": ("names", "weight (2)", ""),
    "missing column": ("schema", "lactate", "river"),
    "extra column": ("schema", "insurance", "lake"),
    "abbreviated category": ("words", "sex", ""),
    "typo in a category": ("words", "ward", ""),
    "other unit": ("unit", "weight", "harbour"),
    "outlier": ("outlier", "age", ""),
    "few rows": ("rows", "", "river"),
    "one label": ("rows", "", "lake"),
    "copied rows": ("copy", "", "hill"),
    "semicolons and decimal commas": ("form", "", "east"),
    "encoding": ("form", "", "harbour"),
    "UTF-16 with tabs": ("form", "", "hill"),
    "order of columns": ("form", "", "south"),
    "dates": ("date", "admitted", ""),
    "constant column": ("constant", "country", ""),
    "empty column": ("constant", "comment", ""),
}
"""Kind, column and client of the suspicion that names each problem; a name that is empty is not fixed."""


def patients(site: str, random: np.random.Generator) -> list[dict[str, Any]]:
    """Return one hospital's rows without mess."""
    rows = []
    for place in range(SIZES[site]):
        age, pressure = int(random.integers(25, 92)), int(random.integers(95, 180))
        lactate = round(float(random.gamma(3, 0.6)) + 0.2, 2)
        risk = (age - 60) / 14 + (lactate - 2) - (pressure - 135) / 40 + float(random.normal())
        died = risk > 1 and site != "lake"
        rows.append(
            {
                "rownames": place + 1,
                "patient": f"{site[:2].upper()}-{random.integers(10**6):06}",
                "age": age,
                "sex": str(random.choice(["female", "male"])),
                "creatinine": round(float(random.gamma(5, 0.2)) + 0.3, 2),
                "crp": round(float(random.gamma(2, 12)) + 0.5, 1),
                "weight": round(float(random.normal(74, 11)), 1),
                "temperature": round(float(random.normal(37.2, 0.7)), 1),
                "ward": str(random.choice(["surgery", "medicine", "Säuglinge"])),
                "pressure": pressure,
                "lactate": lactate,
                "smoker": int(random.integers(2)),
                "admitted": f"2023-{random.integers(1, 13):02}-{random.integers(1, 29):02}",
                "country": "NL",
                "comment": "",
                "discharge": "deceased" if died else str(random.choice(["home", "care"])),
                "died": "yes" if died else "no",
            }
        )
    return rows


def messy_hospitals(folder: Path, seed: int = 7) -> dict[str, list[dict[str, Any]]]:
    """Write the eight files, and return the rows of each as they were before the mess."""
    random = np.random.default_rng(seed)
    clean = {site: patients(site, random) for site in SIZES}
    rows = {site: [dict(row) for row in part] for site, part in clean.items()}
    form: dict[str, tuple[str, str]] = {"east": (";", "utf-8"), "harbour": (",", "cp1252"), "hill": ("\t", "utf-16")}
    names = {site: list(COLUMNS) for site in SIZES}

    for place in (3, 17):
        rows["south"][place]["died"] = "yse"
    for row in rows["hill"]:
        row["died"] = row["died"].upper()
    for site in ("north", "east"):
        for place in range(0, SIZES[site], 9):
            rows[site][place]["crp"] = "<0.5"
    rows["north"][4]["crp"] = "haemolysed"
    for place in (2, 8, 30):
        rows["south"][place]["creatinine"] = -999
    for place in (1, 5):
        rows["lake"][place]["temperature"] = 999
    for row in rows["east"]:
        row["sex"] = {"female": "F", "male": "M"}[row["sex"]]
    rows["north"][11]["ward"] = "surgrey"
    rows["north"][6]["age"] = 640
    for row in rows["harbour"]:
        row["weight"] = round(row["weight"] * 1000)  # grams
    for row in rows["west"]:
        row["admitted"] = "{2}.{1}.{0}".format(*row["admitted"].split("-"))
    rows["hill"] += [dict(row) for row in rows["hill"][:8]]
    for row in rows["lake"]:
        row["insurance"] = str(random.choice(["public", "private"]))
    for row in rows["north"]:
        row["again"] = round(row["weight"] + float(random.normal()), 1)

    names["south"] = [*COLUMNS[5:], *COLUMNS[:5]]
    names["river"].remove("lactate")
    names["lake"].append("insurance")
    names["north"].append("again")
    spelt = {"west": {"creatinine": "Creatinine "}, "north": {"again": "weight"}}
    folder.mkdir(parents=True, exist_ok=True)
    for site, part in rows.items():
        mark, encoding = form.get(site, (",", "utf-8"))
        header = [spelt.get(site, {}).get(name, name) for name in names[site]]
        lines = [header, *([str(row[name]) for name in names[site]] for row in part)]
        if mark == ";":
            lines = [header, *([cell.replace(".", ",") for cell in line] for line in lines[1:])]
        text = "".join(mark.join(line) + "\n" for line in lines)
        (folder / f"{site}.csv").write_bytes(text.encode(encoding))
    return clean


if __name__ == "__main__":
    messy_hospitals(Path(sys.argv[1]))
