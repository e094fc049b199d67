"""Converts the example call, names and dynamic axes of `torch.onnx.export` to opsetta's arguments."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Mapping, Sequence
from typing import cast

from ...exporter.capture.sizes.requests.axis_labels import AxisLabel
from ...exporter.export_arguments import ExportableModel
from ...registration import UsageError
from ...registration.warning import warn
from .keywords import ExportOptions


@dataclasses.dataclass
class Call:
    """The arguments of a capture.

    Attributes:
        args, kwargs: the example arguments.
        input_names, output_names: the caller's names, possibly too many.
        dynamic_shapes, dynamic_axes: at most one of them is set.
    """

    model: ExportableModel
    args: tuple[object, ...]
    kwargs: dict[str, object]
    input_names: Sequence[str] | None
    output_names: Sequence[str] | None
    dynamic_shapes: object
    dynamic_axes: dict[str, dict[int, object]] | None


def example_call(options: ExportOptions) -> Call:
    """Convert the arguments of `torch.onnx.export` to a call.

    Raises:
        UsageError: `kwargs` or `dynamic_axes` is no dict, or a dict at the end of `args` is an argument.
    """
    import torch

    model = options.model
    exportable = getattr(torch.onnx, "ExportableModule", ())
    if isinstance(model, exportable) and not options.args and not options.kwargs:
        args, kwargs = model.example_arguments()
        own_values = {
            name: getattr(model, name)()
            for name in ("input_names", "output_names", "dynamic_shapes")
            if getattr(options, name) is None
        }
        options = dataclasses.replace(options, args=args, kwargs=kwargs, **own_values)
    args, kwargs = _split_arguments(model, options.args, options.kwargs)
    shapes, axes = options.dynamic_shapes, options.dynamic_axes
    if isinstance(model, torch.export.ExportedProgram):
        args, kwargs, axes = (), {}, None
    elif not options.dynamo and (signature := _signature(model)) is not None:
        # The inputs of a trace have the order of the forward's parameters.
        positions = {name: position for position, name in enumerate(signature.parameters)}
        names = sorted(kwargs, key=lambda name: positions.get(name, len(positions)))
        kwargs = {name: kwargs[name] for name in names}
    return Call(
        cast("ExportableModel", model),
        args,
        kwargs,
        _names(options.input_names),
        _names(options.output_names),
        label_axes(shapes),
        _label_dynamic_axes(axes) if shapes is None and axes else None,
    )


def _names(names: Sequence[str] | None) -> Sequence[str] | None:
    return names if names is None or isinstance(names, str) else list(names)


def _split_arguments(
    model: object, args: object, kwargs: object
) -> tuple[tuple[object, ...], dict[str, object]]:
    """Split positional and keyword arguments; a dict at the end of `args` has the latter."""
    if kwargs is not None and not isinstance(kwargs, Mapping):
        raise UsageError(
            f"kwargs must be a dict of the model's keyword arguments, not {type(kwargs).__name__}"
        )
    positional = tuple(args) if isinstance(args, (tuple, list)) else (args,)
    if kwargs or not positional or not isinstance(positional[-1], dict):
        return positional, dict(kwargs or {})
    *leading, last = positional
    if not last and leading and isinstance(leading[-1], dict):
        # opsetta takes a dict at the end as keywords, so one that is an argument is passed by its keyword.
        signature = _signature(model)
        names = [] if signature is None else list(signature.parameters)
        if len(names) >= len(leading):
            return tuple(leading[:-1]), {names[len(leading) - 1]: leading[-1]}
    _check_keywords(model, leading, last)
    return tuple(leading), dict(last)


def _check_keywords(model: object, leading: Sequence[object], last: Mapping[str, object]) -> None:
    """Refuse a dict at the end of `args` that the model takes as an argument, not as keywords.

    torch.onnx refuses it, too.

    Raises:
        UsageError: the model does not take the dict's keys as keywords, but the dict as an argument.
    """
    signature = _signature(model)
    if signature is None or last.keys() <= signature.parameters.keys():
        return
    try:
        signature.bind(*leading, **last)
    except TypeError as error:
        try:
            *_, name = signature.bind(*leading, last).arguments
        except TypeError:
            return
        raise UsageError(
            f"torch.onnx takes a dict at the end of args as keywords, which the model does not have: "
            f"{error}. If the dict is the argument '{name}', put an empty dict after it, args=(..., {{...}}, "
            f"{{}}), or pass kwargs={{'{name}': {{...}}}}"
        ) from None


def _signature(model: object) -> inspect.Signature | None:
    """The signature of the model's forward; None for builtins and others that have none."""
    try:
        function = getattr(model, "forward", model)
        return inspect.signature(function) if callable(function) else None
    except (TypeError, ValueError):
        return None


def label_axes(shapes: object) -> object:
    """Convert dynamic shapes so that names only label axes, because torch.onnx does not compare them."""
    if isinstance(shapes, str):
        return AxisLabel(shapes)
    if isinstance(shapes, Mapping):
        return {key: label_axes(entry) for key, entry in shapes.items()}
    if isinstance(shapes, (list, tuple)):
        return (
            # A named tuple takes its entries as separate arguments, so it stays as it is.
            type(shapes)(label_axes(entry) for entry in shapes) if type(shapes) in (list, tuple) else shapes
        )
    return shapes


def _label_dynamic_axes(dynamic_axes: object) -> dict[str, dict[int, object]]:
    """Convert `dynamic_axes` to `{"input": {0: label}}`; a list of axes gets torch.onnx's names.

    Raises:
        UsageError: it has another form.
    """
    if not isinstance(dynamic_axes, Mapping):
        raise UsageError(
            f"dynamic_axes must be a dict from names to axes, such as {{'x': {{0: 'batch'}}}}, not "
            f"{type(dynamic_axes).__name__}"
        )
    labels_by_name: dict[str, dict[int, object]] = {}
    for name, axes in dynamic_axes.items():
        if isinstance(axes, Mapping):
            labels_by_name[name] = {axis: label_axes(label) for axis, label in axes.items()}
        elif axes is None or isinstance(axes, (list, tuple)):
            distinct_axes = list(dict.fromkeys(axes or ()))
            if len(distinct_axes) < len(axes or ()):
                warn(f"dynamic_axes['{name}'] names an axis twice")
            labels_by_name[name] = {
                # torch.onnx counts the axes from 1 in the order of the list.
                axis: AxisLabel(f"{name}_dynamic_axes_{index + 1}")
                for index, axis in enumerate(distinct_axes)
            }
        else:
            raise UsageError(f"dynamic_axes['{name}'] must be a dict or a list of axes, not {axes!r}")
    return labels_by_name
