"""Connectionist temporal classification.

Semantics: aten/src/ATen/native/LossCTC.cpp. The forward algorithm follows the label sequence with blanks
around every label, of length S, through the time steps, for all sequences of a batch [N] at once. Before the
first step all probability is at the first blank.
"""

import math
from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from ......registration import DataType, GraphContext, Value, onnx_symbolic
from .....compositions.list_values import loop_inputs
from .....compositions.matrices import dtype_of
from .....compositions.outputs import is_used
from .....compositions.size_arithmetic import Size, compute, sizes_of

Lengths = Value | list[int | Value]
_IMPOSSIBLE = -1e30
"""The logarithm of no probability: minus infinity becomes another number in runtimes whose Exp is never 0."""


def _lengths(g: GraphContext, lengths: Lengths) -> Value:
    """Lengths as an INT64 vector."""
    if not isinstance(lengths, Value):
        return g.constant(np.array(lengths, dtype=np.int64)) if _are_known(lengths) else g.stack(lengths)
    lengths = g.cast(lengths, DataType.INT64)
    return lengths if g.rank(lengths) == 1 else g.op("Reshape", lengths, [-1])


def _are_known(lengths: Sequence[int | Value]) -> bool:
    return all(isinstance(length, int) for length in lengths)


def _pad_targets(g: GraphContext, targets: Value, lengths: Value, longest: Size) -> Value:
    """Concatenated target sequences as rows, padded to the length of the longest."""
    ends = g.call("aten::cumsum", lengths, 0)
    starts = g.op("Unsqueeze", g.op("Sub", ends, lengths), axes=[1])
    positions = g.op("Add", starts, g.op("Unsqueeze", g.call("sym::range", start=0, end=longest), axes=[0]))
    # Rows of the last sequences read beyond the end; the zeros are replaced by blanks later.
    filler = g.call("composed::full", size=[longest], fill_value=0, dtype=DataType.INT64)
    return g.op("Gather", g.op("Concat", targets, filler, axis=0), positions)


def _insert_blanks(g: GraphContext, targets: Value, lengths: Value, blank: int) -> Value:
    """Labels `[N, S]`: a blank before every target and after the last one. Padding is blank too."""
    rows, width = sizes_of(g, targets)
    positions = g.op("Unsqueeze", g.call("sym::range", start=0, end=width), axes=[0])
    inside = g.op("Less", positions, g.op("Unsqueeze", lengths, axes=[1]))
    targets = g.op("Unsqueeze", g.op("Where", inside, targets, blank), axes=[2])
    blanks = g.call("composed::full", size=[rows, width, 1], fill_value=blank, dtype=DataType.INT64)
    pairs = g.op("Reshape", g.op("Concat", blanks, targets, axis=2), [rows, compute(g, "mul", width, 2)])
    last = g.call("composed::full", size=[rows, 1], fill_value=blank, dtype=DataType.INT64)
    return g.op("Concat", pairs, last, axis=1)


def _skip_penalty(g: GraphContext, labels: Value, dtype: DataType) -> Value:
    """0 if the previous label may be followed directly without a blank, else the logarithm of nothing."""
    first_labels = g.call("aten::slice", self=labels, dim=1, start=0, end=2)
    earlier = g.op("Concat", first_labels, g.call("aten::slice", self=labels, dim=1, start=0, end=-2), axis=1)
    earlier = g.call("aten::slice", self=earlier, dim=1, start=0, end=g.size(labels, 1))
    return g.op(
        "Where", g.op("Equal", labels, earlier), g.constant(_IMPOSSIBLE, dtype), g.constant(0.0, dtype)
    )


def _log_sum(g: GraphContext, terms: Sequence[Value], least: Value) -> Value:
    """The logarithm of the sum of the exponentials of the terms.

    Args:
        least: a finite lower bound in the shape of a term, subtracted if all terms are minus infinity.
    """
    # Subtracting minus infinity from itself would be NaN.
    largest = g.op("Max", *terms, least)
    powers = [g.op("Exp", g.op("Sub", term, largest)) for term in terms]
    return g.op("Add", g.op("Log", g.op("Sum", *powers)), largest)


def _least(g: GraphContext, rows: Size, columns: Size, dtype: DataType) -> Value:
    """A finite number below every logarithm of a probability."""
    lowest = float(np.finfo(dtype.numpy()).min)
    return g.call("composed::full", size=[rows, columns], fill_value=lowest, dtype=dtype)


