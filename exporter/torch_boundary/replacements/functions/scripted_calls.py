"""Keeps sizes dynamic that a traced model passes to TorchScript functions.

In a trace a size is a tensor. TorchScript converts it for a parameter that is a number, and the trace would
then contain the number of the example. So the function is called through a scripted wrapper, which takes the
tensor and converts it.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from .....registration import CaptureError
from ...containers import pytree
from ...process.process_state import replace_attribute
from ...torchscript import define_function

_NUMBERS = ("int", "float", "bool")
_ScriptedCall = Callable[..., object]


@contextlib.contextmanager
def keep_sizes() -> Iterator[None]:
    """Record sizes that are passed to TorchScript functions as numbers; refuse them for methods."""
    function, method = torch.jit.ScriptFunction, torch.ScriptMethod
    with (
        replace_attribute(function, "__call__", _with_sizes(function.__call__, _call_function)),
        replace_attribute(method, "__call__", _with_sizes(method.__call__, _refuse_method)),
    ):
        yield


def _with_sizes(original: _ScriptedCall, call_with_sizes: _ScriptedCall) -> _ScriptedCall:
    """Wrap a `__call__`: `call_with_sizes` runs if a parameter for numbers gets a tensor, else `original`."""

    # A partial object would not be bound to the function or method.
    @functools.wraps(original)
    def call(scripted: Any, /, *args: object, **kwargs: object) -> object:
        # The schema of a method begins with the module, whatever its name is.
        arguments = scripted.schema.arguments[isinstance(scripted, torch.ScriptMethod) :]
        types = {item.name: item.type.annotation_str for item in arguments}
        named = dict(zip(types, args, strict=False)) | kwargs
        sizes = {
            name
            for name, value in named.items()
            if "Tensor" not in types.get(name, "Tensor")
            and any(isinstance(leaf, torch.Tensor) for leaf in pytree.tree_leaves(value))
        }
        return (
            call_with_sizes(scripted, named, types, sizes) if sizes else original(scripted, *args, **kwargs)
        )

    return call


def _refuse_method(
    scripted: Any, named: Mapping[str, object], types: Mapping[str, str], sizes: set[str]
) -> None:
    name = sorted(sizes)[0]
    raise CaptureError(
        f"the scripted method '{scripted.name}' takes a size as its argument '{name}: {types[name]}', which "
        "a trace fixes at that of the example: let the method read the size from a tensor"
    )


def _call_function(
    scripted: Any, named: Mapping[str, object], types: Mapping[str, str], sizes: set[str]
) -> object:
    """Call a scripted function through a new one that takes the sizes as tensors."""
    parameters: list[str] = []
    arguments: list[str] = []
    values: list[object] = []

    def add_parameter(type_name: str, value: object) -> str:
        name = f"v{len(values)}"
        parameters.append(f"{name}: {type_name}")
        values.append(value)
        return name

    for name, value in named.items():
        if name not in sizes:
            expression = add_parameter(types[name], value)
        else:
            expression = _number_expression(name, value, types[name], add_parameter)
        arguments.append(f"{name}={expression}")
    source = f"def call({', '.join(parameters)}):\n    return callee({', '.join(arguments)})\n"
    return define_function(source, scripted).call(*values)


def _number_expression(
    name: str, value: object, type_name: str, add_parameter: Callable[[str, object], str]
) -> str:
    """Return a TorchScript expression that converts an argument with tensors to a number or list of numbers.

    Args:
        add_parameter: takes the type and value of a new parameter, and returns its name.

    Raises:
        CaptureError: the argument is neither a number nor a list of numbers.
    """
    is_list = isinstance(value, (list, tuple))
    number = type_name
    for generic in ("Optional", "List"):
        if number.startswith(f"{generic}["):
            number = number[len(generic) + 1 : -1]
    if number not in _NUMBERS or (is_list and "List[" not in type_name):
        raise CaptureError(f"a scripted function takes a size in its argument '{name}: {type_name}'")
    members = list(value) if isinstance(value, (list, tuple)) else [value]
    numbers = [
        f"{number}({add_parameter('Tensor', member)})"
        if isinstance(member, torch.Tensor)
        else add_parameter(number, member)
        for member in members
    ]
    return f"[{', '.join(numbers)}]" if is_list else numbers[0]
