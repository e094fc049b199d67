"""Target pass: infers sizes that were unknown when the file was read, in front of attention.

Files often compute the targets of their Reshapes. Once these are constants, or sizes of other values, the
number of heads follows from them:

    data [batch, 197, 192] -> Reshape [Shape(data)[0], 197, -1, 64]      gives      [batch, 197, 3, 64]

1. Applies to graphs with a Softmax, in opsets with Attention.
2. Sizes that are known stay.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx_ir as ir

from ....registration.emission import shape_inference
from ....registration.emission.shape_inference import Dim
from ..node_pass import NodePass, NodesByOperator, maker_of

_UNKNOWN = ir.SymbolicDim(None)
_MAXIMUM_SIZES = 32
"""Sizes of a shape: more than any operator takes."""
_MAXIMUM_DEPTH = 12
"""Nodes between a target and the sizes that it is made of."""


class RefineShapes(NodePass):
    """Replaces unknown sizes in the shapes of values; no node changes."""

    writes = "Attention"

    def run(self, model: ir.Model, nodes: NodesByOperator) -> bool:
        """Refine the shapes of a graph that may have an attention that is written out."""
        return bool(nodes.of(("Softmax",))) and super().run(model, nodes)

    def rewrite(self, node: ir.Node) -> bool:
        """Infer the shape of a result."""
        result = node.outputs[0] if len(node.outputs) == 1 and not node.domain else None
        if result is None or result.shape is None or result.shape.is_static():
            return False
        special = _RULES.get(node.op_type)
        if special is not None:
            found = special(node)
        else:
            attributes: dict[str, Any] = {name: each.value for name, each in node.attributes.items()}
            inferred = shape_inference.infer(node.op_type, node.inputs, attributes)
            found = None if inferred is None else list(inferred)
        if found is None or len(found) != len(result.shape):
            return False
        sizes = [_better(old, new) for old, new in zip(result.shape, found, strict=True)]
        if sizes == [*result.shape]:
            return False
        result.shape = ir.Shape(sizes)
        return True


def _better(old: Dim, new: Dim) -> Dim:
    """The size that says more: a number, then the name that the operands have."""
    return old if isinstance(old, int) or new == _UNKNOWN else new


def _reshaped(node: ir.Node) -> list[Dim] | None:
    """The sizes that a Reshape gives, as far as its target and the sizes of its operand show them."""
    data, target = node.inputs
    sizes = _elements(target)
    if data is None or data.shape is None or sizes is None:
        return None
    allowzero = node.attributes.get("allowzero")
    if allowzero is None or not allowzero.as_int():
        sizes = [data.shape[place] if size == 0 else size for place, size in enumerate(sizes)]
    if sizes.count(-1) != 1 or any(size == _UNKNOWN or size == 0 for size in (*sizes, *data.shape)):
        return [_UNKNOWN if size == -1 else size for size in sizes]
    rest = [*data.shape]
    for size in sizes:
        if not isinstance(size, int) and size in rest:
            rest.remove(size)
        elif not isinstance(size, int):
            return [_UNKNOWN if each == -1 else each for each in sizes]
    names = [size for size in rest if not isinstance(size, int)]
    count = int(np.prod([size for size in rest if isinstance(size, int)]))
    others = int(np.prod([size for size in sizes if isinstance(size, int) and size != -1]))
    inferred: Dim = _UNKNOWN
    if not names and count % others == 0:
        inferred = count // others
    elif len(names) == 1 and count == others:
        inferred = names[0]
    return [inferred if size == -1 else size for size in sizes]


def _expanded(node: ir.Node) -> list[Dim] | None:
    """The sizes that an Expand gives."""
    data, sizes = node.inputs[0], _elements(node.inputs[1])
    if data is None or data.shape is None or sizes is None:
        return None
    return [*shape_inference.broadcast([data.shape.dims, tuple(sizes)])]


def _counted(node: ir.Node) -> list[Dim] | None:
    """The length of a Range from 0 to a size."""
    start, limit, step = (_elements(value) for value in node.inputs)
    return limit if start == [0] and step == [1] else None


_RULES: dict[str, Callable[[ir.Node], list[Dim] | None]] = {
    "ConstantOfShape": lambda node: _elements(node.inputs[0]),
    "Expand": _expanded,
    "Range": _counted,
    "Reshape": _reshaped,
}


def _elements(value: ir.Value | None, depth: int = _MAXIMUM_DEPTH) -> list[Dim] | None:
    """The sizes in a vector, which are constants or sizes of other values; None if unknown or many."""
    if value is None or depth == 0:
        return None
    if value.const_value is not None:
        numbers = _integers(value)
        return None if numbers is None else [*numbers]
    node = maker_of(value, "Concat", "Unsqueeze", "Squeeze", "Gather", "Shape", "Slice", "Reshape", "Where")
    if node is None:
        return None
    if node.op_type == "Where":
        return _replaced(node, depth - 1)
    if node.op_type == "Concat":
        return _concatenated(node, depth - 1)
    if node.op_type == "Shape":
        return _shape(node)
    data = _elements(node.inputs[0], depth - 1)
    if data is None or node.op_type not in ("Gather", "Slice"):
        # Squeeze, Unsqueeze and Reshape make a vector of one size, or a number of it.
        return data if data is not None and len(data) == 1 else None
    places = [_integers(each) for each in node.inputs[1:]]
    if None in places:
        return None
    if node.op_type == "Gather":
        return [data[place] for place in places[0] or () if -len(data) <= place < len(data)] or None
    if any(place is None or len(place) != 1 for place in places):
        return None
    start, end, *step = (place[0] for place in (*places[:2], *places[3:]) if place)
    return data[start : end : step[0] if step else 1]


def _concatenated(node: ir.Node, depth: int) -> list[Dim] | None:
    """The sizes of a Concat of vectors."""
    if len(node.inputs) > _MAXIMUM_SIZES:
        return None
    sizes: list[Dim] = []
    for value in node.inputs:
        part = _elements(value, depth)
        if part is None or len(sizes) + len(part) > _MAXIMUM_SIZES:
            return None
        sizes += part
    return sizes


def _replaced(node: ir.Node, depth: int) -> list[Dim] | None:
    """Sizes of which those of -1 are replaced by others, as torch.onnx writes the target of an Expand."""
    equal, sizes = maker_of(node.inputs[0], "Equal"), _elements(node.inputs[2], depth)
    others = _elements(node.inputs[1], depth)
    if equal is None or sizes is None or others is None or node.inputs[2] not in equal.inputs:
        return None
    place = equal.inputs.index(node.inputs[2])
    wanted = _elements(equal.inputs[1 - place], depth)
    if wanted is None or set(wanted) != {-1} or len(others) not in (1, len(sizes)):
        return None
    others = others * len(sizes) if len(others) == 1 else others
    return [other if size == -1 else size for size, other in zip(sizes, others, strict=True)]


def _shape(node: ir.Node) -> list[Dim] | None:
    """What a Shape gives; sizes without a name are unknown."""
    source = node.inputs[0]
    if source is None or source.shape is None:
        return None
    start, end = (node.attributes.get(name) for name in ("start", "end"))
    dims = list(source.shape)
    return dims[start.as_int() if start else 0 : end.as_int() if end else len(dims)]


def _integers(value: ir.Value | None) -> list[int] | None:
    """The numbers of a constant vector that is not long."""
    tensor = value.const_value if value is not None and not value.is_graph_input() else None
    if tensor is None or tensor.size > _MAXIMUM_SIZES:
        return None
    return [int(each) for each in np.atleast_1d(tensor.numpy())]
