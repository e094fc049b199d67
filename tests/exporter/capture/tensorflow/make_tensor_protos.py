"""Write tensor_protos.json: TensorProtos of every element type and form, and what TensorFlow reads from each.

    python tests/exporter/capture/tensorflow/make_tensor_protos.py

It needs TensorFlow; 2.21 made the file that is committed. A record has the message, and the bytes, shape and
type of the array that `tf.io.parse_tensor` returns, or `null` where it refuses the message.
"""

from __future__ import annotations

import json
import pathlib
from collections.abc import Iterator
from typing import Any

import tensorflow as tf
from tensorflow.core.framework import tensor_pb2, types_pb2

TARGET = pathlib.Path(__file__).parents[3] / "data" / "tensorflow" / "tensor_protos.json"
REAL = [1.0, -2.5, 0.15625]
HALF = [0x3C00, 0xC100, 0x3100]
LISTS: dict[str, tuple[str, Any]] = {
    "HALF": ("half_val", HALF),
    "BFLOAT16": ("half_val", [0x3F80, 0xC020, 0x7F80]),
    "FLOAT": ("float_val", REAL),
    "DOUBLE": ("double_val", REAL),
    "COMPLEX64": ("scomplex_val", [1.0, 2.0, -3.0, 4.5, 0.0, -1.0]),
    "COMPLEX128": ("dcomplex_val", [1.0, 2.0, -3.0, 4.5, 0.0, -1.0]),
    "INT64": ("int64_val", [1, -2, 2**62]),
    "UINT32": ("uint32_val", [1, 2, 2**32 - 1]),
    "UINT64": ("uint64_val", [1, 2, 2**64 - 1]),
    "BOOL": ("bool_val", [True, False, True]),
    "STRING": ("string_val", [b"a", b"\xff\x00", b""]),
    "UINT8": ("int_val", [1, 2, 255]),
    "QUINT8": ("int_val", [1, 2, 255]),
    "UINT16": ("int_val", [1, 2, 65535]),
    "QUINT16": ("int_val", [1, 2, 65535]),
    "UINT4": ("int_val", [1, 2, 15]),
    "UINT2": ("int_val", [1, 2, 3]),
    "INT4": ("int_val", [1, -2, 7]),
    "INT2": ("int_val", [1, -2, 0]),
    **{kind: ("int_val", [1, -2, 100]) for kind in ("INT8", "INT16", "INT32", "QINT8", "QINT16", "QINT32")},
    "FLOAT8_E5M2": ("float8_val", b"\x38\xc1\x7c"),
    "FLOAT8_E4M3FN": ("float8_val", b"\x38\xc1\x7c"),
    "FLOAT8_E4M3FNUZ": ("float8_val", b"\x38\xc1\x7c"),
    "FLOAT8_E4M3B11FNUZ": ("float8_val", b"\x38\xc1\x7c"),
    "FLOAT8_E5M2FNUZ": ("float8_val", b"\x38\xc1\x7c"),
    "FLOAT4_E2M1FN": ("float8_val", b"\x01\x0a\x07"),
}
"""The list of each element type, and three values in it."""
CONTENT = bytes(range(1, 17))


def message(kind: str, dims: list[int], values: Any = (), **fields: Any) -> tensor_pb2.TensorProto:
    """A TensorProto of an element type and a shape."""
    made = tensor_pb2.TensorProto(dtype=types_pb2.DataType.Value(f"DT_{kind}"), **fields)
    for size in dims:
        made.tensor_shape.dim.add(size=size)
    field, _ = LISTS[kind.removesuffix("_REF")]
    if field == "float8_val":
        made.float8_val = bytes(values)
    else:
        getattr(made, field).extend(values)
    return made


