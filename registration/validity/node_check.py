"""Checks the nodes of an ONNX model against the schemas of their operators.

1. The operator exists at the opset that the model, or the function with the node, imports.
2. Its attributes exist, have the types of the schema, and the words and element types that the text allows;
   required ones are there.
3. The numbers of inputs and outputs are those of the schema, and required ones are not omitted.
4. Element types are those that the schema allows, and those of one type variable are equal.
5. Ranks and axes, where they are known, are within those of `ranks`, sizes those of `sizes`, and numbers
   not below those of `numbers`.
6. Sub-graphs have the numbers of inputs and outputs that their operator requires.

Nodes of domains without schemas and calls of the model's functions are not checked. The facts about an
operator version are gathered once. Of nodes that are equal in all that is checked, only the first is checked.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Collection, Iterator, Mapping

import onnx
import onnx_ir as ir
from onnx_ir import AttributeType

from ..arguments import blocks, every_node
from ..attribute_words import foreign_words, words_of
from ..errors import InvalidNode, InvalidNodesError
from ..inference.constant_integers import integers
from ..metadata import MODULE
from ..schemas import OperatorSchema, operator_schema, operator_schemas
from . import numbers, ranks, sizes, types
from .operands import Dims, sizes_of

_INTERNAL = "__"
"""The prefix of attributes that onnx's checker ignores."""


@dataclasses.dataclass(frozen=True)
class _Attribute:
    """The values that a version of an operator allows for an attribute; None means no restriction."""

    type: AttributeType
    words: frozenset[str] | None
    numbers: frozenset[int] | None
    least: int | None


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
    has_size_rule: bool
    has_own_rule: bool
    reads_more: bool
    """Whether a rule reads more than the signature of a node: contents of constants or sub-graphs."""
    reads_sizes: bool
    """Whether a rule reads the sizes of inputs, which the signature then contains."""
    axes_position: int | None
    """The position of an input whose contents a rule reads."""


_LISTS = frozenset({AttributeType.INTS, AttributeType.STRINGS})
_COMPARED = frozenset({AttributeType.INT, AttributeType.STRING, *_LISTS})
"""The types of the attributes whose values are checked."""


@functools.cache
def _schema_domains() -> frozenset[str]:
    return frozenset(schema.domain for schema in onnx.defs.get_all_schemas())


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
                None if domain else numbers.least_number(op_type, name),
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
        domain == "" and op_type in sizes.RULES,
        domain == "" and op_type in _RULES and schema.since_version >= _RULES_SINCE.get(op_type, 1),
        domain == "" and (op_type in _READ_MORE or op_type in sizes.READ_CONTENTS),
        domain == "" and (op_type in sizes.RULES or ranks.reads_sizes(schema)),
        ranks.position_of_axes(schema) if domain == "" else None,
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
    check = _Check(model.functions)
    problems = list(check.graph(model.graph, model.graph.opset_imports))
    for function in model.functions.values():
        problems += check.graph(function.graph, function.opset_imports)
    return problems


def check_structure(graph: ir.Graph) -> None:
    """Check what a reader of attributes and inputs relies on: types of attributes, what is required, counts.

    For analyses of files, which need not be valid otherwise. Sub-graphs are checked too.

    Raises:
        InvalidNodesError: lists the nodes of ONNX operators that are not so.
    """
    invalid = []
    opsets = graph.opset_imports
    for node in every_node(graph):
        domain = "" if node.domain == "ai.onnx" else node.domain
        facts = _facts(node.op_type, opsets.get(domain, opsets.get(node.domain, 0)), domain)
        reason = None if facts is None else _structure_problem(node, facts)
        if reason is not None:
            invalid.append(_invalid(node, reason, False))
    if invalid:
        raise InvalidNodesError("the file has nodes that are not valid:", invalid)


