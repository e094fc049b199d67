"""Arithmetic by channel folded into weights and biases, and constants computed."""

from __future__ import annotations

from collections.abc import Callable, Collection

import numpy as np
import onnx_ir as ir
import pytest

from opsetta.passes.onnx_graph.constants.fold_constants import FoldConstants
from opsetta.passes.onnx_graph.constants.initializers import Initializers
from opsetta.passes.onnx_graph.products import scaled_weights
from opsetta.passes.onnx_graph.products.fold_scales import FoldScales
from opsetta.registration import Value

from .graph_case import Case as TargetGraph
from .graph_case import numbers


class Case(TargetGraph):
    """A graph that constants and scales are folded in."""

    def fold(self, kept: Collection[ir.Value] = ()) -> bool:
        known = Initializers(self.model, kept)
        changed = FoldConstants(known)(self.model).modified
        changed |= FoldScales(known)(self.model).modified
        return changed


Product = Callable[[Case], Value]
PRODUCTS: dict[str, tuple[Product, list[int], list[int]]] = {
    "conv": (
        lambda c: c.g.op("Conv", c.x, c.weight("w", numbers(4, 3, 2, 2)), c.weight("b", numbers(4))),
        [2, 3, 5, 5],
        [4, 1, 1],
    ),
    "conv_without_bias": (
        lambda c: c.g.op("Conv", c.x, c.weight("w", numbers(4, 3, 2, 2)), pads=[1, 1, 1, 1]),
        [2, 3, 5, 5],
        [1, 4, 1, 1],
    ),
    "depthwise": (
        lambda c: c.g.op("Conv", c.x, c.weight("w", numbers(6, 1, 2, 2)), group=3),
        [2, 3, 5, 5],
        [1, 6, 1, 1],
    ),
    "transposed": (
        lambda c: c.g.op("ConvTranspose", c.x, c.weight("w", numbers(4, 3, 2, 2)), group=2, strides=[2, 2]),
        [2, 4, 3, 3],
        [6, 1, 1],
    ),
    "gemm": (
        lambda c: c.g.op(
            "Gemm", c.x, c.weight("w", numbers(4, 3)), c.weight("b", numbers(4)), transB=1, alpha=0.5
        ),
        [2, 3],
        [4],
    ),
    "gemm_with_beta": (
        lambda c: c.g.op("Gemm", c.x, c.weight("w", numbers(3, 4)), c.weight("b", numbers(2, 1)), beta=0.5),
        [2, 3],
        [4],
    ),
    "one_dimension": (
        lambda c: c.g.op("Conv", c.x, c.weight("w", numbers(4, 3, 2))),
        [2, 3, 5],
        [4, 1],
    ),
}


@pytest.mark.parametrize("name", list(PRODUCTS))
@pytest.mark.parametrize("op_type", ["Mul", "Div", "Add", "Sub"])
@pytest.mark.parametrize("single", [False, True])
def test_arithmetic_becomes_part_of_the_product(name: str, op_type: str, single: bool) -> None:
    product, sizes, shape = PRODUCTS[name]
    case = Case(sizes if name == "gemm_with_beta" else ["n", *sizes[1:]])
    made = product(case)
    constant = case.weight("c", numbers(*([1] if single else shape), seed=1))
    case.returns(case.g.op(op_type, made, constant))
    x = numbers(*sizes, seed=2)
    before = case.run(x)
    assert case.fold()
    assert len(case.ops()) == 1
    np.testing.assert_allclose(case.run(x)[0], before[0], rtol=1e-5, atol=1e-5)
    assert not case.fold()


@pytest.mark.parametrize("block", [8, 24, 1 << 21])
@pytest.mark.parametrize("name", PRODUCTS)
def test_scaled_weights_are_written_in_pieces(name: str, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scaled_weights, "BLOCK", block)
    product, sizes, shape = PRODUCTS[name]
    case = Case(sizes)
    case.returns(case.g.op("Mul", product(case), case.weight("c", numbers(*shape, seed=1))))
    assert case.fold()
    weight = case.model.graph[0].inputs[1].const_value
    pieces = [piece.reshape(-1) for piece in weight.blocks()]
    assert all(piece.nbytes <= max(block, 4) for piece in pieces)
    np.testing.assert_array_equal(np.concatenate(pieces), weight.numpy().reshape(-1))


