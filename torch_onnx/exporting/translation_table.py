"""`custom_translation_table`: uses functions of ONNX Script as symbolic functions."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import onnx_ir as ir

from ... import registration
from ...registration import ArgumentError, DataType, UsageError, default_registry
from ...registration.construction.builder import GraphBuilder
from ...registration.functions.dispatch import SymbolicParameter
from ...registration.warning import warn
from ..symbolic_functions.registered import TorchSymbolicFunction
from .script_evaluator import Evaluator

if TYPE_CHECKING:
    import torch

_STORAGE = frozenset({"device", "layout", "pin_memory", "memory_format", "generator"})


class TranslationTable:
    """The functions of a `custom_translation_table`, as an overlay over the default registry.

    Attributes:
        registry: the overlay.
    """

    def __init__(self, table: Mapping[object, Callable[..., object]] | None):
        self.registry = default_registry.fork()
        if table is not None and not isinstance(table, Mapping):
            raise UsageError(
                "custom_translation_table must be a dict from operators to functions, not "
                f"{type(table).__name__}"
            )
        size_functions = [key for key in table or {} if not _is_operator(key)]
        if size_functions:
            names = ", ".join(getattr(key, "__name__", repr(key)) for key in size_functions)
            warn(f"custom_translation_table: {names} have no effect, because opsetta computes sizes itself")
        self._functions = [
            _make_script_function(key, function)
            for key, function in (table or {}).items()
            if _is_operator(key)
        ]
        for function in self._functions:
            self.registry.put_first(function)

    def warn_of_unused(self, source: ir.Model) -> None:
        """Warn of functions for operators that the captured model does not use."""
        unused = [function.called for function in self._functions if not function.nodes]
        if unused:
            present = sorted({f"{node.domain}::{node.op_type}" for node in source.graph if node.domain})
            warn(
                f"custom_translation_table: the model was captured without {', '.join(unused)}; it has "
                f"{', '.join(present)}"
            )


def _is_operator(key: object) -> bool:
    """Whether a key is an operator rather than a Python function on sizes.

    Raises:
        UsageError: it is neither.
    """
    import torch

    if not callable(key):
        raise UsageError(
            f"custom_translation_table has the key {key!r}: keys are operators, such as "
            "torch.ops.aten.gelu.default"
        )
    return isinstance(key, (type(torch.ops.aten.relu.default), type(torch.ops.aten.relu)))


def _make_script_function(key: object, function: object) -> ScriptFunction:
    import torch

    if not callable(function):
        raise UsageError(
            f"custom_translation_table[{key}] must be one function, not {type(function).__name__}"
        )
    overload = isinstance(key, type(torch.ops.aten.relu.default))
    packet, _, name = str(key).rpartition(".") if overload else (str(key), "", "")
    # `aten.gelu` is `aten::gelu` in schemas.
    operator = packet.replace(".", "::", 1)
    return ScriptFunction(operator if name in ("", "default") else f"{operator}.{name}", 1, function, name)


@dataclasses.dataclass(frozen=True, eq=False)
class ScriptFunction(TorchSymbolicFunction):
    """A function of ONNX Script, called with the arguments of its operator.

    Attributes:
        overload: the overload that it applies to, "" for all.
        nodes: the names of the nodes that it was called for.
    """

    overload: str = ""
    nodes: list[str] = dataclasses.field(default_factory=list)

    @property
    def called(self) -> str:
        """The operator as torch calls it: `aten::gelu.default`."""
        return self.name if self.overload != "default" else f"{self.name}.default"

    @functools.cached_property
    def parameters(self) -> dict[str, SymbolicParameter]:
        """Parameters passed by name: none, because `__call__` takes the arguments as a mapping."""
        return {}

    def __call__(self, g: GraphBuilder, arguments: Mapping[str, object]) -> object:
        """Call the function with arguments by schema name.

        Raises:
            ArgumentError: its signature does not match the arguments.
        """
        assert isinstance(g, registration.GraphContext)
        # A function for one overload does not serve the others.
        if self.overload and g.node is not None and (g.node.overload or "default") != self.overload:
            return _find_default_function(g, self.name)(g, arguments)
        self.nodes.append(g.node.name or "" if g.node is not None else "")
        positional, named = self._call_arguments(g, arguments)
        evaluator = Evaluator(g)
        try:
            inspect.signature(self.function).bind(*positional, **named)
        except TypeError as error:
            raise ArgumentError(
                f"the function for {self.called} cannot be called with the operator's arguments: {error}"
            ) from None
        return evaluator.results(self.function, positional, named)

    def _call_arguments(
        self, g: registration.GraphContext, arguments: Mapping[str, object]
    ) -> tuple[list[object], dict[str, object]]:
        """Return the arguments of a call without trailing ones that equal their default."""
        schema = self._schema(g, arguments)
        if schema is None:
            return list(arguments.values()), {}
        positional: list[object] = []
        named: dict[str, object] = {}
        for formal in schema:
            item = arguments.get(formal.name, formal.default_value)
            if not formal.kwarg_only:
                positional.append(item)
            elif formal.name not in _STORAGE and not _is_default(item, formal):
                named[formal.name] = int(item) if isinstance(item, DataType) else item
        formals = [formal for formal in schema if not formal.kwarg_only]
        # A function of ONNX Script may have fewer parameters than a newer schema has arguments.
        while positional and _is_default(positional[-1], formals[len(positional) - 1]):
            positional.pop()
        return positional, named


def _is_default(item: object, formal: torch.Argument) -> bool:
    if not formal.has_default_value() or isinstance(item, ir.Value):
        return False
    return bool(item is None and formal.default_value is None) or _plain_equal(item, formal.default_value)


def _plain_equal(item: object, default: object) -> bool:
    plain = (bool, int, float, str)
    if isinstance(item, Sequence) and isinstance(default, Sequence) and not isinstance(item, str):
        return len(item) == len(default) and all(map(_plain_equal, item, default))
    return isinstance(item, plain) and isinstance(default, plain) and item == default


def _find_default_function(g: registration.GraphContext, name: str) -> registration.SymbolicFunction:
    """Return the function for another overload, as without the table."""
    assert g.node is not None
    function = default_registry.lookup(name, g.node.overload or "", g.opset)
    if function is None:
        raise registration.UnsupportedError(f"{name} has no symbolic function at opset {g.opset}")
    return function
