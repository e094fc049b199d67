"""Reads a node's inputs and attributes as arguments by name, with the schema of the file's opset."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence

import onnx
import onnx_ir as ir
from onnx_ir import Value

from .....registration import (
    GraphContext,
    Registry,
    SymbolicFunction,
    UnsupportedError,
    composed_results,
    schemas,
)
from .....registration.inference.window_counts import may_miscount
from .....registration.schemas import OperatorSchema, inputs_by_name
from .foreign_operators import WRITTEN_EARLY

_EARLIER_MEANING = re.compile(r"before(\d+)::(\w+)")
# Attributes of old files that no runtime reads.
_MEANINGLESS = frozenset({"consumed_inputs"})


@functools.lru_cache(maxsize=4096)
def schema_of(
    op_type: str, opset: int, attribute_names: frozenset[str] = frozenset()
) -> OperatorSchema | None:
    """Return the schema of an operator in a file of this opset; None if there is none.

    For a removed operator, this is the last version that has the attributes, such as version 7 of Upsample
    for `scales`. For an operator that onnxruntime's optimizer writes below the opset that introduces it, it
    is the first version.
    """
    version_at_opset = schemas.operator_schema(op_type, opset)
    if version_at_opset is not None:
        return version_at_opset
    earlier_schemas = [
        schema for schema in schemas.operator_schemas(op_type) if schema.since_version <= opset
    ]
    if not earlier_schemas and op_type in WRITTEN_EARLY:
        return schemas.operator_schemas(op_type)[0]
    fitting = [schema for schema in earlier_schemas if attribute_names <= schema.attributes.keys()]
    candidates = fitting or earlier_schemas
    return candidates[-1] if candidates else None


def meaning_changes(registry: Registry) -> dict[str, list[int]]:
    """Return, by operator, the versions at which its meaning changed: 13 for `before13::Softmax`."""
    table: dict[str, list[int]] = {}
    for name in registry.names("before"):
        match = _EARLIER_MEANING.fullmatch(name)
        if match is not None:
            table.setdefault(match[2], []).append(int(match[1]))
    return {op_type: sorted(versions) for op_type, versions in table.items()}


def meaning(changes: Sequence[int], version: int) -> int | None:
    """Return the first change of meaning above a version; None if the version has the newest meaning."""
    return next((opset for opset in changes if opset > version), None)


def attributes_by_name(schema: OperatorSchema, attributes: Mapping[str, ir.Attr]) -> dict[str, object]:
    """Return the attributes as Python values, sub-graphs and tensors, without meaningless old ones."""
    return {
        name: attribute.value
        for name, attribute in attributes.items()
        if name not in _MEANINGLESS or name not in schema.attributes
    }


def without_defaults(schema: OperatorSchema, attributes: Mapping[str, ir.Attr]) -> dict[str, ir.Attr]:
    """Return the attributes that differ from the default of their version."""
    formals = schema.attributes
    return {
        name: attribute
        for name, attribute in attributes.items()
        if name not in formals or not formals[name].is_default(attribute.value)
    }


def outputs_and_attributes(
    node: ir.Node, schema: OperatorSchema, attributes: Mapping[str, ir.Attr]
) -> tuple[int, Mapping[str, ir.Attr]]:
    """Return how many results to emit for a node, and its attributes.

    Below version 14, BatchNormalization with more than one result trains. If nothing reads these results, it
    gets one result, and version 6's attribute for inference.
    """
    outputs = [i for i, value in enumerate(node.outputs) if value.name]
    trains = schema.name == "BatchNormalization" and schema.since_version < 14 and len(outputs) > 1
    if trains and not any(value.uses() or value.is_graph_output() for value in node.outputs[1:]):
        return 1, {**attributes, "is_test": ir.AttrInt64("is_test", 0)}
    return (outputs[-1] + 1 if outputs else 1), attributes


def complete_attributes(schema: OperatorSchema, attributes: Mapping[str, ir.Attr]) -> dict[str, ir.Attr]:
    """Return the attributes with defaults for omitted ones, to which a function body may refer."""
    # A call may omit an attribute, but a reference in the body needs a value.
    formals = (a for a in schema.attributes.values() if a.default is not None)
    return {**{a.name: ir.Attr(a.name, a.type, a.default) for a in formals}, **attributes}


def implied_arguments(registry: Registry, schema: OperatorSchema) -> dict[str, object]:
    """Return the values that an old version implies for arguments that later versions added."""
    return {
        name: value
        for name, value in registry.implied_values(schema.name).items()
        if schema.find_argument(name) == (None, None)
        and schemas.first_opset_with(schema.name, name, after=schema.since_version) is not None
    }


def with_defaults(
    registry: Registry, schema: OperatorSchema, named: Mapping[str, object], target: OperatorSchema | None
) -> dict[str, object]:
    """Return the attributes, with omitted ones written out if the target version has another default."""
    result = dict(named)
    implied_arguments = registry.implied_values(schema.name)
    for attribute in schema.attributes.values():
        if attribute.name in result or attribute.default is None or target is None:
            continue
        target_attribute = target.attributes.get(attribute.name)
        if target_attribute is not None:
            differs = not target_attribute.is_default(attribute.default)
        else:
            differs = attribute.name in implied_arguments and target.find_argument(attribute.name) == (
                None,
                None,
            )
        if differs:
            result[attribute.name] = attribute.default
    return result


def place_inputs(
    schema: OperatorSchema, target: OperatorSchema | None, inputs: Sequence[Value | None]
) -> tuple[list[Value | None], dict[str, Value]]:
    """Split inputs for emission: by position if the target version has the input there, else by name."""
    if target is None:
        return list(inputs), {}
    own_names = {parameter.name for parameter in schema.inputs}
    positional: list[Value | None] = []
    named: dict[str, Value] = {}
    for index, value in enumerate(inputs):
        parameter = schema.inputs[min(index, len(schema.inputs) - 1)]
        target_parameter = target.inputs[min(index, len(target.inputs) - 1)] if target.inputs else None
        # A later version may have renamed the input at this position.
        stays = target_parameter is not None and (target_parameter.variadic or index < len(target.inputs))
        renamed = stays and target_parameter is not None and target_parameter.name not in own_names
        if parameter.variadic or (
            stays and target_parameter is not None and (target_parameter.name == parameter.name or renamed)
        ):
            positional.append(value)
            continue
        positional.append(None)
        if value is not None:
            named[parameter.name] = value
    # Drop omitted inputs at the end, except for a variadic input, which counts them.
    while positional and positional[-1] is None and (target.inputs and not target.inputs[-1].variadic):
        positional.pop()
    return positional, named


def may_copy(
    schema: OperatorSchema,
    target: OperatorSchema | None,
    inputs: Sequence[Value | None],
    attributes: Mapping[str, ir.Attr],
    opset: int,
) -> bool:
    """Whether a node means the same at the target opset, and onnx infers the right sizes for it."""
    is_same_version = target is not None and target.since_version == schema.since_version
    return is_same_version and not may_miscount(schema.name, inputs, attributes, opset)


def resolve_references(
    attributes: Mapping[str, ir.Attr], call_attributes: Mapping[str, ir.Attr]
) -> dict[str, ir.Attr]:
    """Replace references in the attributes of a function's node by the values of the call."""
    result: dict[str, ir.Attr] = {}
    for name, attribute in attributes.items():
        if not attribute.is_ref():
            result[name] = attribute
            continue
        argument = call_attributes.get(attribute.ref_attr_name or "")
        if argument is not None:
            result[name] = ir.Attr(name, argument.type, argument.value)
    return result


