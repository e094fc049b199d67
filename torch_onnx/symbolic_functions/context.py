"""The interface of torch.onnx's symbolic functions to the graph under construction."""

from __future__ import annotations

import contextvars
import re
from collections.abc import Sequence
from typing import NoReturn, overload

import onnx_ir as ir

from ... import registration
from ...registration import DataType, EmissionError
from ...registration.older_meanings import emit_older_meaning
from ...registration.promotion import Category, result_type
from ...registration.schemas import OperatorSchema, operator_schema, operator_schemas
from ..errors import refuse_attribute
from . import torch_arrays
from .torch_arrays import is_tensor_of_torch
from .values import OriginalNode, Results, Value

current: contextvars.ContextVar[GraphContext] = contextvars.ContextVar("current")
"""The context of the symbolic function that runs."""

_SUFFIXED = re.compile(r"(.+)_([ifstgz])")

# The operators whose operands torch.onnx casts to one element type after the symbolic functions.
_PROMOTED = frozenset(
    "Add Sub Mul Div Gemm Min Max Mod Pow PRelu Concat Where "
    "Greater GreaterOrEqual Less LessOrEqual Equal".split()
)


class GraphContext:
    """The first argument, `g`, of a symbolic function.

    Attributes:
        inner: the context of opsetta that everything is emitted through.
        registered_opset: the opset that the function was registered for, which defines its operators.
    """

    def __init__(self, inner: registration.GraphContext, registered_opset: int):
        self.inner = inner
        self.registered_opset = registered_opset
        self._opset_was_read = False

    @property
    def opset(self) -> int:
        """The target opset. Once a function has read it, the function's operators are those of this opset."""
        self._opset_was_read = True
        return self.inner.opset

    @property
    def written_for(self) -> int:
        """The opset whose operators the function uses."""
        return self.inner.opset if self._opset_was_read else min(self.registered_opset, self.inner.opset)

    @property
    def original_node(self) -> OriginalNode | None:
        """The exported operator and its results."""
        node = self.inner.node
        return OriginalNode(Value(self.inner, node.outputs[0])) if node is not None and node.outputs else None

    def op(self, opname: str, *raw_args: object, outputs: int = 1, **kwargs: object) -> Results:
        """Emit an operator; its attributes and inputs are bound to the schema of the target opset.

        Args:
            opname: `Relu`, or `domain::Op`.
            raw_args: its inputs; None, or a value that is None, omits one.
            outputs: the number of results.
            kwargs: attributes; the suffix states the type: `alpha_f`, `axes_i`, `mode_s`, `value_t`.

        Returns:
            The result, or a tuple if there are several.

        Raises:
            EmissionError: the operator or an argument is not supported at the target opset.
        """
        domain, _, name = opname.rpartition("::")
        domain = "" if domain in ("onnx", "ai.onnx") else domain
        attributes = {key: self._attribute(key, item) for key, item in kwargs.items()}
        attributes = {
            (f"{key[:-2]}_t" if key.endswith("_z") else key): item
            for key, item in attributes.items()
            if item is not None
        }
        inputs = [self._input(item, domain) for item in raw_args]
        if domain == "" and name == "Constant" and not inputs:
            return Value(self.inner, self._constant(attributes))
        if opname == "prim::ListConstruct":
            return Value(self.inner, inputs)
        if domain in ("aten", "prim"):
            raise EmissionError(
                f"{opname} is not an ONNX operator: call the symbolic function of `symbolic_opset9` instead"
            )
        if domain == "":
            results = self._emit_standard(name, inputs, attributes, outputs)
        else:
            results = self.inner.op(opname, *inputs, outputs=outputs, **attributes)
        return self.wrap(tuple(results) if isinstance(results, (list, tuple)) else results)

    @overload
    def wrap(self, item: list[ir.Value] | tuple[ir.Value, ...]) -> tuple[Value, ...]: ...
    @overload
    def wrap(self, item: ir.Value) -> Value: ...
    @overload
    def wrap(self, item: object) -> Results: ...
    def wrap(self, item: object) -> Results:
        """Wrap a result as a `Value`, or several as a tuple."""
        if isinstance(item, (list, tuple)):
            return tuple(Value(self.inner, member) for member in item)
        return Value(self.inner, item)

    def _attribute(self, key: str, item: object) -> object:
        if isinstance(item, Value):
            item = item.constant() if item.constant() is not None else item.wrapped
        if isinstance(item, (list, tuple)):
            return [self._attribute(key, member) for member in item]
        if key in ("inplace", "aten"):
            return None
        return torch_arrays.to_array(item) if is_tensor_of_torch(item) else item

    def _input(self, item: object, domain: str) -> object:
        if is_tensor_of_torch(item):
            return self.inner.constant(torch_arrays.to_array(item))
        operand = Value(self.inner, item).wrapped
        if isinstance(operand, str):
            raise EmissionError(
                "a string cannot be an input of an operator: pass it as an attribute, `name_s=`"
            )
        if domain == "" or operand is None or isinstance(operand, ir.Value):
            return operand
        if isinstance(operand, list) and any(isinstance(member, ir.Value) for member in operand):
            return self.inner.stack(operand)
        return self.inner.constant(operand, Value(self.inner, operand).element_type)

    def _constant(self, attributes: dict[str, object]) -> object:
        if len(attributes) != 1:
            raise EmissionError(
                "Constant needs one of `value_t`, `value_s`, `value_float_f`, `value_ints_i` …"
            )
        [(key, item)] = attributes.items()
        stem = _SUFFIXED.fullmatch(key)
        if isinstance(item, str):
            return item
        dtype = {"value_int": DataType.INT64, "value_ints": DataType.INT64}.get(stem[1] if stem else key)
        if stem is not None and stem[2] == "f":
            dtype = DataType.FLOAT
        return self.inner.constant(item, dtype)

    def _emit_standard(
        self, name: str, inputs: list[object], attributes: dict[str, object], outputs: int
    ) -> object:
        """Emit an operator of the default domain with its meaning at the function's opset."""
        composed = emit_older_meaning(self.inner, self.written_for, name, inputs, attributes, outputs)
        if composed is not None:
            return composed
        schema = operator_schema(name, self.inner.opset)
        if schema is None:
            return self.inner.op_of_target(name, *inputs, outputs=outputs, **attributes)
        count = self._count_positional(schema, inputs)
        # The target schema has moved these inputs: bind them by their names at the function's opset.
        for index, item in enumerate(inputs[count:], count):
            if item is not None:
                attributes[self._input_names(name, index, len(inputs))[index]] = item
        positional = _promote_inputs(self.inner, schema, inputs[:count])
        return self.inner.op_of_target(name, *positional, outputs=outputs, **attributes)

    def _count_positional(self, schema: OperatorSchema, inputs: Sequence[object]) -> int:
        """Count the inputs with the same position at the target opset; the others are bound by name."""
        if schema.inputs and schema.inputs[-1].variadic:
            return len(inputs)
        written = operator_schema(schema.name, self.written_for)
        if written is not None and len(inputs) <= len(written.inputs):
            for index in range(len(inputs)):
                if schema.input_index.get(written.inputs[index].name, index) != index:
                    return index
        return min(len(inputs), len(schema.inputs))

    def _input_names(self, name: str, index: int, count: int) -> list[str]:
        """Return the input names of the function's opset, or of the first version with enough inputs."""
        written = operator_schema(name, self.written_for)
        for schema in ([written] if written is not None else []) + operator_schemas(name):
            if len(schema.inputs) >= count:
                return [parameter.name for parameter in schema.inputs]
        raise EmissionError(f"ONNX operator {name} has no input {index} at any opset")

    def __getattr__(self, name: str) -> NoReturn:
        refuse_attribute("g", name, "op, opset and original_node are here")


