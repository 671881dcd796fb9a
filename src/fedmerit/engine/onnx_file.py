"""A model as ONNX: raw columns in, classes and probabilities out, checked against torch and the estimator.

The graph has three parts: the encoder of the table's columns, the torch module, and
the names of the classes. Numbers are encoded in float64, as in training.
"""

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
from fedmerit.tasks.cells import is_missing, to_number
from fedmerit.tasks.encoding import MISSING, Column, Encoder
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
        raise ConfigError(
            f"ONNX export needs {error.name}, which is not installed: pip install 'fedmerit[onnx]'"
        ) from None
    if encoder is not None:
        model = _with_encoder(model, encoder)
    onnx.helper.set_model_props(
        model, {f"fedmerit.{name}": value for name, value in facts.items()} | _described(encoder)
    )
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
        "classes" if encoder.kind == "classes" else "labels": class_values(encoder).tolist(),
        "missing": "NaN in numbers, the empty text in words",
    }
    if len(encoder.names) > len(encoder.columns):
        about["client"] = f"{encoder.names[-1]}: the name of a client; others are scaled with medians over clients"
    return {f"fedmerit.{name}": json.dumps(value) for name, value in about.items()}


def _served(estimator: Estimator, module: Any) -> Any:
    """A torch module from rows to (class, probabilities), or to (number,)."""
    import torch

    from fedmerit.learn.inputs import Inputs, call
    from fedmerit.learn.outputs import logits, output_of

    learner: Any = estimator.learner
    output = output_of(target_of(learner))

    class Served(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.module = module

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            outputs = logits(call(self.module, learner.inputs, Inputs(x)[slice(None)]))
            decided = output.decide(outputs)
            return (decided, output.probabilities(outputs)) if isinstance(estimator, Classifier) else (decided,)

    return Served().eval()


def _exported(estimator: Estimator, module: Any, example: NDArray[Any]) -> Any:
    """The torch part of the graph, for any number of rows."""
    import torch

    logging.getLogger("torch.onnx").setLevel(logging.ERROR)  # it misses torchvision, which is not needed
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
    assert program is not None  # None without the exporter by torch.export
    return program.model_proto


@dataclass(frozen=True, slots=True)
class _Graph:
    """Nodes and constants of a graph under construction; `onnx` is the package."""

    onnx: Any
    nodes: list[Any] = field(default_factory=list)
    constants: list[Any] = field(default_factory=list)

    def add(self, operator: str, *inputs: str | NDArray[Any], **settings: Any) -> str:
        """Add a node with one output, and return the output's name; an input is a name or a constant."""
        names = [each if isinstance(each, str) else self._constant(each) for each in inputs]
        output = f"encoder/{len(self.nodes)}"
        self.nodes.append(self.onnx.helper.make_node(operator, names, [output], **settings))
        return output

    def _constant(self, values: NDArray[Any]) -> str:
        self.constants.append(self.onnx.numpy_helper.from_array(values, f"encoder/constant {len(self.constants)}"))
        return str(self.constants[-1].name)

    def number_of(self, words: str, numbers: Mapping[str, int], otherwise: int) -> str:
        """Look up the number of each word."""
        found = {"keys_strings": [*numbers], "values_int64s": [*numbers.values()]}
        return self.add("LabelEncoder", words, domain=ML, **found, default_int64=otherwise)


def _with_encoder(model: Any, encoder: Encoder) -> Any:
    """Put the encoder before the torch part, and names of classes after it."""
    import onnx

    graph, types, helper = _Graph(onnx), onnx.TensorProto, onnx.helper
    kinds = {column.name: types.STRING if column.kinds else types.DOUBLE for column in encoder.columns}
    inputs = [helper.make_tensor_value_info(name, kinds.get(name, types.STRING), ["rows", 1]) for name in encoder.names]
    encoded = _encode(graph, encoder)
    ready = helper.make_tensor_value_info(encoded, types.FLOAT, ["rows", encoder.shape[0]])
    first = helper.make_model(
        helper.make_graph(graph.nodes, "encoder", inputs, [ready], graph.constants),
        opset_imports=[*model.opset_import, helper.make_opsetid(ML, ML_VERSION)],
        ir_version=model.ir_version,
    )
    merged = onnx.compose.merge_models(first, onnx.compose.add_prefix(model, "model/"), [(encoded, "model/x")])
    for output in merged.graph.output:
        given, name = output.name, output.name.removeprefix("model/")
        if given == f"model/{LABEL}" and encoder.kind == "classes":
            merged.graph.initializer.append(onnx.numpy_helper.from_array(class_values(encoder), "classes"))
            output.type.tensor_type.elem_type = merged.graph.initializer[-1].data_type
            source = ["Gather", "classes", given]
        else:
            source = ["Identity", given]
        output.name = f"{name}_" if name in encoder.names else name
        merged.graph.node.append(helper.make_node(source[0], source[1:], [output.name]))
    return merged


def _encode(graph: _Graph, encoder: Encoder) -> str:
    """Add the nodes of `tasks.encoding.encode`, and return the name of the inputs (rows, width) as float32."""
    numbers = [column for column in encoder.columns if not column.kinds]
    scales = _scales(graph, encoder, numbers)
    parts = []
    for column in encoder.columns:
        if not column.kinds:
            median, mean, deviation = (
                graph.add("Gather", part, np.array([numbers.index(column)]), axis=1) for part in scales
            )
            read = column.name
            for old, new in _number_changes(column).items():
                read = graph.add("Where", graph.add("Equal", read, np.array(old)), np.array(new), read)
            filled = graph.add("Where", graph.add("IsNaN", read), median, read)
            part = graph.add("Div", graph.add("Sub", filled, mean), deviation)
        else:
            known = {kind: place for place, kind in enumerate(column.kinds)}
            missing = dict.fromkeys(NOTHING, known.get(MISSING, -1))
            known |= {old: known.get(new or MISSING, -1) for old, new in column.replace.items()}
            part = graph.add("Equal", graph.number_of(column.name, missing | known, -1), np.arange(column.width)[None])
        parts.append(graph.add("Cast", part, to=1))
    return graph.add("Concat", *parts, axis=1)


def _number_changes(column: Column) -> dict[float, float]:
    """Numbers that a column of numbers reads as another, or as missing."""
    read = {to_number(old): new for old, new in column.replace.items()}
    return {old: float(new or "nan") for old, new in read.items() if old is not None}


def _scales(graph: _Graph, encoder: Encoder, numbers: Sequence[Column]) -> list[str | NDArray[Any]]:
    """Medians, means and deviations (rows or 1, numbers) of each row's client; the last of a table is for others."""
    by_column = [[*(column.scales if encoder.clients else ()), column.other] for column in numbers]
    tables: list[str | NDArray[Any]] = [
        np.array([[getattr(scale, part) for scale in scales] for scales in by_column]).T
        for part in ("median", "mean", "deviation")
    ]
    if not encoder.clients or not numbers:
        return tables
    known = {name: place for place, name in enumerate(encoder.clients)}
    numbered = {name.removeprefix(f"{encoder.owner} "): place for name, place in known.items()}  # 3 is ward 3, too
    client = graph.add("Squeeze", graph.number_of(encoder.owner, numbered | known, len(known)), np.array([1]))
    return [graph.add("Gather", table, client, axis=0) for table in tables]


def _probe_rows(encoder: Encoder) -> Table:
    """Draw rows like those of the table, with missing values, words and clients that no training row had."""
    random = np.random.default_rng(0)
    columns: dict[str, NDArray[Any]] = {}
    for column in encoder.columns:
        words = [*(kind for kind in column.kinds if kind != MISSING), *column.replace]
        numbers = [np.nan, *_number_changes(column)] if not column.kinds else []
        scales = random.choice(np.array([*column.scales, column.other], dtype=object), PROBE_ROWS)
        columns[column.name] = (
            random.choice(np.array([*words, None, "no such word"], dtype=object), PROBE_ROWS)
            if column.kinds
            else np.array(
                [
                    random.normal(one.mean, 2 * one.deviation) if random.random() < 0.8 else random.choice(numbers)
                    for one in scales
                ]
            )
        )
    for name in encoder.names[len(encoder.columns) :]:
        columns[name] = random.choice(np.array([*encoder.clients, "no such client"], dtype=object), PROBE_ROWS)
    return Table(columns, {}, "rows of the check")


def _feed(table: Table, names: Sequence[str]) -> dict[str, NDArray[Any]]:
    """The inputs of the ONNX file: a column (rows, 1) each; a missing word is the empty text."""
    cells = {name: table.columns[name] for name in names}
    ready = {name: np.where(is_missing(one), "", one) if one.dtype == object else one for name, one in cells.items()}
    return {name: one[:, None] for name, one in ready.items()}


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
