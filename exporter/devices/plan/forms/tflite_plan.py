"""Memory plans for TensorFlow Lite Micro, in the metadata of a `.tflite` file.

TensorFlow Lite Micro plans the memory of tensors when a model starts, unless the file has a plan. It reads
one from the metadata `OfflineMemoryAllocation`: the offset of each tensor in its arena, or -1 for a tensor
that TensorFlow Lite Micro places at the start, as it does with the scratch memory of its kernels.

Sources: `memory_management.md` and `micro_allocation_info.cc` of https://github.com/tensorflow/tflite-micro
for the format and for lifetimes; `schema.fbs` of TensorFlow Lite for the numbers of fields and of types.
"""

from __future__ import annotations

import dataclasses
import math
import os
import pathlib
import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from .....passes.planning import Interval, align, assign_offsets, lower_bound
from .....registration import ModelFileError, PlanError, UsageError
from ....files.small_files import read_small, reason_of
from .saving import write_file

if TYPE_CHECKING:
    from flatbuffers.table import Table

_METADATA = "OfflineMemoryAllocation"
_IDENTIFIER = b"TFL3"
_FORMAT = 1
_AT_RUNTIME = -1
_ALIGNMENT = 16
"""Offsets are multiples of this many bytes, `MicroArenaBufferAlignment` of TensorFlow Lite Micro."""
_LARGEST_FILE = 2**31 - 1
# The numbers of the fields in `schema.fbs`, grouped by table.
_MODEL_FIELDS = 8
_SUBGRAPHS, _BUFFERS, _MODEL_METADATA = 2, 4, 6
_TENSORS, _INPUTS, _OUTPUTS, _OPERATORS = range(4)
_SHAPE, _TYPE, _BUFFER, _NAME, _IS_VARIABLE = 0, 1, 2, 3, 5
_OPERATOR_INPUTS, _OPERATOR_OUTPUTS, _CUSTOM_OPTIONS_OFFSET = 1, 2, 9
_DATA, _DATA_OFFSET = 0, 1
_METADATA_NAME, _METADATA_BUFFER = 0, 1
_TYPE_BYTES = {
    number: size
    for size, numbers in {
        1: (3, 6, 9, 17),
        2: (1, 7, 16, 18),
        4: (0, 2, 15),
        8: (4, 8, 10, 12),
        16: (11,),
    }.items()
    for number in numbers
}
"""The bytes of an element, by the number of its type; strings, resources and variants are missing. TensorFlow
Lite Micro stores one 4-bit integer in each byte."""


@dataclasses.dataclass(frozen=True)
class TflitePlan:
    """The memory plan of a `.tflite` file.

    Attributes:
        offsets: for each tensor, its offset in the arena's head; -1 for weights, variables, and tensors that
            no operator uses.
        peak: the bytes that the tensors need together.
        lower_bound: the largest total size of the tensors that are alive at one operator.
    """

    offsets: tuple[int, ...]
    peak: int
    lower_bound: int


def plan_tflite(model: str | os.PathLike[str], output: str | os.PathLike[str]) -> TflitePlan:
    """Write a copy of a `.tflite` file with a memory plan for TensorFlow Lite Micro.

    The plan is the metadata `OfflineMemoryAllocation`; it replaces an existing one. Everything else stays the
    same, byte for byte.

    Args:
        model: the file. It must have one sub-graph, and sizes for all dimensions.
        output: the file to write; it may be `model`.

    Raises:
        UsageError: the package flatbuffers is missing.
        PlanError: the model has several sub-graphs, a tensor without a size, or data outside its flatbuffer.
        ModelFileError: the file is damaged, no `.tflite` file, too large, or cannot be written.
    """
    try:
        content = read_small(model, _LARGEST_FILE)
    except (OSError, ValueError) as error:
        raise ModelFileError(f"'{os.fspath(model)}' cannot be read: {reason_of(error)}") from error
    if content[4:8] != _IDENTIFIER:
        raise ModelFileError(f"'{os.fspath(model)}' is not a .tflite file")
    try:
        tflite = _Table.root(content)
        plan = _plan_tensors(tflite)
        planned = _with_plan(tflite, plan)
    except ModuleNotFoundError as error:
        raise UsageError("plans of .tflite files need flatbuffers: pip install 'opsetta[tflite]'") from error
    except (struct.error, IndexError, ValueError, TypeError, UnicodeDecodeError) as error:
        raise ModelFileError(f"'{os.fspath(model)}' is damaged: {error}") from error
    write_file(pathlib.Path(output), planned)
    return plan


