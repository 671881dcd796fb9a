"""Model, data and training: digits, dealt at random."""

from __future__ import annotations

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    """A small convolutional network."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 6, 3)
        self.fc1 = nn.Linear(6 * 3 * 3, 32)
        self.fc2 = nn.Linear(32, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = nn.functional.max_pool2d(torch.relu(self.conv(x)), 2)
        return self.fc2(torch.relu(self.fc1(x.flatten(1))))


def dataset() -> TensorDataset:
    images, labels = load_digits(return_X_y=True)
    return TensorDataset(torch.tensor(images / 16, dtype=torch.float32).reshape(-1, 1, 8, 8), torch.tensor(labels))


def load_data(partition_id: int, num_partitions: int, batch_size: int) -> tuple[DataLoader, DataLoader]:
    """Every node has 80 % of its part for training and 20 % for tests."""
    order = torch.randperm(1797, generator=torch.Generator().manual_seed(42))[partition_id::num_partitions]
    rows = torch.utils.data.Subset(dataset(), order.tolist())
    train, test = torch.utils.data.random_split(rows, [0.8, 0.2], torch.Generator().manual_seed(42))
    return DataLoader(train, batch_size=batch_size, shuffle=True), DataLoader(test, batch_size=batch_size)


def load_centralized_dataset() -> DataLoader:
    return DataLoader(dataset(), batch_size=128)


def train(net: nn.Module, loader: DataLoader, epochs: int, lr: float, device: torch.device) -> float:
    net.to(device).train()
    optimizer, total = torch.optim.SGD(net.parameters(), lr=lr, momentum=0.9), 0.0
    for _ in range(epochs):
        for images, labels in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(net(images.to(device)), labels.to(device))
            loss.backward()
            optimizer.step()
            total += loss.item()
    return total / (epochs * len(loader))


def test(net: nn.Module, loader: DataLoader, device: torch.device) -> tuple[float, float]:
    net.to(device).eval()
    correct, loss = 0, 0.0
    with torch.no_grad():
        for images, labels in loader:
            outputs = net(images.to(device))
            loss += nn.functional.cross_entropy(outputs, labels.to(device)).item()
            correct += int((outputs.argmax(1) == labels.to(device)).sum())
    return loss / len(loader), correct / len(loader.dataset)
