"""The papers' networks, counted by their layers; and the one poster that leaves its symbols open."""

from __future__ import annotations

from fedmerit.papers.errata.entry import Erratum, Evidence, Step, cannot, shown


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
        "All three are right, given padding that keeps the size. The released code has another network for CelebA: "
        f"5x5 filters, 1,024 units and batch-norm, {released:,} parameters."
    )
    return shown(
        all(step.recomputed == step.printed for step in steps[:3]), follows, *steps, verdict="right as printed"
    )


PARAMETER_COUNTS = Erratum(
    name="parameter-counts",
    title="the sizes of the networks",
    digest=("B",),
    paper="PMCFL, DAFL",
    place="Sections 5 and 3, networks",
    printed="1,663,370, 8,409,025 and 6,603,710 parameters.",
    fedmerit="`mnist-cnn`, `celeba-cnn` and `femnist-cnn` have these counts.",
    evidence=_counts,
)

FEDVAL_NOTATION = Erratum(
    name="fedval-notation",
    title="symbols without a meaning",
    digest=("B30",),
    paper="FedVal",
    place="objective and Algorithm 1",
    printed="F_k is not given, Gamma and S are not defined, k is the number of clients and one of them.",
    fedmerit="Weights are divided by their sum over the clients, as in Algorithm 1.",
    evidence=cannot(
        "symbols not defined", "Shares sum to 1 if they are divided by the sum over clients and objectives."
    ),
    see="papers.md#fedval",
)
