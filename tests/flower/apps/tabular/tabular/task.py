"""A generated table of incomes, a network with one output."""

from __future__ import annotations

import torch
from sklearn.datasets import make_classification
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def load_data(partition_id: int, num_partitions: int) -> tuple[DataLoader, DataLoader]:
    x, y = make_classification(n_samples=600, n_features=14, random_state=0)
    x, y = x[partition_id::num_partitions], y[partition_id::num_partitions]
    x_train, x_test, y_train, y_test = train_test_split(x, y, test_size=0.2, random_state=42)
    scaler = StandardScaler().fit(x_train)

    def loader(x, y, *, shuffle: bool) -> DataLoader:
        rows = torch.tensor(scaler.transform(x), dtype=torch.float32)
        return DataLoader(TensorDataset(rows, torch.tensor(y, dtype=torch.float32).view(-1, 1)), 32, shuffle=shuffle)

    return loader(x_train, y_train, shuffle=True), loader(x_test, y_test, shuffle=False)


class IncomeClassifier(nn.Module):
    """Three layers and a sigmoid."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(14, 32), nn.ReLU(), nn.Linear(32, 1), nn.Sigmoid())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


def trainer(model: nn.Module, loader: DataLoader) -> None:
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for x, y in loader:
        optimizer.zero_grad()
        nn.functional.binary_cross_entropy(model(x), y).backward()
        optimizer.step()


def evaluator(model: nn.Module, loader: DataLoader) -> tuple[float, float]:
    correct, total, loss = 0, 0, 0.0
    with torch.no_grad():
        for x, y in loader:
            outputs = model(x)
            loss += nn.functional.binary_cross_entropy(outputs, y).item()
            correct, total = correct + int(((outputs > 0.5).float() == y).sum()), total + len(y)
    return loss / len(loader), correct / total
