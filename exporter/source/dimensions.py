"""The sizes for which an exported model is valid: metadata, display, and the check before a run.

Works without torch. The capture writes the restrictions; `docs/metadata.md` describes their format.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import onnx_ir as ir

from ...registration import DIMENSIONS, RANGES, DimensionError
from .json_entries import read_entries, write_entries
from .size_expressions import evaluate as evaluate

_LONGEST_SHOWN = 240
"""The number of characters of a condition in a message; metadata has all of it."""
_BOUND = re.compile(r"(.+) (>=|<=) (\d+)")
Input = tuple[str, Sequence[int | str | None]]
"""The name of an input, and its shape as the model declares it."""


@dataclasses.dataclass(frozen=True)
class Restriction:
    """A condition that sizes must meet for the model to be valid.

    Attributes:
        condition: an expression of dimension names in Python's notation: `sequence <= 77`, `height % 2 == 0`.
        reason: what happens at other sizes.
        line: the user's line that causes it, `model.py:12`; empty if unknown.
    """

    condition: str
    reason: str
    line: str = ""

    def __str__(self) -> str:
        condition = self.condition
        if len(condition) > _LONGEST_SHOWN:
            condition = f"{condition[: _LONGEST_SHOWN // 2]} … {condition[-_LONGEST_SHOWN // 2 :]}"
        return f"{condition} ({f'{self.line}: ' if self.line else ''}{self.reason})"


@dataclasses.dataclass(frozen=True)
class Dimension:
    """The allowed sizes of a dynamic dimension.

    Attributes:
        name: its name in the shapes of inputs and outputs.
        minimum: the smallest size.
        maximum: the largest size, or None.
        restrictions: the sources of the bounds, and further conditions on the dimension.
    """

    name: str
    minimum: int = 0
    maximum: int | None = None
    restrictions: tuple[Restriction, ...] = ()

    @property
    def conditions(self) -> tuple[str, ...]:
        """The conditions besides the bounds: `height % 2 == 0`."""
        return tuple(r.condition for r in self.restrictions if _bound(r.condition, self.name) is None)


def write(metadata: dict[str, str], restrictions: Iterable[Restriction]) -> None:
    """Write restrictions into the metadata of a model, if there are any."""
    write_entries(metadata, DIMENSIONS, restrictions)


def read(metadata: Mapping[str, str]) -> list[Restriction]:
    """The restrictions in the metadata of a model.

    Raises:
        DimensionError: the entry does not have the documented form.
    """
    return read_entries(metadata, DIMENSIONS, _restriction, DimensionError)


def _restriction(fields: Mapping[str, Any]) -> Restriction:
    texts = [fields[key] for key in ("condition", "reason", "line")]
    for text in texts:
        if not isinstance(text, str):
            raise TypeError(f"{text!r} is not text")
    return Restriction(*texts)


def inputs_of(model: ir.Model, names: Sequence[str]) -> list[Input]:
    """The declared inputs of a model, by the caller's names."""
    return [
        (name, [dim.value if isinstance(dim, ir.SymbolicDim) else dim for dim in value.shape or ()])
        for name, value in zip(names, model.graph.inputs, strict=False)
    ]


def dimensions(inputs: Sequence[Input], metadata: Mapping[str, str]) -> dict[str, Dimension]:
    """The dynamic dimensions of a model by name."""
    restrictions = read(metadata)
    found = {}
    for name in _names(inputs, metadata):
        own = tuple(r for r in restrictions if _mentions(r.condition, name))
        bounds = [bound for r in own if (bound := _bound(r.condition, name)) is not None]
        found[name] = Dimension(
            name,
            max((size for sign, size in bounds if sign == ">="), default=0),
            min((size for sign, size in bounds if sign == "<="), default=None),
            own,
        )
    return found


def check(inputs: Sequence[Input], metadata: Mapping[str, str], shapes: Sequence[Sequence[int]]) -> None:
    """Refuse sizes for which a model is not valid.

    Args:
        inputs: the declared inputs of the model.
        metadata: the model's metadata with the entry of `write`.
        shapes: the shape of each input of a call.

    Raises:
        DimensionError: two sizes of one dimension differ; or a condition is not true, which includes that it
            has no value at these sizes, or cannot be evaluated.
    """
    sizes, places = _bind(inputs, _names(inputs, metadata), shapes)
    for (name, declared), shape in zip(inputs, shapes, strict=True):
        for axis, (dim, size) in enumerate(zip(declared, shape, strict=False)):
            if not isinstance(dim, str) or dim in sizes:
                continue
            wanted = evaluate(dim, sizes)
            if wanted is not None and wanted != size:
                raise DimensionError(
                    f"axis {axis} of input '{name}' has size {size}, but the model is valid for {dim} = "
                    f"{wanted}"
                )
    for restriction in read(metadata):
        value = evaluate(restriction.condition, sizes)
        if not value:
            mentioned = [
                f"'{name}' is {size} ({places[name]})"
                for name, size in sizes.items()
                if _mentions(restriction.condition, name)
            ]
            subject = f"dimension {', '.join(mentioned)}, but the" if mentioned else "the"
            note = "; this condition has no value at these sizes" if value is None else ""
            raise DimensionError(f"{subject} model is valid for {restriction}{note}")


def _bind(
    inputs: Sequence[Input], names: Sequence[str], shapes: Sequence[Sequence[int]]
) -> tuple[dict[str, int], dict[str, str]]:
    """The size of each dimension, and the input and axis that it was read from."""
    sizes: dict[str, int] = {}
    places: dict[str, str] = {}
    for (name, declared), shape in zip(inputs, shapes, strict=True):
        for axis, (dim, size) in enumerate(zip(declared, shape, strict=False)):
            if not isinstance(dim, str) or dim not in names:
                continue
            place = f"axis {axis} of input '{name}'"
            if sizes.setdefault(dim, size) != size:
                raise DimensionError(
                    f"dimension '{dim}' has size {sizes[dim]} at {places[dim]}, and size {size} at "
                    f"{place}: it must be the same for both"
                )
            places.setdefault(dim, place)
    return sizes, places


def _names(inputs: Sequence[Input], metadata: Mapping[str, str]) -> list[str]:
    """The dimensions of the inputs that are names, not expressions."""
    texts = dict.fromkeys(dim for _, shape in inputs for dim in shape if isinstance(dim, str))
    if RANGES in metadata:
        known = json.loads(metadata[RANGES])
        return [text for text in texts if text in known]
    return [text for text in texts if evaluate(text, dict.fromkeys(set(texts) - {text}, 1)) is None]


def _mentions(condition: str, name: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(name)}(?!\w)", condition) is not None


def _bound(condition: str, name: str) -> tuple[str, int] | None:
    """The sign and the size of a condition that bounds one dimension."""
    found = _BOUND.fullmatch(condition)
    return (found[2], int(found[3])) if found is not None and found[1] == name else None
