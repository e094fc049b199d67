"""Calls symbolic functions, and converts arguments to the types of their annotations.

If an annotation includes `Value`, graph values are passed unchanged. If it needs a constant (`int`, `float`,
`bool`, `list[int]`, `DataType`), a constant graph value is converted, and a computed one is an error that
names the operator, the argument, and the lowest opset that takes a computed value.
"""

from __future__ import annotations

import collections.abc
import dataclasses
import functools
import inspect
import keyword
import re
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from onnx_ir import Value

from ..construction.builder import GraphBuilder
from ..errors import ArgumentError, RegistrationError
from ..kinds import is_value
from ..printable import shortened
from .surplus_arguments import is_surplus

_LISTS = (list, tuple, collections.abc.Sequence)


@dataclasses.dataclass(frozen=True)
class SymbolicParameter:
    """The types that the annotation of a symbolic function's parameter allows."""

    name: str
    required: bool
    value: bool
    """A graph value."""
    element_value: bool
    """A list with graph values in it."""
    number: bool
    """A single Python number."""
    integer: bool
    """A single Python int (a parameter that admits only float converts an int)."""
    sequence: bool
    """A list."""
    floats: bool
    """Only a list of floats (it converts ints)."""
    elements: tuple[type, ...]
    """The types of list elements; empty if the annotation does not list plain types."""

    @functools.cached_property
    def unconverted_types(self) -> frozenset[type]:
        """Types of arguments that need no conversion."""
        types_of_arguments: set[type] = {type(None), str}
        if self.value:
            types_of_arguments.add(Value)
        if self.number:
            types_of_arguments |= {float, bool, int} if self.integer else {float, bool}
        return frozenset(types_of_arguments)

    @functools.cached_property
    def unconverted_element_types(self) -> frozenset[type]:
        """Types of list elements that need no conversion."""
        return frozenset(self.elements)


def _argument(parameter: str) -> str:
    # ATen has arguments called `from` and `lambda`, which Python spells `from_` and `lambda_`.
    plain = parameter.removesuffix("_")
    return plain if keyword.iskeyword(plain) else parameter


def _members(annotation: object) -> list[Any]:
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        return [leaf for member in typing.get_args(annotation) for leaf in _members(member)]
    return [annotation]


def _parameter(name: str, annotation: object, required: bool) -> SymbolicParameter:
    members = _members(annotation)
    lists = [member for member in members if member in _LISTS or typing.get_origin(member) in _LISTS]
    elements = [leaf for member in lists for inner in typing.get_args(member) for leaf in _members(inner)]
    anything = annotation is Any
    return SymbolicParameter(
        name=name,
        required=required,
        value=anything or Value in members,
        element_value=anything or Value in elements,
        number=anything or bool({int, float, bool, complex} & set(members)),
        integer=anything or int in members or bool in members,
        sequence=anything or bool(lists),
        floats=float in elements and int not in elements and bool not in elements,
        elements=tuple(elements) if all(isinstance(leaf, type) for leaf in elements) else (),
    )


@dataclasses.dataclass(frozen=True, eq=False)
class SymbolicFunction:
    """A function registered for an operator, with its parsed signature.

    Attributes:
        name: the qualified operator name it was registered for.
        opset: the opset it was registered at.
        function: the function itself, as its author wrote it.
    """

    name: str
    opset: int
    function: Callable[..., Any]

    @functools.cached_property
    def checked_function(self) -> Callable[..., Any]:
        """The function with beartype's checks; made at its first call, because most are never called."""
        # A command that calls no symbolic function starts faster without importing beartype.
        import beartype

        return beartype.beartype(self.function)

    @functools.cached_property
    def required_parameters(self) -> list[str]:
        """The names of the parameters without a default."""
        return [parameter.name for parameter in self.parameters.values() if parameter.required]

    @functools.cached_property
    def takes_any(self) -> bool:
        """Whether it takes arguments without a parameter, with `**attributes`."""
        parameter_kinds = [p.kind for p in inspect.signature(self.function).parameters.values()]
        return inspect.Parameter.VAR_KEYWORD in parameter_kinds

    @functools.cached_property
    def parameters(self) -> dict[str, SymbolicParameter]:
        """Its parameters after `g` by the name of their argument, in order.

        An argument whose name is a Python keyword, such as `from`, has a parameter with an underscore
        appended.

        Raises:
            RegistrationError: an annotation cannot be evaluated.
        """
        try:
            hints = typing.get_type_hints(self.function)
        except (NameError, TypeError) as error:
            raise RegistrationError(
                f"the annotations of the symbolic function of {self.name} cannot be evaluated: {error}"
            ) from error
        signature = inspect.signature(self.function)
        # The first parameter is the context.
        formal_parameters = list(signature.parameters.values())[1:]
        return {
            _argument(p.name): _parameter(
                p.name, hints.get(p.name, Any), p.default is inspect.Parameter.empty
            )
            for p in formal_parameters
            if p.kind is not inspect.Parameter.VAR_KEYWORD
        }

    def __call__(self, g: GraphBuilder, arguments: Mapping[str, object]) -> Any:
        """Call the function with arguments by schema name.

        Raises:
            ArgumentError: an argument is unknown, missing, not constant, or of a wrong type.
        """
        parameters = self.parameters
        call_arguments = {}
        for name, argument in arguments.items():
            parameter = parameters.get(name)
            if parameter is None:
                if is_surplus(self.name, name, argument):
                    continue
                if not self.takes_any:
                    raise ArgumentError(f"the symbolic function of {self.name} has no parameter '{name}'")
                call_arguments[name] = argument
                continue
            if type(argument) in parameter.unconverted_types:
                call_arguments[parameter.name] = argument
            else:
                call_arguments[parameter.name] = _coerce(g, self, parameter, argument)
        for name_of_required in self.required_parameters:
            if name_of_required not in call_arguments:
                raise ArgumentError(f"{self.name} needs argument '{name_of_required}'")
        try:
            return self.checked_function(g, **call_arguments)
        except _violation() as error:
            raise _explain_violation(self, call_arguments, error) from None

    def call(self, g: GraphBuilder, positional: Sequence[object], named: Mapping[str, object]) -> Any:
        """Call the function with arguments by position and by schema name.

        Raises:
            ArgumentError: there are too many, one is passed twice, or see `__call__`.
        """
        if not positional:
            return self(g, named)
        order = list(self.parameters)
        if len(positional) > len(order):
            raise ArgumentError(
                f"{self.name} has {len(order)} parameters, but was called with {len(positional)} arguments"
            )
        twice = next((key for key in order[: len(positional)] if key in named), None)
        if twice is not None:
            raise ArgumentError(f"{self.name} has two values for argument '{twice}'")
        return self(g, {**dict(zip(order, positional, strict=False)), **named})


