"""Source pass: ATen's implicit type promotion becomes explicit `aten::to` nodes.

Rules, for every node with an entry in `rules.RULES`, in sub-blocks too:

1. Its tensors and symbolic numbers are cast to the element type that it computes in; Python numbers stay.
2. A `dtype` argument that means "cast the operand first" becomes that cast, and is dropped. Sums keep the
   argument, because without it they widen integers to 64 bits.
3. If the capture recorded another element type for the result, the result is cast back to it.
4. If element types or ranks are unknown, each tensor goes through a `promotion::promote` node, which lowering
   resolves when its operands are known, or refuses. A value written into a tensor of unknown type goes
   through `aten::type_as`.
5. A cast made inside a block is used only there; a cast made before a block is also used inside it.
6. Where each element of the result has the type of one argument (`Rule.result`), the result is cast to it,
   and a `reduction` becomes a node of its own after the cast, because it sums the cast elements.
"""

from __future__ import annotations

import math
from collections import ChainMap
from collections.abc import MutableMapping
from typing import Any

import onnx_ir as ir
from onnx_ir import DataType, Value

from ...registration import MUTATES, NUMBER
from ...registration.arguments import arguments, blocks, overloaded_name, replace_arguments
from ...registration.dtypes import FLOATS, INTEGERS, limits
from ...registration.promotion import is_integral
from ..source_builder import SourceBuilder
from .rules import RULES, Promotion, Rule, compute_dtype, has_computed_type, integers_become, members, rule_of

# In these operators, float operands of one type need no promotion.
_UNCHANGED_BY_EQUAL_FLOATS = (Promotion.TOGETHER, Promotion.FLOAT, Promotion.SELF, Promotion.COMPARISON)
_DEFERRABLE = (Promotion.TOGETHER, Promotion.FLOAT, Promotion.COMPARISON, Promotion.SEARCH, Promotion.SUM)
_MEAN = 1
"""The `reduction` of ATen's losses that takes the mean, their default; 0 means none, 2 the sum."""

Casts = MutableMapping[tuple[Value, DataType], Value]


def _is_settled(node: ir.Node, rule: Rule) -> bool:
    """Whether all inputs have the same float type, so that the node promotes nothing.

    Most nodes of a model are like this; the check avoids decoding their arguments.
    """
    if rule.promotion not in _UNCHANGED_BY_EQUAL_FLOATS or (
        len(node.inputs) < len(rule.operands) and _takes_tensor(node)
    ):
        return False
    first = node.inputs[0] if node.inputs else None
    dtype = first.dtype if first is not None else None
    if dtype not in FLOATS:
        return False
    for value in node.inputs:
        if value is None or value.dtype != dtype or NUMBER in value.metadata_props:
            return False
    output = node.outputs[0].dtype
    return output is None or output == (DataType.BOOL if rule.promotion is Promotion.COMPARISON else dtype)


def _is_deferred(node: ir.Node) -> bool:
    """Whether an earlier run deferred the promotion of a node to lowering."""
    producers = (value.producer() for value in node.inputs if value is not None)
    return any(producer is not None and producer.domain == "promotion" for producer in producers)


