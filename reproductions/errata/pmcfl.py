"""PMCFL: its example, its data and its networks (with DAFL's); and what can only be read."""

from __future__ import annotations

from itertools import combinations

import numpy as np
from scipy.special import expit, softmax

from fedmerit.core.types import Vector
from fedmerit.core.weights.scores import Prioritized, WeightedMean
from fedmerit.core.weights.weigh import normalised, weigh
from reproductions.errata.erratum import Erratum, Evidence, Step, cannot, listed, shown
from reproductions.errata.findings import devices_above
from reproductions.published import (
    CELEBA_TESTS,
    CELEBA_TEXT_TESTS,
    CELEBA_TEXT_TOTAL,
    MNIST_LABELS,
    published,
)

ALICE_AND_BOB = np.array([[0.9, 0.2, 0.4], [0.1, 0.8, 0.5]])
"""Dataset size, clothes diversity and image sharpness in PMCFL's Examples 4.1 and 4.2 [PMCFL, sec. 4.3]."""


def _softmax() -> Evidence:
    outputs = np.array([-3.0, 0.0, 3.0])
    probabilities = softmax(outputs[:, np.newaxis], axis=1)[:, 0]
    steps = [Step(f"softmax of the single output {z:g}", float(p)) for z, p in zip(outputs, probabilities, strict=True)]
    steps += [Step(f"sigmoid of the single output {z:g}", float(expit(z))) for z in outputs]
    follows = (
        "The softmax of one number is 1, so every face is classified as smiling and the gradient is 0; the "
        f"sigmoid of -3 / 0 / 3 is {listed(expit(outputs))}."
    )
    return shown(bool((probabilities == 1).all()), follows, *steps)


def _subset() -> Evidence:
    totals = {sum(errors) for errors in published().pmcfl_errors[7].values()}
    tested = sum(size * clients for size, clients in CELEBA_TESTS.items())
    mean, deviation = CELEBA_TEXT_TOTAL
    accuracy = next(iter(published().pmcfl_errors[7].values())).ds_accuracy
    table = published().pmcfl_rounds[6]
    printed = [10 * sum(cell is not None for cell in cells) for cells in table.baseline]
    authors, text = (
        [devices_above(accuracy, target, tests) for target in table.targets]
        for tests in (CELEBA_TESTS, CELEBA_TEXT_TESTS)
    )
    steps = [
        Step("test images of the authors' split: their code on the public list of identities", tested, max(totals)),
        Step("clients of that split", sum(CELEBA_TESTS.values())),
        Step("test images of the text's split on the same list, mean of 100 draws", float(mean)),
        Step("their deviation", float(deviation)),
    ]
    for whose, shares in (("authors'", authors), ("text's", text)):
        steps += [
            Step(f"{whose} split: per cent of devices above {target} % at an accuracy of {accuracy:.3f}", share, most)
            for target, share, most in zip(table.targets, shares, printed, strict=True)
        ]
    follows = (
        f"Every matrix of Table 7 has {max(totals):,} images, exactly those of the split in the authors' code (CelebA/"
        "preparation.py:26-28, 71-76: half of the identities, at least 10 images each, the first fifth for testing); "
        f"the text's split gives {mean:,} ± {deviation}. The shares of devices that Table 6 has for DS fit the "
        "authors' split too."
    )
    told = all(0 <= share - most < 10 for share, most in zip(authors, printed, strict=True))
    apart = text[0] - text[-1] < 5 <= authors[0] - authors[-1]
    return shown(totals == {tested} and told and apart, follows, *steps)


def labels_of_two_shards() -> tuple[float, ...]:
    """Expected clients of 100 with 1, 2, 3, 4 digits: MNIST sorted by label, 200 shards of 300, two at random each."""
    shards = np.repeat(np.arange(10), MNIST_LABELS).reshape(200, 300)
    digits = [frozenset(shard.tolist()) for shard in shards]
    held = np.bincount([len(one | other) for one, other in combinations(digits, 2)], minlength=5)
    return tuple((100 * held[1:] / held.sum()).tolist())


def _two_digits() -> Evidence:
    expected = labels_of_two_shards()
    steps = [Step(f"expected clients of 100 with {k} digits", value) for k, value in enumerate(expected, start=1)]
    follows = (
        "No class of MNIST is a multiple of 300 images, so some shards hold two digits. The expected "
        f"numbers of clients, of 100, are {listed(expected, '.1f')} with 1 / 2 / 3 / 4 digits."
    )
    return shown(expected[2] > 1, follows, *steps)


def _alice_and_bob() -> Evidence:
    sums = ALICE_AND_BOB.sum(axis=0)
    first, second = (Prioritized()(ALICE_AND_BOB[:, order]) for order in ([0, 1, 2], [2, 1, 0]))
    mean = weigh(ALICE_AND_BOB, ["DS", "CD", "IS"], WeightedMean(), "none").weights
    proper = Prioritized()(normalised(ALICE_AND_BOB, "sum")[:, [2, 1, 0]])
    steps = (
        *(
            Step(f"sum of {name} over both", float(total), 1)
            for name, total in zip(("DS", "CD", "IS"), sums, strict=True)
        ),
        *_pair("score, DS>CD>IS", first, (1.152, 0.22)),
        *_pair("score, IS>CD>DS", second, (0.552, 0.94)),
        *_pair("weight by the plain mean", mean, (0.52, 0.48)),
        *_pair("score, IS>CD>DS, had IS been divided by its sum", proper, (None, None)),
    )
    follows = (
        f"The sharpness values sum to {sums[2]:.1f}. All scores and weights are right for the values given; with IS "
        f"normalised the second order would score {listed(proper.tolist(), '.3f')} instead of 0.552 / 0.94."
    )
    right = np.allclose([*first, *second], [1.152, 0.22, 0.552, 0.94]) and np.allclose(mean, [0.52, 0.48], atol=0.005)
    return shown(bool(right and abs(sums[2] - 0.9) < 1e-9), follows, *steps)


