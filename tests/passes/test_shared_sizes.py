"""Equal dynamic sizes are read from one tensor; sizes that only have the same name are not."""

from __future__ import annotations

import onnx_ir as ir
import pytest

from opsetta.passes.onnx_graph.constants.initializers import Initializers
from opsetta.passes.onnx_graph.shapes.shared_sizes import ShareSizes
from opsetta.passes.onnx_graph.simplification.equal_nodes import MergeEqualNodes

SIZES = """
    s = Shape(x) n = Gather(s, one) a = Abs(y) t = Shape(a) m = Gather(t, zero) z = Concat <axis = 0> (n, m)
"""
SCALARS = """
    s = Shape(x) n = Gather(s, one) a = Abs(y) t = Shape(a) m = Gather(t, scalar) u = Gather(s, index)
    p = Add(n, m) z = Add(p, u)
"""
SHAPES = "a = Abs(y) s = Shape(y) t = Shape(a) c = ConstantOfShape(s) d = ConstantOfShape(t) z = Add(c, d)"


def share_sizes(nodes: str) -> list[str]:
    """The operators after the pass, which changes nothing when it runs again."""
    text = (
        '<ir_version: 8, opset_import: ["" : 13]> g (float[batch, length] x, float[length, 2] y) => (z) '
        "<int64[1] zero = {0}, int64[1] one = {1}, int64 scalar = {0}, int64 index = {1}"
        f"> {{ {nodes} }}"
    )
    model = ir.from_onnx_text(text)
    for node in model.graph:
        if node.op_type == "Abs":
            node.outputs[0].shape = model.graph.inputs[1].shape
    initializers = Initializers(model)
    assert ShareSizes(initializers)(model).modified
    assert not ShareSizes(initializers)(model).modified
    MergeEqualNodes()(model)
    return [node.op_type for node in model.graph if node.op_type != "Abs"]


@pytest.mark.parametrize(
    ("nodes", "operators"),
    [
        (SIZES, ["Shape", "Gather", "Shape", "Concat"]),
        (SCALARS, ["Shape", "Gather", "Shape", "Gather", "Add", "Add"]),
        (SHAPES, ["Shape", "ConstantOfShape", "Add"]),
    ],
)
def test_equal_sizes_are_read_once(nodes: str, operators: list[str]) -> None:
    assert share_sizes(nodes) == operators


def test_a_name_that_no_input_has_may_stand_for_several_sizes() -> None:
    text = """<ir_version: 8, opset_import: ["" : 13]> g (float[length] x) => (z)
        <float[rows] k, float[rows] l, int64[1] zero = {0}> {
        n = NonZero(x) k = Cast <to = 1> (n) l = Abs(k) s = Shape(k) a = Gather(s, zero)
        t = Shape(l) b = Gather(t, zero) z = Concat <axis = 0> (a, b)
    }"""
    model = ir.from_onnx_text(text)
    assert not ShareSizes(Initializers(model))(model).modified
