"""Adapts a symbolic function of torch.onnx to the registry: passes wrapped values by position."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ... import registration
from ...registration import ArgumentError, SymbolicFunction
from ...registration.arguments import qualified_name
from ...registration.construction.builder import GraphBuilder
from ...registration.functions.dispatch import SymbolicParameter
from ...registration.functions.registry import split_name
from .context import GraphContext, current
from .values import Value

if TYPE_CHECKING:
    import torch


class TorchSymbolicFunction(SymbolicFunction):
    """A function that takes a graph, then all arguments of its operator in schema order."""

    @functools.cached_property
    def parameters(self) -> dict[str, SymbolicParameter]:
        """Its parameters by name; each accepts any type."""
        names = list(inspect.signature(self.function).parameters.values())[1:]
        return {
            p.name: SymbolicParameter(p.name, p.default is p.empty, True, True, True, True, True, False, ())
            for p in names
            if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
        }

    def __call__(self, g: GraphBuilder, arguments: Mapping[str, object]) -> object:
        """Call the function with arguments by schema name, and the defaults of omitted ones.

        Raises:
            ArgumentError: it takes another number of arguments than its operator.
        """
        assert isinstance(g, registration.GraphContext)
        ordered = self._order_arguments(g, arguments)
        context = GraphContext(g, self.opset)
        values = [Value(g, item) for item in ordered]
        try:
            inspect.signature(self.function).bind(context, *values)
        except TypeError as error:
            raise ArgumentError(
                f"the symbolic function of {self.name} cannot be called with the {len(values)} arguments of "
                f"its operator: {error}"
            ) from None
        token = current.set(context)
        try:
            return unwrap(self.function(context, *values))
        finally:
            current.reset(token)

    def _order_arguments(self, g: registration.GraphContext, arguments: Mapping[str, object]) -> list[object]:
        """Return all arguments of the operator in schema order."""
        schema = self._schema(g, arguments)
        if schema is None:
            names = [name for name in self.parameters if name in arguments]
            return [arguments[name] for name in (names if len(names) == len(arguments) else arguments)]
        return [arguments.get(formal.name, formal.default_value) for formal in schema]

    def _schema(
        self, g: registration.GraphContext, arguments: Mapping[str, object]
    ) -> Sequence[torch.Argument] | None:
        """The arguments of the operator's schema; None if the function is called for another operator."""
        node = g.node
        torch = sys.modules.get("torch")
        if torch is None or node is None or qualified_name(node) != split_name(self.name)[0]:
            return None
        packet = getattr(getattr(torch.ops, node.domain), node.op_type, None)
        operator = getattr(packet, node.overload or "default", None) if packet is not None else None
        if operator is None:
            return None
        formals = list(operator._schema.arguments)
        return formals if set(arguments) <= {argument.name for argument in formals} else None


def unwrap(result: object) -> object:
    """Unwrap values, also within lists."""
    if isinstance(result, (list, tuple)):
        return [unwrap(item) for item in result]
    return result.wrapped if isinstance(result, Value) else result
