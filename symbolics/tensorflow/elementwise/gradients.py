"""Gradients of elementwise functions, in graphs that compute saliency maps, forces or fluxes.

Source of the formulas: tensorflow/core/kernels/cwise_ops_gradients.h and relu_op_functor.h.
"""

from collections.abc import Callable

from ....registration import DataType, GraphContext, Value, onnx_symbolic
from ...compositions.operator_tables import register_functions
from ...compositions.special.formulas import Formula
from .._common import flatten

_SELU_SCALE, _SELU_ALPHA = 1.0507009873554804, 1.7580993408473768


def _emit(formula: Callable[[Formula, Formula], Formula]) -> Callable[[GraphContext, Value, Value], Value]:
    return lambda g, first, second: formula(Formula(g, first), Formula(g, second)).value


def _multiply_by_mask(gradients: Formula, condition: Formula) -> Formula:
    """The gradients times 1 or 0; as in TensorFlow, an infinite one becomes NaN where the condition fails."""
    return gradients * condition.cast(gradients.g.dtype(gradients.value) or DataType.FLOAT)


# `y` is the result of the function, and `dy` its gradient.
register_functions(
    "tf",
    "y dy",
    {
        "TanhGrad": _emit(lambda y, dy: dy * (1.0 - y * y)),
        "SigmoidGrad": _emit(lambda y, dy: dy * (1.0 - y) * y),
        "SqrtGrad": _emit(lambda y, dy: dy * 0.5 / y),
        "RsqrtGrad": _emit(lambda y, dy: dy * -0.5 * y * y * y),
        "ReciprocalGrad": _emit(lambda y, dy: -dy * y * y),
        "InvGrad": _emit(lambda y, dy: -dy * y * y),
    },
)
register_functions(
    "tf",
    "gradients features",
    {
        "ReluGrad": _emit(lambda gradients, x: _multiply_by_mask(gradients, x > 0.0)),
        "Relu6Grad": _emit(lambda gradients, x: _multiply_by_mask(gradients, (x > 0.0) & (x < 6.0))),
        "SoftplusGrad": _emit(lambda gradients, x: gradients / ((-x).exp() + 1.0)),
        "SoftsignGrad": _emit(lambda gradients, x: gradients / ((abs(x) + 1.0) * (abs(x) + 1.0))),
    },
)
register_functions(
    "tf",
    "gradients outputs",
    {
        "EluGrad": _emit(lambda gradients, y: (y < 0.0).chosen((y + 1.0) * gradients, gradients)),
        "SeluGrad": _emit(
            lambda gradients, y: gradients * (y < 0.0).chosen(y + _SELU_ALPHA, y * 0.0 + _SELU_SCALE)
        ),
    },
)


@onnx_symbolic("tf::LeakyReluGrad")
def leaky_relu_grad(g: GraphContext, gradients: Value, features: Value, alpha: float = 0.2) -> Value:
    gradient = Formula(g, gradients)
    return (Formula(g, features) > 0.0).chosen(gradient, gradient * alpha).value


@onnx_symbolic("tf::BiasAddGrad")
def bias_add_grad(g: GraphContext, out_backprop: Value, data_format: str = "NHWC") -> Value:
    """The sum over all axes except for that of the channels."""
    if data_format == "NCHW":
        count = g.size(out_backprop, 1)
        rows = g.call("aten::reshape", self=out_backprop, shape=[g.size(out_backprop, 0), count, -1])
        return g.op("ReduceSum", rows, axes=[0, 2], keepdims=0)
    rows = g.call("aten::reshape", self=out_backprop, shape=[-1, g.size(out_backprop, -1)])
    return g.op("ReduceSum", rows, axes=[0], keepdims=0)


@onnx_symbolic("tf::BroadcastGradientArgs")
def broadcast_gradient_args(g: GraphContext, s0: Value, s1: Value) -> list[Value]:
    """The axes along which the gradient of each operand of a broadcast is summed."""
    sizes = [g.shape(shape) for shape in (s0, s1)]
    lengths = [size[0] for size in sizes if size is not None and isinstance(size[0], int)]
    if len(lengths) < len(sizes):
        raise g.refuse("the ranks of the operands must be known")
    padded = []
    for shape, length in zip((s0, s1), lengths, strict=True):
        padding = g.constant([1] * (max(lengths) - length), DataType.INT64)
        padded.append(g.op("Concat", padding, g.cast(shape, DataType.INT64), axis=0))
    first, second = (Formula(g, shape) for shape in padded)
    are_ones = first.equals(1) & second.equals(1)
    results = []
    for operand_sizes, opposite in ((first, second), (second, first)):
        # Where both sizes are 1, TensorFlow sums both gradients, which changes nothing.
        is_summed = (operand_sizes.equals(1) & ~opposite.equals(1)) | are_ones
        axes = g.op("NonZero", g.cast(is_summed.value, DataType.INT64))
        results.append(g.cast(flatten(g, axes), g.dtype(s0) or DataType.INT32))
    return results
