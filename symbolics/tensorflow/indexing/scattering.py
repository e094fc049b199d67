"""Writes by index."""

from ....registration import DataType, GraphContext, Value, dtypes, onnx_symbolic
from ....registration.emission.operand_checks import check_scattered
from ...compositions.integers import widen_integers
from .._common import check_policy, restore_dtype, shape_operand


def _wide(g: GraphContext, value: Value) -> Value:
    """Cast half precision to FLOAT and narrow integers to INT32: runtimes scatter no narrower types."""
    return g.cast(value, DataType.FLOAT) if g.dtype(value) in dtypes.HALVES else widen_integers(g, value)


def scatter_updates(g: GraphContext, tensor: Value, indices: Value, updates: Value, reduction: str) -> Value:
    check_scattered(tensor, indices, updates)
    positions = g.cast(indices, DataType.INT64)
    if reduction == "none":
        return g.op("ScatterND", tensor, positions, updates)
    result = g.op("ScatterND", _wide(g, tensor), positions, _wide(g, updates), reduction=reduction)
    return restore_dtype(g, result, g.dtype(tensor))


@onnx_symbolic("tf::ScatterNd")
def scatter_nd(
    g: GraphContext, indices: Value, updates: Value, shape: Value, bad_indices_policy: str = ""
) -> Value:
    """Scatter into zeros; updates of the same position are added."""
    check_policy(g, bad_indices_policy)
    dtype = g.dtype(updates) or DataType.FLOAT
    zeros = g.call("composed::full", size=shape_operand(g, shape), fill_value=0, dtype=dtype)
    return scatter_updates(g, zeros, indices, updates, "add")


def _register(name: str, reduction: str) -> None:
    @onnx_symbolic(f"tf::TensorScatter{name}")
    def tensor_scatter(
        g: GraphContext, tensor: Value, indices: Value, updates: Value, bad_indices_policy: str = ""
    ) -> Value:
        check_policy(g, bad_indices_policy)
        # ScatterND has no subtraction.
        signed_updates = g.op("Neg", _wide(g, updates)) if name == "Sub" else updates
        return scatter_updates(g, tensor, indices, signed_updates, reduction)


for _name, _reduction in (("Update", "none"), ("Add", "add"), ("Sub", "add"), ("Max", "max"), ("Min", "min")):
    _register(_name, _reduction)