def _pair(what: str, values: Vector, printed: tuple[float | None, float | None]) -> list[Step]:
    return [
        Step(f"{name}: {what}", float(value), number)
        for name, value, number in zip(("Alice", "Bob"), values, printed, strict=True)
    ]


def parameters(side: int, channels: int, kernel: int, hidden: int, outputs: int, same: bool = True) -> int:
    """Weights and biases of two convolutions (32 and 64 filters, each with pooling by 2) and two dense layers."""
    for _ in range(2):
        side = (side if same else side - kernel + 1) // 2
    convolutions = 32 * (channels * kernel**2 + 1) + 64 * (32 * kernel**2 + 1)
    return convolutions + hidden * (64 * side**2 + 1) + outputs * (hidden + 1)


def _counts() -> Evidence:
    networks = {
        "PMCFL, MNIST": (1_663_370, (28, 1, 5, 512, 10)),
        "DAFL, FEMNIST": (6_603_710, (28, 1, 5, 2048, 62)),
        "PMCFL, CelebA": (8_409_025, (64, 3, 3, 512, 1)),
    }
    steps = [Step(f"{name}: parameters", parameters(*shape), printed) for name, (printed, shape) in networks.items()]
    steps += [Step(f"{name}: without padding", parameters(*shape, same=False)) for name, (_, shape) in networks.items()]
    released = parameters(64, 3, 5, 1024, 1) + 4 * 1024  # batch-norm has four numbers per unit
    steps.append(Step("PMCFL, CelebA, the network of the released code", released, 8_409_025))
    follows = (
        "All three are right with padding that keeps the size. The released code (CelebA/Model.py:8-16) has a "
        f"different CelebA network: 5x5 filters, 1,024 units and batch-norm, {released:,} parameters; its server "
        "never updates batch-norm, because setting two of four arrays fails and is ignored (Server.py:121-125)."
    )
    return shown(
        all(step.recomputed == step.printed for step in steps[:3]), follows, *steps, verdict="right as printed"
    )


PMCFL = (
    Erratum(
        name="pmcfl-softmax",
        title="a softmax of one output",
        paper="PMCFL",
        place="Section 5.2, network",
        printed="A final softmax layer with one neuron.",
        fedmerit="`celeba-cnn` has one output and a sigmoid, as the authors' code has.",
        evidence=_softmax,
    ),
    Erratum(
        name="pmcfl-celeba-subset",
        title="another subset than described",
        paper="PMCFL",
        place="Section 5.2, data, and Table 7",
        printed="Half of the images, people with fewer than 5 of them removed, a random fifth of each person's for "
        "testing.",
        fedmerit='`task.data = "reproductions.data:CELEBA_AUTHORS"` takes the authors\' people; the task `celeba` '
        "takes all people with at least 5 images.",
        see="your-files.md",
        evidence=_subset,
    ),
    Erratum(
        name="pmcfl-two-digits",
        title="some clients have three digits",
        paper="PMCFL",
        place="Section 6.3",
        printed="Each client has at most two digits, so label diversity says nothing.",
        fedmerit='`task.partition = "shards"` is this partition; the fact `labels` counts what a client really has.',
        evidence=_two_digits,
    ),
    Erratum(
        name="pmcfl-alice-bob",
        title="criteria that do not sum to 1",
        paper="PMCFL",
        place="Examples 4.1 and 4.2",
        printed="Criteria that are said to sum to 1 over the round; sharpness is 0.4 and 0.5.",
        fedmerit="`fedmerit weigh` with `--normalise none` gives the printed scores, with `sum` the normalised ones.",
        evidence=_alice_and_bob,
    ),
    Erratum(
        name="pmcfl-notation",
        title="slips of notation",
        paper="PMCFL",
        place="Eq. 1, Definition 1, MW, Section 6.2",
        printed="A minimum where its argument is meant; MW with two indices mixed; BC for CB.",
        fedmerit="Sums run over the clients of the round. The criterion is `MW`, which DAFL and the authors' code "
        "call MD.",
        evidence=cannot("notation", "What is meant is clear from the rest of the paper."),
    ),
    Erratum(
        name="pmcfl-only-work",
        title="earlier work overlooked",
        paper="PMCFL",
        place="Section 2",
        printed="The claim to be the only work that changes the clients' weights in aggregation.",
        fedmerit="Both are here as recipes to compare with: `agnostic` and `qffl`.",
        evidence=cannot("literature", "Agnostic federated learning and q-FFL (both 2019) did so before."),
    ),
)

PARAMETER_COUNTS = Erratum(
    name="parameter-counts",
    title="the sizes of the networks",
    paper="PMCFL, DAFL",
    place="Sections 5 and 3, networks",
    printed="1,663,370, 8,409,025 and 6,603,710 parameters.",
    fedmerit="`mnist-cnn`, `celeba-cnn` and `femnist-cnn` have these counts.",
    evidence=_counts,
)