class _Promoter:
    """Makes the promotion of one graph explicit. Each value is cast to a type at most once."""

    def __init__(self, graph: ir.Graph, casts: Casts):
        self._graph = graph
        self._build = SourceBuilder(graph)
        self._casts = casts
        self._modified = False

    def run(self) -> bool:
        """Rewrite every node, after its sub-blocks; return whether anything changed."""
        for node in list(self._graph):
            for block in blocks(node):
                # Rule 5: casts of the block must not be visible outside of it.
                inner: Casts = ChainMap({}, self._casts)
                self._modified = _Promoter(block, inner).run() or self._modified
            rule = RULES.get(node.op_type)
            if rule is not None and node.domain == "aten" and not _is_settled(node, rule):
                self._promote_node(node)
        return self._modified

    def _promote_node(self, node: ir.Node) -> None:
        node_arguments = arguments(node)
        rule = rule_of(node.op_type, node_arguments)
        if rule is None or _is_deferred(node):
            return
        output = node.outputs[0]
        computed = compute_dtype(rule, node_arguments, output.dtype)
        self._build.before(node)
        # ONNX's Where takes only BOOL conditions; ATen also takes UINT8.
        if node.op_type == "where" and isinstance(node_arguments.get("condition"), Value):
            self._change_arguments(
                node, node_arguments, {"condition": self._cast(node_arguments["condition"], DataType.BOOL)}
            )
        type_source = None if rule.result is None else node_arguments[rule.result]
        if isinstance(computed, DataType):
            self._cast_operands(node, rule, node_arguments, computed)
            if has_computed_type(rule) or rule.promotion is Promotion.COMPARISON:
                result_dtype = DataType.BOOL if rule.promotion is Promotion.COMPARISON else computed
                self._restore_result_dtype(node, output, result_dtype)
        elif isinstance(computed, Value) and rule.promotion is Promotion.SELF:
            changed = {
                name: self._convert_to_type_of(node_arguments[name], computed)
                for name in rule.followers
                if name in node_arguments
            }
            self._change_arguments(node, node_arguments, changed)
        elif rule.promotion in _DEFERRABLE:
            tensors = [operand for operand in members(rule, node_arguments) if isinstance(operand, Value)]
            # `computed` already has the type to which the others are promoted.
            if any(operand is not computed for operand in tensors):
                self._defer_promotion(node, rule, node_arguments)
        if type_source is not None and computed is not type_source and computed != type_source.dtype:
            self._convert_elements(node, node_arguments, type_source)

    def _cast_operands(
        self, node: ir.Node, rule: Rule, node_arguments: dict[str, Any], dtype: DataType
    ) -> None:
        """Cast the operands of a node to the element type that it computes in."""
        changed = {
            name: self._cast(_wrap_integer(node_arguments[name], dtype), dtype)
            for name in rule.operands
            if name in node_arguments
        }
        first = rule.operands[0]
        if _takes_tensor(node) and isinstance(changed.get(first), (bool, int, float)):
            number = {"s": changed[first], "dtype": dtype}
            changed[first] = self._build.emit("aten::scalar_tensor", number, dtype=dtype, shape=ir.Shape(()))
        for name in rule.followers:
            if name in node_arguments:
                changed[name] = self._cast(_truncate_number(node_arguments[name], dtype), dtype)
        self._change_arguments(node, node_arguments, changed)
        if rule.promotion is Promotion.CAST and isinstance(node_arguments.get("dtype"), DataType):
            del node_arguments["dtype"]
            replace_arguments(node, node_arguments)
            self._modified = True

    def _change_arguments(
        self, node: ir.Node, node_arguments: dict[str, Any], changed: dict[str, Any]
    ) -> None:
        if any(operand is not node_arguments[name] for name, operand in changed.items()):
            node_arguments |= changed
            replace_arguments(node, node_arguments)
            self._modified = True

    def _cast(self, operand: object, dtype: DataType) -> Any:
        """Cast an argument, or the members of a list, to an element type, if necessary."""
        if isinstance(operand, list):
            converted = [self._cast(member, dtype) for member in operand]
            return converted if any(a is not b for a, b in zip(converted, operand, strict=True)) else operand
        if not isinstance(operand, Value) or operand.dtype == dtype:
            return operand
        cast = self._casts.get((operand, dtype))
        if cast is None:
            cast = self._casts[operand, dtype] = self._build.cast(operand, dtype)
        return cast

    def _convert_to_type_of(self, operand: object, destination: Value) -> Any:
        """Convert the written value to the unknown element type of its destination."""
        if not isinstance(operand, Value) or operand is destination:
            return operand
        producer = operand.producer()
        if producer is not None and producer.op_type == "type_as" and producer.inputs[-1] is destination:
            return operand
        return self._build.emit("aten::type_as", {"self": operand, "other": destination}, shape=operand.shape)

    def _defer_promotion(self, node: ir.Node, rule: Rule, node_arguments: dict[str, Any]) -> None:
        """Defer the promotion of a node to lowering."""
        items = members(rule, node_arguments)
        output = node.outputs[0]
        promote_arguments = {
            "operator": overloaded_name(node),
            "operands": items,
            "numbers": [
                operand.metadata_props.get(NUMBER) if isinstance(operand, Value) else None
                for operand in items
            ],
            "uniform": rule.uniform,
            "integers": integers_become(rule),
            "expected": output.dtype if has_computed_type(rule) else None,
        }

        def emit_promote(operand: object) -> Any:
            if isinstance(operand, list):
                return [emit_promote(member) for member in operand]
            if not isinstance(operand, Value):
                return operand
            return self._build.emit(
                "promotion::promote", {"self": operand, **promote_arguments}, shape=operand.shape
            )

        names = [name for name in (*rule.operands, *rule.followers) if name in node_arguments]
        self._change_arguments(
            node, node_arguments, {name: emit_promote(node_arguments[name]) for name in names}
        )
        if has_computed_type(rule) and output.dtype is not None:
            self._restore_result_dtype(node, output, None)

    def _restore_result_dtype(self, node: ir.Node, output: Value, result_dtype: DataType | None) -> None:
        """Cast a result back to the element type that the capture recorded, for all of its readers."""
        expected = output.dtype
        if expected is None or expected == result_dtype:
            return
        self._build.after(node)
        cast = self._build.cast(output, expected)
        output.type = None if result_dtype is None else ir.TensorType(result_dtype)
        self._replace_result(output, cast, cast.producer())

    def _convert_elements(self, node: ir.Node, node_arguments: dict[str, Any], type_source: Value) -> None:
        """Convert each element of a result to the element type of a value, before the result is reduced."""
        output, reduction = node.outputs[0], node_arguments.get("reduction", _MEAN)
        shape, computed_dtype = output.shape, node.inputs[0].dtype if node.inputs[0] is not None else None
        if reduction:
            node_arguments["reduction"] = 0
            replace_arguments(node, node_arguments)
            output.shape = None
        self._build.after(node)
        result = first = (
            self._build.emit("aten::type_as", {"self": output, "other": type_source}, shape=output.shape)
            if type_source.dtype is None
            else self._build.cast(output, type_source.dtype)
        )
        if reduction:
            name = "aten::mean" if reduction == _MEAN else "aten::sum"
            result = self._build.emit(name, {"self": first}, dtype=type_source.dtype, shape=shape)
        output.type = None if computed_dtype is None else ir.TensorType(computed_dtype)
        self._replace_result(output, result, first.producer())

    def _replace_result(self, output: Value, replacement: Value, first_reader: ir.Node | None) -> None:
        """Replace a result for all of its readers except the node that computes the replacement from it."""
        for user, index in list(output.uses()):
            if user is not first_reader:
                user.replace_input_with(index, replacement)
        owner = output.graph
        if output.is_graph_output() and isinstance(owner, ir.Graph):
            # A block may return an outer value.
            for index, value in enumerate(list(owner.outputs)):
                if value is output:
                    owner.outputs[index] = replacement
            if MUTATES in output.metadata_props:
                replacement.metadata_props[MUTATES] = output.metadata_props.pop(MUTATES)
        self._modified = True


