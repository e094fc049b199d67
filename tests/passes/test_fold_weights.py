"""Values that depend on weights become initializers that are computed when they are written."""

from __future__ import annotations

import pathlib

import numpy as np
import onnx_ir as ir
import pytest

from opsetta.passes.onnx_graph.constants.fold_constants import FoldConstants
from opsetta.passes.onnx_graph.constants.initializers import Initializers

from .graph_case import Case, numbers

LARGE = 96
X = numbers(2, LARGE)


def folded(case: Case, exact: bool = True) -> bool:
    return case.checked(X, FoldConstants(case.known), exact=exact)


def test_a_transposed_weight_is_computed_when_it_is_written() -> None:
    case = Case([2, LARGE])
    weight = case.weight("fc.weight", numbers(80, LARGE))
    case.returns(case.g.op("MatMul", case.x, case.g.op("Transpose", weight, perm=[1, 0])))
    assert folded(case)
    assert case.ops() == ["MatMul"]
    made = case.model.graph[0].inputs[1]
    assert made.name == "fc.weight_transposed"
    assert isinstance(made.const_value, ir.LazyTensor)


def test_a_weight_with_other_readers_is_not_copied() -> None:
    case = Case([2, LARGE])
    weight = case.weight("tied", numbers(LARGE, LARGE))
    product = case.g.op("MatMul", case.x, case.g.op("Transpose", weight, perm=[1, 0]))
    case.returns(product, case.g.op("MatMul", case.x, weight))
    assert not folded(case)
    assert case.ops() == ["Transpose", "MatMul", "MatMul"]


def test_weights_that_stay_do_not_keep_others_from_folding() -> None:
    case = Case([2, LARGE])
    tied, own = case.weight("tied", numbers(LARGE, LARGE)), case.weight("own", numbers(LARGE, LARGE, seed=1))
    turned = [case.g.op("Transpose", weight, perm=[1, 0]) for weight in (tied, own)]
    sum_of_both = case.g.op("Add", turned[0], tied)
    case.returns(*(case.g.op("MatMul", case.x, each) for each in (sum_of_both, tied, turned[1])))
    assert folded(case)
    assert case.ops() == ["Transpose", "Add", "MatMul", "MatMul", "MatMul"]


def test_a_weight_that_is_read_twice_on_the_way_is_folded() -> None:
    """As in weight normalization: g * v / |v|."""
    case = Case([2, LARGE])
    v, g = case.weight("v", numbers(80, LARGE)), case.weight("g", numbers(80, 1))
    norm = case.g.op("Sqrt", case.g.op("ReduceSum", case.g.op("Mul", v, v), axes=[1], keepdims=1))
    weight = case.g.op("Mul", v, case.g.op("Div", g, norm))
    case.returns(case.g.op("Gemm", case.x, weight, numbers(80), transB=1))
    assert folded(case, exact=False)
    assert case.ops() == ["Gemm"]
    assert case.model.graph[0].inputs[1].name == "v_folded"


def test_recurrent_weights_become_initializers() -> None:
    case = Case([3, 1, 8])
    w = [case.weight(f"w{n}", numbers(128, 8, seed=n)) for n in range(2)]
    joined = case.g.op("Concat", *w, axis=0)
    order = np.arange(256).reshape(2, 128)[:, ::-1].copy()
    gathered = case.g.op("Gather", joined, order, axis=0)
    r = case.weight("r", numbers(2, 128, 32))
    case.returns(
        case.g.op("LSTM", case.x, gathered, r, hidden_size=32, direction="bidirectional", outputs=3)[0]
    )
    assert case.checked(numbers(3, 1, 8), FoldConstants(case.known))
    assert case.ops() == ["LSTM"]


def test_what_grows_the_file_is_left_to_the_runtime() -> None:
    case = Case([2, LARGE])
    row = case.weight("row", numbers(1, LARGE))
    case.returns(case.g.op("MatMul", case.x, case.g.op("Expand", row, [LARGE, LARGE])))
    assert FoldConstants(case.known)(case.model).modified

    case = Case([2, 2**20])
    row = case.weight("row", numbers(1, 1))
    case.returns(case.g.op("Add", case.x, case.g.op("Expand", row, [1, 2**20])))
    assert not FoldConstants(case.known)(case.model).modified


def test_kept_weights_stay() -> None:
    case = Case([2, LARGE])
    weight = case.weight("w", numbers(80, LARGE))
    case.returns(case.g.op("MatMul", case.x, case.g.op("Transpose", weight, perm=[1, 0])))
    known = case.known
    known.fixed = {weight}
    assert not case.checked(X, FoldConstants(known))


