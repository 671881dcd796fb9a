"""Findings 3 and 4: matrices that pair nothing, and differences between single runs."""

from __future__ import annotations

import math

import numpy as np

from fedmerit.core.scores import Prioritized
from fedmerit.core.seeds import generator
from fedmerit.core.types import Matrix
from fedmerit.core.weights import total_variation, weigh
from fedmerit.papers.errata.entry import Erratum, Evidence, Step, percent, shown
from fedmerit.papers.errata.facts import CELEBA_ROUND, CELEBA_TESTS
from fedmerit.papers.errata.finding1 import SEED, change
from fedmerit.papers.published import Errors, published


def correlation(errors: Errors) -> float:
    """Of two models' errors, image by image: 0 for unrelated ones, 1 for the same."""
    a, b, c, d = errors
    return (a * d - b * c) / math.sqrt((a + b) * (c + d) * (a + c) * (b + d))


def _finding_3() -> Evidence:
    tables = published().pmcfl_errors
    steps = [
        Step(
            f"Table {number}, {row}: images that both have wrong, if unrelated",
            errors.both_wrong_if_unrelated,
            errors.both_wrong,
        )
        for number, matrices in tables.items()
        for row, errors in matrices.items()
    ]
    every = [errors for matrices in tables.values() for errors in matrices.values()]
    mnist, most = [*tables[3].values(), *tables[5].values()], max(every, key=lambda errors: errors.both_wrong)
    highest = max(map(correlation, every))
    steps.append(Step(f"largest correlation of the errors in {len(every)} matrices", highest))
    shared = [errors.both_wrong for errors in mnist]
    chance = [errors.both_wrong_if_unrelated for errors in mnist]
    follows = (
        f"On MNIST two runs have {min(shared)} to {max(shared)} wrong images in common, unrelated models would have "
        f"{min(chance):.1f} to {max(chance):.1f}; on CelebA at most {most.both_wrong} where those would have "
        f"{most.both_wrong_if_unrelated:.0f}. The correlation never passes {highest:.2f}, though two models on one "
        "test set share most hard images: the lines did not belong to the same images. Only the accuracies can be used."
    )
    return shown(highest < 0.1, follows, *steps)


def celeba_round(seed: int) -> Matrix:
    """A round like CelebA's, columns DS, CB and IS: sizes as the authors' split has them, the rest drawn.

    Smiling has mean 0.48 and correlation 0.22 within a person (a beta law with a + b = 1 / 0.22 - 1); 5 % are blurry.
    """
    random, clients = generator(seed, "finding-4"), np.array(list(CELEBA_TESTS.values()))
    sizes = 4 * random.choice(list(CELEBA_TESTS), size=CELEBA_ROUND, p=clients / clients.sum())  # 80 % train, 20 % test
    smiling = random.binomial(sizes, random.beta(0.48 * 3.55, 0.52 * 3.55, size=CELEBA_ROUND))
    balance = np.minimum(smiling, sizes - smiling) / np.maximum(smiling, sizes - smiling)
    return np.column_stack([sizes, balance, random.binomial(sizes, 0.95) / sizes])


def _finding_4() -> Evidence:
    iid = np.array([[600.0, 10.0]] * 10)  # ten clients of 600 images and ten labels each
    by_size, by_labels = (weigh(iid[:, [place]], ["one"], Prioritized()).weights for place in (0, 1))
    table = published().pmcfl_rounds[2]
    even = [row for row in table.gains if row[:2] in ("DS", "LD")]
    cells = max(abs(gain or 0) for row in even for block in table.gains[row] for gain in block)
    means = max(abs(mean) for row in even for mean in table.averages[row])
    drawn = celeba_round(SEED)
    orders = {"DS>CB>IS": change(drawn, "sum"), "DS>IS>CB": change(drawn[:, [0, 2, 1]], "sum")}
    steps = [
        Step("MNIST IID: share of weight that differs between DS and LD", total_variation(by_size, by_labels)),
        Step("Table 2, rows led by DS or LD: largest gain or loss of a cell, rounds", cells),
        Step("Table 2, rows led by DS or LD: largest average gain or loss, rounds", means),
    ]
    steps += [Step(f"CelebA: largest change of a weight, {row} against DS", at.largest) for row, at in orders.items()]
    steps += [Step(f"Table 6, {row}: gains and losses against DS, rounds", _range(row)) for row in orders]
    largest = max(at.largest for at in orders.values())
    follows = (
        "With equal sizes and labels DS and LD give the same weights and orders led by them almost the same, yet the "
        f"rows differ from DS by up to {cells} rounds in a cell and {means:.1f} on average: noise. On CelebA (drawn "
        f"like it, {CELEBA_ROUND} clients) no weight of the DS-first rows differs from DS by more than "
        f"{percent(largest, 1)}, yet they gain {_range('DS>CB>IS')} and {_range('DS>IS>CB')} rounds."
    )
    return shown(steps[0].recomputed == 0 and largest < 0.005 and cells > 20, follows, *steps)


def _range(row: str) -> str:
    gains = [gain for block in published().pmcfl_rounds[6].gains[row] for gain in block if gain is not None]
    return f"{min(gains)} to {max(gains)}"


FINDING_3 = Erratum(
    name="finding-3",
    title="PMCFL's matrices of errors pair nothing",
    digest=("0.3", "B7"),
    paper="PMCFL",
    place="Tables 3, 5 and 7",
    printed="Each run's right and wrong test images against those of DS, as if image by image.",
    fedmerit="Runs with one seed test the same rows of the same clients in the same order.",
    evidence=_finding_3,
)

FINDING_4 = Erratum(
    name="finding-4",
    title="gains of PMCFL's single runs are noise",
    digest=("0.4",),
    paper="PMCFL",
    place="Tables 2, 4 and 6, all rows",
    printed="Gains over DS. Each row is one run; the authors' code draws partition, first model and clients anew for "
    "each and sets no seed.",
    fedmerit="Runs with one seed share partition, first model and clients. A difference between two single runs is no "
    "result; take several seeds.",
    evidence=_finding_4,
)
