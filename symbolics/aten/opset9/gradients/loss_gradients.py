"""Gradients of losses."""

from .....registration import DataType, GraphContext, Value, onnx_symbolic
from ....compositions.size_arithmetic import known_rank


def _register(name: str) -> None:
    @onnx_symbolic(f"aten::{name}")
    def nll_loss_backward(
        g: GraphContext,
        grad_output: Value,
        self: Value,
        target: Value,
        weight: Value | None,
        reduction: int,
        ignore_index: int | Value,
        total_weight: Value,
    ) -> Value:
        """Minus the gradient, times the class's weight, at the class of each target, and 0 elsewhere."""
        rank = known_rank(g, self)
        class_axis = 1 if rank > 1 else 0
        dtype = g.dtype(self) or DataType.FLOAT
        classes = g.call("sym::range", start=0, end=g.size(self, class_axis))
        trailing_count = rank - class_axis - 1
        if trailing_count:
            classes = g.op("Unsqueeze", classes, axes=list(range(1, 1 + trailing_count)))
        wide = g.op("Unsqueeze", g.cast(target, DataType.INT64), axes=[class_axis])
        is_target = g.op("And", g.op("Equal", classes, wide), g.op("Not", g.op("Equal", wide, ignore_index)))
        gradient = g.op("Neg", grad_output)
        if reduction == 1:
            gradient = g.op("Div", gradient, total_weight)
        elif reduction == 0 and rank > 1:
            gradient = g.op("Unsqueeze", gradient, axes=[class_axis])
        if weight is not None:
            shaped = (
                g.op("Unsqueeze", weight, axes=list(range(1, 1 + trailing_count)))
                if trailing_count
                else weight
            )
            gradient = g.op("Mul", gradient, shaped)
        return g.op("Mul", g.cast(is_target, dtype), gradient)


_register("nll_loss_backward")
_register("nll_loss2d_backward")
