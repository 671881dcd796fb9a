"""CPU kernels: which of several equivalent implementations a stack of layers uses on this machine.

Milliseconds of CPU per SGD step at batch 10 (mnist-cnn also at 100), least of several interleaved, one thread, torch
2.13; first / last: the layout of convolutions with many channels; addmm / oneDNN: the forward pass of dense layers.
AVX2 is that machine with ONEDNN_MAX_CPU_ISA=AVX2 ATEN_CPU_CAPABILITY=avx2; `benchmarks/kernels.py` prints the table.

| | first, addmm | first, oneDNN | last, addmm | last, oneDNN |
| --- | --- | --- | --- | --- |
| Xeon, AVX-512, mnist-cnn | 9.10 | 9.05 | 8.67 | 8.76 |
| Xeon, AVX-512, mnist-cnn at 100 | 63.6 | 64.1 | 58.7 | 58.5 |
| Xeon, AVX-512, femnist-cnn | 19.1 | 16.8 | 18.8 | 16.4 |
| Xeon, AVX-512, celeba-cnn | 35.3 | 32.7 | 32.0 | 28.2 |
| Xeon, AVX2, mnist-cnn | 12.7 | 12.8 | 13.6 | 13.7 |
| Xeon, AVX2, mnist-cnn at 100 | 97.3 | 100.8 | 107.9 | 109.4 |
| Xeon, AVX2, femnist-cnn | 22.5 | 21.4 | 23.8 | 22.5 |
| Xeon, AVX2, celeba-cnn | 44.2 | 42.5 | 41.4 | 38.4 |
| Zen 5, AVX-512, mnist-cnn | 6.69 | 6.76 | 6.63 | 6.32 |
| Zen 5, AVX-512, mnist-cnn at 100 | 51.7 | 49.8 | 47.9 | 44.9 |
| Zen 5, AVX-512, femnist-cnn | 12.8 | 11.3 | 12.5 | 11.1 |
| Zen 5, AVX-512, celeba-cnn | 28.4 | 26.2 | 25.6 | 23.3 |
| Zen 5, AVX2, mnist-cnn | 10.1 | 10.2 | 11.0 | 11.1 |
| Zen 5, AVX2, mnist-cnn at 100 | 83.5 | 81.5 | 87.5 | 88.4 |
| Zen 5, AVX2, femnist-cnn | 15.2 | 16.0 | 16.3 | 16.4 |
| Zen 5, AVX2, celeba-cnn | 31.7 | 31.8 | 30.4 | 29.2 |

The instruction set decides, not the vendor. Timing the four at the start of a run instead would gain nothing with
AVX-512 (1 % in one row) and up to 13 % for celeba-cnn with AVX2; the bits of a run would then depend on a clock.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Kernels:
    """Layout of convolutions with many channels, and the library for the forward pass of dense layers."""

    channels_last: bool
    onednn_dense: bool


FIRST = Kernels(channels_last=False, onednn_dense=False)
"""Default, with which all runs on AVX2 were computed."""
BY_CAPABILITY: Mapping[str, Kernels] = {"AVX512": Kernels(channels_last=True, onednn_dense=True)}
"""Exceptions from FIRST by the table above, by torch's name of the instruction set."""


def find_kernels(capability: str | None = None) -> Kernels:
    """Kernels for an instruction set, by default this machine's."""
    return BY_CAPABILITY.get(capability or torch.backends.cpu.get_cpu_capability(), FIRST)


def dense_forward(kernels: Kernels) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """Return (x, weight, bias) -> x @ weight^T + bias; torch's product if it was built without oneDNN."""
    fused = kernels.onednn_dense and torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    return _by_onednn if fused and hasattr(torch.ops.mkldnn, "_linear_pointwise") else _by_addmm


def _by_addmm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return torch.addmm(bias, x, weight.t())


def _by_onednn(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    if x.dtype != weight.dtype or x.shape[1:] != weight.shape[1:] or not len(x):
        return _by_addmm(x, weight, bias)  # it raises a readable error for wrong shapes
    outputs: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    return outputs