class _Table:
    """Reads the fields of a flatbuffer table by their numbers in the schema."""

    def __init__(self, table: Table):
        self._table = table

    @classmethod
    def root(cls, content: bytes) -> _Table:
        from flatbuffers import encode, packer
        from flatbuffers.table import Table

        return cls(Table(content, encode.Get(packer.uoffset, content, 0)))

    @property
    def content(self) -> bytes:
        """The bytes of the whole file."""
        content: bytes = self._table.Bytes
        return content

    @property
    def position(self) -> int:
        """The offset of the table in the file."""
        position: int = self._table.Pos
        return position

    def field(self, number: int) -> int | None:
        """Return the offset of a field in the file; None if the table does not have the field."""
        offset = self._table.Offset(4 + 2 * number)
        return self._table.Pos + offset if offset else None

    def integer(self, number: int, size: int) -> int:
        """Read an unsigned integer field of `size` bytes; 0 if the table does not have it."""
        begin = self.field(number)
        return 0 if begin is None else int.from_bytes(self.content[begin : begin + size], "little")

    def vector(self, number: int, dtype: str) -> np.ndarray:
        """Read the elements of a vector or text field; an empty array if the table does not have it."""
        begin = self.target_position(number)
        if begin is None:
            return np.zeros(0, dtype)
        [count] = np.frombuffer(self.content, "<u4", 1, begin)
        return np.frombuffer(self.content, dtype, int(count), begin + 4)

    def tables(self, number: int) -> list[_Table]:
        """Return the tables in a vector field."""
        from flatbuffers.table import Table

        first = (self.target_position(number) or 0) + 4
        offsets = self.vector(number, "<u4").tolist()
        return [
            _Table(Table(self.content, first + 4 * index + offset)) for index, offset in enumerate(offsets)
        ]

    def target_position(self, number: int) -> int | None:
        """Return the offset in the file of the table, vector or text to which a field refers, or None."""
        begin = self.field(number)
        return None if begin is None else self._table.Indirect(begin)


def _plan_tensors(tflite: _Table) -> TflitePlan:
    """Plan the tensors of the only sub-graph.

    Results are alive from their operator on, the graph's inputs from the first operator on, and its outputs
    until the last operator.
    """
    graphs, buffers = tflite.tables(_SUBGRAPHS), tflite.tables(_BUFFERS)
    if len(graphs) != 1:
        # TensorFlow Lite Micro applies the offsets of the first sub-graph to all others.
        raise PlanError(f"a .tflite file with a plan must have one sub-graph, but this has {len(graphs)}")
    [graph] = graphs
    tensors, operators = graph.tables(_TENSORS), graph.tables(_OPERATORS)
    if any(buffer.integer(_DATA_OFFSET, 8) > 1 for buffer in buffers) or any(
        operator.integer(_CUSTOM_OPTIONS_OFFSET, 8) > 1 for operator in operators
    ):
        raise PlanError("weights or options are outside the flatbuffer, whose size a plan changes")
    lifetimes = _lifetimes(graph, operators)
    intervals: dict[int, Interval] = {}
    for index, tensor in enumerate(tensors):
        data = buffers[tensor.integer(_BUFFER, 4)].vector(_DATA, "<u1")
        if index in lifetimes and not len(data) and not tensor.integer(_IS_VARIABLE, 1):
            size = _tensor_bytes(tensor)
            if size:
                intervals[index] = Interval(size, *lifetimes[index])
    placed = assign_offsets(list(intervals.values()), _ALIGNMENT)
    offsets = dict(zip(intervals, placed, strict=True))
    rounded = [Interval(align(size, _ALIGNMENT), first, last) for size, first, last in intervals.values()]
    peak = max((offset + interval.size for offset, interval in zip(placed, rounded, strict=True)), default=0)
    if peak > _LARGEST_FILE:
        raise PlanError(f"the tensors need {peak} bytes, but a plan has offsets of 32 bits")
    return TflitePlan(
        tuple(offsets.get(index, _AT_RUNTIME) for index in range(len(tensors))), peak, lower_bound(rounded)
    )


