"""Checks before a run: whether the data has what a recipe needs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fedmerit.config.attack import KINDS
from fedmerit.config.privacy import make_collect, recipe_of, require_account
from fedmerit.config.schema import Config, RunConfig
from fedmerit.core.attacks.adaptive import USES_ROWS, USES_RULE
from fedmerit.core.attacks.answers import Liar
from fedmerit.core.attacks.attack import Attackers, CollusiveAttack
from fedmerit.core.attacks.coalitions import Eraser
from fedmerit.core.attacks.rows import TARGET_LABEL
from fedmerit.core.collect.attacked import output_entries
from fedmerit.core.collect.collect import Collect, Poisson, Uniform
from fedmerit.core.collect.facts_first import FactsFirst
from fedmerit.core.collect.schedules import Schedule
from fedmerit.core.criteria.contribution import Contribution
from fedmerit.core.criteria.validated import validated_of
from fedmerit.core.facts import CLIENT_FACT, EPOCHS, IS_WORD, LOSS, is_own_word, measure
from fedmerit.core.host import CLIENT_WORDS, ServerSetup, predict_all, server_words
from fedmerit.core.learner import Learner
from fedmerit.core.objectives import AND, ByGroup, Objective, Predictions, find_objective
from fedmerit.core.parts import FACTS_ONLY, Words, check_words, declared, slot_of
from fedmerit.core.recipe import RECIPE_WORDS, Recipe
from fedmerit.core.recipes import privacy_of
from fedmerit.core.server.private_sum import check_selection
from fedmerit.core.targets import has_losses, has_probabilities, target_of
from fedmerit.core.types import Samples
from fedmerit.engine.loop import Stop, with_control
from fedmerit.engine.measure import tests_one_model
from fedmerit.errors import ConfigError, DataError, did_you_mean
from fedmerit.tasks.federation import Federation
from fedmerit.tasks.registry import Task

BELIEVED: Words = frozenset({"validation rows", "test rows"})
"""What the clients of a fleet are believed to have, where nobody can look."""


def check_config(config: Config, task: Task) -> Recipe:
    """The recipe of a configuration, once its task is known to have what the recipe and [run] ask for."""
    recipe, run = with_control(recipe_of(config), task.server()), config.run
    check_task(task, recipe, make_collect(config, recipe), run, run.stop)
    return recipe


def check_task(task: Task, recipe: Recipe, collect: Collect, run: RunConfig, stop: Stop | None = None) -> None:
    """The server and the clients of a task have what the recipe asks for."""
    rows = {"validation rows": len(task.federation.validation.y), "test rows": len(task.federation.test.y)}
    given = frozenset(word for word, number in rows.items() if number) | ({"pooled rows"} if task.is_pooled else set())
    audits = (*run.audit, *([run.measure] if run.measure else []))
    check_server(task.server(), recipe, collect, audits, given)
    check_clients(task, recipe, audits)
    check_attackers(task.attackers, recipe, task.server(), collect, run.rounds)
    refusals = {
        "early stopping uses validation rows, and no client has any; set validation=0.1": (not rows["validation rows"]),
        "early stopping tests one model, and in this recipe each client has its own, or chooses among several": (
            not tests_one_model(recipe)
        ),
        "stopping early asks clients' rows without noise, which [privacy] does not cover": privacy_of(recipe),
        "early stopping needs a test after every round; remove evaluate_every": run.evaluate_every != 1,
    }
    for refusal, holds in refusals.items() if stop is not None else ():
        if holds:
            raise ConfigError(refusal)


def check_attackers(
    attackers: Attackers, recipe: Recipe, server: ServerSetup, collect: Collect, rounds: int, *, rows_here: bool = True
) -> None:
    """The attacks can be simulated with this recipe, learner and collector; `rows_here`: on this machine."""
    one_model = "shared model" in declared(recipe.models, "gives") and privacy_of(recipe) is None
    varies = isinstance(getattr(collect, "selection", None), Poisson | Schedule)
    for coalition in attackers.coalitions:
        attack, first = coalition.attack, coalition.from_round
        kind = next((kind for kind, one in KINDS.items() if one is type(attack)), type(attack).__name__)
        refusals = {
            f"the attack begins in round {first}, after the last ({rounds}); set task.attack.from_round, for example "
            "to 1": first > rounds,
            'draw = "fixed" needs a fixed number of clients per round; remove run.selection and run.schedule, or set '
            'draw = "natural"': coalition.fixed and varies,
            f"kind {kind} tries its updates against the server's rule, which needs one shared model and no [privacy]; "
            "use another kind, such as alie, or another recipe": isinstance(attack, USES_RULE) and not one_model,
            f'kind {kind} sees the updates of the round before they count, and with run.facts = "first" the server has '
            "none; use another kind, such as sign-flip": isinstance(attack, CollusiveAttack)
            and isinstance(collect, FactsFirst),
            f"kind {kind} uses the rows of all attackers, which stay on their Flower nodes; use `fedmerit run`, or "
            "another kind, such as alie": isinstance(attack, USES_ROWS) and not rows_here,
            f"kind {kind} compares models by their loss, and the learner has no method `predict_proba`; add it, or use "
            "another kind, such as alie": isinstance(attack, USES_ROWS) and not has_losses(server.learner),
        }
        for refusal, holds in refusals.items():
            if holds:
                raise ConfigError(f"task.attack: {refusal}")
        if isinstance(attack, Eraser):
            output_entries(server, TARGET_LABEL)


def check_parts(recipe: Recipe, collect: Collect, host: Words) -> None:
    """The parts of a run go together: what one needs, another part or the host gives."""
    words = {EPOCHS: f"fact {EPOCHS}", LOSS: "losses"}
    needed = {word for fact, word in words.items() if fact in recipe.required_facts}
    selection = getattr(collect, "selection", None)
    if selection is not None and slot_of(selection) is None:
        host = host | {f"fact {EPOCHS}"}  # a user's selection is believed
    parts = (*recipe.parts, collect, selection, _Facts(frozenset(needed)))
    check_words(parts, host, only=lambda word: word not in {*RECIPE_WORDS, *FACTS_ONLY})
    check_words([*recipe.reading, collect], only=lambda word: word in FACTS_ONLY)


@dataclass(frozen=True, slots=True)
class _Facts:
    """Stands for the facts that criteria read and only the collector or the learner gives."""

    needs: Words
    name: str = "the recipe"
    why: ClassVar[Mapping[str, str]] = {
        f"fact {EPOCHS}": "SimulatedComputation reads the epochs that each client is given; set "
        "run.schedule.epochs = [1, 3], or use Computation, which reads the clock",
        "losses": "the fact `loss` is measured by a method `predict_proba`, which this task's learner does not have",
    }


def check_server(
    server: ServerSetup, recipe: Recipe, collect: Collect, audits: Sequence[str] = (), clients: Words = BELIEVED
) -> None:
    """The server has the rows, the learner and the selection that the recipe needs; no row of a client is asked for.

    `clients` are the words that the clients' rows give.
    """
    privacy, rows = privacy_of(recipe), server.rows
    if privacy is not None:
        require_account()
        check_selection(privacy, getattr(collect, "selection", Uniform()), len(server.names))
    if isinstance(collect, FactsFirst):
        collect.check(len(server.names))
    check_parts(recipe, collect, server_words(server) | CLIENT_WORDS | clients)
    contributions = [one for one in recipe.all_stages if isinstance(one, Contribution) and one.method != "cosine"]
    objectives = [one.objective for one in validated_of(recipe)] + [one.objective for one in contributions]
    objectives += [find_objective(name) for name in audits]
    if rows and objectives:
        predictions = try_objectives(objectives, rows, server.learner)
        for objective in objectives:
            if isinstance(objective, ByGroup) and len(predictions.groups(objective.attribute)) < 2:
                attribute = objective.attribute.replace(AND, " and ")
                raise DataError(
                    f"{objective.name} compares groups, and the server's rows are all of one by {attribute}"
                )


def check_clients(task: Task, recipe: Recipe, audits: Sequence[str] = ()) -> None:
    """The clients have the rows that the recipe needs; otherwise all would be left out, or could not answer."""
    try_model(task)
    data = task.federation
    _check_words(data, recipe)
    largest = data.client(int(data.test.sizes.argmax())).test
    try_objectives([find_objective(name) for name in audits], largest, task.learner)
    clients = np.flatnonzero(data.train.sizes)
    if not len(clients):
        raise DataError("no client has a training row")
    measure(data.samples(int(clients[0])), recipe.client_facts)
    for attack in (coalition.attack for coalition in task.attackers.coalitions):
        if isinstance(attack, Liar) and not attack.factors.keys() & set(recipe.client_facts):
            raise ConfigError(
                f"task.attack: liars claim {', '.join(attack.factors)}, and the recipe asks clients for "
                f"{', '.join(recipe.client_facts)} alone; let them claim one of these"
            )


def _check_words(data: Federation, recipe: Recipe) -> None:
    """Somebody has each word that a criterion asks for: `fact:job is Nurse` may be a slip."""
    for name in recipe.required_facts:
        of, is_word, word = name.removeprefix(CLIENT_FACT).partition(IS_WORD)
        column = data.facts.get(of, ()) if name.startswith(CLIENT_FACT) and is_word else ()
        if column and not any(is_own_word(value, word) for value in column):
            words = list(dict.fromkeys(f"{value:g}" if isinstance(value, float) else value for value in column))
            raise ConfigError(
                f"{name}: no client's {of} is {word!r}{did_you_mean(word, words)}; they have: {', '.join(words[:10])}"
            )


def try_model(task: Task) -> None:
    """The first model can read a row of the data and knows all classes; else no client could train it."""
    data, learner = task.federation, task.learner
    target = target_of(learner).kind
    if target != data.target:
        ways = {"classes": "Classes()", "number": "Number(tolerance=...)"}
        raise ConfigError(
            f"the data's labels are of target {data.target!r}, and the learner predicts {target!r}; "
            f"TorchLearner(build, target={ways[data.target]}), from fedmerit.core.targets, or set the data's target"
        )
    row = data.train.x[:1]
    try:
        model = learner.start(0)
    except Exception:  # the run fails at this by itself, and a study goes on with its other rows
        return
    shape = f"a row of {data.train.x.dtype} of shape {row.shape[1:]}"
    try:
        _, chances = predict_all(learner, model, row)
    except Exception as error:  # whatever a user's module raises
        raise DataError(f"the model cannot read {shape}: {type(error).__name__}: {error}".splitlines()[0]) from error
    if chances is not None and chances.shape[1] < data.classes:
        raise DataError(f"the model tells {chances.shape[1]} classes apart, and the data has {data.classes}")


def try_objectives(objectives: Sequence[Objective], rows: Samples, learner: Learner) -> Predictions:
    """Ask every objective about a model that knows nothing; what cannot be measured at all is an error."""
    shape = (1, len(rows), rows.classes)
    guess = np.full(shape, 1 / rows.classes, dtype=np.float32) if has_probabilities(learner) else None
    predictions = Predictions(
        rows.y, rows.classes, rows.attributes, np.zeros_like(rows.y)[np.newaxis], guess, target_of(learner)
    )
    for objective in objectives:
        objective(predictions)
    return predictions
