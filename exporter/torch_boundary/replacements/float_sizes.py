"""Makes torch.export round each float operation on sizes as Python does."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from torch.fx.experimental import proxy_tensor
from torch.fx.experimental.sym_node import SymNode, method_to_operator

from ..process.process_state import replace_attribute
from ..symbolic_sizes import FLOAT_ARITHMETIC

Operation = Callable[[SymNode, SymNode], SymNode]


@contextlib.contextmanager
def keep_order() -> Iterator[None]:
    """Within the context, sympy does not reorder sums and products of floats."""
    with contextlib.ExitStack() as stack:
        for name in FLOAT_ARITHMETIC:
            original = getattr(SymNode, f"_{name}")
            stack.enter_context(replace_attribute(SymNode, f"_{name}", _make_method(name, original)))
        yield


def _make_method(name: str, original: Operation) -> Operation:
    """The method of a symbolic number for a sum, difference or product.

    Args:
        original: torch's method.
    """
    expression_of = FLOAT_ARITHMETIC[name]
    operator = method_to_operator(name)

    def method(self: SymNode, operand: SymNode) -> SymNode:
        # A tracer records the operation, and then calls this method again.
        is_traced = proxy_tensor.get_proxy_mode() is not None
        if is_traced or not isinstance(operand, SymNode) or float not in (self.pytype, operand.pytype):
            return original(self, operand)
        hints = (self.hint, operand.hint)
        hint = None if None in hints else operator(*hints)
        return SymNode(expression_of(self.expr, operand.expr), self.shape_env, float, hint)

    return method
