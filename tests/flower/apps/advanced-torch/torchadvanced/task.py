"""Model, data and training: digits with skewed labels."""

from __future__ import annotations

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn


class Net(nn.Module):
    """A network with a head that every node keeps for itself."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1 = nn.Linear(64, 32)
        self.fc2 = nn.Linear(32, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc2(torch.relu(self.fc1(x)))


def load_data(partition_id: int, num_partitions: int) -> tuple[torch.Tensor, ...]:
    x, y = load_digits(return_X_y=True)
    home = np.random.default_rng(42).dirichlet(np.ones(num_partitions), 10).cumsum(axis=1)[y]
    rows = (np.random.default_rng(7).random((len(y), 1)) > home).sum(axis=1) == partition_id
    images, labels = torch.tensor(x[rows] / 16, dtype=torch.float32), torch.tensor(y[rows])
    cut = int(0.8 * len(labels))
    return images[:cut], labels[:cut], images[cut:], labels[cut:]


def train(net: nn.Module, images: torch.Tensor, labels: torch.Tensor, epochs: int, lr: float) -> float:
    optimizer, loss = torch.optim.SGD(net.parameters(), lr=lr, momentum=0.9), torch.tensor(0.0)
    for _ in range(epochs):
        for batch in torch.arange(len(labels)).split(32):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(net(images[batch]), labels[batch])
            loss.backward()
            optimizer.step()
    return loss.item()


def test(net: nn.Module, images: torch.Tensor, labels: torch.Tensor) -> tuple[float, float]:
    with torch.no_grad():
        outputs = net(images)
    loss = nn.functional.cross_entropy(outputs, labels).item()
    return loss, float((outputs.argmax(1) == labels).float().mean())
