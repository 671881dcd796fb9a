"""Every recipe on every fleet of Flower, real processes included; see `make test-flower`."""

from pathlib import Path

import pytest

from reproductions.experiments import flower as experiment


@pytest.mark.long
def test_every_recipe_on_every_fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(experiment, "RUNS", tmp_path)
    experiment.conform()
    for recipe in experiment.RECIPES:
        for fleet in experiment.FLEETS[1:]:
            local, other = (experiment.folder_of(recipe, one) for one in ("local", fleet))
            weights, models = experiment.differences(local, other)
            assert weights < 1e-6, (recipe, fleet)
            assert models < 1e-5, (recipe, fleet)
