"""Models by name: the networks of [PMCFL], [DAFL] and [M2F], and small ones for quick runs."""

from collections.abc import Callable, Mapping
from functools import partial
from itertools import pairwise

from torch import Tensor, nn

from fedmerit.errors import UnknownName
from fedmerit.learn.stack import ChannelsLast

Build = Callable[[], nn.Module]


def two_convolutions(channels: int, side: int, kernel: int, hidden: int, outputs: int, relu: bool = True) -> nn.Module:
    """Two convolutions (32 and 64 filters) with pooling, one hidden dense layer: the shape of [PMCFL] and [DAFL].

    The papers do not say whether ReLU follows a convolution; the authors' code has none (`relu=False`), LEAF's has it.
    """
    layers: list[nn.Module] = []
    for into, out in ((channels, 32), (32, 64)):
        layers += [nn.Conv2d(into, out, kernel, padding="same"), nn.MaxPool2d(2), *([nn.ReLU()] if relu else [])]
    layers += [ChannelsLast(), nn.Linear(64 * (side // 4) ** 2, hidden), nn.ReLU(), nn.Linear(hidden, outputs)]
    return glorot(nn.Sequential(*layers))


def m2f_cnn() -> nn.Module:
    """The network of [M2F]: two convolutions 3x3 without padding, one pooling, dropout; 1,199,882 parameters."""
    return glorot(
        nn.Sequential(
            *(nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(0.25)),
            *(ChannelsLast(), nn.Linear(64 * 12 * 12, 128), nn.ReLU(), nn.Dropout(0.5), nn.Linear(128, 10)),
        )
    )


def dense(*widths: int) -> nn.Module:
    """Dense layers with ReLU between them."""
    layers: list[nn.Module] = [nn.Flatten()]
    for into, out in pairwise(widths):
        layers += [nn.Linear(into, out), nn.ReLU()]
    return glorot(nn.Sequential(*layers[:-1]))


def one_hidden(inputs: int, classes: int) -> nn.Module:
    """One hidden layer of 32."""
    return dense(inputs, 32, classes)


class NextCharacter(nn.Module):
    """A character LSTM in the shape of LEAF's: an embedding of 8, LSTM layers, one output per class."""

    def __init__(self, classes: int, hidden: int, layers: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(classes, 8)
        self.lstm = nn.LSTM(8, hidden, layers, batch_first=True)
        self.output = nn.Linear(hidden, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Scores of the next character, from rows of character numbers."""
        states, _ = self.lstm(self.embedding(x.long()))
        return self.output(states[:, -1])  # type: ignore[no-any-return]


def glorot(module: nn.Module) -> nn.Module:
    """Initialise weights from N(0, 2 / (inputs + outputs)) and biases with zero, as the authors of [PMCFL] do."""
    for layer in module.modules():
        if isinstance(layer, nn.Conv2d | nn.Linear):
            nn.init.xavier_normal_(layer.weight)
            nn.init.zeros_(layer.bias) if layer.bias is not None else None
    return module


MODELS: Mapping[str, Build] = {
    "digits-mlp": partial(dense, 64, 32, 10),
    "digits-linear": partial(dense, 64, 10),
    "mnist-cnn": partial(two_convolutions, channels=1, side=28, kernel=5, hidden=512, outputs=10),
    "mnist-cnn-linear": partial(two_convolutions, channels=1, side=28, kernel=5, hidden=512, outputs=10, relu=False),
    "mnist-mlp": partial(dense, 784, 64, 10),
    "m2f-cnn": m2f_cnn,
    "adult-mlp": partial(dense, 91, 32, 2),
    "adult-linear": partial(dense, 91, 2),
    "compas-mlp": partial(dense, 15, 10, 2),
    "compas-linear": partial(dense, 15, 2),
    "german-credit-mlp": partial(dense, 63, 16, 2),
    "german-credit-linear": partial(dense, 63, 2),
    "heart-linear": partial(dense, 13, 1),
    "heart-mlp": partial(dense, 13, 16, 2),
    "medpar-linear": partial(dense, 6, 1),
    "medpar-mlp": partial(dense, 6, 16, 2),
    "celeba-cnn": partial(two_convolutions, channels=3, side=64, kernel=3, hidden=512, outputs=1),
    "celeba-mlp": partial(dense, 64 * 64 * 3, 32, 1),
    "femnist-cnn": partial(two_convolutions, channels=1, side=28, kernel=5, hidden=2048, outputs=62),
    "femnist-mlp": partial(dense, 784, 64, 62),
    "shakespeare-lstm": partial(NextCharacter, 96, 256, 2),
    "shakespeare-lstm-small": partial(NextCharacter, 96, 64, 1),
}
"""The closed table of models by name."""


SIZED: Mapping[str, Callable[[int, int], nn.Module]] = {
    "mlp": one_hidden,
    "linear": dense,
}
"""Models whose size depends on the data: built from the number of inputs and of classes."""


def find_model(name: str) -> Build:
    """Find the function that builds a model."""
    if name not in MODELS:
        raise UnknownName("model", name, MODELS)
    return MODELS[name]
