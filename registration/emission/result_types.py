"""The types of an operator's results, from its schema: element types, tensors or sequences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx_ir as ir
from onnx_ir import AttributeType, DataType, Value

from .. import schemas
from ..dtypes import element_type
from ..errors import EmissionError
from ..kinds import is_sequence_type, is_value
from ..schemas import AttributeParameter, OperatorSchema, Parameter


def formal_parameters(parameters: tuple[Parameter, ...], count: int) -> tuple[Parameter, ...]:
    """The formal parameter of each of `count` inputs or results; the last parameter may be variadic."""
    missing = count - len(parameters)
    return parameters + parameters[-1:] * missing if missing > 0 else parameters[:count]


def formal_outputs(schema: OperatorSchema, outputs: int) -> tuple[Parameter, ...]:
    """The formal parameter of each result.

    Raises:
        EmissionError: the operator has fewer results.
    """
    formal = schema.outputs
    if outputs > len(formal) and not (formal and formal[-1].variadic):
        raise EmissionError(f"ONNX operator {schema.name} has {len(formal)} outputs, not {outputs}")
    return formal_parameters(formal, outputs)


def is_sequence(item: object) -> bool:
    """Whether an argument is a sequence of tensors."""
    return is_value(item) and is_sequence_type(item.type)


def on_sequences(schema: OperatorSchema) -> bool:
    """Whether the operator makes, changes or reads sequences; its type variables share one element type."""
    return any(p.sequences and not p.dtypes for p in (*schema.inputs, *schema.outputs))


def _result_type(parameter: Parameter, dtype: DataType, inputs: Sequence[Value | None]) -> ir.TypeProtocol:
    """The type of a result: a tensor, or a sequence if the schema or an input of the same type says so."""
    tensor = ir.TensorType(dtype)
    if not parameter.sequences:
        return tensor
    listed = not parameter.dtypes or (bool(inputs) and is_sequence(inputs[0]))
    return ir.SequenceType(tensor) if listed else tensor


def result_types(
    schema: OperatorSchema,
    formal: Sequence[Parameter],
    variables: dict[str, DataType],
    attributes: Sequence[ir.Attr],
    inputs: Sequence[Value | None],
) -> list[ir.TypeProtocol | None]:
    """The type of each result, None if unknown.

    Args:
        formal: the formal parameter of each result.
        variables: the element types of the schema's type variables, from the inputs.

    Raises:
        EmissionError: this version of the operator cannot return that type.
    """
    result: list[ir.TypeProtocol | None] = []
    for parameter in formal:
        dtype = variables.get(parameter.variable)
        if dtype is None and on_sequences(schema) and len(parameter.dtypes) != 1:
            # Operators of sequences call the variable of the sequence S and that of its tensors T.
            dtype = next((variables[name] for name in ("S", "T") if name in variables), None)
        if dtype is None and len(parameter.dtypes) == 1:
            dtype = next(iter(parameter.dtypes))
        if dtype is None:
            attributes_by_name = {attribute.name: attribute for attribute in attributes}
            dtype = _dtype_of_attribute(schema, attributes_by_name, inputs)
        if dtype is not None and parameter.dtypes and dtype not in parameter.dtypes:
            raise _result_error(schema, parameter, dtype)
        result.append(None if dtype is None else _result_type(parameter, dtype, inputs))
    return result


def _result_error(schema: OperatorSchema, parameter: Parameter, dtype: DataType) -> EmissionError:
    later = schemas.first_version(
        schema.name,
        schema.domain,
        lambda version: any(o.name == parameter.name and dtype in o.dtypes for o in version.outputs),
        after=schema.since_version,
    )
    return EmissionError(
        f"ONNX operator {schema.name} cannot return {dtype.name} at version {schema.since_version}"
        + (f"; from opset {later} it does" if later else ""),
        first_opset=later if not schema.domain else None,
    )


def _dtype_of_attribute(
    schema: OperatorSchema, attributes: Mapping[str, ir.Attr], inputs: Sequence[Value | None]
) -> DataType | None:
    """Return the element type that an attribute (`to`, `dtype`, `value`) or a second input sets."""
    for name in ("to", "dtype", "output_dtype"):
        attribute = attributes.get(name)
        if (
            attribute is not None
            and attribute.type == AttributeType.INT
            # 0 is UNDEFINED, the default of `output_dtype`.
            and (attribute.value or name == "to")
        ):
            return element_type(attribute.value)
    value = attributes.get("value")
    if value is not None and value.type == AttributeType.TENSOR:
        tensor: ir.TensorProtocol = value.value
        return tensor.dtype
    if schema.name == "ConstantOfShape":
        return DataType.FLOAT
    if schema.name in ("EyeLike", "RandomNormalLike", "RandomUniformLike", "CastLike") and inputs:
        # CastLike takes its type from the second input, the others from their only one.
        like = inputs[-1]
        return like.dtype if like is not None else None
    if schema.name == "DequantizeLinear":
        scale = inputs[1]
        return scale.dtype if scale is not None else None
    formal: AttributeParameter | None = schema.attributes.get("dtype")
    if formal is not None and formal.default:
        return DataType(formal.default)
    return None
