"""Classification losses: negative log likelihood, and the margins of one or several labels.

Semantics: aten/src/ATen/native/LossNLL.cpp, LossNLL2d.cpp, LossMultiMargin.cpp and LossMultiLabelMargin.cpp.
"""

from typing import Any

from ......registration import DataType, GraphContext, Number, Value, onnx_symbolic
from .....compositions.size_arithmetic import known_rank

_NONE, _MEAN = 0, 1


@onnx_symbolic("composed::likelihood_losses")
def likelihood_losses(
    g: GraphContext, logarithms: Value, target: Value, weight: Value | None, ignore_index: int
) -> tuple[Value, Value]:
    """The weighted loss of every target, and its weight; both are 0 if the target is the ignored class.

    Args:
        logarithms: `[C]`, `[N, C]` or `[N, C, d...]`.
        target: the classes, with the same shape without C.
        weight: `[C]`, a weight for each class.
    """
    class_dim = 0 if known_rank(g, logarithms) == 1 else 1
    target = g.cast(target, DataType.INT64)
    is_counted = g.op("Not", g.op("Equal", target, ignore_index))
    # The ignored class may be outside of the classes: class 0 is read instead, and not counted.
    classes = g.op("Mul", target, g.cast(is_counted, DataType.INT64))
    likelihoods = g.call("aten::gather", logarithms, class_dim, g.op("Unsqueeze", classes, axes=[class_dim]))
    losses = g.op("Neg", g.op("Squeeze", likelihoods, axes=[class_dim]))
    weights = g.cast(is_counted, g.dtype(logarithms) or DataType.FLOAT)
    if weight is not None:
        weights = g.op("Mul", weights, g.op("Gather", weight, classes, axis=0))
        losses = g.op("Mul", losses, weights)
    return g.call("composed::where", is_counted, losses, 0.0), weights


@onnx_symbolic(["aten::nll_loss_forward", "aten::nll_loss2d_forward"])
def nll_loss_forward(
    g: GraphContext,
    self: Value,
    target: Value,
    weight: Value | None = None,
    reduction: int = _MEAN,
    ignore_index: int = -100,
) -> tuple[Value, Value]:
    """The loss, and the total weight that its mean is divided by; 0 without a reduction."""
    losses, weights = g.call_outputs("composed::likelihood_losses", self, target, weight, ignore_index)
    if reduction == _NONE:
        return losses, g.constant(0, g.dtype(self))
    total, total_weight = (g.call("aten::sum", summands) for summands in (losses, weights))
    return (g.op("Div", total, total_weight) if reduction == _MEAN else total), total_weight


@onnx_symbolic(["aten::nll_loss", "aten::nll_loss2d", "aten::nll_loss_nd"])
def nll_loss(g: GraphContext, self: Value, target: Value, **options: Any) -> Value:
    return g.call_outputs("aten::nll_loss_forward", self, target, **options)[0]


@onnx_symbolic("aten::multi_margin_loss")
def multi_margin_loss(
    g: GraphContext,
    self: Value,
    target: Value,
    p: Number = 1,
    margin: Number = 1,
    weight: Value | None = None,
    reduction: int = _MEAN,
) -> Value:
    """The amounts by which the class of a row is not above every other class by the margin.

    Args:
        self: `[N, C]`, or one row `[C]`, or one class of one row.
        target: the class of each row; the losses without a reduction have its shape.
        p: the power of the amounts, 1 or 2.
    """
    rows = g.op("Unsqueeze", self, axes=axes) if (axes := list(range(2 - known_rank(g, self)))) else self
    labels = g.op("Unsqueeze", target, axes=[1] if known_rank(g, target) else [0, 1])
    count = g.size(rows, 1)
    above = g.op("Sub", rows, g.call("aten::gather", rows, 1, labels))
    amounts = g.call("aten::relu", g.op("Add", above, margin))
    if p == 2:
        amounts = g.op("Mul", amounts, amounts)
    if weight is not None:
        amounts = g.op("Mul", amounts, g.op("Gather", g.call("aten::flatten", weight), labels, axis=0))
    is_label = g.op("Equal", labels, g.call("sym::range", start=0, end=count))
    losses = g.op("ReduceSum", g.op("Where", is_label, 0.0, amounts), axes=[1], keepdims=0)
    losses = g.op("Div", losses, g.constant(count, g.dtype(self)))
    if reduction != _NONE:
        return g.call("aten::mean" if reduction == _MEAN else "aten::sum", losses)
    return losses if known_rank(g, target) else g.op("Squeeze", losses, axes=[0])


@onnx_symbolic("aten::multilabel_margin_loss_forward")
def multilabel_margin_loss_forward(
    g: GraphContext, self: Value, target: Value, reduction: int
) -> tuple[Value, Value]:
    """The amounts by which labels are not above every other class by 1, and a mask of the label classes.

    The labels of a row end before the first -1.
    """
    rank = known_rank(g, self)
    if rank == 0:
        losses, labels = g.call_outputs(
            "aten::multilabel_margin_loss_forward",
            *(g.op("Unsqueeze", argument, axes=[0]) for argument in (self, target)),
            reduction,
        )
        return losses, g.op("Squeeze", labels, axes=[0])
    dtype, last = g.dtype(self), rank - 1
    count = g.size(self, last)
    positions = g.call("sym::range", start=0, end=count)
    # The first -1 has the smallest position among the ends.
    ends = g.op("Where", g.op("Less", target, 0), positions, g.constant(count))
    is_valid = g.op("Less", positions, g.op("ReduceMin", ends, axes=[last], keepdims=1))
    labels = g.op("Where", is_valid, target, 0)
    of_labels = g.op("Unsqueeze", g.call("aten::gather", self, last, labels), axes=[rank])
    margins = g.call(
        "aten::relu", g.op("Add", g.op("Sub", g.op("Unsqueeze", self, axes=[last]), of_labels), 1.0)
    )
    valid = g.op("Unsqueeze", is_valid, axes=[rank])
    is_label = g.op("And", g.op("Equal", g.op("Unsqueeze", labels, axes=[rank]), positions), valid)
    is_label = g.op("ReduceMax", g.cast(is_label, DataType.INT32), axes=[last], keepdims=1)
    is_other_class = g.op("And", g.op("Equal", is_label, 0), valid)
    losses = g.op("Where", is_other_class, margins, 0.0)
    losses = g.op("ReduceSum", losses, axes=[last, rank], keepdims=0)
    losses = g.op("Div", losses, g.constant(count, dtype))
    if reduction != _NONE and rank > 1:
        losses = g.call("aten::mean" if reduction == _MEAN else "aten::sum", losses)
    return losses, g.cast(g.op("Squeeze", is_label, axes=[last]), dtype or DataType.FLOAT)


@onnx_symbolic("aten::multilabel_margin_loss")
def multilabel_margin_loss(g: GraphContext, self: Value, target: Value, reduction: int = _MEAN) -> Value:
    return g.call_outputs("aten::multilabel_margin_loss_forward", self, target, reduction)[0]
