"""M2F: its tables, its measure of computation [M2F, eq. 10] and its data; and what can only be read."""

from __future__ import annotations

import numpy as np

from fedmerit.core.criteria.table import REPORTED_COMPUTATION, SIMULATED_COMPUTATION
from fedmerit.core.state import History
from fedmerit.core.types import Cohort
from fedmerit.core.updates import Updates
from fedmerit.core.weights.scores import Product
from fedmerit.core.weights.weigh import normalised
from fedmerit.study.fairness import convergence, rank_correlation
from reproductions.errata.erratum import Erratum, Evidence, Step, cannot, listed, percent, shown
from reproductions.published import MNIST_LABELS, M2fClient, published

SECOND_GROUP = (0, 6, 7, 8, 9)
"""The digits of the second label group [M2F, sec. 5.1]."""


def quality(clients: tuple[M2fClient, ...]) -> list[float]:
    """The product of epochs, samples and rate, each against the largest of the table."""
    raw = np.array([[client.epochs, client.samples, client.rate] for client in clients])
    return [float(score) for score in Product()(normalised(raw, "max"))]


def _low_factors() -> Evidence:
    steps, correlations = [], {}
    for number, clients in published().m2f_clients.items():
        accuracy = rank_correlation(quality(clients), [client.accuracy for client in clients])
        speed = rank_correlation(quality(clients), [client.convergent for client in clients])
        correlations[number] = (accuracy, speed)
        steps.append(Step(f"Table {number}: rank correlation of quality with accuracy", accuracy))
        steps.append(Step(f"Table {number}: rank correlation of quality with convergent iteration", speed))
    best = sorted(published().m2f_clients[3], key=lambda client: -client.accuracy)
    rank = [client.number for client in best].index(24) + 1
    steps.append(Step("Table 3: rank by accuracy of client 24 (1 epoch, rate 0.2) among six", rank))
    (accuracy_2, speed_2), (accuracy_3, speed_3) = correlations[2], correlations[3]
    follows = (
        f"Client 24 has the fewest epochs and the lowest rate and is number {rank} of six in accuracy. The rank "
        f"correlation of quality with accuracy is {accuracy_2:+.2f} in Table 2 and {accuracy_3:+.2f} in Table 3, "
        f"with the convergent iteration {speed_2:+.2f} and {speed_3:+.2f}: speed follows quality, accuracy "
        "does not."
    )
    return shown(rank == 2 and accuracy_3 < 0 and speed_3 < -0.9, follows, *steps)


def _fastest() -> Evidence:
    taken = {client.number: client.convergent for client in published().m2f_clients[3]}
    first = [number for number, iteration in taken.items() if iteration == min(taken.values())]
    steps = [Step(f"client {number}: convergent iteration", iteration) for number, iteration in taken.items()]
    follows = f"Clients {' and '.join(map(str, first))} both need {min(taken.values())} iterations."
    return shown(first == [35, 39], follows, *steps)


def _late_average() -> Evidence:
    rounds = np.arange(1, 101)
    early = np.where(rounds >= 9, 0.90 + 0.05 * (rounds - 9) / 91, 0.5)
    late = np.where(rounds >= 43, early, 0.5)
    averages = [convergence(rounds.tolist(), curve, 0.9).average or 0.0 for curve in (early, late)]
    clients = published().m2f_clients[3]
    together = rank_correlation([c.convergent for c in clients], [c.accuracy for c in clients])
    steps = (
        Step("made up: over 90 % from iteration 9 on, then rising; average after convergence", averages[0]),
        Step("made up: the same client, but over 90 % only from iteration 43 on", averages[1]),
        Step("Table 3: rank correlation of convergent iteration with accuracy", together),
    )
    follows = (
        "For a client that converges late, the average covers fewer and later iterations. A client that equals "
        f"another from iteration 43 on and is worse before has {percent(averages[1], 1)} where that one has "
        f"{percent(averages[0], 1)}. In Table 3 late clients have better averages (rank correlation {together:+.2f})."
    )
    return shown(averages[1] > averages[0] and together > 0, follows, *steps)


