"""Results that follow from the shapes of values, although the values are not constant.

1. Shape and Size of a value whose sizes are known.
2. Gather and Slice, at constant positions, of a Shape of which only those sizes are known.
3. A small ConstantOfShape.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import onnx_ir as ir

from ....registration.inference import shape_inference
from ....registration.inference.folding import evaluate
from ....registration.inference.tensor_sizes import is_static
from ..node_pass import producer_of
from .result_sizes import static_sizes

_SELECTIONS = ("Gather", "Slice", "Squeeze", "Unsqueeze")
OPERATORS = frozenset((*_SELECTIONS, "ConstantOfShape", "Shape", "Size"))
"""The operators whose results may follow from shapes."""
_MAXIMUM_FILLED = 1024


def known_sizes(node: ir.Node, is_constant: Callable[[ir.Value | None], bool]) -> np.ndarray | None:
    """The result of a node, if it follows from shapes and constants; else None.

    Args:
        is_constant: whether a value is a constant that may be folded.
    """
    if node.op_type not in OPERATORS:
        return None
    source = node.inputs[0] if node.inputs else None
    if source is None or len(node.outputs) != 1:
        return None
    if node.op_type == "ConstantOfShape":
        return _fill_tensor(node, source) if is_constant(source) else None
    if node.op_type == "Size":
        sizes = _sizes(source)
        return None if sizes is None or None in sizes else np.array(math.prod(sizes), np.int64)  # type: ignore[arg-type]
    if node.op_type == "Shape":
        return _as_array(_shape_numbers(node))
    shape = producer_of(source, "Shape") if node.op_type in _SELECTIONS else None
    numbers = None if shape is None else _shape_numbers(shape)
    if numbers is None or not all(map(is_constant, node.inputs[1:])):
        return None
    constants = [
        value.const_value.numpy() for value in node.inputs[1:] if value is not None and value.const_value
    ]
    attributes: dict[str, object] = {name: attribute.value for name, attribute in node.attributes.items()}
    # Apply the operator to indices, which shows the sizes that it selects.
    selection = evaluate(node.op_type, [np.arange(len(numbers)), *constants], attributes)
    if selection is None:
        return None
    selected = _as_array([numbers[index] for index in selection.reshape(-1)])
    return None if selected is None else selected.reshape(selection.shape)


def refine_shape(node: ir.Node) -> None:
    """Infer an unknown shape of a node's result from constants and known sizes."""
    results = node.outputs
    shape = results[0].shape
    if len(results) != 1 or (shape is not None and is_static(shape)):
        return
    data, result = node.inputs[0], results[0]
    sizes = static_sizes(node)
    if sizes is not None:
        result.shape = ir.Shape(sizes)
        return
    if data is None or data.shape is None or not data.shape.is_static():
        return
    attributes: dict[str, object] = {name: attribute.value for name, attribute in node.attributes.items()}
    inferred = shape_inference.infer(node.op_type, node.inputs, attributes)
    if inferred is not None and (inferred.is_static() or result.shape is None):
        result.shape = ir.Shape(inferred.dims)


def _sizes(value: ir.Value) -> list[int | None] | None:
    if value.shape is None:
        return None
    return [size if isinstance(size, int) else None for size in value.shape]


def _shape_numbers(shape: ir.Node) -> list[int | None] | None:
    """The numbers that a Shape outputs, None for those that vary."""
    sizes = None if shape.inputs[0] is None else _sizes(shape.inputs[0])
    start, end = (shape.attributes.get(name) for name in ("start", "end"))
    if sizes is None:
        return None
    return sizes[0 if start is None else start.as_int() : len(sizes) if end is None else end.as_int()]


def _as_array(sizes: list[int | None] | None) -> np.ndarray | None:
    return None if sizes is None or None in sizes else np.array(sizes, np.int64)


def _fill_tensor(node: ir.Node, target: ir.Value) -> np.ndarray | None:
    assert target.const_value is not None
    sizes = target.const_value.numpy().tolist()
    if min(sizes, default=0) < 0 or math.prod(sizes) > _MAXIMUM_FILLED:
        return None
    value = node.attributes.get("value")
    number = np.zeros(1, np.float32) if value is None else value.as_tensor().numpy()
    return np.full(sizes, number.reshape(()))
