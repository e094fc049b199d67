"""Strings of TensorFlow as operators of onnxruntime-extensions, in the domain `ai.onnx.contrib`.

Conversion uses these functions on request: a session needs that library to run the file. The semantics are
those of its operators (docs/custom_ops.md), as version 0.15 computes them. Its StringToHashBucketFast is not
used, because its hashes of short strings differ from TensorFlow's.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from ..registration import DataType, GraphContext, Value, default_registry, onnx_symbolic
from .compositions.size_arithmetic import known_rank
from .tensorflow._common import constant_integers, flatten, set_shape
from .tensorflow.text.strings import constant_text

extensions_registry = default_registry.fork()
"""The default registry, with the functions of this module before its own."""

_WHITESPACE = " \t\n\v\f\r"


def _emit(
    g: GraphContext,
    op_type: str,
    *inputs: Value,
    shapes: Sequence[Sequence[int | ir.SymbolicDim | None] | None],
    dtypes: Sequence[DataType] = (DataType.STRING,),
    **attributes: int,
) -> list[Value]:
    """The results of a node; no schema tells their types and shapes."""
    results = g.op(f"ai.onnx.contrib::{op_type}", *inputs, outputs=len(dtypes), **attributes)
    values = [results] if isinstance(results, Value) else list(results)
    for value, dtype, shape in zip(values, dtypes, shapes, strict=True):
        value.type = ir.TensorType(dtype)
        set_shape(value, shape)
    return values


def _text(g: GraphContext, text: str) -> Value:
    return g.constant(np.array([text], dtype=object))


def _concatenate(g: GraphContext, X: Value, Y: Value) -> Value:
    """Below 20. Both operands need the same shape: the branches of Where are broadcast to it."""
    if g.shape(X) is None or g.shape(X) != g.shape(Y):
        X, Y = (g.op("Where", g.constant(np.array(is_first)), X, Y) for is_first in (True, False))
    return _emit(g, "StringConcat", X, Y, shapes=[g.shape(X)])[0]


extensions_registry.stand_in("StringConcat", 20, _concatenate)


@onnx_symbolic("tf::StaticRegexReplace", registry=extensions_registry)
def static_regex_replace(
    g: GraphContext, input: Value, pattern: str, rewrite: str, replace_global: bool = True
) -> Value:
    """Any pattern: the library has TensorFlow's regular expressions, those of RE2."""
    texts = _text(g, pattern), _text(g, rewrite)
    shape = g.shape(input)
    return _emit(g, "StringRegexReplace", input, *texts, shapes=[shape], global_replace=int(replace_global))[
        0
    ]


@onnx_symbolic("tf::RegexReplace", registry=extensions_registry)
def regex_replace(
    g: GraphContext, input: Value, pattern: Value, rewrite: Value, replace_global: bool = True
) -> Value:
    """The pattern and the replacement must be constant."""
    texts = constant_text(g, pattern, "pattern"), constant_text(g, rewrite, "rewrite")
    return static_regex_replace(g, input, *texts, replace_global)


@onnx_symbolic("tf::ReduceJoin", registry=extensions_registry)
def reduce_join(
    g: GraphContext, inputs: Value, reduction_indices: Value, keep_dims: bool = False, separator: str = ""
) -> Value:
    """Join the strings of dimensions of any sizes, one dimension after the other."""
    rank = known_rank(g, inputs)
    axes = [g.axis(axis, rank) for axis in constant_integers(g, reduction_indices, "reduction_indices")]
    result = inputs
    for number, axis in enumerate(axes):
        # The dimensions that were joined before are gone.
        position = axis - sum(earlier < axis for earlier in axes[:number])
        operands = _text(g, separator), g.constant([position], DataType.INT64)
        result = _emit(g, "StringJoin", result, *operands, shapes=[[None] * (rank - 1 - number)])[0]
    if len(axes) == rank:
        # The library joins a vector to a vector of one string.
        result = set_shape(g.op("Reshape", result, g.constant([], DataType.INT64)), [])
    return g.op("Unsqueeze", result, axes=sorted(axes)) if keep_dims and axes else result


def _split(g: GraphContext, flat: Value, characters: str, skip_empty: bool) -> list[Value]:
    """The parts between the characters as a sparse matrix: positions, texts, sizes."""
    operands = _text(g, characters), g.constant(np.array([skip_empty]))
    dtypes = (DataType.INT64, DataType.STRING, DataType.INT64)
    return _emit(g, "StringSplit", flat, *operands, dtypes=dtypes, shapes=([None, 2], [None], [2]))


@onnx_symbolic("tf::StringSplitV2", registry=extensions_registry)
def string_split_v2(g: GraphContext, input: Value, sep: Value, maxsplit: int = -1) -> list[Value]:
    """The parts of each string as a sparse matrix, at whitespace or at one character."""
    separator, flat = constant_text(g, sep, "sep"), flatten(g, input)
    if maxsplit >= 0 or len(separator) > 1:
        raise g.refuse(
            "splits at several characters, or a limited number of them, need ONNX's StringSplit", 20
        )
    if not separator:
        return _split(g, flat, _WHITESPACE, True)
    # The library has no part for an empty string, which has one in TensorFlow: each string gets one in front.
    prefixed = g.op("StringConcat", _text(g, separator), flat)
    positions, texts, sizes = _split(g, prefixed, separator, False)
    columns = g.op("Gather", positions, 1, axis=1)
    kept = set_shape(g.op("NonZero", g.op("Less", 0, columns)), [1, None])
    kept = g.op("Reshape", kept, [-1])
    shift = g.constant([0, 1], DataType.INT64)
    remaining = g.op("Sub", g.op("Gather", positions, kept, axis=0), shift)
    return [remaining, g.op("Gather", texts, kept, axis=0), g.op("Sub", sizes, shift)]


@onnx_symbolic("tf::StringSplit", registry=extensions_registry)
def string_split(g: GraphContext, input: Value, delimiter: Value, skip_empty: bool = True) -> list[Value]:
    """The parts of each string as a sparse matrix; each character of the delimiter separates."""
    characters = constant_text(g, delimiter, "delimiter")
    if not characters:
        raise g.refuse("strings cannot be split into bytes: do so before the model")
    return _split(g, flatten(g, input), characters, skip_empty)
