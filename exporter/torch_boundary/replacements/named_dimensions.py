"""Gives one symbol to all dimensions to which the caller gave the same name."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

import sympy
import torch
from torch.export import _trace
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from ..containers import pytree
from ..export_internals import non_strict_utils
from ..process.process_state import replace_attribute


@contextlib.contextmanager
def unify_symbols(names: Mapping[tuple[int, int], str]) -> Iterator[None]:
    """Within the context, captures without TorchDynamo give one symbol to the dimensions of one name.

    By default torch makes two symbols one when the model compares them. Until then it records assumptions
    about both, each of which takes milliseconds.

    Args:
        names: by the position of a leaf of the call `(args, kwargs)`, and the axis. Dimensions of one name
            have one size in the example.
    """
    make = non_strict_utils.make_fake_inputs

    def make_inputs(*args: object, **kwargs: object) -> object:
        fake_inputs = make(*args, **kwargs)  # type: ignore[no-untyped-call]
        mode, positional, named = fake_inputs[:3]
        _unify(mode.shape_env, pytree.tree_leaves((positional, named)), names)
        return fake_inputs

    # `_trace` has imported the function under its own name, so both names are patched.
    with (
        replace_attribute(non_strict_utils, "make_fake_inputs", make_inputs),
        replace_attribute(_trace, "make_fake_inputs", make_inputs),
    ):
        yield


def _unify(environment: ShapeEnv, leaves: list[torch.Tensor], names: Mapping[tuple[int, int], str]) -> None:
    symbols: dict[str, sympy.Expr] = {}
    for (leaf, axis), name in names.items():
        size = leaves[leaf].shape[axis]
        assert isinstance(size, torch.SymInt), "a named dimension is dynamic"
        symbol = environment.replace(size.node.expr)
        # An earlier dimension of this name may itself have been replaced.
        first = environment.replace(symbols.setdefault(name, symbol))
        if first != symbol:
            environment._set_replacement(symbol, first, "dimensions of one name")
