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
from .rules import RULES, Kind, Rule, compute_dtype, has_computed_type, integers_become, members, rule_of

_QUICK = (Kind.TOGETHER, Kind.FLOAT, Kind.SELF, Kind.COMPARISON)
_OPEN = (Kind.TOGETHER, Kind.FLOAT, Kind.COMPARISON, Kind.SEARCH, Kind.SUM)

Casts = MutableMapping[tuple[Value, DataType], Value]


def _is_settled(node: ir.Node, rule: Rule) -> bool:
    """Whether all inputs have the same float type, so that the node promotes nothing."""
    if rule.kind not in _QUICK or (len(node.inputs) < len(rule.operands) and _takes_tensor(node)):
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


def _is_deferred(node: ir.Node) -> bool:
    """Whether an earlier run deferred the promotion of a node to lowering."""
    makers = (value.producer() for value in node.inputs if value is not None)
    return any(maker is not None and maker.domain == "promotion" for maker in makers)


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
                inner: Casts = ChainMap({}, self._casts)
                self._modified = _Promoter(block, inner).run() or self._modified
            rule = RULES.get(node.op_type)
            if rule is not None and node.domain == "aten" and not _is_settled(node, rule):
                self._visit(node)
        return self._modified

    def _visit(self, node: ir.Node) -> None:
        given = arguments(node)
        rule = rule_of(node.op_type, given)
        if rule is None or _is_deferred(node):
            return
        output = node.outputs[0]
        decided = compute_dtype(rule, given, output.dtype)
        self._build.before(node)
        if node.op_type == "where" and isinstance(given.get("condition"), Value):
            self._change(node, given, {"condition": self._cast(given["condition"], DataType.BOOL)})
        if isinstance(decided, DataType):
            self._convert(node, rule, given, decided)
            if has_computed_type(rule) or rule.kind is Kind.COMPARISON:
                computed = DataType.BOOL if rule.kind is Kind.COMPARISON else decided
                self._correct(node, output, computed)
        elif isinstance(decided, Value) and rule.kind is Kind.SELF:
            changed = {
                name: self._convert_to_type_of(given[name], decided)
                for name in rule.followers
                if name in given
            }
            self._change(node, given, changed)
        elif rule.kind in _OPEN:
            tensors = [item for item in members(rule, given) if isinstance(item, Value)]
            if any(item is not decided for item in tensors):
                self._defer(node, rule, given)

    def _convert(self, node: ir.Node, rule: Rule, given: dict[str, Any], dtype: DataType) -> None:
        """Cast the operands of a node to the element type that it computes in."""
        changed = {
            name: self._cast(_wrapped(given[name], dtype), dtype) for name in rule.operands if name in given
        }
        first = rule.operands[0]
        if _takes_tensor(node) and isinstance(changed.get(first), (bool, int, float)):
            number = {"s": changed[first], "dtype": dtype}
            changed[first] = self._build.emit("aten::scalar_tensor", number, dtype=dtype, shape=ir.Shape(()))
        for name in rule.followers:
            if name in given:
                changed[name] = self._cast(_truncated(given[name], dtype), dtype)
        self._change(node, given, changed)
        if rule.kind is Kind.CAST and isinstance(given.get("dtype"), DataType):
            del given["dtype"]
            replace_arguments(node, given)
            self._modified = True

    def _change(self, node: ir.Node, given: dict[str, Any], changed: dict[str, Any]) -> None:
        if any(item is not given[name] for name, item in changed.items()):
            given |= changed
            replace_arguments(node, given)
            self._modified = True

    def _cast(self, item: Any, dtype: DataType) -> Any:
        """An argument cast to an element type, if necessary."""
        if isinstance(item, list):
            converted = [self._cast(member, dtype) for member in item]
            return converted if any(a is not b for a, b in zip(converted, item, strict=True)) else item
        if not isinstance(item, Value) or item.dtype == dtype:
            return item
        cast = self._casts.get((item, dtype))
        if cast is None:
            cast = self._casts[item, dtype] = self._build.cast(item, dtype)
        return cast

    def _convert_to_type_of(self, item: Any, other: Value) -> Any:
        """The written value, converted to the unknown element type of its target."""
        if not isinstance(item, Value) or item is other:
            return item
        maker = item.producer()
        if maker is not None and maker.op_type == "type_as" and maker.inputs[-1] is other:
            return item
        return self._build.emit("aten::type_as", {"self": item, "other": other}, shape=item.shape)

    def _defer(self, node: ir.Node, rule: Rule, given: dict[str, Any]) -> None:
        """Defer the promotion of a node to lowering."""
        items = members(rule, given)
        output = node.outputs[0]
        question = {
            "operator": overloaded_name(node),
            "operands": items,
            "numbers": [
                item.metadata_props.get(NUMBER) if isinstance(item, Value) else None for item in items
            ],
            "uniform": rule.uniform,
            "integers": integers_become(rule),
            "expected": output.dtype if has_computed_type(rule) else None,
        }

        def promoted(item: Any) -> Any:
            if isinstance(item, list):
                return [promoted(member) for member in item]
            if not isinstance(item, Value):
                return item
            return self._build.emit("promotion::promote", {"self": item, **question}, shape=item.shape)

        names = [name for name in (*rule.operands, *rule.followers) if name in given]
        self._change(node, given, {name: promoted(given[name]) for name in names})
        if has_computed_type(rule) and output.dtype is not None:
            self._correct(node, output, None)

    def _correct(self, node: ir.Node, output: Value, computed: DataType | None) -> None:
        """Cast a result back to the element type that the capture recorded, for all of its readers."""
        expected = output.dtype
        if expected is None or expected == computed:
            return
        self._build.after(node)
        cast = self._build.cast(output, expected)
        output.type = None if computed is None else ir.TensorType(computed)
        maker = cast.producer()
        for user, index in list(output.uses()):
            if user is not maker:
                user.replace_input_with(index, cast)
        owner = output.graph
        if output.is_graph_output() and isinstance(owner, ir.Graph):
            # A block may return an outer value.
            for index, value in enumerate(list(owner.outputs)):
                if value is output:
                    owner.outputs[index] = cast
            if MUTATES in output.metadata_props:
                cast.metadata_props[MUTATES] = output.metadata_props.pop(MUTATES)
        self._modified = True


def _takes_tensor(node: ir.Node) -> bool:
    """Whether the overload declares the first operand as a tensor; eager torch also accepts a number."""
    return node.overload in ("", "default", "self") or node.overload.startswith("Tensor")


def _wrapped(item: Any, dtype: DataType) -> Any:
    """A Python number as an operand; it wraps around outside of the integer range, as in ATen's cast."""
    if type(item) is not int or dtype not in INTEGERS:
        return item
    low, high = limits(dtype)
    return item if low <= item <= high else int((item - low) % (high - low + 1) + low)


def _truncated(item: Any, dtype: DataType) -> Any:
    """A Python number converted to an element type that others decide; ATen truncates fractions."""
    if isinstance(item, float) and math.isfinite(item):
        return bool(item) if dtype == DataType.BOOL else int(item) if is_integral(dtype) else item
    return item


class PromoteTypes(ir.passes.InPlacePass):
    """Makes ATen's type promotion explicit in a source graph and its sub-blocks."""

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Rewrite the model's graphs in place."""
        return ir.passes.PassResult(model, _Promoter(model.graph, {}).run())


def promote_types(model: ir.Model) -> bool:
    """Make type promotion explicit, in place; return whether anything changed. See `PromoteTypes`."""
    return PromoteTypes().call(model).modified
