"""Schema-bound emission: binds an operator's arguments by name to its schema at the target opset.

An argument becomes an attribute or a constant input, as in the schema. An attribute that equals the schema's
default is omitted. An argument that the version lacks is omitted if it equals the value that the version
implies, and refused otherwise. Element types that the operator does not support are cast to one that
represents every value, and the results are cast back. If the target's version refuses the arguments or means
something else, the version ladder of `symbolics/onnx` replaces the operator.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir
from onnx_ir import AttributeType, DataType, Value

from .. import schemas
from ..attribute_words import foreign_words, is_word, words_of
from ..construction.builder import GraphBuilder
from ..construction.constant_pool import to_array
from ..errors import EmissionError, UnsupportedError
from ..inference import folding, integer_folding
from ..kinds import has_value, is_value
from ..printable import shortened
from ..schemas import OperatorSchema, Parameter
from . import ladder
from .nonnegative_axes import NEGATIVE_AXES, attributes_from_front, inputs_from_front
from .omitted_arguments import check_omitted
from .operand_checks import check_operands
from .result_types import formal_outputs, result_types
from .typed_inputs import typed_inputs

# The suffixes by which torch.onnx's symbolic functions mark the type of an attribute.
_SUFFIXES = {
    "i": AttributeType.INT,
    "f": AttributeType.FLOAT,
    "s": AttributeType.STRING,
    "t": AttributeType.TENSOR,
    "g": AttributeType.GRAPH,
}
_PLURAL = {
    AttributeType.INT: AttributeType.INTS,
    AttributeType.FLOAT: AttributeType.FLOATS,
    AttributeType.STRING: AttributeType.STRINGS,
    AttributeType.TENSOR: AttributeType.TENSORS,
    AttributeType.GRAPH: AttributeType.GRAPHS,
}
_CONVERSIONS: dict[AttributeType, Callable[[Any], int | float]] = {
    AttributeType.INT: lambda item: int(item) if isinstance(item, np.bool_) else operator.index(item),
    AttributeType.FLOAT: float,
}
_EXACT = {AttributeType.INT: int, AttributeType.FLOAT: float, AttributeType.STRING: str}
"""The Python types that are stored without a conversion."""
_EXACT_ELEMENTS = {_PLURAL[single]: frozenset({exact}) for single, exact in _EXACT.items()}
_STRINGS = frozenset({AttributeType.STRING, AttributeType.STRINGS})
_TENSOR = AttributeType.TENSOR
_INTEGER_TYPES = (AttributeType.INT, AttributeType.INTS)
_LOWEST_INTEGER, _HIGHEST_INTEGER = -(2**63), 2**63 - 1
_GRAPH_TYPES = frozenset({AttributeType.GRAPH, AttributeType.GRAPHS})
_SINGULAR = {plural: singular for singular, plural in _PLURAL.items()}


def emit(
    g: GraphBuilder,
    op_type: str,
    domain: str,
    positional: Sequence[object],
    named: Mapping[str, object],
    outputs: int,
) -> list[Value]:
    """Append one operator to the graph of `g`, or fold it, or compose it, and return its outputs.

    Raises:
        EmissionError: the target opset does not have the operator, an argument or an element type.
        UnsupportedError: an axis is outside of its tensor, or sizes cannot be sizes.
    """
    rung = None if domain else ladder.rung(g, op_type, positional, named)
    if rung is not None:
        return ladder.compose_rung(g, rung, op_type, positional, named, outputs)
    construction = g.construction
    version = construction.opset if domain == "" else construction.opset_import(domain)
    schema = schemas.operator_schema(op_type, version, domain)
    try:
        if schema is None:
            return _emit_unknown(g, op_type, domain, version, positional, named, outputs)
        arguments, attributes = _bind(g, schema, positional, named)
        inputs, variables, restored_dtypes = typed_inputs(g, schema, arguments)
        formal = formal_outputs(schema, outputs)
        types = result_types(schema, formal, variables, attributes, inputs)
    except EmissionError as refusal:
        composition = None if domain else ladder.composition(g, op_type)
        if composition is None:
            raise
        try:
            return ladder.compose(g, composition, op_type, positional, named, outputs)
        except UnsupportedError as error:
            # Prefer the composition's error when it names an opset that supports the operator.
            raise (error if error.first_opset is not None else refusal) from None
    check_operands(op_type, schema.input_index, inputs, attributes)
    if not domain and version < NEGATIVE_AXES:
        attributes = attributes_from_front(op_type, inputs, attributes)
        inputs = inputs_from_front(g, schema, inputs)
    # Sources without shapes compute sizes with operators of several outputs, such as Split.
    if outputs == 1 or construction.infers:
        folded = _fold(g, op_type, inputs, attributes, types)
        if folded is not None:
            # An untrusted file may describe any number of them, and none becomes a node.
            if construction.limits is not None:
                construction.limits.spend(1)
            return _cast_back(g, folded, formal, restored_dtypes)
    results = construction.append(op_type, inputs, attributes, types, domain)
    return _cast_back(g, results, formal, restored_dtypes) if restored_dtypes else results


def _cast_back(
    g: GraphBuilder, results: list[Value], formal: Sequence[Parameter], dtypes: Mapping[str, DataType]
) -> list[Value]:
    """The results, cast back to the element types that inputs of the same type variable had."""
    return [
        g.cast(value, dtypes[parameter.variable]) if parameter.variable in dtypes else value
        for value, parameter in zip(results, formal, strict=True)
    ]


def _emit_unknown(
    g: GraphBuilder,
    op_type: str,
    domain: str,
    version: int,
    positional: Sequence[object],
    named: Mapping[str, object],
    outputs: int,
) -> list[Value]:
    """Emit an operator without a schema: refused in ONNX's own domains, allowed in others."""
    # onnxruntime-extensions, which is not part of ONNX, has the domain ai.onnx.contrib.
    if domain == "" or (domain.startswith("ai.onnx.") and domain != "ai.onnx.contrib"):
        where = f" of domain {domain}" if domain else ""
        if not schemas.operator_schemas(op_type, domain):
            raise EmissionError(f"ONNX has no operator '{op_type}'{where}")
        later = schemas.first_version(op_type, domain, lambda _: True, after=version)
        if later is not None:
            raise EmissionError(
                f"ONNX operator {op_type}{where} does not exist at opset {version}; it begins at {later}",
                first_opset=later if domain == "" else None,
            )
        raise EmissionError(f"ONNX operator {op_type}{where} is deprecated at opset {version}")
    attributes = []
    for name, value in named.items():
        if value is None:
            continue
        stem, attribute_type = _split_suffix(name)
        if attribute_type is not None and isinstance(value, (list, tuple)):
            attribute_type = _PLURAL[attribute_type]
        attributes.append(_attribute(g, op_type, stem, attribute_type or _attribute_type(value), value))
    inputs = [item if item is None or isinstance(item, Value) else g.constant(item) for item in positional]
    return g.construction.append(op_type, inputs, attributes, [None] * outputs, domain)


