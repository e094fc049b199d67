"""Models with the higher-order operators of torch.export, and inputs that take different paths."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.utils.checkpoint
from torch import Tensor, nn
from torch._higher_order_ops import while_loop_stack_output
from torch._higher_order_ops.associative_scan import associative_scan
from torch._higher_order_ops.map import map as map_over
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from ..opsets import HIGHEST
from .records import floats, integers

OPSETS = (7, 8, 9, 11, 13, 16, 18, 21, 24, HIGHEST)
FREE = torch.export.Dim.DYNAMIC


@dataclasses.dataclass(frozen=True, eq=False)
class Case:
    """A model, the arguments it is exported with, and others that it has to agree for.

    Attributes:
        function: its forward; the module's weight, bias and layers are at hand.
        lowest: opsets below are refused by name.
        options: further arguments of `export`.
    """

    name: str
    function: Callable[..., Any]
    inputs: tuple[Any, ...]
    others: Sequence[tuple[Any, ...]] = ()
    dynamic: Any = None
    lowest: int = 7
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    tolerance: float | None = None

    def model(self) -> nn.Module:
        return type("Model", (_Model,), {"forward": self.function})().eval()


class _Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(floats(3, 3, seed=90, scale=0.4))
        self.register_buffer("bias", floats(3, seed=91))
        self.register_buffer("count", torch.tensor(2))
        self.linear = nn.Linear(3, 3)
        self.norm = nn.BatchNorm1d(3)
        self.cell = nn.GRUCell(3, 3)
        self.mask = create_block_mask(lambda b, h, m, n: (m >= n) & (m - n < 9), None, None, 16, 16, "cpu")
        with torch.no_grad():
            for seed, parameter in enumerate(self.parameters()):
                parameter.copy_(floats(*parameter.shape, seed=seed, scale=0.4))
            self.norm.running_mean.copy_(floats(3, seed=92))  # type: ignore[union-attr]


# cond


def captured(self: Any, x: Tensor) -> Tensor:
    return torch.cond(
        x.sum() > 0, lambda x: self.norm(self.linear(x)) + self.bias, lambda x: x @ self.weight, (x,)
    )


def nested_results(self: Any, x: Tensor) -> Any:
    def true_fn(x: Tensor) -> Any:
        return {"a": x + self.bias, "b": [x.sum(0), x > 0]}

    def false_fn(x: Tensor) -> Any:
        return {"a": x * 2, "b": [x.mean(0), x < self.bias]}

    return torch.cond(x[0, 0] > 0, true_fn, false_fn, (x,))


def returned_ints(self: Any, x: Tensor) -> Any:
    y, n, m = torch.cond(x.sum() > 0, lambda x: (x + 1, 2, 3), lambda x: (x - self.bias, 3, 3), (x,))
    return y[:n], n + 1, x[:m]


def size_predicate(self: Any, x: Tensor) -> Tensor:
    return torch.cond(x.shape[0] > 4, lambda x: x + self.bias, lambda x: x - 1, (x,))


def given_predicate(self: Any, x: Tensor, flag: Tensor) -> Tensor:
    return torch.cond(flag, lambda x: x + self.bias, lambda x: x - 1, (x,))


def other_sizes(self: Any, x: Tensor) -> Any:
    y = torch.cond(x.sum() > 0, lambda x: x[:2], lambda x: x[:3] * self.bias, (x,))
    return y, y.sum(0), y.shape[0]


def made_of_nothing(self: Any, x: Tensor) -> Any:
    def true_fn(x: Tensor) -> Any:
        return x + torch.tensor([1.0, 2.0, 3.0]), torch.tensor(3.0)

    def false_fn(x: Tensor) -> Any:
        return torch.full_like(x, 2.0), torch.tensor([1, 2, 4.0]).sum()

    return torch.cond(x.sum() > 0, true_fn, false_fn, (x,))


def three_deep(self: Any, x: Tensor) -> Tensor:
    def inner(x: Tensor) -> Tensor:
        return torch.cond(x[0, 1] > 0, lambda x: x * self.bias, lambda x: x - self.bias, (x,))

    def middle(x: Tensor) -> Tensor:
        return torch.cond(x[0, 0] > 0, inner, lambda x: x @ self.weight, (x,))

    return torch.cond(x.sum() > 0, middle, lambda x: x.sin(), (x,))


def decomposed(self: Any, x: Tensor) -> Tensor:
    def true_fn(x: Tensor) -> Tensor:
        return torch.special.entr(x.abs()) + torch.logaddexp2(x, x)

    return torch.cond(x.sum() > 0, true_fn, lambda x: torch.heaviside(x, self.bias), (x,))


def written_operand(self: Any, x: Tensor) -> Tensor:
    y = x * 1

    def true_fn(y: Tensor) -> Tensor:
        return y.add_(1) + self.bias

    return torch.cond(x.sum() > 0, true_fn, lambda y: y - 1, (y,)) + y


def written_view(self: Any, x: Tensor) -> Tensor:
    y = x * 1

    def true_fn(v: Tensor) -> Tensor:
        v.mul_(2)
        return v.sum(0) + self.bias

    def false_fn(v: Tensor) -> Tensor:
        v[0] = self.bias
        return v[0] * 3

    return torch.cond(x.sum() > 0, true_fn, false_fn, (y[1:3],)) + y


def written_below(self: Any, x: Tensor) -> Tensor:
    y = x * 1

    def inner(y: Tensor) -> Tensor:
        return torch.cond(x[0, 0] > 0, lambda y: y.add_(1) * 2, lambda y: y * 3, (y,))

    return torch.cond(x.sum() > 0, inner, lambda y: y - 1, (y,)) + y


def written_buffer(self: Any, x: Tensor) -> Tensor:
    def true_fn(x: Tensor) -> Tensor:
        self.bias.add_(1)
        return x + self.bias

    return torch.cond(x.sum() > 0, true_fn, lambda x: x - 1, (x,)) + self.bias


def written_inside(self: Any, x: Tensor) -> Tensor:
    def true_fn(x: Tensor) -> Tensor:
        y = torch.zeros_like(x)
        y[1:] = x[1:]
        y[:, 0].mul_(2).add_(self.bias[0])
        return y

    return torch.cond(x.sum() > 0, true_fn, lambda x: x.clone().relu_(), (x,))


# while_loop


def counted(self: Any, x: Tensor) -> Any:
    def body(i: Tensor, a: Tensor) -> Any:
        return i + 1, a @ self.weight + self.bias

    return while_loop(lambda i, a: i < 2 * self.count, body, (torch.zeros((), dtype=torch.int64), x))


def until_converged(self: Any, x: Tensor) -> Any:
    """Newton's iteration for square roots; how often depends on the numbers."""

    def going(y: Tensor, steps: Tensor) -> Tensor:
        return ((y * y - x).abs().max() > 1e-4) & (steps < 30)

    return while_loop(going, lambda y, n: ((y + x / y) / 2, n + 1.0), (x + 1, torch.zeros(())))


