"""Runs functions of ONNX Script on values of the graph under construction.

A plain function runs as Python code, and each call of an operator emits one. A function decorated with
`@script` is inlined as the ONNX function that ONNX Script makes of it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence, Sized
from typing import TYPE_CHECKING, Any, NoReturn

import onnx
import onnx_ir as ir
from onnx import numpy_helper

from ... import registration
from ...registration import DataType, UnsupportedError
from ...registration.schemas import operator_schema
from ..symbolic_functions.context import GraphContext
from ..symbolic_functions.values import Value

if TYPE_CHECKING:
    import onnxscript

_OPERATORS = {
    "add": "Add", "sub": "Sub", "mul": "Mul", "truediv": "Div", "matmul": "MatMul", "pow": "Pow",
    "and": "And", "or": "Or",
}  # fmt: skip
_COMPARISONS = {"lt": "Less", "le": "LessOrEqual", "gt": "Greater", "ge": "GreaterOrEqual"}
_PYTHON_OPERATOR_OPSET = 18
"""The opset of Python's operators on tensors."""
_REMEDY = (
    "write the control flow in the model, with torch.cond or torch.while_loop, or register a symbolic "
    "function with opsetta.onnx_symbolic"
)


class ScriptTensor(ir.Value):
    """A value of the graph with the API of ONNX Script: shape, element type, and Python's operators."""

    def __init__(self, evaluator: Evaluator, wrapped: ir.Value):
        super().__init__(
            name=wrapped.name, shape=wrapped.shape, type=wrapped.type, const_value=wrapped.const_value
        )
        self.evaluator = evaluator
        self.wrapped = wrapped

    @property
    def rank(self) -> int | None:
        """The number of dimensions; None if it is unknown."""
        return None if self.shape is None else len(self.shape)

    def __bool__(self) -> bool:
        raise UnsupportedError(f"the ONNX Script function branches on the value of a tensor: {_REMEDY}")

    def __neg__(self) -> object:
        return self.evaluator.emit("Neg", "", _PYTHON_OPERATOR_OPSET, [self], {}, 1)

    def __mod__(self, divisor: object) -> object:
        # ONNX's Mod takes floats only with `fmod`.
        floating = self.dtype is not None and self.dtype.is_floating_point()
        return self.evaluator.emit(
            "Mod", "", _PYTHON_OPERATOR_OPSET, [self, divisor], {"fmod": 1} if floating else {}, 1
        )

    def __ne__(self, operand: object) -> Any:
        # ONNX has no operator for unequal.
        equal = self.evaluator.emit("Equal", "", _PYTHON_OPERATOR_OPSET, [self, operand], {}, 1)
        return self.evaluator.emit("Not", "", _PYTHON_OPERATOR_OPSET, [equal], {}, 1)

    __hash__ = ir.Value.__hash__


def _operator(op_type: str, reflected: bool) -> Callable[[ScriptTensor, object], object]:
    def method(self: ScriptTensor, operand: object) -> object:
        operands = [operand, self] if reflected else [self, operand]
        return self.evaluator.emit(op_type, "", _PYTHON_OPERATOR_OPSET, operands, {}, 1)

    return method


for _name, _op_type in (_OPERATORS | _COMPARISONS).items():
    setattr(ScriptTensor, f"__{_name}__", _operator(_op_type, False))
    if _name in _OPERATORS:
        setattr(ScriptTensor, f"__r{_name}__", _operator(_op_type, True))


