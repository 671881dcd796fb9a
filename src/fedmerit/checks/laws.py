"""The laws: what anybody may expect of a rule that turns the answers of clients into the next model.

m(x_1, ..., x_n) is the next model, where x_i is what client i sends: its update u_i, added to the model w, and its
facts, among them the number of rows n_i (Flower: `num-examples`). The test of a law returns what it saw if the law does
not hold, and an empty text if it holds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fedmerit.checks.rounds import (
    BY_AXIS,
    CLIENTS,
    HONEST,
    MODEL,
    Outcome,
    Reply,
    Subject,
    recipe_subject,
    replies_of,
    weights_in,
)
from fedmerit.core.facts import SAMPLES, find_fact
from fedmerit.core.recipe import Recipe
from fedmerit.core.types import EMPTY, Vector
from fedmerit.core.weights.limits import Cap
from fedmerit.errors import ConfigError, UserError

if TYPE_CHECKING:
    from flwr.serverapp.strategy import Strategy

LAST = CLIENTS - 1
"""The client that is faulty, or lies."""
ROUNDING, READING = 2e-6, 1e-4
"""Differences that count as rounding: of two models in one coordinate, and of weights that are read from a model."""
LONGEST = float(np.linalg.norm(HONEST, axis=1).max())
"""The norm of the longest honest update."""


@dataclass(frozen=True, slots=True)
class LawResult:
    """Result of one law: passed, failed, or not applicable.

    law      its name in `fedmerit.checks.LAWS`, which says what it states and whom it protects
    passed   True, False, or None if the law does not apply
    text     what was seen, or why the law does not apply; empty if it passed

    >>> LawResult("cap", None, "no cap is stated").passed is None
    True
    """

    law: str
    passed: bool | None
    text: str


def check_weighting(
    weighting: Recipe | Strategy | Callable[[], Strategy], metrics: Mapping[str, float] = EMPTY
) -> tuple[LawResult, ...]:
    """Check which laws a weighting of clients keeps, as scikit-learn's `check_estimator` does for estimators.

    weighting   a recipe; or any strategy of Flower's Message API that asks all of 10 nodes in each round; or a function
                without arguments that makes a strategy, for one that cannot be copied
    metrics     metrics that a strategy needs of each client, in addition to `num-examples` and `train_loss`

    The weighting is a black box: clients send made-up replies, and laws compare the models that come out. Some rules
    break a law on purpose: a mean cannot bound the influence of a client. The law `same on flower` needs flwr.

    >>> from fedmerit import fedavg
    >>> [result.law for result in check_weighting(fedavg()) if result.passed is False]
    ['bounded influence', 'bounded claim']
    """
    try:
        subject = _subject(weighting, metrics)
    except ConfigError as error:
        return tuple(LawResult(name, None, str(error)) for name in LAWS)
    if fault := _fault(subject.run(replies_of(subject))):
        raise UserError(
            f"{CLIENTS} ordinary replies cannot be aggregated: {fault}. If the strategy needs further metrics, name "
            'them: check_weighting(strategy, metrics={"name": 1.0})'
        )
    reasons = {name: law.unless(subject) if law.unless else "" for name, law in LAWS.items()}
    texts = {name: reasons[name] or law.test(subject) for name, law in LAWS.items()}
    return tuple(LawResult(name, None if reasons[name] else not text, text) for name, text in texts.items())


def _subject(weighting: Any, metrics: Mapping[str, float]) -> Subject:
    if isinstance(weighting, Recipe):
        return recipe_subject(weighting)
    if not (callable(weighting) or hasattr(weighting, "aggregate_train")):
        raise UserError(
            "check_weighting needs a Recipe, a Strategy of Flower's Message API, or a function that makes one (got "
            f"{weighting!r:.80}); for example check_weighting(FedAvg())"
        )
    from fedmerit.checks.of_strategy import strategy_subject

    return strategy_subject(weighting, metrics)


# Comparisons: each returns what is wrong, or an empty text


def _fault(*outcomes: Outcome) -> str:
    """The first error."""
    return next((one.error for one in outcomes if one.error), "")


def _unless(holds: bool | np.bool_, text: str, *outcomes: Outcome) -> str:
    """An error, or the text unless something holds."""
    return _fault(*outcomes) or ("" if holds else text)


def _same(got: Outcome, *allowed: Outcome, within: float = ROUNDING) -> str:
    """Compare a model with those that are allowed."""
    gap = min(float(np.abs(got.model - one.model).max()) for one in allowed)
    return _unless(gap <= within, f"a coordinate of the next model differs by {gap:.3g}", got, *allowed)


def _near(got: Outcome, other: Outcome, reach: float) -> str:
    """Compare the distance of two models with the largest one that is allowed."""
    gap = float(np.linalg.norm(got.model - other.model))
    return _unless(gap <= reach, f"the model moves by {gap:.3g}, not by {reach:.3g} or less", got, other)


def _follows(got: Outcome) -> str:
    """Check that the model moves as all honest clients do: every coordinate up."""
    step = float((got.model - MODEL).min())
    return _unless(step > 0, f"all clients move a coordinate up, and the model moves it by {step:.3g}", got)


# Rounds


def _honest(subject: Subject, factor: float = 1) -> dict[int, Reply]:
    """An honest round; all clients report a multiple of their rows."""
    return {
        client: reply._replace(facts={**reply.facts, SAMPLES: factor * reply.facts[SAMPLES]})
        for client, reply in replies_of(subject).items()
    }


def _with(subject: Subject, updates: Any = HONEST, reply: Mapping[str, Any] = EMPTY, **facts: Any) -> Outcome:
    """Run an honest round with other fields, or other facts, of the last client's reply; a fact None is missing."""
    round_ = replies_of(subject, updates)
    reported = {name: value for name, value in {**round_[LAST].facts, **facts}.items() if value is not None}
    return subject.run({**round_, LAST: round_[LAST]._replace(facts=reported, **reply)})


