"""Makes torch.export compute float operations and integer divisions of sizes as Python does."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from torch.fx.experimental import proxy_tensor
from torch.fx.experimental.sym_node import SymNode, method_to_operator

from ..process.process_state import replace_attribute
from ..symbolic_sizes import FLOAT_ARITHMETIC, INTEGER_DIVISION

Operation = Callable[[SymNode, SymNode], SymNode]


@contextlib.contextmanager
def keep_order() -> Iterator[None]:
    """Keep torch from reordering sums and products of floats, and from joining negative divisors."""
    with contextlib.ExitStack() as stack:
        for name in FLOAT_ARITHMETIC:
            original = getattr(SymNode, f"_{name}")
            stack.enter_context(replace_attribute(SymNode, f"_{name}", _make_method(name, original)))
        yield


def _make_method(name: str, original: Operation) -> Operation:
    """Make a `SymNode` method that computes a sum, difference, product, quotient or remainder as Python does.

    Args:
        name: the operation in torch's table, such as `int_floordiv`.
        original: torch's method, called for all other operands.
    """
    operator = method_to_operator(name)

    def method(self: SymNode, operand: SymNode) -> SymNode:
        # A tracer records the operation, and then calls this method again.
        is_traced = proxy_tensor.get_proxy_mode() is not None
        if is_traced or not isinstance(operand, SymNode):
            return original(self, operand)
        operand_types = (self.pytype, operand.pytype)
        result_type = float if float in operand_types else int
        expressions = FLOAT_ARITHMETIC if result_type is float else INTEGER_DIVISION
        if name not in expressions or bool in operand_types:
            return original(self, operand)
        # For divisors that are not negative torch computes the same, and also finds the range of the result.
        if result_type is int and (
            operand.expr.is_nonnegative or (name == "mod" and not operand.expr.is_negative)
        ):
            return original(self, operand)
        hints = (self.hint, operand.hint)
        hint = None if None in hints else operator(*hints)
        return SymNode(expressions[name](self.expr, operand.expr), self.shape_env, result_type, hint)

    return method
