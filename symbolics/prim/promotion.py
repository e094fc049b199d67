"""The `promotion` dialect: casts whose element type is known only after the operands are lowered."""

from ...registration import DataType, GraphContext, Number, Value, onnx_symbolic
from ...registration.promotion import operand, settle


@onnx_symbolic("promotion::promote")
def promote(
    g: GraphContext,
    self: Value,
    operator: str,
    operands: list[Value | Number],
    numbers: list[str | None],
    uniform: bool,
    integers: DataType | None,
    expected: DataType | None,
) -> Value:
    """Cast `self` to the element type in which an operator computes its operands.

    Args:
        operator: the operator that needs the cast.
        numbers: for each operand, `int`, `float` or `bool` if it is a symbolic number.
        uniform, integers, expected: as in `registration.promotion`.
    """
    operand_types = [
        operand(item, number, uniform=uniform) for item, number in zip(operands, numbers, strict=True)
    ]
    decision = settle(operand_types, integers, expected)
    if decision is None:
        unknown = "element type" if any(o.dtype is None for o in operand_types) else "number of dimensions"
        raise g.refuse(
            f"the element type of {operator} depends on the {unknown} of an operand, which is unknown; "
            "convert the operand with .to(dtype) in the model"
        )
    if isinstance(decision, DataType):
        return g.cast(self, decision)
    return self if self is decision else g.call("aten::type_as", self=self, other=decision)
