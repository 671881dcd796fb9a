"""Local training on a flat vector: the learner for PyTorch models."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fedmerit.config.schema import TrainConfig
from fedmerit.core.learner import NamedTensors
from fedmerit.core.lr_schedules import cosine_factor
from fedmerit.core.server.controls import CORRECTION, SLOPE, Control, FedDyn, Scaffold
from fedmerit.core.targets import CLASSES, Target
from fedmerit.core.types import Model, Samples
from fedmerit.errors import ConfigError
from fedmerit.learn.batched import is_dense_stack, outputs_batched, train_batched, train_shared
from fedmerit.learn.devices import CPU, describe, fetch, find_device, part_rows, put
from fedmerit.learn.flat import FlatModule
from fedmerit.learn.inputs import Arguments, Inputs, call
from fedmerit.learn.optimizers import make_optimizer
from fedmerit.learn.outputs import logits, output_of
from fedmerit.learn.stack import Stack

Loss: TypeAlias = Callable[[Any, Tensor], Tensor]
"""Maps the outputs of a module and the labels of a batch to the mean loss of the batch."""

GROUP = 10  # clients trained together if the model is tiny
MODELS = 64  # models evaluated together on the same rows


@dataclass(frozen=True)
class TorchLearner:
    """Learner for PyTorch modules: SGD, Adam or AdamW from the received model.

    It uses one thread, so that the bits do not depend on the number of cores. One step from w, with the batch's mean
    loss l, the received model w_0 and the correction c of SCAFFOLD or FedDyn (see `core.server.controls`):

        g = grad l(w) + weight_decay * w + prox * (w - w_0) + c
        w = w - lr * (momentum * v + g), v of the previous step; or `learn.optimizers`

    build    function that makes the module; with one output the loss is binary cross-entropy, otherwise cross-entropy
    config   settings of [train]
    loss     replaces that loss: a function of the module's outputs and a batch's labels that returns the mean loss. A
             module may return a mapping; predictions then use its `logits`, and `loss` sees all of it
    target   what is predicted (`core.targets`): a number needs one output and uses squared error, labels one logit each
    inputs   turns a batch into the module's arguments, a tuple or a mapping by name
    device   where it runs, a name for `learn.devices.find_device`

    A model consists of the module's trainable parameters and the buffers that training may change. Frozen parameters
    stay at the node: `build` makes them there, under seed 0, or loads them from a file, and their hash is compared
    before the first round.

    >>> TorchLearner(lambda: nn.Linear(64, 10)).start(seed=0).shape
    (650,)
    """

    build: Callable[[], nn.Module]
    config: TrainConfig = field(default_factory=TrainConfig)
    loss: Loss | None = None
    target: Target = CLASSES
    inputs: Arguments | None = None
    device: str = CPU

    def on(self, device: str) -> TorchLearner:
        """Return the same learner on a device of this machine."""
        return replace(self, device=find_device(device))

    @property
    def described(self) -> str:
        """Kind and model of its device."""
        return describe(self.device)

    @property
    def _flat(self) -> FlatModule:
        return _flat(self.build, self.device)

    def start(self, seed: int) -> Model:
        """Return the module's values as `build` initialises them under this seed."""
        with _quiet_torch(seed):
            flat = FlatModule(self.build())
        if self.config.algorithm == "feddyn" and flat.has_buffers:
            raise ConfigError(
                "train.algorithm = 'feddyn' needs a gradient for every value of the model, and buffers such as "
                'batch-norm\'s have none; use another module, or train.algorithm = "scaffold"'
            )
        return flat.values.numpy().copy()

    def train(self, model: Model, samples: Samples, seed: int, epochs: int | None = None) -> Model:
        """Train `model` for some epochs; batches are drawn anew in each epoch."""
        return self._train(model, samples, seed, epochs)[0]

    def _train(
        self, model: Model, samples: Samples, seed: int, epochs: int | None, correction: Model | None = None
    ) -> tuple[Model, int]:
        """Return the trained model, and the number of steps."""
        steps = 0
        with _quiet_torch(seed, self.device):
            flat = self._flat
            inputs = _load(flat, model, samples.x)
            flat.module.train()
            output = output_of(self.target)
            stack = flat.stack if self._is_common else None
            y = output.prepare(samples.y).to(self.device)

            def total(x: Tensor, y: Tensor) -> Tensor:
                """Sum of the losses of a batch's rows."""
                outputs = call(flat.module, self.inputs, x)
                return output.loss(logits(outputs), y) if self.loss is None else self.loss(outputs, y) * len(y)

            step = _Step(flat, stack, total, self.loss is None, self.config, inputs, y, correction)
            for rows in self._batches(samples, seed, epochs):
                step(rows)
                steps += 1
            flat.check_fixed()
            return fetch(flat.values).copy(), steps

    def _batches(self, samples: Samples, seed: int, epochs: int | None) -> Iterator[Tensor]:
        """Yield the rows of each batch."""
        config, rows = self.config, len(samples)
        size = rows if config.batch == "full" else min(config.batch, rows)
        random = np.random.default_rng(seed)
        for _ in range(epochs or config.epochs):
            order = put(random.permutation(rows) if size < rows else np.arange(rows), self.device)
            yield from (order[start : start + size] for start in range(0, rows, size))

    @property
    def control(self) -> Control | None:
        """SCAFFOLD's or FedDyn's control, as `train.algorithm` says."""
        match self.config.algorithm:
            case "scaffold":
                return Scaffold()
            case "feddyn":
                return FedDyn(self.config.prox)
        return None

    @property
    def extras(self) -> tuple[str, ...]:
        """SCAFFOLD returns its mean direction."""
        return (SLOPE,) if self.config.algorithm == "scaffold" else ()

    def train_with(
        self, model: Model, extras: Mapping[str, Model], samples: Samples, seed: int, epochs: int | None
    ) -> tuple[Model, Mapping[str, Model]]:
        """Train as `train` does, with a correction added to every gradient if the server sent one."""
        unknown = set(extras) - ({CORRECTION} if self.control else set())
        if unknown:
            raise ValueError(f"train.algorithm = {self.config.algorithm!r} uses no vectors (got {sorted(unknown)})")
        trained, steps = self._train(model, samples, seed, epochs, extras.get(CORRECTION))
        if not self.extras:
            return trained, {}
        slope = (model - trained) / np.float32(self.config.lr * steps)
        learned = len(self._flat.trained)
        slope[learned:] = 0  # buffers change without a gradient
        return trained, {SLOPE: slope}

    def train_pulled(
        self, model: Model, towards: Model, pull: float, samples: Samples, seed: int, epochs: int | None
    ) -> Model:
        """Train as `train` does, with pull * (w - towards) in place of FedProx's proximal term."""
        # pull * (w - towards) = pull * (w - start) + pull * (start - towards): FedProx's term and a constant vector.
        config = self.config.model_copy(update={"prox": pull, "algorithm": "sgd"})
        rest = np.float32(pull) * (model - towards)
        return replace(self, config=config)._train(model, samples, seed, epochs, rest)[0]

    @property
    def lr(self) -> float:
        """`train.lr`, before the schedule."""
        return self.config.lr

    def rate(self, index: int, rounds: int | None) -> float | None:
        """Return `train.lr` times the factor of `train.schedule`."""
        return None if self.config.schedule == "constant" else self.config.lr * cosine_factor(index, rounds)

    def at_rate(self, lr: float) -> TorchLearner:
        """Return the same learner with another learning rate."""
        return replace(self, config=self.config.model_copy(update={"lr": lr}))

    @property
    def clients_at_once(self) -> int:
        """Number of clients to train together: several for a small stack of dense layers under SGD."""
        plain = is_plain(self.config.model_copy(update={"momentum": 0.0}))
        return GROUP if self._is_common and plain and is_dense_stack(self._flat) else 1

    @property
    def _is_common(self) -> bool:
        """Whether explicit passes can replace the module: one input, classes, cross-entropy."""
        return self.loss is None and self.inputs is None and self.target.kind == "classes"

    @property
    def base_hash(self) -> str:
        """SHA-256 of the frozen parameters and constant buffers; empty without any."""
        return self._flat.base_hash

    @property
    def layers(self) -> Sequence[tuple[int, ...]]:
        """Shapes of the module's parameters and buffers, in the order of the vector."""
        with _quiet_torch(0):
            return tuple(map(tuple, self._flat.shapes))

    def name_tensors(self, model: Model) -> NamedTensors:
        """Return the module's `state_dict`, with torch's names."""
        with _quiet_torch(0):
            flat = self._flat
            flat.load(put(model, self.device))
            return flat.name_tensors()

    def train_batched(
        self,
        models: Sequence[Model],
        samples: Sequence[Samples],
        seeds: Sequence[int],
        epochs: Sequence[int | None],
    ) -> list[Model]:
        """Train several clients together; equal to `train` up to rounding."""
        with _quiet_torch(0):
            batches = [list(self._batches(*one)) for one in zip(samples, seeds, epochs, strict=True)]
            return train_batched(self._flat, self.config, models, samples, batches, seeds)

    @property
    def models_at_once(self) -> int:
        """Number of models to evaluate together: many for a small stack of dense layers."""
        return MODELS if self._is_common and is_dense_stack(self._flat) else 1

    @property
    def trains_each(self) -> bool:
        """Whether `train_each` applies: plain SGD of a small stack of dense layers without dropout."""
        dropout = any(isinstance(layer, nn.Dropout) for layer in self._flat.module.modules())
        return self.models_at_once > 1 and is_plain(self.config) and not dropout

    def train_each(
        self, models: NDArray[np.float32], samples: Samples, seed: int, epochs: int | None = None
    ) -> NDArray[np.float32]:
        """Train many models (models, values) on the same batches; equal to `train` of each one up to rounding."""
        with _quiet_torch(0):
            batches = list(self._batches(samples, seed, epochs))
            return train_shared(self._flat, self.config.lr, models.copy(), samples, batches)

    def predict_each(self, models: NDArray[np.float32], x: NDArray[Any]) -> NDArray[np.float32]:
        """Return many models' probabilities for the same rows, with few and large products; on all cores."""
        flat = self._flat
        with torch.inference_mode():
            rows = Inputs(torch.from_numpy(x))[slice(None)].flatten(1)
            return outputs_batched(flat, models, rows).softmax(dim=2).numpy()

    def predict(self, model: Model, x: NDArray[Any]) -> NDArray[Any]:
        """Predict the argmax of the outputs, or as the target decides; a single output is positive or not."""
        return self._outputs(model, x, output_of(self.target).decide)[0]

    def predict_proba(self, model: Model, x: NDArray[Any]) -> NDArray[np.float32]:
        """p_c = exp(z_c) / sum_k exp(z_k) of the outputs z; for a single one (1 - p, p) with p = 1 / (1 + exp(-z)).

        A number has none.
        """
        return self._outputs(model, x, output_of(self.target).probabilities)[0]

    def predict_both(self, model: Model, x: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.float32]]:
        """`predict` and `predict_proba` in one pass."""
        target = output_of(self.target)
        decided, probabilities = self._outputs(model, x, target.decide, target.probabilities)
        return decided, probabilities

    def _outputs(self, model: Model, x: NDArray[Any], *functions: Callable[[Tensor], Tensor]) -> list[NDArray[Any]]:
        """Apply each function to the outputs, which are computed part by part."""
        with _quiet_torch(0):
            flat = self._flat  # outside inference mode: a module built inside it could never be trained
        with _quiet_torch(0), torch.inference_mode():
            inputs = _load(flat, model, x)
            flat.module.eval()
            stack = None if self.inputs else flat.stack
            forward = stack.forward if stack else partial(call, flat.module, self.inputs)
            part = part_rows(self.device)
            slices = [slice(start, start + part) for start in range(0, len(x), part)]
            outputs = (logits(forward(inputs[rows])) for rows in slices) if slices else [torch.zeros(0, 1)]
            parts = [[function(one) for function in functions] for one in outputs]
            return [fetch(torch.cat(column)) for column in zip(*parts, strict=True)]


