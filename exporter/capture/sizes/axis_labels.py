"""Texts for a dimension: labels of torch.onnx's `dynamic_axes`, and names with a range."""

from __future__ import annotations

import re

from ....registration import CaptureError

_RANGE = re.compile(r"(?:(\d+)\s*<=\s*)?([^\W\d]\w*)(?:\s*(<=|>=)\s*(\d+))?")


class AxisLabel(str):
    """A name of an axis in the file that states no equality.

    Dimensions with the same label may differ, and dimensions with different labels may be equal.
    """

    __slots__ = ()


def read_range(request: object) -> object:
    """A `Dim` for a name with a range, `2 <= time <= 128`; another request for a dimension unchanged.

    Raises:
        CaptureError: a text compares, but not in this form.
    """
    if not isinstance(request, str) or isinstance(request, AxisLabel) or not re.search("[<>]", request):
        return request
    match = _RANGE.fullmatch(request.strip())
    minimum, name, relation, bound = match.groups() if match is not None else (None, "", "", None)
    lower = bound if relation == ">=" else minimum
    upper = bound if relation == "<=" else None
    is_twice = relation == ">=" and minimum is not None
    is_empty = lower is not None and upper is not None and int(lower) >= int(upper)
    if not name or is_twice or is_empty:
        raise CaptureError(
            f"{request!r} is not a name with a range: write 'name <= 128', 'name >= 2' or '2 <= name <= 128'"
        )
    # torch_onnx imports the labels before torch is needed.
    from torch.export import Dim

    return Dim(name, min=None if lower is None else int(lower), max=None if upper is None else int(upper))
