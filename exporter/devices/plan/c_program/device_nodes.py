"""The nodes that the runtime in C runs, and a reader of ONNX nodes from which they are emitted."""

from __future__ import annotations

import dataclasses
import math
import struct
from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

import numpy as np
import onnx_ir as ir
from onnx_ir.convenience import get_const_tensor

from .....registration import PlanError
from .....registration.schemas import operator_schema


@dataclasses.dataclass(frozen=True, eq=False)
class Scratch:
    """A temporary value after the planned arena, in memory that all nodes of the model share."""

    dtype: ir.DataType
    shape: Sequence[int]

    @property
    def size(self) -> int:
        """The bytes of the value."""
        return math.prod(self.shape) * self.dtype.bitwidth // 8


Operand: TypeAlias = "ir.Value | Scratch | np.ndarray | None"
"""A value of the model, a temporary value, a constant, or an omitted operand."""


@dataclasses.dataclass(frozen=True)
class Strided:
    """The elements of an operand at fixed steps along some axes, from the element `start` on."""

    operand: Operand
    steps: Sequence[int]
    start: int = 0


@dataclasses.dataclass(frozen=True)
class DeviceNode:
    """A node of the runtime; the meaning of `numbers` is documented at the kernel in C."""

    op_type: str
    inputs: Sequence[Operand]
    outputs: Sequence[Operand]
    numbers: Sequence[int] = ()


Nodes: TypeAlias = Iterator[DeviceNode]


class OnnxNode:
    """Reads the operands, sizes and attributes of an ONNX node whose sizes are all known.

    Args:
        opset: the opset of the model, for defaults of attributes.
        sizes: returns the sizes of a value.
        shares: whether an operand and a result are at the same offset in memory.
    """

    def __init__(
        self,
        node: ir.Node,
        opset: int,
        sizes: Callable[[ir.Value], list[int]],
        shares: Callable[[ir.Value, ir.Value], bool],
    ):
        self.op_type, self.outputs = node.op_type, node.outputs
        self._node, self._sizes, self._shares = node, sizes, shares
        self._schema = operator_schema(node.op_type, opset)

    @property
    def output(self) -> ir.Value:
        """The first result."""
        return self.outputs[0]

    def input(self, index: int) -> ir.Value | None:
        """Return an operand by position; None if it is omitted."""
        return self._node.inputs[index] if index < len(self._node.inputs) else None

    def inputs(self) -> list[ir.Value]:
        """Return the operands that are not omitted."""
        return [value for value in self._node.inputs if value is not None]

    def source(self) -> ir.Value:
        """Return the first operand."""
        value = self._node.inputs[0]
        assert value is not None
        return value

    def constant(self, index: int) -> np.ndarray | None:
        """Return the elements of a constant operand; None if it is omitted or not constant."""
        value = self.input(index)
        tensor = None if value is None else get_const_tensor(value)
        return None if tensor is None else tensor.numpy()

    def shape(self, operand: Operand) -> list[int]:
        """Return the sizes of an operand; raise PlanError if it is omitted."""
        if operand is None:
            raise PlanError(f"{self.op_type} needs an operand that '{self._node.name}' omits")
        return self._sizes(operand) if isinstance(operand, ir.Value) else list(operand.shape)

    def attribute(self, name: str) -> object:
        """Return the value of an attribute, or ONNX's default; None if there is neither."""
        attribute = self._node.attributes.get(name)
        if attribute is not None:
            return attribute.value
        formal = self._schema.attributes.get(name) if self._schema is not None else None
        return None if formal is None else formal.default

    def integer(self, name: str, default: int = 0) -> int:
        """Return an integer attribute; `default` if ONNX has no default."""
        value = self.attribute(name)
        return value if isinstance(value, int) else default

    def real(self, name: str, default: float = 0.0) -> float:
        """Return a number attribute as a float; `default` if ONNX has no default."""
        value = self.attribute(name)
        return float(value) if isinstance(value, (int, float)) else default

    def text(self, name: str) -> str:
        """Return a text attribute; the first text of a list."""
        value = self.attribute(name)
        first = value[0] if isinstance(value, (list, tuple)) and value else value
        return first.decode() if isinstance(first, bytes) else str(first)

    def integers(self, name: str, default: Sequence[int]) -> list[int]:
        """Return an attribute with a list of integers; `default` if it is missing or empty."""
        value = self.attribute(name)
        return [int(item) for item in value] if isinstance(value, (list, tuple)) and value else list(default)

    def axis(self, rank: int, name: str = "axis", default: int = 0) -> int:
        """Return an axis attribute as an axis from 0 on."""
        axis = self.integer(name, default)
        return axis + rank if axis < 0 else axis

    def shares_memory(self, operand: Operand, result: Operand) -> bool:
        """Whether an operand and a result are in the same memory, so that writing changes the operand."""
        return (
            isinstance(operand, ir.Value) and isinstance(result, ir.Value) and self._shares(operand, result)
        )


