"""Data, network, training and testing of the quickstart."""

from typing import TypeAlias, cast

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

CLASSES = 10
Images: TypeAlias = DataLoader[tuple[torch.Tensor, ...]]


class Net(nn.Module):
    """Two convolutions and two dense layers on 8 x 8 images."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(8, 16, 3, padding=1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(16 * 4 * 4, 32),
            nn.ReLU(),
            nn.Linear(32, CLASSES),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Scores of the ten digits."""
        return cast(torch.Tensor, self.layers(x))


def load_data(partition: int, partitions: int) -> tuple[Images, Images]:
    """A node's images, four fifths for training. Half of each digit's images lie with one node: nodes are unlike."""
    x, y = load_digits(return_X_y=True)
    home = np.where(np.arange(len(y)) % 2, y % partitions, np.random.default_rng(0).integers(partitions, size=len(y)))
    mine = np.flatnonzero(home == partition)
    images, digits = torch.tensor(x[mine] / 16, dtype=torch.float32).reshape(-1, 1, 8, 8), torch.tensor(y[mine])
    cut = len(mine) * 4 // 5
    parts = TensorDataset(images[:cut], digits[:cut]), TensorDataset(images[cut:], digits[cut:])
    return DataLoader(parts[0], batch_size=16, shuffle=True), DataLoader(parts[1], batch_size=64)


def labels(loader: Images) -> torch.Tensor:
    """The labels of all images."""
    return cast(TensorDataset, loader.dataset).tensors[1]


def size(loader: Images) -> int:
    """How many images there are."""
    return len(labels(loader))


def train(net: Net, loader: Images, lr: float, epochs: int) -> float:
    """Plain SGD; the mean loss of the last epoch."""
    optimizer, loss_of = torch.optim.SGD(net.parameters(), lr=lr), nn.CrossEntropyLoss()
    total = 0.0
    for _ in range(epochs):
        total = 0.0
        for x, y in loader:
            optimizer.zero_grad()
            loss = loss_of(net(x), y)
            loss.backward()
            optimizer.step()
            total += loss.item() * len(y)
    return total / size(loader)


def test(net: Net, loader: Images) -> float:
    """The share of images that are told right."""
    with torch.no_grad():
        right = sum(int((net(x).argmax(1) == y).sum()) for x, y in loader)
    return right / size(loader)
