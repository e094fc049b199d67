"""If and Loop of the `prim` dialect, against numpy, in onnxruntime, at the opsets where they change."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
from onnx_ir import DataType, Value

import opsetta.symbolics  # noqa: F401
from opsetta.exporter.lowering.source_dialect import lower
from opsetta.registration import UnsupportedOperatorsError, default_registry

from ..opsets import HIGHEST
from .source_programs import Like, Program, number, numbers, session, tensor, tensors, unranked

OPSETS = (7, 8, 9, 10, 11, 12, 13, 16, 18, 21, 24, HIGHEST)
X = np.array([1.0, 2.0, 3.0], np.float32)
every_opset = pytest.mark.parametrize("opset", OPSETS)


def agrees(
    build: Callable[[Program], Sequence[Value]],
    reference: Callable[..., Sequence[Any]],
    opset: int,
    *feeds: dict[str, Any],
) -> None:
    program = Program()
    compute = session(program.model(build(program)), opset)
    for feed in feeds:
        for got, expected in zip(compute(feed), reference(**feed), strict=True):
            np.testing.assert_allclose(got, expected, rtol=1e-5)
            assert np.shape(got) == np.shape(expected)


def refused(build: Callable[[Program], Sequence[Value]], opset: int) -> UnsupportedOperatorsError:
    program = Program()
    model = program.model(build(program))
    with pytest.raises(UnsupportedOperatorsError) as caught:
        lower(model, opset, default_registry)
    return caught.value


def added(p: Program, value: Value, other: Any, like: Like) -> Value:
    return p.op("aten::add", like, overload="Tensor", self=value, other=other)


def is_below(p: Program, value: Value, limit: float) -> Value:
    total = p.op("aten::sum", tensor(), self=value)
    return p.op("aten::lt", tensor(dtype=DataType.BOOL), overload="Scalar", self=total, other=limit)


def inputs(p: Program) -> tuple[Value, Value]:
    return p.input(tensor(3), "x"), p.input(number(), "n")


COUNTS = [{"x": X, "n": n} for n in (0, 1, 5)]


@every_opset
def test_for_loop_carries_tensors_and_numbers(opset: int) -> None:
    def build(p: Program) -> list[Value]:
        x, n = inputs(p)

        def body(i: Value, value: Value, total: Value) -> list[Any]:
            return [True, added(p, value, 1.0, tensor(3)), p.op("sym::add", number(), a=total, b=i)]

        return p.loop(n, [x, 7], body, tensor(3), number())

    agrees(build, lambda x, n: [x + n, 7 + sum(range(n))], opset, *COUNTS)


@every_opset
def test_loop_of_constant_length(opset: int) -> None:
    def build(p: Program) -> list[Value]:
        x, _ = inputs(p)
        return p.loop(3, [x], lambda i, value: [True, added(p, value, value, tensor(3))], tensor(3))

    agrees(build, lambda x, n: [x * 8], opset, COUNTS[0])


def while_below(x: np.ndarray, limit: float) -> list[Any]:
    count = 0
    while x.sum() < limit:
        x, count = x + x, count + 1
    return [x, count]


@every_opset
def test_while_loop_asks_before_its_first_iteration(opset: int) -> None:
    def build(p: Program) -> list[Value]:
        x, _ = inputs(p)

        def body(i: Value, value: Value, count: Value) -> list[Any]:
            value = added(p, value, value, tensor(3))
            return [is_below(p, value, 40.0), value, p.op("sym::add", number(), a=count, b=1)]

        return p.loop(2**63 - 1, [x, 0], body, tensor(3), number(), condition=is_below(p, x, 40.0))

    agrees(build, lambda x, n: while_below(x, 40.0), opset, *({"x": X * k, "n": 0} for k in (1, 6, 7)))


@every_opset
def test_condition_of_the_body_ends_a_loop_that_begins_unconditionally(opset: int) -> None:
    """Without a first condition, ONNX would not ask for one at all."""

    def build(p: Program) -> list[Value]:
        x, n = inputs(p)

        def body(i: Value, value: Value) -> list[Any]:
            value = added(p, value, value, tensor(3))
            return [is_below(p, value, 40.0), value]

        return p.loop(n, [x], body, tensor(3))

    program = Program()
    model = lower(program.model(build(program)), opset, default_registry).model
    [loop] = [node for node in model.graph if node.op_type == "Loop"]
    assert loop.inputs[1] is not None
    agrees(build, lambda x, n: [x * 2 ** min(n, 3)], opset, *COUNTS)


@every_opset
def test_shape_of_what_is_carried_changes(opset: int) -> None:
    def build(p: Program) -> list[Value]:
        x, n = inputs(p)

        def body(i: Value, value: Value) -> list[Any]:
            return [True, p.op("aten::cat", tensor(None), tensors=[value, x], dim=0)]

        return p.loop(n, [x], body, tensor(None))

    agrees(build, lambda x, n: [np.concatenate([x] * (n + 1))], opset, *COUNTS)


@every_opset
def test_rank_of_what_is_carried_is_unknown(opset: int) -> None:
    def build(p: Program) -> list[Value]:
        x, n = inputs(p)
        [result] = p.loop(
            n, [x], lambda i, value: [True, p.op("aten::neg", unranked(), self=value)], unranked()
        )
        return [p.op("aten::reshape", tensor(None), self=result, shape=[-1])]

    agrees(build, lambda x, n: [x * (-1) ** n], opset, *COUNTS)


@every_opset
def test_values_are_swapped_and_passed_on(opset: int) -> None:
    def build(p: Program) -> list[Value]:
        x, n = inputs(p)
        y = added(p, x, 1.0, tensor(3))
        return p.loop(n, [x, y, y], lambda i, a, b, c: [True, b, a, x], *[tensor(3)] * 3)

    def reference(x: np.ndarray, n: int) -> list[Any]:
        pair = [x, x + 1] if n % 2 == 0 else [x + 1, x]
        return [*pair, x if n else x + 1]

    agrees(build, reference, opset, *COUNTS)


@every_opset
def test_loop_that_carries_nothing_disappears(opset: int) -> None:
    def build(p: Program) -> list[Value]:
        x, n = inputs(p)
        assert p.loop(n, [], lambda i: [True]) == []
        return [added(p, x, x, tensor(3))]

    program = Program()
    model = lower(program.model(build(program)), opset, default_registry).model
    assert [node.op_type for node in model.graph] == ["Add"]


def collatz(n: int) -> int:
    steps = 0
    while n != 1:
        n = 3 * n + 1 if n % 2 else n // 2
        steps += 1
    return steps


@every_opset
def test_branch_in_a_loop_in_a_loop(opset: int) -> None:
    """The longest of the Collatz sequences from 1 to n."""

    def build(p: Program) -> list[Value]:
        n = p.input(number(), "n")

        def is_one(value: Value) -> Value:
            return p.op("sym::eq", number("bool"), a=value, b=1)

        def step(i: Value, value: Value, steps: Value) -> list[Any]:
            odd = p.op("sym::eq", number("bool"), a=p.op("sym::mod", number(), a=value, b=2), b=1)
            [value] = p.branch(
                odd,
                lambda: [p.op("sym::add", number(), a=p.op("sym::mul", number(), a=value, b=3), b=1)],
                lambda: [p.op("sym::floordiv", number(), a=value, b=2)],
                number(),
            )
            more = p.op("sym::not", number("bool"), a=is_one(value))
            return [more, value, p.op("sym::add", number(), a=steps, b=1)]

        def outer(i: Value, longest: Value) -> list[Any]:
            start = p.op("sym::add", number(), a=i, b=1)
            more = p.op("sym::not", number("bool"), a=is_one(start))
            _, steps = p.loop(2**63 - 1, [start, 0], step, number(), number(), condition=more)
            return [True, p.op("sym::max", number(), a=longest, b=steps)]

        return p.loop(n, [0], outer, number())

    agrees(build, lambda n: [max(map(collatz, range(1, n + 1)), default=0)], opset, {"n": 0}, {"n": 12})


@every_opset
def test_initializers_are_read_inside(opset: int) -> None:
    def build(p: Program) -> list[Value]:
        x, n = inputs(p)

        def body(i: Value, value: Value) -> list[Any]:
            [more] = p.branch(
                is_below(p, value, 50.0),
                lambda: [p.op("aten::mul", tensor(3), overload="Tensor", self=value, other=weight)],
                lambda: [weight],
                tensor(3),
            )
            return [True, more]

        return p.loop(n, [x], body, tensor(3))

    weight = Value(
        name="weight",
        type=ir.TensorType(DataType.FLOAT),
        shape=ir.Shape([3]),
        const_value=ir.tensor(X, name="weight"),
    )
    program = Program()
    model = program.model(build(program))
    model.graph.initializers.add(weight)

    def reference(x: np.ndarray, n: int) -> np.ndarray:
        for _ in range(n):
            x = x * X if x.sum() < 50 else X
        return x

    compute = session(model, opset)
    for feed in COUNTS:
        np.testing.assert_allclose(compute(feed)[0], reference(**feed), rtol=1e-5)


@every_opset
def test_branches_return_different_shapes(opset: int) -> None:
    def build(p: Program) -> list[Value]:
        x, n = inputs(p)
        return p.branch(
            p.op("sym::gt", number("bool"), a=n, b=0),
            lambda: [x, p.op("aten::cat", tensor(6), tensors=[x, x], dim=0), 1],
            lambda: [p.op("aten::cat", tensor(6), tensors=[x, x], dim=0), x, 2],
            tensor(None),
            tensor(None),
            number(),
        )

    def reference(x: np.ndarray, n: int) -> list[Any]:
        double = np.concatenate([x, x])
        return [x, double, 1] if n > 0 else [double, x, 2]

    agrees(build, reference, opset, *COUNTS)


@every_opset
def test_branches_return_different_ranks(opset: int) -> None:
    def build(p: Program) -> list[Value]:
        x, n = inputs(p)

        def row(i: Value, value: Value) -> list[Any]:
            is_odd = p.op("sym::eq", number("bool"), a=p.op("sym::mod", number(), a=i, b=2), b=1)
            pair = p.op("aten::stack", tensor(2, 3), tensors=[x, x], dim=0)
            return [True, *p.branch(is_odd, lambda: [pair], lambda: [x], unranked())]

        [result] = p.loop(n, [x], row, unranked())
        return [p.op("aten::reshape", tensor(None), self=result, shape=[-1])]

    def reference(x: np.ndarray, n: int) -> list[Any]:
        return [np.concatenate([x, x]) if n > 0 and n % 2 == 0 else x]

    agrees(build, reference, opset, *COUNTS, {"x": X, "n": 2})


@every_opset
def test_known_condition_leaves_one_branch(opset: int) -> None:
    def build(p: Program) -> list[Value]:
        x, _ = inputs(p)
        return p.branch(True, lambda: [added(p, x, x, tensor(3))], lambda: [x], tensor(3))

    program = Program()
    model = lower(program.model(build(program)), opset, default_registry).model
    assert [node.op_type for node in model.graph] == ["Add"]


@pytest.mark.parametrize("opset", [7, HIGHEST])
def test_branches_of_different_element_types_are_refused(opset: int) -> None:
    def build(p: Program) -> list[Value]:
        x, n = inputs(p)
        return p.branch(
            p.op("sym::gt", number("bool"), a=n, b=0),
            lambda: [x],
            lambda: [p.op("aten::to", tensor(3, dtype=DataType.INT64), self=x, dtype=DataType.INT64)],
            lambda name: Value(name=name, shape=ir.Shape([3])),
        )

    text = str(refused(build, opset))
    assert "one branch returns FLOAT" in text
    assert "the other INT64" in text


@pytest.mark.parametrize("opset", [13, HIGHEST])
def test_list_of_different_element_types_is_refused(opset: int) -> None:
    def build(p: Program) -> list[Value]:
        x, n = inputs(p)
        whole = p.op("aten::to", tensor(3, dtype=DataType.INT64), self=x, dtype=DataType.INT64)
        items = p.op("list::construct", tensors(3), items=[x, whole])
        return [p.op("list::getitem", tensor(3), self=items, index=n)]

    error = refused(build, opset)
    assert [operator.name for operator in error.operators] == ["list::construct"]
    assert "one element type" in str(error)


@pytest.mark.parametrize("opset", [7, 10, 12])
def test_what_reads_a_refused_list_says_nothing_of_its_own(opset: int) -> None:
    """The error names the first operator that cannot be said, and the opset that can."""

    def build(p: Program) -> list[Value]:
        x, n = inputs(p)

        def body(i: Value, items: Value) -> list[Any]:
            end = p.op("sym::add", number(), a=i, b=1)
            part = p.op("aten::slice", tensor(None), overload="Tensor", self=x, dim=0, start=0, end=end)
            return [True, p.op("list::append", tensors(None), self=items, item=part)]

        start = p.op("list::construct", tensors(3), items=[x])
        [items] = p.loop(n, [start], body, tensors(None))
        items = p.op("list::reverse", tensors(None), self=items)
        return [p.op("aten::cat", tensor(None), tensors=items, dim=0)]

    error = refused(build, opset)
    assert [(o.name, o.first_opset) for o in error.operators] == [("prim::Loop", 13)]


def test_list_of_numbers_is_an_ordinary_tensor_to_a_loop() -> None:
    """No sequences and no scan outputs where a list of numbers is read in the body."""

    def build(p: Program) -> list[Value]:
        n = p.input(number(), "n")

        def body(i: Value, items: Value) -> list[Any]:
            last = p.op("list::getitem", number(), self=items, index=-1)
            double = p.op("sym::mul", number(), a=last, b=2)
            return [True, p.op("list::append", numbers(), self=items, item=double)]

        return p.loop(n, [p.op("list::construct", numbers(), items=[1])], body, numbers())

    for opset in OPSETS:
        agrees(build, lambda n: [[2**i for i in range(n + 1)]], opset, {"n": 0}, {"n": 6})
