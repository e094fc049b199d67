"""String operators: ONNX has most of them from opset 20 on."""

import numpy as np

from ....registration import DataType, GraphContext, Value, dtypes, onnx_symbolic
from ....registration.warning import warn
from ...compositions.size_arithmetic import known_rank
from .._common import concatenate_strings, constant_integers, flatten, set_shape
from .computed_fingerprints import bucket_of, fingerprint_of_integers
from .fingerprints import fingerprint

_NO_BYTES = (
    "ONNX has no operator that reads the bytes of strings: compute it before the model, and name its result "
    "as an input"
)

_DIGITS = frozenset(dtypes.INTEGERS) - {DataType.UINT64}
"""The integers whose text is that of an INT64."""
_KEEPING_ORDER = ("Cast", "Identity", "Reshape", "Squeeze", "Unsqueeze")


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
    g: GraphContext, inputs: Value, reduction_indices: Value, keep_dims: bool = False, separator: str = ""
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
    return g.call("tf::StaticRegexFullMatch", input, constant_text(g, pattern, "pattern"))


def constant_text(g: GraphContext, value: Value, name: str) -> str:
    """The single element of a constant tensor of strings."""
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
        if encoding not in ("", "utf-8"):
            raise g.refuse(f"TensorFlow has the encodings '' and 'utf-8', not {encoding!r}")
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


@onnx_symbolic("tf::StringToHashBucketFast")
def string_to_hash_bucket_fast(g: GraphContext, input: Value, num_buckets: int) -> Value:
    """Supported for constant strings, for the texts of integers, and for one bucket.

    Tables have one bucket for unknown strings.
    """
    array = g.constant_value(input)
    if array is None:
        source = _source_of_digits(g, input)
        if num_buckets == 1 or source is None:
            return _only_bucket(g, input, num_buckets)
        buckets = bucket_of(fingerprint_of_integers(g, flatten(g, source)), num_buckets)
        like = source if g.rank(source) == g.rank(input) is not None else input
        return set_shape(g.op("Reshape", buckets, g.op("Shape", like)), g.shape(input))
    texts = [item if isinstance(item, bytes) else str(item).encode() for item in array.reshape(-1)]
    constants = [fingerprint(text) % num_buckets for text in texts]
    return g.constant(np.array(constants, np.int64).reshape(array.shape))


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


def _source_of_digits(g: GraphContext, strings: Value) -> Value | None:
    """The integers that `AsString` turned into these strings, with the elements in the same order."""
    source: Value | None = strings
    while source is not None and g.dtype(source) == DataType.STRING:
        node = source.producer()
        source = node.inputs[0] if node is not None and node.op_type in _KEEPING_ORDER else None
    return source if source is not None and g.dtype(source) in _DIGITS else None


def _only_bucket(g: GraphContext, strings: Value, count: int) -> Value:
    if count != 1:
        raise g.refuse(_NO_BYTES)
    zero = g.constant_value(g.constant([0]))
    return set_shape(g.op("ConstantOfShape", g.op("Shape", strings), value=zero), g.shape(strings))
