"""Finds everything in a model that a target does not support."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence

import onnx_ir as ir

from ....passes.realizers.operators.batch_axes import find_batch_axes, sizes_along_batch
from ....passes.realizers.operators.form_matching import list_other_attributes, rule_matches
from ....registration import MODULE, InvalidNode, TargetError, TargetProblem
from ....registration.arguments import every_node, walk_graphs
from ....registration.form_rule import FormRule
from ....registration.inference.constant_integers import argument
from ....registration.schemas import OperatorSchema, operator_schema
from ....registration.validity.node_check import invalid_nodes
from ....registration.warning import warn
from ...lowering.conversion.file_nodes.foreign_operators import LAYOUT_DOMAIN, LAYOUT_REMEDY
from .target import Restriction, Target

_MOST_LISTED = 20
_STANDARD = ("", "ai.onnx")
INEXACT = "inexact"
"""The outcome that is only a warning: results are right for most numbers."""
_RECURRENT = {"GRU": 2, "LSTM": 3, "RNN": 2}
_CONVENTIONAL = ("Constant", "Pow", *_RECURRENT)
"""Operators whose nodes conventions may concern, besides the operators of `explicit_attributes`."""


@dataclasses.dataclass(frozen=True)
class ModelParts:
    """The weights and nodes of a model with their positions, in groups that are checked only once.

    Attributes:
        weights: the initializers with contents, by element type.
        weight_bytes: the bytes of these weights.
        external_names: the names of the weights in files beside the model.
        nodes: the nodes, by (domain, operator, element types of the results that are not outputs).
    """

    weights: Mapping[ir.DataType, Sequence[tuple[int, ir.Value]]]
    weight_bytes: int
    external_names: Sequence[str]
    nodes: Mapping[tuple[str, str, tuple[ir.DataType, ...]], Sequence[tuple[int, ir.Node]]]

    @classmethod
    def of(cls, model: ir.Model) -> ModelParts:
        """Collect the parts of a model."""
        nodes: dict[tuple[str, str, tuple[ir.DataType, ...]], list[tuple[int, ir.Node]]] = {}
        all_nodes, graphs = walk_graphs(model.graph)
        for position, node in enumerate(all_nodes):
            inner_types = dict.fromkeys(
                value.dtype
                for value in node.outputs
                if value.dtype is not None and not value.is_graph_output()
            )
            nodes.setdefault((node.domain, node.op_type, tuple(inner_types)), []).append((position, node))
        weights: dict[ir.DataType, list[tuple[int, ir.Value]]] = {}
        weight_bytes, external_names = 0, []
        values = (value for graph in graphs for value in graph.initializers.values())
        for position, value in enumerate(values):
            tensor = value.const_value
            if tensor is not None:
                weights.setdefault(tensor.dtype, []).append((position, value))
                weight_bytes += tensor.nbytes
                if isinstance(tensor, ir.ExternalTensor):
                    external_names.append(value.name or "")
        return cls(weights, weight_bytes, external_names, nodes)


def check_model(
    model: ir.Model,
    target: Target,
    *,
    is_file: bool = False,
    refused_forms: Mapping[str, Mapping[str, str]] | None = None,
) -> None:
    """Check a model against a target, and warn about nodes that do not run on its accelerator.

    Args:
        is_file: see `find_problems`.
        refused_forms: by operator, the equivalent forms that were tried, and why they were not written.

    Raises:
        TargetError: the target does not support the model and is not forced; lists all problems.
    """
    problems = [
        _with_forms(problem, (refused_forms or {}).get(problem.operator, {}))
        for problem in find_problems(model, target, is_file=is_file)
    ]
    if problems and target.is_forced:
        warn(f"written for target '{target.name}' in spite of\n{list_problems(problems)}")
    elif problems:
        many = f"{len(problems)} things" if len(problems) > 1 else "one thing"
        raise TargetError(
            target.name,
            f"target '{target.name}' ({target.title}) does not support {many} of the model:",
            problems,
        )
    host_nodes = nodes_on_host(model, target)
    if host_nodes:
        warn(
            f"target '{target.name}' runs on the CPU instead of the accelerator (nodes: {len(host_nodes)}):\n"
            f"{list_problems(host_nodes)}"
        )


def _with_forms(problem: TargetProblem, refused_forms: Mapping[str, str]) -> TargetProblem:
    if not refused_forms:
        return problem
    forms = ", ".join(f"{name} ({reason})" for name, reason in refused_forms.items())
    return dataclasses.replace(problem, reason=f"{problem.reason}; other forms were tried: {forms}")


def list_problems(problems: Sequence[TargetProblem]) -> str:
    """Return a line for each of the first problems, and a line that counts the others."""
    lines = [f"  - {problem}" for problem in problems[:_MOST_LISTED]]
    if len(problems) > _MOST_LISTED:
        lines.append(f"  - and {len(problems) - _MOST_LISTED} more")
    return "\n".join(lines)


def nodes_on_host(model: ir.Model, target: Target) -> list[TargetProblem]:
    """Return the nodes that a target supports, but not on its accelerator."""
    return [
        _of_operator(node, "runs on the CPU")
        for node in every_node(model.graph)
        if node.domain in _STANDARD and target.runs_on_host(node.op_type)
    ]


def find_inexact_nodes(model: ir.Model, target: Target) -> list[TargetProblem]:
    """Return the nodes whose results are right only for finite numbers, or differ by one step."""
    opset = model.graph.opset_imports.get("", model.graph.opset_imports.get("ai.onnx"))
    rules = [rule for rule in target.restrictions if rule.outcome == INEXACT]
    problems = []
    for node in every_node(model.graph):
        if node.domain not in _STANDARD:
            continue
        if node.op_type in target.finite_operators:
            problems.append(_of_operator(node, "is right for finite numbers only", INEXACT))
        problems += [
            _of_operator(node, f"its results may differ by one step: {reason}", INEXACT)
            for rule in rules
            if rule.operator == node.op_type
            for reason in _of_restriction(node, opset, rule)
        ]
    return problems


def _of_operator(node: ir.Node, reason: str, outcome: str = "refused") -> TargetProblem:
    operator = node.op_type if node.domain in _STANDARD else f"{node.domain}::{node.op_type}"
    module = node.metadata_props.get(MODULE, "")
    return TargetProblem(reason, node.name or "", operator, module, outcome)


def find_problems(
    model: ir.Model,
    target: Target,
    *,
    is_file: bool = False,
    invalid: Iterable[InvalidNode] | None = None,
    parts: ModelParts | None = None,
) -> list[TargetProblem]:
    """Return everything in a model that a target does not support; unknown types and sizes are not checked.

    Args:
        is_file: whether the model was read from a file, so that its external data lies in other files.
        invalid: the nodes that are not valid; by default they are searched.
        parts: the parts of the model, to compute them once for several targets.
    """
    parts = ModelParts.of(model) if parts is None else parts
    problems = [*_of_model(model, target), *_of_interface(model.graph, target)]
    problems += _of_weights(parts, target, is_file)
    problems += [
        TargetProblem(f"not valid: {node.reason}", node.node or node.result, node.operator, node.module)
        for node in (invalid_nodes(model) if invalid is None else invalid)
    ]
    opset = model.graph.opset_imports.get("", model.graph.opset_imports.get("ai.onnx"))
    rules: dict[str, list[Restriction]] = {}
    for rule in (rule for rule in target.restrictions if rule.outcome != INEXACT):
        rules.setdefault(rule.operator, []).append(rule)
    conventional = {
        *_CONVENTIONAL,
        *(name.partition(".")[0] for name in target.conventions.explicit_attributes),
    }
    of_nodes: dict[int, list[TargetProblem]] = {}
    for (domain, op_type, types), members in parts.nodes.items():
        is_known, reasons = _of_types(domain, op_type, types, target)
        own_rules = rules.get(op_type, ()) if is_known else ()
        is_conventional = is_known and op_type in conventional
        for position, node in members if reasons or own_rules or is_conventional else ():
            own_reasons = [*reasons, *_of_conventions(node, target)] if is_conventional else reasons
            of_nodes[position] = [_of_operator(node, reason) for reason in own_reasons]
            for rule in own_rules:
                prefix = "its results are wrong: " if rule.outcome == "wrong" else ""
                reasons_of_rule = _of_restriction(node, opset, rule)
                of_nodes[position] += (
                    _of_operator(node, f"{prefix}{reason}", rule.outcome) for reason in reasons_of_rule
                )
    problems += (problem for position in sorted(of_nodes) for problem in of_nodes[position])
    problems += _of_forms(parts, opset, target)
    return [*problems, *_of_dimensions(model.graph, target), *_of_batches(model.graph, target)]


def _of_model(model: ir.Model, target: Target) -> Iterator[TargetProblem]:
    imports = model.graph.opset_imports
    opset = imports.get("", imports.get("ai.onnx"))
    if opset is not None and opset not in target.opsets:
        yield TargetProblem(
            f"opset {opset} is not supported, but {target.opsets}; convert to {target.default_opset}"
        )
    if model.ir_version not in target.ir_versions:
        yield TargetProblem(f"IR version {model.ir_version} is not supported, but {target.ir_versions}")


def _of_forms(parts: ModelParts, opset: int | None, target: Target) -> Iterator[TargetProblem]:
    """The nodes that match a rule with `always`: after a conversion, those that no form could write."""
    rules: dict[str, list[FormRule]] = {}
    for rule in (rule for rule in target.forms if rule.always):
        rules.setdefault(rule.operator, []).append(rule)
    for (domain, op_type, _), members in parts.nodes.items():
        schema = operator_schema(op_type, opset) if opset is not None and op_type in rules else None
        if schema is None or domain not in _STANDARD:
            continue
        for _, node in members:
            for rule in [rule for rule in rules[op_type] if rule_matches(rule, node, schema)][:1]:
                others = list_other_attributes(rule, node, schema)
                names = [*rule.attributes, *others, *rule.present_inputs]
                effect = "its results are wrong" if rule.outcome == "wrong" else "it is refused"
                yield _of_operator(
                    node,
                    f"{effect} ({', '.join(names)}); `opsetta convert --target` writes the form "
                    f"'{rule.form}' if it can",
                    rule.outcome,
                )


def _of_dimensions(graph: ir.Graph, target: Target) -> Iterator[TargetProblem]:
    """The nodes whose results have more dimensions than a target takes beside a first one of size 1."""
    maximum = target.maximum_dimensions
    if maximum is None:
        return
    for node in every_node(graph):
        shapes = [value.shape for value in node.outputs if value.shape is not None]
        counts = [len(shape) - (len(shape) > 0 and shape[0] == 1) for shape in shapes]
        if max(counts, default=0) > maximum:
            yield _of_operator(node, f"a result of {max(counts)} dimensions is not supported, but {maximum}")


def _of_batches(graph: ir.Graph, target: Target) -> Iterator[TargetProblem]:
    """The nodes whose batch a target removes, and computes the first of several elements of it."""
    if not target.batch_operators:
        return
    axes = find_batch_axes(graph, target.batch_operators)
    for node in graph:
        sizes = sizes_along_batch(node, axes)
        # Behind the node that joins several elements to one batch, all nodes have them.
        if sizes - {1} and (1 in sizes or node.op_type in target.batch_operators):
            size = max(sizes)
            reason = f"its results are wrong: the first of {size} elements is computed, as of a batch"
            yield _of_operator(node, reason, "wrong")


def _of_interface(graph: ir.Graph, target: Target) -> Iterator[TargetProblem]:
    for role, values in (("input", graph.inputs), ("output", graph.outputs)):
        for value in values:
            if value.dtype is not None and _name(value.dtype) not in target.types:
                yield TargetProblem(f"{role} '{value.name}' of element type {_name(value.dtype)}")
    for value in graph.inputs if target.read_inputs else ():
        if not value.uses() and not value.is_graph_output():
            yield TargetProblem(f"input '{value.name}' is read by no node")
    for value in graph.outputs if target.computed_outputs else ():
        source = value
        while (node := source.producer()) is not None and node.op_type == "Identity" and node.inputs[0]:
            source = node.inputs[0]
        if source.const_value is not None or (node is not None and node.op_type == "Constant"):
            yield TargetProblem(f"output '{value.name}' is a constant")
    for value in graph.inputs if target.static_shapes else ():
        if value.const_value is not None:
            continue
        if value.shape is None:
            yield TargetProblem(
                f"input '{value.name}' of unknown shape: set it with --input-shape {value.name}=1,3,224,224 "
                "or lower(shapes=…)"
            )
            continue
        varying = [f"{axis} ({size})" for axis, size in enumerate(value.shape) if not isinstance(size, int)]
        if varying:
            yield TargetProblem(
                f"input '{value.name}' has dynamic dimensions, {', '.join(varying)}: {_size_option(value)}"
            )


def _size_option(value: ir.Value) -> str:
    """Return the option of `opsetta convert` that sets the sizes of an input."""
    names = [size.value for size in value.shape or () if not isinstance(size, int)]
    if None not in names and all(str(name).isidentifier() for name in names):
        # The first dimension is a batch in most models, so 1; only the user knows the other sizes.
        options = " ".join(f"--dim {name}={'…' if n else 1}" for n, name in enumerate(dict.fromkeys(names)))
        return f"set sizes, such as {options} or lower(dims=…)"
    sizes = ",".join(str(size) if isinstance(size, int) else "…" for size in value.shape or ())
    return f"set sizes, such as --input-shape {value.name}={sizes} or lower(shapes=…)"


def _of_weights(parts: ModelParts, target: Target, is_file: bool) -> Iterator[TargetProblem]:
    refused: dict[int, TargetProblem] = {}
    for dtype, members in parts.weights.items():
        is_refused = _name(dtype) not in target.types
        is_bool = dtype == ir.DataType.BOOL and target.conventions.bool_constants is not None
        for position, value in members if is_refused or is_bool else ():
            if is_refused and not value.is_graph_input():
                refused[position] = TargetProblem(
                    f"initializer '{value.name}' of element type {_name(dtype)}"
                )
            elif is_bool:
                refused[position] = TargetProblem(
                    f"initializer '{value.name}' of bools: `opsetta convert --target` stores them otherwise, "
                    "from opset 9 on"
                )
    yield from (refused[position] for position in sorted(refused))
    size, external = parts.weight_bytes, parts.external_names
    if target.maximum_bytes is not None and size > target.maximum_bytes:
        yield TargetProblem(f"weights of {size} bytes are not supported, but up to {target.maximum_bytes}")
    if is_file and external and not target.external_data:
        yield TargetProblem(f"external data, of '{external[0]}' and {len(external) - 1} more")


def _of_types(
    domain: str, op_type: str, types: Iterable[ir.DataType], target: Target
) -> tuple[bool, list[str]]:
    """Return whether a target supports an operator, and the unsupported types, as ends of messages."""
    if domain not in _STANDARD:
        remedy = f"; {LAYOUT_REMEDY}" * (domain == LAYOUT_DOMAIN)
        return False, [] if domain in target.domains else [f"its domain is not supported{remedy}"]
    if op_type not in target.operators:
        return False, ["the operator is not supported"]
    names = map(_name, types)
    return True, [
        f"a result of element type {name} is not supported" for name in names if name not in target.types
    ]


def _of_restriction(node: ir.Node, opset: int | None, rule: Restriction) -> Iterator[str]:
    if rule == Restriction(rule.operator, outcome=rule.outcome):
        yield "no form of the operator is right"
    schema = operator_schema(node.op_type, opset) if opset is not None else None
    ranked_names = rule.ranked_inputs
    for data in _named_inputs(node, schema, ranked_names) if ranked_names else node.inputs[:1]:
        if data is not None and data.shape is not None and data.shape.rank() not in rule.ranks:
            yield f"data of rank {data.shape.rank()} are not supported, but of rank {rule.ranks}"
    if opset is not None and opset not in rule.opsets:
        yield f"the operator is supported at opset {rule.opsets}, not at {opset}"
    if rule.attribute is not None:
        attribute = node.attributes.get(rule.attribute)
        default = schema.attributes.get(rule.attribute) if schema is not None else None
        value = attribute.value if attribute is not None else default.default if default is not None else None
        supported = [[*item] if isinstance(item, tuple) else item for item in rule.values]
        value = [*value] if isinstance(value, (list, tuple)) else value
        if value is not None and value not in supported:
            listed = ", ".join(map(repr, supported))
            yield f"{rule.attribute}={value!r} is not supported, but {listed}"
    if rule.outputs is not None and any(
        value.name and (value.uses() or value.is_graph_output()) for value in node.outputs[rule.outputs :]
    ):
        yield f"its output {rule.outputs} is used, and {rule.outputs} at most are supported"
    values = _named_inputs(node, schema, rule.constant_inputs)
    for name, value in zip(rule.constant_inputs, values, strict=True):
        if value is not None and not _is_constant(value):
            yield f"its input {name}, '{value.name}', must be a constant"
    values = _named_inputs(node, schema, rule.even_inputs)
    for name, value in zip(rule.even_inputs, values, strict=True):
        if value is not None and value.const_value is not None and (value.const_value.numpy() & 1).any():
            yield f"its input {name}, '{value.name}', has odd elements"


def _named_inputs(
    node: ir.Node, schema: OperatorSchema | None, names: Sequence[str]
) -> list[ir.Value | None]:
    """Return the inputs of a node by their names in the operator's schema; None for missing ones."""
    positions = [schema.input_index.get(name) if schema is not None else None for name in names]
    return [
        node.inputs[position] if position is not None and position < len(node.inputs) else None
        for position in positions
    ]


