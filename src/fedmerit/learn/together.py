"""Many clients at once on a device, for any module that torch.func can vectorise: one pass serves them all.

An accelerator idles between the small operations of one client. Here each operation has one more dimension, the
clients'; each has its own parameters, rows and batches, and one with fewer steps than others stands still in the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.func import functional_call, grad, vmap

from fedmerit.config.schema import TrainConfig
from fedmerit.core.types import Model, Samples
from fedmerit.learn.batched import steps_of
from fedmerit.learn.flat import FlatModule
from fedmerit.learn.inputs import Arguments, Inputs, call
from fedmerit.learn.optimizers import make_optimizer
from fedmerit.learn.outputs import Output, logits

SAME, SAME_MIXED = 1e-3, 5e-2
"""How far a gradient made together may lie from the one made alone, relative to its length; in mixed precision."""


@dataclass(frozen=True, slots=True)
class Together:
    """A module with all that its loss on a batch depends on but values and rows."""

    flat: FlatModule
    output: Output
    arguments: Arguments | None

    def loss(self, trained: Tensor, rest: Tensor, x: Tensor, y: Tensor, scale: Tensor) -> Tensor:
        """The rows' losses, each times its scale; one whose scale is 0 only fills up and has no gradient."""
        flat, fixed = self.flat, len(self.flat.values) - len(self.flat.trained)
        parts = torch.cat([trained, rest[:fixed]]).split(flat.lengths)  # type: ignore[no-untyped-call]
        named = zip(flat.names, parts, flat.shapes, strict=True)
        values = {name: part.view(shape) for name, part, shape in named}

        def module(*args: Tensor, **by_name: Tensor) -> object:
            return functional_call(flat.module, values, args, by_name)

        forward = flat.device.forward(lambda batch: call(module, self.arguments, batch))
        outputs = logits(forward(Inputs(x, rest[fixed:])[slice(None)]))
        counts = (scale > 0).view(-1, *[1] * (outputs.dim() - 1))
        return self.output.loss(torch.where(counts, outputs, outputs.detach()), y) * scale.amax()

    def works_for(self, samples: Samples, model: Model) -> bool:
        """Whether two clients at once, the second with fewer rows, have the gradients that each has alone.

        Not so where a module draws at random (dropout), mixes rows of a batch, or does what torch cannot vectorise.
        """
        flat = self.flat
        values, learned = flat.device.put(model), len(flat.trained)
        ends = np.array([0, len(samples) - 1])
        x, y = flat.device.put(samples.x[ends]), flat.device.put(self.output.prepare(samples.y[ends]).numpy())
        scale = flat.device.put(np.array([[0.5, 0.5], [1.0, 0.0]], np.float32))
        both = torch.stack([values, values])
        slope: Callable[..., Tensor] = grad(self.loss)
        try:
            found = vmap(slope)(
                both[:, :learned], both[:, learned:], x.expand(2, *x.shape), y.expand(2, *y.shape), scale
            )
            alone = [
                slope(values[:learned], values[learned:], x[:some], y[:some], scale[client, :some])
                for client, some in enumerate((2, 1))
            ]
        except Exception:  # whatever a module does that cannot be vectorised: it is trained client by client
            return False
        apart, length = (found - torch.stack(alone)).norm(), torch.stack(alone).norm()
        return bool(apart <= (SAME if flat.device.precision == "32" else SAME_MIXED) * length)

    def train(
        self,
        config: TrainConfig,
        models: Sequence[Model],
        samples: Sequence[Samples],
        batches: Sequence[Sequence[Tensor]],
    ) -> list[Model]:
        """The models after every client's own batches."""
        device, learned = self.flat.device, len(self.flat.trained)
        values = device.put(np.stack(models))
        trained, rest = values[:, :learned], values[:, learned:]
        x = device.put(np.concatenate([part.x for part in samples]))
        y = device.put(np.concatenate([self.output.prepare(part.y).numpy() for part in samples]))
        starts = [0, *np.cumsum([len(part) for part in samples])[:-1].tolist()]
        anchor = trained.clone() if config.prox else None
        move = make_optimizer(config, trained)
        slopes = vmap(grad(self.loss))
        number = [len(own) for own in batches]
        rows_of, scale_of = (device.put(part.numpy()) for part in steps_of(batches, starts))
        for step, (rows, scale) in enumerate(zip(rows_of, scale_of, strict=True)):
            gradient = slopes(trained, rest, x[rows], y[rows], scale)
            if config.clip is not None:
                gradient.mul_(torch.clamp(config.clip / gradient.norm(dim=1, keepdim=True), max=1.0))
            if config.weight_decay and config.optimizer != "adamw":
                gradient.add_(trained, alpha=config.weight_decay)
            if anchor is not None:
                gradient.add_(trained - anchor, alpha=config.prox)
            if step < min(number):
                move(trained, gradient)
            else:
                moved = trained.clone()
                move(moved, gradient)
                trained.copy_(torch.where(scale.amax(dim=1, keepdim=True) > 0, moved, trained))
        return list(device.fetch(values))
