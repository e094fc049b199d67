"""Reads of lookup tables whose contents are constant.

A key becomes its position in the table, by the LabelEncoder of `ai.onnx.ml` or by arithmetic on integers; the
values are gathered by position. Source of the semantics: tensorflow/core/ops/lookup_ops.cc.
"""

import numpy as np

from ...registration import DataType, GraphContext, Value, dtypes, onnx_symbolic
from ..compositions.size_arithmetic import known_rank
from ._common import set_shape

_ML = "ai.onnx.ml"
_ML_COLUMN = 3
"""The column of `ai.onnx.ml` in onnx's table of releases."""
_KEYS_OF_ALL_TYPES = 2
"""The version of `ai.onnx.ml` from which LabelEncoder maps strings and integers to any of both."""
_MOST_COMPARISONS = 1024
"""Integer keys that are compared one by one where the domain's version has no LabelEncoder for them."""


def _takes_all_types(g: GraphContext) -> bool:
    """Import the version of `ai.onnx.ml` that was released with the opset; whether it maps all types."""
    return g.construction.import_released(_ML, _ML_COLUMN) >= _KEYS_OF_ALL_TYPES


@onnx_symbolic(["tf::LookupTableFind", "tf::LookupTableFindV2"])
def lookup_table_find(
    g: GraphContext,
    table_handle: Value,
    keys: Value,
    default_value: Value,
    table_keys: Value,
    table_values: Value,
) -> Value:
    """The values of keys; the default for keys that the table lacks."""
    key_array, value_array = g.constant_value(table_keys), g.constant_value(table_values)
    if key_array is None or value_array is None:
        raise g.refuse("the table is filled with computed keys or values")
    if value_array.shape[: key_array.ndim] != key_array.shape:
        raise g.refuse(f"the table has keys of shape {key_array.shape} and values of {value_array.shape}")
    # A key that occurs again replaces its value.
    rows = {key: position for position, key in enumerate(key_array.reshape(-1).tolist())}
    value_rows = value_array.reshape(key_array.size, *value_array.shape[key_array.ndim :])[
        list(rows.values())
    ]
    dtype = g.dtype(table_values) or DataType.INT64
    default_array = g.constant_value(default_value)
    if g.dtype(keys) == DataType.STRING:
        names = [string_of(g, key) for key in rows]
        is_direct = dtype == DataType.INT64 and default_array is not None and value_rows.ndim == 1
        if is_direct and names and _takes_all_types(g):
            assert default_array is not None
            return _encode(g, keys, names, value_rows.tolist(), int(default_array.reshape(-1)[0]))
        positions = positions_of_strings(g, keys, names)
    else:
        positions = _positions_of_integers(g, keys, [int(key) for key in rows])
    table = _table_with_default(g, value_rows, default_value, dtype)
    result = g.op("Gather", table, positions, axis=0)
    known_shape = g.shape(keys)
    return set_shape(result, None if known_shape is None else [*known_shape, *value_rows.shape[1:]])


@onnx_symbolic(["tf::LookupTableSize", "tf::LookupTableSizeV2"])
def lookup_table_size(g: GraphContext, table_handle: Value, table_keys: Value, table_values: Value) -> Value:
    key_array = g.constant_value(table_keys)
    if key_array is None:
        raise g.refuse("the table is filled with computed keys")
    return g.constant(len(set(key_array.reshape(-1).tolist())))


def string_of(g: GraphContext, key: bytes | str) -> str:
    """A key of a table as text; TensorFlow's strings are bytes, which need not be UTF-8."""
    try:
        return key.decode() if isinstance(key, bytes) else key
    except UnicodeDecodeError:
        raise g.refuse(f"the key {key!r} is not UTF-8, as strings of ONNX are") from None


def _encode(g: GraphContext, keys: Value, names: list[str], values: list[int], default: int) -> Value:
    """The integers of strings."""
    result = g.op(
        f"{_ML}::LabelEncoder", keys, keys_strings=names, values_int64s=values, default_int64=default
    )
    result.dtype = DataType.INT64
    return set_shape(result, g.shape(keys))


def positions_of_strings(g: GraphContext, keys: Value, names: list[str]) -> Value:
    """The positions of strings in a list; its length for other strings."""
    if not names:
        return _zeros(g, keys)
    if _takes_all_types(g):
        return _encode(g, keys, names, list(range(len(names))), len(names))
    result = g.op(f"{_ML}::LabelEncoder", keys, classes_strings=names, default_int64=len(names))
    result.dtype = DataType.INT64
    return set_shape(result, g.shape(keys))


def _zeros(g: GraphContext, keys: Value) -> Value:
    zero = g.constant_value(g.constant([0]))
    return set_shape(g.op("ConstantOfShape", g.op("Shape", keys), value=zero), g.shape(keys))


def _positions_of_integers(g: GraphContext, keys: Value, numbers: list[int]) -> Value:
    """The positions of integers in a list; its length for other integers."""
    if g.dtype(keys) not in dtypes.INTEGERS:
        raise g.refuse(
            f"a table with keys of {g.dtype(keys)} is not supported; only strings and integers are"
        )
    if not numbers:
        return _zeros(g, keys)
    int64_keys = g.cast(keys, DataType.INT64)
    count, least = len(numbers), min(numbers)
    if max(numbers) - least + 1 == count:
        # The keys are a range: arithmetic takes the place of a search.
        order = np.argsort(np.array(numbers, np.int64)).tolist()
        offset = g.op("Sub", int64_keys, least) if least else int64_keys
        is_outside = g.op("Or", g.op("Less", offset, 0), g.op("Greater", offset, count - 1))
        position = g.op("Where", is_outside, g.constant(count), offset)
        if order == list(range(count)):
            return position
        return g.op("Gather", g.constant(np.array([*order, count], np.int64)), position, axis=0)
    if _takes_all_types(g):
        result = g.op(
            f"{_ML}::LabelEncoder",
            int64_keys,
            keys_int64s=numbers,
            values_int64s=list(range(count)),
            default_int64=count,
        )
        result.dtype = DataType.INT64
        return set_shape(result, g.shape(keys))
    # Each element is compared with each key, which takes memory for all pairs.
    if count > _MOST_COMPARISONS:
        raise g.refuse(f"a table of {count} integers needs the LabelEncoder of ai.onnx.ml 2", first_opset=11)
    rank = known_rank(g, keys)
    matches = g.op(
        "Equal", g.op("Unsqueeze", int64_keys, axes=[rank]), g.constant(np.array(numbers, np.int64))
    )
    # At most one key matches, so the sum is its position less the number of keys, or 0.
    distances = g.constant(np.arange(count) - count)
    sums = g.op("ReduceSum", g.op("Mul", g.cast(matches, DataType.INT64), distances), axes=[rank], keepdims=0)
    return g.op("Add", sums, count)


def _table_with_default(
    g: GraphContext, value_rows: np.ndarray, default_value: Value, dtype: DataType
) -> Value:
    """The values of a table with the default as the last row."""
    default_array = g.constant_value(default_value)
    row_shape = value_rows.shape[1:]
    if default_array is not None:
        last = np.broadcast_to(default_array, row_shape).reshape(1, *row_shape)
        return g.constant(np.concatenate([value_rows, last]), dtype)
    # A computed default becomes the row that unknown keys select.
    last_row = g.op("Reshape", g.cast(default_value, dtype), [1, *row_shape])
    return g.op("Concat", g.constant(value_rows, dtype), last_row, axis=0) if len(value_rows) else last_row
