"""Converts texts, whole numbers and paths of the command line without typer's converters.

typer 0.29 converts every value with pydantic, whose import takes longer than most other work on a small file.
"""

from __future__ import annotations

import functools
import os
import pathlib
import re
from typing import Any, get_args, get_origin

from typer.core import TyperCommand, TyperGroup

_WHOLE_NUMBER = re.compile(r"-?[0-9]{1,9}")


class PlainCommand(TyperCommand):
    """A command that leaves to typer the values that need a check, and those that are wrong."""

    def get_params(self, ctx: Any) -> list[Any]:
        """The parameters of the command, and `--help`."""
        return [_without_pydantic(parameter) for parameter in super().get_params(ctx)]


class PlainGroup(TyperGroup):
    """The group of such commands."""

    def get_params(self, ctx: Any) -> list[Any]:
        """The parameters of the group, and `--help`."""
        return [_without_pydantic(parameter) for parameter in super().get_params(ctx)]


def _without_pydantic(parameter: Any) -> Any:
    # Earlier versions of typer have no descriptor, and do not use pydantic.
    if hasattr(parameter, "type_descriptor"):
        process_with_typer = type(parameter).process_value
        parameter.process_value = functools.partial(_process_value, parameter, process_with_typer)
    return parameter


def _process_value(parameter: Any, process_with_typer: Any, context: Any, value: Any) -> Any:
    """What `Parameter.process_value` returns: the value for the command's function, of a value as parsed."""
    options = parameter.type_descriptor.parameter_info
    annotation = parameter.type_descriptor.annotation
    is_list = get_origin(annotation) is list
    element_type = get_args(annotation)[0] if is_list else annotation
    elements = value or () if is_list else [value]
    plain_value: Any
    if value is None and not parameter.required:
        plain_value = () if parameter.multiple or parameter.nargs == -1 else None
    elif (
        elements
        and options.parser is options.min is options.max is None
        and all(_is_plain(element_type, element) for element in elements)
    ):
        converted = [element_type(element) for element in elements]
        plain_value = converted if is_list else converted[0]
    else:
        return process_with_typer(parameter, context, value)
    return parameter.callback(context, parameter, plain_value) if parameter.callback else plain_value


def _is_plain(annotation: Any, value: Any) -> bool:
    """Whether a type takes the value as it is: a text, digits, or the path of no file or a readable one."""
    if annotation is int and isinstance(value, str):
        return _WHOLE_NUMBER.fullmatch(value) is not None
    if annotation is pathlib.Path and value is not None:
        return os.access(value, os.R_OK) or not os.path.lexists(value)
    return annotation in (bool, float, int, str) and type(value) is annotation