def test_a_chain_and_its_constants_become_one_convolution() -> None:
    case = Case(["n", 3, 5, 5])
    conv = case.g.op("Conv", case.x, case.weight("w", numbers(4, 3, 2, 2)))
    deviation = case.g.op("Sqrt", case.g.op("Add", case.weight("variance", numbers(4, 1, 1)), 0.001))
    scale = case.g.op(
        "Mul", case.g.op("Reciprocal", deviation), case.weight("gamma", numbers(4, 1, 1, seed=1))
    )
    shift = case.g.op(
        "Sub",
        case.weight("beta", numbers(4, 1, 1)),
        case.g.op("Mul", case.weight("mean", numbers(4, 1, 1)), scale),
    )
    case.returns(case.g.op("Relu", case.g.op("Add", case.g.op("Mul", conv, scale), shift)))
    x = numbers(2, 3, 5, 5)
    before = case.run(x)
    assert case.fold()
    assert case.ops() == ["Conv", "Relu"]
    np.testing.assert_allclose(case.run(x)[0], before[0], rtol=1e-5, atol=1e-5)
    assert isinstance(case.model.graph[0].inputs[1].const_value, ir.LazyTensor)
    assert case.model.graph[0].inputs[1].name == "w"
    assert not case.fold()


def test_batch_normalization_becomes_part_of_the_convolution() -> None:
    case = Case(None)
    conv = case.g.op("Conv", case.x, case.weight("w", numbers(4, 3, 2, 2)), case.weight("b", numbers(4)))
    parameters = [case.weight(f"p{i}", numbers(4, seed=i)) for i in range(4)]
    case.returns(case.g.op("BatchNormalization", conv, *parameters, epsilon=0.01))
    case.model.graph.outputs[0].type = ir.TensorType(ir.DataType.FLOAT)
    case.x.shape = ir.Shape([None] * 4)
    x = numbers(2, 3, 5, 5)
    before = case.run(x)
    assert case.fold()
    assert case.ops() == ["Conv"]
    np.testing.assert_allclose(case.run(x)[0], before[0], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("op_type", "flattens", "operators"),
    [
        ("MatMul", True, ["MatMul", "Reshape", "Add"]),
        ("MatMul", False, ["MatMul", "Add"]),
        ("Gemm", False, ["Gemm"]),
    ],
)
def test_batch_normalization_of_rows_becomes_part_of_the_product(
    op_type: str, flattens: bool, operators: list[str]
) -> None:
    case = Case([2, 3, 5] if flattens else [6, 5])
    rows = case.g.op(op_type, case.x, case.weight("w", numbers(5, 4)))
    rows.shape = ir.Shape([2, 3, 4] if flattens else [6, 4])
    rows = case.g.op("Reshape", rows, [6, 4]) if flattens else rows
    parameters = [case.weight(f"p{i}", numbers(4, seed=i) ** 2 + 0.5) for i in range(4)]
    case.returns(case.g.op("BatchNormalization", rows, *parameters))
    x = numbers(*case.x.shape.numpy())
    before = case.run(x)
    assert case.fold()
    assert case.ops() == operators
    np.testing.assert_allclose(case.run(x)[0], before[0], rtol=1e-5, atol=1e-5)


def test_batch_normalization_of_another_dimension_stays() -> None:
    case = Case([3, 4, 5])
    product = case.g.op("MatMul", case.x, case.weight("w", numbers(5, 4)))
    product.shape = ir.Shape([3, 4, 4])
    parameters = [case.weight(f"p{i}", numbers(4, seed=i) ** 2 + 0.5) for i in range(4)]
    case.returns(case.g.op("BatchNormalization", product, *parameters))
    assert not case.fold()


def _two_readers(case: Case, conv: Value) -> list[Value]:
    return [case.g.op("Mul", conv, case.weight("c", numbers(4, 1, 1))), case.g.op("Neg", conv)]