def symbolic_ints(self: Any, x: Tensor) -> Any:
    def body(i: int, a: Tensor) -> Any:
        return i + 1, a + x[: i + 1].sum(0) * self.bias

    return while_loop(lambda i, a: i < x.shape[0], body, (0, torch.zeros(3)))


def given_start(self: Any, x: Tensor, start: Tensor) -> Any:
    return while_loop(lambda i, a: i > 0, lambda i, a: (i - 1, a.cos() + self.bias), (start, x))


def loop_in_loop(self: Any, x: Tensor) -> Any:
    def body(i: Tensor, a: Tensor) -> Any:
        j, b = while_loop(lambda j, b: j < i, lambda j, b: (j + 1, b + self.bias), (i * 0, a))
        return i + 1, b * 0.5 + j

    return while_loop(lambda i, a: i < 4, body, (torch.zeros((), dtype=torch.int64), x))


def mixed_types(self: Any, x: Tensor) -> Any:
    def body(i: Tensor, going: Tensor, h: Tensor, d: Tensor) -> Any:
        return i + 1, h.sum() < 6, h + x.half(), d * 2

    start = (torch.zeros((), dtype=torch.int32), torch.tensor(True), x.half(), torch.ones(2).double())
    return while_loop(lambda i, going, h, d: going & (i < 5), body, start)


def written_in_loop(self: Any, x: Tensor) -> Any:
    total = torch.zeros(3) * 2

    def body(i: Tensor, a: Tensor) -> Any:
        total.add_(a)
        return i + 1, a * 0.5 + self.bias

    i, a = while_loop(lambda i, a: i < x.shape[0], body, (torch.zeros((), dtype=torch.int64), x[0] * 1))
    return total, a, i


def buffer_in_loop(self: Any, x: Tensor) -> Any:
    def body(i: Tensor, a: Tensor) -> Any:
        self.bias.add_(1)
        return i + 1, a + self.bias

    i, a = while_loop(lambda i, a: i < 3, body, (torch.zeros((), dtype=torch.int64), x))
    return a * self.bias + i


