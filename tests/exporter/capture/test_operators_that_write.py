"""Operators of other libraries that write to arguments: their schemas say what, not their names.

A node of such an operator returns its results, and then the new values of the arguments that it writes to.
"""

import functools
import itertools
from collections.abc import Callable
from typing import Any

import onnxruntime
import pytest
import torch
from torch import Tensor

import opsetta
from opsetta.registration import CaptureError, GraphError, MutationError, UnsupportedOperatorsError

_LIBRARY = torch.library.Library("writers", "DEF")
REGISTRY = opsetta.default_registry.fork()
ops = torch.ops.writers


def _define(schema: str, kernel: Callable[..., Any], fake: Callable[..., Any] | None, symbolic: Any) -> None:
    name = schema.partition("(")[0]
    _LIBRARY.define(schema)
    _LIBRARY.impl(name, kernel, "CPU")
    if fake is not None:
        torch.library.register_fake(f"writers::{name}", fake)
    if symbolic is not None:
        opsetta.onnx_symbolic(f"writers::{name}", opset=9, registry=REGISTRY)(symbolic)


def _nothing(function: Callable[..., Any]) -> Callable[..., None]:
    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> None:
        function(*args, **kwargs)

    return run


def _halve(x: Tensor, y: Tensor) -> Tensor:
    x.div_(y)
    return x - 7


def _halve_symbolic(g: Any, x: Any, y: Any) -> Any:
    new = g.op("Div", x, y)
    return g.op("Sub", new, 7.0), new


def _add_each(xs: list[Tensor], y: Tensor, total: Tensor | None = None) -> Tensor:
    for x in xs:
        x.add_(y)
    if total is not None:
        total.mul_(y)
    return y * 2


def _add_each_symbolic(g: Any, xs: list[opsetta.Value], y: Any, total: Any = None) -> Any:
    new = [g.op("Add", x, y) for x in xs]
    return [g.op("Mul", y, 2.0), *new, *([] if total is None else [g.op("Mul", total, y)])]


