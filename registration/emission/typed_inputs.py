"""Converts the inputs of an operator to element types that its schema allows.

Values keep an element type that the schema allows, and are cast otherwise. Python numbers and lists become
constants of the element type of their type variable.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir
from onnx_ir import DataType, Value

from .. import dtypes, schemas
from ..construction.builder import GraphBuilder
from ..construction.constant_pool import to_array
from ..errors import EmissionError
from ..kinds import has_value, is_sequence_type, is_value
from ..printable import shortened
from ..schemas import OperatorSchema, Parameter
from .result_types import formal_parameters, on_sequences

_TENSORS = frozenset({Value, type(None)})
_INT = frozenset({int})
# Inputs that are one-dimensional by definition, so that a single number is a list of one.
_LISTS = frozenset(
    {"axes", "starts", "ends", "steps", "shape", "split", "pads", "repeats", "sizes", "scales", "K"}
)


def typed_inputs(
    g: GraphBuilder, schema: OperatorSchema, arguments: Sequence[Any]
) -> tuple[list[Value | None], dict[str, DataType], dict[str, DataType]]:
    """Convert the arguments to values with one allowed element type per type variable.

    Returns:
        The inputs, the element type of each type variable, and the element types to cast results back to.
    """
    formal = formal_parameters(schema.inputs, len(arguments))
    pairs = list(zip(arguments, formal, strict=True))
    variables = _variables_of_tensors(pairs)
    if variables is None:
        return _convert_inputs(g, schema, pairs)
    if _TENSORS.issuperset(map(type, arguments)):
        return list(arguments), variables, {}
    _decide_by_numbers(schema, pairs, variables)
    inputs = [
        item if type(item) in _TENSORS else _input_value(g, schema, parameter, item, variables)
        for item, parameter in pairs
    ]
    return inputs, variables, {}


def _convert_inputs(
    g: GraphBuilder, schema: OperatorSchema, pairs: _Pairs
) -> tuple[list[Value | None], dict[str, DataType], dict[str, DataType]]:
    """The result of `typed_inputs`, where a value has an element type that is unknown or not allowed."""
    variables: dict[str, DataType] = {}
    restored_dtypes: dict[str, DataType] = {}
    sequences: set[str] = set()
    for item, parameter in pairs:
        dtype = item.dtype if is_value(item) else None
        if dtype is None or not parameter.variable or not parameter.homogeneous:
            continue
        if is_sequence_type(item.type):
            sequences.add(parameter.variable)
        variable_dtype = variables.setdefault(parameter.variable, dtype)
        if variable_dtype != dtype:
            raise EmissionError(
                f"ONNX operator {schema.name} takes inputs of one type, but received {variable_dtype.name} "
                f"and {dtype.name}: convert one of them to the type of the other"
            )
    for variable, dtype in list(variables.items()):
        allowed = next(p.dtypes for p in schema.inputs if p.variable == variable)
        if allowed and dtype not in allowed and variable not in sequences:
            variables[variable] = _allowed_dtype(g, schema, variable, dtype, allowed)
            restored_dtypes[variable] = dtype
    _decide_by_numbers(schema, pairs, variables)
    inputs = []
    for item, parameter in pairs:
        if isinstance(item, (bool, int, float)) and parameter.variable not in variables:
            item = _number_like_unknown(g, pairs, parameter, item)
        inputs.append(_input_value(g, schema, parameter, item, variables))
    return inputs, variables, restored_dtypes


_Pairs = Sequence[tuple[Any, Parameter]]
"""The arguments of an operator, each with its parameter."""


def _variables_of_tensors(pairs: _Pairs) -> dict[str, DataType] | None:
    """The element type of each type variable that tensors decide; None if a value needs a conversion."""
    variables: dict[str, DataType] = {}
    for item, parameter in pairs:
        # An exact test of the class; isinstance with a protocol of onnx_ir takes microseconds.
        if type(item) is not Value:
            if is_value(item):
                return None
            continue
        tensor_type = item.type
        if type(tensor_type) is not ir.TensorType:
            return None
        dtype = tensor_type.dtype
        if parameter.dtypes and dtype not in parameter.dtypes:
            return None
        if not parameter.variable or not parameter.homogeneous:
            continue
        if variables.setdefault(parameter.variable, dtype) != dtype:
            return None
    return variables


def _number_like_unknown(g: GraphBuilder, pairs: _Pairs, parameter: Parameter, number: object) -> Any:
    """Cast a number to the unknown element type of another operand at run time, with CastLike."""
    if not parameter.variable or not parameter.homogeneous:
        return number
    for item, neighbor in pairs:
        is_alike = neighbor.variable == parameter.variable and neighbor.homogeneous
        if is_alike and isinstance(item, Value) and item.dtype is None:
            return g.op("CastLike", g.constant(number), item)
    return number


def _decide_by_numbers(schema: OperatorSchema, pairs: _Pairs, variables: dict[str, DataType]) -> None:
    """Set the type variables without tensor operands to a type that represents all their Python numbers."""
    undecided: dict[str, list[object]] = {}
    for item, parameter in pairs:
        if (
            isinstance(item, (bool, int, float))
            and parameter.homogeneous
            and parameter.variable not in variables
        ):
            undecided.setdefault(parameter.variable, []).append(item)
    for variable, numbers in undecided.items():
        if variable and len(numbers) > 1:
            parameter = next(p for p in schema.inputs if p.variable == variable)
            variables[variable] = _dtype_of_constant(numbers, parameter)


def _allowed_dtype(
    g: GraphBuilder, schema: OperatorSchema, variable: str, dtype: DataType, allowed: frozenset[DataType]
) -> DataType:
    # A Cast cannot be prepared by a Cast, and the elements of a sequence cannot be cast back.
    castable = schema.name != "Cast" and not on_sequences(schema)
    wide = dtypes.holding(dtype, allowed) if castable else None
    if wide is not None:
        return wide
    position = next(i for i, p in enumerate(schema.inputs) if p.variable == variable)
    first = schemas.first_opset_with_dtype(schema.name, position, dtype, schema.domain)
    later = first if first is not None and first > g.opset else None
    raise EmissionError(
        f"ONNX operator {schema.name} does not take {dtype.name} at opset {g.opset}, "
        f"and no type that it takes represents every value of {dtype.name}"
        + (f"; from opset {later} it does" if later else ""),
        first_opset=later,
    )


def _input_value(
    g: GraphBuilder,
    schema: OperatorSchema,
    parameter: Parameter,
    item: object,
    variables: dict[str, DataType],
) -> Value | None:
    if item is None:
        return None
    target_dtype = variables.get(parameter.variable) if parameter.homogeneous else None
    if isinstance(item, (list, tuple)) and has_value(item):
        item = g.stack(item)
    if is_value(item):
        dtype = item.dtype
        if is_sequence_type(item.type):
            return _check_sequence(g, schema, parameter, item)
        if dtype is None or (
            dtype == (target_dtype or dtype) and (not parameter.dtypes or dtype in parameter.dtypes)
        ):
            return item
        if target_dtype is None:
            target_dtype = _allowed_dtype_of_fixed(g, schema, parameter, dtype)
        return g.cast(item, target_dtype)
    if target_dtype is None:
        target_dtype = _dtype_of_constant(item, parameter)
        if parameter.variable and parameter.homogeneous:
            variables.setdefault(parameter.variable, target_dtype)
    if parameter.name in _LISTS and not isinstance(item, (list, tuple, np.ndarray)):
        item = [item]
    if target_dtype in dtypes.INTEGERS and not isinstance(item, np.ndarray) and not _is_whole(item):
        raise EmissionError(
            f"input '{parameter.name}' of ONNX operator {schema.name} is of type {target_dtype.name} here, "
            f"which does not represent {shortened(item)}"
        )
    return g.construction.constant(to_array(item, target_dtype))


def _check_sequence(g: GraphBuilder, schema: OperatorSchema, parameter: Parameter, item: Value) -> Value:
    if item.dtype in parameter.sequences:
        return item
    position = schema.inputs.index(parameter)
    later = schemas.first_version(
        schema.name,
        schema.domain,
        lambda version: position < len(version.inputs) and item.dtype in version.inputs[position].sequences,
        after=schema.since_version,
    )
    element_type = item.dtype.name if item.dtype is not None else "unknown type"
    raise EmissionError(
        f"input '{parameter.name}' of ONNX operator {schema.name} takes no sequence of {element_type} "
        f"at opset {g.opset}" + (f"; from opset {later} it does" if later else ""),
        first_opset=later,
    )


def _is_whole(item: object) -> bool:
    if _INT.issuperset(map(type, item if isinstance(item, (list, tuple)) else (item,))):
        return True
    numbers = np.asarray(item)
    return numbers.dtype.kind != "f" or bool(
        np.all(numbers == np.trunc(numbers)) and np.all(np.isfinite(numbers))
    )


def _allowed_dtype_of_fixed(
    g: GraphBuilder, schema: OperatorSchema, parameter: Parameter, dtype: DataType
) -> DataType:
    wide = dtypes.holding(dtype, parameter.dtypes)
    if wide is None:
        names = ", ".join(sorted(allowed.name for allowed in parameter.dtypes))
        raise EmissionError(
            f"input '{parameter.name}' of ONNX operator {schema.name} takes {names} at opset {g.opset}, "
            f"not {dtype.name}"
        )
    return wide


def _dtype_of_constant(item: object, parameter: Parameter) -> DataType:
    """Return the element type of a Python constant whose type variable no other input sets."""
    if len(parameter.dtypes) == 1:
        return next(iter(parameter.dtypes))
    default_dtype = DataType.from_numpy(to_array(item).dtype)
    if not parameter.dtypes or default_dtype in parameter.dtypes:
        return default_dtype
    wider_dtype = dtypes.holding(default_dtype, parameter.dtypes)
    return (
        wider_dtype
        if wider_dtype is not None
        else DataType.FLOAT
        if DataType.FLOAT in parameter.dtypes
        else default_dtype
    )
