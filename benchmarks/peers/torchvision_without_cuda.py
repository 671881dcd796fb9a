"""Import this before torchvision: its wheel wants CUDA's libraries, which a CPU installation of torch does not have.

Without them torchvision cannot declare two operators (non-maximum suppression) and refuses to be imported. Declared
here without an implementation; nothing in the bench calls them.
"""

import torch

for name in ("nms", "qnms"):
    torch.library.define(f"torchvision::{name}", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
