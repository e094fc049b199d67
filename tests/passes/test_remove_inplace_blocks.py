"""`remove_inplace` on branches and loops: what the graph becomes, and what is refused by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import onnx_ir as ir
import pytest
import torch

from opsetta.passes import remove_inplace
from opsetta.registration import MUTATES, GraphError, MutationError
from opsetta.registration.arguments import arguments, source_node

from .scripted_graph import source_graph
from .source_interpreter import run

X = torch.arange(6.0).reshape(2, 3)


def _functional(function: Callable[..., Any], *calls: tuple[Any, ...], mutations: str = "error") -> ir.Model:
    """The functional graph of a function, after it has been found to compute what the function does."""
    model = source_graph(function)
    assert remove_inplace(model, mutations)
    names = [value.name for value in model.graph.inputs]
    for given in calls:
        copied = [item.clone() if isinstance(item, torch.Tensor) else item for item in given]
        expected = list(function(*copied))
        found = run(model, dict(zip(names, given, strict=True)))[: len(expected)]
        torch.testing.assert_close(found, expected, rtol=0, atol=0)
    assert not remove_inplace(model)
    return model


def _all(graph: ir.Graph) -> Iterator[ir.Node]:
    for node in graph:
        yield node
        for attribute in node.attributes.values():
            if attribute.type == ir.AttributeType.GRAPH:
                yield from _all(attribute.as_graph())


def _only(model: ir.Model, name: str) -> ir.Node:
    [node] = [node for node in _all(model.graph) if node.op_type == name]
    return node


def written_in_a_branch(x: torch.Tensor, n: int):
    y = x.clone()
    row = y[0]
    if n > 0:
        y.add_(1)
    return y, row


def test_write_in_a_branch_becomes_its_output() -> None:
    model = _functional(written_in_a_branch, (X, 1), (X, 0))
    assert len(_only(model, "If").outputs) == 1


def one_of_two(x: torch.Tensor, n: int):
    y, z = x.clone(), x * 2
    w = y if n > 0 else z[1:]
    w.add_(1)
    y[0].mul_(3)
    return y, z, w


def test_branch_that_returns_one_of_two_tensors_writes_that_one() -> None:
    _functional(one_of_two, (X, 1), (X, 0))


def row_known_inside(x: torch.Tensor, n: int):
    y = x.clone()
    w = y[0]
    if n >= 0:
        w = y[n]
    w.add_(1)
    return y, w


def test_view_that_is_impossible_in_the_other_branch_is_not_computed() -> None:
    _functional(row_known_inside, (X, 1), (X, -7))


def both_new(x: torch.Tensor, n: int):
    y = x + 1 if n > 0 else x * 2
    y.add_(1)
    return (y,)


def test_new_tensors_of_both_branches_are_one_value() -> None:
    model = _functional(both_new, (X, 1), (X, 0))
    assert [node.op_type for node in model.graph] == ["gt", "If", "add"]


def counted(x: torch.Tensor, n: int):
    total = torch.zeros_like(x)
    for i in range(n):
        total += x
        total[0, i] = 7.0
    return (total,)


def test_buffer_written_in_a_loop_is_carried_once() -> None:
    model = _functional(counted, (X, 0), (X, 1), (X, 3))
    assert len(_only(model, "Loop").outputs) == 1
    assert not any(node.op_type == "If" for node in _all(model.graph))


def dynamic_programming(x: torch.Tensor, n: int):
    previous = x[0].clone()
    for i in range(n):
        current = torch.zeros_like(previous)
        current[0] = i + 1.0
        for j in range(2):
            current[j + 1] = torch.min(previous[j], current[j]) + x[1, j]
        previous = current
    return (previous,)


def test_row_that_becomes_the_next_is_carried_as_a_value() -> None:
    model = _functional(dynamic_programming, (X, 0), (X, 1), (X, 3))
    assert not any(node.op_type in ("If", "index_put") for node in _all(model.graph))


def moved(x: torch.Tensor, n: int):
    y = x.clone()
    for _ in range(n):
        y = y * 2
        y += 1
    y.mul_(3)
    return (y,)


def test_only_name_of_a_tensor_is_carried_as_a_value() -> None:
    model = _functional(moved, (X, 0), (X, 2))
    assert len(_only(model, "Loop").outputs) == 1
    assert not any(node.op_type == "If" for node in _all(model.graph))


def swapped(x: torch.Tensor, n: int):
    a, b = x.clone(), x * 2
    first = a
    for _ in range(n):
        a, b = b, a
        a.add_(1)
    b.mul_(5)
    return a, b, first


def test_swapped_tensors_are_followed() -> None:
    _functional(swapped, (X, 0), (X, 1), (X, 4))


def shrinking(x: torch.Tensor, n: int):
    whole = x[0].clone()
    y = whole
    for _ in range(n):
        y.add_(1)
        y = y[1:]
    y.mul_(2)
    return whole, y


def test_view_that_shrinks_in_every_iteration_is_followed() -> None:
    _functional(shrinking, (X, 0), (X, 1), (X, 2))


def state(x: torch.Tensor, count: torch.Tensor, n: int):
    for _ in range(n):
        if bool(count.sum() < 3):
            count.add_(1)
    return (x + count,)


def test_state_written_in_a_block_outlives_the_call() -> None:
    with pytest.raises(MutationError, match="'count'"):
        remove_inplace(source_graph(state))
    model = _functional(state, (X, torch.zeros(1), 5), mutations="outputs")
    assert model.graph.outputs[-1].metadata_props[MUTATES] == "count"
    inputs = {"x": X, "count": torch.zeros(1), "n": 5}
    torch.testing.assert_close(run(model, inputs)[-1], torch.full((1,), 3.0))


def reshaped(x: torch.Tensor, n: int):
    y = x.clone()
    flat = y.reshape(-1)
    flat.add_(n)
    return (y,)


def dead_after_reshape(x: torch.Tensor, n: int):
    flat = x.clone().reshape(-1)
    flat.add_(n)
    return (flat,)


def test_reshape_of_unknown_strides_is_refused_only_where_it_matters() -> None:
    with pytest.raises(GraphError, match=r"aten::reshape.default .* shares memory .* clone\(\)"):
        remove_inplace(source_graph(reshaped))
    _functional(dead_after_reshape, (X, 1))


def renamed(x: torch.Tensor, n: int):
    y = x.clone()
    if n > 0:
        y.unsqueeze_(0)
    return (y,)


def test_change_of_shape_in_place_across_a_block_is_refused() -> None:
    with pytest.raises(GraphError, match="without the underscore"):
        remove_inplace(source_graph(renamed))


def _listed(write_first: bool) -> ir.Model:
    """`xs.append(y)` with a write to `y` before or after it."""
    x, xs = ir.Value(name="x"), ir.Value(name="xs", type=ir.SequenceType(ir.TensorType(ir.DataType.FLOAT)))
    made = source_node("aten::neg", {"self": x}, num_outputs=1)
    [y] = made.outputs
    write = source_node("aten::relu_", {"self": y}, num_outputs=1)
    out = ir.Value(name="out", type=xs.type)
    append = source_node("list::append", {"self": xs, "item": y}, outputs=[out])
    nodes = [made, write, append] if write_first else [made, append, write]
    return ir.Model(ir.Graph([x, xs], [out], nodes=nodes, name="main"), ir_version=10)


def test_tensor_of_a_list_is_written_before_it_is_put_there_or_refused() -> None:
    model = _listed(write_first=True)
    assert remove_inplace(model)
    [append] = [node for node in model.graph if node.op_type == "append"]
    assert arguments(append)["item"].producer().op_type == "relu"
    with pytest.raises(GraphError, match=r"aten::relu_ .* list::append .* stored in a list"):
        remove_inplace(_listed(write_first=False))


def test_block_of_a_higher_order_operator_writes_to_its_own_tensors_only() -> None:
    x, y = ir.Value(name="x"), ir.Value(name="y")
    made = source_node("aten::neg", {"self": x}, num_outputs=1)
    write = source_node("aten::relu_", {"self": made.outputs[0]}, num_outputs=1)
    block = ir.Graph([x], write.outputs, nodes=[made, write], name="block")
    outer = source_node(
        "higher_order::map_impl", {"operand_1": y}, attributes=[ir.AttrGraph("graph_0", block)], num_outputs=1
    )
    model = ir.Model(ir.Graph([y], outer.outputs, nodes=[outer], name="main"), ir_version=10)
    assert remove_inplace(model)
    assert [node.op_type for node in block] == ["neg", "relu"]
    assert not remove_inplace(model)