def _split_suffix(name: str) -> tuple[str, AttributeType | None]:
    """Split torch.onnx's `alpha_f` into name and type; without a suffix, the type is None."""
    stem, _, suffix = name.rpartition("_")
    return (stem, _SUFFIXES[suffix]) if stem and suffix in _SUFFIXES else (name, None)


def _attribute_type(value: object) -> AttributeType:
    first = value[0] if isinstance(value, (list, tuple)) and value else value
    if isinstance(first, (bool, int, np.integer)):
        attribute_type = AttributeType.INT
    elif isinstance(first, (float, np.floating)):
        attribute_type = AttributeType.FLOAT
    elif isinstance(first, str):
        attribute_type = AttributeType.STRING
    elif isinstance(first, ir.Graph):
        attribute_type = AttributeType.GRAPH
    elif isinstance(value, (list, tuple)):
        attribute_type = AttributeType.INT
    else:
        attribute_type = AttributeType.TENSOR
    return _PLURAL[attribute_type] if isinstance(value, (list, tuple)) else attribute_type


def _bind(
    g: GraphBuilder, schema: OperatorSchema, positional: Sequence[object], named: Mapping[str, object]
) -> tuple[list[Any], list[ir.Attr]]:
    """Bind every argument: a list of inputs in the schema's order, and the attributes."""
    arguments = list(positional)
    formal = schema.inputs
    if len(arguments) > len(formal) and not (formal and formal[-1].variadic):
        raise EmissionError(
            f"ONNX operator {schema.name} takes {len(formal)} inputs at opset {g.opset}, not {len(arguments)}"
        )
    attributes = []
    omitted = {}
    for name, value in named.items():
        if value is None:
            continue
        index, attribute = schema.find_argument(name)
        if index is None and attribute is None:
            index, attribute = schema.find_argument(_split_suffix(name)[0])
        if index is not None:
            arguments.extend([None] * (index + 1 - len(arguments)))
            if arguments[index] is not None:
                raise EmissionError(f"ONNX operator {schema.name} was given '{name}' twice")
            arguments[index] = value
        elif attribute is not None:
            if attribute.type in _STRINGS:
                _check_words(g, schema, name, attribute.name, value)
            node_attribute = _attribute(g, schema.name, attribute.name, attribute.type, value)
            if attribute.default is None or not attribute.is_default(node_attribute.value):
                attributes.append(node_attribute)
        else:
            omitted[name] = value
    for name, value in omitted.items():
        check_omitted(g, schema, arguments, name, value)
    # A Loop has its first two inputs even if both are omitted.
    while len(arguments) > schema.minimum_inputs and arguments[-1] is None:
        arguments.pop()
    _check_required(g, schema, arguments, attributes)
    return arguments, attributes


