"""torch.onnx's `dynamic_axes`: dynamic dimensions by the name of an input, `{"input": {0: "batch"}}`."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.export import Dim

from ....registration import CaptureError
from ....registration.warning import warn
from ...torch_boundary.containers.pytree import children
from .axis_labels import AxisLabel


def by_parameter(
    dynamic_axes: Mapping[str, Any],
    bound: Mapping[str, Any],
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
    places = [place for name, value in bound.items() for place in _places(value, (name,), numbers)]
    renamed = dict(zip(input_names or (), places, strict=False))
    inputs = dict.fromkeys([*renamed, *bound])
    unknown = [name for name in dynamic_axes if name not in inputs and name not in (output_names or ())]
    refused = [name for name in unknown if not _only_labels(dynamic_axes[name])]
    if refused:
        raise CaptureError(unknown_names("dynamic_axes", refused, inputs, output_names or ()))
    if unknown:
        text = unknown_names("dynamic_axes", unknown, inputs, output_names or ())
        warn(f"{text}: the entries are ignored")
    found: dict[tuple[Any, ...], Any] = {}
    named: dict[tuple[Any, ...], str] = {}
    for name, axes in dynamic_axes.items():
        place = (name,) if name in bound else renamed.get(name)
        if place is None:
            continue
        if not isinstance(_argument_at(bound, place), torch.Tensor):
            raise CaptureError(
                f"dynamic_axes['{name}'] names an input that is not a tensor; use dynamic_shapes for it"
            )
        if place in found:
            raise CaptureError(f"dynamic_axes: '{named[place]}' and '{name}' name the same input")
        found[place], named[place] = _axes(axes), name
    return {name: _nested(value, (name,), found) for name, value in bound.items()}


def _axes(axes: Any) -> dict[Any, Any]:
    return dict(axes) if isinstance(axes, Mapping) else dict.fromkeys(axes or (), Dim.DYNAMIC)


def _only_labels(axes: Any) -> bool:
    return isinstance(axes, Mapping) and all(isinstance(label, AxisLabel) for label in axes.values())


def _places(value: Any, place: tuple[Any, ...], numbers: bool) -> Iterator[tuple[Any, ...]]:
    """The path of each leaf of an argument that is an input of the graph: `("cache", 0, 1)`."""
    members = children(value)
    if members is not None:
        for index, member in enumerate(members):
            yield from _places(member, (*place, index), numbers)
    elif isinstance(value, torch.Tensor) or (numbers and isinstance(value, (bool, int, float))):
        yield place


def _argument_at(bound: Mapping[str, Any], place: tuple[Any, ...]) -> Any:
    value = bound[place[0]]
    for index in place[1:]:
        value = (children(value) or ())[index]
    return value


def _nested(value: Any, place: tuple[Any, ...], found: Mapping[tuple[Any, ...], Any]) -> Any:
    """The dynamic dimensions of an argument, nested like it; None for static leaves."""
    members = children(value)
    if members is None:
        return found.get(place)
    inner = [_nested(member, (*place, index), found) for index, member in enumerate(members)]
    if all(entry is None for entry in inner):
        return None
    return dict(zip(value, inner, strict=True)) if isinstance(value, Mapping) else inner


def unknown_names(
    option: str, unknown: Sequence[Any], inputs: Iterable[str], outputs: Iterable[str] = ()
) -> str:
    """The message for unknown names in an option, with the closest known ones."""
    known, given = list(inputs), list(outputs)
    parts = []
    for name in unknown:
        close = difflib.get_close_matches(str(name), [*known, *given], n=1)
        parts.append(f"{name!r}" + (f" (did you mean {close[0]!r}?)" if close else ""))
    listed = ", ".join(map(repr, known)) or "none"
    text = f"{option} names {', '.join(parts)}, which the model does not have; the inputs are {listed}"
    return text + (f", the outputs {', '.join(map(repr, given))}" if given else "")
