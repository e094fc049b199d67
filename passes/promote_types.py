"""Source pass: ATen's implicit type promotion becomes explicit `aten::to` nodes.

Rules, over every node that `promotion.RULES` knows:

1. Its tensors are cast to the element type that it computes in, symbolic numbers too; Python
   numbers stay.
2. A `dtype` argument that means "cast the operand first" becomes that cast, and is dropped. Sums keep it:
   without it they would widen integers to 64 bits.
3. Where capture knows another element type for the result, the result is cast back to it.
4. Where an element type is unknown the node is left alone.
"""

from __future__ import annotations

from typing import Any

import onnx_ir as ir
from onnx_ir import DataType, Value

from ..registration import MUTATES, NUMBER
from ..registration.arguments import arguments, replace_arguments
from ..registration.dtypes import FLOATS
from .promotion import RULES, Kind, Rule, compute_dtype, rule_of
from .source_builder import SourceBuilder

_HAS_DTYPE = (Kind.CAST, Kind.SUM)
_QUICK = (Kind.TOGETHER, Kind.FLOAT, Kind.SELF, Kind.COMPARISON)


def _is_settled(node: ir.Node, rule: Rule) -> bool:
    """Whether a look at the inputs tells that a node promotes nothing: one float type throughout."""
    if rule.kind not in _QUICK:
        return False
    first = node.inputs[0] if node.inputs else None
    dtype = first.dtype if first is not None else None
    if dtype not in FLOATS:
        return False
    for value in node.inputs:
        if value is None or value.dtype != dtype or NUMBER in value.metadata_props:
            return False
    output = node.outputs[0].dtype
    return output is None or output == (DataType.BOOL if rule.kind is Kind.COMPARISON else dtype)


class _Promoter:
    """Makes the promotion of one graph explicit; a value is cast to a type once."""

    def __init__(self, graph: ir.Graph):
        self._graph = graph
        self._build = SourceBuilder(graph)
        self._casts: dict[tuple[Value, DataType], Value] = {}
        self._modified = False

    def run(self) -> bool:
        """Rewrite every node; whether anything changed."""
        for node in list(self._graph):
            rule = RULES.get(node.op_type)
            if rule is not None and node.domain == "aten" and not _is_settled(node, rule):
                self._visit(node)
        return self._modified

    def _visit(self, node: ir.Node) -> None:
        given = arguments(node)
        rule = rule_of(node.op_type, given)
        if rule is None:
            return
        output = node.outputs[0]
        dtype = compute_dtype(rule, given, output.dtype)
        if dtype is None:
            return
        self._build.before(node)
        asked = rule.kind in _HAS_DTYPE and isinstance(given.get("dtype"), DataType)
        changed = {
            name: self._converted(given[name], dtype, even_unknown=asked)
            for name in (*rule.operands, *rule.followers)
            if name in given
        }
        if node.op_type == "where":
            changed["condition"] = self._converted(given["condition"], DataType.BOOL)
        if any(item is not given[name] for name, item in changed.items()):
            given |= changed
            self._replace(node, given)
        if asked and rule.kind is Kind.CAST:
            self._replace(node, {name: item for name, item in given.items() if name != "dtype"})
        self._correct(node, output, DataType.BOOL if rule.kind is Kind.COMPARISON else dtype)

    def _replace(self, node: ir.Node, given: dict[str, Any]) -> None:
        replace_arguments(node, given)
        self._modified = True

    def _converted(self, item: Any, dtype: DataType, even_unknown: bool = False) -> Any:
        """An argument in an element type; itself where nothing had to be cast."""
        if isinstance(item, list):
            members = [self._converted(member, dtype) for member in item]
            return members if any(a is not b for a, b in zip(members, item, strict=True)) else item
        if not isinstance(item, Value) or item.dtype == dtype or (item.dtype is None and not even_unknown):
            return item
        cast = self._casts.get((item, dtype))
        if cast is None:
            cast = self._casts[item, dtype] = self._build.cast(item, dtype)
        return cast

    def _correct(self, node: ir.Node, output: Value, computed: DataType) -> None:
        """Cast a result back to the element type that capture saw, and have its readers read that."""
        expected = output.dtype
        if expected is None or expected == computed:
            return
        self._build.after(node)
        cast = self._build.cast(output, expected)
        output.type = ir.TensorType(computed)
        maker = cast.producer()
        for user, index in list(output.uses()):
            if user is not maker:
                user.replace_input_with(index, cast)
        if output.is_graph_output():
            for index, value in enumerate(self._graph.outputs):
                if value is output:
                    self._graph.outputs[index] = cast
            if MUTATES in output.metadata_props:
                cast.metadata_props[MUTATES] = output.metadata_props.pop(MUTATES)
        self._modified = True


class PromoteTypes(ir.passes.InPlacePass):
    """Makes ATen's type promotion explicit in a source graph and its sub-blocks."""

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Rewrite the model's graphs in place."""
        modified = False
        for graph in (model.graph, *model.graph.subgraphs()):
            modified = _Promoter(graph).run() or modified
        return ir.passes.PassResult(model, modified)


def promote_types(model: ir.Model) -> bool:
    """Make type promotion explicit, in place; whether anything changed. See `PromoteTypes`."""
    return PromoteTypes().call(model).modified