def _without(subject: Subject, absent: int = LAST) -> Outcome:
    """Run an honest round in which one client answers with an error."""
    return subject.run({client: reply for client, reply in replies_of(subject).items() if client != absent})


def _update(value: float) -> Callable[[Subject], str]:
    """Make a test of an update with this value in every coordinate."""
    reply = {"update": np.full_like(MODEL, value)}
    return lambda subject: _near(_with(subject, reply=reply), _without(subject), LONGEST)


def _counts_as_none(reply: Mapping[str, Any] = EMPTY, **facts: Any) -> Callable[[Subject], str]:
    """Make a test of a faulty reply: it must count as no reply, or as one with a possible number of rows above 0."""
    claims = (1e-6, 10, 5 * CLIENTS, 10 * CLIENTS)
    return lambda subject: _same(
        _with(subject, reply=reply, **facts), _without(subject), *(_with(subject, samples=rows) for rows in claims)
    )


def _rows(places: list[int]) -> Mapping[str, Any]:
    """A change of a reply: the matrix has these rows."""
    return {"arrays": lambda arrays: {**arrays, "layer.weight": arrays["layer.weight"][places]}}


def _weights(outcome: Outcome) -> Vector:
    """The weight of each client: the recorded one, or what its coordinate shows in a round of BY_AXIS."""
    recorded = weights_in(outcome.record)
    read = 2 * (outcome.model[:CLIENTS] - outcome.model[-1])
    return np.array([recorded.get(client, 0.0) for client in range(CLIENTS)]) if recorded else read


# Tests of laws that need more than one expression


def _equal_clients(subject: Subject) -> str:
    facts = replies_of(subject)[4].facts
    outcome = subject.run({client: Reply(BY_AXIS[client], facts) for client in range(CLIENTS)})
    low, high = _weights(outcome).min(), _weights(outcome).max()
    return _unless(high - low < READING, f"their weights are from {low:.3g} to {high:.3g}", outcome)


def _weights_of_a_mean(subject: Subject) -> str:
    outcome = subject.run(replies_of(subject, BY_AXIS))
    low, total = _weights(outcome).min(), _weights(outcome).sum()
    holds = low > -READING and abs(total - 1) < READING
    return _unless(holds, f"the smallest weight is {low:.3g}, the sum is {total:.3g}", outcome)


