"""FedLAW [Li et al. 2023, ICML]: weights and a shrinking factor, learned on the server's rows in every round.

Minimises the loss of exp(g) * sum_i softmax(a)_i * model_i over g and a, from a = log(shares) and g = 0, by Adam with
the settings of the authors' code: learning rate 0.01, betas 0.5 and 0.999, 20 epochs; here with batches of 100.
"""

import numpy as np
import torch
from torch.func import functional_call

from benchmarks.weighbench.method import Method


def begin(cell):
    """Learn the weights of each round."""
    module = cell.task.learner.build()
    x, y = torch.from_numpy(cell.server.x).split(100), torch.from_numpy(cell.server.y).split(100)
    names, shapes = zip(*((name, part.shape) for name, part in module.named_parameters()), strict=True)
    sizes = [shape.numel() for shape in shapes]

    def step(index, model, updates):
        clients = torch.from_numpy(model + updates)
        logits, shrink = torch.tensor(np.log(cell.shares), requires_grad=True), torch.zeros(1, requires_grad=True)
        optimizer = torch.optim.Adam([logits, shrink], lr=0.01, betas=(0.5, 0.999))
        for inputs, labels in [*zip(x, y, strict=True)] * 20:
            flat = shrink.exp() * (logits.softmax(0).float() @ clients)
            parts = {n: p.view(s) for n, p, s in zip(names, flat.split(sizes), shapes, strict=True)}
            loss = torch.nn.functional.cross_entropy(functional_call(module, parts, (inputs,)), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        weights = logits.softmax(0).detach().numpy().astype(float)
        return (shrink.exp().item() * (weights @ (model + updates))).astype(np.float32), weights

    return step


METHODS = {"FedLAW": Method(weighting=lambda cell: lambda: begin(cell), server=True)}
