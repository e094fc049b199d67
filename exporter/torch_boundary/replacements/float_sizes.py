"""Floats that torch.export computes from sizes: each operation is rounded as Python rounds it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from torch.fx.experimental import proxy_tensor
from torch.fx.experimental.sym_node import SymNode, method_to_operator

from ..process.process_state import replaced
from ..symbolic_sizes import FLOAT_ARITHMETIC


@contextlib.contextmanager
def in_order() -> Iterator[None]:
    """Within the context, sympy does not reorder sums and products of floats."""
    with contextlib.ExitStack() as stack:
        for name in FLOAT_ARITHMETIC:
            original = getattr(SymNode, f"_{name}")
            stack.enter_context(replaced(SymNode, f"_{name}", _ordered(name, original)))
        yield


def _ordered(name: str, original: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """The method of a symbolic number for a sum, difference or product.

    Args:
        original: torch's method.
    """
    expression_of = FLOAT_ARITHMETIC[name]
    operator = method_to_operator(name)

    def method(self: Any, other: Any) -> Any:
        # A tracer records the operation, and then calls this method again.
        is_traced = proxy_tensor.get_proxy_mode() is not None
        if is_traced or not isinstance(other, SymNode) or float not in (self.pytype, other.pytype):
            return original(self, other)
        hints = (self.hint, other.hint)
        hint = None if None in hints else operator(*hints)
        return SymNode(expression_of(self.expr, other.expr), self.shape_env, float, hint)

    return method
