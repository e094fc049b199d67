"""Lowers the source graph of a record, runs it in onnxruntime, and compares it with TensorFlow's results."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import opsetta
from opsetta.exporter.lowering.source_dialect import LoweredModel, lower
from opsetta.passes import real_pairs
from opsetta.registration import KIND, default_registry
from opsetta.registration.arguments import source_node

from ..onnxruntime_sessions import run_onnxruntime
from ..opsets import HIGHEST, is_full_run, named
from ..thinning import Variants
from .records import Array, Const, Record, Stored, read, subjects

_BETWEEN = (9, 13)
"""Quick runs lower half of the records to each of these, and run graphs that differ from the one before."""

KNOWN, SIZES, RANK = "known shapes", "unknown sizes", "unknown rank"

_TOLERANCES = {
    "float16": (2e-3, 2e-3),
    "bfloat16": (2e-2, 2e-2),
    "float32": (1e-5, 1e-6),
    "float64": (1e-7, 1e-9),
}


@functools.cache
def stored(subject: str) -> dict[str, Stored]:
    return read(subject)


def parametrized(known: str) -> Any:
    """A test for each record: its subject and the record.

    Of the records of an operator, quick runs take the first, and then every fourth.
    """
    variants = Variants(first=1, step=4)
    cases = [
        pytest.param(
            subject,
            record,
            id=f"{subject}-{record.name}",
            marks=[*variants.marks(record.op), *([pytest.mark.sweep] if record.full_runs_only else [])],
        )
        for subject, listed in subjects().items()
        for record in listed
        if known == KNOWN or not record.needs_shapes
    ]
    return pytest.mark.parametrize(("subject", "record"), cases)


def _value(name: str, array: Array, known: str) -> ir.Value:
    dtype = ir.DataType.STRING if array.dtype == object else ir.DataType.from_numpy(array.dtype)
    shape = {KNOWN: ir.Shape(array.shape), SIZES: ir.Shape([None] * array.ndim), RANK: None}[known]
    return ir.Value(name=name, type=ir.TensorType(dtype), shape=shape)


def _constant(name: str, array: Array) -> ir.Value:
    tensor = (
        ir.StringTensor([str(item).encode() for item in array.reshape(-1)], shape=ir.Shape(array.shape))
        if (array.dtype == object)
        else ir.Tensor(array)
    )
    value = ir.Value(
        name=name, type=ir.TensorType(tensor.dtype), shape=ir.Shape(array.shape), const_value=tensor
    )
    value.metadata_props[KIND] = "constant"
    return value


def _argument(item: Any, values: list[ir.Value]) -> Any:
    if isinstance(item, list) and len(item) == 2:
        if item[0] == "input":
            return values[item[1]]
        if item[0] == "inputs":
            return [values[position] for position in item[1]]
        if item[0] == "type":
            return ir.DataType[item[1]]
    return [_argument(part, values) for part in item] if isinstance(item, list) else item


def source_model(record: Record, held: Stored, known: str) -> tuple[ir.Model, dict[str, Array]]:
    """The record as a graph of one source node, and what to feed it."""
    values: list[ir.Value] = []
    feed: dict[str, Array] = {}
    inputs, constants = [], []
    for item in record.inputs.values():
        for part in item if isinstance(item, list) else [item]:
            name = f"in{len(values)}"
            if isinstance(part, Const):
                values.append(_constant(name, part.array))
                constants.append(values[-1])
            else:
                values.append(_value(name, part, known))
                inputs.append(values[-1])
                feed[name] = part
    arguments = {name: _argument(item, values) for name, item in held.arguments.items()}
    outputs = [_value(f"out{i}", array, RANK) for i, array in enumerate(held.outputs)]
    node = source_node(f"tf::{record.op}", arguments, outputs=outputs, node_name="the_node")
    used = outputs if record.outputs is None else [outputs[position] for position in record.outputs]
    graph = ir.Graph(inputs, used, nodes=[node], initializers=constants, name="graph")
    model = ir.Model(graph, ir_version=10)
    real_pairs(model)
    return model, {name: _as_pairs(array) for name, array in feed.items()}


def _as_pairs(array: Array) -> Array:
    """Complex numbers as real pairs; other arrays unchanged."""
    return np.stack([array.real, array.imag], axis=-1) if array.dtype.kind == "c" else array


def _lowered(source: ir.Model, opset: int, must: bool) -> LoweredModel | None:
    """The ONNX model; None if the opset may refuse it and does."""
    try:
        return lower(source, opset, default_registry)
    except opsetta.UnsupportedOperatorsError:
        if must:
            raise
        return None


def _opsets(record: Record, known: str) -> list[int]:
    """The opsets to lower to; a quick run visits few."""
    if is_full_run():
        return list(range(7, HIGHEST + 1))
    if known == KNOWN:
        return sorted({record.lowest, max(record.lowest, _BETWEEN[len(record.name) % 2]), HIGHEST})
    if record.needs_rank or record.needs_sizes:
        return sorted({9, record.lowest, HIGHEST})
    # Without ranks the compositions are the same from 9 on for most: half of the records visit either end.
    return [max(record.lowest, (9, HIGHEST)[len(record.name) % 2])]


def check(record: Record, held: Stored, known: str, may_be_refused: bool = False) -> None:
    """Compare at the lowest and the highest opset, and where the graph changes.

    Args:
        may_be_refused: opsets may refuse the record, and one must.
    """
    source, feed = source_model(record, held, known)
    before, refused = None, False
    positions = range(len(held.outputs)) if record.outputs is None else record.outputs
    wanted = [_as_pairs(held.outputs[position]) for position in positions]
    for opset in _opsets(record, known):
        with named(opset):
            lowered = _lowered(source, opset, opset >= record.lowest and not may_be_refused)
            if lowered is None:
                refused = True
                continue
            if not record.computes_rank and (known == KNOWN or (known == SIZES and not record.loses_rank)):
                for output, array in zip(source.graph.outputs, wanted, strict=True):
                    shape = lowered.values[output].shape
                    assert shape is not None, "the rank of the result is lost"
                    assert len(shape) == array.ndim
            model = lowered.model
            graph = ir.to_proto(model).graph.SerializeToString(deterministic=True)
            if graph != before or opset == HIGHEST or is_full_run():
                proto = checked(model, feed, wanted)
                if opset <= record.run_until:
                    compare(record, wanted, run(proto, feed))
            before = graph
    assert refused or not may_be_refused, "no opset refuses it"


def checked(model: ir.Model, feed: dict[str, Array], wanted: list[Array]) -> onnx.ModelProto:
    """The file, which the checker accepts."""
    proto = ir.to_proto(model)
    outputs = zip(proto.graph.output, wanted, strict=True)
    ranks = {value.name: array.ndim for value, array in outputs} | {n: a.ndim for n, a in feed.items()}
    for value in (*proto.graph.input, *proto.graph.output):
        # The checker demands a rank.
        if not value.type.tensor_type.HasField("shape"):
            value.type.tensor_type.shape.dim.extend([onnx.TensorShapeProto.Dimension()] * ranks[value.name])
            value.type.tensor_type.shape.SetInParent()
    onnx.checker.check_model(proto, full_check=True)
    return proto


def run(proto: onnx.ModelProto, feed: dict[str, Array]) -> list[Array]:
    return run_onnxruntime(proto, feed)


def compare(record: Record, wanted: list[Array], found: list[Array]) -> None:
    """Compare results with TensorFlow's: element types, shapes, values."""
    assert len(found) == len(wanted)
    for position, (ours, theirs) in enumerate(zip(found, wanted, strict=True)):
        where = f"output {position}"
        assert ours.dtype == theirs.dtype, where
        assert ours.shape == theirs.shape, where
        if not record.compared:
            continue
        rtol, atol = _TOLERANCES.get(theirs.dtype.name, (0, 0))
        if theirs.dtype.kind in "fV" or theirs.dtype.name == "bfloat16":
            np.testing.assert_allclose(
                ours.astype(np.float64),
                theirs.astype(np.float64),
                rtol=rtol if record.rtol is None else record.rtol,
                atol=atol if record.atol is None else record.atol,
                err_msg=where,
            )
        else:
            np.testing.assert_array_equal(ours, theirs, err_msg=where)
