"""A model as ONNX: raw columns in, classes and probabilities out, checked against torch and the estimator.

The graph has three parts: the encoder of the table's columns, the torch module with the centring of its inputs, and
the names of the classes. Numbers are encoded in float64, as in training.
"""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmerit.core.targets import Number, target_of
from fedmerit.engine.estimator import Classifier, Estimator, as_rows, class_values
from fedmerit.errors import ConfigError, DataError, NoteWarning
from fedmerit.tasks.encoding import MISSING, Encoder
from fedmerit.tasks.formats.table_files import NOTHING, Table

TOLERANCE = 1e-5
"""Largest difference of a probability, or of a number in units of its scale, between ONNX, torch and estimator."""
PROBE_ROWS = 256
ML, ML_VERSION = "ai.onnx.ml", 3
"""Operators of classical machine learning, and the version whose LabelEncoder reads words."""
LABEL, PROBABILITIES, NUMBER = "label", "probabilities", "number"
"""Names of the outputs."""


def onnx_bytes(estimator: Estimator, module: Any, x: Any, facts: Mapping[str, str]) -> bytes:
    """Make the ONNX file of a model; `x` are example rows for a run without a table.

    module  the torch module with the model's values
    facts   further metadata, by name
    """
    encoder = estimator.encoder
    try:
        import onnx
        import onnxruntime
        import onnxscript  # noqa: F401

        inputs = as_rows(x) if encoder is None else np.zeros((2, encoder.shape[0]), np.float32)
        model = _exported(estimator, module, inputs)
    except ModuleNotFoundError as error:
        missing = f"ONNX export needs {error.name}, which is not installed: pip install 'fedmerit[onnx]'"
        raise ConfigError(missing) from None
    if encoder is not None:
        model = _with_encoder(model, encoder)
    about = {f"fedmerit.{name}": value for name, value in facts.items()} | _described(encoder)
    onnx.helper.set_model_props(model, about)
    onnx.checker.check_model(model)
    content: bytes = model.SerializeToString()
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    _check(session, estimator, module, inputs if encoder is None else _probe_rows(encoder))
    return content


def _described(encoder: Encoder | None) -> dict[str, str]:
    """What a reader of the file needs to know about a table's columns, as JSON."""
    if encoder is None:
        return {}
    about = {
        "columns": {column.name: "words" if column.kinds else "numbers" for column in encoder.columns},
        "classes": class_values(encoder).tolist(),
        "missing": "NaN in numbers, the empty text in words",
    }
    if len(encoder.names) > len(encoder.columns):
        about["client"] = f"{encoder.names[-1]}: the name of a client; others are scaled with medians over clients"
    return {f"fedmerit.{name}": json.dumps(value) for name, value in about.items()}


