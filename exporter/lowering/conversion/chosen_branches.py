"""Replaces an If whose condition is known by the branch that it takes.

`passes/onnx_graph/constants/chosen_branches.py` does the same for conditions that become constant later.
During conversion, the shapes of later nodes can still be inferred, so that a chain of such nodes dissolves,
and opsets below 11 need not hide the shapes of the branches.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import numpy as np
import onnx_ir as ir
from onnx_ir import Value

from ....passes.onnx_graph.shapes.known_sizes import known_sizes
from ....registration import Names
from ....registration.arguments import blocks, graphs_of
from ....registration.inference import shape_inference
from ....registration.inference.folding import MAXIMUM_ELEMENTS, evaluate
from ....registration.schemas import operator_schema

_DEPTH = 64
"""The most operators between a condition and the constants and sizes from which it is computed."""


def chosen_branch(node: ir.Node, condition: Value | None) -> ir.Graph | None:
    """Return the branch that an If takes; None for another node, or if the condition is unknown.

    Args:
        node: the node in the file.
        condition: the condition in the new graph.
    """
    if node.op_type != "If" or condition is None:
        return None
    array = _contents(condition, {}, 0)
    if array is None or array.size != 1:
        return None
    attribute = node.attributes.get("then_branch" if array.item() else "else_branch")
    return None if attribute is None or attribute.is_ref() else attribute.as_graph()


def _is_constant(value: Value | None) -> bool:
    return value is not None and value.const_value is not None and value.const_value.size <= MAXIMUM_ELEMENTS


def _contents(value: Value, contents: dict[Value, np.ndarray | None], depth: int) -> np.ndarray | None:
    """Compute the contents of a value from constants and sizes; None if it depends on anything else."""
    if value in contents:
        return contents[value]
    array, node = None, value.producer()
    if value.const_value is not None:
        array = value.const_value.numpy() if _is_constant(value) else None
    elif node is not None and not node.domain and len(node.outputs) == 1 and depth < _DEPTH:
        array = known_sizes(node, _is_constant)
        if array is None and node.inputs and not blocks(node):
            inputs = [None if item is None else _contents(item, contents, depth + 1) for item in node.inputs]
            if all(item is not None for item in inputs):
                attributes = {name: attribute.value for name, attribute in node.attributes.items()}
                array = evaluate(node.op_type, inputs, attributes, condition=True)
    contents[value] = array
    return array


def infer_shape(node: ir.Node, opset: int) -> None:
    """Infer the shape of a copied node's first result if the file does not give it."""
    if node.domain or not node.outputs or node.outputs[0].shape is not None:
        return
    attributes = {name: attribute.value for name, attribute in node.attributes.items()}
    result = node.outputs[0]
    result.shape = shape_inference.infer(node.op_type, node.inputs, attributes)
    schema = operator_schema(node.op_type, opset)
    if result.type is None and schema is not None and len(schema.outputs[0].dtypes) == 1:
        # Files cannot state a shape without a type.
        result.type = ir.TensorType(*schema.outputs[0].dtypes)


class BranchNames:
    """Makes names of values in branches unique, because other graphs of the file may use them too."""

    def __init__(self, source: ir.Graph, names: Names):
        self._source = source
        self._names = names
        self._counts: Counter[str] | None = None

    def separate(self, moved: Iterable[Value]) -> None:
        """Rename the moved values whose names occur several times in the file."""
        if self._counts is None:
            graphs = graphs_of(self._source)
            values = [[*graph.inputs, *graph.initializers.values()] for graph in graphs]
            values += [list(node.outputs) for graph in graphs for node in graph]
            self._counts = Counter(
                value.name or "" for values_of_graph in values for value in values_of_graph
            )
        for value in moved:
            if value.name and self._counts[value.name] > 1:
                value.name = self._names.unique(value.name)
