"""Tells torch what the caller says about dimensions: their ranges, and which are the same."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Mapping

import sympy
import torch
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from ...captured_graph.dimensions import Dimension
from ..containers import pytree
from ..export_internals import non_strict_utils
from ..process.process_state import replace_attribute
from ..process.silence import TRACER
from ..symbolic_numbers import example_sizes
from ..symbolic_sizes import ValueRanges, int_oo


@contextlib.contextmanager
def declare_symbols(dimensions: Mapping[tuple[int, int], Dimension]) -> Iterator[None]:
    """Within the context, captures without TorchDynamo know the names and ranges of dimensions.

    The dimensions of one name have one symbol. By default torch makes two symbols one when the model compares
    them. Until then it records assumptions about both, each of which takes milliseconds.

    Args:
        dimensions: by the position of a leaf of the call `(args, kwargs)`, and the axis. Dimensions of one
            name have one size in the example.
    """
    make = non_strict_utils.make_fake_inputs

    def make_inputs(*args: object, **kwargs: object) -> object:
        fake_inputs = make(*args, **kwargs)  # type: ignore[no-untyped-call]
        mode, positional, named = fake_inputs[:3]
        _declare(mode.shape_env, pytree.tree_leaves((positional, named)), dimensions)
        return fake_inputs

    with contextlib.ExitStack() as stack:
        # The tracer has imported the function under its own name, so both names are patched.
        for module in (non_strict_utils, sys.modules.get(TRACER)):
            if module is not None:
                stack.enter_context(replace_attribute(module, "make_fake_inputs", make_inputs))
        yield


def _declare(
    environment: ShapeEnv, leaves: list[torch.Tensor], dimensions: Mapping[tuple[int, int], Dimension]
) -> None:
    symbols: dict[str, sympy.Expr] = {}
    for (leaf, axis), dimension in dimensions.items():
        size = leaves[leaf].shape[axis]
        assert isinstance(size, torch.SymInt), "a named dimension is dynamic"
        symbol = environment.replace(size.node.expr)
        if symbol.is_Symbol and has_range(dimension):
            _narrow(environment, symbol, dimension)
        # An earlier dimension of this name may itself have been replaced.
        first = environment.replace(symbols.setdefault(dimension.name, symbol))
        if first != symbol:
            environment._set_replacement(symbol, first, "dimensions of one name")


def has_range(dimension: Dimension) -> bool:
    """Whether a dimension has a range that torch, which assumes that sizes are at least 2, does not know."""
    return dimension.minimum > 2 or dimension.maximum is not None


def _narrow(environment: ShapeEnv, symbol: sympy.Symbol, dimension: Dimension) -> None:
    """Narrow the range of a symbol. The size of the capture, which may not be the example's, stays in it."""
    size = int(example_sizes(environment)[symbol])
    upper = int_oo if dimension.maximum is None else max(dimension.maximum, size)
    environment._update_var_to_range(symbol, ValueRanges(min(dimension.minimum, size), upper))
