"""Activation functions, softmax, and losses of logits."""

from ....registration import DataType, GraphContext, Value, onnx_symbolic
from ...compositions.operator_tables import register_table
from .layout import set_rank

register_table(
    "tf",
    """
features: Relu=aten::relu Relu6=aten::relu6 Elu=aten::elu Selu=aten::selu Softplus=aten::softplus
features: Softsign=composed::softsign
""",
)


@onnx_symbolic("composed::softsign")
def softsign(g: GraphContext, features: Value) -> Value:
    """`x / (1 + |x|)`; onnxruntime's Softsign takes FLOAT only."""
    return g.op("Div", features, g.op("Add", g.op("Abs", features), 1.0))


@onnx_symbolic("tf::LeakyRelu")
def leaky_relu(g: GraphContext, features: Value, alpha: float = 0.2) -> Value:
    return g.call("aten::leaky_relu", features, alpha)


def _register_softmax(name: str) -> None:
    @onnx_symbolic(f"tf::{name}")
    def softmax(g: GraphContext, logits: Value) -> Value:
        return g.op(name, logits, axis=-1)


_register_softmax("Softmax")
_register_softmax("LogSoftmax")


@onnx_symbolic("tf::SoftmaxCrossEntropyWithLogits")
def softmax_cross_entropy_with_logits(g: GraphContext, features: Value, labels: Value) -> list[Value]:
    """The loss of each row, and its gradient; an operand with a single row broadcasts."""
    logarithms = g.op("LogSoftmax", set_rank(g, features, 2), axis=-1)
    loss = g.op("Neg", g.op("ReduceSum", g.op("Mul", labels, logarithms), axes=[1], keepdims=0))
    return [loss, g.op("Sub", g.op("Softmax", features, axis=-1), labels)]


@onnx_symbolic("tf::SparseSoftmaxCrossEntropyWithLogits")
def sparse_softmax_cross_entropy_with_logits(g: GraphContext, features: Value, labels: Value) -> list[Value]:
    """The labels are class indices."""
    numbers = g.call("sym::range", start=0, end=g.size(set_rank(g, features, 2), 1))
    labels = g.op("Unsqueeze", g.cast(labels, numbers.dtype or DataType.INT64), axes=[1])
    one_hot_labels = g.cast(g.op("Equal", labels, numbers), g.dtype(features) or DataType.FLOAT)
    return g.call_outputs("tf::SoftmaxCrossEntropyWithLogits", features, one_hot_labels)
