"""Runs a source graph with torch's own operators, node by node."""

from __future__ import annotations

import builtins
import math
import operator
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import onnx_ir as ir
import torch
from onnx_ir import tensor_adapters

from ...registration import OpsettaError
from ...registration.arguments import arguments, overloaded_name
from ..torch_boundary.operators.overloads import OpOverload, by_name, operator_of, schema_of

Environment = dict[ir.Value, Any]
"""The tensors and Python numbers of graph values."""

_SYMBOLIC: dict[str, Callable[..., object]] = {
    "and": lambda a, b: a and b,
    "or": lambda a, b: a or b,
    "xor": operator.xor,
    "not": operator.not_,
    "ite": lambda cond, a, b: a if cond else b,
    "sqrt": math.sqrt,
    "floor": math.floor,
    "ceil": math.ceil,
    "trunc": math.trunc,
    # Nothing to do: sizes are checked before the graph runs.
    "require": lambda value, condition, text: value,
}
"""Functions of the `sym` dialect that `operator` and `builtins` lack, or have under another name."""


def run(graph: ir.Graph, inputs: Mapping[ir.Value, object]) -> Iterator[tuple[ir.Node, list[object]]]:
    """Run a graph's nodes in order; yield each node with its results, to which later nodes may write.

    Args:
        inputs: the values of the graph's inputs.

    Raises:
        OpsettaError: PyTorch has no function for a node, or the function fails.
    """
    environment: Environment = dict(inputs)
    for value in graph.initializers.values():
        if value.const_value is not None:
            environment[value] = _tensor(value.const_value)
    for node in graph:
        results = _results(node, environment)
        environment.update(zip(node.outputs, results, strict=True))
        yield node, results


def _tensor(constant: ir.TensorProtocol) -> torch.Tensor:
    raw = getattr(constant, "raw", None)
    if isinstance(raw, torch.Tensor):
        return raw.detach()
    dtype = tensor_adapters.to_torch_dtype(constant.dtype)
    if not constant.nbytes:
        return torch.empty(tuple(constant.shape.numpy()), dtype=dtype)
    # Copied, because torch warns about read-only memory.
    return torch.frombuffer(bytearray(constant.tobytes()), dtype=dtype).reshape(constant.shape.numpy())


def _results(node: ir.Node, environment: Environment) -> list[Any]:
    node_arguments = {key: _with_results(item, environment) for key, item in arguments(node).items()}
    if node.domain == "prim" and node.op_type == "If":
        branch = "then_branch" if node_arguments["condition"] else "else_branch"
        return _run_block(node.attributes[branch].as_graph(), environment)
    if node.domain == "prim" and node.op_type == "Loop":
        return _run_loop(node.attributes["body"].as_graph(), node_arguments, environment)
    function = _function(node)
    if function is None:
        raise OpsettaError(
            f"node '{node.name}' ({overloaded_name(node)}) cannot be run in PyTorch by itself. All results "
            "before it are within tolerance. To compare later results, return them from the model and "
            "call verify"
        )
    try:
        with torch.no_grad():
            result = function(**node_arguments)
    except (RuntimeError, TypeError, ValueError, IndexError, ArithmeticError) as error:
        raise OpsettaError(
            f"PyTorch could not run node '{node.name}' ({overloaded_name(node)}): {error}"
        ) from error
    return list(result) if isinstance(result, (list, tuple)) else [result]


def _with_results(item: object, environment: Environment) -> Any:
    if isinstance(item, list):
        return [_with_results(member, environment) for member in item]
    return environment[item] if isinstance(item, ir.Value) else item


def _run_block(graph: ir.Graph, environment: Environment) -> list[Any]:
    for node in graph:
        environment.update(zip(node.outputs, _results(node, environment), strict=True))
    return [environment[value] for value in graph.outputs]


def _run_loop(body: ir.Graph, node_arguments: Mapping[str, Any], environment: Environment) -> list[Any]:
    carried: list[Any] = node_arguments["carried"]
    # Like prim::Loop, test the condition before the first iteration.
    condition, iteration = bool(node_arguments["condition"]), 0
    while condition and iteration < node_arguments["max_trip_count"]:
        environment.update(zip(body.inputs, [iteration, *carried], strict=True))
        condition, *carried = _run_block(body, environment)
        iteration += 1
    return carried


def _function(node: ir.Node) -> Callable[..., object] | None:
    """Return the function that computes a node from arguments by name; None if there is none."""
    if node.domain == "sym":
        name = node.op_type
        function = _SYMBOLIC.get(name) or getattr(operator, name, None) or getattr(builtins, name, None)
        # Python's functions take their operands by position.
        return None if function is None else lambda **operands: function(*operands.values())
    if node.domain == "prim" and node.op_type == "Constant":
        return lambda value: value
    if node.domain == "aten" and node.op_type == "alias":
        return lambda self: self
    overload = operator_of(f"{node.domain}::{node.op_type}", node.overload)
    if overload is None:
        return None
    if node.domain == "aten" and node.op_type == "view" and "size" in arguments(node):
        # `view` may fail, because a pass may have recomputed the tensor in another memory layout.
        return lambda self, size: self.reshape(size)
    return _accepting_numbers(overload)


def _accepting_numbers(overload: OpOverload) -> Callable[..., object]:
    """Wrap an operator to take arguments by name, and Python numbers in place of tensors."""
    tensors = {a.name for a in schema_of(overload).arguments if str(a.type) == "Tensor"}
    run = by_name(overload)

    def call(**node_arguments: object) -> object:
        for name in tensors & node_arguments.keys():
            if isinstance(node_arguments[name], (bool, int, float)):
                node_arguments[name] = torch.tensor(node_arguments[name])
        return run(**node_arguments)

    return call
