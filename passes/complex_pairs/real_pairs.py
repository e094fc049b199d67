"""Source pass: complex values become real pairs, [..., 2], because ONNX has few complex operators.

Rules, over every graph with its sub-blocks:

1. A value of type COMPLEX64 or COMPLEX128 becomes FLOAT or DOUBLE with a last dimension of two for the real
   and the imaginary part. This includes inputs, outputs and initializers. The value keeps its name and gets
   the metadata COMPLEX.
2. If an operator computes in complex numbers, its real operands become pairs first (`complex::from_real`),
   and pairs of another width are cast.
3. An `aten` operator that works on pairs after its dimensions and sizes are adjusted stays in `aten`. An
   operator that treats both parts alike is applied to each part. `RULES` lists both groups.
4. Every other ATen operator with a complex input or output becomes the operator of the same name in the
   domain `complex`, which is composed, decomposed, or refused when it is lowered.
5. A TensorFlow operator with a complex input or output moves to the domain `tf_complex`.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from ...registration import COMPLEX
from ...registration.arguments import arguments, blocks
from .pair_rules import HALF_SPECTRUM, RULES, rewrite
from .pairs import PART_OF, Pairs


def real_pairs(model: ir.Model) -> bool:
    """Replace the complex values of a source graph by real pairs, in place; return whether there were any."""
    return _visit(model.graph, Pairs(model.graph))


def serves_pairs(name: str) -> bool:
    """Whether an operator (such as `aten::view`) has a rule."""
    return name.removeprefix("aten::") in RULES


def _visit(graph: ir.Graph, pairs: Pairs) -> bool:
    has_complex = False
    for value in (*graph.inputs, *graph.initializers.data.values()):
        has_complex = _retype(value, pairs) or has_complex
    for node in list(graph):
        touches_pairs = False
        for value in node.outputs:
            # The dtype first: this loop visits every value of every capture.
            if value.dtype in PART_OF:
                touches_pairs = _retype(value, pairs) or touches_pairs
        for block in blocks(node):
            has_complex = _visit(block, pairs) or has_complex
        touches_pairs = touches_pairs or not pairs.isdisjoint(node.inputs)
        if touches_pairs or (node.op_type in HALF_SPECTRUM and node.domain == "aten"):
            has_complex = True
            if node.domain == "aten":
                rewrite(pairs, node, arguments(node))
            elif node.domain == "tf":
                node.domain = "tf_complex"
    return has_complex


def _retype(value: ir.Value, pairs: Pairs) -> bool:
    """Turn a complex value into a pair; return whether it was complex."""
    part = PART_OF.get(value.dtype) if value.dtype is not None else None
    if part is None:
        return False
    element = ir.TensorType(part)
    value.type = ir.SequenceType(element) if isinstance(value.type, ir.SequenceType) else element
    if value.shape is not None:
        value.shape = ir.Shape([*value.shape, 2])
    if value.const_value is not None:
        # A view of the complex numbers, without a copy if they are contiguous.
        array = value.const_value.numpy()
        real_dtype = np.zeros((), array.dtype).real.dtype
        flat = np.ascontiguousarray(array).reshape(-1).view(real_dtype)
        value.const_value = ir.Tensor(flat.reshape(*array.shape, 2), name=value.const_value.name)
    value.metadata_props[COMPLEX] = "true"
    pairs.add(value)
    return True
