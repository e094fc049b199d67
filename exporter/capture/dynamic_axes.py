"""torch.onnx's `dynamic_axes`: dynamic dimensions by the name of an input, `{"input": {0: "batch"}}`."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch.export import Dim

from ...registration import CaptureError


def by_parameter(
    dynamic_axes: Mapping[str, Any],
    bound: Mapping[str, Any],
    input_names: Sequence[str] | None,
    output_names: Sequence[str] | None,
) -> dict[str, Any]:
    """The dynamic dimensions by parameter name.

    Entries for outputs are left out: the shapes of outputs follow from those of the inputs.

    Args:
        bound: the example arguments by parameter name.
        input_names, output_names: the names that the caller gave the inputs and outputs.

    Raises:
        CaptureError: an entry names neither an input nor a given output, or an input that is not a tensor.
    """
    renamed = dict(zip(input_names or (), bound, strict=False))
    inputs = dict.fromkeys([*renamed, *bound])
    unknown = [name for name in dynamic_axes if name not in inputs and name not in (output_names or ())]
    if unknown:
        raise CaptureError(unknown_names("dynamic_axes", unknown, inputs, output_names or ()))
    result: dict[str, Any] = dict.fromkeys(bound)
    for name, axes in dynamic_axes.items():
        parameter = name if name in bound else renamed.get(name)
        if parameter is None:
            continue
        if not isinstance(bound[parameter], torch.Tensor):
            raise CaptureError(
                f"dynamic_axes['{name}'] names an input that is not a tensor; use dynamic_shapes"
            )
        if result[parameter] is not None:
            both = [given for given in dynamic_axes if given == parameter or renamed.get(given) == parameter]
            raise CaptureError(f"dynamic_axes: {' and '.join(map(repr, both))} name one input")
        result[parameter] = dict(axes) if isinstance(axes, Mapping) else dict.fromkeys(axes, Dim.DYNAMIC)
    return result


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