class _Step:
    """One SGD step as a few operations on whole vectors.

    Under plain SGD a stack steps inside its backward pass, and no gradient is stored; any other module steps by
    autograd's gradients, without adding them to zeros first. A large batch is split into parts that fit the cache, and
    their gradients are added up: the same step, faster.
    """

    def __init__(
        self,
        flat: FlatModule,
        stack: Stack | None,
        total: Callable[[Tensor, Tensor], Tensor],
        splits: bool,
        config: TrainConfig,
        x: Inputs,
        y: Tensor,
        correction: Model | None = None,
    ) -> None:
        self.flat, self.stack, self.total, self.config, self.x, self.y = flat, stack, total, config, x, y
        batch = len(y) if config.batch == "full" else min(config.batch, len(y))
        rows = part_rows(flat.device)
        self.part = rows if batch > rows and flat.rows_are_independent and splits else batch
        self.at_once = self.part == batch and is_plain(config)
        self.pull = config.prox
        self.anchor = flat.trained.clone() if self.pull else None
        self.correction = None if correction is None else put(correction[: len(flat.trained)], flat.device)
        self.move = make_optimizer(config, flat.gradient)

    def __call__(self, rows: Tensor) -> None:
        if self.at_once:
            self.descend(rows, 1 / len(rows), self.config.lr)
        else:
            self.in_parts(rows)

    def in_parts(self, rows: Tensor) -> None:
        """Compute the gradient as a vector, add the configured terms, and step."""
        config, gradient, values = self.config, self.flat.gradient.zero_(), self.flat.trained
        for part in rows.split(self.part):  # type: ignore[no-untyped-call]
            self.descend(part, 1 / len(rows), None)
        if config.weight_decay and config.optimizer != "adamw":
            gradient.add_(values, alpha=config.weight_decay)
        if self.anchor is not None:
            gradient.add_(values - self.anchor, alpha=self.pull)
        if self.correction is not None:
            gradient.add_(self.correction)
        self.move(values, gradient)

    def descend(self, rows: Tensor, scale: float, step: float | None) -> None:
        """Add the gradient of `scale` times the rows' loss, or step down it at once."""
        x, y, stack = self.x[rows], self.y[rows], self.stack
        if stack is None:
            self.flat.add_gradients(self.total(x, y) * scale, step)
        else:
            with torch.no_grad():
                stack.backward(stack.forward(x), y, scale, step)


