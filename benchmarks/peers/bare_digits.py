"""examples/digits.toml as a script: scikit-learn's reader, torch.optim, FedAvg's loop, a test after every round."""

from __future__ import annotations

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.utils import parameters_to_vector, vector_to_parameters

CLIENTS, PER_ROUND, ROUNDS, EPOCHS, LR, BATCH, ALPHA = 20, 10, 25, 5, 0.3, 32, 0.3


def split(y: np.ndarray, random: np.random.Generator) -> list[np.ndarray]:
    """Rows of each client: every label is dealt by shares drawn from a Dirichlet distribution."""
    parts: list[list[np.ndarray]] = [[] for _ in range(CLIENTS)]
    for label in range(10):
        rows = random.permutation(np.flatnonzero(y == label))
        cuts = (np.cumsum(random.dirichlet(np.full(CLIENTS, ALPHA)))[:-1] * len(rows)).astype(int)
        for part, piece in zip(parts, np.split(rows, cuts), strict=True):
            part.append(piece)
    return [np.concatenate(part) for part in parts]


def main() -> None:
    """Train, average by rows, test."""
    torch.manual_seed(1)
    torch.set_num_threads(1)
    random, digits = np.random.default_rng(1), load_digits()
    x, y = torch.tensor(digits.data, dtype=torch.float32) / 16, torch.tensor(digits.target)
    clients = [torch.from_numpy(rows) for rows in split(digits.target, random)]
    train, test = zip(*((rows[: len(rows) * 4 // 5], rows[len(rows) * 4 // 5 :]) for rows in clients), strict=True)
    module = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    model = parameters_to_vector(module.parameters()).detach()
    for index in range(ROUNDS):
        chosen = [int(client) for client in random.choice(CLIENTS, PER_ROUND, replace=False) if len(train[client])]
        trained = []
        for client in chosen:
            vector_to_parameters(model, module.parameters())
            optimizer = torch.optim.SGD(module.parameters(), lr=LR)
            for _ in range(EPOCHS):
                for rows in train[client][torch.randperm(len(train[client]))].split(BATCH):
                    optimizer.zero_grad()
                    cross_entropy(module(x[rows]), y[rows]).backward()
                    optimizer.step()
            trained.append(parameters_to_vector(module.parameters()).detach())
        sizes = torch.tensor([float(len(train[client])) for client in chosen])
        model = sizes / sizes.sum() @ torch.stack(trained)
        vector_to_parameters(model, module.parameters())
        with torch.no_grad():
            right = sum(int((module(x[rows]).argmax(1) == y[rows]).sum()) for rows in test)
        print(index + 1, right / sum(map(len, test)))
    torch.save(module.state_dict(), "model.pt")


if __name__ == "__main__":
    main()