def stacked(self: Any, start: Tensor, x: Tensor) -> Any:
    return while_loop_stack_output(
        lambda i, a, b: i > 0, lambda i, a, b: (i - 1, a.cos() * b), (start, x), (self.bias,)
    )


# scan


def recurrent(self: Any, h: Tensor, x: Tensor) -> Any:
    def step(h: Tensor, x: Tensor) -> Any:
        h = self.cell(x, h)
        return h, h.clone()

    return scan(step, h, x)


def reverse_dim(self: Any, h: Tensor, x: Tensor) -> Any:
    def step(h: Tensor, x: Tensor) -> Any:
        h = torch.tanh(h @ self.weight + x + self.bias)
        return h, h * 2

    return scan(step, h, x, dim=1, reverse=True)


def several(self: Any, a: Tensor, x: Tensor, y: Tensor) -> Any:
    def step(carry: Any, item: Any) -> Any:
        a, n = carry["a"], carry["n"]
        x, y = item
        return {"a": a + x * self.bias, "n": n + y}, ((a > x), [a - x, n * 2])

    return scan(step, {"a": a, "n": torch.zeros((), dtype=torch.int64)}, (x, y))


def everything_nested(self: Any, h: Tensor, x: Tensor) -> Any:
    """A cond in a while_loop in a scan."""

    def step(h: Tensor, x: Tensor) -> Any:
        def body(i: Tensor, v: Tensor) -> Any:
            v = torch.cond(v.sum() > 0, lambda v: v + self.bias.abs(), lambda v: v @ self.weight + 1, (v,))
            return i + 1, v

        start = (torch.zeros((), dtype=torch.int64), h + x)
        i, v = while_loop(lambda i, v: (i < 4) & (v.sum() < 5), body, start)
        return v, v * 2 + i

    return scan(step, h, x)


def scan_in_scan(self: Any, h: Tensor, x: Tensor) -> Any:
    def outer(h: Tensor, rows: Tensor) -> Any:
        h, ys = scan(lambda c, row: (c + row, c * self.bias), h, rows)
        return h * 0.5, ys

    return scan(outer, h, x)


def scan_in_branch(self: Any, x: Tensor) -> Any:
    def true_fn(x: Tensor) -> Any:
        return scan(lambda c, row: (c + row, c * row), self.bias * 1, x)

    return torch.cond(x.sum() > 0, true_fn, lambda x: (x.sum(0), x * 2), (x,))


def written_in_scan(self: Any, h: Tensor, x: Tensor) -> Any:
    def step(c: Tensor, x: Tensor) -> Any:
        y = torch.zeros(3)
        y[1] = x[1]
        c = c.clone()
        c.mul_(2).add_(y)
        return c, c + self.bias

    return scan(step, h, x)


# map and associative_scan


def mapped(self: Any, x: Tensor) -> Any:
    return map_over(lambda a: (self.linear(a), a.shape[0] * a.sum(), (a > 0).any()), x)


def mapped_trees(self: Any, x: Tensor, y: Tensor, z: Tensor) -> Any:
    return map_over(lambda t, z: {"u": t["x"] * z + t["y"], "v": t["y"].cos()}, {"x": x, "y": y}, z)


def mapped_branches(self: Any, x: Tensor) -> Any:
    def f(row: Tensor) -> Tensor:
        return torch.cond(row.sum() > 0, lambda r: r + self.bias, lambda r: r * 2, (row,))

    return map_over(f, x)


def products(self: Any, x: Tensor) -> Tensor:
    return associative_scan(lambda a, b: a * b, x, dim=0, combine_mode="generic")


def recurrence(self: Any, x: Tensor) -> Any:
    """The first-order recurrence that state space models scan for, with a buffer in it."""

    def combine(a: Any, b: Any) -> Any:
        return a["g"] * b["g"] * self.bias, self.bias * b["g"] * a["s"] + b["s"]

    def joined(a: Any, b: Any) -> Any:
        g, s = combine(a, b)
        return {"g": g, "s": s}

    return associative_scan(joined, {"g": x.sigmoid(), "s": x}, dim=0, reverse=True, combine_mode="generic")


def matrix_products(self: Any, x: Tensor) -> Tensor:
    return associative_scan(lambda a, b: a @ b, x, dim=1, combine_mode="generic")


# What torch itself works out, or what means nothing in inference


