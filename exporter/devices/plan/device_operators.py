"""What the runtime in C can run, from its own table of operators."""

from __future__ import annotations

import dataclasses
import functools
import importlib.resources
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import onnx_ir as ir

from ....registration import PlanError
from .device_nodes import STRIDED_FORMS, DeviceNode

_ROW = re.compile(r'\{"([\w ]+)", run_\w+, "([^"]*)", "([^"]*)"\}')
_OPERAND = re.compile(r"([a-zA-Z-])(\d*)([?*]?)")
_INTEGERS = {ir.DataType.INT32, ir.DataType.INT64}
_BYTES = {ir.DataType.INT8, ir.DataType.UINT8}
_NUMBERS = {ir.DataType.FLOAT} | _INTEGERS | _BYTES
_TYPES: dict[str, set[ir.DataType]] = {
    "f": {ir.DataType.FLOAT},
    "m": {ir.DataType.FLOAT, ir.DataType.BOOL},
    "r": {ir.DataType.FLOAT, ir.DataType.DOUBLE},
    "n": _NUMBERS,
    "d": _NUMBERS | {ir.DataType.DOUBLE},
    "e": _NUMBERS | {ir.DataType.BOOL},
    "c": _NUMBERS | {ir.DataType.BOOL, ir.DataType.DOUBLE},
    "i": _INTEGERS,
    "l": {ir.DataType.INT64},
    "o": {ir.DataType.BOOL},
    "q": _BYTES,
    "s": _BYTES | {ir.DataType.INT32},
    "x": {
        dtype for dtype in ir.DataType if dtype.name not in ("UNDEFINED", "STRING") and dtype.bitwidth >= 8
    },
}
"""The element types of each letter of the table; T, U and V are those of the inputs 0, 1 and 2."""
_MOST_RANK = 8
_SINGLE_SCALES = {"QLinearMatMul": (1, 2, 6, 7), "MatMulInteger": (2,)}
"""Inputs with one element, which ONNX allows for each row, too."""


@dataclasses.dataclass(frozen=True)
class _Operand:
    letter: str
    ranks: frozenset[int]
    count: str
    """`?` for one that may be omitted, `*` for any number of them."""


@dataclasses.dataclass(frozen=True)
class OperatorRow:
    """A row of the table: operands, and the texts that each attribute may have (None for any value)."""

    inputs: tuple[_Operand, ...]
    outputs: tuple[_Operand, ...]
    attributes: Mapping[str, frozenset[str] | None]


@functools.cache
def operator_rows() -> Mapping[str, OperatorRow]:
    """The operators of the runtime by name."""
    source = importlib.resources.files(__package__).joinpath("runtime").joinpath("operators.c")
    text = re.sub(r",\n\s+", ", ", source.read_text(encoding="utf-8"))
    rows: dict[str, OperatorRow] = {}
    for names, operands, attributes in _ROW.findall(re.sub(r'"\s*\n\s*"', "", text)):
        inputs, outputs = (
            tuple(
                _Operand(letter, frozenset(map(int, ranks)), count)
                for letter, ranks, count in _OPERAND.findall(part)
            )
            for part in operands.split(">")
        )
        words = (word.partition("=") for word in attributes.split())
        texts = {name: frozenset(values.split("|")) if values else None for name, _, values in words}
        rows |= dict.fromkeys(names.split(), OperatorRow(inputs, outputs, texts))
    return rows


def check_nodes(nodes: Iterable[DeviceNode]) -> None:
    """Refuse nodes that the runtime cannot run.

    Raises:
        PlanError: lists all operators without a kernel, and the others with the reasons.
    """
    missing: Counter[str] = Counter()
    reasons: Counter[tuple[str, str]] = Counter()
    for node in nodes:
        row = operator_rows().get(node.op_type)
        if node.op_type in STRIDED_FORMS and not node.domain:
            reasons[node.op_type, "sizes or operands are computed"] += 1
        elif node.domain not in ("", "ai.onnx") or row is None:
            missing[f"{node.domain}::{node.op_type}" if node.domain else node.op_type] += 1
        elif reason := _problem(node, row):
            reasons[node.op_type, reason] += 1
    listed = [f"{name} ({count})" for name, count in missing.items()]
    listed += [f"{name} ({count}: {reason})" for (name, reason), count in reasons.items()]
    if listed:
        raise PlanError(f"the runtime in C has no kernels for {', '.join(sorted(listed))}")


def _problem(node: DeviceNode, row: OperatorRow) -> str | None:
    """Why a node of a known operator cannot run."""
    for name, attribute in node.attributes.items():
        if name not in row.attributes:
            return f"attribute '{name}'"
        texts = row.attributes[name]
        if texts is None:
            continue
        words = (
            attribute.as_strings() if attribute.type == ir.AttributeType.STRINGS else [attribute.as_string()]
        )
        if not texts.issuperset(words) or len(set(words)) != 1:
            return f"{name}={'/'.join(words)}"
    for side, operands, values in (("input", row.inputs, node.inputs), ("output", row.outputs, node.outputs)):
        if problem := _operand_problem(side, operands, values, node.inputs):
            return problem
    for index in _SINGLE_SCALES.get(node.op_type, ()):
        value = node.inputs[index] if index < len(node.inputs) else None
        if value is not None and (value.shape is None or any(size != 1 for size in value.shape)):
            return f"input {index} has several elements"
    return None


def _operand_problem(
    side: str,
    operands: Sequence[_Operand],
    values: Sequence[ir.Value | None],
    inputs: Sequence[ir.Value | None],
) -> str | None:
    for index, value in enumerate(values):
        operand = operands[-1] if index >= len(operands) and operands[-1].count == "*" else None
        operand = operands[index] if index < len(operands) else operand
        if value is None or (side == "output" and not value.name):
            if operand is not None and not operand.count and operand.letter != "-":
                return f"without {side} {index}"
            continue
        if operand is None or operand.letter == "-":
            return f"{side} {index}"
        reference = "TUV".find(operand.letter)
        source = inputs[reference] if reference >= 0 else None
        same_type = set() if source is None or source.dtype is None else {source.dtype}
        if value.dtype is None or value.dtype not in _TYPES.get(operand.letter, same_type):
            return f"{side} {index} is {'unknown' if value.dtype is None else value.dtype.name}"
        rank = len(value.shape) if value.shape is not None else 0
        if rank > _MOST_RANK or (operand.ranks and rank not in operand.ranks):
            return f"{side} {index} has {rank} dimensions"
    return None
