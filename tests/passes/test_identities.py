"""Arithmetic that changes nothing is removed; what changes a sign, a shape or a type stays."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from opsetta.passes.onnx_graph.simplification.identities import RemoveIdentityArithmetic
from opsetta.registration import Value

from .graph_case import Case

X = np.array([[-0.0, 0.0, 1.5], [np.nan, np.inf, -2.0]], dtype=np.float32)
ONE, ZERO = np.float32(1), np.float32(0)


def removed(case: Case, result: Value) -> bool:
    case.returns(case.g.op("Relu", case.g.op("Neg", result)))
    modified = case.checked(X, RemoveIdentityArithmetic(case.known))
    assert modified is ("Identity" in case.ops())
    return modified


@pytest.mark.parametrize(
    ("op_type", "other", "expected"),
    [
        ("Mul", ONE, True),
        ("Mul", np.ones((2, 3), np.float32), True),
        ("Mul", np.ones((1, 2, 3), np.float32), False),
        ("Div", ONE, True),
        ("Pow", ONE, True),
        ("Add", ZERO, False),
        ("Add", -ZERO, True),
        ("Sub", ZERO, True),
        ("Sub", -ZERO, False),
        ("Mul", np.array([1, 1, 2], np.float32), False),
    ],
)
def test_neutral_operands(op_type: str, other: np.ndarray, expected: bool) -> None:
    case = Case([2, 3])
    assert removed(case, case.g.op(op_type, case.x, case.weight("c", np.asarray(other)))) is expected


@pytest.mark.parametrize(("size", "position", "expected"), [(1, [0], True), (1, 0, False), (2, [0], False)])
def test_the_only_element_of_a_list(size: int, position: int | list[int], expected: bool) -> None:
    """Such a Gather reads the size of a vector from its shape."""
    case = Case([size])
    case.returns(case.g.op("Neg", case.g.op("Gather", case.x, position, axis=0)))
    assert case.checked(X[0, :size], RemoveIdentityArithmetic(case.known)) is expected


@pytest.mark.parametrize(
    ("op_type", "rest", "attributes", "expected"),
    [
        ("Reshape", [[2, 3]], {}, True),
        ("Reshape", [[0, -1]], {}, True),
        ("Reshape", [[3, 2]], {}, False),
        ("Expand", [[1, 3]], {}, True),
        ("Expand", [[1, 2, 3]], {}, False),
        ("Tile", [[1, 1]], {}, True),
        ("Tile", [[1, 2]], {}, False),
        ("Pad", [[0, 0, 0, 0]], {}, True),
        ("Slice", [[0], [9], [1]], {}, True),
        ("Slice", [[1], [9], [1]], {}, False),
        ("Transpose", [], {"perm": [0, 1]}, True),
        ("Concat", [], {"axis": 0}, True),
    ],
)
def test_shapes(op_type: str, rest: list, attributes: dict, expected: bool) -> None:
    case = Case([2, 3])
    given = [case.weight(f"c{n}", np.array(each, dtype=np.int64)) for n, each in enumerate(rest)]
    node = ir.node(op_type, [case.x, *given], attributes)
    node.outputs[0].type, node.name = case.x.type, "n"
    node.outputs[0].name = "middle"
    case.model.graph.append(node)
    assert removed(case, node.outputs[0]) is expected


def test_a_shape_that_is_not_known_may_grow() -> None:
    case = Case(None)
    case.returns(case.g.op("Mul", case.x, case.weight("c", np.ones((2, 3), np.float32))))
    assert not RemoveIdentityArithmetic(case.known)(case.model).modified


def test_an_operand_that_callers_may_replace_is_no_constant() -> None:
    case = Case([2, 3])
    one = case.weight("c", np.ones((), np.float32))
    case.model.graph.inputs.append(one)
    assert not removed(case, case.g.op("Mul", case.x, one))


@pytest.mark.parametrize(
    ("scales", "sizes", "attributes", "expected"),
    [
        (None, [2, 3], {"mode": "linear"}, True),
        (None, [2, 3], {"mode": "cubic", "coordinate_transformation_mode": "align_corners"}, True),
        ([1, 1], None, {"mode": "nearest", "coordinate_transformation_mode": "asymmetric"}, True),
        (None, [2, 4], {"mode": "linear"}, False),
        ([1, 2], None, {"mode": "linear"}, False),
    ],
)
def test_an_image_that_keeps_its_sizes(scales, sizes, attributes, expected) -> None:
    case = Case([2, 3])
    factors = None if scales is None else case.weight("f", np.array(scales, np.float32))
    counts = None if sizes is None else case.weight("s", np.array(sizes, np.int64))
    assert removed(case, case.g.op("Resize", case.x, None, factors, counts, **attributes)) is expected
