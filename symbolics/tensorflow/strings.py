"""String operators: ONNX has most of them from opset 20 on."""

import numpy as np

from ...registration import DataType, GraphContext, Value, dtypes, onnx_symbolic
from ...registration.warning import warn
from ..compositions.row_partitions import longest
from ..compositions.size_arithmetic import known_rank, sizes_of
from ._common import concatenate_strings, constant_integers, flatten, range_vector, set_shape

_NO_BYTES = (
    "ONNX has no operator that reads the bytes of strings: compute it before the model, and name its result "
    "as an input"
)


@onnx_symbolic("tf::StringJoin")
def string_join(g: GraphContext, inputs: list[Value], separator: str = "") -> Value:
    result = inputs[0]
    separator_value = g.constant(np.array(separator, dtype=object))
    for item in inputs[1:]:
        result = concatenate_strings(g, result, separator_value) if separator else result
        result = concatenate_strings(g, result, item)
    return result


@onnx_symbolic("tf::ReduceJoin")
def reduce_join(
    g: GraphContext,
    inputs: Value,
    reduction_indices: Value,
    keep_dims: bool = False,
    separator: str = "",
) -> Value:
    """Join the strings of dimensions of known sizes, one dimension after the other."""
    rank = known_rank(g, inputs)
    axes = [g.axis(axis, rank) for axis in constant_integers(g, reduction_indices, "reduction_indices")]
    result = inputs
    for axis in axes:
        size = g.size(result, axis)
        if not isinstance(size, int):
            raise g.refuse(f"the size of dimension {axis} is unknown")
        if not size:
            raise g.refuse(f"dimension {axis} is empty")
        parts = [
            g.call("aten::slice", self=result, dim=axis, start=index, end=index + 1) for index in range(size)
        ]
        result = string_join(g, parts, separator)
    return result if keep_dims or not axes else g.op("Squeeze", result, axes=sorted(axes))


@onnx_symbolic("tf::StaticRegexFullMatch")
def static_regex_full_match(g: GraphContext, input: Value, pattern: str) -> Value:
    return set_shape(g.op("RegexFullMatch", input, pattern=pattern), g.shape(input))


@onnx_symbolic("tf::RegexFullMatch")
def regex_full_match(g: GraphContext, input: Value, pattern: Value) -> Value:
    """The pattern must be constant."""
    return g.call("tf::StaticRegexFullMatch", input, _constant_text(g, pattern, "pattern"))


def _constant_text(g: GraphContext, value: Value, name: str) -> str:
    array = g.constant_value(value)
    if array is None or array.size != 1:
        raise g.refuse(f"'{name}' must be constant")
    text = array.reshape(-1)[0]
    return text.decode() if isinstance(text, bytes) else str(text)


@onnx_symbolic("tf::StringToNumber")
def string_to_number(g: GraphContext, string_tensor: Value, out_type: DataType = DataType.FLOAT) -> Value:
    return g.cast(string_tensor, out_type)


@onnx_symbolic("tf::AsString")
def as_string(
    g: GraphContext,
    input: Value,
    precision: int = -1,
    scientific: bool = False,
    shortest: bool = False,
    width: int = -1,
    fill: str = "",
) -> Value:
    """The digits of integers, and `true` and `false`."""
    dtype = g.dtype(input)
    if width > 0 or fill:
        raise g.refuse("a width or a fill character is not supported")
    if dtype == DataType.STRING:
        return input
    if dtype == DataType.BOOL:
        # The Where of onnxruntime takes strings.
        texts = (g.constant(np.array(text, dtype=object)) for text in ("true", "false"))
        return set_shape(g.op("Where", input, *texts), g.shape(input))
    if dtype not in dtypes.INTEGERS:
        raise g.refuse("ONNX does not define how many digits the text of a floating-point number has")
    return g.cast(input, DataType.STRING)


def _register_case(name: str, action: str) -> None:
    @onnx_symbolic(f"tf::String{name}")
    def change_case(g: GraphContext, input: Value, encoding: str = "") -> Value:
        """Letters of ASCII; with the encoding UTF-8, also those of other scripts."""
        locale = None
        if encoding:
            warn(
                f"String{name} becomes StringNormalizer, which changes letters outside of ASCII by the rules "
                "of the runtime's locale"
            )
        else:
            # In this locale, letters outside of ASCII have no case.
            locale = "C"
        # Without elements the operator returns an empty string: another one is added, and removed later.
        flat = set_shape(g.op("Reshape", input, [-1]), [None])
        padded = g.op("Concat", flat, g.constant(np.array(["-"], dtype=object)), axis=0)
        changed = set_shape(
            g.op("StringNormalizer", padded, case_change_action=action, is_case_sensitive=1, locale=locale),
            [None],
        )
        result = g.op("Slice", changed, starts=[0], ends=[-1], axes=[0])
        if g.rank(input) == 1:
            return set_shape(result, g.shape(input))
        return set_shape(g.op("Reshape", result, g.op("Shape", input)), g.shape(input))


_register_case("Lower", "LOWER")
_register_case("Upper", "UPPER")


@onnx_symbolic("tf::StringSplitV2")
def string_split_v2(g: GraphContext, input: Value, sep: Value, maxsplit: int = -1) -> list[Value]:
    """The parts of each string as a sparse matrix."""
    if maxsplit != -1:
        raise g.refuse(f"maxsplit {maxsplit} is not supported")
    separator = _constant_text(g, sep, "sep")
    input = flatten(g, input)
    parts, counts = g.op("StringSplit", input, delimiter=separator or None, outputs=2)
    set_shape(parts, [None, None])
    set_shape(counts, [None])
    if separator:
        # An empty string has one empty part. onnxruntime counts none, and the result may have no column.
        blank = g.op("Expand", g.constant(np.array("", dtype=object)), g.stack([*sizes_of(g, input), 1]))
        parts = set_shape(g.op("Concat", parts, blank, axis=1), [None, None])
        counts = g.call("aten::clamp_min", counts, 1)
    width = longest(g, counts)
    # Rows are padded to the longest one; the mask keeps the parts that each string has.
    columns = range_vector(g, width)
    mask = g.op("Less", g.op("Unsqueeze", columns, axes=[0]), g.op("Unsqueeze", counts, axes=[1]))
    positions = set_shape(g.op("Transpose", g.op("NonZero", mask), perm=[1, 0]), [None, 2])
    values = set_shape(g.op("GatherND", parts, positions), [None])
    return [positions, values, g.stack([*sizes_of(g, input), width])]


@onnx_symbolic("tf::StringToHashBucketFast")
def string_to_hash_bucket_fast(g: GraphContext, input: Value, num_buckets: int) -> Value:
    """Supported for one bucket, as in tables with one bucket for unknown strings."""
    return _only_bucket(g, input, num_buckets)


@onnx_symbolic("tf::StringToHashBucket")
def string_to_hash_bucket(g: GraphContext, string_tensor: Value, num_buckets: int) -> Value:
    """Supported for one bucket."""
    return _only_bucket(g, string_tensor, num_buckets)


@onnx_symbolic("tf::StringToHashBucketStrong")
def string_to_hash_bucket_strong(
    g: GraphContext, input: Value, num_buckets: int, key: list[int] | None = None
) -> Value:
    """Supported for one bucket."""
    return _only_bucket(g, input, num_buckets)


def _only_bucket(g: GraphContext, strings: Value, count: int) -> Value:
    if count != 1:
        raise g.refuse(_NO_BYTES)
    zero = g.constant_value(g.constant([0]))
    return set_shape(g.op("ConstantOfShape", g.op("Shape", strings), value=zero), g.shape(strings))