def _not_a_mean(subject: Subject) -> str:
    by_axis, honest = (subject.run(replies_of(subject, updates)) for updates in (BY_AXIS, HONEST))
    is_mean = honest.record or np.abs(MODEL + _weights(by_axis) @ HONEST - honest.model).max() < READING
    return "" if is_mean else "the next model is not a mean of the updates with weights that depend on facts only"


def _form(subject: Subject) -> str:
    outcome = subject.run(replies_of(subject), mixed=True)
    flower = {"layer.weight": ((2, CLIENTS), "float32"), "layer.bias": ((2,), "float64"), "steps": ((), "int64")}
    before = flower if subject.on_flower else {"model": (MODEL.shape, "float32")}
    forms = {name: (before.get(name), outcome.form.get(name)) for name in {**before, **outcome.form}}
    return _fault(outcome) or "; ".join(
        f"{name}: {old} becomes {new}" for name, (old, new) in forms.items() if old != new
    )


def _bounded_claim(subject: Subject) -> str:
    reply = {"update": -HONEST[LAST]}
    honest, lie = (_with(subject, reply=reply, samples=rows) for rows in (10 * CLIENTS, 10**7 * CLIENTS))
    return _near(lie, honest, float(np.linalg.norm(MODEL - HONEST[LAST] - honest.model)) / 2)


def _caps(subject: Subject) -> list[float]:
    """The caps that the recipe states."""
    return [limit.times for limit in getattr(subject.recipe, "limits", ()) if isinstance(limit, Cap)]


def _cap(subject: Subject) -> str:
    outcome = _with(subject, samples=10_000 * CLIENTS)
    most = _weights(outcome).max() * CLIENTS
    return _unless(most <= min(_caps(subject)) + READING, f"a client gets {most:.3g} times the equal share", outcome)


def _first_facts(subject: Subject) -> list[str]:
    """The facts of the first criterion that clients report; without criteria the number of rows."""
    names = subject.recipe.criteria[0].required_facts if subject.recipe else (SAMPLES,)
    return [name for name in names if find_fact(name).source == "client"]


def _monotone(subject: Subject) -> str:
    facts = {name: replies_of(subject)[LAST].facts[name] for name in _first_facts(subject)}
    levels = (0.25, 0.5, 1.0)
    ran = [_with(subject, BY_AXIS, **{name: level * value for name, value in facts.items()}) for level in levels]
    tables = [one.record.weights.raw if one.record and one.record.weights else None for one in ran]
    values = [level if raw is None else raw[-1, 0] for level, raw in zip(levels, tables, strict=True)]
    falls = -min(np.diff([_weights(ran[place])[LAST] for place in np.argsort(values)]))
    return _unless(falls <= ROUNDING, f"a better value costs {falls:.3g} of the weight", *ran)


def _elsewhere(subject: Subject) -> Outcome:
    """Run an honest round of the same recipe on Flower, or off Flower."""
    if subject.recipe is None:
        raise ConfigError("the strategy has no recipe")
    from fedmerit.checks.of_strategy import merit_of

    return (recipe_subject if subject.on_flower else merit_of)(subject.recipe).run(_honest(subject))


def _not_elsewhere(subject: Subject) -> str:
    try:
        return _elsewhere(subject).error
    except (ConfigError, ImportError) as error:
        return str(error)


# The table


@dataclass(frozen=True, slots=True)
class Law:
    """A law: what it states, whom it protects, its test, and a test that says why it does not apply.

    >>> LAWS["agreement"].statement
    'Where all updates have the same sign, the model moves in that direction: u_i > 0 for all i gives m > w.'
    """

    statement: str
    protects: str
    test: Callable[[Subject], str]
    unless: Callable[[Subject], str] | None = None


def _only_messages(subject: Subject) -> str:
    return "" if subject.on_flower else "a recipe gets rows; whoever reads messages checks them"


