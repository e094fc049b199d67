"""Differences between two models: their nodes by operator, attributes and shapes, and their weights."""

from __future__ import annotations

import dataclasses
import difflib

import numpy as np
import onnx_ir as ir

from ..files.reading import Bounds
from ..lowering.conversion.prepared_models.preparation import source_of

_GRAPHS = (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS)
_CONTEXT = 2
"""Equal lines around a difference."""


@dataclasses.dataclass(frozen=True)
class ModelDifferences:
    """What differs between two models.

    Attributes:
        lines: a unified diff of inputs, nodes and outputs.
        weights: for each name of a weight that differs, how.
    """

    lines: tuple[str, ...]
    weights: dict[str, str]

    def __bool__(self) -> bool:
        return bool(self.lines or self.weights)


def find_differences(first: ir.Model, second: ir.Model, bounds: Bounds, *, names: bool) -> ModelDifferences:
    """Compare two models node by node, in order.

    Args:
        bounds: limits on the inference of shapes.
        names: whether to compare the names of nodes and values, too.
    """
    sources = source_of(first, bounds), source_of(second, bounds)
    before, after = (_lines(source, names) for source in sources)
    # The first two lines of a unified diff name the files.
    lines = list(difflib.unified_diff(before, after, lineterm="", n=_CONTEXT))[2:]
    a, b = (source.graph.initializers for source in sources)
    weights = {name: "only in the first" for name in a if name not in b}
    weights |= {name: "only in the second" for name in b if name not in a}
    for name in (name for name in a if name in b):
        difference = _weight_difference(a[name].const_value, b[name].const_value)
        if difference:
            weights[name] = difference
    return ModelDifferences(tuple(lines), weights)


def _lines(model: ir.Model, names: bool) -> list[str]:
    imports = ", ".join(f"{name or 'ai.onnx'} {number}" for name, number in model.graph.opset_imports.items())
    lines = [f"opsets {imports}"]
    lines += [f"input {value.name}: {_type_text(value)}" for value in model.graph.inputs]
    for node in model.graph:
        attributes = ", ".join(
            f"{name}={'a graph' if attribute.type in _GRAPHS else attribute.value}"
            for name, attribute in sorted(node.attributes.items())
        )
        inputs, outputs = (
            ", ".join(_type_text(value, names) for value in values) for values in (node.inputs, node.outputs)
        )
        title = f"{node.op_type} {node.name}" if names else node.op_type
        lines.append(f"{title}[{attributes}] ({inputs}) -> {outputs}")
    return lines + [f"output {value.name}: {_type_text(value)}" for value in model.graph.outputs]


def _type_text(value: ir.Value | None, names: bool = False) -> str:
    if value is None:
        return "none"
    title = f"{value.name}: " if names else ""
    dtype = "?" if value.dtype is None else value.dtype.name.lower()
    return f"{title}{dtype}{'' if value.shape is None else value.shape}"


def _weight_difference(a: ir.TensorProtocol | None, b: ir.TensorProtocol | None) -> str:
    if a is None or b is None:
        return ""
    if a.dtype != b.dtype or a.shape != b.shape:
        return f"{a.dtype.name.lower()}{a.shape} and {b.dtype.name.lower()}{b.shape}"
    a_array, b_array = a.numpy(), b.numpy()
    if a.tobytes() == b.tobytes() or np.array_equal(a_array, b_array):
        return ""
    if a_array.dtype.kind not in "fiu":
        return "other contents"
    # Infinities and NaN may stand at the same positions in both.
    wide_a, wide_b = a_array.astype(np.float64), b_array.astype(np.float64)
    is_equal = (wide_a == wide_b) | (np.isnan(wide_a) & np.isnan(wide_b))
    with np.errstate(invalid="ignore"):
        largest = float(np.where(is_equal, 0.0, np.abs(wide_a - wide_b)).max())
    return f"differs by {largest:.3g} at most"
