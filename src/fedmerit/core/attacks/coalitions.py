"""Attacks by a coalition that sees the round's updates, and not the server's rule."""

from dataclasses import dataclass

import numpy as np

from fedmerit.core.attacks.attack import Scene
from fedmerit.core.attacks.rows import TARGET_LABEL
from fedmerit.core.types import Rows

UNEQUAL = 0.01
"""Norm of the noise that makes equal updates differ, in median norms of the honest updates."""


@dataclass(frozen=True, slots=True)
class LittleIsEnough:
    """A Little Is Enough: mean - strength * deviation of the honest updates per coordinate [ALIE, Baruch et al. 2019].

    The deviation is that of the population (divided by n). Baruch et al. derive the largest strength z that still
    hides among a majority from the numbers of clients and attackers; for 2 of 10 that is 0, which is no attack, so z
    is a setting here.

    >>> from fedmerit.core.updates import Updates
    >>> honest = Updates(np.array([[1, 4], [3, 4]], np.float32))
    >>> LittleIsEnough(1.5).collude(Scene(honest)).tolist()
    [0.5, 4.0]
    """

    strength: float = 1.5

    def collude(self, scene: Scene) -> Rows:
        """Shift the mean by less than the honest updates vary."""
        z = np.float32(self.strength)
        return scene.honest.by_columns(lambda block: block.mean(axis=0) - z * block.std(axis=0))


@dataclass(frozen=True, slots=True)
class InnerProduct:
    """Inner product manipulation: -strength * mean of the honest updates [IPM].

    >>> from fedmerit.core.updates import Updates
    >>> InnerProduct(0.5).collude(Scene(Updates(np.array([[1, 4], [3, 4]], np.float32)))).tolist()
    [-1.0, -2.0]
    """

    strength: float = 0.5

    def collude(self, scene: Scene) -> Rows:
        """Oppose the mean of the honest updates."""
        honest = scene.honest
        return honest.combine(np.full(len(honest), -self.strength / len(honest)))


@dataclass(frozen=True, slots=True)
class Mimic:
    """Copy the update of one honest client, which then counts many times [Karimireddy et al. 2022].

    The client is the one farthest from the mean along z, the direction in which the honest updates vary most:
    argmax_i |<z, u_i - mean>|. Karimireddy et al. keep z and the client from round to round; here both are computed
    per round, because the clients change and an attack without state resumes to the bit.

    >>> from fedmerit.core.updates import Updates
    >>> Mimic().collude(Scene(Updates(np.array([[1, 0], [0, 1], [9, 0]], np.float32)))).tolist()
    [9.0, 0.0]
    """

    def collude(self, scene: Scene) -> Rows:
        """Copy the update that deviates most."""
        honest = scene.honest
        products = honest.cosines() * np.outer(honest.norms, honest.norms)
        # Double centring gives the Gram matrix of u_i - mean, so z is never built: n^2 numbers instead of d.
        centred = products - products.mean(axis=0) - products.mean(axis=1)[:, None] + products.mean()
        along = np.linalg.eigh(centred)[1][:, -1]  # <z, u_i - mean> up to a factor that all clients share
        return honest.row(int(np.abs(along).argmax())).copy()


@dataclass(frozen=True, slots=True)
class MinMax:
    """Min-max: mean + g p, with the largest g that is as near to all honest updates as they are to each other [MinMax].

        max_i |mean + g p - u_i| <= max_ij |u_i - u_j|,    p = -mean / |mean|

    The paper searches g; as p has norm 1, each client i bounds it by the root of a quadratic, and g is the least of
    these. Each member adds noise of 1 % of the median norm, so that no two updates are equal.

    >>> from fedmerit.core.updates import Updates
    >>> honest, own = Updates(np.array([[1, 0], [3, 0]], np.float32)), Updates(np.zeros((1, 2), np.float32))
    >>> round(float(MinMax().collude(Scene(honest, own))[0, 0]), 1)
    1.0
    """

    def collude(self, scene: Scene) -> Rows:
        """Go against the mean as far as the honest updates differ."""
        honest, mean = scene.honest, scene.mean
        direction = -mean / np.float32(max(float(np.linalg.norm(mean)), 1e-12))
        along = float(direction @ mean) - honest.dots(direction)  # <p, mean - u_i>
        room = honest.squared_distances.max() - honest.distances(mean) ** 2
        furthest = float((np.sqrt(np.maximum(along**2 + room, 0.0)) - along).min())
        return mean + np.float32(furthest) * direction + scene.noise(UNEQUAL * scene.usual_norm)


@dataclass(frozen=True, slots=True)
class Eraser:
    """Class eraser: the own update, with -strength * |u| in the output weights of class 0.

    The model stops predicting one class, which accuracy over many classes hardly shows. Ours; the weights of a class
    are its row of the last matrix and its entry of the bias.

    >>> from fedmerit.core.updates import Updates
    >>> own = Updates(np.array([[1, -2, 3]], np.float32))
    >>> Eraser().collude(Scene(own, own, entries=lambda label: [1])).tolist()
    [[1.0, -10.0, 3.0]]
    """

    strength: float = 5.0

    def collude(self, scene: Scene) -> Rows:
        """Lower the output of one class."""
        sent, entries = scene.own.copy(), scene.entries(TARGET_LABEL)
        sent[:, entries] = np.float32(-self.strength) * np.abs(sent[:, entries])
        return sent
