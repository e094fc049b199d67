"""Constants that a sub-graph dequantizes are dequantized in the main graph."""

from __future__ import annotations

import onnx_ir as ir
import pytest
from onnx import checker

from opsetta.passes.onnx_graph.constants.initializers import Initializers
from opsetta.passes.onnx_graph.products.outer_weights import DequantizeOutside

MODEL = """<ir_version: 8, opset_import: ["": 13]>
f (float[n, 2] x, bool c) => (float[n, 2] y)
<int8[2, 2] w = {1, 2, 3, 4}, float s = {0.5}>
{
    y = If (c) <
        then_branch = t () => (float[n, 2] a) {
            m = DequantizeLinear (w, s)
            a = MatMul (x, m)
        },
        else_branch = e () => (float[n, 2] b) { %s }
    >
}"""


@pytest.mark.parametrize(
    ("branch", "moved"),
    [
        ("b = Identity (x)", 1),
        ("k = DequantizeLinear (w, s) b = MatMul (x, k)", 2),
        # A result of the branch, and a value of the branch that is quantized.
        ("b = DequantizeLinear (w, s)", 1),
        ("q = QuantizeLinear (x, s) b = DequantizeLinear (q, s)", 1),
    ],
    ids=["one", "both", "result", "computed"],
)
def test_constants_are_dequantized_once(branch: str, moved: int) -> None:
    model = ir.from_onnx_text(MODEL % branch)
    assert DequantizeOutside(Initializers(model))(model).modified
    assert [node.op_type for node in model.graph] == ["DequantizeLinear"] * moved + ["If"]
    assert not DequantizeOutside(Initializers(model))(model).modified
    checker.check_model(ir.to_proto(model), full_check=True)
