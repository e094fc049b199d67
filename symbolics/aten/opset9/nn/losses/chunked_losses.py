"""Cross entropy of a linear layer in chunks of the batch: torch.nn.functional.linear_cross_entropy.

Semantics: torch/nn/modules/linear_cross_entropy.py. The chunks only save memory in training, so the layer and
the loss are computed without chunks. The accumulators have the types of ordinary arithmetic.
"""

from __future__ import annotations

from typing import Any

from ......registration import GraphContext, Value, dtypes, onnx_symbolic
from .....compositions.outputs import is_used


def _losses(
    g: GraphContext,
    input: Value,
    linear_weight: Value,
    target: Value,
    linear_bias: Value | None,
    weight: Value | None,
    ignore_index: int,
) -> tuple[Value, Value]:
    """The weighted loss `[N]` of each row, and its weight; both are 0 if the target is the ignored class."""
    dtype = g.dtype(input)
    if dtype is None or dtype in dtypes.HALVES:
        raise g.refuse("half precision is not supported, because runtimes accumulate differently")
    logits = g.call("aten::linear", input, linear_weight, linear_bias)
    logarithms = g.call("aten::log_softmax", logits, 1)
    losses, weights = g.call_outputs("composed::likelihood_losses", logarithms, target, weight, ignore_index)
    return losses, weights


@onnx_symbolic("torch_nn::_linear_cross_entropy_batch_chunked_no_reduction")
def linear_cross_entropy_of_each(
    g: GraphContext,
    input: Value,
    linear_weight: Value,
    target: Value,
    linear_bias: Value | None,
    weight: Value | None,
    ignore_index: int,
    **accumulation: Any,
) -> Value:
    return _losses(g, input, linear_weight, target, linear_bias, weight, ignore_index)[0]


@onnx_symbolic("torch_nn::_linear_cross_entropy_batch_chunked")
def linear_cross_entropy(
    g: GraphContext,
    input: Value,
    linear_weight: Value,
    target: Value,
    linear_bias: Value | None,
    weight: Value | None,
    reduction: str,
    ignore_index: int,
    label_smoothing: float,
    **training: Any,
) -> tuple[Value, None, None, None]:
    """Only the loss: files have no gradients."""
    if is_used(g, 1, 2, 3):
        raise g.refuse("gradients of the loss are not supported")
    if label_smoothing != 0 or reduction not in ("mean", "sum"):
        raise g.refuse("label_smoothing, and a reduction other than mean and sum, are not supported")
    losses, weights = _losses(g, input, linear_weight, target, linear_bias, weight, ignore_index)
    total = g.op("ReduceSum", losses, axes=[0], keepdims=0)
    if reduction == "mean":
        # As in cross_entropy, the mean is weighted, and does not count the ignored class.
        total = g.op("Div", total, g.op("ReduceSum", weights, axes=[0], keepdims=0))
    return total, None, None, None
