"""Finds the first node outside tolerance: runs PyTorch and ONNX once and compares intermediate results."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import onnx_ir as ir
import torch
import torch.fx

from ....registration import MODULE, NUMBER
from ....registration.arguments import overloaded_name
from ...captured_graph.capture import Capture
from ...torch_boundary.containers import pytree
from .. import source_execution
from ..runner import Runner
from ..sessions import torch_values
from .verification import OutputReport, compare


@dataclasses.dataclass(frozen=True)
class Mismatch:
    """The first source node whose result is outside tolerance.

    Attributes:
        node: the name of the source node.
        operator: the qualified name of its operator with overload, `aten::conv2d.default`.
        module: the path of the user's module that called it.
        report: the error of the node's result.
    """

    node: str
    operator: str
    module: str
    report: OutputReport

    def __str__(self) -> str:
        return (
            f"node '{self.node}' ({self.operator}) in module '{self.module or '<root>'}': "
            f"largest absolute error {self.report.max_absolute_error:.3g} at {list(self.report.index)}"
        )


def comparable(source: ir.Model) -> list[ir.Value]:
    """Return the tensors of a source graph that can be added as outputs to compare them."""
    return [
        value
        for node in source.graph
        for value in node.outputs
        if NUMBER not in value.metadata_props and isinstance(value.type, ir.TensorType)
    ]


def locate(
    capture: Capture,
    model: ir.Model,
    compared_values: list[ir.Value],
    leaves: Sequence[object],
    feed: Mapping[str, object],
    rtol: float | None,
    atol: float | None,
) -> Mismatch | None:
    """Return the first mismatch of a lowered capture in the order of its source nodes, or None.

    The arguments are those of `node_errors`.
    """
    for node, _, report in node_errors(capture, model, compared_values, leaves, feed, rtol, atol):
        if not report.within_tolerance:
            module = node.metadata_props.get(MODULE, "")
            return Mismatch(node.name or "", overloaded_name(node), module, report)
    return None


def node_errors(
    capture: Capture,
    model: ir.Model,
    compared_values: list[ir.Value],
    leaves: Sequence[object],
    feed: Mapping[str, object],
    rtol: float | None = None,
    atol: float | None = None,
) -> Iterator[tuple[ir.Node, ir.Value, OutputReport]]:
    """Compare intermediate results, in the order of the source nodes.

    Args:
        model: the lowered capture, with `compared_values` as its last outputs.
        leaves: the flattened arguments of the call.
        feed: the same arguments by the names of the model's inputs.

    Yields:
        The source node, its result in the source graph, and the error.
    """
    results = Runner.of_model(model).run(feed)
    actual = dict(zip(compared_values, results[len(results) - len(compared_values) :], strict=True))
    for node, pairs in _eager_results(capture, leaves):
        for value, result in pairs:
            if value not in actual or not isinstance(result, torch.Tensor):
                continue
            # The ONNX model has complex intermediate results as real pairs.
            result = torch_values.as_real(result)
            yield (
                node,
                value,
                compare(value.name or "", torch_values.to_torch(actual[value]), result, rtol, atol),
            )


def _eager_results(
    capture: Capture, leaves: Sequence[object]
) -> Iterator[tuple[ir.Node, Iterable[tuple[ir.Value, object]]]]:
    """Run a captured graph in PyTorch; yield each source node with pairs of (value, result)."""
    if capture.exported is None:
        # Without an ExportedProgram, run the source graph.
        input_leaves = [
            leaf for leaf, name in zip(leaves, capture.interface.inputs, strict=True) if name is not None
        ]
        real_leaves = [
            torch_values.as_real(leaf) if isinstance(leaf, torch.Tensor) else leaf for leaf in input_leaves
        ]
        inputs = dict(zip(capture.source.graph.inputs, real_leaves, strict=False))
        for node, results in source_execution.run(capture.source.graph, inputs):
            yield node, zip(node.outputs, results, strict=True)
        return
    # Results are mapped to source values, because the exported graph's nodes have other names.
    eager = dict(_recorded_results(capture, leaves))
    for node in capture.source.graph:
        yield node, [(value, eager[value]) for value in node.outputs if value in eager]


class _ResultRecorder(torch.fx.Interpreter):
    """Runs a captured graph and copies every result at once, before a later node may write to it."""

    def __init__(self, module: torch.fx.GraphModule):
        super().__init__(module, garbage_collect_values=False)
        self.results: dict[str, Any] = {}

    def run_node(self, n: torch.fx.Node) -> object:
        result = super().run_node(n)
        if n.op == "call_function":
            self.results[n.name] = pytree.tree_map_only(
                torch.Tensor, lambda tensor: tensor.detach().clone(), result
            )
        return result


def _recorded_results(capture: Capture, leaves: Sequence[object]) -> Iterator[tuple[ir.Value, torch.Tensor]]:
    exported = capture.exported
    state = {**exported.state_dict, **exported.constants}
    users = iter(leaves)
    inputs = []
    for specification in exported.graph_signature.input_specs:
        item = next(users) if specification.target is None else state[specification.target]
        # Copied, because in-place operators of the graph would change the caller's tensors or the weights.
        inputs.append(item.detach().clone() if isinstance(item, torch.Tensor) else item)
    recorder = _ResultRecorder(exported.graph_module)
    with torch.no_grad():
        recorder.run(*inputs)
    for name, values in capture.origins.items():
        results = recorder.results.get(name)
        pairs = (
            zip(values, results, strict=True) if isinstance(values, list) and results else [(values, results)]
        )
        for value, result in pairs:
            if isinstance(value, ir.Value) and isinstance(result, torch.Tensor):
                yield value, result
