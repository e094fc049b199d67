"""Source pass: complex values become real pairs, [..., 2], for ONNX has few operators for complex numbers.

Rules, over every graph with its sub-blocks:

1. A value of type COMPLEX64 or COMPLEX128 becomes one of FLOAT or DOUBLE with a last dimension of two, the
   real part and the imaginary one; inputs, outputs and initializers too. It keeps its name, and carries the
   metadata COMPLEX.
2. Real operands of an operator that computes in complex numbers become pairs first (`complex::from_real`),
   and pairs of another width are cast.
3. An operator that serves pairs as it is, once its dimensions and sizes are counted anew, stays an operator
   of `aten`; one that treats both parts alike is done to each: `real_pair_rules.RULES`.
4. Every other operator of ATen that a complex value goes into or comes out of becomes the one of that name in
   the dialect `complex`, to be composed, decomposed, or refused by name when it is lowered.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from ...registration import COMPLEX
from ...registration.arguments import arguments, blocks
from .pairs import PART_OF, Pairs
from .rules import HALF_SPECTRUM, RULES, rewrite


def real_pairs(model: ir.Model) -> bool:
    """Turn the complex values of a source graph into real pairs, in place; whether there were any."""
    return _visit(model.graph, Pairs(model.graph))


def serves_pairs(name: str) -> bool:
    """Whether there is a rule for an operator, `aten::view`, that makes it one of real numbers."""
    return name.removeprefix("aten::") in RULES


def _visit(graph: ir.Graph, pairs: Pairs) -> bool:
    found = False
    for value in (*graph.inputs, *graph.initializers.values()):
        found = _retype(value, pairs) or found
    for node in list(graph):
        own = len([value for value in node.outputs if _retype(value, pairs)]) > 0
        for block in blocks(node):
            found = _visit(block, pairs) or found
        own = own or any(value in pairs for value in node.inputs if value is not None)
        if own or (node.domain == "aten" and node.op_type in HALF_SPECTRUM):
            found = True
            if node.domain == "aten":
                rewrite(pairs, node, arguments(node))
    return found


def _retype(value: ir.Value, pairs: Pairs) -> bool:
    """Make a complex value a pair; whether it was one."""
    part = PART_OF.get(value.dtype) if value.dtype is not None else None
    if part is None:
        return False
    element = ir.TensorType(part)
    value.type = ir.SequenceType(element) if isinstance(value.type, ir.SequenceType) else element
    if value.shape is not None:
        value.shape = ir.Shape([*value.shape, 2])
    if value.const_value is not None:
        value.const_value = _as_parts(value.const_value)
    value.metadata_props[COMPLEX] = "true"
    pairs.add(value)
    return True


def _as_parts(tensor: Any) -> ir.Tensor:
    """A complex tensor as its parts, in the same memory where it is contiguous."""
    array = tensor.numpy()
    real = np.zeros((), array.dtype).real.dtype
    flat = np.ascontiguousarray(array).reshape(-1).view(real)
    return ir.Tensor(flat.reshape(*array.shape, 2), name=tensor.name)