LAWS: Mapping[str, Law] = {
    "permutation": Law(
        "Renaming the clients changes nothing: m(x_1, ..., x_n) = m(x_p(1), ..., x_p(n)).",
        "every client: neither its number nor its place in the queue matters",
        lambda subject: _same(
            subject.run({LAST - client: reply for client, reply in _honest(subject).items()}),
            subject.run(_honest(subject)),
        ),
    ),
    "determinism": Law(
        "The same replies give the same bits. Noise for privacy breaks this on purpose.",
        "whoever must repeat or audit a run",
        lambda subject: _same(*(subject.run(_honest(subject), _honest(subject)) for _ in range(2)), within=0),
    ),
    "equal clients": Law(
        "Clients with the same facts, and updates of the same size and quality, get the same weight.",
        "clients that are as good as another one",
        _equal_clients,
    ),
    "scale of facts": Law(
        "Only ratios of the numbers of rows matter: m(10 n_1, ..., 10 n_n) = m(n_1, ..., n_n).",
        "clients whose rows are counted in other units, such as batches",
        lambda subject: _same(subject.run(_honest(subject, 10)), subject.run(_honest(subject))),
    ),
    "split client": Law(
        "A client that registers as two, with half of the rows each and the same update, gains and loses nothing.",
        "all clients, from one that registers twice to count more",
        lambda subject: _same(
            subject.run({**_honest(subject), 0: _honest(subject, 0.5)[LAST], LAST: _honest(subject, 0.5)[LAST]}),
            _without(subject, 0),
        ),
    ),
    "weights of a mean": Law(
        "Weights are at least 0 and sum to 1.",
        "clients and server: nobody is subtracted, and nothing is lost or made up",
        _weights_of_a_mean,
        _not_a_mean,
    ),
    "agreement": Law(
        "Where all updates have the same sign, the model moves in that direction: u_i > 0 for all i gives m > w.",
        "the federation: what all clients agree on is learned",
        lambda subject: _follows(subject.run(_honest(subject))),
    ),
    "one client": Law(
        "A round with a single reply does not end the run, and in the end the model has moved with the clients.",
        "small federations, and rounds in which all clients but one time out",
        lambda subject: _follows(subject.run({0: _honest(subject)[0]}, _honest(subject))),
    ),
    "form of the model": Law(
        "Names, shapes and dtypes of the model's arrays stay the same, also those of float64 arrays and counters.",
        "the clients' code, which loads the model into its layers",
        _form,
    ),
    "zero update": Law(
        "A client that returns the model unchanged does not break the round; the model moves with the others.",
        "clients that had nothing to learn in a round",
        lambda subject: _follows(_with(subject, reply={"update": np.zeros_like(MODEL)})),
    ),
    "nan update": Law(
        "An update of NaN does not end the run, and moves the model no further than an honest update may.",
        "the model, from a client whose training diverged",
        _update(np.nan),
    ),
    "infinite update": Law(
        "An infinite update does not end the run, and moves the model no further than an honest update may.",
        "the model, from a client whose training diverged",
        _update(np.inf),
    ),
    "wrong shape": Law(
        "A reply whose arrays have more rows counts as no reply.",
        "the run, from a client with another version of the app",
        _counts_as_none(_rows([0, 1, 1])),
        _only_messages,
    ),
    "broadcast shape": Law(
        "A reply whose arrays have fewer rows counts as no reply, although numpy could repeat them.",
        "the model, from a client with another version of the app",
        _counts_as_none(_rows([0])),
        _only_messages,
    ),
    "missing array": Law(
        "A reply without one of the model's arrays counts as no reply.",
        "the run, from a client with another version of the app",
        _counts_as_none({"arrays": lambda arrays: {"layer.weight": arrays["layer.weight"]}}),
        _only_messages,
    ),
    "nan claim": Law(
        "A claim of NaN rows counts as no reply, or as a possible claim above 0.",
        "the model, from a client that divides by zero",
        _counts_as_none(samples=np.nan),
    ),
    "infinite claim": Law(
        "A claim of infinitely many rows counts as no reply, or as a possible claim above 0.",
        "the model, from a client that claims all weight",
        _counts_as_none(samples=np.inf),
    ),
    "negative claim": Law(
        "A claim of fewer than 0 rows counts as no reply, or as a possible claim above 0.",
        "honest clients, from one that is subtracted from the mean",
        _counts_as_none(samples=-50),
    ),
    "zero claim": Law(
        "A claim of 0 rows counts as no reply, or as a possible claim above 0.",
        "clients that have no rows in a round",
        _counts_as_none(samples=0),
    ),
    "missing claim": Law(
        "A reply without the number of rows counts as no reply, or as a possible claim above 0.",
        "the run, from one client that reports less than the others",
        _counts_as_none(samples=None),
    ),
    "further metric": Law(
        "A reply with one more metric counts as it does without that metric, or as no reply.",
        "the run, from one client that reports more than the others",
        _counts_as_none(further=1.0),
    ),
    "all claims zero": Law(
        "A round in which all clients claim 0 rows neither ends the run nor makes the model NaN.",
        "the model, in a round in which no client found rows to train on",
        lambda subject: _fault(subject.run(_honest(subject), _honest(subject, 0))),
    ),
    "no test rows": Law(
        "A round in which all clients test the model on 0 rows does not end the run.",
        "the run, in a federation whose test rows are elsewhere",
        lambda subject: _fault(subject.run(_honest(subject), test_rows=0)),
        _only_messages,
    ),
    "error reply": Law(
        "A client that answers with an error does not end the run; the model moves with the others.",
        "the run, from a client that crashes",
        lambda subject: _follows(_without(subject)),
    ),
    "empty round": Law(
        "A round without replies, or with errors only, does not end the run and leaves the model unchanged.",
        "the run, from an outage of the network",
        lambda subject: _same(subject.run(_honest(subject), None, {}), subject.run(_honest(subject))),
    ),
    "unasked reply": Law(
        "A reply from a node that was not asked changes nothing. (Flower's own grid delivers no such reply.)",
        "clients of the round, from a node that was not asked",
        lambda subject: _same(
            subject.run({**_honest(subject), CLIENTS: _honest(subject)[LAST]}), subject.run(_honest(subject))
        ),
        _only_messages,
    ),
    "repeated reply": Law(
        "Two replies to the same message count once. (Flower's own grid delivers no such reply.)",
        "all clients, from one whose reply is delivered twice",
        lambda subject: _same(_with(subject, reply={"twice": True}), _with(subject)),
        _only_messages,
    ),
    "bounded influence": Law(
        "No update moves the model without bound: |m(u_i = -10^6) - m(without i)| <= max_j |u_j|. Means break this.",
        "all clients, from one that sends anything",
        _update(-1e6),
    ),
    "bounded claim": Law(
        "No claim wins half of the weight: |m(10^6 n_i) - m(n_i)| <= |w + u_i - m(n_i)| / 2. Means by rows break this.",
        "all clients, from one that exaggerates its number of rows",
        _bounded_claim,
    ),
    "cap": Law(
        "No client gets more than the stated cap, however many rows it has: weight_i <= times / n.",
        "all clients, from one that has or claims most rows",
        _cap,
        lambda subject: "" if _caps(subject) else "no cap is stated",
    ),
    "monotone": Law(
        "A better value of the first criterion never lowers a client's weight; without criteria, more rows never do.",
        "clients that improve",
        _monotone,
        lambda subject: "" if _first_facts(subject) else "clients do not report the first criterion",
    ),
    "resume": Law(
        "A state that is written and read after each round gives the same bits as one that stays in memory.",
        "long runs, which are stopped and resumed",
        lambda subject: _same(
            subject.run(_honest(subject), {4: _honest(subject)[4]}, _honest(subject), resume=True),
            subject.run(_honest(subject), {4: _honest(subject)[4]}, _honest(subject)),
            within=0,
        ),
        lambda subject: "Flower has no interface for a strategy's state" if subject.on_flower else "",
    ),
    "same on flower": Law(
        "A recipe and `Merit(recipe)` give the same model, up to rounding.",
        "users that move a recipe from a simulation to Flower",
        lambda subject: _same(subject.run(_honest(subject)), _elsewhere(subject)),
        _not_elsewhere,
    ),
}
"""All laws by name, in the order in which they are checked."""