class _Check:
    """One check of a model, which does not change meanwhile.

    Args:
        functions: the functions of the model.
    """

    def __init__(self, functions: Mapping[ir.OperatorIdentifier, ir.Function]):
        self._functions = functions
        self._describe = _Descriptions().__getitem__
        self._read_sizes = _Sizes().__getitem__
        self._read_axes = _Contents().__getitem__
        self._valid: set[tuple[object, ...]] = set()

    def graph(self, graph: ir.Graph, imports: Mapping[str, int]) -> Iterator[InvalidNode]:
        """The invalid nodes of a graph and of the graphs inside it."""
        functions = self._functions
        standard = imports.get("", imports.get("ai.onnx"))
        # A stack instead of recursion, because files may nest graphs deeply.
        stack = [iter(graph)]
        while stack:
            for node in stack[-1]:
                domain = node.domain
                attributes = node.attributes.data
                if functions and node.op_identifier() in functions:
                    problem = None
                elif domain in ("", "ai.onnx"):
                    problem = None if standard is None else self._problem(node, attributes, standard, "")
                elif domain in _schema_domains() and domain in imports:
                    problem = self._problem(node, attributes, imports[domain], domain)
                else:
                    problem = None
                if problem is not None:
                    yield _invalid(node, *problem)
                inner = blocks(node) if attributes else ()
                if inner:
                    stack += [iter(block) for block in reversed(inner)]
                    break
            else:
                stack.pop()

    def _problem(
        self, node: ir.Node, attributes: Mapping[str, ir.Attr], opset: int, domain: str
    ) -> tuple[str, bool] | None:
        """What is wrong with a node, and whether it is that the opset does not have the operator."""
        op_type = node.op_type
        facts = _facts(op_type, opset, domain)
        if facts is None:
            return _absence(op_type, opset, domain), True
        if facts.reads_more:
            return _node_problem(node, facts, opset)
        inputs = node.inputs
        described: tuple[object, ...] = (*map(self._describe, inputs),), (*map(self._describe, node.outputs),)
        if facts.reads_sizes:
            described = *described, *map(self._read_sizes, inputs)
        if facts.axes_position is not None:
            described = *described, *map(self._read_axes, inputs[facts.axes_position :][:1])
        # Repeated layers have nodes alike, so most are found valid by one look-up.
        signature = op_type, opset, domain, described, *_attribute_signature(attributes)
        try:
            is_valid = signature in self._valid
        except TypeError:
            # The value of an attribute is of a wrong type.
            return _node_problem(node, facts, opset)
        if is_valid:
            return None
        problem = _node_problem(node, facts, opset)
        if problem is None:
            # Only valid nodes are remembered: the message about an invalid one has its name.
            self._valid.add(signature)
        return problem


class _Descriptions(dict[ir.Value | None, tuple[object, ...]]):
    """All that is checked of values: the element type, the rank, and whether it is an omitted output."""

    def __missing__(self, value: ir.Value | None) -> tuple[object, ...]:
        if value is None:
            description: tuple[object, ...] = ()
        else:
            form, shape = value.type, value.shape
            dtype = form.dtype if type(form) is ir.TensorType else None
            description = dtype, None if shape is None else len(shape), value.name == ""
        self[value] = description
        return description


class _Sizes(dict[ir.Value | None, Dims | None]):
    """The sizes of values that are known."""

    def __missing__(self, value: ir.Value | None) -> Dims | None:
        dimensions = self[value] = sizes_of(value)
        return dimensions


class _Contents(dict[ir.Value | None, tuple[int, ...] | None]):
    """The integers of values that are small constants; None for others."""

    def __missing__(self, value: ir.Value | None) -> tuple[int, ...] | None:
        numbers = integers(value)
        contents = self[value] = None if numbers is None else tuple(numbers)
        return contents


def _attribute_signature(attributes: Mapping[str, ir.Attr]) -> tuple[object, ...]:
    """All that is checked of attributes: their names, types, and the values of some types."""
    signature: list[object] = [*attributes]
    for attribute in attributes.values() if attributes else ():
        form, reference = attribute.type, attribute.ref_attr_name
        # Values of FLOATs and tensors are not checked, and comparing them would take long.
        value = attribute.value if reference is None and form in _COMPARED else None
        signature += form, reference, tuple(value) if form in _LISTS and value is not None else value
    return tuple(signature)


def _invalid(node: ir.Node, reason: str, is_unknown: bool) -> InvalidNode:
    result = next((value.name for value in node.outputs if value.name), "")
    operator = node.op_type if node.domain in ("", "ai.onnx") else f"{node.domain}::{node.op_type}"
    return InvalidNode(
        reason, node.name or "", result, operator, node.metadata_props.get(MODULE, ""), is_unknown
    )