def _lifetimes(graph: _Table, operators: Sequence[_Table]) -> dict[int, tuple[int, int]]:
    """Return, by tensor index, the positions of the first and last operator that need the tensor."""
    first = dict.fromkeys(graph.vector(_INPUTS, "<i4").tolist(), 0)
    last = dict(first)
    for position, operator in enumerate(operators):
        for index in operator.vector(_OPERATOR_OUTPUTS, "<i4").tolist():
            first.setdefault(index, position)
            last[index] = position
        for index in operator.vector(_OPERATOR_INPUTS, "<i4").tolist():
            last[index] = position
    for index in graph.vector(_OUTPUTS, "<i4").tolist():
        first.setdefault(index, 0)
        last[index] = max(0, len(operators) - 1)
    # Weights have no first operator; neither have optional inputs, whose index is -1.
    return {index: (position, last[index]) for index, position in first.items() if index >= 0}


def _tensor_bytes(tensor: _Table) -> int | None:
    """Return the bytes of a tensor; None for a type whose size is known only at run time."""
    shape = tensor.vector(_SHAPE, "<i4").tolist()
    if any(size < 0 for size in shape):
        name = tensor.vector(_NAME, "<u1").tobytes().decode()
        raise PlanError(f"tensor '{name}' has the shape {shape}: set the sizes of all dimensions")
    element = _TYPE_BYTES.get(tensor.integer(_TYPE, 1))
    return None if element is None else math.prod(shape) * element


def _with_plan(tflite: _Table, plan: TflitePlan) -> bytes:
    """Return the bytes of a file with a plan: a new root table, followed by the whole old file.

    References in a flatbuffer point forward, so the new tables can refer to the old ones.
    """
    from flatbuffers import Builder

    if any(tflite.field(number) is not None for number in range(_MODEL_FIELDS, 4 * _MODEL_FIELDS)):
        raise PlanError("the file has fields that this version of opsetta does not know")
    content = tflite.content
    builder = Builder(len(content) + 1024)
    # Weights keep their alignment. The builder writes from the end of the file to its beginning.
    builder.Prep(_ALIGNMENT, len(content))
    builder.head -= len(content)
    builder.Bytes[builder.head : builder.head + len(content)] = content
    end = builder.Offset()

    numbers = np.array([_FORMAT, 1, len(plan.offsets), *plan.offsets], "<i4").tobytes()
    builder.StartVector(1, len(numbers), _ALIGNMENT)
    builder.head -= len(numbers)
    builder.Bytes[builder.head : builder.head + len(numbers)] = numbers
    data = builder.EndVector()
    builder.StartObject(2)
    builder.PrependUOffsetTRelativeSlot(_DATA, data, 0)
    buffer = builder.EndObject()

    buffers = [end - table.position for table in tflite.tables(_BUFFERS)]
    entries = tflite.tables(_MODEL_METADATA)
    metadata = [end - table.position for table in entries]
    existing = [
        table.integer(_METADATA_BUFFER, 4)
        for table in entries
        if table.vector(_METADATA_NAME, "<u1").tobytes() == _METADATA.encode()
    ]
    for index in existing:
        buffers[index] = buffer
    if not existing:
        name = builder.CreateString(_METADATA)
        builder.StartObject(2)
        builder.PrependUOffsetTRelativeSlot(_METADATA_NAME, name, 0)
        builder.PrependUint32Slot(_METADATA_BUFFER, len(buffers), 0)
        metadata.append(builder.EndObject())
        buffers.append(buffer)
    vectors = {}
    for number, positions in ((_BUFFERS, buffers), (_MODEL_METADATA, metadata)):
        builder.StartVector(4, len(positions), 4)
        for position in reversed(positions):
            builder.PrependUOffsetTRelative(position)
        vectors[number] = builder.EndVector()

    builder.StartObject(_MODEL_FIELDS)
    builder.PrependUint32Slot(0, tflite.integer(0, 4), 0)
    for number in range(1, _MODEL_FIELDS):
        target = tflite.target_position(number)
        if number in vectors:
            builder.PrependUOffsetTRelativeSlot(number, vectors[number], 0)
        elif target is not None:
            builder.PrependUOffsetTRelativeSlot(number, end - target, 0)
    builder.Finish(builder.EndObject(), _IDENTIFIER)
    return bytes(builder.Output())