def _of_conventions(node: ir.Node, target: Target) -> Iterator[str]:
    conventions = target.conventions
    if node.op_type == "Constant":
        if conventions.constants == "initializers":
            yield "constants must be initializers: `opsetta convert --target` writes them so from opset 9 on"
        constant = node.attributes.get("value")
        # `check` also reads invalid files, in which attributes may have wrong types.
        is_bool = (
            constant is not None
            and constant.type == ir.AttributeType.TENSOR
            and constant.value.dtype == ir.DataType.BOOL
        )
        if is_bool and conventions.bool_constants is not None:
            yield "a constant of bools: `opsetta convert --target` stores it otherwise from opset 9 on"
    if conventions.float_exponents and node.op_type == "Pow":
        dtypes = [value.dtype for value in node.inputs if value is not None and value.dtype is not None]
        if len(dtypes) == 2 and dtypes[0] != dtypes[1]:
            yield f"the exponent is of {_name(dtypes[1])} and the base of {_name(dtypes[0])}"
    for name in conventions.explicit_attributes:
        operator, _, attribute = name.partition(".")
        if operator != node.op_type or attribute in node.attributes:
            continue
        opset = node.graph.opset_imports.get("") if node.graph is not None else None
        schema = operator_schema(operator, opset) if opset is not None else None
        # Resize of opset 10 has no coordinates to write.
        if schema is None or attribute in schema.attributes:
            yield f"its attribute {attribute} must be written: `opsetta convert --target` does"
    if conventions.recurrent_outputs == "all" and len(node.outputs) < _RECURRENT.get(node.op_type, 0):
        yield "all of its outputs must be there: `opsetta convert --target` adds them"
    if conventions.recurrent_sequences is not None and node.op_type in _RECURRENT:
        yield from _of_sequence(node)


def _of_sequence(node: ir.Node) -> Iterator[str]:
    """Why a consumer that finds recurrent layers by a Squeeze of their sequence does not find this one."""
    readers = [reader for reader, _ in node.outputs[0].uses()]
    remedy = "`opsetta convert --target` writes a Squeeze"
    if not readers and not node.outputs[0].is_graph_output():
        yield f"nothing reads its sequence: {remedy} for layers of one direction"
    elif node.attributes.get_string("direction", "forward") != "bidirectional":
        squeezes = [
            reader for reader in readers if reader.op_type == "Squeeze" and argument(reader, "axes", 1) == [1]
        ]
        if len(squeezes) != 1 or len(readers) > 1:
            yield f"something else than one Squeeze reads its sequence: {remedy}"


def _is_constant(value: ir.Value) -> bool:
    if value.const_value is not None:
        return not value.is_graph_input()
    producer = value.producer()
    return producer is not None and producer.op_type == "Constant" and producer.domain in _STANDARD


def _name(dtype: ir.DataType) -> str:
    return dtype.name.lower()