def _promote_inputs(
    g: registration.GraphContext, schema: OperatorSchema, inputs: Sequence[object]
) -> Sequence[object]:
    """Cast the inputs of an arithmetic operator to one element type by torch's promotion.

    torch.onnx promotes after the symbolic functions, whose constants may have any type.
    """
    if schema.name not in _PROMOTED:
        return inputs
    indices_of_variable: dict[str, list[int]] = {}
    for index, item in enumerate(inputs):
        formal = schema.inputs[min(index, len(schema.inputs) - 1)]
        if isinstance(item, ir.Value) and formal.variable and formal.homogeneous:
            indices_of_variable.setdefault(formal.variable, []).append(index)
    promoted = list(inputs)
    for indices in indices_of_variable.values():
        values = [value for index in indices if isinstance(value := inputs[index], ir.Value)]
        typed = [(value.dtype, _promotion_category(g, value)) for value in values if value.dtype is not None]
        # Without a known type of each operand, promotion would guess.
        if len(typed) < len(values) or len({dtype for dtype, _ in typed}) == 1:
            continue
        joint = result_type(typed)
        if joint is None:
            continue
        for index in indices:
            promoted[index] = g.constant(inputs[index], joint)
    return promoted


def _promotion_category(g: registration.GraphContext, value: ir.Value) -> Category:
    if g.rank(value) != 0:
        return Category.DIMENSIONED
    return Category.NUMBER if g.is_foldable(value) else Category.ZERO_DIM
