"""The jobs of a sweep: the product of models, opsets, shapes, element types and targets."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence

from ....registration import UsageError
from ....registration.opsets import check_opset
from ...devices.targets.load_target import load_target
from ..rows import NO_TARGET, OWN, Job
from ..zoo.listing import Zoo

STATIC = "static"
DTYPES = (OWN, "float16", "bfloat16", "float32", "float64")
_SIZE = re.compile(r"([A-Za-z_]\w*)=([1-9]\d*)")


def check_axes(
    opsets: Sequence[int], shapes: Sequence[str], dtypes: Sequence[str], targets: Sequence[str]
) -> None:
    """Refuse values of the axes that no zoo has; a zoo may take long to list.

    Raises:
        UsageError: a shape, an element type or a target is unknown.
        OpsetError: an opset that opsetta does not write.
    """
    axes = {"opsets": opsets, "shapes": shapes, "dtypes": dtypes, "targets": targets}
    for name, values in axes.items():
        if isinstance(values, str) or not values:
            raise UsageError(f"{name} must be a list with at least one entry, not {values!r}")
    for opset in opsets:
        check_opset(opset)
    for target in targets:
        if target != NO_TARGET:
            load_target(target)
    for dtype in dtypes:
        if dtype not in DTYPES:
            raise UsageError(f"'{dtype}' is not an element type for sweeps (known: {', '.join(DTYPES)})")
    for shape in shapes:
        sizes_of(shape)


def jobs_of(
    zoo: Zoo, opsets: Sequence[int], shapes: Sequence[str], dtypes: Sequence[str], targets: Sequence[str]
) -> list[Job]:
    """Every job, model by model, for values that `check_axes` accepts.

    Raises:
        UsageError: a shape or an element type does not fit the zoo.
    """
    for dtype in dtypes:
        if dtype != OWN and not zoo.is_python:
            raise UsageError(f"the element type of ONNX files cannot be changed: leave '{dtype}' out")
    named = {name for entry in zoo.models.values() for name in entry.sizes}
    for shape in shapes:
        _check_shape(zoo, shape, named)
    unique = (dict.fromkeys(opsets), dict.fromkeys(shapes), dict.fromkeys(dtypes), dict.fromkeys(targets))
    return [Job(*values) for values in itertools.product(zoo.models, *unique)]


def sizes_of(shape: str) -> dict[str, int]:
    """The sizes that a shape gives by name.

    Raises:
        UsageError: the shape has another form.
    """
    sizes = {}
    for part in shape.split("+"):
        match = _SIZE.fullmatch(part)
        if match is not None:
            sizes[match[1]] = int(match[2])
        elif part not in (OWN, STATIC):
            raise UsageError(
                f"'{shape}' is not a shape: write {OWN}, {STATIC}, NAME=SIZE, or several of these with + "
                "between them"
            )
    return sizes


def is_static(shape: str) -> bool:
    """Whether a shape fixes the dynamic dimensions of the model's factory."""
    return STATIC in shape.split("+")


def _check_shape(zoo: Zoo, shape: str, named: set[str]) -> None:
    unknown = sorted(set(sizes_of(shape)) - named)
    if unknown:
        carrier = "factory has a parameter" if zoo.is_python else "file has a dimension"
        listed = ", ".join(sorted(named)) or "none"
        raise UsageError(f"shape '{shape}': no {carrier} '{unknown[0]}' (named: {listed})")
    if is_static(shape) and not zoo.is_python:
        raise UsageError(f"the dynamic dimensions of ONNX files cannot be changed: leave '{shape}' out")


def parse_opsets(text: str) -> list[int]:
    """Opsets from a text such as `9,13-15,18`.

    Raises:
        UsageError: the text has another form.
    """
    opsets: list[int] = []
    for part in text.split(","):
        first, dash, last = (piece.strip() for piece in part.partition("-"))
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise UsageError(
                f"--opsets '{text}': write opsets and ranges with commas between them, 9,13-15,18"
            )
        opsets += range(int(first), int(last if dash else first) + 1)
    if not opsets:
        raise UsageError(f"--opsets '{text}' names no opset")
    return opsets