class Evaluator:
    """An evaluator of ONNX Script that emits operators at the target opset.

    An operator has the meaning of the function's opset.
    """

    def __init__(self, g: registration.GraphContext):
        self._g = g

    def results(
        self, function: Callable[..., object], args: Sequence[object], kwargs: Mapping[str, object]
    ) -> object:
        """Call a function with arguments of the graph; return values, or a list of them."""
        from onnxscript import evaluator

        positional = [self._wrap(item) for item in args]
        named = {name: self._wrap(item) for name, item in kwargs.items()}
        with evaluator.default_as(self):
            return self._unwrap(function(*positional, **named))

    def eval_op(
        self, op: onnxscript.values.Op, args: Sequence[object], kwargs: Mapping[str, object]
    ) -> object:
        """Emit an operator that a function calls."""
        outputs = _count(op.name, op.op_schema, args, kwargs)
        return self.emit(op.name, op.opset.domain, op.opset.version, args, kwargs, outputs)

    def eval_function(
        self,
        function: onnxscript.OnnxFunction[..., object],
        args: Sequence[object],
        kwargs: Mapping[str, object],
    ) -> object:
        """Emit the nodes of a function decorated with `@script`."""
        bound = inspect.signature(function.function).bind(*args, **kwargs)
        proto = function.to_function_proto()
        values: dict[str, object] = {name: bound.arguments.get(name) for name in proto.input}
        attributes: dict[str, object] = {
            a.name: onnx.helper.get_attribute_value(a) for a in proto.attribute_proto
        }
        attributes |= {name: item for name, item in bound.arguments.items() if name not in values}
        versions = {entry.domain: entry.version for entry in proto.opset_import}
        called = _functions_of(function)
        for node in proto.node:
            inputs = [values[name] if name else None for name in node.input]
            node_attributes = dict(_resolved_attributes(node, attributes))
            if (node.domain, node.op_type) in called:
                node_results = self.eval_function(called[node.domain, node.op_type], inputs, node_attributes)
            else:
                version = versions.get(node.domain, 1)
                node_results = self.emit(
                    node.op_type, node.domain, version, inputs, node_attributes, len(node.output)
                )
            values |= zip(
                node.output, node_results if isinstance(node_results, tuple) else (node_results,), strict=True
            )
        results = tuple(values[name] for name in proto.output)
        return results[0] if len(results) == 1 else results

    def emit(
        self,
        op_type: str,
        domain: str,
        version: int,
        args: Sequence[object],
        kwargs: Mapping[str, object],
        outputs: int,
    ) -> object:
        """Emit an operator with its meaning at an opset of its domain; return its wrapped results."""
        attributes = {name: _attribute_value(item) for name, item in kwargs.items() if item is not None}
        if domain == "" and op_type == "Constant":
            return self._wrap(self._constant(attributes))
        inputs = [self._unwrap(item) for item in args]
        if domain == "" and version > self._g.opset:
            return self._wrap(self._emit_newer(op_type, version, inputs, attributes, outputs))
        context = GraphContext(self._g, version)
        results = context.op(
            f"{domain}::{op_type}" if domain else op_type, *inputs, outputs=outputs, **attributes
        )
        return self._wrap(results)

    def _emit_newer(
        self,
        op_type: str,
        version: int,
        inputs: Sequence[object],
        attributes: Mapping[str, object],
        outputs: int,
    ) -> object:
        """Emit an operator of a newer opset than the target's, through the version ladder."""
        schema = operator_schema(op_type, version)
        if schema is None:
            raise UnsupportedError(f"ONNX has no operator {op_type} at opset {version}")
        # The ladder binds by name, and the inputs of a variadic parameter have none.
        if schema.inputs and schema.inputs[-1].variadic:
            results = self._g.op(op_type, *inputs, outputs=outputs, **attributes)
        else:
            named = {formal.name: item for formal, item in zip(schema.inputs, inputs, strict=False)}
            results = self._g.op(op_type, outputs=outputs, **named, **attributes)
        return tuple(results) if isinstance(results, list) else results

    def _constant(self, attributes: Mapping[str, object]) -> object:
        [(attribute_name, item)] = attributes.items()
        dtype = {"value_int": DataType.INT64, "value_float": DataType.FLOAT}.get(
            attribute_name.removesuffix("s")
        )
        return item if attribute_name == "value_string" else self._g.constant(item, dtype)

    def _wrap(self, item: object) -> object:
        """Wrap an argument or result for a function."""
        if isinstance(item, Value):
            item = item.wrapped
        if isinstance(item, tuple):
            return tuple(map(self._wrap, item))
        if isinstance(item, list):
            return [self._wrap(member) for member in item]
        return ScriptTensor(self, item) if isinstance(item, ir.Value) else item

    def _unwrap(self, item: object) -> object:
        """Unwrap an argument or result of a function."""
        if isinstance(item, (list, tuple)):
            return [self._unwrap(member) for member in item]
        return item.wrapped if isinstance(item, ScriptTensor) else item


def _attribute_value(item: object) -> object:
    """Return the value of an attribute as a Python or numpy object."""
    if isinstance(item, onnx.TensorProto):
        return numpy_helper.to_array(item)
    if isinstance(item, ir.TensorProtocol):
        return item.numpy()
    if callable(item) or isinstance(item, (onnx.GraphProto, ir.Graph)) or hasattr(item, "function_ir"):
        _refuse_graphs()
    return item.decode() if isinstance(item, bytes) else item


def _resolved_attributes(
    node: onnx.NodeProto, of_function: Mapping[str, object]
) -> Iterator[tuple[str, object]]:
    """Return the attributes of a node of a function; references to the function's attributes are resolved."""
    for attribute in node.attribute:
        if attribute.ref_attr_name:
            if of_function.get(attribute.ref_attr_name) is not None:
                yield attribute.name, of_function[attribute.ref_attr_name]
        elif attribute.type in (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS):
            _refuse_graphs()
        else:
            yield attribute.name, onnx.helper.get_attribute_value(attribute)


def _refuse_graphs() -> NoReturn:
    raise UnsupportedError(f"the ONNX Script function has If, Loop or Scan: {_REMEDY}")


def _functions_of(
    function: onnxscript.OnnxFunction[..., object],
) -> dict[tuple[str, str], onnxscript.OnnxFunction[..., object]]:
    """Return the functions decorated with `@script` that a function can call, by domain and name."""
    names = inspect.getclosurevars(function.function)
    functions = [
        item for item in (*names.globals.values(), *names.nonlocals.values()) if hasattr(item, "function_ir")
    ]
    return {(item.function_ir.domain, item.name): item for item in functions}


def _count(
    op_type: str, schema: onnx.defs.OpSchema | None, args: Sequence[object], kwargs: Mapping[str, object]
) -> int:
    """Return the number of results of a call of an operator, counted as ONNX Script does."""
    if schema is None:
        return 1
    if op_type == "Split":
        count, sizes = kwargs.get("num_outputs"), args[1] if len(args) > 1 else None
        if isinstance(count, int) and count:
            return count
        if not isinstance(sizes, Sized):
            raise UnsupportedError("Split needs `num_outputs`, or constant sizes")
        return len(sizes)
    # The running statistics are outputs only in training mode.
    if op_type == "BatchNormalization" and not kwargs.get("training_mode"):
        return 1
    return len(schema.outputs)
