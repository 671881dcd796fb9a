"""Seeds: the same numbers in every version, on every machine, and others for every purpose and place."""

from itertools import pairwise

from fedmerit.core.seeds import attack_seed, derive, generator, train_seed


def test_seeds_are_these_numbers():
    """Written down, so that a run that is resumed or repeated draws what it drew."""
    assert derive(0, "train", 1, 2) == train_seed(0, 1, 2) == 7246263863953681279
    assert derive(7, "x") == 9113301221711673156
    assert attack_seed(0, 1, 2) == derive(0, "attack", 1, 2)


def test_seeds_have_63_bits_and_differ():
    seeds = sorted({derive(seed, purpose, place) for seed in (0, 1) for purpose in "ab" for place in range(500)})
    assert len(seeds) == 2000
    assert 0 <= seeds[0] < 2**56
    assert 2**63 - 2**56 < seeds[-1] < 2**63
    assert max(after - before for before, after in pairwise(seeds)) < 2**57
    assert derive(0, "train", 12) != derive(0, "train", 1, 2)
    assert generator(3, "a", 1).integers(1 << 40) == generator(3, "a", 1).integers(1 << 40)
