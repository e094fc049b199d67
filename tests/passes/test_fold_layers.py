"""Layers, reductions and parts of weights are computed while the file is written."""

import numpy as np
import onnx_ir as ir
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import opsetta
from opsetta.passes.onnx_graph.constants.fold_constants import FoldConstants

from .graph_case import Case, numbers

SIZE = 96
X = numbers(2, SIZE)


def folded(case: Case) -> bool:
    return case.checked(X, FoldConstants(case.known), exact=False)


def _dense(g, weight, vector):
    return g.op("Gemm", weight, weight, vector, transB=1)


def _normalized_rows(g, weight, vector):
    return g.op("Div", weight, g.op("ReduceL2", weight, axes=[1], keepdims=1))


def _normalized_layer(g, weight, vector):
    return g.op("LayerNormalization", weight, vector, vector)


def _joined_parts(g, weight, vector):
    first, second = g.op("Split", weight, split=[32, 64], axis=0, outputs=2)
    return g.op("Concat", g.op("Tanh", second), first, axis=0)


def _halves(g, weight, vector):
    half = g.op("MatMul", g.cast(weight, ir.DataType.FLOAT16), g.cast(weight, ir.DataType.FLOAT16))
    return g.cast(half, ir.DataType.FLOAT)


@pytest.mark.parametrize("opset", [11, 18])
@pytest.mark.parametrize(
    "compute",
    [
        _dense,
        _normalized_rows,
        _joined_parts,
        lambda g, weight, vector: g.op("Softmax", g.op("MatMul", weight, weight), axis=-1),
        lambda g, weight, vector: g.op("Erf", g.op("Max", weight, vector)),
        lambda g, weight, vector: g.op("Mul", weight, g.op("ReduceLogSumExp", weight, axes=[-1])),
    ],
)
def test_computations_on_weights_are_folded(opset, compute) -> None:
    case = Case([2, SIZE], opset)
    weight, vector = case.weight("w", numbers(SIZE, SIZE)), case.weight("v", numbers(SIZE, seed=1))
    case.returns(case.g.op("MatMul", case.x, compute(case.g, weight, vector)))
    assert folded(case)
    assert case.ops() == ["MatMul"]


def test_a_normalized_weight_is_folded() -> None:
    case = Case([2, SIZE])
    weight, vector = case.weight("w", numbers(SIZE, SIZE)), case.weight("v", numbers(SIZE, seed=1))
    case.returns(case.g.op("MatMul", case.x, _normalized_layer(case.g, weight, vector)))
    assert folded(case)
    assert case.ops() == ["MatMul"]


@pytest.mark.parametrize(
    ("shape", "attributes"),
    [
        ([8, 4, 3, 3], {"pads": [1, 0, 2, 1], "strides": [2, 1]}),
        ([4, 2, 3, 3], {"group": 2, "dilations": [1, 2], "pads": [1, 2, 1, 2]}),
        ([4, 1, 2, 3], {"group": 4}),
    ],
)
def test_a_convolution_of_a_parameter_is_folded(shape, attributes) -> None:
    case = Case([2, SIZE])
    data, weight = case.weight("data", numbers(1, 4, 24, 25)), case.weight("w", numbers(*shape))
    result = case.g.op("Conv", data, weight, case.weight("b", numbers(shape[0])), **attributes)
    case.returns(case.g.op("Add", case.g.op("ReduceMean", case.x), result))
    assert folded(case)
    assert case.ops() == ["ReduceMean", "Add"]


@pytest.mark.parametrize(
    ("op_type", "shapes", "attributes"),
    [
        ("Conv", [(1, 4, 24, 25), (8, 3, 3, 3)], {}),
        ("Gemm", [(40, 30), (31, 40)], {}),
        ("LayerNormalization", [(40, 30), (31,)], {}),
        ("ReduceL2", [(40, 30)], {"axes": [2]}),
        ("Split", [(40, 130)], {"split": [30, 9], "axis": 0}),
    ],
)
def test_invalid_computations_stay(op_type, shapes, attributes) -> None:
    case = Case([2, SIZE], 11 if op_type in ("ReduceL2", "Split") else 18)
    weights = [case.weight(f"w{number}", numbers(*shape)) for number, shape in enumerate(shapes)]
    converted = [ir.Attr(name, _attribute_type(value), value) for name, value in attributes.items()]
    node = ir.Node("", op_type, weights, converted, num_outputs=2 if op_type == "Split" else 1)
    case.model.graph.append(node)
    case.returns(case.g.op("Add", case.g.op("ReduceMean", case.x), node.outputs[0]))
    assert not FoldConstants(case.known)(case.model).modified


def _attribute_type(value) -> ir.AttributeType:
    return ir.AttributeType.INTS if isinstance(value, list) else ir.AttributeType.INT


@pytest.mark.parametrize(("others", "is_folded"), [(1, False), (400, True)])
def test_a_gathered_table_may_grow_by_a_small_part_of_the_weights(others, is_folded) -> None:
    case = Case([2, SIZE])
    table = case.weight("table", numbers(49, 96))
    positions = np.arange(49 * 8).reshape(49, 8) % 49
    bias = case.g.op("Sigmoid", case.g.op("Gather", table, positions.astype(np.int64), axis=0))
    product = case.g.op("MatMul", case.x, case.weight("w", numbers(SIZE, 100 * others)))
    case.returns(product, case.g.op("Add", bias, case.g.op("ReduceMean", case.x)))
    folded(case)
    assert ("Gather" not in case.ops()) == is_folded


class _Parameters(nn.Module):
    """Parameters that pass layers of the model."""

    def __init__(self) -> None:
        super().__init__()
        self.queries, self.grid = nn.Parameter(torch.randn(1, 5, 16)), nn.Parameter(torch.randn(1, 4, 6, 6))
        self.norm, self.project = nn.LayerNorm(16), nn.Linear(16, 48)
        self.spread = nn.Conv2d(4, 8, 3, padding=1, groups=2)
        self.normed = nn.utils.parametrizations.weight_norm(nn.Conv2d(3, 8, 3, padding=1), dim=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        query, key, value = self.project(self.norm(self.queries)).chunk(3, -1)
        attended = F.scaled_dot_product_attention(query, key, value)
        return self.normed(x) + self.spread(self.grid) + attended.mean()


@pytest.mark.parametrize("opset", [9, 17, 23])
def test_exported_parameters_pass_no_layers_at_run_time(opset) -> None:
    program = opsetta.export(_Parameters().eval(), (torch.randn(1, 3, 6, 6),), opset=opset)
    program.verify()
    constants = set(program.model.graph.initializers.values())
    for node in program.model.graph:
        assert not node.inputs or any(value not in constants for value in node.inputs), node


def test_numbers_of_16_bits_are_computed_in_single_precision() -> None:
    case = Case([2, SIZE])
    weight = numbers(SIZE, SIZE).astype(np.float16)
    product = case.g.op("MatMul", case.weight("w", weight), case.weight("v", weight))
    case.returns(
        case.g.op(
            "Add",
            case.g.cast(case.x, ir.DataType.FLOAT16),
            case.g.op("Split", product, [2, 94], axis=0, outputs=2)[0],
        )
    )
    assert FoldConstants(case.known)(case.model).modified
    constant = case.model.graph[-1].inputs[1].const_value.numpy()
    expected = (weight.astype(np.float32) @ weight.astype(np.float32)).astype(np.float16)[:2]
    np.testing.assert_array_equal(constant, expected)
