"""The sizes for which an exported model holds: read from its metadata, shown, and checked before it runs.

Works without torch. Capture writes the restrictions; `docs/metadata.md` describes their format.
"""

from __future__ import annotations

import ast
import dataclasses
import json
import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import onnx_ir as ir

from ...registration import DIMENSIONS, RANGES, DimensionError

_BOUND = re.compile(r"(.+) (>=|<=) (\d+)")
_OPERATORS: dict[type, Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Div: operator.truediv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
    ast.USub: operator.neg,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "Max": max,
    "Min": min,
    "Mod": operator.mod,
    "PythonMod": operator.mod,
    "FloorDiv": operator.floordiv,
    "CleanDiv": operator.floordiv,
}

Input = tuple[str, Sequence[int | str | None]]
"""The name of an input, and its shape as the model declares it."""


@dataclasses.dataclass(frozen=True)
class Restriction:
    """A condition on sizes, outside of which the model does not hold.

    Attributes:
        condition: over the names of dimensions, in Python's notation: `sequence <= 77`, `height % 2 == 0`.
        reason: what happens elsewhere, in words.
        line: the user's line that asks for it, `model.py:12`; empty where it is not known.
    """

    condition: str
    reason: str
    line: str = ""

    def __str__(self) -> str:
        return f"{self.condition} ({f'{self.line}: ' if self.line else ''}{self.reason})"


@dataclasses.dataclass(frozen=True)
class Dimension:
    """The sizes that a dynamic dimension may have.

    Attributes:
        name: its name in the shapes of inputs and outputs.
        minimum: the least size.
        maximum: the greatest size, None where there is none.
        restrictions: where the bounds come from, and the further conditions that name the dimension.
    """

    name: str
    minimum: int = 0
    maximum: int | None = None
    restrictions: tuple[Restriction, ...] = ()

    @property
    def conditions(self) -> tuple[str, ...]:
        """What must hold of the size beside its bounds: `height % 2 == 0`."""
        return tuple(r.condition for r in self.restrictions if _bound(r.condition, self.name) is None)


def write(metadata: dict[str, str], restrictions: Iterable[Restriction]) -> None:
    """Note restrictions in the metadata of a model; nothing where there are none."""
    found = [dataclasses.asdict(restriction) for restriction in restrictions]
    if found:
        metadata[DIMENSIONS] = json.dumps(found, sort_keys=True, separators=(",", ":"))


def read(metadata: Mapping[str, str]) -> list[Restriction]:
    """The restrictions in the metadata of a model.

    Raises:
        DimensionError: the entry is not of the documented form.
    """
    try:
        entries = json.loads(metadata.get(DIMENSIONS, "[]"))
        return [
            Restriction(*(_text(entry[key]) for key in ("condition", "reason", "line"))) for entry in entries
        ]
    except (ValueError, TypeError, LookupError) as error:
        raise DimensionError(f"the metadata '{DIMENSIONS}' is not of its form: {error}") from error


def _text(item: Any) -> str:
    if not isinstance(item, str):
        raise TypeError(f"{item!r} is not text")
    return item


def inputs_of(model: ir.Model, names: Sequence[str]) -> list[Input]:
    """What a model declares of its inputs, under the names that its caller knows them by."""
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
    """Refuse sizes for which a model does not hold.

    Args:
        inputs: what the model declares.
        metadata: the model's, with what `write` noted.
        shapes: the shape of each input of a call.

    Raises:
        DimensionError: a size is outside its dimension's range, or two sizes of one dimension differ.
    """
    sizes, places = _bind(inputs, _names(inputs, metadata), shapes)
    for (name, declared), shape in zip(inputs, shapes, strict=True):
        for axis, (dim, size) in enumerate(zip(declared, shape, strict=False)):
            if not isinstance(dim, str) or dim in sizes:
                continue
            wanted = evaluate(dim, sizes)
            if wanted is not None and wanted != size:
                raise DimensionError(
                    f"axis {axis} of input '{name}' has size {size}, and the model holds for {dim} = {wanted}"
                )
    for restriction in read(metadata):
        if evaluate(restriction.condition, sizes) not in (None, True):
            given = [
                f"'{name}' is {size} ({places[name]})"
                for name, size in sizes.items()
                if _mentions(restriction.condition, name)
            ]
            raise DimensionError(f"dimension {', '.join(given)}, but the model holds for {restriction}")


def _bind(
    inputs: Sequence[Input], names: Sequence[str], shapes: Sequence[Sequence[int]]
) -> tuple[dict[str, int], dict[str, str]]:
    """The size of each dimension, and the place where it was read."""
    sizes: dict[str, int] = {}
    places: dict[str, str] = {}
    for (name, declared), shape in zip(inputs, shapes, strict=True):
        for axis, (dim, size) in enumerate(zip(declared, shape, strict=False)):
            if not isinstance(dim, str) or dim not in names:
                continue
            place = f"axis {axis} of input '{name}'"
            if sizes.setdefault(dim, size) != size:
                raise DimensionError(
                    f"dimension '{dim}' is {sizes[dim]} as {places[dim]}, and {size} as {place}: "
                    "the model was exported with one size for both"
                )
            places.setdefault(dim, place)
    return sizes, places


def _names(inputs: Sequence[Input], metadata: Mapping[str, str]) -> list[str]:
    """The dimensions of the inputs that are no expressions of others."""
    texts = dict.fromkeys(dim for _, shape in inputs for dim in shape if isinstance(dim, str))
    if RANGES in metadata:
        known = json.loads(metadata[RANGES])
        return [text for text in texts if text in known]
    return [text for text in texts if evaluate(text, dict.fromkeys(set(texts) - {text}, 1)) is None]


def _mentions(condition: str, name: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(name)}(?!\w)", condition) is not None


def _bound(condition: str, name: str) -> tuple[str, int] | None:
    """The sign and the size of a condition that is a bound of one dimension."""
    found = _BOUND.fullmatch(condition)
    return (found[2], int(found[3])) if found is not None and found[1] == name else None


def evaluate(text: str, sizes: Mapping[str, int]) -> Any:
    """The value of an expression over dimensions; None where it holds what is not known."""
    if text in sizes:
        return sizes[text]
    for name in sorted(sizes, key=len, reverse=True):
        text = re.sub(rf"(?<!\w){re.escape(name)}(?!\w)", f"({sizes[name]})", text)
    try:
        return _value(ast.parse(text, mode="eval").body)
    except (SyntaxError, ValueError, LookupError, ZeroDivisionError, RecursionError):
        return None


def _value(node: ast.AST) -> Any:
    """The value of arithmetic and comparisons of numbers; nothing else is evaluated."""
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return node.value
    if isinstance(node, ast.BinOp):
        left, right = _value(node.left), _value(node.right)
        if isinstance(node.op, ast.Pow) and not 0 <= right <= 8:
            raise ValueError("an exponent that no size has")
        return _OPERATORS[type(node.op)](left, right)
    if isinstance(node, ast.UnaryOp):
        return not _value(node.operand) if isinstance(node.op, ast.Not) else -_value(node.operand)
    if isinstance(node, ast.BoolOp):
        values = [_value(item) for item in node.values]
        return all(values) if isinstance(node.op, ast.And) else any(values)
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        return bool(_OPERATORS[type(node.ops[0])](_value(node.left), _value(node.comparators[0])))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return _FUNCTIONS[node.func.id](*map(_value, node.args))
    raise ValueError("it is no arithmetic of sizes")