def _coerce(
    g: GraphBuilder, symbolic: SymbolicFunction, parameter: SymbolicParameter, argument: object
) -> object:
    if is_value(argument):
        if parameter.value:
            return argument
        argument = _constant(g, symbolic, parameter, argument)
    if isinstance(argument, (list, tuple)):
        if parameter.unconverted_element_types.issuperset(map(type, argument)):
            return list(argument)
        return [_element(g, symbolic, parameter, item, argument) for item in argument]
    if isinstance(argument, (bool, int, float, complex)):
        if parameter.number:
            # beartype would refuse an int for a float, which Python and ATen take.
            return float(argument) if type(argument) is int and not parameter.integer else argument
        if parameter.sequence:
            return [argument]
        if parameter.value:
            return g.constant(argument)
    return argument


def _element(
    g: GraphBuilder, symbolic: SymbolicFunction, parameter: SymbolicParameter, item: object, argument: object
) -> object:
    if not parameter.element_value and is_value(item):
        item = _constant(g, symbolic, parameter, item)
    if parameter.floats and type(item) is int:
        return float(item)
    # beartype checks only one element of a list.
    if parameter.elements and not isinstance(item, parameter.elements):
        type_names = " or ".join(leaf.__name__ for leaf in parameter.elements)
        raise ArgumentError(
            f"argument '{parameter.name}' of {symbolic.name} must be a list of {type_names}, not "
            f"{shortened(argument)}"
        )
    return item


def _constant(
    g: GraphBuilder, symbolic: SymbolicFunction, parameter: SymbolicParameter, argument: Value
) -> object:
    array = g.constant_value(argument)
    if array is not None:
        return array.tolist() if isinstance(array, np.ndarray) else array
    first = g.registry.first_opset_where(
        symbolic.name,
        g.opset,
        # Computed values need a function with a graph value there.
        lambda later: parameter.name in later.parameters and later.parameters[parameter.name].value,
    )
    raise ArgumentError(
        f"argument '{parameter.name}' of {symbolic.name} must be constant at opset {g.opset}"
        + (f"; from opset {first} it may be computed" if first else ""),
        first_opset=first,
    )


def _violation() -> type[Exception]:
    """The exception of beartype for an argument of a wrong type."""
    import beartype.roar

    return beartype.roar.BeartypeCallHintParamViolation


def _explain_violation(
    symbolic: SymbolicFunction, call_arguments: Mapping[str, object], error: Exception
) -> ArgumentError:
    # beartype's message quotes the whole value; name the argument and its type instead.
    hints = typing.get_type_hints(symbolic.function)
    match = re.search(r" parameter (\w+)=", str(error))
    if match is not None and match[1] in call_arguments:
        name = match[1]
        argument, expected = call_arguments[name], hints[name]
        is_class = isinstance(expected, type) and not typing.get_args(expected)
        type_name = expected.__name__ if is_class else re.sub(r"(\w+\.)+", "", str(expected))
        # Users know tensors; `Value` is a class of this package.
        type_name = type_name.replace("Value", "tensor")
        description = (
            "a graph value"
            if isinstance(argument, Value)
            else f"{type(argument).__name__} {shortened(argument)}"
        )
        return ArgumentError(f"argument '{name}' of {symbolic.name} must be {type_name}, not {description}")
    return ArgumentError(f"an argument of {symbolic.name} has a wrong type: {error}")
