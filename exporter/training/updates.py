"""Writes the update of an optimizer as source nodes, in the order of torch.optim's arithmetic.

The operators are those of ATen, which lowering writes at any opset. ONNX's own optimizers
(`ai.onnx.preview.training`: Adam, Momentum, Adagrad) have no kernels in onnxruntime, fold gradients and
decay in another order than torch, and are a preview.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping

import onnx_ir as ir
from onnx_ir import DataType, Value

from ...passes.planning import APPLY_GRADIENT
from ...passes.source_builder import SourceBuilder
from ...registration import MODULE, PLAN_PHASE
from .optimizers import Adam, Group, Sgd


@dataclasses.dataclass
class Rates:
    """Scalars that all parameters of a group share.

    Attributes:
        rate: the learning rate.
        steps: the number of steps with this one, or None.
        scalars: scalars computed from them, by name and element type.
    """

    rate: Value
    steps: Value | None
    scalars: dict[tuple[str, DataType | None], Value] = dataclasses.field(default_factory=dict)


class UpdateBuilder:
    """Appends updates to a source graph whose gradients are known."""

    def __init__(self, graph: ir.Graph):
        self._build = SourceBuilder(graph)

    def count_step(self, steps: Value) -> Value:
        """The number of steps with this one."""
        count = self._scalar("add", steps, 1.0)
        self._label(0)
        return count

    def update(
        self, group: Group, rates: Rates, parameter: Value, gradient: Value, state: Mapping[str, Value]
    ) -> tuple[Value, dict[str, Value]]:
        """The new value of a parameter, and those of its state by torch's names."""
        rule = group.rule
        if isinstance(rule, Sgd):
            result = self._sgd(rule, rates, parameter, gradient, state)
        else:
            result = self._adam(rule, rates, parameter, gradient, state)
        # An update belongs to the layer whose gradient it uses.
        producer = gradient.producer()
        self._label(0, producer.metadata_props.get(MODULE, "") if producer is not None else "")
        return result

    def _sgd(
        self, rule: Sgd, rates: Rates, parameter: Value, gradient: Value, state: Mapping[str, Value]
    ) -> tuple[Value, dict[str, Value]]:
        new_state = {}
        if rule.weight_decay:
            gradient = self._add(gradient, parameter, rule.weight_decay)
        if rule.momentum:
            decayed = self._mul(state["momentum_buffer"], rule.momentum)
            buffer = self._add(decayed, self._apply_dampening(rule, rates, gradient))
            new_state["momentum_buffer"] = buffer
            # Nesterov looks ahead along the buffer instead of taking it as the step.
            gradient = self._add(gradient, buffer, rule.momentum) if rule.nesterov else buffer
        rate = self._once(rates, "rate", parameter.dtype, lambda: self._scalar("neg", rates.rate))
        return self._add(parameter, self._mul(gradient, rate)), new_state

    def _apply_dampening(self, rule: Sgd, rates: Rates, gradient: Value) -> Value:
        """The gradient scaled by the dampening; unscaled in the first step."""
        if not rule.dampening:
            return gradient
        assert rates.steps is not None
        steps = rates.steps

        # torch copies the first gradient into the momentum buffer without dampening.
        def share() -> Value:
            first = self._build.emit(
                "aten::le",
                {"self": steps, "other": 1.0},
                "Scalar",
                dtype=DataType.BOOL,
                shape=ir.Shape(()),
            )
            excess = self._scalar("mul", self._build.cast(first, DataType.DOUBLE), rule.dampening)
            return self._scalar("add", excess, 1.0 - rule.dampening)

        return self._mul(gradient, self._once(rates, "damping", gradient.dtype, share))

    def _adam(
        self, rule: Adam, rates: Rates, parameter: Value, gradient: Value, state: Mapping[str, Value]
    ) -> tuple[Value, dict[str, Value]]:
        first, second = rule.betas
        dtype = parameter.dtype
        # AdamW shrinks the parameter itself; Adam's decay goes through the averages.
        if rule.weight_decay and rule.decoupled:

            def decay() -> Value:
                lost = self._scalar("mul", self._to_double(rates.rate), rule.weight_decay)
                return self._scalar("rsub", lost, 1.0)

            parameter = self._mul(parameter, self._once(rates, "decay", dtype, decay))
        elif rule.weight_decay:
            gradient = self._add(gradient, parameter, rule.weight_decay)
        # torch computes the averages with lerp and addcmul; other formulas would round differently.
        average = self._emit("lerp", "Scalar", state["exp_avg"], end=gradient, weight=1.0 - first)
        squares = self._emit(
            "addcmul",
            "default",
            self._mul(state["exp_avg_sq"], second),
            tensor1=gradient,
            tensor2=gradient,
            value=1.0 - second,
        )

        def negative_step() -> Value:
            size = self._scalar("div", self._to_double(rates.rate), self._correction(rates, first))
            return self._scalar("neg", size)

        step = self._once(rates, "step", dtype, negative_step)
        root = self._once(rates, "root", dtype, lambda: self._scalar("sqrt", self._correction(rates, second)))
        divided = self._emit("div", "Tensor", self._emit("sqrt", "default", squares), other=root)
        denominator = self._emit("add", "Tensor", divided, other=rule.eps)
        step_vector = self._emit("div", "Tensor", self._mul(average, step), other=denominator)
        return self._add(parameter, step_vector), {"exp_avg": average, "exp_avg_sq": squares}

    def _correction(self, rates: Rates, beta: float) -> Value:
        """1 - beta**steps in float64, as Python computes it: float32 would lose most of the digits."""
        assert rates.steps is not None
        wide = self._to_double(rates.steps)
        power = self._build.emit(
            "aten::pow", {"self": beta, "exponent": wide}, "Scalar", dtype=DataType.DOUBLE, shape=ir.Shape(())
        )
        return self._scalar("rsub", power, 1.0)

    def _to_double(self, value: Value) -> Value:
        return self._build.cast(value, DataType.DOUBLE)

    def _once(self, rates: Rates, name: str, dtype: DataType | None, make: Callable[[], Value]) -> Value:
        """A scalar of a group, computed once, in the element type of a parameter."""
        key = (name, dtype)
        if key not in rates.scalars:
            begin = len(self._build.inserted_nodes)
            # Scalars are computed in float64 once, and cast for each element type.
            if (name, None) not in rates.scalars:
                rates.scalars[name, None] = make()
            value = rates.scalars[name, None]
            assert dtype is not None
            rates.scalars[key] = value if dtype == value.dtype else self._build.cast(value, dtype)
            self._label(begin)
        return rates.scalars[key]

    def _scalar(self, name: str, value: Value, operand: Value | float | None = None) -> Value:
        arguments: dict[str, object] = {"self": value}
        overload = "default"
        if operand is not None:
            arguments["other"] = operand
            overload = "Scalar" if name == "rsub" else "Tensor"
        return self._build.emit(f"aten::{name}", arguments, overload, like=value)

    def _emit(self, name: str, overload: str, value: Value, /, **arguments: object) -> Value:
        return self._build.emit(f"aten::{name}", {"self": value, **arguments}, overload, like=value)

    def _mul(self, value: Value, operand: Value | float) -> Value:
        return self._emit("mul", "Tensor", value, other=operand)

    def _add(self, value: Value, operand: Value, alpha: float = 1.0) -> Value:
        return self._emit("add", "Tensor", value, other=operand, **({} if alpha == 1.0 else {"alpha": alpha}))

    def _label(self, begin: int, module: str = "") -> None:
        """Mark the nodes from a position on as updates: of the layer of a gradient, or shared by all."""
        for node in self._build.inserted_nodes[begin:]:
            node.metadata_props[PLAN_PHASE] = APPLY_GRADIENT
            if module:
                node.metadata_props[MODULE] = module
        # Labelled nodes leave the list, so that the next label covers later ones only.
        del self._build.inserted_nodes[begin:]
