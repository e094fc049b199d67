"""Finds the nodes that a target takes in another form only."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import onnx_ir as ir

from ....registration.form_rule import FormRule
from ....registration.schemas import OperatorSchema, operator_schema
from .batch_axes import sizes_along_batch


def rule_matches(
    rule: FormRule, node: ir.Node, schema: OperatorSchema, batch_axes: Mapping[ir.Value, int] | None = None
) -> bool:
    """Whether a rule is about a node of its operator.

    Args:
        batch_axes: the axes that the consumer takes for the batch, for rules with `splits_batch`.
    """
    if rule.splits_batch and not sizes_along_batch(node, batch_axes or {}) - {1}:
        return False
    first = node.inputs[0] if node.inputs else None
    if rule.ranks and (first is None or first.shape is None or len(first.shape) not in rule.ranks):
        return False
    if rule.maximum_first_size is not None:
        size = first.shape[0] if first is not None and first.shape else None
        if not isinstance(size, int) or size > rule.maximum_first_size:
            return False
    if rule.at_output and not node.outputs[0].is_graph_output():
        return False
    if rule.types and (first is None or first.dtype is None or first.dtype.name.lower() not in rule.types):
        return False
    if rule.outputs is not None and not any(map(_is_read, node.outputs[rule.outputs - 1 :])):
        return False
    if not _neighbours_match(rule, node):
        return False
    if rule.other_attributes and not list_other_attributes(rule, node, schema):
        return False
    return _attributes_match(node, schema, rule.attributes) and _inputs_match(rule, node, schema)


def list_other_attributes(rule: FormRule, node: ir.Node, schema: OperatorSchema) -> list[str]:
    """The attributes that have none of the values of `other_attributes`."""
    values = {name: _attribute_value(node, schema, name) for name in rule.other_attributes}
    # An attribute that is absent and has no default has the meaning that every consumer knows.
    return [
        name
        for name, value in values.items()
        if value is not None and value not in rule.other_attributes[name]
    ]


def _neighbours_match(rule: FormRule, node: ir.Node) -> bool:
    producer = node.inputs[0].producer() if node.inputs and node.inputs[0] is not None else None
    before = producer.op_type if producer is not None and not producer.domain else None
    if (rule.behind and before not in rule.behind) or before in rule.not_behind:
        return False
    readers = _readers(rule, node) if rule.before else ()
    for reader in (reader for reader in readers if reader.op_type in rule.before):
        opset = reader.graph.opset_imports.get("", 0) if reader.graph is not None else 0
        schema = operator_schema(reader.op_type, opset) if rule.before_attributes else None
        if schema is None or _attributes_match(reader, schema, rule.before_attributes):
            return True
    return not rule.before


def _readers(rule: FormRule, node: ir.Node) -> Iterator[ir.Node]:
    """The nodes that read the first output of a node, also behind operators of `through`."""
    pending, visited = [node], {node}
    while pending:
        for value in pending.pop().outputs[:1]:
            for reader, position in value.uses():
                yield reader
                operands = (*reader.inputs[:position], *reader.inputs[position + 1 :])
                are_constant = all(value is None or _is_constant(value) for value in operands)
                if reader.op_type in rule.through and are_constant and reader not in visited:
                    visited.add(reader)
                    pending.append(reader)


def _attributes_match(
    node: ir.Node, schema: OperatorSchema, attributes: Mapping[str, tuple[object, ...]]
) -> bool:
    return all(_attribute_value(node, schema, name) in values for name, values in attributes.items())


def _inputs_match(rule: FormRule, node: ir.Node, schema: OperatorSchema) -> bool:
    conditions: tuple[tuple[tuple[str, ...], Callable[[ir.Value], bool]], ...] = (
        (rule.constant_inputs, _is_constant),
        (rule.computed_inputs, lambda value: not _is_constant(value)),
        (rule.present_inputs, lambda _: True),
        (rule.shared_inputs, lambda value: any(reader is not node for reader, _ in value.uses())),
    )
    for names, is_met in conditions:
        for name in names:
            position = schema.input_index.get(name)
            value = node.inputs[position] if position is not None and position < len(node.inputs) else None
            if value is None or not is_met(value):
                return False
    return True


def _attribute_value(node: ir.Node, schema: OperatorSchema, name: str) -> object:
    attribute, formal = node.attributes.get(name), schema.attributes.get(name)
    value = attribute.value if attribute is not None else formal.default if formal is not None else None
    if isinstance(value, (list, tuple)):
        return [item.decode() if isinstance(item, bytes) else item for item in value]
    return value.decode() if isinstance(value, bytes) else value


def _is_read(value: ir.Value) -> bool:
    return bool(value.uses()) or value.is_graph_output()


def _is_constant(value: ir.Value) -> bool:
    if value.const_value is not None:
        return not value.is_graph_input()
    producer = value.producer()
    return producer is not None and producer.op_type == "Constant" and not producer.domain
