"""Linear layers on matrices: which operators between them take part, and which Reshapes change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from opsetta.passes.onnx_graph.products.flatten_rows import FlattenRows
from opsetta.passes.onnx_graph.products.gemm import WriteGemm
from opsetta.registration import GraphContext, Value

from .graph_case import Case, numbers

MATRICES = ["Reshape", "Gemm", "Relu", "Gemm", "Relu", "Gemm", "Reshape"]


def _linear(case: Case, x: Value, name: str, size: int = 4, columns: int = 4) -> Value:
    product = case.g.op("MatMul", x, case.weight(f"{name}_weight", numbers(size, columns) / size))
    return case.g.op("Add", product, case.weight(f"{name}_bias", numbers(columns)))


def _layers(case: Case, x: Value, count: int, between: Callable[[Value], Value]) -> Value:
    for layer in range(count):
        x = _linear(case, between(x) if layer else x, f"layer{layer}")
    return x


def _flattened(case: Case, x: np.ndarray) -> list[str]:
    case.checked(x, FlattenRows(case.known), WriteGemm(case.known), exact=False)
    case.remove_unused()
    return case.ops()


@pytest.mark.parametrize("shape", [[2, 3, 4], ["n", 3, 4], [2, "n", 4], [2, 1, 3, 4]])
@pytest.mark.parametrize("opset", [7, 18])
def test_layers_become_gemms(shape: list[Any], opset: int) -> None:
    case = Case(shape, opset)
    case.returns(_layers(case, case.x, 3, lambda x: case.g.op("Relu", x)))
    sizes = [size if isinstance(size, int) else 5 for size in shape]
    assert _flattened(case, numbers(*sizes)) == MATRICES
    assert case.model.graph.outputs[0].name == "out0"
    assert [*case.model.graph.outputs[0].shape] == shape or "n" in shape  # type: ignore[misc]


@pytest.mark.parametrize(
    ("shape", "count"), [(["n", "m", 4], 3), ([2, 3, 4], 1), ([2, 3, 4], 2), ([2, 4], 3)]
)
def test_layers_that_do_not_gain_keep_their_dimensions(shape: list[Any], count: int) -> None:
    case = Case(shape)
    result = _layers(case, case.x, count, lambda x: case.g.op("Relu", x))
    case.returns(case.g.op("ReduceMean", result, axes=[len(shape) - 1], keepdims=1))
    before, constants = case.ops(), len(case.model.graph.initializers)
    assert not FlattenRows(case.known)(case.model).modified
    assert case.ops() == before
    assert len(case.model.graph.initializers) == constants


def _normalized(g: GraphContext, x: Value) -> Value:
    return g.op("LayerNormalization", x, np.full(4, 2, np.float32), np.ones(4, np.float32), axis=2)


def _exchanged(g: GraphContext, x: Value) -> Value:
    halves = g.op("Split", x, axis=2, num_outputs=2, outputs=2)
    for half in halves:
        half.shape = ir.Shape([2, 3, 2])
    return g.op("Concat", *reversed(halves), axis=-1)


BETWEEN: dict[str, tuple[int, Callable[[GraphContext, Value], Value]]] = {
    "layer normalization": (17, _normalized),
    "softmax": (13, lambda g, x: g.op("Softmax", x, axis=-1)),
    "softmax by position": (18, lambda g, x: g.op("Softmax", x, axis=2)),
    "mean from an attribute": (13, lambda g, x: g.op("Sub", x, g.op("ReduceMean", x, axes=[2]))),
    "mean from an input": (18, lambda g, x: g.op("Sub", x, g.op("ReduceMean", x, axes=[-1]))),
    "clip": (13, lambda g, x: g.op("Clip", x, 0.25, 2.0)),
    "a scalar": (13, lambda g, x: g.op("Mul", x, 3.0)),
    "a vector": (13, lambda g, x: g.op("Mul", x, numbers(4))),
    "a vector of full rank": (13, lambda g, x: g.op("Mul", x, numbers(1, 1, 4))),
    "a number for each row": (13, lambda g, x: g.op("Mul", x, numbers(2, 3, 1))),
    "a constant of the same shape": (13, lambda g, x: g.op("Add", x, numbers(2, 3, 4))),
    "a mask": (13, lambda g, x: g.op("Where", g.op("Less", x, 1.0), x, g.op("Neg", x))),
    "halves": (18, _exchanged),
}


@pytest.mark.parametrize("name", BETWEEN)
def test_operators_that_compute_by_row(name: str) -> None:
    opset, between = BETWEEN[name]
    case = Case([2, 3, 4], opset)
    case.returns(_layers(case, case.x, 3, lambda x: between(case.g, x)))
    ops = _flattened(case, numbers(2, 3, 4))
    assert ops.count("Gemm") == 3
    assert ops.count("Reshape") == 2


OTHERS: dict[str, Callable[[GraphContext, Value], Value]] = {
    "softmax over rows": lambda g, x: g.op("Softmax", x, axis=1),
    "mean over rows": lambda g, x: g.op("Sub", x, g.op("ReduceMean", x, axes=[1])),
    "a constant that repeats": lambda g, x: g.op("Mul", x, numbers(1, 3, 1)),
    "transposition": lambda g, x: g.op("Transpose", x, perm=[1, 0, 2]),
    "a matrix for each image": lambda g, x: g.op("MatMul", x, numbers(2, 4, 4)),
}


@pytest.mark.parametrize("name", OTHERS)
def test_operators_that_do_not_compute_by_row(name: str) -> None:
    case = Case([2, 3, 4])
    case.returns(_layers(case, case.x, 3, lambda x: OTHERS[name](case.g, x)))
    assert not FlattenRows(case.known)(case.model).modified


def test_heads_are_read_from_matrices() -> None:
    """The Reshapes around attention take the place of those that would be added."""
    case = Case([2, 3, 4])
    g = case.g

    def heads(name: str) -> Value:
        return g.op("Transpose", g.op("Reshape", _linear(case, x, name), [0, 3, 2, -1]), perm=[0, 2, 1, 3])

    x = g.op("Reshape", g.op("Transpose", case.x, perm=[0, 2, 1]), [2, 3, 4])
    weights = g.op("MatMul", heads("q"), g.op("Transpose", heads("k"), perm=[0, 1, 3, 2]))
    result = g.op("Transpose", g.op("MatMul", weights, heads("v")), perm=[0, 2, 1, 3])
    result = g.op("Reshape", result, [0, 0, 4])
    case.returns(_layers(case, result, 2, lambda x: g.op("Relu", x)))
    before = case.ops()
    ops = _flattened(case, numbers(2, 3, 4))
    assert ops.count("Gemm") == 5
    assert ops.count("Reshape") == before.count("Reshape") + 1


def test_reshapes_between_tensors_and_matrices_go() -> None:
    case = Case([2, 3, 4])
    x = case.x
    for layer in range(2):
        flat = case.g.op("Reshape", x, [-1, 4])
        weight, bias = case.weight(f"w{layer}", numbers(4, 4)), case.weight(f"b{layer}", numbers(4))
        x = case.g.op("Relu", case.g.op("Reshape", case.g.op("Gemm", flat, weight, bias), [2, 3, 4]))
    case.returns(x)
    ops = _flattened(case, numbers(2, 3, 4))
    assert ops == ["Reshape", "Gemm", "Relu", "Gemm", "Reshape", "Relu"]


def test_results_that_are_returned_keep_their_names_and_shapes() -> None:
    case = Case([2, 3, 4])
    values = [case.x]
    for layer in range(6):
        values.append(_linear(case, case.g.op("Relu", values[-1]), f"layer{layer}"))
    case.returns(values[2], values[6], case.g.op("ReduceSum", values[4], axes=[1]))
    shapes = [output.shape for output in case.model.graph.outputs]
    ops = _flattened(case, numbers(2, 3, 4))
    assert (ops.count("Gemm"), ops.count("Reshape")) == (6, 4)
    assert [output.name for output in case.model.graph.outputs] == ["out0", "out1", "out2"]
    assert [output.shape for output in case.model.graph.outputs] == shapes


@pytest.mark.parametrize(("opset", "sizes"), [(7, (2, 3)), (13, (2, 3)), (14, (1, 0)), (18, (2, 3))])
def test_several_unknown_sizes_are_restored_by_a_computed_target(opset: int, sizes: tuple[int, int]) -> None:
    case = Case(["n", "m", 4], opset)
    case.returns(_layers(case, case.x, 6, lambda x: case.g.op("Relu", x)))
    ops = _flattened(case, numbers(*sizes, 4))
    assert (ops.count("Gemm"), ops.count("Reshape"), ops.count("Concat")) == (6, 2, 1)
    assert [str(size) for size in case.model.graph.outputs[0].shape or ()] == ["n", "m", "4"]


def test_heads_of_unknown_batch_and_length_share_a_target() -> None:
    case = Case(["n", "m", 4])
    g = case.g
    known = g.op("Shape", case.x)
    x = _layers(case, case.x, 2, lambda x: g.op("Relu", x))
    heads = []
    for name in "qkv":
        split = g.op("Reshape", _linear(case, x, name), [0, 0, 2, 2])
        split.shape = ir.Shape([*case.x.shape[:2], 2, 2])  # type: ignore[index]
        heads.append(g.op("Transpose", split, perm=[0, 2, 1, 3]))
    joined = g.op("Reshape", g.op("Transpose", g.op("Sum", *heads), perm=[0, 2, 1, 3]), [0, 0, 4])
    joined.shape = case.x.shape
    case.returns(g.op("Relu", joined), known)
    ops = _flattened(case, numbers(2, 3, 4))
    counts = [ops.count(name) for name in ("Gemm", "Shape", "Gather", "Concat", "Add")]
    assert counts == [5, 1, 1, 1, 0]


def test_targets_are_computed_from_values_that_are_made_before() -> None:
    """The views of FSMT merge batch and heads, and nothing before them has their sizes."""
    case = Case(["n", "m", 4])
    x = _layers(case, case.x, 6, lambda x: case.g.op("Relu", x))
    heads = case.g.op("Reshape", x, [0, -1, 2])
    heads.shape = ir.Shape([case.x.shape[0], ir.SymbolicDim("2*m"), 2])  # type: ignore[index]
    case.returns(case.g.op("Transpose", heads, perm=[1, 0, 2]))
    ops = _flattened(case, numbers(3, 2, 4))
    assert (ops.count("Gemm"), ops.count("Reshape")) == (6, 3)


def test_parts_share_the_targets_of_their_reshapes() -> None:
    """Each part alone saves fewer nodes than its target adds."""
    case = Case(["n", "m", 4])
    x = case.x
    for part in range(4):
        x = _layers(case, x, 3, lambda x: case.g.op("Relu", x)) if not part else _part(case, x, part)
    case.returns(x)
    ops = _flattened(case, numbers(2, 3, 4))
    assert (ops.count("Gemm"), ops.count("Concat"), ops.count("Add")) == (12, 1, 0)


def _part(case: Case, x: Value, number: int) -> Value:
    """Three layers behind a sum over the length."""
    x = case.g.op("CumSum", x, np.array(1))
    for layer in range(3):
        x = _linear(case, x, f"part{number}_{layer}")
    return x


@pytest.mark.parametrize("shape", [["n", None, 4], ["n", "m", None], ["n", 3, "m", 4]])
def test_unknown_sizes_that_nothing_names_stay(shape: list[Any]) -> None:
    case = Case(shape)
    case.returns(_layers(case, case.x, 6, lambda x: case.g.op("Relu", x)))
    assert not FlattenRows(case.known)(case.model).modified


@pytest.mark.parametrize("keeps_zeros", [0, 1])
def test_computed_targets_between_matrices_go(keeps_zeros: int) -> None:
    """The form of layers that PyTorch computes on matrices, such as those of GPT-2."""
    case = Case(["n", "m", 4])
    g, x = case.g, case.x
    target = g.op("Shape", x)
    for layer in range(3):
        matrix = g.op("Reshape", g.op("Relu", x), [-1, 4])
        matrix.shape = ir.Shape([None, 4])
        weights = (
            case.weight(f"{name}{layer}", numbers(*sizes)) for name, sizes in (("w", (4, 4)), ("b", (4,)))
        )
        product = g.op("Gemm", matrix, *weights)
        x = g.op("Reshape", product, target, allowzero=keeps_zeros)
        x.shape = case.x.shape
    case.returns(x)
    assert _flattened(case, numbers(2, 3, 4)).count("Reshape") == 2


def test_a_large_constant_that_others_read_is_not_copied() -> None:
    case = Case([2, 800, 4])
    table = case.weight("table", numbers(2, 800, 4))
    result = _layers(case, case.x, 4, lambda x: case.g.op("Relu", x))
    case.returns(case.g.op("Add", result, table), case.g.op("Exp", table))
    assert _flattened(case, numbers(2, 800, 4)).count("Gemm") == 4
    assert [name for name in case.model.graph.initializers if name.startswith("table")] == ["table"]


def test_branches_have_their_own_matrices() -> None:
    case = Case([2, 3, 4])
    g, outer = case.g, case.g.op("Relu", case.x)
    condition = g.op("Less", g.op("ReduceSum", case.x, keepdims=0), 1000.0)
    layers = g.subgraph(lambda: [_layers(case, outer, 3, lambda x: g.op("Relu", x))])
    other = g.subgraph(lambda: [g.op("Neg", outer)])
    result = g.op("If", condition, then_branch=layers, else_branch=other)
    result.type = case.x.type
    case.returns(result)
    assert "Gemm" not in _flattened(case, numbers(2, 3, 4))
    [branch, _] = case.model.graph.subgraphs()
    assert sorted(node.op_type for node in branch) == sorted(MATRICES)


@pytest.mark.parametrize("keeps_zeros", [0, 1])
def test_a_target_without_zeros_means_the_same_with_allowzero(keeps_zeros: int) -> None:
    case = Case([2, 3, 4])
    x = case.g.op("Reshape", case.g.op("Neg", case.x), [2, 3, 4], allowzero=keeps_zeros)
    x.shape = case.x.shape
    case.returns(case.g.op("Transpose", _layers(case, x, 2, lambda x: case.g.op("Relu", x)), perm=[1, 0, 2]))
    ops = _flattened(case, numbers(2, 3, 4))
    assert (ops.count("Gemm"), ops.count("Reshape")) == (2, 2)


def test_images_in_front_of_a_gemm_stay() -> None:
    case = Case([2, 3, 4, 5])
    x = case.g.op("GlobalAveragePool", case.g.op("Relu", case.x))
    weight = case.weight("weight", numbers(3, 4))
    case.returns(case.g.op("Gemm", case.g.op("Flatten", x), weight))
    assert not FlattenRows(case.known)(case.model).modified