def test_indices_out_of_range_are_left_to_the_runtime() -> None:
    case = Case([2, LARGE])
    weight = case.weight("w", numbers(LARGE, LARGE))
    case.returns(case.g.op("Add", case.x, case.g.op("Gather", weight, np.array([0, LARGE]), axis=0)))
    assert not FoldConstants(case.known)(case.model).modified


@pytest.mark.parametrize("levels", [3, 60, 200])
def test_long_chains_of_sums_take_no_exponential_time(levels: int) -> None:
    case = Case([2, LARGE])
    value = case.weight("w", numbers(LARGE, LARGE) * 1e-30)
    for _ in range(levels):
        value = case.g.op("Add", value, value)
    case.returns(case.g.op("MatMul", case.x, value))
    assert folded(case) is (levels < 64)


@pytest.mark.parametrize("shape", [(3, 1), (0, 4), (5000, 17), (17, 70001)])
def test_a_transposed_matrix_is_written_in_pieces(shape: tuple[int, int], tmp_path: pathlib.Path) -> None:
    case = Case(["n", shape[1]])
    matrix = np.arange(shape[0] * shape[1], dtype=np.float32).reshape(shape)
    weight = case.weight("w", matrix)
    case.returns(case.g.op("MatMul", case.x, case.g.op("Transpose", weight, perm=[1, 0])))
    FoldConstants(case.known)(case.model)
    made = case.model.graph[0].inputs[1]
    assert made is not None
    assert made.const_value is not None
    path = tmp_path / "contents"
    with open(path, "wb") as file:
        made.const_value.tofile(file)
    expected = np.ascontiguousarray(weight.const_value.numpy().T)
    assert path.read_bytes() == expected.tobytes()
    np.testing.assert_array_equal(made.const_value.numpy(), expected)


def test_two_results_of_one_constant_have_different_names() -> None:
    case = Case([2, LARGE])
    weight = case.weight("w", numbers(LARGE, LARGE))
    known = Initializers(case.model)
    halves = [case.g.op("Slice", weight, [start], [start + 48], [0]) for start in (0, 48)]
    case.returns(*(case.g.op("Gemm", case.x, half, numbers(48), transB=1) for half in halves))
    assert case.checked(X, FoldConstants(known))
    assert len({node.inputs[1].name for node in case.model.graph}) == 2
    assert all(
        case.model.graph.initializers[node.inputs[1].name] is node.inputs[1] for node in case.model.graph
    )


def test_a_condition_on_a_weight_is_computed_at_once() -> None:
    case = Case([2, LARGE])
    weight = case.weight("bias", numbers(2, LARGE * 32))
    empty = case.g.op("Less", case.g.op("ReduceMax", weight, axes=[1], keepdims=1), -3e38)
    case.returns(case.g.op("Where", empty, 0.0, case.x), case.g.op("Exp", weight))
    assert folded(case)
    assert "Less" not in case.ops()
    [condition] = [
        value for value in case.model.graph.initializers.values() if value.dtype == ir.DataType.BOOL
    ]
    assert not isinstance(condition.const_value, ir.LazyTensor)
    assert not condition.const_value.numpy().any()


def test_a_condition_may_be_read_by_what_is_computed_later() -> None:
    case = Case([2, LARGE])
    weight = case.weight("bias", numbers(2, LARGE * 32))
    low = case.g.op("Less", weight, 1.0)
    limited = case.g.op("Where", low, weight, case.g.op("Mul", weight, weight))
    case.returns(limited, case.g.op("Where", low, 1.0, case.g.op("ReduceSum", case.x)))
    case.checked(X, FoldConstants(case.known), exact=False)
    assert "Less" not in case.ops()


def test_a_scalar_made_of_a_weight_has_no_dimensions() -> None:
    """As in hyper-connections, where a scale of one element becomes a scalar, and is joined with others."""
    case = Case([2, LARGE])
    scale = case.weight("scale", numbers(1))
    scalar = case.g.op("Reshape", scale, np.zeros(0, np.int64))
    ends = [case.g.op("Unsqueeze", scalar, axes=[0]), numbers(LARGE - 1)]
    case.returns(
        case.g.op("Mul", case.x, case.g.op("Concat", *ends, axis=0)), case.g.op("Add", case.x, scalar)
    )
    assert folded(case)
    assert case.ops() == ["Mul", "Add"]
    for value in case.model.graph.initializers.values():
        assert value.const_value is not None
        assert value.const_value.numpy().shape == tuple(value.shape)


def test_elements_gathered_from_a_large_table_are_computed() -> None:
    case = Case([2, LARGE])
    table = case.weight("table", numbers(80, LARGE))
    positions = case.weight("positions", np.arange(2 * LARGE).reshape(2, LARGE) % 80)
    case.returns(case.g.op("Add", case.x, case.g.op("GatherElements", table, positions, axis=0)))
    assert folded(case)
    assert case.ops() == ["Add"]