def regular() -> Iterator[tuple[str, tensor_pb2.TensorProto]]:
    """The forms that every element type has."""
    for kind, (_, values) in LISTS.items():
        width = 2 if kind.startswith("COMPLEX") else 1
        yield f"{kind}.full", message(kind, [3], values)
        yield f"{kind}.one", message(kind, [2, 2], values[:width])
        yield f"{kind}.short", message(kind, [5], values[: 2 * width])
        yield f"{kind}.long", message(kind, [2], values)
        yield f"{kind}.empty", message(kind, [2])
        yield f"{kind}.scalar", message(kind, [], values[width : 2 * width])
        yield f"{kind}.scalar_empty", message(kind, [])
        yield f"{kind}.zero_size", message(kind, [0, 3])
        yield f"{kind}.zero_size_with_values", message(kind, [0], values)
        if kind == "STRING":
            continue
        size = tf.dtypes.as_dtype(types_pb2.DataType.Value(f"DT_{kind}")).size
        content = bytes([0, 1, 1, 0]) if kind == "BOOL" else (CONTENT * 4)[: 4 * size]
        yield f"{kind}.content", message(kind, [2, 2], tensor_content=content)
        yield f"{kind}.content_and_list", message(kind, [2, 2], values, tensor_content=content)
        yield f"{kind}.content_short", message(kind, [2, 2], tensor_content=content[:-1])
        yield f"{kind}.content_long", message(kind, [2, 2], tensor_content=content + b"\0")
        yield f"{kind}.content_of_zero_size", message(kind, [0, 3], tensor_content=content)


def irregular() -> Iterator[tuple[str, tensor_pb2.TensorProto]]:
    """Forms that only some element types have, and messages that contradict themselves."""
    yield "STRING.content", message("STRING", [2], tensor_content=b"\x01\x02abb")
    yield "STRING.content_cut_off", message("STRING", [2], tensor_content=b"\x01\x02ab")
    yield "COMPLEX64.odd", message("COMPLEX64", [3], [1.0, 2.0, 3.0])
    yield "COMPLEX64.odd_scalar", message("COMPLEX64", [], [1.0])
    yield "INT8.out_of_range", message("INT8", [3], [128, -129, 1000])
    yield "UINT8.out_of_range", message("UINT8", [3], [-1, 256, 1000])
    yield "UINT16.out_of_range", message("UINT16", [2], [-1, 65537])
    yield "INT4.out_of_range", message("INT4", [2], [8, -9])
    yield "UINT4.out_of_range", message("UINT4", [2], [16, -1])
    yield "HALF.out_of_range", message("HALF", [2], [0x13C00, -1])
    yield "BFLOAT16.out_of_range", message("BFLOAT16", [2], [0x13F80, -1])
    yield "BOOL.content_of_2", message("BOOL", [2], tensor_content=b"\x02\x00")
    yield "FLOAT.nan_and_infinity", message("FLOAT", [3], [float("nan"), float("inf"), -0.0])
    yield "FLOAT.negative_size", message("FLOAT", [-1], [1.0])
    yield "FLOAT.negative_size_beside_zero", message("FLOAT", [0, -2])
    yield "FLOAT.too_large", message("FLOAT", [2**40, 2**40], [1.0])
    unknown = message("FLOAT", [], [1.0])
    unknown.tensor_shape.unknown_rank = True
    yield "FLOAT.unknown_rank", unknown
    wrong_list = message("FLOAT", [2])
    wrong_list.double_val.append(1.0)
    yield "FLOAT.wrong_list", wrong_list
    invalid = message("FLOAT", [2], [1.0])
    invalid.dtype = 0
    yield "INVALID.list", invalid


def read(proto: tensor_pb2.TensorProto) -> dict[str, Any] | None:
    """What TensorFlow reads; None where it refuses."""
    try:
        array = tf.io.parse_tensor(proto.SerializeToString(), tf.dtypes.as_dtype(proto.dtype)).numpy()
    except (tf.errors.OpError, TypeError) as error:
        print("  refused:", str(error).splitlines()[0][:150])
        return None
    if proto.dtype == types_pb2.DT_STRING:
        strings = [array] if isinstance(array, bytes) else array.ravel().tolist()
        return {"shape": list(getattr(array, "shape", ())), "strings": [string.hex() for string in strings]}
    return {"shape": list(array.shape), "type": str(array.dtype), "bytes": array.tobytes().hex()}


def main() -> None:
    """Write the records."""
    lines = []
    for name, proto in [*regular(), *irregular()]:
        print(name)
        record = {"name": name, "proto": proto.SerializeToString().hex(), "read": read(proto)}
        lines.append(json.dumps(record, separators=(",", ":")))
    TARGET.write_text("[\n" + ",\n".join(lines) + "\n]\n", encoding="utf-8")


if __name__ == "__main__":
    main()