def _check_words(g: GraphBuilder, schema: OperatorSchema, name: str, attribute: str, value: object) -> None:
    """Refuse a word that the attribute may not have at the target opset.

    Raises:
        EmissionError: later or earlier versions have the word, so that a composition may serve.
        UnsupportedError: no version has it.
    """
    words = words_of(schema.name, attribute, schema.since_version)
    foreign = foreign_words(words, value) if words is not None else ()
    if not foreign:
        return
    word, first = foreign[0], schemas.first_opset_with_value(schema, attribute, foreign[0])
    text = f"'{name}' of ONNX operator {schema.name} cannot be '{word}' at opset {g.opset}"
    if first is not None:
        raise EmissionError(f"{text}; from {first} it may", first_opset=first)
    if is_word(schema.name, attribute, word):
        raise EmissionError(text)
    raise UnsupportedError(f"{text}, but {', '.join(sorted(words or ()))}")


def _check_required(
    g: GraphBuilder, schema: OperatorSchema, arguments: Sequence[object], attributes: Sequence[ir.Attr]
) -> None:
    count = len(arguments)
    for index in schema.required_inputs:
        if index >= count or arguments[index] is None:
            name = schema.inputs[index].name
            raise EmissionError(f"ONNX operator {schema.name} needs input '{name}' at opset {g.opset}")
    if count < schema.minimum_inputs:
        raise EmissionError(
            f"ONNX operator {schema.name} needs {schema.minimum_inputs} inputs at opset {g.opset}, "
            f"not {count}"
        )
    for name in schema.required_attributes:
        if all(attribute.name != name for attribute in attributes):
            raise EmissionError(f"ONNX operator {schema.name} needs attribute '{name}' at opset {g.opset}")


