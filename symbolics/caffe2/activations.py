"""Activation functions, and dropout at inference."""

from ...registration import GraphContext, Value, onnx_symbolic
from ..compositions.size_arithmetic import axis_from_front
from ._broadcasting import along_channels
from ._layouts import is_channels_last, set_shape_like
from .matrix_products import as_matrix


@onnx_symbolic("caffe2::ReluN")
def relu_n(g: GraphContext, X: Value, n: float = 6.0) -> Value:
    return g.op("Clip", X, min=0.0, max=n)


def _register_with_alpha(name: str, default: float) -> None:
    @onnx_symbolic(f"caffe2::{name}")
    def activation(g: GraphContext, X: Value, alpha: float = default) -> Value:
        return g.op(name, X, alpha=alpha)


_register_with_alpha("LeakyRelu", 0.01)
_register_with_alpha("Elu", 1.0)


@onnx_symbolic("caffe2::Selu")
def selu(
    g: GraphContext, X: Value, alpha: float = 1.6732631921768188, scale: float = 1.0507010221481323
) -> Value:
    return g.op("Selu", X, alpha=alpha, gamma=scale)


@onnx_symbolic("caffe2::HardSigmoid")
def hard_sigmoid(g: GraphContext, X: Value, alpha: float = 0.2, beta: float = 0.5) -> Value:
    return g.op("HardSigmoid", X, alpha=alpha, beta=beta)


@onnx_symbolic("caffe2::ThresholdedRelu")
def thresholded_relu(g: GraphContext, X: Value, alpha: float = 1.0) -> Value:
    above = g.op("Greater", X, alpha)
    return g.call("composed::where", condition=above, self=X, other=g.constant(0, g.dtype(X)))


@onnx_symbolic("caffe2::Gelu")
def gelu(g: GraphContext, X: Value, fast_gelu: int = 0) -> Value:
    return g.op("Gelu", X, approximate="tanh" if fast_gelu else "none")


@onnx_symbolic("caffe2::PRelu")
def prelu(g: GraphContext, X: Value, Slope: Value, order: str = "NCHW") -> Value:
    # Refuse an unknown order.
    is_channels_last(g, order)
    return g.op("PRelu", X, along_channels(g, X, Slope, order))


def _register_softmax(name: str) -> None:
    def softmax(g: GraphContext, X: Value, axis: int = 1) -> Value:
        """Softmax over all dimensions from the axis on, as one flattened dimension."""
        axis = axis_from_front(g, X, axis)
        shape = g.shape(X)
        # Dimensions of size 1 after the axis do not change the result.
        if shape is not None and all(size == 1 for size in shape[axis:][1:]):
            return g.op(name, X, axis=axis)
        rows = g.op(name, as_matrix(g, X, axis), axis=-1)
        return set_shape_like(g.op("Reshape", rows, g.op("Shape", X)), X)

    onnx_symbolic(f"caffe2::{name}")(softmax)


for _name in ("Softmax", "LogSoftmax"):
    _register_softmax(_name)


@onnx_symbolic("caffe2::Dropout")
def dropout(g: GraphContext, X: Value, ratio: float = 0.5, is_test: int = 0) -> Value:
    if not is_test:
        raise g.refuse(
            "dropout of a training net (is_test is 0) is not supported: convert the net for inference"
        )
    return X