def _computation() -> Evidence:
    epochs = np.array([1.0, 2.0, 3.0])
    facts = {"seconds": epochs, "epochs": epochs}  # equal machines: twice the epochs, twice the time
    same = Cohort(1, (0, 1, 2), Updates(np.zeros((3, 1), dtype=np.float32)), facts)
    by_time, by_epochs = (part(same, History()).tolist() for part in (REPORTED_COMPUTATION, SIMULATED_COMPUTATION))
    steps = [
        Step(f"{count:.0f} epochs: computation ability {how}", value)
        for how, values in (("by training time, as Eq. 10 has it", by_time), ("by epochs in equal time", by_epochs))
        for count, value in zip(epochs, values, strict=True)
    ]
    follows = (
        f"For 1 / 2 / 3 epochs in 1 / 2 / 3 seconds Eq. 10 gives {listed(by_time, '.1f')}: from 1 upwards, and least "
        f"for the client that does most. Epochs done in equal time give {listed(by_epochs, '.0f')}."
    )
    return shown(min(by_time) >= 1 and by_time[0] > by_time[2] and by_epochs[0] < by_epochs[2], follows, *steps)


def _disjoint() -> Evidence:
    images = [MNIST_LABELS[digit] for digit in SECOND_GROUP]
    steps = [Step(f"training images of digit {d}", n) for d, n in zip(SECOND_GROUP, images, strict=True)]
    steps += [Step("training images of the second label group", sum(images)), Step("20 clients x 1,500", 30_000)]
    follows = f"The group {{0, 6, 7, 8, 9}} has {sum(images):,} training images, {30_000 - sum(images)} too few."
    return shown(sum(images) < 30_000, follows, *steps)


M2F = (
    Erratum(
        name="m2f-two-low-factors",
        title="accuracy does not follow quality",
        paper="M2F",
        place="Section 5.2 on Tables 2 and 3",
        printed="Two or more low factors (epochs, samples, rate) certainly mean lower accuracy and slower convergence.",
        fedmerit="`fedmerit explain DIR --fairness` gives both correlations for any run.",
        evidence=_low_factors,
    ),
    Erratum(
        name="m2f-fastest",
        title="two clients are fastest",
        paper="M2F",
        place="Section 5.2 on Table 3",
        printed="Client 35 converges in the least time.",
        fedmerit="The cells of the tables are taken as published, the prose is not used.",
        evidence=_fastest,
    ),
    Erratum(
        name="m2f-late-average",
        title="the average favours clients that converge late",
        paper="M2F",
        place="Tables 2 and 3, average accuracy",
        printed="Accuracies of clients that converged at different times, side by side.",
        fedmerit="`fedmerit explain --fairness` uses the final accuracy and shows the average next to it.",
        evidence=_late_average,
    ),
    Erratum(
        name="m2f-computation",
        title="a ratio above 1, used the other way round",
        paper="M2F",
        place="Eq. 10, Sections 5.1 and 5.2",
        printed="Computation ability is a normalised ratio of training times; in the experiments more epochs mean "
        "more.",
        fedmerit="`Computation` and `ReportedComputation` use time, `SimulatedComputation` epochs. A factor "
        "common to a group cancels in the weights.",
        see="papers.md#m2f",
        evidence=_computation,
    ),
    Erratum(
        name="m2f-disjoint",
        title="more images than there are",
        paper="M2F",
        place="Section 5.1, data",
        printed="20 clients share a label group; the largest size printed, 1,498, points to 1,500 images each.",
        fedmerit="`label-draws` draws each client's rows, which may overlap; `task.size` sets how many.",
        evidence=_disjoint,
    ),
    Erratum(
        name="m2f-notation",
        title="slips of notation",
        paper="M2F",
        place="Eq. 2, 4, 6; steps 6, 8; Table 1",
        printed="Eq. 4 lacks the sum over the cluster; indices and symbols are used twice.",
        fedmerit="A group's aggregate is the sum over its clients.",
        see="papers.md#m2f",
        evidence=cannot("notation", "Algorithm 2, line 19, says what is meant: aggregate all of a cluster."),
    ),
)
