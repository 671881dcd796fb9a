"""Figures about the data sets that several errata rest on."""

from __future__ import annotations

MNIST_LABELS = (5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949)
"""Training images of MNIST by digit."""

CELEBA_IMAGES = 202_599

CELEBA_TESTS = {2: 284, 3: 464, 4: 1283, 5: 598, 6: 1536, 7: 3}
"""Test images of a client: number of such clients, in the split of the PMCFL authors' public code."""

CELEBA_ROUND = 417
"""A tenth of these clients take part in a round."""
