"""The sizes for which an exported model is valid: metadata, display, and the check before a run.

Works without torch. The capture writes the restrictions; `docs/metadata.md` describes their format.
"""

from __future__ import annotations

import dataclasses
import keyword
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from ...registration import DIMENSIONS, RANGES, DimensionError
from ...registration.json_text import parse_json
from .json_entries import read_entries, write_entries
from .size_expressions import evaluate as evaluate
from .size_expressions import is_about_remainder as is_about_remainder

if TYPE_CHECKING:
    import onnx_ir as ir

_LONGEST_SHOWN = 240
"""The most characters of a condition in a message; the metadata has the whole condition."""
_BOUND = re.compile(r"(.+) (>=|<=) (\d+)")
_WORD = re.compile(r"\w+")
_MULTIPLE = re.compile(r"(\w+) % (\d+) == 0")
Input = tuple[str, Sequence[int | str | None]]
"""The name of an input, and its shape as the model declares it."""


@dataclasses.dataclass(frozen=True)
class SizeRestriction:
    """A condition that sizes must meet for the model to be valid.

    Attributes:
        condition: an expression of dimension names in Python's notation: `sequence <= 77`, `height % 2 == 0`.
        reason: what happens at other sizes.
        line: the user's line that causes it, `model.py:12`; "" if unknown.
    """

    condition: str
    reason: str
    line: str = ""

    def __str__(self) -> str:
        condition = self.condition
        if len(condition) > _LONGEST_SHOWN:
            # The beginning and the end of a long condition tell more than its middle.
            condition = f"{condition[: _LONGEST_SHOWN // 2]} … {condition[-_LONGEST_SHOWN // 2 :]}"
        return f"{condition} ({self.cause})"

    @property
    def cause(self) -> str:
        """The line and the reason: `model.py:7: the model computes something else at other sizes`."""
        return f"{self.line}: {self.reason}" if self.line else self.reason


@dataclasses.dataclass(frozen=True)
class Dimension:
    """The allowed sizes of a dynamic dimension.

    Attributes:
        name: its name in the shapes of inputs and outputs.
        minimum: the smallest size.
        maximum: the largest size, or None.
        restrictions: all conditions on the dimension, including those that set the bounds.
    """

    name: str
    minimum: int = 0
    maximum: int | None = None
    restrictions: tuple[SizeRestriction, ...] = ()

    @property
    def conditions(self) -> tuple[str, ...]:
        """The conditions besides the bounds: `height % 2 == 0`."""
        return tuple(r.condition for r in self.restrictions if _bound(r.condition, self.name) is None)


def write_restrictions(metadata: dict[str, str], restrictions: Iterable[SizeRestriction]) -> None:
    """Write restrictions into the metadata of a model, if there are any."""
    write_entries(metadata, DIMENSIONS, restrictions)


def read_restrictions(metadata: Mapping[str, str]) -> list[SizeRestriction]:
    """Read the restrictions in the metadata of a model; [] if there are none.

    Raises:
        DimensionError: the entry does not have the documented form.
    """
    return read_entries(metadata, DIMENSIONS, _restriction, DimensionError)


def read_ranges(metadata: Mapping[str, str]) -> dict[str, object] | None:
    """Read the ranges of dimensions in the metadata of a captured model, by name; None if there are none.

    Raises:
        DimensionError: the entry does not have the documented form.
    """
    if RANGES not in metadata:
        return None
    try:
        ranges = parse_json(metadata[RANGES])
    except ValueError as error:
        raise DimensionError(f"the metadata '{RANGES}' does not have the documented form: {error}") from error
    if not isinstance(ranges, dict):
        raise DimensionError(f"the metadata '{RANGES}' does not have the documented form")
    return ranges


def _restriction(fields: Mapping[str, object]) -> SizeRestriction:
    texts = []
    for key in ("condition", "reason", "line"):
        text = fields[key]
        if not isinstance(text, str):
            raise TypeError(f"{text!r} is not text")
        texts.append(text)
    return SizeRestriction(*texts)


def in_words(restrictions: Iterable[SizeRestriction]) -> list[str]:
    """Describe the valid sizes in words: `even height and width (model.py:7: …)`, or as the condition.

    Dimensions that one line requires to be multiples of one number share a phrase.
    """
    phrases: dict[tuple[str, str], list[str]] = {}
    for restriction in restrictions:
        multiple = _MULTIPLE.fullmatch(restriction.condition)
        divisor = multiple[2] if multiple is not None else ""
        name = multiple[1] if multiple is not None else str(restriction)
        phrases.setdefault((restriction.cause if divisor else name, divisor), []).append(name)
    return [_phrase(names, divisor, cause) for (cause, divisor), names in phrases.items()]


def _phrase(names: Sequence[str], divisor: str, cause: str) -> str:
    if not divisor:
        return names[0]
    name_list = " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
    return (
        f"even {name_list} ({cause})"
        if divisor == "2"
        else f"multiples of {divisor} of {name_list} ({cause})"
    )


def mentions(condition: str, name: str) -> bool:
    """Whether a condition mentions a dimension."""
    # The substring test is fast, and false for most conditions.
    return name in condition and re.search(rf"(?<!\w){re.escape(name)}(?!\w)", condition) is not None


def inputs_of(model: ir.Model, names: Sequence[str]) -> list[Input]:
    """Return the declared inputs of a model under the caller's names."""
    return [
        (name, [dim if isinstance(dim, int) else dim.value for dim in value.shape or ()])
        for name, value in zip(names, model.graph.inputs, strict=False)
    ]


