"""Writes the update of an optimizer as source nodes, in the order of torch.optim's arithmetic.

The operators are those of ATen, which lowering writes at any opset. ONNX's own optimizers
(`ai.onnx.preview.training`: Adam, Momentum, Adagrad) have no kernels in onnxruntime, fold gradients and
decay in another order than torch, and are a preview.
"""

from __future__ import annotations

from collections.abc import Callable

import onnx_ir as ir
from onnx_ir import DataType, Value

from ...passes.planning import APPLY_GRADIENT
from ...passes.source_builder import SourceBuilder
from ...registration import MODULE, PLAN_PHASE


class UpdateBuilder:
    """Appends updates to a source graph whose gradients are known.

    Results have the element type and shape of the first operand. Operands of other values are scalars of the
    same element type, or of the same shape.
    """

    def __init__(self, graph: ir.Graph):
        self._build = SourceBuilder(graph)

    def emit(self, name: str, overload: str, value: Value, /, **arguments: object) -> Value:
        """A node of ATen whose first argument is `self`."""
        return self._build.emit(f"aten::{name}", {"self": value, **arguments}, overload, like=value)

    def mul(self, value: Value, operand: Value | float) -> Value:
        """The product."""
        return self.emit("mul", "Tensor", value, other=operand)

    def div(self, value: Value, operand: Value | float) -> Value:
        """The quotient."""
        return self.emit("div", "Tensor", value, other=operand)

    def add(self, value: Value, operand: Value | float, alpha: float = 1.0) -> Value:
        """The sum of a value and a multiple of the operand."""
        return self.emit("add", "Tensor", value, other=operand, **({} if alpha == 1.0 else {"alpha": alpha}))

    def sub(self, value: Value, operand: Value | float) -> Value:
        """The difference."""
        return self.emit("sub", "Tensor", value, other=operand)

    def rsub(self, value: Value, number: float) -> Value:
        """A number minus a value."""
        return self.emit("rsub", "Scalar", value, other=number)

    def unary(self, name: str, value: Value) -> Value:
        """An operator of one operand: `sqrt`, `sign`, `neg`, `abs`, `rsqrt`."""
        return self.emit(name, "default", value)

    def maximum(self, value: Value, operand: Value) -> Value:
        """The larger of two values for each element."""
        return self.emit("maximum", "default", value, other=operand)

    def clamp(self, value: Value, low: float | None, high: float | None) -> Value:
        """The value within bounds."""
        return self.emit("clamp", "default", value, min=low, max=high)

    def lerp(self, value: Value, end: Value, weight: Value | float) -> Value:
        """A point between a value and the end."""
        overload = "Tensor" if isinstance(weight, Value) else "Scalar"
        return self.emit("lerp", overload, value, end=end, weight=weight)

    def average_squares(self, value: Value, root: Value, decay: float) -> Value:
        """The moving average of the squares of `root`, which `value` has so far."""
        # torch computes averages with lerp and addcmul; other formulas would round differently.
        return self.emit(
            "addcmul", "default", self.mul(value, decay), tensor1=root, tensor2=root, value=1.0 - decay
        )

    def compare(self, name: str, value: Value, number: float) -> Value:
        """A BOOL: the comparison (`gt`, `lt`, `le`, `eq`) of a value with a number."""
        arguments = {"self": value, "other": number}
        return self._build.emit(f"aten::{name}", arguments, "Scalar", dtype=DataType.BOOL, shape=value.shape)

    def where(self, condition: Value, value: Value, other: Value | float) -> Value:
        """Select the first value where the condition is true, else the second."""
        overload = "self" if isinstance(other, Value) else "ScalarOther"
        arguments = {"condition": condition, "self": value, "other": other}
        return self._build.emit("aten::where", arguments, overload, like=value)

    def power_of(self, base: float, exponent: Value) -> Value:
        """A number to the power of a value, in float64."""
        wide = self.to_double(exponent)
        return self._build.emit("aten::pow", {"self": base, "exponent": wide}, "Scalar", like=wide)

    def power(self, value: Value, exponent: float) -> Value:
        """A value to the power of a number."""
        return self.emit("pow", "Tensor_Scalar", value, exponent=exponent)

    def norm(self, value: Value, order: float = 2.0, dim: int | None = None) -> Value:
        """The norm of all elements as a scalar, or along a dimension, which keeps the size 1."""
        shape = [] if dim is None else list(value.shape or ())
        arguments: dict[str, object] = {"self": value, "ord": order}
        if dim is not None:
            shape[dim] = 1
            arguments |= {"dim": [dim], "keepdim": True}
        return self._build.emit(
            "aten::linalg_vector_norm", arguments, dtype=value.dtype, shape=ir.Shape(shape)
        )

    def mean(self, value: Value, dim: int) -> Value:
        """The mean along a dimension, which keeps the size 1."""
        shape = list(value.shape or ())
        shape[dim] = 1
        arguments = {"self": value, "dim": [dim], "keepdim": True}
        return self._build.emit("aten::mean", arguments, "dim", dtype=value.dtype, shape=ir.Shape(shape))

    def matmul(self, value: Value, operand: Value, like: Value) -> Value:
        """The product of matrices, in the shape of `like`."""
        return self._build.emit("aten::matmul", {"self": value, "other": operand}, like=like)

    def stack(self, values: list[Value]) -> Value:
        """Scalars as one vector."""
        return self._build.emit(
            "aten::stack", {"tensors": values}, dtype=values[0].dtype, shape=ir.Shape([len(values)])
        )

    def cast(self, value: Value, dtype: DataType | None) -> Value:
        """The value in an element type."""
        assert dtype is not None
        return value if value.dtype == dtype else self._build.cast(value, dtype)

    def to_double(self, value: Value) -> Value:
        """The value in float64, in which torch.optim computes scalars: they are numbers of Python."""
        return self.cast(value, DataType.DOUBLE)

    def label_as_update_of(self, gradient: Value) -> None:
        """Label all new nodes as the update of the layer that the gradient belongs to."""
        producer = gradient.producer()
        self.label(0, producer.metadata_props.get(MODULE, "") if producer is not None else "")

    def label(self, begin: int = 0, module: str = "") -> None:
        """Label the new nodes from a position on as updates of a layer, or of all layers if it is empty."""
        for node in self._build.inserted_nodes[begin:]:
            node.metadata_props[PLAN_PHASE] = APPLY_GRADIENT
            if module:
                node.metadata_props[MODULE] = module
        # Labelled nodes leave the list, so that the next label covers later ones only.
        del self._build.inserted_nodes[begin:]


