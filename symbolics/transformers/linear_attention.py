"""Linear attention: a state of keys and values that is multiplied by a decay and updated by each token.

With decay a, key k, value v, rate b and query q of a token, the state S and the output o are:

    additive rule:  S' = a S + k v^T                     o = S'^T q
    delta rule:     S' = a S + b k (v - a S^T k)^T       o = S'^T q

Tokens are computed in chunks: matrix products within a chunk, and a Scan over the chunks with the state.
For the delta rule, the updates u of a chunk solve a triangular system (I + L) u = b (v - decayed S^T k).
Reference: Yang et al., Parallelizing Linear Transformers with the Delta Rule over Sequence Length, 2024.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import onnx_ir as ir

from ...registration import DataType, GraphContext, Value, onnx_symbolic
from ...registration.functions.results import as_list
from ..compositions.list_values import loop_inputs
from ..compositions.size_arithmetic import Size, compute, static_size

_CHUNK = 32
"""The maximum number of tokens in a chunk, a power of two."""
_LEVELS = _CHUNK.bit_length() - 1
"""How often a block of one token is doubled to get a chunk."""
_NO_DECAY_LEFT = -1e4
"""Replaces a logarithm of -inf, whose product with 0 would be NaN; both are a decay of 0."""


@onnx_symbolic("opsetta::linear_attention")
def linear_attention(
    g: GraphContext,
    query: Value,
    key: Value,
    value: Value,
    past_state: Value | None = None,
    decay: Value | None = None,
    beta: Value | None = None,
) -> tuple[Value, Value]:
    """The outputs of all tokens, and the last state.

    Args:
        query: of shape [batch, tokens, heads, key size].
        key: like the query.
        value: of shape [batch, tokens, heads, value size].
        past_state: of shape [batch, heads, key size, value size]; zeros by default.
        decay: the logarithm of a decay for each head, of shape [batch, tokens, heads]; none by default.
        beta: the rate of the delta rule, like the decay; by default the additive rule applies.
    """
    if g.has("LinearAttention") and g.has_kernel("LinearAttention", query):
        arguments = {"past_state": past_state, "decay": decay, "beta": beta}
        output, state = g.call_outputs(
            "composed::linear_attention_operator", query=query, key=key, value=value, **arguments
        )
        return output, state
    length, heads = g.size(query, 1), g.size(query, 2)
    key_size, value_size = g.size(key, 3), g.size(value, 3)
    chunks, padding, cut_ends = _divide(g, length)
    numbers = [value for value in (decay, beta) if value is not None]
    parts = [query, key, value, *(g.op("Unsqueeze", number, axes=[3]) for number in numbers)]
    packed = g.op("Concat", *parts, axis=3)
    # A token of zeros with a decay of 1 leaves the state as it is.
    packed = g.op("Pad", packed, padding)
    packed_size = compute(
        g, "add", compute(g, "add", compute(g, "mul", key_size, 2), value_size), len(numbers)
    )
    packed = g.op("Reshape", packed, g.stack([0, chunks, -1, heads, packed_size]))
    packed = g.op("Transpose", packed, perm=[1, 0, 3, 2, 4])
    sizes = [key_size, key_size, value_size, *(1 for _ in numbers)]
    q, k, v, *columns = as_list(g.op("Split", packed, g.stack(sizes), axis=4, outputs=len(sizes)))
    masks = _ChunkMasks(g, cut_ends, beta is not None)
    columns_of_keys = later_keys = g.op("Transpose", k, perm=[0, 1, 2, 4, 3])
    scores = g.op("MatMul", q, columns_of_keys)
    total: Value | None = None
    if decay is None:
        factors = masks.causal
    else:
        logarithm = g.op("Max", columns[0], _NO_DECAY_LEFT)
        factors, prefix, total, remaining = _decays(g, logarithm, masks)
        later_keys = g.op("Mul", columns_of_keys, remaining)
        q = g.op("Mul", q, prefix)
    scores = g.op("Mul", scores, factors)
    weights: Value | None = None
    if beta is not None:
        rate = columns[-1]
        scaled_keys = g.op("Mul", k, rate)
        system = g.op("MatMul", scaled_keys, columns_of_keys)
        inverse = _invert(g, g.op("Mul", system, factors), masks)
        v = g.op("MatMul", inverse, g.op("Mul", v, rate))
        decayed = scaled_keys if decay is None else g.op("Mul", scaled_keys, prefix)
        weights = g.op("MatMul", inverse, decayed)
    if past_state is None:
        shape = g.stack([g.size(query, 0), heads, key_size, value_size])
        past_state = g.op("ConstantOfShape", shape, value=np.zeros(1, np.float32))
    state, outputs = _run_chunks(g, past_state, q, scores, v, later_keys, weights, total)
    outputs = g.op("Transpose", outputs, perm=[1, 0, 3, 2, 4])
    outputs = g.op("Reshape", outputs, g.stack([0, -1, heads, value_size]))
    return g.call("composed::slice", self=outputs, dim=1, start=0, end=length, step=1), state


@onnx_symbolic("composed::linear_attention_operator", opset=27)
def linear_attention_operator(
    g: GraphContext, query: Value, key: Value, value: Value, **options: Value | None
) -> tuple[Value, Value]:
    """The same by ONNX's LinearAttention, for consumers that have a kernel of it."""
    decay, beta = options.get("decay"), options.get("beta")
    heads, value_size = static_size(g, query, 2), static_size(g, value, 3)
    if heads is None or value_size is None:
        raise g.refuse("the number of heads and the size of values must be constant")
    rule = {
        (False, False): "linear",
        (True, False): "gated",
        (False, True): "delta",
        (True, True): "gated_delta",
    }[decay is not None, beta is not None]
    output, state = g.op(
        "LinearAttention",
        *(g.op("Reshape", tensor, [0, 0, -1]) for tensor in (query, key, value)),
        options.get("past_state"),
        decay,
        beta,
        q_num_heads=heads,
        kv_num_heads=heads,
        # The query is scaled already.
        scale=1.0,
        update_rule=rule,
        outputs=2,
    )
    return g.op("Reshape", output, [0, 0, heads, value_size]), state