def is_plain(config: TrainConfig) -> bool:
    """Whether training is plain SGD: w = w - lr * grad l(w)."""
    added = config.weight_decay or config.prox or config.algorithm != "sgd"
    return not (added or config.momentum or config.optimizer != "sgd")


@lru_cache(maxsize=4)
def _flat(build: Callable[[], nn.Module], device: str) -> FlatModule:
    """One module per process, kind and device, reused by every client: its values are overwritten each time.

    What is not overwritten, the frozen part, must be the same in every process: hence the fixed seed.
    """
    return FlatModule(built(build), device)


def built(build: Callable[[], nn.Module]) -> nn.Module:
    """Build the module with the frozen part that every node has; the caller's random numbers do not change."""
    with _quiet_torch(0):
        return build()


def _load(flat: FlatModule, model: Model, x: NDArray[Any]) -> Inputs:
    """Load a model, and return the rows in the form it expects."""
    flat.load(put(model, flat.device))
    return Inputs(put(x, flat.device))


@contextmanager
def _quiet_torch(seed: int, device: str = CPU) -> Iterator[None]:
    """Use one thread, this seed and deterministic kernels; restore the caller's settings afterwards."""
    # torch.manual_seed also seeds every kind of accelerator: a millisecond, longer than small clients train.
    set_seed = torch.default_generator.manual_seed if device == CPU else torch.manual_seed
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.random.fork_rng(devices=[]), torch.backends.cudnn.flags(True, deterministic=True, allow_tf32=False):
            set_seed(seed)
            yield
    finally:
        torch.set_num_threads(threads)
