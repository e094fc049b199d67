"""ONNX operators that a later opset reads in another way, though their arguments have their places there.

A function that was registered for opset 9 speaks of the operators of opset 9. Where schema-bound emission
is not enough, for the meaning has changed and not the place of an argument, the operator is given here
what keeps its meaning. Source: the version history of each operator in ONNX's `Changelog.md`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from onnx_ir import Value

from ..registration import GraphContext

_NAMES_OF_MODE = {"bilinear": "linear", "bicubic": "cubic"}


def moved(
    g: GraphContext, written: int, name: str, inputs: list[Any], attributes: dict[str, Any], outputs: int
) -> Any:
    """Emit an operator whose meaning has changed between two opsets, or that is spelled anew.

    Args:
        written: the opset at which the inputs and attributes have their meaning.

    Returns:
        The result, or None where the operator is to be emitted as it is.
    """
    for rules, low in ((_MEANS, written), (_SPELLED, 0)):
        change, emit = rules.get(name, (0, None))
        if emit is not None and low < change <= g.opset:
            return emit(g, name, inputs, attributes, outputs)
    return None


def _taken(attributes: dict[str, Any], name: str, default: Any) -> Any:
    """Take an attribute out, whatever its suffix."""
    key = next((key for key in attributes if key == name or (key[:-2] == name and key[-2] == "_")), None)
    return default if key is None else attributes.pop(key)


def _softmax(g: GraphContext, name: str, inputs: list[Any], attributes: dict[str, Any], outputs: int) -> Any:
    # Up to 12 over all dimensions from the axis on, from 13 over that axis alone.
    axis = int(_taken(attributes, "axis", 1))
    rank = g.rank(inputs[0])
    if axis == -1 or axis + 1 == rank:
        return g.op(name, inputs[0], axis=-1)
    rows = g.op(name, g.op("Flatten", inputs[0], axis=axis), axis=-1)
    return g.op("Reshape", rows, g.op("Shape", inputs[0]))


def _upsample(g: GraphContext, name: str, inputs: list[Any], attributes: dict[str, Any], outputs: int) -> Any:
    mode = _taken(attributes, "mode", "nearest")
    scales = inputs[1] if len(inputs) > 1 else _taken(attributes, "scales", None)
    return _resized(g, inputs[0], scales, mode, enlarges=True)


def _resize(g: GraphContext, name: str, inputs: list[Any], attributes: dict[str, Any], outputs: int) -> Any:
    if len(inputs) > 2:
        # Only a function written for 11 gives so many.
        return g.op(name, *inputs, **attributes)
    scales = inputs[1] if len(inputs) > 1 else _taken(attributes, "scales", None)
    return _resized(g, inputs[0], scales, _taken(attributes, "mode", "nearest"), enlarges=False)


def _resized(g: GraphContext, x: Value, scales: Any, mode: str, enlarges: bool) -> Any:
    """Resize as it was at opset 10, asymmetric; nearest goes down where it enlarges."""
    nearest = None
    if mode == "nearest":
        known = g.constant_value(scales) if isinstance(scales, Value) else np.asarray(scales)
        if not enlarges and (known is None or bool(np.any(known < 1))):
            raise g.refuse(
                "Resize with mode 'nearest' that may shrink rounds in another way from opset 11 on"
            )
        nearest = "floor"
    if g.opset < 11:
        return g.op("Resize", x, scales, mode=mode)
    return g.op(
        "Resize",
        x,
        g.constant(np.empty(0, np.float32)),
        scales,
        mode=mode,
        coordinate_transformation_mode="asymmetric",
        nearest_mode=nearest,
    )


def _roi_align(
    g: GraphContext, name: str, inputs: list[Any], attributes: dict[str, Any], outputs: int
) -> Any:
    mode = _taken(attributes, "coordinate_transformation_mode", "output_half_pixel")
    return g.op(name, *inputs, coordinate_transformation_mode=mode, **attributes)


def _grid_sample(
    g: GraphContext, name: str, inputs: list[Any], attributes: dict[str, Any], outputs: int
) -> Any:
    mode = _taken(attributes, "mode", "bilinear")
    return g.op(name, *inputs, mode=_NAMES_OF_MODE.get(mode, mode), **attributes)


def _group_normalization(
    g: GraphContext, name: str, inputs: list[Any], attributes: dict[str, Any], outputs: int
) -> Any:
    raise g.refuse(
        "GroupNormalization takes scale and bias for each channel from opset 21 on, for each group before: "
        "register a function for opset 21"
    )


def _fourier(g: GraphContext, name: str, inputs: list[Any], attributes: dict[str, Any], outputs: int) -> Any:
    return g.op(name, *inputs, axis=_taken(attributes, "axis", 1), **attributes)


def _split(g: GraphContext, name: str, inputs: list[Any], attributes: dict[str, Any], outputs: int) -> Any:
    # From 18 on the number of equal parts is said.
    said = len(inputs) > 1 or any(key.startswith(("split", "num_outputs")) for key in attributes)
    count = None if said else outputs
    return g.op(name, *inputs, outputs=outputs, num_outputs=count, **attributes)


def _scatter(g: GraphContext, name: str, inputs: list[Any], attributes: dict[str, Any], outputs: int) -> Any:
    return g.op("ScatterElements", *inputs, **attributes)


_Rules = dict[str, tuple[int, Callable[..., Any]]]

_MEANS: _Rules = {
    "Softmax": (13, _softmax),
    "LogSoftmax": (13, _softmax),
    "Hardmax": (13, _softmax),
    "Resize": (11, _resize),
    "RoiAlign": (16, _roi_align),
    "GroupNormalization": (21, _group_normalization),
    "DFT": (20, _fourier),
}
"""Each operator with the first opset at which it means something else, and what keeps its meaning."""

_SPELLED: _Rules = {
    "Upsample": (10, _upsample),
    "Scatter": (11, _scatter),
    "Split": (18, _split),
    "GridSample": (20, _grid_sample),
}
"""Each operator with the first opset at which this spelling is no longer valid, and the valid one."""
