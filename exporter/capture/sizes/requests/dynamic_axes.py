"""torch.onnx's `dynamic_axes`: dynamic dimensions by the name of an input, `{"input": {0: "batch"}}`."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.export import Dim

from .....registration import CaptureError
from .....registration.warning import warn
from ....torch_boundary.containers.pytree import children
from .axis_labels import AxisLabel


def by_parameter(
    dynamic_axes: Mapping[str, object],
    bound: Mapping[str, object],
    input_names: Sequence[str] | None,
    output_names: Sequence[str] | None,
    *,
    numbers: bool = False,
) -> dict[str, Any]:
    """The dynamic dimensions by parameter name, nested like the arguments.

    Entries for outputs are ignored: the shapes of outputs follow from those of the inputs.

    Args:
        bound: the example arguments by parameter name, in the order of the graph's inputs.
        input_names, output_names: the names that the caller gave the inputs and outputs.
        numbers: whether Python numbers among the arguments are inputs of the graph.

    Raises:
        CaptureError: an entry names neither an input nor a given output, or an input that is not a tensor.
    """
    paths = [path for name, value in bound.items() for path in _input_paths(value, (name,), numbers)]
    path_by_input_name = dict(zip(input_names or (), paths, strict=False))
    inputs = dict.fromkeys([*path_by_input_name, *bound])
    unknown = [name for name in dynamic_axes if name not in inputs and name not in (output_names or ())]
    # torch.onnx warns of entries for inputs that the model does not have, so mere labels are no error.
    refused = [
        name
        for name in unknown
        if not isinstance(axes := dynamic_axes[name], Mapping)
        or not all(isinstance(label, AxisLabel) for label in axes.values())
    ]
    if refused:
        raise CaptureError(unknown_names("dynamic_axes", refused, inputs, output_names or ()))
    if unknown:
        text = unknown_names("dynamic_axes", unknown, inputs, output_names or ())
        warn(f"{text}: the entries are ignored")
    axes_by_path: dict[tuple[Any, ...], Any] = {}
    names_by_path: dict[tuple[Any, ...], str] = {}
    for name, axes in dynamic_axes.items():
        path = (name,) if name in bound else path_by_input_name.get(name)
        if path is None:
            continue
        argument = bound[path[0]]
        for index in path[1:]:
            argument = (children(argument) or ())[index]
        if not isinstance(argument, torch.Tensor):
            raise CaptureError(
                f"dynamic_axes['{name}'] names an input that is not a tensor; use dynamic_shapes for it"
            )
        if path in axes_by_path:
            raise CaptureError(f"dynamic_axes: '{names_by_path[path]}' and '{name}' name the same input")
        axes_by_path[path], names_by_path[path] = _axes(axes), name
    return {name: _nest_axes(value, (name,), axes_by_path) for name, value in bound.items()}


def _axes(axes: Any) -> dict[Any, Any]:
    return dict(axes) if isinstance(axes, Mapping) else dict.fromkeys(axes or (), Dim.DYNAMIC)


def _input_paths(value: object, path: tuple[object, ...], numbers: bool) -> Iterator[tuple[Any, ...]]:
    """The path of each leaf of an argument that is an input of the graph: `("cache", 0, 1)`."""
    members = children(value)
    if members is not None:
        for index, member in enumerate(members):
            yield from _input_paths(member, (*path, index), numbers)
    elif isinstance(value, torch.Tensor) or (numbers and isinstance(value, (bool, int, float))):
        yield path


def _nest_axes(
    value: object, path: tuple[object, ...], axes_by_path: Mapping[tuple[Any, ...], object]
) -> Any:
    """The dynamic dimensions of an argument, nested like it; None for static leaves."""
    members = children(value)
    if members is None:
        return axes_by_path.get(path)
    inner = [_nest_axes(member, (*path, index), axes_by_path) for index, member in enumerate(members)]
    if all(entry is None for entry in inner):
        return None
    return dict(zip(value, inner, strict=True)) if isinstance(value, Mapping) else inner


def unknown_names(
    option: str, unknown: Sequence[object], inputs: Iterable[str], outputs: Iterable[str] = ()
) -> str:
    """The message for unknown names in an option, with the closest existing names."""
    input_names, output_names = list(inputs), list(outputs)
    descriptions = []
    for name in unknown:
        close = difflib.get_close_matches(str(name), [*input_names, *output_names], n=1)
        descriptions.append(f"{name!r}" + (f" (did you mean {close[0]!r}?)" if close else ""))
    listed = ", ".join(map(repr, input_names)) or "none"
    text = f"{option} names {', '.join(descriptions)}, which the model does not have; the inputs are {listed}"
    return text + (f", the outputs {', '.join(map(repr, output_names))}" if output_names else "")
