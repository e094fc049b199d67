"""Checks the nodes of an ONNX model against the schemas of their operators.

1. The operator exists at the opset that the model, or the function with the node, imports.
2. Its attributes exist, have the types of the schema, and the words and element types that the text allows;
   required ones are there.
3. The numbers of inputs and outputs are those of the schema, and required ones are not omitted.
4. Element types are those that the schema allows, and those of one type variable are equal.
5. Ranks and axes, where they are known, are within those of `ranks`.
6. Sub-graphs have the numbers of inputs and outputs that their operator requires.

Nodes of domains without schemas and calls of the model's functions are not checked. The facts about an
operator version are gathered once; a node costs some microseconds.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import onnx
import onnx_ir as ir
from onnx_ir import AttributeType

from ..arguments import blocks
from ..attribute_words import foreign_words, words_of
from ..errors import InvalidNode, InvalidNodesError
from ..metadata import MODULE
from ..schemas import OperatorSchema, operator_schema, operator_schemas
from . import ranks, types

_SCHEMA_DOMAINS = frozenset(schema.domain for schema in onnx.defs.get_all_schemas())
_INTERNAL = "__"
"""The prefix of attributes that onnx's checker ignores."""


@dataclasses.dataclass(frozen=True)
class _Attribute:
    """What a version of an operator allows for an attribute; None is no restriction."""

    type: AttributeType
    words: frozenset[str] | None
    numbers: frozenset[int] | None


@dataclasses.dataclass(frozen=True)
class _Facts:
    """What nodes of one operator version must have."""

    schema: OperatorSchema
    attributes: Mapping[str, _Attribute]
    required_attributes: tuple[str, ...]
    required_inputs: tuple[int, ...]
    required_outputs: tuple[int, ...]
    minimum_inputs: int
    minimum_outputs: int
    maximum_inputs: float
    maximum_outputs: float
    has_rank_rule: bool
    has_own_rule: bool


@functools.lru_cache(maxsize=4096)
def _facts(op_type: str, opset: int, domain: str) -> _Facts | None:
    schema = operator_schema(op_type, opset, domain)
    if schema is None:
        return None
    inputs, outputs = schema.inputs, schema.outputs
    return _Facts(
        schema,
        {
            name: _Attribute(
                formal.type,
                words_of(op_type, name, schema.since_version),
                types.allowed_numbers(schema, name),
            )
            for name, formal in schema.attributes.items()
        },
        schema.required_attributes,
        schema.required_inputs,
        tuple(i for i, formal in enumerate(outputs) if not formal.optional and not formal.variadic),
        schema.minimum_inputs,
        schema.minimum_outputs,
        float("inf") if inputs and inputs[-1].variadic else len(inputs),
        float("inf") if outputs and outputs[-1].variadic else len(outputs),
        domain == "" and op_type in ranks.CHECKED,
        domain == "" and op_type in _RULES and schema.since_version >= _RULES_SINCE.get(op_type, 1),
    )


def check_nodes(model: ir.Model, already_invalid: Collection[InvalidNode] = ()) -> None:
    """Check every node of a model before it is returned or written.

    Args:
        already_invalid: nodes that were invalid in the file that the model was converted from, at the
            same opset.

    Raises:
        InvalidNodesError: lists the nodes that are not valid, without those of `already_invalid`.
    """
    invalid = [node for node in invalid_nodes(model) if node not in already_invalid]
    if invalid:
        raise InvalidNodesError("the model would have nodes that are not valid:", invalid)


def invalid_nodes(model: ir.Model) -> list[InvalidNode]:
    """Every node of a model, of its sub-graphs and its functions that its schema does not allow."""
    functions = model.functions
    problems = list(_of_graph(model.graph, model.graph.opset_imports, functions))
    for function in functions.values():
        problems += _of_graph(function.graph, function.opset_imports, functions)
    return problems


def _of_graph(
    graph: ir.Graph, imports: Mapping[str, int], functions: Mapping[Any, ir.Function]
) -> Iterator[InvalidNode]:
    """The invalid nodes of a graph and of the graphs inside it."""
    standard = imports.get("", imports.get("ai.onnx"))
    # A stack instead of recursion, because files may nest graphs deeply.
    stack = [iter(graph)]
    while stack:
        for node in stack[-1]:
            domain = node.domain
            if functions and node.op_identifier() in functions:
                problem = None
            elif domain in ("", "ai.onnx"):
                problem = None if standard is None else _node_problem(node, standard, "")
            elif domain in _SCHEMA_DOMAINS and domain in imports:
                problem = _node_problem(node, imports[domain], domain)
            else:
                problem = None
            if problem is not None:
                yield _invalid(node, *problem)
            inner = blocks(node) if node.attributes.data else ()
            if inner:
                stack += [iter(block) for block in reversed(inner)]
                break
        else:
            stack.pop()


def _invalid(node: ir.Node, reason: str, is_unknown: bool) -> InvalidNode:
    result = next((value.name for value in node.outputs if value.name), "")
    operator = node.op_type if node.domain in ("", "ai.onnx") else f"{node.domain}::{node.op_type}"
    return InvalidNode(
        reason, node.name or "", result, operator, node.metadata_props.get(MODULE, ""), is_unknown
    )


