"""Kernels by CPU: other ways to compute the same, named in the ledger and asked for by a resume."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fedmerit.config.schema import make_config, make_recipe
from fedmerit.core.recipe_json import part_to_json
from fedmerit.errors import FolderError
from fedmerit.learn import stack
from fedmerit.learn.flat import FlatModule
from fedmerit.learn.kernels import BY_CAPABILITY, FIRST, Kernels, dense_forward, find_kernels
from fedmerit.learn.models import two_convolutions
from fedmerit.store import run_folder
from fedmerit.store.run_folder import KERNELS, config_to_resume, make_folder, open_ledger

ALL = [Kernels(last, onednn) for last in (False, True) for onednn in (False, True)]


def after_a_step(kernels: Kernels, monkeypatch: pytest.MonkeyPatch) -> Tensor:
    monkeypatch.setattr(stack, "find_kernels", lambda: kernels)
    torch.manual_seed(0)
    flat = FlatModule(two_convolutions(channels=1, side=8, kernel=3, hidden=12, outputs=3))
    assert flat.stack is not None
    x, y = torch.rand(5, 8, 8, 1).permute(0, 3, 1, 2), torch.tensor([0, 1, 2, 1, 0])
    with torch.no_grad():
        flat.stack.backward(flat.stack.forward(x), y, 0.2, 0.5)
    return flat.values.clone()


@pytest.mark.parametrize("kernels", ALL)
def test_all_kernels_take_the_same_step(kernels: Kernels, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = after_a_step(FIRST, monkeypatch)
    np.testing.assert_allclose(after_a_step(kernels, monkeypatch), expected, rtol=1e-4, atol=1e-6)


def test_what_is_not_in_the_table_runs_as_ever() -> None:
    assert {find_kernels(name) for name in ("AVX2", "DEFAULT", "SVE256")} == {FIRST}
    assert find_kernels("AVX512") == BY_CAPABILITY["AVX512"]
    assert find_kernels() == find_kernels(torch.backends.cpu.get_cpu_capability())


def test_without_onednn_torch_multiplies(monkeypatch: pytest.MonkeyPatch) -> None:
    layer, x = nn.Linear(4, 3), torch.rand(5, 4)
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    with torch.no_grad():
        outputs = dense_forward(BY_CAPABILITY["AVX512"])(x, layer.weight, layer.bias)
        assert torch.equal(outputs, torch.addmm(layer.bias, x, layer.weight.t()))


def test_a_run_is_not_resumed_with_other_kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = make_config({"task": {"data": "digits"}, "recipe": {"name": "fedavg"}})
    make_folder(tmp_path / "run", config, ["a"], part_to_json(make_recipe(config.recipe)))
    with open_ledger(tmp_path / "run") as ledger:
        assert ledger.meta()[KERNELS] == torch.backends.cpu.get_cpu_capability()
    assert config_to_resume(tmp_path / "run", None).recipe == config.recipe
    monkeypatch.setattr(run_folder, "kernels", lambda: "another set")
    with pytest.raises(FolderError, match=r"kernels for .* this machine's are for another set"):
        config_to_resume(tmp_path / "run", None)