class GroupUpdates(UpdateBuilder):
    """Appends the updates of the parameters of one group, which share scalars.

    Attributes:
        learning_rate: the learning rate, or None if the rule has none.
        steps: the number of steps with this one, or None.
        scalars: scalars computed from them, by name and element type.
    """

    def __init__(self, graph: ir.Graph, learning_rate: Value | None, steps: Value | None):
        super().__init__(graph)
        self.learning_rate = learning_rate
        self.steps = steps
        self.scalars: dict[tuple[str, DataType | None], Value] = {}

    @property
    def rate(self) -> Value:
        """The learning rate of a rule that has one, in float64."""
        assert self.learning_rate is not None
        return self.to_double(self.learning_rate)

    @property
    def count(self) -> Value:
        """The number of steps with this one, in float64, for a rule that needs it."""
        assert self.steps is not None
        return self.to_double(self.steps)

    def share_scalar(self, name: str, dtype: DataType | None, make: Callable[[], Value]) -> Value:
        """A scalar of the group, computed once, in the element type of a parameter."""
        key = (name, dtype)
        if key not in self.scalars:
            begin = len(self._build.inserted_nodes)
            # Scalars are computed in float64 once, and cast for each element type.
            if (name, None) not in self.scalars:
                self.scalars[name, None] = make()
            self.scalars[key] = self.cast(self.scalars[name, None], dtype)
            self.label(begin)
        return self.scalars[key]

    def bias_correction(self, beta: float) -> Value:
        """1 - beta**steps in float64, as Python computes it: float32 would lose most of the digits."""
        assert self.steps is not None
        return self.rsub(self.power_of(beta, self.steps), 1.0)

    def negative_rate(self) -> Value:
        """The learning rate with the opposite sign, in float64."""
        return self.unary("neg", self.rate)

    def corrected_step(self, beta: float, dtype: DataType | None) -> Value:
        """The negative learning rate over the bias of an average with the factor `beta`."""
        return self.share_scalar(
            "step", dtype, lambda: self.div(self.negative_rate(), self.bias_correction(beta))
        )

    def root_of_correction(self, beta: float, dtype: DataType | None) -> Value:
        """The root of the bias of an average of squares with the factor `beta`."""
        return self.share_scalar("root", dtype, lambda: self.unary("sqrt", self.bias_correction(beta)))

    def subtract_multiple(self, parameter: Value, direction: Value) -> Value:
        """The parameter minus the learning rate times a direction."""
        rate = self.share_scalar("negative_rate", parameter.dtype, self.negative_rate)
        return self.add(parameter, self.mul(direction, rate))
