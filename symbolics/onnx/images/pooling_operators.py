"""Pooling with arguments that an opset lacks: dilations, `ceil_mode`, indices, element types."""

import math
import operator
from collections.abc import Callable
from typing import Any

import onnx_ir as ir

from ....registration import GraphContext, Value, dtypes, onnx_symbolic, schemas
from ....registration.inference.window_counts import end_padding
from ...compositions.size_arithmetic import known_rank, product
from ...compositions.spatial.sliding import Slide, average_windows, largest, sum_windows
from ..support import below

_BYTES = (ir.DataType.INT8, ir.DataType.UINT8)


def _slides(
    g: GraphContext,
    X: Value,
    kernel: list[int],
    strides: list[int],
    pads: list[int],
    dilations: list[int],
    auto_pad: str,
    ceil_mode: bool,
) -> list[Slide]:
    """The windows along each spatial dimension."""
    count, slides = known_rank(g, X) - 2, []
    for i in range(count):
        size, window_pads = g.size(X, 2 + i), (pads[i], pads[count + i])
        if auto_pad.startswith("SAME"):
            if isinstance(size, Value):
                raise g.refuse("the spatial sizes must be known, because the padding depends on them")
            extent = dilations[i] * (kernel[i] - 1) + 1
            # SAME makes as many windows as strides fit; an odd amount of padding has the extra element
            # behind for SAME_UPPER, and before for SAME_LOWER.
            total = max((-(-size // strides[i]) - 1) * strides[i] + extent - size, 0)
            less, more = total // 2, total - total // 2
            window_pads = (less, more) if auto_pad == "SAME_UPPER" else (more, less)
        slides.append(Slide.over(g, size, kernel[i], strides[i], window_pads, dilations[i], ceil_mode))
    return slides


def _counts_alike(slide: Slide) -> bool:
    """Whether versions below 22, which count windows that begin after the input, give the same number."""
    if isinstance(slide.size, Value) or isinstance(slide.count, Value):
        return False
    room = slide.size + sum(slide.pads) - slide.dilation * (slide.kernel - 1) - 1
    return slide.count == -(-room // slide.stride) + 1


def _pads_rounded_down(slides: list[Slide]) -> list[int]:
    """The pads with which rounding down counts the windows of `ceil_mode`."""
    end_pads = []
    for slide in slides:
        pad = slide.pads[1]
        if isinstance(slide.size, Value) or isinstance(slide.count, Value):
            end_pads.append(end_padding(slide.kernel, slide.stride, pad, slide.dilation))
            continue
        last_end = (slide.count - 1) * slide.stride + slide.dilation * (slide.kernel - 1) + 1
        needed = last_end - slide.size - slide.pads[0]
        end_pads.append(max(needed, min(pad, needed + slide.stride - 1)))
    return [slide.pads[0] for slide in slides] + end_pads


def _pad_with_lowest(g: GraphContext, X: Value, pads: list[int]) -> Value:
    """The input with padding that no maximum returns."""
    dtype = g.dtype(X) or ir.DataType.FLOAT
    lowest = dtypes.limits(dtype)[0] if dtype in dtypes.INTEGERS else -math.inf
    half = len(pads) // 2
    return g.op("Pad", X, pads=[0, 0, *pads[:half], 0, 0, *pads[half:]], value=lowest)


def _positions_in_all(g: GraphContext, X: Value, indices: Value) -> Value:
    """Convert positions in their own plane to positions in the whole tensor, which MaxPool returns."""
    rank = known_rank(g, X)
    planes = [g.size(X, 0), g.size(X, 1)]
    numbers = g.call("sym::range", start=0, end=product(g, planes))
    plane = product(g, [g.size(X, axis) for axis in range(2, rank)])
    starts = g.op("Reshape", g.op("Mul", numbers, plane), g.stack([*planes, *[1] * (rank - 2)]))
    return g.op("Add", indices, starts)


def _register(op_type: str) -> None:
    @onnx_symbolic(f"onnx::{op_type}")
    @below(op_type, 22, any_data=True)
    def pool(
        g: GraphContext,
        X: Value,
        kernel_shape: list[int],
        auto_pad: str = "NOTSET",
        ceil_mode: int = 0,
        count_include_pad: int | None = None,
        dilations: list[int] | None = None,
        pads: list[int] | None = None,
        strides: list[int] | None = None,
        storage_order: int | None = None,
        p: int | None = None,
        outputs: int = 1,
    ) -> Value | list[Value]:
        """Below 22, where `ceil_mode` also counts windows that begin after the input."""
        unit_steps = [1] * len(kernel_shape)
        ceil = bool(ceil_mode) and not auto_pad.startswith("SAME")
        padding = pads if pads is not None and auto_pad == "NOTSET" else [0] * (2 * len(unit_steps))
        named: dict[str, Any] = {
            "auto_pad": auto_pad if auto_pad != "NOTSET" else None,
            "ceil_mode": int(ceil) or None,
            "count_include_pad": count_include_pad or None,
            "dilations": dilations if any(dilation != 1 for dilation in dilations or []) else None,
            "pads": pads,
            "strides": strides,
            "storage_order": storage_order or None,
            "p": p,
        }
        windows = (kernel_shape, strides or unit_steps, padding, dilations or unit_steps, auto_pad, ceil)
        slides = _slides(g, X, *windows) if ceil else []
        if ceil and not (g.has(op_type, "ceil_mode") and all(map(_counts_alike, slides))):
            rounded_down = _pads_rounded_down(slides)
            # The mean that counts padding must not count more of it, and runtimes refuse pads as large as
            # the window.
            counts_more = bool(count_include_pad) and any(map(operator.gt, rounded_down, padding))
            if not counts_more and all(map(operator.lt, rounded_down, kernel_shape * 2)):
                named |= {"auto_pad": None, "ceil_mode": None, "pads": rounded_down}
            elif op_type == "MaxPool" and outputs == 1 and _takes(g, X, 1) and g.has(op_type, "dilations"):
                named |= {"auto_pad": None, "ceil_mode": None, "pads": None}
                X = _pad_with_lowest(g, X, rounded_down)
        argument_names = [name for name, value in named.items() if value is not None]
        is_supported = g.has(op_type, *argument_names) and (op_type != "MaxPool" or _takes(g, X, outputs))
        if is_supported and (named["ceil_mode"] is None or all(map(_counts_alike, slides))):
            return g.op(op_type, X, kernel_shape=kernel_shape, outputs=outputs, **named)
        has_data = (
            named["dilations"] is None and not ceil and all(map(operator.lt, padding, kernel_shape * 2))
        )
        dtype = g.dtype(X)
        are_bytes = op_type == "MaxPool" and dtype in _BYTES and outputs == 1
        if dtype is not None and are_bytes and has_data and g.has(op_type, *argument_names):
            # Every window has an element, so no padding of float32 reaches the results.
            wide = g.op(op_type, g.cast(X, ir.DataType.FLOAT), kernel_shape=kernel_shape, **named)
            return g.cast(wide, dtype)
        slides = slides or _slides(g, X, *windows)
        if op_type == "AveragePool":
            return average_windows(g, X, slides, bool(count_include_pad))
        if op_type == "LpPool":
            power = float(p or 2)
            total = sum_windows(g, g.op("Pow", g.op("Abs", X), power), slides)
            return g.op("Pow", total, 1.0 / power)
        if outputs > 1 and storage_order:
            raise g.refuse("storage_order=1 is not supported for the output Indices")
        values, indices = largest(g, X, slides, outputs > 1)
        return values if indices is None else [values, _positions_in_all(g, X, indices)]


def _takes(g: GraphContext, X: Value, outputs: int) -> bool:
    """Whether the target's MaxPool supports the element type and the number of outputs."""
    schema = schemas.operator_schema("MaxPool", g.opset)
    return schema is not None and g.dtype(X) in schema.inputs[0].dtypes and outputs <= len(schema.outputs)


for _op_type in ("AveragePool", "MaxPool", "LpPool"):
    _register(_op_type)


def _register_windows(form: str, lacking: str, applies: Callable[[list[int], int], bool]) -> None:
    @onnx_symbolic(f"form::MaxPool.{form}")
    def pool_windows(
        g: GraphContext,
        X: Value,
        kernel_shape: list[int],
        auto_pad: str = "NOTSET",
        ceil_mode: int = 0,
        dilations: list[int] | None = None,
        pads: list[int] | None = None,
        strides: list[int] | None = None,
        storage_order: int = 0,
        outputs: int = 1,
    ) -> list[Value]:
        """The largest of the gathered elements of each window, and its position."""
        unit_steps = [1] * len(kernel_shape)
        steps, spread = strides or unit_steps, dilations or unit_steps
        if not applies(spread, outputs):
            raise g.refuse(f"it has no {lacking}")
        padding = pads if pads is not None and auto_pad == "NOTSET" else [0] * (2 * len(unit_steps))
        ceil = bool(ceil_mode) and not auto_pad.startswith("SAME")
        slides = _slides(g, X, kernel_shape, steps, padding, spread, auto_pad, ceil)
        if (ceil and not all(map(_counts_alike, slides))) or (outputs > 1 and storage_order):
            raise g.refuse("opsets differ in the number of windows, or positions are counted by columns")
        values, indices = largest(g, X, slides, outputs > 1)
        return [values] if indices is None else [values, _positions_in_all(g, X, indices)]


_register_windows("windows", "dilations", lambda dilations, outputs: any(size != 1 for size in dilations))
_register_windows("positions", "second output", lambda dilations, outputs: outputs > 1)