def wrapped(self: Any, x: Tensor) -> Any:
    with torch.no_grad():
        y = self.linear(x)
    with torch.enable_grad():
        y = y * 2
    with torch.autocast("cpu", enabled=False):
        y = y + self.bias
    y = torch.utils.checkpoint.checkpoint(lambda y: self.norm(y).relu(), y, use_reentrant=False)
    [y] = torch._higher_order_ops.strict_mode(lambda y: (y * 2,), (y,))
    return torch.ops.higher_order.hints_wrapper(lambda y: y * 2 + 1, (y,), {}, hints={"a": 1})


def wider(self: Any, x: Tensor, y: Tensor) -> Tensor:
    return torch.ops.higher_order.out_dtype(torch.ops.aten.mm.default, torch.int32, x, y)


def half_region(self: Any, x: Tensor) -> Any:
    with torch.autocast("cpu", dtype=torch.float16):
        y = self.linear(x)
        z = torch.nn.functional.layer_norm(y, (3,)) + x.sum()
        with torch.autocast("cpu", enabled=False):
            w = x @ self.weight
    return y, z, w


def convolutions(self: Any, x: Tensor) -> Tensor:
    weight = torch.ones(2, 1, 1, 3) * self.bias[0]
    return torch.vmap(lambda row: torch.nn.functional.conv2d(row[None, None, None], weight, padding=1)[0])(x)


def pairs(self: Any, x: Tensor, y: Tensor) -> Tensor:
    return torch.vmap(lambda a: torch.vmap(lambda b: (a * b).sum() + self.bias[0])(y))(x)


def scored(self: Any, q: Tensor, k: Tensor, v: Tensor) -> Any:
    def score_mod(score: Tensor, b: Tensor, h: Tensor, m: Tensor, n: Tensor) -> Tensor:
        return score + self.bias[h] - (m - n).abs() * 0.1

    return flex_attention(q, k, v, score_mod=score_mod, return_lse=True)


