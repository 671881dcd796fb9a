"""Attacks by a coalition that tries its updates against the server's rule before it sends them."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedmerit.core.attacks.attack import Scene
from fedmerit.core.attacks.coalitions import UNEQUAL
from fedmerit.core.attacks.rows import Backdoor, LabelFlip, make_probe, poisoned_rows
from fedmerit.core.types import Rows, Samples

UNMOVED, RARE = 0.03, 0.7
"""A client leaves a coordinate that changes less than this part of its root mean square; few clients: this share."""
MOST_ROWS = 500
"""Number of the attackers' rows on which they judge models."""


def strongest(scene: Scene, candidates: Sequence[Rows]) -> Rows:
    """Return the candidate whose aggregate is farthest from the mean of the honest updates, as byzfl does."""
    target = scene.model + scene.mean
    return max(candidates, key=lambda rows: float(np.square(scene.peek(rows) - target).sum()))


def shortened(scene: Scene, rows: Rows, longest: float) -> Rows:
    """Scale updates that are longer than `longest` median norms down to that."""
    norms = np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), np.float32(1e-12))
    return np.asarray(rows * np.minimum(1, longest * scene.usual_norm / norms).astype(np.float32))


@dataclass(frozen=True, slots=True)
class OptimalIPM:
    """Inner product manipulation whose strength moves the aggregate of this rule most: -s * mean [IPM; byzfl].

    s is the one of 0.1 to 10 that maximises |aggregate - mean of the honest updates|^2. Each member adds noise of 1 %
    of the median norm, so that no two updates are equal.

    >>> from fedmerit.core.updates import Updates
    >>> honest, own = Updates(np.array([[1, 4], [3, 4]], np.float32)), np.zeros((1, 2), np.float32)
    >>> scene = Scene(honest, Updates(own), own[0], peek=lambda rows: rows[0].clip(-3, 3))
    >>> OptimalIPM().collude(scene).round().tolist()
    [[-3.0, -6.0]]
    """

    def collude(self, scene: Scene) -> Rows:
        """Oppose the mean of the honest updates as far as the rule lets pass."""
        mean, noise = scene.mean, scene.noise(UNEQUAL * scene.usual_norm)
        return strongest(scene, [noise - np.float32(s) * mean for s in (0.1, 0.3, 0.6, 1.0, 1.5, 2.5, 5.0, 10.0)])


@dataclass(frozen=True, slots=True)
class OptimalALIE:
    """A Little Is Enough whose strength moves the aggregate of this rule most: mean - z * deviation [ALIE; byzfl].

    z is the one of 0.3 to 5, -1 and -2 that maximises |aggregate - mean of the honest updates|^2. Each member adds
    noise of 1 % of the median norm, so that no two updates are equal.

    >>> from fedmerit.core.updates import Updates
    >>> honest, own = Updates(np.array([[1, 4], [3, 4]], np.float32)), np.zeros((1, 2), np.float32)
    >>> scene = Scene(honest, Updates(own), own[0], peek=lambda rows: rows[0].clip(-1, 9))
    >>> OptimalALIE().collude(scene).round().tolist()
    [[-1.0, 4.0]]
    """

    def collude(self, scene: Scene) -> Rows:
        """Shift the mean as far as the rule lets pass."""
        mean, deviation, noise = scene.mean, scene.deviation, scene.noise(UNEQUAL * scene.usual_norm)
        shifts = (np.float32(z) * deviation for z in (0.3, 0.7, 1.0, 1.5, 2.0, 3.0, 5.0, -1.0, -2.0))
        return strongest(scene, [noise + (mean - shift) for shift in shifts])


@dataclass(frozen=True, slots=True)
class RuleAware:
    """Rule-aware coalition: of 17 answers up to `strength` median norms, the one that harms the next model most.

    The members know the round's updates and facts, and the outcome of the server's rule with all that it remembers,
    for any answers of theirs; they do not see the server's rows. Harm is the mean loss of the next model on at most
    500 rows of the members. With the honest mean m and deviation d, the own update u_i and noise n_i of each member:

        u_i, u_i - s m, n_i - s m     s = 0.5, 1, 2, 4
        0.2 n_i - s m                 s = 0.1, 0.5, 1, 2
        0.05 n_i + m - z d            z = 0.5, 1, 1.5, 2.5

    Ours.

    strength    longest answer and norm of the noise, in median norms of the honest updates
    """

    strength: float = 2.0

    def collude(self, scene: Scene) -> Rows:
        """Try all answers against the rule."""
        mean, deviation, own = scene.mean, scene.deviation, scene.own
        noise, some, little = (scene.noise(part * self.strength * scene.usual_norm) for part in (1.0, 0.2, 0.05))
        made = [
            own,
            *(start - np.float32(s) * mean for start in (own, noise) for s in (0.5, 1.0, 2.0, 4.0)),
            *(some - np.float32(s) * mean for s in (0.1, 0.5, 1.0, 2.0)),
            *(little + (mean - np.float32(z) * deviation) for z in (0.5, 1.0, 1.5, 2.5)),
        ]
        answers = [shortened(scene, rows, self.strength) for rows in made]
        losses = scene.losses([scene.peek(rows) for rows in answers], judged_rows(scene))
        return answers[int(np.argmax(np.nan_to_num(losses, nan=np.inf)))]