def _log_alpha(g: GraphContext, log_probs: Value, labels: Value, lengths: Value) -> Value:
    """The log probabilities `[N, S]` of every prefix of the labels, at the last step of each sequence.

    Args:
        log_probs: `[T, N, C]`.
    """
    dtype = dtype_of(g, log_probs)
    steps, (rows, width) = g.size(log_probs, 0), sizes_of(g, labels)
    emitted = g.call("aten::expand", self=g.op("Unsqueeze", labels, axes=[0]), size=[steps, rows, width])
    emitted = g.call("aten::gather", self=log_probs, dim=2, index=emitted)
    skips, least = _skip_penalty(g, labels, dtype), _least(g, rows, width, dtype)
    impossible = g.call("composed::full", size=[rows, 2], fill_value=_IMPOSSIBLE, dtype=dtype)
    certain = g.call("composed::full", size=[rows, 1], fill_value=0.0, dtype=dtype)
    remaining = compute(g, "sub", width, 1)
    unreached = g.call("composed::full", size=[rows, remaining], fill_value=_IMPOSSIBLE, dtype=dtype)
    ends = g.op("Unsqueeze", lengths, axes=[1])

    def build(iteration: Value, keep_going: Value, alpha: Value) -> list[Value]:
        shifted = g.op("Concat", impossible, alpha, axis=1)
        # A label is reached from itself, from the position before it, or, past a blank, from two before it.
        one_before = g.call("aten::slice", self=shifted, dim=1, start=1, end=-1)
        two_before = g.op("Add", g.call("aten::slice", self=shifted, dim=1, start=0, end=-2), skips)
        next_alpha = g.op(
            "Add",
            _log_sum(g, [alpha, one_before, two_before], least),
            g.op("Gather", emitted, iteration, axis=0),
        )
        # A sequence keeps its last probabilities after its end.
        return [keep_going, g.op("Where", g.op("Less", iteration, ends), next_alpha, alpha)]

    initial = g.op("Concat", certain, unreached, axis=1)
    formal = Value(name="log_alpha", type=ir.TensorType(dtype), shape=ir.Shape([None, None]))
    body = g.subgraph(build, [*loop_inputs(), formal], "steps")
    result = g.op("Loop", g.constant(steps, DataType.INT64), None, initial, body=body)
    result.type, result.shape = formal.type, initial.shape
    return g.op("Concat", impossible, result, axis=1)


def _losses(
    g: GraphContext,
    log_probs: Value,
    targets: Value,
    input_lengths: Lengths,
    target_lengths: Lengths,
    blank: int,
    impossible_loss: float = math.inf,
) -> Value:
    """The negative log likelihoods `[N]` for log probabilities `[T, N, C]`, or `[T, C]` of one sequence.

    Args:
        impossible_loss: the loss of labels that the steps do not suffice for.
    """
    input_lengths = _lengths(g, input_lengths)
    rank = g.rank(log_probs)
    if rank is None:
        raise g.refuse("the rank of the input must be known")
    log_probs = log_probs if rank == 3 else g.op("Unsqueeze", log_probs, axes=[1])
    lengths = _lengths(g, target_lengths)
    targets = g.cast(targets, DataType.INT64)
    if g.rank(targets) is None:
        raise g.refuse("the rank of the targets must be known")
    if g.rank(targets) == 1:
        longest: Size
        if isinstance(target_lengths, Value) or not _are_known(target_lengths):
            longest = g.op("ReduceMax", lengths, axes=[0], keepdims=0)
        else:
            longest = max((int(length) for length in target_lengths), default=0)  # type: ignore[arg-type]
        targets = _pad_targets(g, targets, lengths, longest)
    labels = _insert_blanks(g, targets, lengths, blank)
    log_alpha = _log_alpha(g, log_probs, labels, input_lengths)
    # Two impossible columns stand before the first label.
    last = g.op("Add", g.op("Mul", g.op("Unsqueeze", lengths, axes=[1]), 2), [[1, 2]])
    endings = g.call("aten::gather", self=log_alpha, dim=1, index=last)
    ending_columns = [g.call("aten::slice", self=endings, dim=1, start=i, end=i + 1) for i in (0, 1)]
    least = _least(g, g.size(labels, 0), 1, dtype_of(g, log_probs))
    losses = g.op("Neg", g.op("Squeeze", _log_sum(g, ending_columns, least), axes=[1]))
    is_impossible = g.op("Greater", losses, -_IMPOSSIBLE / 10)
    return g.op("Where", is_impossible, g.constant(impossible_loss, dtype_of(g, losses)), losses)


@onnx_symbolic("aten::_ctc_loss")
def _ctc_loss(
    g: GraphContext,
    log_probs: Value,
    targets: Value,
    input_lengths: Lengths,
    target_lengths: Lengths,
    blank: int = 0,
    zero_infinity: bool = False,
) -> tuple[Value, None]:
    """The loss of each sequence; the second output is for gradients."""
    if is_used(g, 1):
        raise g.refuse("its output log_alpha is not supported")
    return _losses(g, log_probs, targets, input_lengths, target_lengths, blank), None


@onnx_symbolic("aten::ctc_loss")
def ctc_loss(
    g: GraphContext,
    log_probs: Value,
    targets: Value,
    input_lengths: Lengths,
    target_lengths: Lengths,
    blank: int = 0,
    reduction: int = 1,
    zero_infinity: bool = False,
) -> Value:
    """The mean divides each loss by its number of labels first."""
    impossible_loss = 0.0 if zero_infinity else math.inf
    losses = _losses(g, log_probs, targets, input_lengths, target_lengths, blank, impossible_loss)
    if reduction == 1:
        counts = g.cast(_lengths(g, target_lengths), dtype_of(g, losses))
        losses = g.op("Div", losses, g.call("aten::clamp", counts, 1.0))
        return g.call("aten::mean", losses)
    if reduction == 2:
        return g.call("aten::sum", losses)
    return losses if g.rank(log_probs) == 3 else g.op("Squeeze", losses, axes=[0])