def _returned(case: Case, conv: Value) -> list[Value]:
    return [case.g.op("Mul", conv, case.weight("c", numbers(4, 1, 1))), conv]


def _along_another_axis(case: Case, conv: Value) -> list[Value]:
    return [case.g.op("Mul", conv, case.weight("c", numbers(4)))]


def _of_higher_rank(case: Case, conv: Value) -> list[Value]:
    return [case.g.op("Mul", conv, case.weight("c", numbers(1, 1, 4, 1, 1)))]


def _divided_by(case: Case, conv: Value) -> list[Value]:
    return [case.g.op("Div", case.weight("c", numbers(4, 1, 1)), conv)]


def _by_zero(case: Case, conv: Value) -> list[Value]:
    return [case.g.op("Div", conv, case.weight("c", np.zeros((4, 1, 1), np.float32)))]


@pytest.mark.parametrize(
    "build", [_two_readers, _returned, _along_another_axis, _of_higher_rank, _divided_by, _by_zero]
)
def test_what_means_something_else_stays(build: Callable[[Case, Value], list[Value]]) -> None:
    case = Case(["n", 3, 5, 5])
    conv = case.g.op("Conv", case.x, case.weight("w", numbers(4, 3, 2, 2)))
    case.returns(*build(case, conv))
    before = case.ops()
    assert not case.fold()
    assert case.ops() == before


def test_weights_that_are_shared_or_kept_stay() -> None:
    case = Case(["n", 3, 5, 5])
    weight = case.weight("w", numbers(4, 3, 2, 2))
    one, two = (case.g.op("Conv", x, weight) for x in (case.x, case.g.op("Neg", case.x)))
    scale, shift = case.weight("c", numbers(4, 1, 1)), case.weight("d", numbers(4, 1, 1))
    case.returns(case.g.op("Mul", one, scale), case.g.op("Add", two, shift))
    before = case.run(numbers(2, 3, 5, 5))
    assert case.fold()
    assert sorted(case.ops()) == ["Conv", "Conv", "Mul", "Neg"]
    for ours, theirs in zip(case.run(numbers(2, 3, 5, 5)), before, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5)
    assert not case.fold({weight, scale})


def test_weights_are_turned_when_they_are_written() -> None:
    case = Case(["n", 3, 5, 5])
    filters = case.weight("filters", numbers(2, 2, 3, 4))
    turned = case.g.op("Transpose", filters, perm=[3, 2, 0, 1])
    case.returns(case.g.op("Conv", case.x, turned, kernel_shape=[2, 2]))
    kept = case.model.graph.initializers["filters"]
    assert not case.fold({kept})
    assert case.fold()
    assert case.ops() == ["Conv"]
    [made] = case.model.graph.initializers.values()
    assert made.name == "filters"
    assert isinstance(made.const_value, ir.LazyTensor)
    np.testing.assert_array_equal(made.const_value.numpy(), numbers(2, 2, 3, 4).transpose(3, 2, 0, 1))


def test_inside_of_a_branch() -> None:
    case = Case(["n", 3, 5, 5])
    weight, scale = case.weight("w", numbers(4, 3, 2, 2)), case.weight("c", numbers(4, 1, 1))

    def branch() -> list[Value]:
        return [case.g.op("Mul", case.g.op("Conv", case.x, weight), scale)]

    other = case.g.subgraph(lambda: [case.g.op("Conv", case.x, case.weight("v", numbers(4, 3, 2, 2)))])
    inner = case.g.subgraph(branch)
    condition = case.g.op("Greater", case.g.op("ReduceSum", case.x, keepdims=0), 0.0)
    case.returns(case.g.op("If", condition, then_branch=inner, else_branch=other))
    case.model.graph.outputs[0].type = ir.TensorType(ir.DataType.FLOAT)
    before = case.run(numbers(2, 3, 5, 5))
    assert case.fold()
    assert [node.op_type for node in inner] == ["Conv"]
    np.testing.assert_allclose(case.run(numbers(2, 3, 5, 5))[0], before[0], rtol=1e-5)