def judged_rows(scene: Scene) -> Samples:
    """Rows of the members on which they judge models."""
    pool = scene.pool()
    rows = np.sort(scene.random.permutation(len(pool))[:MOST_ROWS])
    return Samples(pool.x[rows], pool.y[rows], pool.classes)


def best_trigger(scene: Scene, attack: Backdoor, answers: Sequence[Rows]) -> Rows:
    """Return the answer after which the next model gives the wanted label to rows with the trigger most surely."""
    probe = make_probe(attack, judged_rows(scene))
    models = (scene.peek(sent) for sent in answers)
    losses = scene.losses(list(models), probe) if len(probe) else np.zeros(len(answers))  # no such rows: any answer
    return answers[int(np.argmin(np.nan_to_num(losses, nan=np.inf)))]


@dataclass(frozen=True, slots=True)
class PooledBackdoor:
    """Pooled backdoor: one model trained on all attackers' rows, a share of them with trigger, sent with noise.

    Pooled rows have most classes, so the update looks like that of an honest client with many rows. Each member adds
    noise of 0.1 or 0.7 times the update's norm: the one after which the trigger succeeds better. Ours.
    """

    strength: float = 0.3

    wanted = Backdoor.wanted

    def collude(self, scene: Scene) -> Rows:
        """Train on the pool, and send nearly the same update."""
        pool = scene.pool()
        x, y = poisoned_rows(self, pool.x, pool.y, pool.classes, scene.random)
        update = scene.train(Samples(x, y, pool.classes))
        noise = scene.noise(float(np.linalg.norm(update)))
        answers = [update + np.float32(part) * noise for part in (0.1, 0.7)]
        return best_trigger(scene, Backdoor(), answers)


@dataclass(frozen=True, slots=True)
class SplitTrigger:
    """Split trigger: coordinates that few honest clients move are divided among the attackers, each taking its part.

    The attackers train on rows of which a share has the trigger and the label 0. A rule that compares clients
    coordinate by coordinate then finds no two that move the same rare ones. A coordinate is rare if at most 70 % of
    the honest clients move it by more than 3 % of their root mean square. Eleven answers are tried, of at most two
    median norms: with s = 0.1 to 1 of the rare part in each, or s times the number of members in one of them. The
    members send the one after which the trigger succeeds best. After distributed backdoors, which split the trigger
    itself [DBA].
    """

    strength: float = 0.5

    wanted = Backdoor.wanted

    def collude(self, scene: Scene) -> Rows:
        """Divide what the members learned of the trigger."""
        honest, own = scene.honest, scene.own
        least = (UNMOVED * honest.norms / np.sqrt(own.shape[1]))[:, np.newaxis]
        is_common = honest.by_columns(lambda block: (np.abs(block) > least).mean(axis=0)) > RARE
        common, rare = np.where(is_common, own, np.float32(0)), np.where(is_common, np.float32(0), own)
        turn = scene.random.integers(len(own), size=own.shape[1])
        mine = np.where(turn == np.arange(len(own))[:, np.newaxis], rare, np.float32(0))
        answers = [own, (scene.mean + own) / 2, own.mean(axis=0) + np.float32(0.1) * own]
        for s in (0.1, 0.3, 0.6, 1.0):
            answers += [common + np.float32(s) * rare, common + np.float32(s * len(own)) * mine]
        return best_trigger(scene, Backdoor(), [shortened(scene, rows, 2.0) for rows in answers])


USES_ROWS = (RuleAware, PooledBackdoor, SplitTrigger)
"""Attacks that use the rows of all members."""
USES_RULE = (OptimalIPM, OptimalALIE, *USES_ROWS)
"""Attacks that try the server's rule."""
AT_LOADING = (LabelFlip, Backdoor, SplitTrigger)
"""Attacks whose members train on rows that are poisoned once, when they are loaded."""