def _swap(x: Tensor, first: Tensor, second: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    first.add_(x)
    second.mul_(x)
    return second, x * 5, first


def _swap_symbolic(g: Any, x: Any, first: Any, second: Any) -> Any:
    first, second = g.op("Add", first, x), g.op("Mul", second, x)
    return second, g.op("Mul", x, 5.0), first, first, second


def _twice(g: Any, xs: list[opsetta.Value]) -> Any:
    new = [g.op("Add", x, 2.0) for x in xs]
    return new + new


_define("halve_(Tensor(a!) x, Tensor y) -> Tensor", _halve, lambda x, y: torch.empty_like(x), _halve_symbolic)
# The functional operator of the name does something else, and is not to be taken.
_define(
    "halve(Tensor x, Tensor y) -> Tensor", lambda x, y: x, lambda x, y: torch.empty_like(x), lambda g, x, y: x
)
_define("raise_(Tensor(a!) x) -> ()", _nothing(lambda x: x.add_(1)), None, lambda g, x: g.op("Add", x, 1.0))
_define(
    "copy_(Tensor(a!) cache, Tensor new, int slot) -> ()",
    _nothing(lambda cache, new, slot: cache[slot].copy_(new)),
    _nothing(lambda cache, new, slot: None),
    lambda g, cache, new, slot: g.call("aten::select_scatter", cache, new, 0, slot),
)
_define(
    "squeeze_(Tensor(a!) x) -> Tensor(a!)",
    lambda x: x.clamp_(0.6, 1.1),
    lambda x: x,
    lambda g, x: [g.op("Clip", x, min=0.6, max=1.1)] * 2,
)
_define(
    "square.out(Tensor x, *, Tensor(a!) out) -> Tensor(a!)",
    lambda x, *, out: out.copy_(x * x),
    lambda x, *, out: out,
    lambda g, x, out: [g.op("Mul", x, x)] * 2,
)
_define(
    "scaled(Tensor(a!) out, Tensor x, Tensor w) -> ()",
    _nothing(lambda out, x, w: out.copy_(x * w)),
    _nothing(lambda out, x, w: None),
    lambda g, out, x, w: g.op("Mul", x, w),
)
_define(
    "add_each(Tensor(a!)[] xs, Tensor y, Tensor(b!)? total=None) -> Tensor",
    _add_each,
    lambda xs, y, total=None: torch.empty_like(y),
    _add_each_symbolic,
)
_define(
    "swap(Tensor x, Tensor(a!) first, Tensor(b!) second) -> (Tensor(b!), Tensor, Tensor(a!))",
    _swap,
    lambda x, first, second: (second, torch.empty_like(x), first),
    _swap_symbolic,
)
_define("both_(Tensor(a!)[] xs) -> Tensor(a!)[]", lambda xs: [x.add_(2) for x in xs], lambda xs: xs, _twice)
_define(
    "raise_each(Tensor(a!)[] xs) -> ()",
    _nothing(lambda xs: [x.add_(1) for x in xs]),
    _nothing(lambda xs: None),
    lambda g, xs: [g.op("Add", x, 1.0) for x in xs],
)
_define(
    "add_nested(Tensor x, Tensor(a!)[] xs) -> Tensor",
    lambda x, xs: _add_each(xs, x),
    lambda x, xs: torch.empty_like(x),
    lambda g, x, xs: (g.op("Mul", x, 2.0), [g.op("Add", item, x) for item in xs]),
)
_define("first(Tensor(a) x) -> Tensor(a)", lambda x: x[0], lambda x: x[0], lambda g, x: g.op("Gather", x, 0))
_define("nameless_(Tensor(a!) x) -> ()", _nothing(lambda x: x.add_(2)), None, None)
_define("unfaked_(Tensor(a!) x, Tensor y) -> Tensor", _halve, None, _halve_symbolic)
_LIBRARY.define("composite_(Tensor(a!)[] xs, Tensor y) -> Tensor")
_LIBRARY.impl("composite_", lambda xs, y: sum(x.mul_(y) for x in xs), "CompositeImplicitAutograd")


class Halves(torch.nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = x * 3
        z = torch.ops.writers.halve_(y, x)
        torch.ops.writers.raise_(y)
        return y, z


class Views(torch.nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        cache = torch.zeros(4, 3) + x
        view = cache[1:]
        torch.ops.writers.copy_(view, x * 2, 1)
        row = torch.ops.writers.squeeze_(view[0])
        row.mul_(2)
        torch.ops.writers.raise_(cache.t()[1:])
        return cache, view, row


class Outputs(torch.nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        out = torch.empty(3)
        result = torch.ops.writers.square(x, out=out)
        result.add_(1)
        product = torch.empty(2, 3)
        torch.ops.writers.scaled(product[1], x, out)
        return out, result, product[1]


class Lists(torch.nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        rows = x.repeat(2, 1)
        other = x + 1
        first = torch.ops.writers.add_each([rows[0], other], x)
        second = torch.ops.writers.add_each([other], x, rows[1])
        returned = torch.ops.writers.both_([rows, other])
        returned[1].mul_(2)
        return rows, other, first, second


class Swapped(torch.nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        a, b = x + 1, x + 2
        second, new, first = torch.ops.writers.swap(x, a, b)
        second.add_(1)
        first.sub_(1)
        return a, b, second, new, first


class Composite(torch.nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        y, rows = x * 2, x.repeat(3, 1)
        z = torch.ops.writers.composite_([y, rows[1]], x)
        return y, rows, z


class Branches(torch.nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = x * 2
        if bool(x.sum() > 3):
            torch.ops.writers.raise_(y)
            z = torch.ops.writers.halve_(y, x)
        else:
            z = y + 1
        for _ in range(int(x.sum())):
            torch.ops.writers.raise_(y)
        return y, z


class State(torch.nn.Module):
    cache: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("cache", torch.zeros(4, 3))

    def forward(self, x: Tensor) -> Tensor:
        torch.ops.writers.copy_(self.cache, x, 2)
        torch.ops.writers.raise_(x)
        return self.cache.sum(0) + x


CAPTURES = ("direct", "torch.export", "trace", "script")
CASES = [
    *itertools.product((Halves, Views, Lists, Swapped, Composite), CAPTURES),
    *itertools.product((Outputs,), CAPTURES[:3]),
    (Branches, "script"),
]
"""torch.jit.script does not compile the keyword argument of Outputs; the others refuse the branch."""


def _example() -> Tensor:
    return torch.tensor([0.75, 1.25, 0.5])


def _export(model: Any, capture: str, **options: Any) -> opsetta.Program:
    if capture in ("trace", "script"):
        example = (_example(),)
        is_script = capture == "script"
        model = torch.jit.script(model) if is_script else torch.jit.trace(model, example, check_trace=False)
        return opsetta.export(model.eval(), example, opset=9, registry=REGISTRY, **options)
    return opsetta.export(model.eval(), (_example(),), opset=9, registry=REGISTRY, capture=capture, **options)


@pytest.mark.parametrize(("model", "capture"), CASES)
def test_all_values_agree_with_eager(model, capture):
    program = _export(model().eval(), capture)
    for factor in (1, 2):
        x = _example() * factor
        for result, expected in zip(program(x), model()(x.clone()), strict=True):
            torch.testing.assert_close(torch.as_tensor(result), expected)


@pytest.mark.parametrize("capture", CAPTURES)
def test_mutations_apply_to_inputs_and_buffers(capture):
    program = _export(State(), capture, mutations="outputs")
    assert [output.name for output in program.model.graph.outputs] == ["output", "cache_mutated", "x_mutated"]
    model, x = State(), _example()
    expected = [model(x), model.cache, x]
    session = onnxruntime.InferenceSession(program.model_proto.SerializeToString())
    results = session.run(None, {session.get_inputs()[0].name: _example().numpy()})
    for result, value in zip(results, expected, strict=True):
        torch.testing.assert_close(torch.as_tensor(result), value)
    with pytest.raises(MutationError, match=r"buffer 'cache' \(writers::copy_\.default in '<root>'\)"):
        _export(State(), capture)
    with pytest.warns(UserWarning, match="the new values of tensors that the model writes to are dropped"):
        assert len(_export(State(), capture, mutations="drop").model.graph.outputs) == 1


@pytest.mark.parametrize("capture", ["direct", "trace"])
def test_an_operator_without_a_symbolic_function_is_named_with_its_underscore(capture):
    class Model(torch.nn.Module):
        def forward(self, x):
            y = x * 2
            torch.ops.writers.nameless_(y)
            return y

    with pytest.raises(UnsupportedOperatorsError, match=r'onnx_symbolic\("writers::nameless_"'):
        _export(Model(), capture)


def test_a_trace_needs_no_fake_kernel():
    class Model(torch.nn.Module):
        def forward(self, x):
            y = x * 2
            return torch.ops.writers.unfaked_(y, x), y

    x = _example()
    for result, expected in zip(_export(Model(), "trace")(x), Model()(x), strict=True):
        torch.testing.assert_close(torch.as_tensor(result), expected)


@pytest.mark.parametrize("capture", CAPTURES)
def test_a_view_that_the_schema_declares_is_written_nowhere(capture):
    class Model(torch.nn.Module):
        def forward(self, x):
            rows = x.repeat(2, 1)
            view = torch.ops.writers.first(rows)
            view.add_(5)
            return rows

    with pytest.raises(GraphError, match="writes to this view are not supported"):
        _export(Model(), capture)


def test_dynamic_sizes():
    program = _export(Halves(), "direct", dynamic_shapes=({0: "n"},))
    x = torch.arange(1.0, 6)
    for result, expected in zip(program(x), Halves()(x), strict=True):
        torch.testing.assert_close(torch.as_tensor(result), expected)


@pytest.mark.parametrize("capture", ["direct", "torch.export", "trace"])
@pytest.mark.parametrize("count", [0, 1, 2])
def test_a_symbolic_function_may_return_the_values_of_a_list_as_a_list(capture, count):
    class Model(torch.nn.Module):
        def forward(self, x):
            items = [x * 2, x * 3]
            return torch.ops.writers.add_nested(x, items[:count]), *items

    x = _example()
    for result, expected in zip(_export(Model(), capture)(x), Model()(x), strict=True):
        torch.testing.assert_close(torch.as_tensor(result), expected)


def test_a_trace_from_which_torch_removes_a_write_is_refused():
    class Model(torch.nn.Module):
        def forward(self, x):
            first, second = x * 2, x * 3
            torch.ops.writers.raise_each([first, second])
            return first, second

    x = _example()
    for result, expected in zip(_export(Model(), "direct")(x), Model()(x), strict=True):
        torch.testing.assert_close(torch.as_tensor(result), expected)
    with pytest.raises(CaptureError, match="a trace leaves out writers::raise_each"):
        opsetta.export(Model(), (x,), opset=9, registry=REGISTRY, capture="trace")
