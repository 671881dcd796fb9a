"""A loss of one's own, and modules that return mappings."""

from typing import Any

import numpy as np
import pytest
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fedmerit import Federation, Samples, Task, TorchLearner, fedavg, federate
from fedmerit.config.schema import TrainConfig

CONFIG = TrainConfig(lr=0.5, epochs=3, batch=8)
X = np.random.default_rng(1).normal(size=(240, 4)).astype(np.float32)
ROWS = Samples(X, X[:, :3].argmax(axis=1).astype(np.int64), 3)


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))


class TwoHeads(nn.Module):
    """Classes, and the input again."""

    def __init__(self) -> None:
        super().__init__()
        self.classes, self.again = nn.Linear(4, 3), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        return {"logits": self.classes(x), "again": self.again(x)}


def plain(outputs: Tensor, y: Tensor) -> Tensor:
    return cross_entropy(outputs, y)


def both_heads(outputs: dict[str, Tensor], y: Tensor) -> Tensor:
    return cross_entropy(outputs["logits"], y) + outputs["again"].square().mean()


@pytest.mark.parametrize("batch", [8, "full"])
def test_cross_entropy_as_ones_own_is_the_default(batch: Any) -> None:
    config = CONFIG.model_copy(update={"batch": batch})
    ours, own = TorchLearner(network, config), TorchLearner(network, config, loss=plain)
    model = ours.start(1)
    assert np.allclose(ours.train(model, ROWS, 1), own.train(model, ROWS, 1), atol=1e-5)
    assert own.clients_at_once == 1


def test_a_module_with_two_heads_is_federated() -> None:
    data = Federation.from_clients({"north": (X[:120], ROWS.y[:120]), "south": (X[120:], ROWS.y[120:])})
    run = federate(Task(data, TorchLearner(TwoHeads, CONFIG, loss=both_heads)), fedavg(), rounds=3)
    assert run.accuracy > 0.8


class Nameless(TwoHeads):
    def forward(self, x: Tensor) -> dict[str, Tensor]:
        return {"classes": self.classes(x)}


def test_a_mapping_without_logits_is_told_before_anybody_trains() -> None:
    data = Federation.from_clients({"north": (X, ROWS.y)})
    with pytest.raises(Exception, match=r"needs the key 'logits' \(got classes"):
        federate(Task(data, TorchLearner(Nameless, CONFIG)), fedavg(), rounds=1)
