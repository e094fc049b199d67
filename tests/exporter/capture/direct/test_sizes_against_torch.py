"""Shapes, guards and errors of symbolic sizes: the same as with torch's own `ShapeEnv`, or fewer guards."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import sympy
import torch
import torch.nn.functional as F
from torch._dispatch.python import enable_python_dispatcher
from torch._dynamo.source import ConstantSource
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext
from torch.utils._pytree import tree_leaves

from opsetta.exporter.capture.direct.sizes.environment import SizeEnvironment

X, Y, IMAGE, CUBE = torch.zeros(3, 7), torch.zeros(13), torch.zeros(2, 3, 20, 24), torch.zeros(3, 7, 10)


def prefix(x: torch.Tensor, y: torch.Tensor) -> Any:
    n = int(y.sum())
    torch._check(n >= 0)
    torch._check(n <= x.shape[0])
    return torch.zeros(n, 2), x[:n], torch.arange(n) * 2


def windows(a: torch.Tensor) -> torch.Tensor:
    batch, channels, height, width = a.shape
    split = a.view(batch, channels, height // 4, 4, width // 4, 4)
    return split.permute(0, 2, 4, 1, 3, 5).reshape(-1, channels, 4, 4)


MODELS: dict[str, tuple[Callable[..., Any], Sequence[torch.Tensor]]] = {
    "view": (lambda x, y: [x.view(-1), x.reshape(x.shape[1], x.shape[0]), x.t().reshape(-1)], (X, Y)),
    "one axis for all": (lambda x, y: (x + 1).view(-1, x.shape[0] * x.shape[1]), (X, Y)),
    "sums and products": (
        lambda x, y: torch.zeros((x.shape[0] + 1) * (x.shape[1] + 2), x.shape[0] ** 2 - y.shape[0] % 4),
        (X, Y),
    ),
    "divisions": (
        lambda x, y: torch.zeros(x.numel() * 4 // x.shape[1], (x.shape[0] * 4 + 8) // 4, x.shape[1] // 2),
        (X, Y),
    ),
    "branch": (lambda x, y: x + 1 if x.shape[0] * 2 == x.shape[1] - 1 else x[:1], (X, Y)),
    "equal sizes": (lambda x, y: x + y, (X, X.clone())),
    "product": (lambda x, y: x @ y, (X, torch.zeros(7, 5))),
    "convolution": (lambda a: F.conv2d(a, torch.zeros(8, 3, 3, 3), stride=2, padding=1), (IMAGE,)),
    "pooling": (lambda a: [F.max_pool2d(a, 2), F.avg_pool2d(a, 3, 2, 1)], (IMAGE,)),
    "resizing": (lambda a: [F.interpolate(a, scale_factor=2.0), F.adaptive_avg_pool2d(a, 3)], (IMAGE,)),
    "attention": (lambda a: F.scaled_dot_product_attention(a[None], a[None], a[None]), (CUBE,)),
    "concatenation": (lambda x, y: [torch.cat([x, x * 2], 1), torch.stack([x, x]), x.repeat(2, 3)], (X, Y)),
    "slices": (lambda x, y: [x[:, 1:], x[::2], y[3:8], y[-3:], x[:, : x.shape[1] // 2], y[: len(x)]], (X, Y)),
    "chunks": (lambda x, y: [x.chunk(2, 1), y.split(4)], (X, Y)),
    "padding": (lambda x, y: [y.unfold(0, 3, 2), F.pad(x, (1, 2)), F.pad(y, (0, -len(y) % 4))], (X, Y)),
    "floats": (lambda x, y: [x / math.sqrt(x.shape[1]), torch.zeros(int(x.shape[1] * 0.5))], (X, Y)),
    "rounding": (lambda x, y: torch.zeros(math.ceil(x.shape[0] / 2)), (X, Y)),
    "nonzero": (lambda x, y: [y.nonzero(), torch.zeros(y.nonzero().shape[0] * 2), y[y > 0]], (X, Y)),
    "number of data": (prefix, (X, Y)),
    "branch on data": (lambda x, y: x + 1 if y.sum().item() > 0 else x, (X, Y)),
    "branch on a size of data": (lambda x, y: x + 1 if len(y.nonzero()) > 3 else x, (X, Y)),
    "unique": (lambda x, y: torch.unique(y, return_inverse=True), (X, Y)),
    "repetition": (lambda x, y: torch.repeat_interleave(y, (y > 0).long()), (X, Y)),
    "specialised": (lambda x, y: [torch.zeros(int(x.shape[0])), x.view(3, 7)], (X, Y)),
    "loop": (lambda x, y: [x[i] for i in range(x.shape[0])], (X, Y)),
    "reductions": (lambda x, y: [x.sum(0), x.mean(1, keepdim=True), x.softmax(-1), x.topk(2)], (X, Y)),
    "einsum": (lambda a: torch.einsum("bij,bkj->bik", a, a), (CUBE,)),
    "permutation": (lambda a: a.permute(2, 0, 1).reshape(a.shape[2], -1), (CUBE,)),
    "unflatten": (lambda a: [a.unflatten(2, (2, -1)), a.transpose(0, 1).flatten(1)], (CUBE,)),
    "memory format": (lambda a: a.contiguous(memory_format=torch.channels_last), (IMAGE,)),
    "factories": (lambda x, y: [torch.arange(0, x.shape[1], 2), torch.full((len(x),), x.shape[1])], (X, Y)),
    "sum of sizes": (lambda x, y: torch.zeros(torch.sym_sum([*x.shape, *y.shape])), (X, Y)),
    "checks": (lambda x, y: (torch._check(x.shape[0] <= 5), torch.zeros(6 - x.shape[0])), (X, Y)),
    "choices": (lambda x, y: torch.zeros(torch.sym_ite(x.shape[0] > 2, *x.shape), max(x.shape)), (X, Y)),
    "normalization": (lambda a: [F.layer_norm(a, (24,)), F.group_norm(a, 1)], (IMAGE,)),
    "windows": (windows, (IMAGE,)),
    "multiples": (
        lambda x, y: [
            torch.zeros(
                (y.shape[0] + (4 - y.shape[0] % 4) % 4) // 4,
                (y.shape[0] + 4 - y.shape[0] % 4) // 4,
                -y.shape[0] % 7,
                (2 * y.shape[0] - (3 * x.shape[0]) % 6) % 3,
            ),
            torch.zeros(
                math.ceil((y.shape[0] + x.shape[1]) / 3), y.shape[0] // 2 // 3, (y.shape[0] // 3) % 2
            ),
        ],
        (X, Y),
    ),
    "windows of padding": (
        lambda x, y: F.pad(y, (0, (4 - y.shape[0] % 4) % 4)).view(-1, 4).view((y.shape[0] + 3) // 4, 2, 2),
        (X, Y),
    ),
}


def run(environment: Any, model: Callable[..., Any], examples: Sequence[torch.Tensor]) -> Any:
    """The results of a model on fake tensors, or the kind and first line of its error."""
    mode = FakeTensorMode(shape_env=environment, allow_non_fake_inputs=True, export=True)
    mode.cache_enabled = False
    fakes = [
        mode.from_tensor(
            example,
            source=ConstantSource(f"x{i}"),
            symbolic_context=StatelessSymbolicContext(dynamic_sizes=[DimDynamic.DYNAMIC] * example.ndim),
        )
        for i, example in enumerate(examples)
    ]
    try:
        with mode, enable_python_dispatcher():
            return list(map(described, tree_leaves(model(*fakes))))
    except Exception as error:
        return type(error), str(error).partition("\n")[0]


def described(leaf: Any) -> Any:
    if not isinstance(leaf, torch.Tensor):
        return str(leaf)
    return list(map(expression, leaf.shape)), list(map(expression, leaf.stride())), leaf.is_contiguous()


def expression(size: int | torch.SymInt) -> sympy.Basic:
    return size.node.expr if isinstance(size, torch.SymInt) else sympy.Integer(size)


def are_equal(ours: Any, theirs: Any, points: Sequence[dict[sympy.Symbol, sympy.Integer]]) -> bool:
    """Whether results are equal; expressions of other forms are compared at the sizes of points."""
    if isinstance(ours, sympy.Basic) and isinstance(theirs, sympy.Basic):
        return ours == theirs or (
            bool(points) and all(ours.xreplace(point) == theirs.xreplace(point) for point in points)
        )
    is_pair = type(ours) is type(theirs) and isinstance(ours, (list, tuple)) and len(ours) == len(theirs)
    return (
        all(are_equal(*pair, points) for pair in zip(ours, theirs, strict=True))
        if is_pair
        else ours == theirs
    )


def is_allowed(environment: ShapeEnv, point: dict[sympy.Symbol, sympy.Integer]) -> bool:
    """Whether the guards and ranges allow sizes; a guard that follows from others may narrow a range, too."""
    guards = (guard.expr.xreplace(point) == sympy.true for guard in environment.guards)
    return all(guards) and all(size in environment.var_to_range[symbol] for symbol, size in point.items())


def unbacked_ranges(environment: ShapeEnv) -> dict[sympy.Symbol, Any]:
    ranges = environment.var_to_range.items()
    return {symbol: bounds for symbol, bounds in ranges if symbol.name.startswith("u")}


@pytest.mark.parametrize("name", MODELS)
def test_results_and_allowed_sizes_are_those_of_torch(name: str) -> None:
    theirs, ours = ShapeEnv(), SizeEnvironment()
    our_results, their_results = run(ours, *MODELS[name]), run(theirs, *MODELS[name])
    assert unbacked_ranges(ours) == unbacked_ranges(theirs)
    assert set(map(str, ours.deferred_runtime_asserts)) == set(map(str, theirs.deferred_runtime_asserts))
    symbols = sorted(theirs.var_to_range, key=str)
    sizes = [sympy.Integer(size) for size in (2, 3, 4, 5, 8, 12, 20)]
    points = [
        dict(zip(symbols, chosen, strict=True)) for chosen in itertools.product(sizes, repeat=len(symbols))
    ]
    allowed_points = []
    for point in points[:: 1 + len(points) // 200]:
        assert is_allowed(ours, point) == is_allowed(theirs, point)
        if is_allowed(ours, point):
            allowed_points.append(point)
    # Results need not be equal where torch refuses the sizes.
    assert are_equal(our_results, their_results, allowed_points)
