"""Registers operators by table, and operators that differ from another one only in their parameters."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from ...registration import ArgumentError, GraphContext, SymbolicFunction, Value, onnx_symbolic

Result = TypeVar("Result")


def register_table(domain: str, table: str) -> None:
    """Register operators whose operands another operator takes in the same order.

    A line is `operands: operators`. `Name` stands for the ONNX operator of that name, `Name=Other` for the
    ONNX operator `Other`, and `Name=aten::other` for a symbolic function.
    """
    for line in table.strip().splitlines():
        operands, _, operators = line.partition(": ")
        for item in operators.split():
            name, _, function = item.partition("=")
            _register(f"{domain}::{name}", operands.split(), _emitter(function or name))


def register_functions(domain: str, operands: str, functions: Mapping[str, Callable[..., Value]]) -> None:
    """Register operators with these operands; the functions take them in the same order."""
    for name, function in functions.items():
        _register(f"{domain}::{name}", operands.split(), function)


def _emitter(function: str) -> Callable[..., Value]:
    return lambda g, *values: g.call(function, *values) if "::" in function else g.op(function, *values)


def _register(name: str, operands: Sequence[str], function: Callable[..., Value]) -> None:
    def emit(g: GraphContext, **arguments: Value) -> Value:
        values = [arguments[operand] for operand in operands]
        # beartype checks only parameters that stand in the code.
        if not all(isinstance(value, Value) for value in values):
            raise ArgumentError(f"the operands of {name} must be graph values")
        return function(g, *values)

    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    parameters = [inspect.Parameter(operand, kind, annotation=Value) for operand in operands]
    set_parameters(emit, [inspect.Parameter("g", kind), *parameters])
    onnx_symbolic(name)(emit)


def register_variant(
    names: str | Sequence[str],
    function: Callable[..., Result],
    defaults: Mapping[str, object] | None = None,
    **fixed: object,
) -> None:
    """Register a symbolic function for operators that lack some of its parameters.

    Args:
        defaults: the defaults of the operators that differ from those of the function.
        fixed: the arguments for the parameters that the operators do not have.
    """
    name = names if isinstance(names, str) else names[0]
    # The function is called like one that is registered itself, which checks its arguments.
    checked = SymbolicFunction(name, 9, function)

    def variant(g: GraphContext, **arguments: object) -> Result:
        result: Result = checked(g, {**(defaults or {}), **arguments, **fixed})
        return result

    parameters = inspect.signature(function).parameters
    set_parameters(variant, [p for p in parameters.values() if p.name not in fixed])
    # The annotations are text, which is evaluated in the function's module.
    variant.__wrapped__ = function  # type: ignore[attr-defined]
    onnx_symbolic([name] if isinstance(names, str) else list(names))(variant)


def set_parameters(function: Callable[..., object], parameters: Sequence[inspect.Parameter]) -> None:
    """Give a function with `**arguments` the parameters by which the dispatcher binds and converts."""
    function.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    function.__annotations__ = {
        p.name: p.annotation for p in parameters if p.annotation is not inspect.Parameter.empty
    }
