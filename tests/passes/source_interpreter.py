"""Records eager PyTorch calls as a source graph, and runs source graphs with torch's operators."""

from __future__ import annotations

import builtins
import operator
from typing import Any

import onnx_ir as ir
import torch
from onnx_ir import tensor_adapters

from opsetta.registration import ALIAS, INPLACE, KIND, MODULE, NUMBER
from opsetta.registration.arguments import arguments, source_node

_NUMBERS = {bool: "bool", int: "int", float: "float"}


Environment = dict[ir.Value, Any]


def _convert(item: Any, environment: Environment) -> Any:
    if isinstance(item, ir.Value):
        return environment[item]
    if isinstance(item, list):
        return [_convert(member, environment) for member in item]
    return tensor_adapters.to_torch_dtype(item) if isinstance(item, ir.DataType) else item


def overload_of(name: str, overload: str) -> Any:
    domain, _, op = name.partition("::")
    return getattr(getattr(getattr(torch.ops, domain), op), overload or "default")


def run(model: ir.Model, inputs: dict[str, Any]) -> list[Any]:
    """The outputs of a source graph. A `view` may need a copy once its base was computed anew."""
    return run_sharing(model, {k: v.clone() if isinstance(v, torch.Tensor) else v for k, v in inputs.items()})


def run_sharing(model: ir.Model, inputs: dict[str, Any]) -> list[Any]:
    """The outputs of a source graph that writes to the inputs themselves, where it writes to them."""
    environment: Environment = {
        value: inputs[value.name] for value in (*model.graph.inputs, *model.graph.initializers.values())
    }
    return _run_block(model.graph, environment)


def _run_block(graph: ir.Graph, environment: Environment) -> list[Any]:
    for node in graph:
        if node.domain == "prim" and node.op_type in _BLOCKS:
            results = _BLOCKS[node.op_type](node, environment)
        else:
            results = _call(node, environment)
        environment.update(zip(node.outputs, results, strict=True))
        for value, made in zip(node.outputs, results, strict=True):
            if isinstance(made, torch.Tensor):
                dtype = tensor_adapters.from_torch_dtype(made.dtype)
                assert value.dtype is None or value.dtype == dtype, node
                assert value.shape is None or _fits(value.shape, made), node
    return [environment[value] for value in graph.outputs]


def _fits(shape: ir.Shape, made: torch.Tensor) -> bool:
    return len(shape) == made.dim() and all(
        not isinstance(size, int) or size == real for size, real in zip(shape, made.shape, strict=True)
    )


def _run_if(node: ir.Node, environment: Environment) -> list[Any]:
    given = arguments(node)
    then_branch, else_branch = (node.attributes[name].as_graph() for name in ("then_branch", "else_branch"))
    return _run_block(then_branch if _convert(given["condition"], environment) else else_branch, environment)


def _run_loop(node: ir.Node, environment: Environment) -> list[Any]:
    given = {key: _convert(item, environment) for key, item in arguments(node).items()}
    body, carried = node.attributes["body"].as_graph(), given["carried"]
    going, iteration = bool(given["condition"]), 0
    while going and iteration < given["max_trip_count"]:
        environment.update(zip(body.inputs, [iteration, *carried], strict=True))
        going, *carried = _run_block(body, environment)
        iteration += 1
    return carried


_BLOCKS = {"If": _run_if, "Loop": _run_loop}


def _call(node: ir.Node, environment: Environment) -> list[Any]:
    given = {key: _convert(item, environment) for key, item in arguments(node).items()}
    if node.metadata_props.get(INPLACE) == "true":
        # A normalization in training writes its statistics here too; the graph has them as further nodes.
        given = {k: v.clone() if isinstance(v, torch.Tensor) else v for k, v in given.items()}
    if node.domain == "sym":
        result = getattr(operator, node.op_type)(*given.values())
    elif node.domain == "prim" and node.op_type == "Constant":
        result = given["value"]
    elif node.domain == "prim" and node.op_type in ("dtype", "device"):
        result = getattr(given["a"], node.op_type)
    elif node.domain == "prim":
        result = getattr(builtins, node.op_type)(*given.values())
    elif node.op_type == "view" and "size" in given:
        result = given["self"].reshape(given["size"])
    elif node.op_type == "alias" and not isinstance(given["self"], torch.Tensor):
        result = given["self"]
    else:
        op = overload_of(f"{node.domain}::{node.op_type}", node.overload)
        for argument in op._schema.arguments:
            if str(argument.type) == "Tensor" and isinstance(given.get(argument.name), (bool, int, float)):
                given[argument.name] = torch.tensor(given[argument.name])
        result = op(**given)
    return list(result) if isinstance(result, (list, tuple)) else [result]


class Recorder:
    """Calls operators eagerly and keeps a source node of each, annotated as capture annotates.

    Attributes:
        tensors: what each value is in the eager run, at any time.
        originals: the inputs before anything was written.
    """

    def __init__(self, shapes: bool = True, dtypes: bool = True):
        self.shapes = shapes
        self.dtypes = dtypes
        self.tensors: dict[ir.Value, Any] = {}
        self.originals: dict[str, Any] = {}
        self.inputs: list[ir.Value] = []
        self.nodes: list[ir.Node] = []

    def _value(self, item: Any, name: str | None = None) -> ir.Value:
        value = ir.Value(name=name)
        if isinstance(item, torch.Tensor):
            if self.dtypes:
                value.type = ir.TensorType(tensor_adapters.from_torch_dtype(item.dtype))
            if self.shapes:
                value.shape = ir.Shape(item.shape)
        else:
            value.metadata_props[NUMBER] = _NUMBERS[type(item)]
            value.type, value.shape = ir.TensorType(ir.DataType.INT64), ir.Shape(())
        self.tensors[value] = item
        return value

    def input(self, item: Any, name: str = "x", kind: str = "user") -> ir.Value:
        self.originals[name] = item.clone() if isinstance(item, torch.Tensor) else item
        value = self._value(item, name)
        value.metadata_props[KIND] = kind
        self.inputs.append(value)
        return value

    def call(self, name: str, overload: str = "default", /, **given: Any) -> Any:
        """Run an operator and record it; its output value, or a list of them."""
        op = overload_of(f"aten::{name}", overload)
        values = {key: _convert(item, self.tensors) for key, item in given.items()}
        result = op(**values)
        results = result if isinstance(result, (list, tuple)) else [result]
        outputs = [self._value(item) for item in results]
        metadata = {MODULE: "block.0"}
        first = next(iter(values.values()), None)
        if isinstance(result, torch.Tensor) and not op._schema.is_mutable and isinstance(first, torch.Tensor):
            same = first.untyped_storage()._cdata == result.untyped_storage()._cdata
            if not same:
                metadata[ALIAS] = "false"
        self.nodes.append(
            source_node(f"aten::{name}", given, overload=overload, outputs=outputs, metadata_props=metadata)
        )
        return outputs if isinstance(result, (list, tuple)) else outputs[0]

    def model(self, *outputs: ir.Value) -> ir.Model:
        graph = ir.Graph(self.inputs, list(outputs), nodes=self.nodes, name="main")
        return ir.Model(graph, ir_version=10)
