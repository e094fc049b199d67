"""Replaces operators that a target does not support by compositions of operators that it supports.

1. A node that a rule of the target matches gets the form that the rule names.
2. An operator that is not supported gets the composition of the version ladder: one that replaces an operator
   at opsets without it, such as IsNaN before opset 9, is valid at later opsets too. Otherwise it gets one of
   its equivalent forms (`symbolics/onnx/forms`), which are tried in the order of their names.
3. A node stays if each of these refuses it, or needs an operator that the target does not support. The ladder
   is not used if the operator means something else at this opset than at the newest one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any

import onnx_ir as ir

from ....registration import Registry, UnsupportedError
from ....registration.emission.ladder import compose
from ....registration.form_rule import COMPOSITION, FormRule
from ....registration.functions.dispatch import SymbolicFunction
from ....registration.functions.forms import find_form, form_names
from ....registration.opsets import MINIMUM_OPSET
from ....registration.schemas import OperatorSchema, inputs_by_name
from ...onnx_graph.node_pass import NodePass
from ..rewriting import Rewriter
from .batch_axes import find_batch_axes
from .form_matching import rule_matches


class ComposeOperators(NodePass):
    """Replaces nodes that the target does not support, or supports in another form only."""

    def __init__(
        self,
        is_taken: Callable[[str], bool],
        registry: Registry,
        rules: Iterable[FormRule] = (),
        replaced: Collection[str] = (),
        replaces_refused: bool = True,
        emission: Registry | None = None,
        batch_operators: Collection[str] = (),
    ):
        """Make the pass.

        Args:
            is_taken: whether the consumer takes an operator.
            registry: has the version ladder and the forms.
            rules: the forms that the consumer requires; the first that matches and can write a node applies.
            replaced: operators that a further pass may replace.
            replaces_refused: whether operators that are not taken get forms that no rule names.
            emission: emits the operators of forms; by default `registry`.
            batch_operators: the operators whose data have a batch that the consumer removes.
        """
        super().__init__()
        self._is_taken = is_taken
        self._replaced = replaced
        self._rules: dict[str, list[FormRule]] = defaultdict(list)
        for rule in rules:
            self._rules[rule.operator].append(rule)
        self._replaces_refused = replaces_refused
        self._registry = registry
        self._emission = emission or registry
        self._names_of_forms: dict[str, list[str]] = {}
        self.refusals: dict[str, dict[str, str]] = {}
        """Why forms were not written, by operator and form."""
        self._batch_operators = batch_operators
        self._batch_axes: Mapping[ir.Value, int] = {}
        self._model: ir.Model | None = None
        self._rewriter: Rewriter | None = None

    def begin(self, model: ir.Model) -> bool:
        """Keep the model, for which a rewriter is made when a node needs it."""
        self._model, self._rewriter = model, None
        self._batch_axes = find_batch_axes(model.graph, self._batch_operators)
        return True

    def rewrite(self, node: ir.Node) -> bool:
        """Replace a node by the first of its forms of which all operators are taken."""
        rules = self._rules.get(node.op_type, ())
        is_replaced = self._replaces_refused and not self._is_taken(node.op_type)
        schema = self.schema(node.op_type) if rules or is_replaced else None
        if schema is None or self._model is None:
            return False
        return any(
            self._write(node, schema, form, symbolic)
            for form, symbolic in self._forms(node, schema, rules, is_replaced)
        )

    def _forms(
        self, node: ir.Node, schema: OperatorSchema, rules: Iterable[FormRule], is_replaced: bool
    ) -> Iterator[tuple[str, SymbolicFunction]]:
        """The forms that may replace a node by their names, the preferred one first."""
        names = [rule.form for rule in rules if rule_matches(rule, node, schema, self._batch_axes)]
        if is_replaced:
            if node.op_type not in self._names_of_forms:
                self._names_of_forms[node.op_type] = form_names(self._registry, node.op_type)
            names = [*names, COMPOSITION, *self._names_of_forms[node.op_type]]
        for name in dict.fromkeys(names):
            if name == COMPOSITION:
                symbolic = self._composition(node.op_type)
            else:
                symbolic = find_form(self._registry, node.op_type, name, self.opset)
            if symbolic is not None:
                yield name, symbolic

    def _write(self, node: ir.Node, schema: OperatorSchema, form: str, symbolic: SymbolicFunction) -> bool:
        """Replace a node by a form, unless the form refuses it or needs an operator that is not taken."""
        assert self._model is not None
        arguments = self._arguments(node, schema, symbolic)
        shape = node.outputs[0].shape
        if "result_shape" in symbolic.parameters and shape is not None and shape.is_static():
            arguments["result_shape"] = list(shape.numpy())
        if self._rewriter is None:
            self._rewriter = Rewriter(self._model, self._emission)
        try:
            # The node's own name would repeat the operator in every name of the form.
            module = (node.name or "").rpartition("/")[0] or None
            with self._rewriter.before(node, module) as g:
                results = compose(g, symbolic, node.op_type, (), arguments, len(node.outputs))
                emitted = {new_node.op_type for new_node in g.construction.graph}
                # The operator itself would get the same form again.
                replaced = {*self._replaced} - {node.op_type}
                lacking = {name for name in emitted - replaced if not self._is_taken(name)}
                if lacking:
                    raise UnsupportedError(f"needs {', '.join(sorted(lacking))}")
        except UnsupportedError as error:
            # The check of the target names the operator, and these forms.
            self.refusals.setdefault(node.op_type, {})[form] = str(error).partition("\n")[0]
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
