"""Checks arguments that the operator's version lacks: each must have the value that the version implies.

When ONNX adds an argument to an operator, its default is nearly always the value implied before. So the
implied value is the default of the nearest version with the argument. Exceptions are registered with
`Registry.imply`.
"""

from __future__ import annotations

from collections.abc import Sequence

from onnx_ir import Value

from .. import schemas
from ..construction.builder import GraphBuilder
from ..errors import EmissionError
from ..schemas import OperatorSchema


def check_omitted(
    g: GraphBuilder, schema: OperatorSchema, inputs: Sequence[object], name: str, value: object
) -> None:
    """Check that an argument that the version lacks has the implied value.

    Raises:
        EmissionError: it has another value, or no version of the operator has the argument.
    """
    if _is_implied(g, schema, inputs, name, value):
        return
    first = schemas.first_opset_with(schema.name, name, schema.domain)
    if first is None:
        raise EmissionError(f"ONNX operator {schema.name} has no argument '{name}' at any opset")
    if first > g.opset:
        raise EmissionError(
            f"ONNX operator {schema.name} has no argument '{name}' at opset {g.opset}; it begins at {first}",
            first_opset=first,
        )
    raise EmissionError(f"ONNX operator {schema.name} no longer has argument '{name}' at opset {g.opset}")


def _is_implied(
    g: GraphBuilder, schema: OperatorSchema, inputs: Sequence[object], name: str, value: object
) -> bool:
    nearest = schemas.nearest_attribute(schema, name)
    implied = g.registry.implied_argument(schema.name, name) if schema.domain == "" else None
    if implied is not None and implied.accepts is not None:
        return implied.accepts(g, inputs, value)
    if nearest is None:
        return False
    equivalent_value = nearest.default if implied is None else implied.value
    if isinstance(value, Value):
        array = g.constant_value(value)
        value = None if array is None else array.tolist()
    return value is not None and nearest.is_value(value, equivalent_value)
