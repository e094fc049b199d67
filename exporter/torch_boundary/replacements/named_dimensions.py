"""Makes one symbol of the dimensions to which the caller gives one name."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

from torch._export import non_strict_utils
from torch.export import _trace

from ..containers import pytree
from ..process.process_state import replaced


@contextlib.contextmanager
def unified(names: Mapping[tuple[int, int], str]) -> Iterator[None]:
    """Within the context, captures without TorchDynamo give one symbol to the dimensions of one name.

    By default torch makes two symbols one when the model compares them. Until then it records assumptions
    about both, each of which takes milliseconds.

    Args:
        names: by the position of a leaf of the call `(args, kwargs)`, and the axis. Dimensions of one name
            have one size in the example.
    """
    make = non_strict_utils.make_fake_inputs

    def made(*args: Any, **kwargs: Any) -> Any:
        found = make(*args, **kwargs)  # type: ignore[no-untyped-call]
        mode, positional, named = found[:3]
        _unify(mode.shape_env, pytree.tree_leaves((positional, named)), names)
        return found

    with replaced(non_strict_utils, "make_fake_inputs", made), replaced(_trace, "make_fake_inputs", made):
        yield


def _unify(environment: Any, leaves: list[Any], names: Mapping[tuple[int, int], str]) -> None:
    symbols: dict[str, Any] = {}
    for (leaf, axis), name in names.items():
        symbol = environment.replace(leaves[leaf].shape[axis].node.expr)
        first = environment.replace(symbols.setdefault(name, symbol))
        if first != symbol:
            environment._set_replacement(symbol, first, "dimensions of one name")
