"""Equality of source models: whatever is changed in one place is noticed, and named."""

from __future__ import annotations

import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
import torch

import opsetta
from opsetta.exporter.captured_graph.capture import Capture
from opsetta.exporter.files.graph_file.equality import difference
from opsetta.registration.arguments import arguments, replace_arguments


def branching(x: torch.Tensor, y: torch.Tensor) -> dict[str, Any]:
    z = torch.cond(x.sum() > 0, lambda a, b: a * 2 + b, lambda a, b: a - b, (x, y))
    return {"z": torch.nn.functional.elu(z, 0.0), "k": torch.sub(x, y, alpha=1).topk(1, sorted=True), "n": 3}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(3))
            self.bias = torch.nn.Parameter(torch.zeros(3))

        def forward(self, x: torch.Tensor, y: torch.Tensor) -> dict[str, Any]:
            return branching(x * self.weight + self.bias, y)

    program = opsetta.export(
        Model().eval(), (torch.ones(2, 3), torch.ones(2, 3)), dynamic_shapes={"x": {0: "n"}, "y": {0: "n"}}
    )
    found = tmp_path_factory.mktemp("equality") / "model"
    program.save_source(found)
    return found


def _node(capture: Capture, op_type: str) -> ir.Node:
    return next(node for node in capture.source.graph.all_nodes() if node.op_type == op_type)


def _argument(op_type: str, name: str, value: Any) -> Callable[[Capture], None]:
    def change(capture: Capture) -> None:
        node = _node(capture, op_type)
        assert name in arguments(node)
        replace_arguments(node, {**arguments(node), name: value})

    return change


def _swap_inputs(capture: Capture) -> None:
    node = _node(capture, "sub")
    first, second = node.inputs
    node.replace_input_with(0, second)
    node.replace_input_with(1, first)


def _swap_in_a_block(capture: Capture) -> None:
    block = next(a for a in _node(capture, "cond").attributes.values() if a.type == ir.AttributeType.GRAPH)
    block.as_graph().inputs.reverse()


def _one_bit(capture: Capture) -> None:
    value = capture.source.graph.initializers["bias"]
    value.const_value = ir.tensor(-value.const_value.numpy())  # type: ignore[union-attr]


def _order_of_initializers(capture: Capture) -> None:
    held = list(capture.source.graph.initializers.values())
    capture.source.graph.initializers.clear()
    for value in reversed(held):
        capture.source.graph.initializers.add(value)


def _order_of_nodes(capture: Capture) -> None:
    graph = capture.source.graph
    node = graph[0]
    other = next(item for item in graph if node not in item.predecessors() and item is not node)
    graph.remove(other)
    graph.insert_before(node, other)


def _dimension(capture: Capture) -> None:
    value = capture.source.graph.inputs[0]
    value.shape = ir.Shape(["m", 3])


def _unknown_rank(capture: Capture) -> None:
    _node(capture, "sub").outputs[0].shape = None


def _fewer_outputs(capture: Capture) -> None:
    capture.source.graph.outputs.pop()


def _attribute(owner: Callable[[Capture], Any], name: str, value: Any) -> Callable[[Capture], None]:
    return lambda capture: setattr(owner(capture), name, value)


def _metadata(owner: Callable[[Capture], Any], key: str, value: str) -> Callable[[Capture], None]:
    return lambda capture: owner(capture).metadata_props.update({key: value})


def _sub(capture: Capture) -> ir.Node:
    return _node(capture, "sub")


CHANGES: dict[str, tuple[Callable[[Capture], None], str]] = {
    "node name": (_attribute(_sub, "name", "other"), "name of node"),
    "overload": (_attribute(_sub, "overload", "Scalar"), "overload of node"),
    "domain": (_attribute(_sub, "domain", "mine"), "domain of node"),
    "bool for int": (_argument("topk", "k", True), "attribute 'arguments'"),
    "float for int": (_argument("topk", "k", 1.0), "attribute 'arguments'"),
    "sign of zero": (_argument("elu", "alpha", -0.0), "attribute 'arguments'"),
    "inputs": (_swap_inputs, "inputs of node"),
    "block": (_swap_in_a_block, "input of attribute"),
    "node metadata": (_metadata(_sub, "opsetta.module", "there"), "metadata of node"),
    "value metadata": (_metadata(lambda c: c.source.graph.inputs[1], "a", "b"), "metadata of an input"),
    "model metadata": (_metadata(lambda c: c.source, "opsetta.ranges", "{}"), "model's metadata"),
    "value name": (_attribute(lambda c: _sub(c).outputs[0], "name", "other"), "name of an output"),
    "value type": (_attribute(lambda c: _sub(c).outputs[0], "type", None), "type of an output"),
    "dimension": (_dimension, "sizes of an input"),
    "unknown rank": (_unknown_rank, "sizes of an output"),
    "sign of a weight": (_one_bit, "contents of initializer 'bias'"),
    "order of initializers": (_order_of_initializers, "initializers of the graph"),
    "order of nodes": (_order_of_nodes, "node 0 of the graph"),
    "outputs": (_fewer_outputs, "number of the outputs of the graph"),
    "interface": (_attribute(lambda c: c.interface, "numbers", [1]), "interface"),
    "output names": (_attribute(lambda c: c, "output_names", []), "interface"),
    "opset imports": (lambda c: c.source.graph.opset_imports.update(aten=2), "opset imports"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_is_noticed(name: str, path: pathlib.Path) -> None:
    change, place = CHANGES[name]
    first, second = opsetta.load(path)._capture, opsetta.load(path)._capture
    assert difference(first, second) is None
    change(second)
    assert place in (difference(first, second) or "")
    assert difference(second, first) is not None


def test_equality_does_not_ask_how_the_contents_are_kept(path: pathlib.Path, tmp_path: pathlib.Path) -> None:
    first, second = opsetta.load(path), opsetta.load(path)
    for value in second.source.graph.initializers.values():
        value.const_value = ir.tensor(np.array(value.const_value.numpy()), name="other")  # type: ignore[union-attr]
    assert first.difference(second) is None
    second.save_source(tmp_path / "model")
    assert (tmp_path / "model").read_bytes() == path.read_bytes()