def _divide(g: GraphContext, length: Size) -> tuple[Size, Value, Value]:
    """The number of equally long chunks, the padding of tokens for Pad, and the length of a chunk, twice."""
    if isinstance(length, int):
        count = max(1, -(-length // _CHUNK))
        size = -(-length // count)
        return count, g.stack([0, 0, 0, 0, 0, count * size - length, 0, 0]), g.stack([size, size])
    # As a list, a length needs no Unsqueeze where it becomes part of a shape.
    length = g.stack([length])
    # Sizes are not negative, so the division of ONNX, which truncates, rounds down.
    chunks = g.op("Div", g.op("Add", length, _CHUNK - 1), _CHUNK)
    chunk_length = g.op("Div", g.op("Sub", g.op("Add", length, chunks), [1, 1]), chunks)
    # The remainder has the sign of the divisor: the number of tokens up to the next multiple.
    padding = g.op("Mod", g.op("Mul", length, [0, 0, 0, 0, 0, -1, 0, 0]), chunks)
    return chunks, padding, chunk_length


class _ChunkMasks:
    """Constant matrices of a chunk, cut to its length, which `ends` has twice.

    Attributes:
        later: for the later levels of `_invert`; the other ones have an axis of size 1 in front, too.
        first: for the first level of `_invert`, 1 below the diagonal in blocks of two rows.
        identity: the identity. These three are for the delta rule only.
        causal: 1 where a row may read a column, with the diagonal.
        strict: the same without the diagonal.
    """

    def __init__(self, g: GraphContext, ends: Value, has_system: bool):
        rows, columns = np.ogrid[:_CHUNK, :_CHUNK]
        sizes = [2**level for level in range(_LEVELS)]
        first, *later = [(rows // size % 2 == 1) & (columns // size == rows // size - 1) for size in sizes]
        of_system = [*later, first, rows == columns] if has_system else []
        cut = g.constant(np.stack([*of_system, rows >= columns, rows > columns]).astype(np.float32))
        if g.constant_value(ends) is not None or g.has("Slice", "steps"):
            cut = g.op("Slice", cut, starts=[0, 0], ends=ends, axes=[1, 2])
        else:
            # Before Slice had steps, its ends were an attribute.
            end = g.op("Slice", ends, starts=[0], ends=[1], axes=[0])
            for dim in (1, 2):
                cut = g.call("composed::slice", self=cut, dim=dim, start=0, end=end, step=1)
        split = [len(later), 1, 1, 1, 1] if has_system else [1, 1]
        parts = as_list(g.op("Split", cut, split=split, axis=0, outputs=len(split)))
        if has_system:
            self.later, self.first, self.identity = parts[:3]
        self.causal, self.strict = parts[-2:]


def _decays(g: GraphContext, logarithm: Value, masks: _ChunkMasks) -> tuple[Value, Value, Value, Value]:
    """The decays between tokens, from the start to a token, of the whole chunk, and from a token to the end.

    Sums of the logarithms between two tokens are exact for short distances; differences of sums from the
    start of the chunk lose digits if the decay is strong.
    """
    between = g.op("MatMul", masks.causal, g.op("Mul", logarithm, masks.strict))
    factors = g.op("Mul", g.op("Exp", between), masks.causal)
    prefix = g.op("Exp", g.op("MatMul", masks.causal, logarithm))
    total = g.op("Slice", prefix, starts=[-1], ends=[2**63 - 1], axes=[3])
    return factors, prefix, total, g.op("Slice", factors, starts=[-1], ends=[2**63 - 1], axes=[3])


def _invert(g: GraphContext, system: Value, masks: _ChunkMasks) -> Value:
    """The inverse of I + L, L being the part of a matrix below its diagonal.

    The inverses of diagonal blocks of 1, 2, 4, … rows: that of [[A, 0], [C, B]] is
    [[A', 0], [-B' C A', B']]. Unlike a series of powers of L, whose terms may be large and cancel,
    this is as exact as forward substitution.
    """
    inverse = g.op("Sub", masks.identity, g.op("Mul", system, masks.first))

    def step(carried: Value, mask: Value) -> list[Value]:
        change = g.op("MatMul", g.op("MatMul", carried, g.op("Mul", system, mask)), carried)
        return [g.op("Sub", carried, change)]

    return g.call_outputs("composed::scan_rows", step=step, initial=inverse, sequences=[masks.later])[0]


def _run_chunks(
    g: GraphContext,
    past_state: Value,
    query: Value,
    scores: Value,
    value: Value,
    key: Value,
    weights: Value | None,
    total: Value | None,
) -> tuple[Value, Value]:
    """The last state and the outputs of the chunks; the last axis of the keys is that of the tokens."""
    optional = [values for values in (weights, total) if values is not None]

    def step(
        state: Value, query: Value, scores: Value, updates: Value, key: Value, *optional_rows: Value
    ) -> list[Value]:
        if weights is not None:
            updates = g.op("Sub", updates, g.op("MatMul", optional_rows[0], state))
        output = g.op("Add", g.op("MatMul", query, state), g.op("MatMul", scores, updates))
        remaining = state if total is None else g.op("Mul", state, optional_rows[-1])
        return [g.op("Add", remaining, g.op("MatMul", key, updates)), output]

    sequences = [query, scores, value, key, *optional]
    state, outputs = g.call_outputs("composed::scan_rows", step=step, initial=past_state, sequences=sequences)
    outputs.type, outputs.shape = value.type, value.shape
    return state, outputs


def _register_scan(opset: int, write_scan: Callable[..., Value | list[Value]]) -> None:
    @onnx_symbolic("composed::scan_rows", opset=opset)
    def scan_rows(
        g: GraphContext, step: Callable[..., list[Value]], initial: Value, sequences: list[Value]
    ) -> Sequence[Value]:
        """The last carried value, and the stacked results of a step.

        Args:
            step: takes the carried value and a row of each sequence.
        """
        results = as_list(write_scan(g, step, initial, sequences))
        results[0].type, results[0].shape = initial.type, initial.shape
        return results


def _write_loop(
    g: GraphContext, step: Callable[..., list[Value]], initial: Value, sequences: list[Value]
) -> Value | list[Value]:
    """A Loop, for opset 8, whose Scan has a batch dimension."""

    def build(iteration: Value, condition: Value, carried: Value) -> list[Value]:
        rows = (g.op("Gather", values, iteration, axis=0) for values in sequences)
        return [condition, *step(carried, *rows)]

    body = g.subgraph(build, [*loop_inputs(), initial], "rows")
    count = g.constant(g.size(sequences[0], 0), DataType.INT64)
    return g.op("Loop", count, None, initial, body=body, outputs=len(body.outputs) - 1)


def _write_scan(
    g: GraphContext, step: Callable[..., list[Value]], initial: Value, sequences: list[Value]
) -> Value | list[Value]:
    """A Scan, which reads the rows where they are."""
    rows = [
        Value(
            name="row", type=values.type, shape=None if values.shape is None else ir.Shape(values.shape[1:])
        )
        for values in sequences
    ]
    body = g.subgraph(step, [initial, *rows], "rows")
    return g.op("Scan", initial, *sequences, body=body, num_scan_inputs=len(rows), outputs=len(body.outputs))


_register_scan(8, _write_loop)
_register_scan(9, _write_scan)
