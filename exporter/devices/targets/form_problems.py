"""Finds nodes that a target refuses or computes wrongly, but supports in another form."""

from __future__ import annotations

from collections.abc import Callable

import onnx_ir as ir
from onnx_ir.passes.common import ShapeInferencePass

from ....passes.realizers.operators.batch_axes import find_batch_axes
from ....passes.realizers.operators.compose_operators import ComposeOperators
from ....passes.realizers.operators.form_matching import rule_matches
from ....registration import MODULE, TargetProblem, default_registry
from ....registration.arguments import every_node
from ....registration.form_rule import STEPS, FormRule
from ....registration.schemas import operator_schema
from .target import Target


def find_form_problems(model: ir.Model, target: Target) -> list[TargetProblem]:
    """Return a problem for each node that matches a rule with an outcome; the model is not changed.

    A node that the form refuses is not a problem, because a rule may match nodes that need no other form.
    Rules with `always` are part of `target_problems.find_problems`.

    Args:
        model: a valid model.
    """
    operators = {node.op_type for node in every_node(model.graph) if not node.domain}
    rules = [rule for rule in target.forms if rule.operator in operators and not rule.always]
    if not any(rule.outcome for rule in rules):
        return []
    # Imported here: only rules with an outcome need the symbolic functions.
    from .... import symbolics  # noqa: F401

    # Files of other exporters may lack the shapes that conditions read.
    inferred = ShapeInferencePass()(model.clone()).model
    problems: dict[ir.Node, TargetProblem] = {}
    # A conversion uses the first rule that matches a node, with an outcome or without.
    first_forms: dict[ir.Node, str] = {}
    for rule in rules:
        for node in _nodes_of_rule(inferred, target, rule):
            form = first_forms.setdefault(node, rule.form)
            if not rule.outcome:
                continue
            effect = "its results are wrong" if rule.outcome == "wrong" else "it is refused in this form"
            reason = f"{effect}; `opsetta convert --target` writes the form '{form}'"
            module = node.metadata_props.get(MODULE, "")
            problem = TargetProblem(reason, node.name or "", node.op_type, module, rule.outcome)
            problems.setdefault(node, problem)
    return list(problems.values())


def _nodes_of_rule(model: ir.Model, target: Target, rule: FormRule) -> list[ir.Node]:
    """Return the nodes that a rule matches and its form can replace."""
    matches = _matcher(model, target, rule)
    nodes = [node for node in every_node(model.graph) if matches(node)]
    if not nodes or rule.form == STEPS:
        return nodes
    rewritten = model.clone()
    copies = [node for node in every_node(rewritten.graph) if _matcher(rewritten, target, rule)(node)]
    compose = ComposeOperators(
        target.operators.__contains__, default_registry, [rule], replaces_refused=False,
        batch_operators=target.batch_operators,
    )  # fmt: skip
    compose(rewritten)
    # The pass removes replaced nodes from their graphs.
    return [node for node, copy in zip(nodes, copies, strict=True) if copy.graph is None]


def _matcher(model: ir.Model, target: Target, rule: FormRule) -> Callable[[ir.Node], bool]:
    batch_axes = find_batch_axes(model.graph, target.batch_operators) if rule.splits_batch else {}
    schema = operator_schema(rule.operator, model.graph.opset_imports.get("", 0))

    def matches(node: ir.Node) -> bool:
        is_of_rule = node.op_type == rule.operator and not node.domain
        return is_of_rule and schema is not None and rule_matches(rule, node, schema, batch_axes)

    return matches