def bits_of(*numbers: float) -> list[int]:
    """Return real numbers as the runtime reads them: the bits of float64 as integers."""
    return list(struct.unpack(f"<{len(numbers)}q", struct.pack(f"<{len(numbers)}d", *numbers)))


def strides_of(shape: Sequence[int], step: int = 1) -> list[int]:
    """Return the strides of a contiguous tensor whose elements are `step` apart."""
    return [step * math.prod(shape[axis + 1 :]) for axis in range(len(shape))]


def broadcast_steps(shape: Sequence[int], result: Sequence[int]) -> list[int]:
    """Return the steps of a broadcast operand along the axes of a result; 0 along repeated axes."""
    steps = [0 if size == 1 else step for size, step in zip(shape, strides_of(shape), strict=True)]
    return [0] * (len(result) - len(shape)) + steps


def walk_numbers(shape: Sequence[int], *operands: tuple[int, Sequence[int]]) -> list[int]:
    """Return a walk for the runtime: rank, sizes, then the first element and the steps of each operand.

    Adjacent axes are merged if all operands step over them evenly; axes of size 1 are dropped.

    Args:
        operands: the first element and the steps along `shape` of each operand.
    """
    axes: list[tuple[int, tuple[int, ...]]] = []
    for size, *steps in zip(shape, *(steps for _, steps in operands), strict=True):
        if size == 1:
            continue
        if axes and all(before == step * size for before, step in zip(axes[-1][1], steps, strict=True)):
            axes[-1] = axes[-1][0] * size, tuple(steps)
        else:
            axes.append((size, tuple(steps)))
    axes = axes or [(1, (1,) * len(operands))]
    numbers = [len(axes), *(size for size, _ in axes)]
    for index, (start, _) in enumerate(operands):
        numbers += [start, *(steps[index] for _, steps in axes)]
    return numbers


def copy(
    source: Operand, result: Operand, shape: Sequence[int], steps: Sequence[int], start: int = 0
) -> Nodes:
    """Emit a copy of elements at fixed steps along `shape` into a whole result."""
    return copy_part(source, result, shape, (0, strides_of(shape)), (start, steps))


def copy_part(
    source: Operand,
    result: Operand,
    shape: Sequence[int],
    target: tuple[int, Sequence[int]],
    origin: tuple[int, Sequence[int]],
) -> Nodes:
    """Emit a copy along `shape` from the (first element, steps) of `origin` to those of `target`."""
    if math.prod(shape):
        yield DeviceNode("Copy", [source], [result], walk_numbers(shape, target, origin))


def binary(node: OnnxNode, op_type: str, first: Operand, second: Operand, result: Operand) -> Nodes:
    """Emit an elementwise operator with two operands, which are broadcast."""
    shape = node.shape(result)
    first_elements, second_elements = (
        Strided(operand, broadcast_steps(node.shape(operand), shape)) for operand in (first, second)
    )
    return strided_binary(op_type, shape, first_elements, second_elements, Strided(result, strides_of(shape)))


def strided_binary(
    op_type: str, shape: Sequence[int], first: Strided, second: Strided, result: Strided
) -> Nodes:
    """Emit an elementwise operator with two operands at fixed steps along the axes of a shape."""
    if math.prod(shape):
        walk = walk_numbers(shape, *((item.start, item.steps) for item in (result, first, second)))
        yield DeviceNode(op_type, [first.operand, second.operand], [result.operand], walk)


def chain(node: OnnxNode, op_type: str, operands: Sequence[Operand], result: Operand) -> Nodes:
    """Emit a sum, or another binary operator, over any number of operands, one after the other.

    An operand that shares its memory with the result comes first.
    """
    first, *summands = sorted(operands, key=lambda operand: not node.shares_memory(operand, result))
    for index, operand in enumerate(summands):
        target = result
        if any(node.shares_memory(later, result) for later in summands[index + 1 :]):
            assert isinstance(result, ir.Value)
            target = Scratch(result.dtype or ir.DataType.FLOAT, node.shape(result))
        yield from binary(node, op_type, first, operand, target)
        first = target
    if not summands:
        yield from copy(first, result, node.shape(result), strides_of(node.shape(result)))


def constant_like(value: ir.Value, number: float) -> np.ndarray:
    """Return a number as an array of rank 0 with the element type of a value."""
    assert value.dtype is not None
    return np.array(number, value.dtype.numpy())


def line_numbers(shape: Sequence[int], axis: int) -> list[int]:
    """Return the sizes [before the axis, of the axis, after the axis], each multiplied together."""
    return [math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :])]
