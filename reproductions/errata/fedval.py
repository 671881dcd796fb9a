"""FedVal: symbols that its poster leaves open."""

from __future__ import annotations

from reproductions.errata.erratum import Erratum, cannot

FEDVAL_NOTATION = Erratum(
    name="fedval-notation",
    title="symbols without a meaning",
    paper="FedVal",
    place="objective and Algorithm 1",
    printed="F_k is not given, Gamma and S are not defined, k is the number of clients and one of them.",
    fedmerit="Weights are divided by their sum over the clients, as in Algorithm 1.",
    evidence=cannot(
        "symbols not defined", "Shares sum to 1 if they are divided by the sum over clients and objectives."
    ),
    see="papers.md#fedval",
)
