"""Lists whose length is unknown as the graph is built, against numpy, in onnxruntime."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
from onnx_ir import DataType, Value

import opsetta.symbolics  # noqa: F401
from opsetta.exporter.lowering.source_dialect import lower
from opsetta.registration import UnsupportedOperatorsError, default_registry

from ..opsets import HIGHEST
from .source_programs import (
    Program,
    number,
    numbers,
    session,
    tensor,
    tensors,
    unranked,
    unranked_tensors,
    untyped,
)

OPSETS = (7, 8, 9, 10, 11, 12, 13, 14, 16, 18, 21, 24, HIGHEST)
X = np.array([1.0, 2.0, 3.0], np.float32)
TABLE = np.arange(12, dtype=np.float32).reshape(4, 3)

Feeds = Mapping[str, Any]
RECORDS: list[Record] = []


@dataclasses.dataclass(frozen=True, eq=False)
class Record:
    """A program, what it computes in numpy, and where it must be refused.

    Attributes:
        build: writes the program and returns its outputs.
        reference: the outputs, of the inputs by name.
        feeds: what it is run with.
        first: the lowest opset that has it; below, it is refused, and the error names an opset that helps.
    """

    name: str
    build: Callable[[Program], Sequence[Value]]
    reference: Callable[..., Sequence[Any]]
    feeds: Sequence[Feeds]
    first: int


def record(reference: Callable[..., Sequence[Any]], *feeds: Feeds, first: int = 9) -> Any:
    def register(build: Callable[[Program], Sequence[Value]]) -> Any:
        RECORDS.append(Record(build.__name__, build, reference, feeds, first))
        return build

    return register


@functools.lru_cache(maxsize=2)
def source(record: Record) -> ir.Model:
    program = Program()
    return program.model(record.build(program))


def test_every_record_has_its_own_name() -> None:
    assert len({record.name for record in RECORDS}) == len(RECORDS)


def doubled(p: Program, value: Value, like: Any) -> Value:
    return p.op("aten::mul", like, overload="Tensor", self=value, other=2.0)


def powers(x: np.ndarray, n: int) -> list[np.ndarray]:
    return [x * 2.0 ** (i + 1) for i in range(n)]


def growing(p: Program, *shape: Any, initial: Any = None, keep: Any = None) -> tuple[Value, Value]:
    """`for i in range(n): x = x * 2; out.append(x)`, only where `keep(i)` holds if that is given."""
    x, n = p.input(tensor(*shape), "x"), p.input(number(), "n")
    start = p.op("list::construct", tensors(*shape), items=[]) if initial is None else initial(x)

    def body(i: Value, value: Value, items: Value) -> list[Any]:
        value = doubled(p, value, tensor(*shape))
        if keep is None:
            return [True, value, p.op("list::append", tensors(*shape), self=items, item=value)]
        [items] = p.branch(
            keep(i),
            lambda: [p.op("list::append", tensors(*shape), self=items, item=value)],
            lambda: [items],
            tensors(*shape),
        )
        return [True, value, items]

    return p.loop(n, [x, start], body, tensor(*shape), tensors(*shape))  # type: ignore[return-value]


COUNTS = [{"x": X, "n": n} for n in (0, 1, 4)]
SOME = COUNTS[1:]


def grown_and_read(p: Program, *shape: Any) -> list[Value]:
    _, items = growing(p, *shape)
    return [
        p.op("aten::stack", tensor(None, *shape), tensors=items, dim=0),
        p.op("aten::stack", tensor(*shape, None), tensors=items, dim=-1),
        p.op("aten::cat", tensor(None), tensors=items, dim=0),
        p.op("list::getitem", tensor(*shape), self=items, index=-1),
        p.op("list::len", number(), self=items),
    ]


def read(items: list[np.ndarray]) -> list[Any]:
    return [np.stack(items), np.stack(items, -1), np.concatenate(items), items[-1], len(items)]


@record(lambda x, n: read(powers(x, n)), *SOME, first=7)
def grown_of_static_shape(p: Program) -> list[Value]:
    return grown_and_read(p, 3)


@record(lambda x, n: read(powers(x, n)), *SOME, first=7)
def grown_of_named_shape(p: Program) -> list[Value]:
    return grown_and_read(p, "size")


@record(lambda x, n: read(powers(x, n)), *SOME, first=7)
def grown_of_unknown_shape(p: Program) -> list[Value]:
    return grown_and_read(p, None)


@record(lambda x, n: [n], *COUNTS, first=7)
def length_of_what_may_be_empty(p: Program) -> list[Value]:
    return [p.op("list::len", number(), self=growing(p, None)[1])]


@record(lambda x, n: [n], *COUNTS, first=7)
def list_without_a_type_at_first(p: Program) -> list[Value]:
    _, items = growing(p, 3, initial=lambda x: p.op("list::construct", untyped(), items=[]))
    return [p.op("list::len", number(), self=items)]


@record(lambda x, n: read([x, x, *powers(x, n)]), *COUNTS, first=7)
def grown_behind_other_elements(p: Program) -> list[Value]:
    _, items = growing(p, 3, initial=lambda x: p.op("list::construct", tensors(3), items=[x, x]))
    return [
        p.op("aten::stack", tensor(None, 3), tensors=items, dim=0),
        p.op("aten::stack", tensor(3, None), tensors=items, dim=1),
        p.op("aten::cat", tensor(None), tensors=items, dim=-1),
        p.op("list::getitem", tensor(3), self=items, index=-1),
        p.op("list::len", number(), self=items),
    ]


@record(lambda x, n: [np.stack([v for y in powers(x, n) for v in (y, -y, x)])], *SOME, first=7)
def several_elements_an_iteration(p: Program) -> list[Value]:
    x, n = p.input(tensor(None), "x"), p.input(number(), "n")

    def body(i: Value, value: Value, items: Value) -> list[Any]:
        value = doubled(p, value, tensor(None))
        items = p.op("list::append", tensors(None), self=items, item=value)
        more = p.op("list::construct", tensors(None), items=[p.op("aten::neg", tensor(None), self=value), x])
        return [True, value, p.op("list::extend", tensors(None), self=items, other=more)]

    empty = p.op("list::construct", tensors(None), items=[])
    _, items = p.loop(n, [x, empty], body, tensor(None), tensors(None))
    return [p.op("aten::stack", tensor(None, None), tensors=items, dim=0)]


def odd(p: Program) -> Callable[[Value], Value]:
    return lambda i: p.op("sym::eq", number("bool"), a=p.op("sym::mod", number(), a=i, b=2), b=1)


def odds(x: np.ndarray, n: int) -> list[np.ndarray]:
    return powers(x, n)[1::2]


def _conditionally(p: Program, *shape: Any) -> list[Value]:
    _, items = growing(p, *shape, keep=odd(p))
    return [p.op("list::len", number(), self=items)]


@record(lambda x, n: [len(odds(x, n))], *COUNTS, first=7)
def some_iterations_append_static(p: Program) -> list[Value]:
    return _conditionally(p, 3)


@record(lambda x, n: [len(odds(x, n))], *COUNTS, first=7)
def some_iterations_append_named(p: Program) -> list[Value]:
    return _conditionally(p, "size")


@record(lambda x, n: [len(odds(x, n))], *COUNTS, first=13)
def some_iterations_append_unknown(p: Program) -> list[Value]:
    return _conditionally(p, None)


@record(lambda x, n: [np.stack(odds(x, n))], {"x": X, "n": 2}, {"x": X, "n": 5}, first=7)
def some_iterations_append_and_all_is_stacked(p: Program) -> list[Value]:
    """That the list is stacked tells that its elements have one shape."""
    _, items = growing(p, None, keep=odd(p))
    return [p.op("aten::stack", tensor(None, None), tensors=items, dim=0)]


def until_large(x: np.ndarray, n: int) -> list[np.ndarray]:
    found = []
    for value in powers(x, n):
        if value.sum() > 60:
            break
        found.append(value)
    return found


@record(
    lambda x, n: [np.stack(until_large(x, n)), len(until_large(x, n))],
    *({"x": X, "n": n} for n in (1, 2, 3, 9)),
    first=7,
)
def early_exit(p: Program) -> list[Value]:
    """`for i in range(n): x = x * 2; if x.sum() > 60: break; out.append(x)`."""
    x, n = p.input(tensor(None), "x"), p.input(number(), "n")

    def body(i: Value, value: Value, items: Value) -> list[Any]:
        value = doubled(p, value, tensor(None))
        large = p.op("aten::gt", tensor(dtype=DataType.BOOL), overload="Scalar",
                     self=p.op("aten::sum", tensor(), self=value), other=60.0)  # fmt: skip
        [items, going] = p.branch(
            large,
            lambda: [items, False],
            lambda: [p.op("list::append", tensors(None), self=items, item=value), True],
            tensors(None),
            number("bool"),
        )
        return [going, value, items]

    empty = p.op("list::construct", tensors(None), items=[])
    _, items = p.loop(n, [x, empty], body, tensor(None), tensors(None))
    return [
        p.op("aten::stack", tensor(None, None), tensors=items, dim=0),
        p.op("list::len", number(), self=items),
    ]


def fibonacci(x: np.ndarray, n: int) -> list[np.ndarray]:
    found = [x, x]
    for _ in range(n):
        found.append(found[-1] + found[-2])
    return found


def _read_back(p: Program, *shape: Any) -> list[Value]:
    x, n = p.input(tensor(*shape), "x"), p.input(number(), "n")

    def body(i: Value, items: Value) -> list[Any]:
        last = p.op("list::getitem", tensor(*shape), self=items, index=-1)
        before = p.op("list::getitem", tensor(*shape), self=items, index=i)
        total = p.op("aten::add", tensor(*shape), overload="Tensor", self=last, other=before)
        return [True, p.op("list::append", tensors(*shape), self=items, item=total)]

    first = p.op("list::construct", tensors(*shape), items=[x, x])
    [items] = p.loop(n, [first], body, tensors(*shape))
    return [
        p.op("list::getitem", tensor(*shape), self=items, index=-1),
        p.op("aten::cat", tensor(None), tensors=items, dim=0),
    ]


@record(lambda x, n: [fibonacci(x, n)[-1], np.concatenate(fibonacci(x, n))], *COUNTS, first=7)
def read_back_named(p: Program) -> list[Value]:
    return _read_back(p, "size")


@record(lambda x, n: [fibonacci(x, n)[-1], np.concatenate(fibonacci(x, n))], *COUNTS, first=13)
def read_back_unknown(p: Program) -> list[Value]:
    return _read_back(p, None)


@record(
    lambda x, n: [np.concatenate([x[: i + 1] for i in range(n)]), n],
    *({"x": X, "n": n} for n in (1, 2, 3)),
    first=13,
)
def elements_of_different_shapes(p: Program) -> list[Value]:
    x, n = p.input(tensor(3), "x"), p.input(number(), "n")

    def body(i: Value, items: Value) -> list[Any]:
        end = p.op("sym::add", number(), a=i, b=1)
        part = p.op("aten::slice", tensor(None), overload="Tensor", self=x, dim=0, start=0, end=end)
        return [True, p.op("list::append", tensors(None), self=items, item=part)]

    start = p.op("list::construct", tensors(3), items=[x])
    [items] = p.loop(n, [start], body, tensors(None))
    items = p.op("list::delete", tensors(None), self=items, index=0)
    return [p.op("aten::cat", tensor(None), tensors=items, dim=0), p.op("list::len", number(), self=items)]


def _sequence_operations(
    p: Program, items: Value, k: Value, like: Any, element: Any, one: Value
) -> list[Value]:
    changed = [
        p.op("list::reverse", like, self=items),
        p.op("list::slice", like, self=items, start=1, end=k),
        p.op("list::slice", like, self=items, start=None, end=-1),
        p.op("list::slice", like, self=items, step=-2),
        p.op("list::slice", like, self=items, start=k, end=None, step=-1),
        p.op("list::insert", like, self=items, index=k, item=one),
        p.op("list::insert", like, self=items, index=-1, item=one),
        p.op("list::set", like, self=items, index=-1, item=one),
        p.op("list::set", like, self=items, index=0, item=one),
        p.op("list::delete", like, self=items, index=-1),
        p.op("list::delete", like, self=items, index=0),
        p.op("list::extend", like, self=items, other=items),
        p.op("list::extend", like, self=items, other=p.op("list::construct", like, items=[one, one])),
        p.op("list::repeat", like, self=items, times=2),
        p.op("list::repeat", like, self=items, times=k),
        p.op("list::append", like, self=items, item=one),
    ]
    return [p.op("aten::cat", element, tensors=item, dim=0) for item in changed]


def changed_lists(items: list[Any], k: int, one: Any) -> list[list[Any]]:
    return [
        items[::-1],
        items[1:k],
        items[:-1],
        items[::-2],
        items[k::-1],
        [*items[:k], one, *items[k:]],
        [*items[:-1], one, items[-1]],
        [*items[:-1], one],
        [one, *items[1:]],
        items[:-1],
        items[1:],
        items + items,
        [*items, one, one],
        items * 2,
        items * k,
        [*items, one],
    ]


@record(
    lambda x, k: [np.concatenate(c) for c in changed_lists([x[:2], x[2:4], x[4:]], int(k), x[:1])],
    {"x": np.arange(15, dtype=np.float32).reshape(5, 3), "k": 2},
    {"x": np.arange(15, dtype=np.float32).reshape(5, 3), "k": 3},
    first=13,
)
def changes_of_a_sequence(p: Program) -> list[Value]:
    x, k = p.input(tensor(None, 3), "x"), p.input(number(), "k")
    items = p.op("list::from_parts", tensors(None, 3), self=x, split_size=2)
    one = p.op("aten::slice", tensor(1, 3), overload="Tensor", self=x, dim=0, start=0, end=1)
    return _sequence_operations(p, items, k, tensors(None, 3), tensor(None, 3), one)


@record(
    lambda x, k: [np.concatenate(c) for c in changed_lists(list(x), int(k), x[0])],
    {"x": TABLE, "k": 2},
    {"x": TABLE, "k": 3},
    first=7,
)
def changes_of_a_stacked_list(p: Program) -> list[Value]:
    x, k = p.input(tensor(None, 3), "x"), p.input(number(), "k")
    items = p.op("list::from_tensor", tensors(3), self=x)
    one = p.op("aten::select", tensor(3), overload="int", self=x, dim=0, index=0)
    return _sequence_operations(p, items, k, tensors(3), tensor(None), one)


@record(
    lambda x, y, k: [np.concatenate(c) for c in changed_lists([x, y, x], int(k), x)],
    {"x": X, "y": X + 1, "k": 2},
    {"x": X, "y": X + 1, "k": 3},
    first=7,
)
def changes_of_a_list_at_hand(p: Program) -> list[Value]:
    x, y, k = p.input(tensor(3), "x"), p.input(tensor(3), "y"), p.input(number(), "k")
    items = p.op("list::construct", tensors(3), items=[x, y, x])
    return _sequence_operations(p, items, k, tensors(3), tensor(None), x)


@record(
    lambda x, y, k: [(x, y, x)[int(k)]],
    *({"x": X, "y": X[:2], "k": k} for k in (0, 1, 2, -1, -2)),
    first=7,
)
def computed_index_into_different_shapes(p: Program) -> list[Value]:
    x, y, k = p.input(tensor(3), "x"), p.input(tensor(2), "y"), p.input(number(), "k")
    items = p.op("list::construct", tensors(None), items=[x, y, x])
    return [p.op("list::getitem", tensor(None), self=items, index=k)]


@record(
    lambda x, k: [np.concatenate([x[:, :2], x[:, 2:4], x[:, 4:]], 0 if False else 1)[:, ::-1]],
    {"x": np.arange(10, dtype=np.float32).reshape(2, 5), "k": 2},
    first=11,
)
def parts_of_a_dimension(p: Program) -> list[Value]:
    x, k = p.input(tensor(2, None), "x"), p.input(number(), "k")
    items = p.op("list::from_parts", tensors(2, None), self=x, split_size=k, dim=-1)
    joined = p.op("aten::cat", tensor(2, None), tensors=items, dim=1)
    return [p.op("aten::flip", tensor(2, None), self=joined, dims=[1])]


def _branches(p: Program, *shape: Any) -> list[Value]:
    x, k = p.input(tensor(*shape), "x"), p.input(number(), "n")
    outer = p.op("list::construct", tensors(*shape), items=[x])
    empty = p.op("list::construct", tensors(*shape), items=[])
    first, second = p.branch(
        p.op("sym::gt", number("bool"), a=k, b=0),
        lambda: [outer, p.op("list::append", tensors(*shape), self=outer, item=x)],
        lambda: [p.op("list::construct", tensors(*shape), items=[x, x, x]), empty],
        tensors(*shape),
        tensors(*shape),
    )
    again, _ = p.branch(
        p.op("sym::gt", number("bool"), a=k, b=1),
        lambda: [first, first],
        lambda: [second, first],
        tensors(*shape),
        tensors(*shape),
    )
    return [
        p.op("aten::cat", tensor(None), tensors=first, dim=0),
        p.op("list::len", number(), self=second),
        p.op("list::len", number(), self=again),
    ]


def branched(x: np.ndarray, n: int) -> list[Any]:
    first, second = ([x], [x, x]) if n > 0 else ([x, x, x], [])
    return [np.concatenate(first), len(second), len(first if n > 1 else second)]


@record(branched, *({"x": X, "n": n} for n in (0, 1, 2)), first=7)
def lists_through_branches_static(p: Program) -> list[Value]:
    return _branches(p, 3)


@record(branched, *({"x": X, "n": n} for n in (0, 1, 2)), first=13)
def lists_through_branches_unknown(p: Program) -> list[Value]:
    return _branches(p, None)


def table(x: np.ndarray, n: int) -> np.ndarray:
    return np.stack([np.stack([x * (i + 1) + j for j in range(n + 1)]) for i in range(n)])


@record(lambda x, n: [table(x, n)], {"x": X, "n": 1}, {"x": X, "n": 3}, first=7)
def stack_in_a_stack(p: Program) -> list[Value]:
    x, n = p.input(tensor(3), "x"), p.input(number(), "n")
    count = p.op("sym::add", number(), a=n, b=1)

    def outer(i: Value, rows: Value) -> list[Any]:
        scale = p.op("sym::add", number(), a=i, b=1)
        scaled = p.op("aten::mul", tensor(3), overload="Tensor", self=x,
                      other=p.op("aten::scalar_tensor", tensor(), s=scale, dtype=DataType.FLOAT))  # fmt: skip

        def inner(j: Value, row: Value) -> list[Any]:
            added = p.op("aten::add", tensor(3), overload="Tensor", self=scaled,
                         other=p.op("aten::scalar_tensor", tensor(), s=j, dtype=DataType.FLOAT))  # fmt: skip
            return [True, p.op("list::append", tensors(3), self=row, item=added)]

        [row] = p.loop(count, [p.op("list::construct", tensors(3), items=[])], inner, tensors(3))
        stacked = p.op("aten::stack", tensor(None, 3), tensors=row, dim=0)
        return [True, p.op("list::append", tensors(None, 3), self=rows, item=stacked)]

    [rows] = p.loop(n, [p.op("list::construct", tensors(None, 3), items=[])], outer, tensors(None, 3))
    return [p.op("aten::stack", tensor(None, None, 3), tensors=rows, dim=0)]


def _flat(p: Program, *shape: Any) -> list[Value]:
    x, n = p.input(tensor(*shape), "x"), p.input(number(), "n")

    def inner(j: Value, value: Value, items: Value) -> list[Any]:
        value = doubled(p, value, tensor(*shape))
        return [True, value, p.op("list::append", tensors(*shape), self=items, item=value)]

    def outer(i: Value, items: Value) -> list[Any]:
        _, items = p.loop(i, [x, items], inner, tensor(*shape), tensors(*shape))
        return [True, items]

    [items] = p.loop(n, [p.op("list::construct", tensors(*shape), items=[])], outer, tensors(*shape))
    return [p.op("aten::stack", tensor(None, *shape), tensors=items, dim=0)]


def nested(x: np.ndarray, n: int) -> list[Any]:
    return [np.stack([v for i in range(n) for v in powers(x, i)])]


@record(nested, {"x": X, "n": 2}, {"x": X, "n": 4}, first=7)
def inner_loop_appends_static(p: Program) -> list[Value]:
    return _flat(p, 3)


@record(nested, {"x": X, "n": 2}, {"x": X, "n": 4}, first=7)
def inner_loop_appends_unknown(p: Program) -> list[Value]:
    return _flat(p, None)


def _number_list(p: Program, items: Value, like: Any, kind: str, n: Value) -> list[Value]:
    longer = p.op("list::append", like, self=items, item=1)
    changed = p.op("list::set", like, self=items, index=0, item=1)
    return [
        p.op("list::len", number(), self=items),
        p.op("list::sum", number(kind), self=items),
        p.op("list::max", number(kind), self=items),
        p.op("list::min", number(kind), self=items),
        p.op("list::getitem", number(kind), self=items, index=-1),
        p.op("list::count", number(), self=items, item=4),
        p.op("list::index", number(), self=items, item=4),
        p.op("list::contains", number("bool"), self=items, item=9),
        p.op("list::contains", number("bool"), self=items, item=5),
        p.op("list::set", like, self=items, index=n, item=7),
        p.op("list::reverse", like, self=items),
        p.op("list::slice", like, self=items, start=1, end=n),
        p.op("list::equal", number("bool"), self=items, other=items),
        p.op("list::equal", number("bool"), self=items, other=longer),
        p.op("list::equal", number("bool"), self=items, other=changed),
    ]


def squares(n: int) -> list[int]:
    return [i * i for i in range(n + 2)]


def of_numbers(n: int) -> list[Any]:
    items = squares(n)
    return [
        len(items), sum(items), max(items), min(items), items[-1], items.count(4), items.index(4),
        9 in items, 5 in items, [*items[:n], 7, *items[n + 1 :]], items[::-1], items[1:n],
        True, False, False,
    ]  # fmt: skip


@record(lambda n: of_numbers(int(n)), {"n": 1}, {"n": 3}, first=7)
def list_of_ints(p: Program) -> list[Value]:
    n = p.input(number(), "n")

    def body(i: Value, items: Value) -> list[Any]:
        square = p.op("sym::mul", number(), a=i, b=i)
        return [True, p.op("list::append", numbers(), self=items, item=square)]

    count = p.op("sym::add", number(), a=n, b=2)
    [items] = p.loop(count, [p.op("list::construct", numbers(), items=[])], body, numbers())
    return _number_list(p, items, numbers(), "int", n)


@record(
    lambda x, n: [np.sort(x), np.sort(x)[::-1], [2.5, *x, 1.0][int(n)], (x > 1).any(), (x > 1).all()],
    {"x": np.array([3.0, 1.0, 2.0]), "n": 0},
    {"x": np.array([3.0]), "n": -1},
    first=7,
)
def list_of_floats(p: Program) -> list[Value]:
    x, n = p.input(numbers("float"), "x"), p.input(number(), "n")
    first = p.op("list::construct", numbers("float"), items=[2.5])
    items = p.op("list::extend", numbers("float"), self=first, other=x)
    items = p.op("list::append", numbers("float"), self=items, item=1)
    large = p.op("aten::gt", numbers("bool"), overload="Scalar", self=x, other=1.0)
    return [
        p.op("list::sort", numbers("float"), self=x),
        p.op("list::sort", numbers("float"), self=x, descending=True),
        p.op("list::getitem", number("float"), self=items, index=n),
        p.op("list::any", number("bool"), self=large),
        p.op("list::all", number("bool"), self=large),
    ]


@record(
    lambda n: [[i for i in range(int(n)) if i % 2], sum(range(1, int(n), 2))],
    *({"n": n} for n in (0, 1, 5)),
    first=7,
)
def ints_of_some_iterations(p: Program) -> list[Value]:
    n = p.input(number(), "n")

    def body(i: Value, items: Value) -> list[Any]:
        [items] = p.branch(
            odd(p)(i),
            lambda: [p.op("list::append", numbers(), self=items, item=i)],
            lambda: [items],
            numbers(),
        )
        return [True, items]

    [items] = p.loop(n, [p.op("list::construct", numbers(), items=[])], body, numbers())
    return [p.alias(items), p.op("list::sum", number(), self=items)]


@record(
    lambda n: [[True] * int(n), [0.5 * i for i in range(int(n))]],
    *({"n": n} for n in (0, 3)),
    first=7,
)
def lists_of_bools_and_floats(p: Program) -> list[Value]:
    n = p.input(number(), "n")

    def body(i: Value, bools: Value, floats: Value) -> list[Any]:
        half = p.op("sym::mul", number("float"), a=i, b=0.5)
        return [
            True,
            p.op("list::append", numbers("bool"), self=bools, item=True),
            p.op("list::append", numbers("float"), self=floats, item=half),
        ]

    empty = [p.op("list::construct", numbers(kind), items=[]) for kind in ("bool", "float")]
    return p.loop(n, empty, body, numbers("bool"), numbers("float"))


def filled(x: np.ndarray, n: int) -> list[np.ndarray]:
    ones = [1] * n
    return [
        x.reshape(1, *ones, -1),
        np.broadcast_to(x, (*ones, 2, 3)),
        np.full([*ones, 2], 7.0),
        np.ones([*ones, 2]),
        np.tile(x, (*ones, 2)),
    ]


@record(
    lambda x, n: [item.ravel() for item in filled(x, int(n))], {"x": X, "n": 0}, {"x": X, "n": 2}, first=8
)
def lists_as_shapes(p: Program) -> list[Value]:
    x, n = p.input(tensor(3), "x"), p.input(number(), "n")

    def body(i: Value, items: Value) -> list[Any]:
        return [True, p.op("list::append", numbers(), self=items, item=1)]

    def ending(*last: int) -> Value:
        more = p.op("list::construct", numbers(), items=list(last))
        return p.op("list::extend", numbers(), self=ones, other=more)

    [ones] = p.loop(n, [p.op("list::construct", numbers(), items=[])], body, numbers())
    inserted = p.op("list::insert", numbers(), self=ending(-1), index=0, item=1)
    made = [
        p.op("aten::view", unranked(), self=x, size=inserted),
        p.op("aten::expand", unranked(), self=x, size=ending(2, -1)),
        p.op("aten::full", unranked(), size=ending(2), fill_value=7.0),
        p.op("aten::ones", unranked(), size=ending(2)),
        p.op("aten::repeat", unranked(), self=x, repeats=ending(2)),
    ]
    return [p.op("aten::reshape", tensor(None), self=item, shape=[-1]) for item in made]


@record(lambda x, n: [np.stack(powers(x, n)).ravel(), len(powers(x, n))], *SOME, first=7)
def elements_of_unknown_rank(p: Program) -> list[Value]:
    x, n = p.input(tensor(3), "x"), p.input(number(), "n")
    like = unranked_tensors()

    def body(i: Value, value: Value, items: Value) -> list[Any]:
        value = doubled(p, value, unranked())
        return [True, value, p.op("list::append", like, self=items, item=value)]

    _, items = p.loop(n, [x, p.op("list::construct", like, items=[])], body, unranked(), like)
    stacked = p.op("aten::stack", unranked(), tensors=items, dim=0)
    return [
        p.op("aten::reshape", tensor(None), self=stacked, shape=[-1]),
        p.op("list::len", number(), self=items),
    ]


@record(
    lambda x, n: [np.concatenate(powers(x, n)), n],
    {"x": X, "n": 1},
    {"x": X, "n": 3},
    first=7,
)
def elements_of_unknown_rank_in_a_row(p: Program) -> list[Value]:
    x, n = p.input(tensor(3), "x"), p.input(number(), "n")
    like = unranked_tensors()

    def body(i: Value, value: Value, items: Value) -> list[Any]:
        value = doubled(p, value, unranked())
        return [True, value, p.op("list::append", like, self=items, item=value)]

    _, items = p.loop(n, [x, p.op("list::construct", like, items=[])], body, unranked(), like)
    joined = p.op("aten::cat", unranked(), tensors=items, dim=0)
    return [
        p.op("aten::reshape", tensor(None), self=joined, shape=[-1]),
        p.op("list::len", number(), self=items),
    ]


@record(
    lambda x, n: [
        np.vstack(powers(x, n)),
        np.hstack(powers(x, n)),
        np.dstack(powers(x, n)),
        np.column_stack(powers(x, n)),
    ],
    *SOME,
    first=7,
)
def rows_columns_and_depths(p: Program) -> list[Value]:
    _, items = growing(p, 3)
    return [
        p.op("aten::vstack", tensor(None, 3), tensors=items),
        p.op("aten::hstack", tensor(None), tensors=items),
        p.op("aten::dstack", tensor(1, 3, None), tensors=items),
        p.op("aten::column_stack", tensor(3, None), tensors=items),
    ]


@record(
    lambda x: [np.concatenate(list(x), 1), np.stack(list(x), 2), np.dstack(list(x))],
    {"x": np.arange(12, dtype=np.float32).reshape(3, 2, 2)},
    first=7,
)
def joined_along_other_dimensions(p: Program) -> list[Value]:
    x = p.input(tensor("n", 2, 2), "x")
    items = p.op("list::from_tensor", tensors(2, 2), self=x)
    return [
        p.op("aten::cat", tensor(2, None), tensors=items, dim=1),
        p.op("aten::stack", tensor(2, 2, None), tensors=items, dim=2),
        p.op("aten::dstack", tensor(2, 2, None), tensors=items),
    ]


@record(
    lambda x: [np.concatenate([x[:2], x[2:]])],
    {"x": np.arange(3, dtype=np.uint8)},
    first=13,
)
def small_integers(p: Program) -> list[Value]:
    """onnxruntime splits no such tensors into sequences."""
    x = p.input(tensor(None, dtype=DataType.UINT8), "x")
    like = tensors(None, dtype=DataType.UINT8)
    parts = p.op("list::from_tensor", tensors(dtype=DataType.UINT8), self=x)
    head = p.op(
        "aten::slice", tensor(None, dtype=DataType.UINT8), overload="Tensor", self=x, dim=0, start=0, end=2
    )
    rest = p.op("aten::slice", tensor(None, dtype=DataType.UINT8), overload="Tensor", self=x, dim=0, start=2)
    items = p.op("list::construct", like, items=[head, rest])
    count = p.op("list::len", number(), self=parts)
    [items] = p.branch(
        p.op("sym::gt", number("bool"), a=count, b=9),
        lambda: [parts],
        lambda: [items],
        like,
    )
    return [p.op("aten::cat", tensor(None, dtype=DataType.UINT8), tensors=items, dim=0)]


def begun_again(x: np.ndarray, n: int) -> list[np.ndarray]:
    items = [x]
    for i in range(n):
        items = [x + i] if i % 2 else [*items, x + i]
    return items


@record(lambda x, n: [np.concatenate(begun_again(x, n)), len(begun_again(x, n))], *COUNTS, first=7)
def list_begun_again(p: Program) -> list[Value]:
    """In a branch the list may be empty, and its elements have a size that is no number."""
    x, n = p.input(tensor("size"), "x"), p.input(number(), "n")
    like = tensors("size")

    def body(i: Value, items: Value) -> list[Any]:
        [items] = p.branch(
            odd(p)(i), lambda: [p.op("list::construct", like, items=[])], lambda: [items], like
        )
        more = p.op(
            "aten::add",
            tensor("size"),
            overload="Tensor",
            self=x,
            other=p.op("aten::scalar_tensor", tensor(), s=i, dtype=DataType.FLOAT),
        )
        return [True, p.op("list::append", like, self=items, item=more)]

    [items] = p.loop(n, [p.op("list::construct", like, items=[x])], body, like)
    return [p.op("aten::cat", tensor(None), tensors=items, dim=0), p.op("list::len", number(), self=items)]


def operators(graph: ir.Graph) -> list[str]:
    return [node.op_type for node in graph.all_nodes()]


EVENLY = [grown_of_static_shape, grown_of_named_shape, grown_of_unknown_shape, several_elements_an_iteration]


@pytest.mark.parametrize("opset", [7, 13, HIGHEST])
@pytest.mark.parametrize("build", EVENLY, ids=lambda build: build.__name__)
def test_what_every_iteration_appends_is_a_scan_output(
    build: Callable[[Program], Sequence[Value]], opset: int
) -> None:
    program = Program()
    graph = lower(program.model(build(program)), opset, default_registry).model.graph
    assert not any("Sequence" in name for name in operators(graph))
    [loop] = [node for node in graph if node.op_type == "Loop"]
    body = loop.attributes["body"].as_graph()
    assert len(body.inputs) == 2 + 1
    assert len(body.outputs) > 2
    assert "Concat" not in operators(body)


@pytest.mark.parametrize(
    ("build", "sequences"),
    [
        (some_iterations_append_static, False),
        (read_back_named, False),
        (changes_of_a_stacked_list, False),
        (some_iterations_append_unknown, True),
        (elements_of_different_shapes, True),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_lists_are_sequences_only_where_shapes_may_differ(
    build: Callable[[Program], Sequence[Value]], sequences: bool
) -> None:
    program = Program()
    graph = lower(program.model(build(program)), 28, default_registry).model.graph
    assert any("Sequence" in name for name in operators(graph)) == sequences


@pytest.mark.parametrize("opset", OPSETS)
@pytest.mark.parametrize("record", [pytest.param(record, id=record.name) for record in RECORDS])
def test_list_agrees_with_numpy(record: Record, opset: int) -> None:
    model = source(record)
    if opset < record.first:
        with pytest.raises(UnsupportedOperatorsError) as caught:
            lower(model, opset, default_registry)
        found = [operator.first_opset for operator in caught.value.operators]
        assert None not in found
        assert max(found) == record.first or max(found) > opset  # type: ignore[type-var]
        return
    compute = session(model, opset)
    for feeds in record.feeds:
        for got, expected in zip(compute(feeds), record.reference(**feeds), strict=True):
            np.testing.assert_allclose(got, expected, rtol=1e-5)
            assert np.shape(got) == np.shape(expected)
