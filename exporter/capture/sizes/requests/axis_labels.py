"""Texts for a dimension: labels of torch.onnx's `dynamic_axes`, names with a range, and sums."""

from __future__ import annotations

import re

from .....registration import CaptureError

_NAME = r"[^\W\d]\w*"
_SUM = re.compile(rf"({_NAME})\s*=\s*((?:{_NAME}|\d+)(?:\s*\+\s*(?:{_NAME}|\d+))+)")
_RANGE = re.compile(r"(?:(\d+)\s*<=\s*)?([^\W\d]\w*)(?:\s*(<=|>=)\s*(\d+))?")


class AxisLabel(str):
    """A name of an axis in the file that states no equality.

    Dimensions with the same label may differ, and dimensions with different labels may be equal.
    """

    __slots__ = ()


class SumLabel(str):
    """The name of a dimension whose size is the sum of others: `total = past + new`.

    Attributes:
        summands: the names of other dimensions, and numbers.
    """

    summands: tuple[str | int, ...]


def read_label(request: object) -> object:
    """A `Dim` for a name with a range, `2 <= time <= 128`, and a `SumLabel` for `total = past + new`.

    Another request for a dimension is returned unchanged.

    Raises:
        CaptureError: a text compares, but not in one of these forms.
    """
    if not isinstance(request, str) or isinstance(request, AxisLabel) or not re.search("[<=>]", request):
        return request
    if (sum_match := _SUM.fullmatch(request.strip())) is not None:
        label = SumLabel(sum_match[1])
        terms = (term.strip() for term in sum_match[2].split("+"))
        label.summands = tuple(int(term) if term.isdigit() else term for term in terms)
        return label
    match = _RANGE.fullmatch(request.strip())
    minimum, name, relation, bound = match.groups() if match is not None else (None, "", "", None)
    lower = bound if relation == ">=" else minimum
    upper = bound if relation == "<=" else None
    is_twice = relation == ">=" and minimum is not None
    if name and lower is not None and upper is not None and int(lower) >= int(upper):
        reason = "no number is in that range" if int(lower) > int(upper) else "leave a fixed size out"
        raise CaptureError(f"{request!r} is not a range of sizes: {reason}")
    if not name or is_twice:
        raise CaptureError(
            f"{request!r} is not a name with a range: write 'name <= 128', 'name >= 2' or "
            "'2 <= name <= 128', or for the sum of other dimensions 'total = past + new'"
        )
    # torch_onnx imports the labels before torch is needed.
    from torch.export import Dim

    return Dim(name, min=None if lower is None else int(lower), max=None if upper is None else int(upper))