def dimensions(inputs: Sequence[Input], metadata: Mapping[str, str]) -> dict[str, Dimension]:
    """Return the dynamic dimensions of a model by name, with their bounds and restrictions."""
    restrictions = read_restrictions(metadata)
    by_word = _restrictions_by_word(restrictions)
    by_name = {}
    for name in _names(inputs, metadata):
        if name.isidentifier():
            own_restrictions = tuple(by_word.get(name, ()))
        else:
            own_restrictions = tuple(r for r in restrictions if mentions(r.condition, name))
        bounds = [bound for r in own_restrictions if (bound := _bound(r.condition, name)) is not None]
        by_name[name] = Dimension(
            name,
            max((size for sign, size in bounds if sign == ">="), default=0),
            min((size for sign, size in bounds if sign == "<="), default=None),
            own_restrictions,
        )
    return by_name


class SizeCheck:
    """Refuses the sizes for which a model is not valid; reads the metadata once, for many calls.

    Attributes:
        dimensions: the dynamic dimensions by name, in order.

    Args:
        inputs: the declared inputs of the model.
        metadata: the model's metadata with the entry of `write_restrictions`.

    Raises:
        DimensionError: the metadata does not have the documented form.
    """

    def __init__(self, inputs: Sequence[Input], metadata: Mapping[str, str]):
        self.dimensions = dimensions(inputs, metadata)
        self._restrictions = read_restrictions(metadata)
        axes = [
            (position, axis, dim, name)
            for position, (name, shape) in enumerate(inputs)
            for axis, dim in enumerate(shape)
            if isinstance(dim, str)
        ]
        self._named_axes = [entry for entry in axes if entry[2] in self.dimensions]
        # A size such as `2*n` is computed from the named sizes, so it is compared after them.
        self._computed_axes = [entry for entry in axes if entry[2] not in self.dimensions]

    def __call__(self, shapes: Sequence[Sequence[int]]) -> None:
        """Check the shapes of a call, one for each input.

        Raises:
            DimensionError: two sizes of one dimension differ, or a condition is not true or has no value.
        """
        sizes = self._sizes_of(shapes)
        for position, axis, dim, name in self._computed_axes:
            declared_size, shape = evaluate(dim, sizes), shapes[position]
            if axis < len(shape) and declared_size not in (None, shape[axis]):
                raise DimensionError(
                    f"axis {axis} of input '{name}' has size {shape[axis]}, but the model is valid for "
                    f"{dim} = {declared_size}"
                )
        for restriction in self._restrictions:
            # A condition without a value gives None and counts as not met.
            value = evaluate(restriction.condition, sizes)
            if not value:
                raise DimensionError(self._refusal(restriction, sizes, value is None))

    def _sizes_of(self, shapes: Sequence[Sequence[int]]) -> dict[str, int]:
        """Return the size of each dimension; raise DimensionError if a dimension has two sizes."""
        sizes: dict[str, int] = {}
        for position, axis, dim, name in self._named_axes:
            shape = shapes[position]
            if axis < len(shape) and sizes.setdefault(dim, shape[axis]) != shape[axis]:
                raise DimensionError(
                    f"dimension '{dim}' has size {sizes[dim]} at {self._first_axis(dim)}, and size "
                    f"{shape[axis]} at axis {axis} of input '{name}': it must be the same for both"
                )
        return sizes

    def _first_axis(self, dim: str) -> str:
        """Name the axis from which the size of a dimension is read: `axis 0 of input 'x'`."""
        return next(
            f"axis {axis} of input '{name}'" for _, axis, named, name in self._named_axes if named == dim
        )

    def _refusal(self, restriction: SizeRestriction, sizes: Mapping[str, int], has_no_value: bool) -> str:
        mentioned = [
            f"'{name}' is {size} ({self._first_axis(name)})"
            for name, size in sizes.items()
            if mentions(restriction.condition, name)
        ]
        subject = f"dimension {', '.join(mentioned)}, but the" if mentioned else "the"
        note = "; this condition has no value at these sizes" if has_no_value else ""
        return f"{subject} model is valid for {restriction}{note}"


def _names(inputs: Sequence[Input], metadata: Mapping[str, str]) -> list[str]:
    """Return the dimension texts of the inputs that are names, not expressions."""
    texts = dict.fromkeys(dim for _, shape in inputs for dim in shape if isinstance(dim, str))
    ranges = read_ranges(metadata)
    if ranges is not None:
        return [text for text in texts if text in ranges]
    # Any size will do: the test is only whether a text can be evaluated.
    sizes = dict.fromkeys(texts, 1)
    return [
        text
        for text in texts
        if (text.isidentifier() and not keyword.iskeyword(text)) or _has_no_value(text, sizes)
    ]


def _has_no_value(text: str, sizes: dict[str, int]) -> bool:
    """Whether a text is not an expression of the other dimensions."""
    size = sizes.pop(text)
    try:
        return evaluate(text, sizes) is None
    finally:
        sizes[text] = size


def _restrictions_by_word(restrictions: Sequence[SizeRestriction]) -> dict[str, list[SizeRestriction]]:
    """Return the restrictions that contain each word, in order."""
    by_word: dict[str, list[SizeRestriction]] = {}
    for restriction in restrictions:
        # The index keeps the time linear for models with thousands of dimensions and conditions.
        for word in dict.fromkeys(_WORD.findall(restriction.condition)):
            by_word.setdefault(word, []).append(restriction)
    return by_word


def _bound(condition: str, name: str) -> tuple[str, int] | None:
    """Return the sign and the number of a bound such as `name >= 2`; None for another condition."""
    match = _BOUND.fullmatch(condition)
    return (match[2], int(match[3])) if match is not None and match[1] == name else None