def _attribute(
    g: GraphBuilder, op_type: str, name: str, attribute_type: AttributeType, value: Any
) -> ir.Attr:
    """An attribute of the given type from a Python value, a tensor, or a constant graph value."""
    if type(value) is list:
        is_exact = attribute_type in _EXACT_ELEMENTS and _EXACT_ELEMENTS[attribute_type].issuperset(
            map(type, value)
        )
    else:
        is_exact = type(value) is _EXACT.get(attribute_type)
    if is_exact or attribute_type in _GRAPH_TYPES:
        if attribute_type in _INTEGER_TYPES:
            _check_integers(op_type, name, value)
        return ir.Attr(name, attribute_type, value)
    if isinstance(value, (list, tuple)) and has_value(value):
        value = g.stack(value)
    if is_value(value):
        value = _constant_attribute(g, op_type, name, value)
    if attribute_type == _TENSOR:
        return ir.Attr(
            name,
            attribute_type,
            value if isinstance(value, ir.TensorProtocol) else ir.Tensor(to_array(value)),
        )
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if attribute_type in _SINGULAR:
        value = list(value) if isinstance(value, (list, tuple)) else [value]
    elif isinstance(value, (list, tuple)):
        if len(value) != 1:
            raise EmissionError(
                f"attribute '{name}' of ONNX operator {op_type} takes one value, not {list(value)}"
            )
        value = value[0]
    numbers = _numbers(op_type, name, attribute_type, value)
    if attribute_type in _INTEGER_TYPES:
        _check_integers(op_type, name, numbers)
    return ir.Attr(name, attribute_type, numbers)


def _check_integers(op_type: str, name: str, value: int | list[int]) -> None:
    """Refuse numbers that a file cannot hold: its integers have 64 bits."""
    numbers = value if isinstance(value, list) else (value,)
    # Nearly always all of them fit.
    if numbers and min(numbers) >= _LOWEST_INTEGER and max(numbers) <= _HIGHEST_INTEGER:
        return
    for number in numbers:
        if not _LOWEST_INTEGER <= number <= _HIGHEST_INTEGER:
            raise EmissionError(
                f"attribute '{name}' of ONNX operator {op_type} must be of type INT64, not {number}"
            )


def _numbers(op_type: str, name: str, attribute_type: AttributeType, value: Any) -> Any:
    """Return the value of a number attribute as Python ints or floats; refuse fractions for ints."""
    convert = _CONVERSIONS.get(_SINGULAR.get(attribute_type, attribute_type))
    if convert is None:
        return value
    try:
        return [convert(item) for item in value] if attribute_type in _SINGULAR else convert(value)
    except (TypeError, ValueError):
        raise EmissionError(
            f"attribute '{name}' of ONNX operator {op_type} must be of type {attribute_type.name}, not "
            f"{shortened(value)}"
        ) from None


def _constant_attribute(g: GraphBuilder, op_type: str, name: str, value: Value) -> np.ndarray:
    array = g.constant_value(value)
    if array is None:
        later = schemas.first_version(
            op_type, "", lambda schema: schema.find_argument(name)[0] is not None, after=g.opset
        )
        raise EmissionError(
            f"'{name}' of ONNX operator {op_type} is an attribute at opset {g.opset} and must be constant"
            + (f"; from {later} it may be computed" if later else ""),
            first_opset=later,
        )
    return array


def _fold(
    g: GraphBuilder,
    op_type: str,
    inputs: Sequence[Value | None],
    attributes: Sequence[ir.Attr],
    types: Sequence[ir.TypeProtocol | None],
) -> list[Value] | None:
    """Compute the results of an operator on constants; None if it is not folded."""
    if op_type == "Shape" and not attributes:
        shape = inputs[0].shape if inputs[0] is not None else None
        if shape is not None and shape.is_static():
            return [g.constant(np.array(shape.numpy(), dtype=np.int64))]
        return None
    if not inputs:
        return None
    for value in inputs:
        if value is not None and (value.const_value is None or not g.is_foldable(value)):
            return None
    arrays = [None if value is None else g.constant_value(value) for value in inputs]
    named = {attribute.name: attribute.value for attribute in attributes}
    result = folding.evaluate(op_type, arrays, named) if len(types) == 1 else None
    results = None if result is None else [result]
    if results is None and g.construction.infers:
        results = integer_folding.evaluate(op_type, arrays, named, len(types))
    if results is None:
        return None
    return [
        g.constant(array, None if result_type is None else result_type.dtype)
        for array, result_type in zip(results, types, strict=True)
    ]