def _node_problem(node: ir.Node, facts: _Facts, opset: int) -> tuple[str, bool] | None:
    reason = (
        _attribute_problem(node, facts)
        or _count_problem(node, facts)
        or types.type_problem(node, facts.schema)
        or (ranks.rank_problem(node, facts.schema) if facts.has_rank_rule else None)
        or (sizes.size_problem(node, facts.schema) if facts.has_size_rule else None)
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
    for name, attribute in node.attributes.data.items():
        formal = facts.attributes.get(name)
        if formal is None:
            if name.startswith(_INTERNAL):
                continue
            return f"it has no attribute '{name}'{_other_versions(facts.schema, name)}"
        if attribute.type != formal.type:
            return _type_problem(name, attribute.type, formal.type)
        if attribute.ref_attr_name is not None:
            continue
        if formal.words is not None:
            foreign = foreign_words(formal.words, attribute.value)
            if foreign:
                return f"its {name} is '{foreign[0]}', not one of {', '.join(sorted(formal.words))}"
        elif formal.numbers is not None and attribute.value not in formal.numbers:
            number = attribute.value if name == "keepdims" else types.element_type_name(attribute.value)
            return f"its {name} is {number}, which it may not be"
        elif formal.least is not None and numbers.is_below(attribute.value, formal.least):
            return f"its {name} must be {formal.least} or more, not {attribute.value}"
    return _missing_attribute(node, facts)


def _type_problem(name: str, actual: ir.AttributeType, formal: ir.AttributeType) -> str:
    return f"its attribute '{name}' is of type {actual.name}, not {formal.name}"


def _missing_attribute(node: ir.Node, facts: _Facts) -> str | None:
    missing = next((name for name in facts.required_attributes if name not in node.attributes), None)
    return None if missing is None else f"it needs the attribute '{missing}'"


def _structure_problem(node: ir.Node, facts: _Facts) -> str | None:
    for name, attribute in node.attributes.data.items():
        formal = facts.attributes.get(name)
        if formal is not None and attribute.type != formal.type:
            return _type_problem(name, attribute.type, formal.type)
    return _missing_attribute(node, facts) or _count_problem(node, facts)


def _count_problem(node: ir.Node, facts: _Facts) -> str | None:
    inputs, outputs = node.inputs, node.outputs
    if not facts.minimum_inputs <= len(inputs) <= facts.maximum_inputs:
        bounds = _bounds(facts.minimum_inputs, facts.maximum_inputs)
        return f"it has {_count(len(inputs), 'input')}, {bounds}"
    if not facts.minimum_outputs <= len(outputs) <= facts.maximum_outputs:
        bounds = _bounds(facts.minimum_outputs, facts.maximum_outputs)
        return f"it has {_count(len(outputs), 'output')}, {bounds}"
    for position in facts.required_inputs:
        if position < len(inputs) and inputs[position] is None:
            return f"it needs its input '{facts.schema.inputs[position].name}'"
    for position in facts.required_outputs:
        if position < len(outputs) and outputs[position].name == "":
            return f"it needs its output '{facts.schema.outputs[position].name}'"
    return None


def _other_versions(schema: OperatorSchema, attribute: str) -> str:
    """At which other opsets an operator has an attribute: tools may declare a wrong opset."""
    versions = operator_schemas(schema.name, schema.domain)
    later = [v.since_version for v in versions if v.since_version > schema.since_version]
    with_it = [v.since_version for v in versions if attribute in v.attributes]
    first_with = next((version for version in later if version in with_it), None)
    if first_with is not None:
        return f" (it has one from opset {first_with} on)"
    if not with_it:
        return ""
    ended = next(v.since_version for v in versions if v.since_version > max(with_it))
    return f" (it had one before opset {ended})"


def _count(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _bounds(least: int, most: float) -> str:
    if least == most:
        return f"not {least}"
    return f"but takes {least} or more" if most == float("inf") else f"but takes {least} to {most}"


def _block_problem(graph: ir.Graph | None, name: str, inputs: int, outputs: int) -> str | None:
    """What is wrong with the number of inputs or outputs of a sub-graph."""
    if graph is None:
        return None
    for word, values, count in (("input", graph.inputs, inputs), ("output", graph.outputs, outputs)):
        if len(values) != count:
            return f"its {name} has {_count(len(values), word)}, not {count}"
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
    scanned = node.attributes.get("num_scan_inputs")
    if scanned is not None and not scanned.is_ref() and not 1 <= scanned.value <= len(node.inputs):
        return f"its num_scan_inputs is {scanned.value}, and it has {_count(len(node.inputs), 'input')}"
    return None if is_first_version else _block_problem(body, "body", count, len(node.outputs))


def _constant_problem(node: ir.Node) -> str | None:
    count = sum(not name.startswith(_INTERNAL) for name in node.attributes.data)
    return None if count == 1 else f"it has {count} attributes, not one with the constant"


def _split_problem(node: ir.Node) -> str | None:
    """From 18 on a Split needs its sizes or the number of its results."""
    has_sizes = len(node.inputs) > 1 and node.inputs[1] is not None
    if has_sizes == ("num_outputs" in node.attributes):
        return "it needs its input 'split' or the attribute 'num_outputs', and not both"
    count = node.attributes.get("num_outputs")
    if count is not None and not count.is_ref() and count.value != len(node.outputs):
        return f"its num_outputs is {count.value}, and it has {len(node.outputs)} outputs"
    return None


_RULES = {
    "Constant": _constant_problem,
    "If": _if_problem,
    "Loop": _loop_problem,
    "Scan": _scan_problem,
    "Split": _split_problem,
}
_READ_MORE = frozenset({"Constant", "If", "Loop", "Scan"})
"""The operators of which these rules read more than the signature of a node."""
_RULES_SINCE = {"Split": 18}
"""The versions at which rules begin."""
