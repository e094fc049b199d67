"""Replaces operators that a target does not support by compositions of operators that it supports.

1. The version ladder has the compositions: one that replaces an operator at opsets without it, such as IsNaN
   before opset 9, is valid at later opsets too.
2. Otherwise, the equivalent forms of the operator (`symbolics/onnx/forms`) are tried in the order of their
   names. A form that the target names is tried before everything else, also if the operator is supported.
3. An operator stays if each of these needs an operator that the target does not support, or cannot express
   the node. The ladder is not used if the operator means something else at this opset than at the newest one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import onnx_ir as ir

from ...registration import Registry, UnsupportedError
from ...registration.emission.ladder import compose
from ...registration.functions.dispatch import SymbolicFunction
from ...registration.opsets import MINIMUM_OPSET
from ...registration.schemas import OperatorSchema, inputs_by_name
from ..onnx_graph.node_pass import NodePass
from .rewriting import Rewriter


class ComposeOperators(NodePass):
    """Replaces the nodes of operators that the target does not support."""

    def __init__(
        self,
        is_taken: Callable[[str], bool],
        registry: Registry,
        forms: Mapping[str, str] | None = None,
        emission: Registry | None = None,
    ):
        """Make the pass.

        Args:
            is_taken: whether the consumer takes an operator.
            registry: has the version ladder, and the equivalent forms.
            forms: the names of forms to write, by operator.
            emission: emits the operators of forms; by default `registry`.
        """
        super().__init__()
        self._is_taken = is_taken
        self._registry = registry
        self._forms = forms or {}
        self._emission = emission or registry
        self.refusals: dict[str, dict[str, str]] = {}
        """Why forms were not written, by operator and form."""
        self._model: ir.Model | None = None
        self._rewriter: Rewriter | None = None

    def begin(self, model: ir.Model) -> bool:
        """Keep the model, for which a rewriter is made when a node needs it."""
        self._model, self._rewriter = model, None
        return True

    def rewrite(self, node: ir.Node) -> bool:
        """Replace a node by the first form whose operators are all taken."""
        is_taken = self._is_taken(node.op_type)
        if is_taken and node.op_type not in self._forms:
            return False
        schema = self.schema(node.op_type)
        if schema is None or self._model is None:
            return False
        if self._rewriter is None:
            self._rewriter = Rewriter(self._model, self._emission)
        for name, symbolic in self._candidates(node.op_type, is_taken):
            try:
                with self._rewriter.before(node) as g:
                    arguments = self._arguments(node, schema, symbolic)
                    results = compose(g, symbolic, node.op_type, (), arguments, len(node.outputs))
                    lacking = {n.op_type for n in g.construction.graph if not self._is_taken(n.op_type)}
                    if lacking:
                        raise UnsupportedError(f"needs {', '.join(sorted(lacking))}")
            except UnsupportedError as error:
                # The check of the target names the operator, and these forms.
                self.refusals.setdefault(node.op_type, {})[name] = str(error).partition("\n")[0]
                continue
            self._rewriter.replace(node, results)
            return True
        return False

    def _candidates(self, op_type: str, is_taken: bool) -> Iterator[tuple[str, SymbolicFunction]]:
        """The form that the target names; if the operator is refused, the ladder's and all forms."""
        named = self._forms.get(op_type)
        prefix = f"form::{op_type}."
        names = [] if named is None else [f"{prefix}{named}"]
        yield from self._lookup(names, prefix)
        if is_taken:
            return
        composition = self._composition(op_type)
        if composition is not None:
            yield "composition", composition
        forms = (name for name in self._registry.names() if name.startswith(prefix) and name not in names)
        yield from self._lookup(forms, prefix)

    def _lookup(self, names: Iterable[str], prefix: str) -> Iterator[tuple[str, SymbolicFunction]]:
        for name in names:
            form = name.removeprefix(prefix)
            symbolic = self._registry.lookup(prefix[:-1], form, self.opset)
            if symbolic is not None:
                yield form, symbolic

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
