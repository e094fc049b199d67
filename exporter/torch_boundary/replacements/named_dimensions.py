"""Tells torch the ranges of the caller's named dimensions, and which dimensions are equal."""

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
    """Declare the names and ranges of dimensions to captures without TorchDynamo, within the context.

    Dimensions with the same name get the same symbol from the start. By default torch unites two symbols when
    the model compares them, and until then records assumptions about both, milliseconds for each.

    Args:
        dimensions: the dimensions, by (index of the tensor in the flattened call `(args, kwargs)`, axis).
            Dimensions with the same name have the same size in the example.
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
    """Whether a dimension's range is narrower than torch's default, which is every size from 2 on."""
    return dimension.minimum > 2 or dimension.maximum is not None


def _narrow(environment: ShapeEnv, symbol: sympy.Symbol, dimension: Dimension) -> None:
    """Narrow the range of a symbol; the size used for capture, which may be outside, stays in the range."""
    size = int(example_sizes(environment)[symbol])
    upper = int_oo if dimension.maximum is None else max(dimension.maximum, size)
    environment._update_var_to_range(symbol, ValueRanges(min(dimension.minimum, size), upper))