def _served(estimator: Estimator, module: Any) -> Any:
    """A torch module from rows to (class, probabilities), or to (number,), with the centring of its inputs."""
    import torch

    from fedmerit.learn.flat import FlatModule
    from fedmerit.learn.inputs import Inputs, call
    from fedmerit.learn.outputs import logits, output_of

    learner: Any = estimator.learner
    output = output_of(target_of(learner))
    tail = torch.from_numpy(estimator.model[len(FlatModule(learner.build()).values) :].copy())

    class Served(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.module = module

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            outputs = logits(call(self.module, learner.inputs, Inputs(x, tail)[slice(None)]))
            decided = output.decide(outputs)
            return (decided, output.probabilities(outputs)) if isinstance(estimator, Classifier) else (decided,)

    return Served().eval()


def _exported(estimator: Estimator, module: Any, example: NDArray[Any]) -> Any:
    """The torch part of the graph, for any number of rows."""
    import torch

    log = logging.getLogger("torch.onnx")
    level = log.level
    log.setLevel(logging.ERROR)  # torchvision is not needed
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # deprecation warnings within torch
        program = torch.onnx.export(
            _served(estimator, module),
            (torch.from_numpy(example),),
            input_names=["x"],
            output_names=[LABEL, PROBABILITIES] if isinstance(estimator, Classifier) else [NUMBER],
            dynamic_shapes=({0: torch.export.Dim("rows")},),
            verbose=False,
        )
    log.setLevel(level)
    assert program is not None  # None without the exporter by torch.export
    return program.model_proto


@dataclass
class _Graph:
    """Nodes and constants of a graph under construction."""

    nodes: list[Any] = field(default_factory=list)
    constants: list[Any] = field(default_factory=list)

    def add(self, operator: str, *inputs: str, **settings: Any) -> str:
        """Add a node with one output, and return the output's name."""
        import onnx

        name = f"encoder/{len(self.nodes)}"
        self.nodes.append(onnx.helper.make_node(operator, inputs, [name], **settings))
        return name

    def constant(self, values: NDArray[Any]) -> str:
        """Add a constant, and return its name."""
        import onnx

        name = f"encoder/constant {len(self.constants)}"
        self.constants.append(onnx.numpy_helper.from_array(values, name))
        return name

    def number_of(self, words: str, numbers: Mapping[str, int], otherwise: int) -> str:
        """Look up the number of each word."""
        keys, values = list(numbers), list(numbers.values())
        return self.add(
            "LabelEncoder", words, domain=ML, keys_strings=keys, values_int64s=values, default_int64=otherwise
        )


def _with_encoder(model: Any, encoder: Encoder) -> Any:
    """Put the encoder before the torch part, and names of classes after it."""
    import onnx

    graph, types = _Graph(), onnx.TensorProto
    kinds = {column.name: types.STRING if column.kinds else types.DOUBLE for column in encoder.columns}
    inputs = [
        onnx.helper.make_tensor_value_info(name, kinds.get(name, types.STRING), ["rows", 1]) for name in encoder.names
    ]
    encoded = _encode(graph, encoder)
    ready = onnx.helper.make_tensor_value_info(encoded, types.FLOAT, ["rows", encoder.shape[0]])
    (version,) = [entry.version for entry in model.opset_import if entry.domain == ""]
    opsets = [onnx.helper.make_opsetid("", version), onnx.helper.make_opsetid(ML, ML_VERSION)]
    first = onnx.helper.make_model(
        onnx.helper.make_graph(graph.nodes, "encoder", inputs, [ready], graph.constants),
        opset_imports=opsets,
        ir_version=model.ir_version,
    )
    merged = onnx.compose.merge_models(first, onnx.compose.add_prefix(model, "model/"), [(encoded, "model/x")])
    taken = set(encoder.names)
    for output in merged.graph.output:
        given = output.name
        name = given.removeprefix("model/")
        while name in taken:
            name += "_"
        operator, extra = "Identity", []
        if given == f"model/{LABEL}" and encoder.kind == "classes":
            classes = class_values(encoder)
            merged.graph.initializer.append(onnx.numpy_helper.from_array(classes, "classes"))
            operator, extra = "Gather", ["classes"]
            output.type.tensor_type.elem_type = merged.graph.initializer[-1].data_type
        merged.graph.node.append(onnx.helper.make_node(operator, [*extra, given], [name]))
        output.name = name
    return merged


def _encode(graph: _Graph, encoder: Encoder) -> str:
    """Add the nodes of `tasks.encoding.encode`, and return the name of the inputs (rows, width) as float32."""
    numbers = [column for column in encoder.columns if not column.kinds]
    parts, places = [], dict[str, NDArray[np.int64]]()
    width = len(numbers)
    if numbers:
        parts.append(_scaled(graph, encoder))
        places = {column.name: np.array([place]) for place, column in enumerate(numbers)}
    for column in encoder.columns:
        if column.kinds:
            known = {kind: place for place, kind in enumerate(column.kinds)}
            missing = {word: known.get(MISSING, -1) for word in NOTHING if word not in known}
            place = graph.number_of(column.name, known | missing, -1)
            equal = graph.add("Equal", place, graph.constant(np.arange(column.width)[None]))
            parts.append(graph.add("Cast", equal, to=1))
            places[column.name] = np.arange(width, width + column.width)
            width += column.width
    joined = graph.add("Concat", *parts, axis=1)
    order = np.concatenate([places[column.name] for column in encoder.columns])
    return graph.add("Gather", joined, graph.constant(order), axis=1)


def _scaled(graph: _Graph, encoder: Encoder) -> str:
    """Add the filling and scaling of numbers by the row's client; an unknown client has the last row of scales."""
    numbers = [column for column in encoder.columns if not column.kinds]
    scales = [[*(column.scales if encoder.clients else ()), column.other] for column in numbers]
    table = {
        part: graph.constant(np.array([[getattr(scale, part) for scale in of] for of in scales]).T)
        for part in ("median", "mean", "deviation")
    }
    if encoder.clients:
        short = {name.removeprefix(f"{encoder.owner} "): place for place, name in enumerate(encoder.clients)}
        known = short | {name: place for place, name in enumerate(encoder.clients)}
        client = graph.number_of(encoder.owner, known, len(encoder.clients))
        row = graph.add("Squeeze", client, graph.constant(np.array([1])))
        table = {part: graph.add("Gather", values, row, axis=0) for part, values in table.items()}
    raw = graph.add("Concat", *(column.name for column in numbers), axis=1)
    filled = graph.add("Where", graph.add("IsNaN", raw), table["median"], raw)
    scaled = graph.add("Div", graph.add("Sub", filled, table["mean"]), table["deviation"])
    return graph.add("Cast", scaled, to=1)


def _probe_rows(encoder: Encoder) -> Table:
    """Draw rows like those of the table, with missing values, words and clients that no training row had."""
    random = np.random.default_rng(0)
    columns: dict[str, NDArray[Any]] = {}
    for column in encoder.columns:
        if column.kinds:
            words = [None if kind == MISSING else kind for kind in column.kinds]
            columns[column.name] = random.choice(np.array([*words, None, "no such word"], dtype=object), PROBE_ROWS)
            continue
        scale = random.choice(np.array([*column.scales, column.other], dtype=object), PROBE_ROWS)
        values = np.array([one.mean + 2 * one.deviation * random.normal() for one in scale])
        columns[column.name] = np.where(random.random(PROBE_ROWS) < 0.1, np.nan, values)
    for name in encoder.names[len(encoder.columns) :]:
        columns[name] = random.choice(np.array([*encoder.clients, "no such client"], dtype=object), PROBE_ROWS)
    return Table(columns, {}, "rows of the check")


def _feed(table: Table, names: Sequence[str]) -> dict[str, NDArray[Any]]:
    """The inputs of the ONNX file: a column (rows, 1) each; a missing word is the empty text."""
    columns = {name: table.columns[name][:, None] for name in names}
    is_word = {name: values.dtype == object for name, values in columns.items()}
    return {name: np.where(values == None, "", values) if is_word[name] else values for name, values in columns.items()}  # noqa: E711


def _check(session: Any, estimator: Estimator, module: Any, rows: Any) -> None:
    """Check that ONNX, torch and the estimator agree on rows."""
    import torch

    encoder = estimator.encoder
    feed = {"x": rows} if encoder is None else _feed(rows, encoder.names)
    predict = estimator.predict_proba if isinstance(estimator, Classifier) else estimator.predict
    with warnings.catch_warnings(), torch.inference_mode():
        warnings.simplefilter("ignore", NoteWarning)  # of unknown words and clients
        inputs = rows if encoder is None else encoder(rows)[0]
        plain = _served(estimator, module)(torch.from_numpy(inputs))[-1].numpy()
        expected, written = predict(rows), session.run(None, feed)[-1]
    target = target_of(estimator.learner)
    unit = target.scale if isinstance(target, Number) else 1.0
    gap = max(float(np.abs(each - expected).max()) for each in (written, plain)) / unit
    if not gap <= TOLERANCE:
        raise DataError(
            f"ONNX, torch and the run's predictions must agree to {TOLERANCE:g} (they differ by {gap:.3g}); the module "
            "does something that ONNX does not: use run.module()"
        )