def node_message(
    op_type: str, inputs: Sequence[Value | None], attributes: Mapping[str, ir.Attr], outputs: int
) -> bytes:
    """Serialize a node for onnx's C++ functions that build its body; omitted inputs have no name."""
    message = onnx.NodeProto(op_type=op_type)
    message.input.extend("" if value is None else f"input_{i}" for i, value in enumerate(inputs))
    message.output.extend(f"output_{i}" for i in range(outputs))
    message.attribute.extend(ir.to_proto(attribute) for attribute in attributes.values())
    result: bytes = message.SerializeToString()
    return result


def type_message(value: Value | None) -> bytes:
    """Serialize the type and known shape of an input; an empty message for an omitted input.

    Raises:
        UnsupportedError: the element type is unknown.
    """
    message = onnx.TypeProto()
    if value is None:
        result: bytes = message.SerializeToString()
        return result
    if value.type is None:
        raise UnsupportedError(f"the element type of '{value.name}' is unknown")
    ir.serde.serialize_type_into(message, value.type)
    if value.shape is not None:
        ir.serde.serialize_shape_into(message, value.shape)
    result = message.SerializeToString()
    return result


def type_text(value_type: ir.TypeProtocol | None) -> str:
    """Write a type in the notation of schemas, `optional(seq(tensor(float)))`; "" if unknown."""
    if isinstance(value_type, ir.OptionalType | ir.SequenceType):
        element_text = type_text(value_type.elem_type)
        container = "optional" if isinstance(value_type, ir.OptionalType) else "seq"
        return f"{container}({element_text})" if element_text else ""
    return (
        "" if value_type is None or value_type.dtype is None else f"tensor({value_type.dtype.name.lower()})"
    )


def refused_type(
    op_type: str, opset: int, inputs: Sequence[Value | None], outputs: Sequence[Value]
) -> str | None:
    """Return the first sequence or optional type that an operator at an opset does not support, or None."""
    schema = onnx.defs.get_schema(op_type, opset, "")
    for values, formals in ((inputs, schema.inputs), (outputs, schema.outputs)):
        for index, value in enumerate(values):
            if value is None or not isinstance(value.type, ir.SequenceType | ir.OptionalType):
                continue
            text = type_text(value.type)
            if formals and text and text not in formals[min(index, len(formals) - 1)].types:
                return text
    return None


def call_symbolic(
    g: GraphContext,
    symbolic: SymbolicFunction,
    schema: OperatorSchema,
    inputs: Sequence[Value | None],
    named: Mapping[str, object],
    outputs: int,
) -> Sequence[Value]:
    """Call the symbolic function of an operator version with a node's arguments; return its results."""
    arguments = {**inputs_by_name(schema, inputs), **named}
    if "outputs" in symbolic.parameters:
        arguments["outputs"] = outputs
    results = composed_results(symbolic, symbolic(g, arguments), outputs)
    return [g.constant(result) for result in results]
