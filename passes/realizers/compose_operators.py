"""Replaces operators that a target does not support by compositions of operators that it supports.

1. A node that a rule of the target matches gets the form that the rule names.
2. An operator that is not supported gets the composition of the version ladder: one that replaces an operator
   at opsets without it, such as IsNaN before opset 9, is valid at later opsets too.
3. A node stays if its form refuses it, if it has no composition, if the form or the composition needs an
   operator that the target does not support, or if the operator means something else at this opset than at
   the newest one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any

import onnx_ir as ir

from ...registration import Registry, UnsupportedError
from ...registration.emission.ladder import compose
from ...registration.form_rule import COMPOSITION, FormRule, form_name
from ...registration.functions.dispatch import SymbolicFunction
from ...registration.opsets import MINIMUM_OPSET
from ...registration.schemas import OperatorSchema, inputs_by_name
from ..onnx_graph.node_pass import NodePass
from .form_matching import rule_matches
from .rewriting import Rewriter


class ComposeOperators(NodePass):
    """Replaces nodes that the target does not support, or supports in another form only."""

    def __init__(
        self,
        is_taken: Callable[[str], bool],
        registry: Registry,
        rules: Iterable[FormRule] = (),
        replaced: Collection[str] = (),
    ):
        """Make the pass.

        Args:
            is_taken: whether the consumer takes an operator.
            registry: has the version ladder and the forms.
            rules: the forms that the consumer requires; the first that matches a node applies.
            replaced: operators that a further pass may replace.
        """
        super().__init__()
        self._is_taken = is_taken
        self._replaced = replaced
        self._rules: dict[str, list[FormRule]] = defaultdict(list)
        for rule in rules:
            self._rules[rule.operator].append(rule)
        self._registry = registry
        self._model: ir.Model | None = None
        self._rewriter: Rewriter | None = None

    def begin(self, model: ir.Model) -> bool:
        """Keep the model, for which a rewriter is made when a node needs it."""
        self._model, self._rewriter = model, None
        return True

    def rewrite(self, node: ir.Node) -> bool:
        """Replace a node by the first of its forms of which all operators are taken."""
        is_taken, rules = self._is_taken(node.op_type), self._rules.get(node.op_type, ())
        schema = self.schema(node.op_type) if rules or not is_taken else None
        if schema is None or self._model is None:
            return False
        return any(
            self._write(node, schema, symbolic) for symbolic in self._forms(node, schema, rules, is_taken)
        )

    def _forms(
        self, node: ir.Node, schema: OperatorSchema, rules: Iterable[FormRule], is_taken: bool
    ) -> Iterator[SymbolicFunction]:
        """The functions that may replace a node, the preferred one first."""
        for rule in rules:
            if rule_matches(rule, node, schema):
                if rule.form == COMPOSITION:
                    symbolic = self._composition(node.op_type)
                else:
                    symbolic = self._registry.lookup(form_name(node.op_type, rule.form), "", self.opset)
                if symbolic is not None:
                    yield symbolic
        if not is_taken:
            symbolic = self._composition(node.op_type)
            if symbolic is not None:
                yield symbolic

    def _write(self, node: ir.Node, schema: OperatorSchema, symbolic: SymbolicFunction) -> bool:
        """Replace a node by a form, unless the form refuses it or needs an operator that is not taken."""
        assert self._model is not None
        arguments = self._arguments(node, schema, symbolic)
        shape = node.outputs[0].shape
        if "result_shape" in symbolic.parameters and shape is not None and shape.is_static():
            arguments["result_shape"] = list(shape.numpy())
        if self._rewriter is None:
            self._rewriter = Rewriter(self._model, self._registry)
        try:
            with self._rewriter.before(node) as g:
                results = compose(g, symbolic, node.op_type, (), arguments, len(node.outputs))
                emitted = {new_node.op_type for new_node in g.construction.graph}
                lacking = {
                    name for name in emitted if not self._is_taken(name) and name not in self._replaced
                }
                if lacking:
                    raise UnsupportedError(
                        f"its composition needs {', '.join(sorted(lacking))}, which the target lacks"
                    )
        except UnsupportedError:
            # The check of the target names the operator.
            return False
        self._rewriter.replace(node, results)
        return True

    def _composition(self, op_type: str) -> SymbolicFunction | None:
        """The function that replaces an operator in this opset, or in opsets that lack it."""
        if self._registry.rung(op_type, self.opset) is not None:
            return None
        name = f"onnx::{op_type}"
        function = self._registry.lookup(name, "", self.opset)
        return function if function is not None else self._registry.lookup(name, "", MINIMUM_OPSET)

    def _arguments(self, node: ir.Node, schema: OperatorSchema, symbolic: SymbolicFunction) -> dict[str, Any]:
        """The inputs and attributes of a node by name; defaults are those of the node's own version."""
        arguments: dict[str, Any] = {
            name: value
            for name, value in self._registry.implied_values(node.op_type).items()
            if schema.find_argument(name) == (None, None)
        }
        for attribute in schema.attributes.values():
            if attribute.default is not None and attribute.name in symbolic.parameters:
                arguments[attribute.name] = attribute.default
        arguments.update({name: attribute.value for name, attribute in node.attributes.items()})
        return {**arguments, **inputs_by_name(schema, node.inputs)}
