"""Reads the element types and shapes of a net's inputs, which the net itself does not contain.

They come from the caller, or from the file value_info.json in the folder of the net, which published nets
have: `{"data": [1, [1, 3, 224, 224]]}`, where 1 is ONNX's number of the element type.
"""

import dataclasses
import math
import os
import pathlib
import re
from collections.abc import Mapping, Sequence

import numpy as np
import onnx_ir as ir

from ....registration import ModelFileError, UsageError
from ....registration.json_text import parse_json
from ...files.small_files import read_small, reason_of

VALUE_INFO = "value_info.json"
_MAXIMUM_BYTES = 2**20
_TYPES = {
    name: ir.DataType.from_numpy(np.dtype(name))
    for name in "float16 float32 float64 int8 int16 int32 int64 uint8 bool".split()
}
_TEXT = re.compile(r"\s*(?:(\w+)\s*\[)?\s*([^\[\]@]*?)\s*(\])?\s*(?:@\s*([^:@]*?)\s*(?::\s*(\d{1,3}))?)?\s*")
"""An element type, sizes, and the scale and zero point of an Int8 input."""
_NAME = re.compile(r"[A-Za-z_]\w*")

ShapeArgument = Sequence[int | str | None] | str
"""A shape as a caller states it: a list of sizes, names of dynamic sizes and None; or text."""


@dataclasses.dataclass(frozen=True)
class Description:
    """The element type of an input, if known, and its sizes; a name or None for a dynamic size.

    An Int8 input also has a scale and a zero point.
    """

    dtype: ir.DataType | None
    shape: tuple[int | str | None, ...]
    quantization: tuple[float, int] | None = None


def parse_descriptions(shapes: Mapping[str, ShapeArgument] | None) -> dict[str, Description]:
    """Parse the shapes of inputs that a caller states, by name.

    The form of a text is `1,3,224,224`, with names for dynamic sizes (`batch,3,224,224`), or with the element
    type, `int64[batch,7]`. An Int8 input has its scale and its zero point at the end, `uint8[1,3]@0.05:128`.

    Raises:
        UsageError: a shape has another form.
    """
    if shapes is None:
        return {}
    if not isinstance(shapes, Mapping):
        raise UsageError(f"shapes must be a mapping from inputs to shapes, not {type(shapes).__name__}")
    return {name: _parse_description(name, shape) for name, shape in shapes.items()}


def _parse_description(name: str, shape: ShapeArgument) -> Description:
    if not isinstance(shape, str):
        if not isinstance(shape, Sequence):
            raise UsageError(f"the shape of '{name}' must be a list of sizes, not {shape!r}")
        return Description(None, tuple(_parse_size(name, size) for size in shape))
    match = _TEXT.fullmatch(shape)
    if match is None or (match[1] is None) != (match[3] is None):
        raise UsageError(
            f"the shape of '{name}' must have the form 1,3,224,224 or float32[1,3,224,224], not '{shape}'"
        )
    if match[1] is not None and match[1] not in _TYPES:
        raise UsageError(f"there is no element type '{match[1]}' (known: {', '.join(_TYPES)})")
    dtype = _TYPES[match[1]] if match[1] is not None else None
    sizes = [part.strip() for part in match[2].split(",")] if match[2] else []
    shape_of_input = tuple(_parse_size(name, int(s) if s.isdecimal() else s) for s in sizes)
    return Description(dtype, shape_of_input, _parse_quantization(name, dtype, match[4], match[5]))


def _parse_quantization(
    name: str, dtype: ir.DataType | None, scale_text: str | None, zero_point_text: str | None
) -> tuple[float, int] | None:
    if scale_text is None:
        return None
    try:
        scale = float(scale_text)
    except ValueError:
        scale = math.nan
    zero_point = int(zero_point_text or 0)
    # Caffe2's Int8 blobs are unsigned bytes.
    if dtype != ir.DataType.UINT8 or not 0 < scale < math.inf or zero_point > 255:
        raise UsageError(
            f"the scale of '{name}' must have the form uint8[1,3,224,224]@0.05:128, with a positive scale "
            "and a zero point of at most 255"
        )
    return scale, zero_point


def _parse_size(name: str, size: object) -> int | str | None:
    if size is None or size in (-1, "-1", "?"):
        return None
    if isinstance(size, str) and _NAME.fullmatch(size):
        return size
    # True is an int in Python.
    if isinstance(size, int) and not isinstance(size, bool) and 0 <= size < 2**31:
        return size
    raise UsageError(f"the shape of '{name}' has the entry {size!r}, which is neither a size nor a name")


def read_value_info(path: str | os.PathLike[str]) -> dict[str, Description]:
    """Read the descriptions in value_info.json in the folder of a net; none if there is no such file.

    Raises:
        ModelFileError: the file cannot be read, or has another form.
    """
    file = pathlib.Path(os.fsdecode(path)).with_name(VALUE_INFO)
    label = f"'{file}'"
    try:
        data = read_small(file, _MAXIMUM_BYTES)
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise ModelFileError(f"{label} cannot be read: {reason_of(error)}") from error
    try:
        entries = parse_json(data)
        return {
            name: Description(ir.DataType(type_number), tuple(_parse_size(name, size) for size in sizes))
            for name, (type_number, sizes) in entries.items()
        }
    except (ValueError, TypeError, AttributeError, RecursionError, UsageError) as error:
        raise ModelFileError(f"{label} must describe inputs as name: [type, [sizes]]: {error}") from None
