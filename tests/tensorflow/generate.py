"""Runs the records in TensorFlow, and writes the results that the tests compare with.

At the root of the repository, in an environment with opsetta and TensorFlow (2.21 wrote what is committed):

    python -m tests.tensorflow.generate            # the records that are new or changed
    python -m tests.tensorflow.generate --all      # every record
    python -m tests.tensorflow.generate elementwise nn_pooling
"""

from __future__ import annotations

import argparse
import os
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")

import numpy as np
import tensorflow as tf
from tensorflow.python.framework import op_def_library, op_def_registry

from . import records
from .records import Const, Record, Stored

_TYPES = {
    "half": "FLOAT16",
    "bool": "BOOL",
    "string": "STRING",
    "float": "FLOAT",
    "double": "DOUBLE",
} | {
    name: name.upper()
    for name in (
        "float16 bfloat16 int8 int16 int32 int64 uint8 uint16 uint32 uint64 complex64 complex128"
    ).split()
}
_TYPES |= {"float32": "FLOAT", "float64": "DOUBLE"}


def _type(number: int) -> list[str] | str:
    name = tf.as_dtype(number).base_dtype.name
    return ["type", _TYPES[name]] if name in _TYPES else name


def _shape(proto: Any) -> list[int] | None:
    return None if proto.unknown_rank else [dim.size for dim in proto.dim]


def _attribute(value: Any) -> Any:
    """An attribute in the form that a source node has it."""
    kind = value.WhichOneof("value")
    if kind == "s":
        return value.s.decode("utf-8", "replace")
    if kind == "type":
        return _type(value.type)
    if kind == "shape":
        return _shape(value.shape)
    if kind == "func":
        return value.func.name
    if kind in ("i", "f", "b"):
        return getattr(value, kind)
    if kind == "list":
        found = value.list
        return (
            [item.decode("utf-8", "replace") for item in found.s]
            or list(found.i)
            or list(found.f)
            or list(found.b)
            or [_type(item) for item in found.type]
            or [_shape(item) for item in found.shape]
        )
    raise ValueError(f"an attribute of kind {kind}")


def _defaults(definition: Any) -> dict[str, Any]:
    """The defaults of the attributes that no input decides."""
    decided = {
        name
        for item in definition.input_arg
        for name in (item.type_attr, item.type_list_attr, item.number_attr)
    }
    found = {}
    for attribute in definition.attr:
        if attribute.HasField("default_value") and attribute.name not in decided:
            default = attribute.default_value
            kind = default.WhichOneof("value")
            if kind == "shape":
                found[attribute.name] = tf.TensorShape(default.shape)
            elif kind == "list":
                found[attribute.name] = _attribute(default)
            else:
                found[attribute.name] = getattr(default, kind)
    return found


def _feed(item: Any, feeds: dict[Any, Any]) -> Any:
    if isinstance(item, list):
        return [_feed(part, feeds) for part in item]
    array = item.array if isinstance(item, Const) else item
    place = tf.compat.v1.placeholder(tf.string if array.dtype == object else array.dtype, array.shape)
    feeds[place] = array.copy()  # InplaceSub writes to its operand.
    return place


_QUANTIZED = ("qint8", "quint8", "qint16", "quint16", "qint32")


def _all_inputs(record: Record, names: list[str]) -> dict[str, Any]:
    """The inputs, with the lists that are empty."""
    empty = {name: [] for name in names if record.attributes.get(name) == []}
    return {name: item for name in names if (item := {**record.inputs, **empty}.get(name)) is not None}


def _plain(array: Any) -> Any:
    """A quantized tensor as its integers."""
    return array.view(array.dtype[0]) if array.dtype.fields else array


def run(record: Record) -> Stored:
    """Run a record as a graph of one node."""
    definition = op_def_registry.get(record.op)
    if definition is None:
        raise ValueError(f"TensorFlow has no operator {record.op}")
    with tf.Graph().as_default() as graph:
        feeds: dict[Any, Any] = {}
        wanted = [argument.name for argument in definition.input_arg]
        inputs = _all_inputs(record, wanted)
        assert list(inputs) == wanted, f"the inputs in their order are {wanted}"
        places = {name: _feed(item, feeds) for name, item in inputs.items()}
        attributes = {**_defaults(definition), **record.attributes}
        attributes = {name: item for name, item in attributes.items() if name not in wanted}
        for argument in definition.input_arg:
            kind = attributes.get(argument.type_attr)
            if isinstance(kind, str) and kind in _QUANTIZED:
                places[argument.name] = tf.bitcast(places[argument.name], attributes.pop(argument.type_attr))
        for attribute in definition.attr:
            if attribute.type == "shape" and isinstance(attributes.get(attribute.name), (list, type(None))):
                given = attributes[attribute.name]
                sizes = None if given is None else [None if size < 0 else size for size in given]
                attributes[attribute.name] = tf.TensorShape(sizes)
        # Not by tf.raw_ops, which renames arguments.
        node = op_def_library._apply_op_helper(record.op, name="the_node", **places, **attributes)[2]
        config = tf.compat.v1.ConfigProto(intra_op_parallelism_threads=1, inter_op_parallelism_threads=1)
        with tf.compat.v1.Session(graph=graph, config=config) as session:
            fetched = [] if not node.outputs else session.run(list(node.outputs), feeds)
    count = 0
    arguments: dict[str, Any] = {}
    for name, item in inputs.items():
        size = len(item) if isinstance(item, list) else 1
        positions = list(range(count, count + size))
        arguments[name] = ["inputs", positions] if isinstance(item, list) else ["input", count]
        count += size
    for attribute in definition.attr:
        arguments[attribute.name] = _attribute(node.node_def.attr[attribute.name])
    return Stored(record.digest(), arguments, [_plain(np.asarray(item)) for item in fetched])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("subjects", nargs="*", help="modules of tests/tensorflow/cases; all unless given")
    parser.add_argument("--all", action="store_true", help="run unchanged records, too")
    options = parser.parse_args()
    for subject, listed in records.subjects().items():
        if options.subjects and subject not in options.subjects:
            continue
        held = {} if options.all else records.read(subject)
        names = [record.name for record in listed]
        assert len(set(names)) == len(names), [name for name in names if names.count(name) > 1]
        stored, failed = {}, 0
        for record in listed:
            known = held.get(record.name)
            if known is not None and known.digest == record.digest():
                stored[record.name] = known
                continue
            try:
                stored[record.name] = run(record)
            except Exception as error:
                failed += 1
                print(f"{record.name}: {type(error).__name__}: {str(error).splitlines()[0]}")
        records.write(subject, stored)
        size = (records.STORE / f"{subject}.json.xz").stat().st_size
        print(f"{subject}: {len(stored)} records, {failed} failed, {size} bytes")


if __name__ == "__main__":
    main()