def masked(self: Any, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return flex_attention(q, k, v, block_mask=self.mask, enable_gqa=True)


def masked_inside(self: Any, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    mask = create_block_mask(lambda b, h, m, n: m >= n, None, None, q.shape[2], k.shape[2], "cpu")
    return flex_attention(q, k, v, block_mask=mask)


def _x(rows: int = 5, seed: int = 1, sign: float = 1.0) -> Tensor:
    return floats(rows, 3, seed=seed).abs() * sign


def _attention(heads: int = 2, length: int = 16) -> tuple[Tensor, ...]:
    return (
        floats(2, 2, length, 8, seed=length),
        floats(2, heads, length, 8, seed=1 + length),
        floats(2, heads, length, 8, seed=2 + length),
    )


_ROWS = ({0: FREE},)
_BOTH = [(_x(9),), (_x(3, sign=-1.0),)]
_LATER = [(_x(5, seed=2),), (_x(5, sign=-1.0),)]
_OUTPUTS = {"mutations": "outputs"}
_PATHS = [(_x(4) * torch.tensor([a, b, c]),) for a in (1.0, -1.0) for b in (1.0, -1.0) for c in (3.0, -3.0)]
_FLAGS = [(_x(), torch.tensor(False)), (_x(), torch.tensor(True))]

CASES = [
    Case("cond", captured, (_x(),), _BOTH, _ROWS),
    Case("cond-nested-results", nested_results, (_x(),), _BOTH, _ROWS),
    Case("cond-ints", returned_ints, (_x(),), _BOTH, _ROWS, options={"narrow": True}),
    Case("cond-size", size_predicate, (_x(),), _BOTH, _ROWS),
    Case("cond-size-known", size_predicate, (_x(),)),
    Case("cond-given", given_predicate, _FLAGS[1], _FLAGS),
    Case("cond-other-sizes", other_sizes, (_x(),), _BOTH, _ROWS, options={"narrow": True}),
    Case("cond-other-sizes-known", other_sizes, (_x(),), _LATER),
    Case("cond-constants", made_of_nothing, (_x(),), _BOTH, _ROWS, lowest=9),
    Case("cond-in-cond-in-cond", three_deep, (_x(),), _PATHS, _ROWS),
    Case("cond-decomposed", decomposed, (_x(),), _BOTH, _ROWS, lowest=9),
    Case("cond-written-operand", written_operand, (_x(),), _LATER),
    Case("cond-written-view", written_view, (_x(),), _LATER),
    Case("cond-written-below", written_below, (_x(),), [(_x() * torch.tensor([-1, 1, 1.0]),), *_LATER]),
    Case("cond-written-buffer", written_buffer, (_x(),), _LATER, options=_OUTPUTS),
    Case("cond-written-inside", written_inside, (_x(),), _LATER),
    Case("while", counted, (_x(),), _BOTH, _ROWS, lowest=9),
    Case("while-converged", until_converged, (_x(),), [(_x(2) * 1000,), (_x(7) * 1e-3,)], _ROWS),
    Case("while-ints", symbolic_ints, (_x(),), [(_x(9),), (_x(1),)], _ROWS),
    Case(
        "while-given-trips",
        given_start,
        (_x(), torch.tensor(3)),
        [(_x(), torch.tensor(n)) for n in (0, 1, 7, -2)],
        lowest=9,
    ),
    Case("while-in-while", loop_in_loop, (_x(),), _BOTH, _ROWS, lowest=9),
    Case("while-mixed-types", mixed_types, (_x() / 8,), [(_x() * 9,), (_x(seed=4) / 99,)]),
    Case("while-written", written_in_loop, (_x(),), _LATER, lowest=9),
    Case("while-written-buffer", buffer_in_loop, (_x(),), _LATER, lowest=9, options=_OUTPUTS),
    Case(
        "while-stacked",
        stacked,
        (torch.tensor(3), _x()),
        [(torch.tensor(0), _x()), (torch.tensor(5), _x())],
        lowest=9,
    ),
    Case(
        "scan-cell",
        recurrent,
        (_x(2), floats(6, 2, 3)),
        [(_x(4), floats(9, 4, 3)), (_x(1), floats(1, 1, 3))],
        ({0: FREE}, {0: FREE, 1: FREE}),
    ),
    Case(
        "scan-reverse",
        reverse_dim,
        (_x(4), floats(4, 6, 3)),
        [(_x(2), floats(2, 9, 3)), (_x(2), floats(2, 1, 3))],
        ({0: FREE}, {0: FREE, 1: FREE}),
    ),
    Case(
        "scan-several",
        several,
        (_x(1)[0], floats(5, 3), integers(5)),
        [(_x(1)[0], floats(8, 3), integers(8))],
        ({}, {0: FREE}, {0: FREE}),
    ),
    Case(
        "scan-while-cond",
        everything_nested,
        (_x(1)[0], floats(5, 3)),
        [(_x(1)[0], _x(9)), (-_x(1)[0], -_x(3))],
        ({}, {0: FREE}),
        lowest=9,
    ),
    Case(
        "scan-in-scan",
        scan_in_scan,
        (_x(1)[0], floats(4, 5, 3)),
        [(_x(1)[0], floats(2, 7, 3))],
        ({}, {0: FREE, 1: FREE}),
    ),
    Case("scan-in-cond", scan_in_branch, (_x(),), _BOTH, _ROWS),
    Case("scan-written", written_in_scan, (_x(1)[0], floats(4, 3))),
    Case("map", mapped, (floats(4, 5, 3),), [(floats(2, 7, 3),)], ({0: FREE, 1: FREE},)),
    Case("map-trees", mapped_trees, (floats(4, 3), floats(4, 3, seed=1), floats(3, seed=2))),
    Case("map-cond", mapped_branches, (floats(6, 3),), [(floats(9, 3, seed=7),)], _ROWS),
    Case("associative", products, (_x(),), [(_x(9),), (_x(1),)], _ROWS),
    Case("associative-known", products, (_x(),)),
    Case("associative-one", products, (_x(1),)),
    Case("associative-recurrence", recurrence, (floats(5, 3),), [(floats(8, 3),)], _ROWS),
    Case(
        "associative-matrices",
        matrix_products,
        (floats(2, 4, 3, 3),),
        [(floats(1, 7, 3, 3),)],
        ({0: FREE, 1: FREE},),
    ),
    Case("wrappers", wrapped, (_x(),), _BOTH, _ROWS),
    Case(
        "out-dtype",
        wider,
        (integers(3, 4, dtype=torch.int8, low=-128, high=128), integers(4, 2, dtype=torch.int8)),
    ),
    Case("autocast", half_region, (_x(),), [(_x(8),)], _ROWS, tolerance=2e-2),
    Case("convolution in vmap", convolutions, (_x(),), [(_x(2),), (_x(20),)], ({0: FREE},)),
    Case("vmap", pairs, (_x(), _x(4)), [(_x(2), _x(7))], ({0: FREE}, {0: FREE})),
    Case("flex-score", scored, _attention(), [_attention()], lowest=9),
    Case("flex-mask", masked, _attention(1), lowest=9),
    Case("flex-mask-inside", masked_inside, _attention(), lowest=9),
]