def _node_problem(node: ir.Node, opset: int, domain: str) -> tuple[str, bool] | None:
    """What is wrong with a node, and whether it is that the opset does not have the operator."""
    facts = _facts(node.op_type, opset, domain)
    if facts is None:
        return _absence(node.op_type, opset, domain), True
    reason = (
        _attribute_problem(node, facts)
        or _count_problem(node, facts)
        or types.type_problem(node, facts.schema)
        or (ranks.rank_problem(node, facts.schema) if facts.has_rank_rule else None)
        or (_RULES[node.op_type](node) if facts.has_own_rule else None)
    )
    return None if reason is None else (f"{reason}, at opset {opset}", False)


def _absence(op_type: str, opset: int, domain: str) -> str:
    versions = operator_schemas(op_type, domain)
    where = f" of domain {domain}" if domain else ""
    if not versions:
        return f"ONNX has no such operator{where}"
    first = versions[0].since_version
    if first > opset:
        return f"the operator{where} does not exist at opset {opset}; it begins at {first}"
    return f"the operator{where} is deprecated at opset {opset}"


def _attribute_problem(node: ir.Node, facts: _Facts) -> str | None:
    attributes = node.attributes.data
    for name, attribute in attributes.items():
        formal = facts.attributes.get(name)
        if formal is None:
            if name.startswith(_INTERNAL):
                continue
            return f"it has no attribute '{name}'"
        if attribute.type != formal.type:
            return f"its attribute '{name}' is of type {attribute.type.name}, not {formal.type.name}"
        if attribute.ref_attr_name is not None:
            continue
        if formal.words is not None:
            foreign = foreign_words(formal.words, attribute.value)
            if foreign:
                return f"its {name} is '{foreign[0]}', not one of {', '.join(sorted(formal.words))}"
        elif formal.numbers is not None and attribute.value not in formal.numbers:
            number = attribute.value if name == "keepdims" else types.element_type_name(attribute.value)
            return f"its {name} is {number}, which it may not be"
    for name in facts.required_attributes:
        if name not in attributes:
            return f"it needs the attribute '{name}'"
    return None


def _count_problem(node: ir.Node, facts: _Facts) -> str | None:
    inputs, outputs = node.inputs, node.outputs
    if not facts.minimum_inputs <= len(inputs) <= facts.maximum_inputs:
        return f"it has {len(inputs)} inputs, {_bounds(facts.minimum_inputs, facts.maximum_inputs)}"
    if not facts.minimum_outputs <= len(outputs) <= facts.maximum_outputs:
        return f"it has {len(outputs)} outputs, {_bounds(facts.minimum_outputs, facts.maximum_outputs)}"
    for position in facts.required_inputs:
        if position < len(inputs) and inputs[position] is None:
            return f"it needs its input '{facts.schema.inputs[position].name}'"
    for position in facts.required_outputs:
        if position < len(outputs) and outputs[position].name == "":
            return f"it needs its output '{facts.schema.outputs[position].name}'"
    return None


def _bounds(least: int, most: float) -> str:
    if least == most:
        return f"not {least}"
    return f"but takes {least} or more" if most == float("inf") else f"but takes {least} to {most}"


def _block_problem(graph: ir.Graph | None, name: str, inputs: int, outputs: int) -> str | None:
    """What is wrong with the number of inputs or outputs of a sub-graph."""
    if graph is None:
        return None
    for word, values, count in (("inputs", graph.inputs, inputs), ("outputs", graph.outputs, outputs)):
        if len(values) != count:
            return f"its {name} has {len(values)} {word}, not {count}"
    return None


def _block(node: ir.Node, name: str) -> ir.Graph | None:
    attribute = node.attributes.get(name)
    return None if attribute is None or attribute.is_ref() else attribute.value


def _if_problem(node: ir.Node) -> str | None:
    count = len(node.outputs)
    return _block_problem(_block(node, "then_branch"), "then_branch", 0, count) or _block_problem(
        _block(node, "else_branch"), "else_branch", 0, count
    )


def _loop_problem(node: ir.Node) -> str | None:
    return _block_problem(_block(node, "body"), "body", max(len(node.inputs), 2), len(node.outputs) + 1)


def _scan_problem(node: ir.Node) -> str | None:
    body = _block(node, "body")
    # Version 8 has the lengths of sequences as its first input, and no axes.
    count = len(node.inputs) - (1 if "directions" in node.attributes else 0)
    is_first_version = "directions" in node.attributes or (node.inputs and node.inputs[0] is None)
    return None if is_first_version else _block_problem(body, "body", count, len(node.outputs))


def _constant_problem(node: ir.Node) -> str | None:
    count = sum(not name.startswith(_INTERNAL) for name in node.attributes.data)
    return None if count == 1 else f"it has {count} attributes, not one with the constant"


def _split_problem(node: ir.Node) -> str | None:
    """From 18 on a Split needs its sizes or the number of its results."""
    has_sizes = len(node.inputs) > 1 and node.inputs[1] is not None
    if has_sizes == ("num_outputs" in node.attributes):
        return "it needs its input 'split' or the attribute 'num_outputs', and not both"
    return None


_RULES = {
    "Constant": _constant_problem,
    "If": _if_problem,
    "Loop": _loop_problem,
    "Scan": _scan_problem,
    "Split": _split_problem,
}
_RULES_SINCE = {"Split": 18}
"""The versions at which rules begin."""