def _takes_tensor(node: ir.Node) -> bool:
    """Whether the overload declares the first operand as a tensor; eager torch also accepts a number."""
    return node.overload in ("", "default", "self") or node.overload.startswith("Tensor")


def _wrap_integer(operand: object, dtype: DataType) -> Any:
    """Wrap a Python integer around outside of the range of an integer type, as ATen's cast does."""
    if type(operand) is not int or dtype not in INTEGERS:
        return operand
    low, high = limits(dtype)
    return operand if low <= operand <= high else int((operand - low) % (high - low + 1) + low)


def _truncate_number(operand: object, dtype: DataType) -> Any:
    """Convert a Python number to an element type that other operands decide; ATen truncates fractions."""
    if isinstance(operand, float) and math.isfinite(operand):
        return bool(operand) if dtype == DataType.BOOL else int(operand) if is_integral(dtype) else operand
    return operand


class PromoteTypes(ir.passes.InPlacePass):
    """Makes ATen's type promotion explicit in a source graph and its sub-blocks."""

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Rewrite the model's graphs in place."""
        return ir.passes.PassResult(model, _Promoter(model.graph, {}).run())


def promote_types(model: ir.Model) -> bool:
    """Make type promotion explicit, in place; return whether anything changed. See `PromoteTypes`."""
    return PromoteTypes().call(model).modified
