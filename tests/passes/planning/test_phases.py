"""Phases of training graphs, and the execution order that they imply."""

import onnx_ir as ir
import pytest

from opsetta.passes.planning import APPLY_GRADIENT, execution_order, order_by_phase
from opsetta.registration import MODULE, PLAN_PHASE


def value(name: str) -> ir.Value:
    return ir.Value(name=name, type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape([2]))


def graph_of(nodes: list[tuple[str, str, str, str]], inputs: str, outputs: str) -> ir.Graph:
    """A graph of nodes: name, module (with `!` for an update), inputs, outputs."""
    values = {name: value(name) for name in inputs.split()}
    made = []
    for name, module, read, written in nodes:
        new = [value(each) for each in written.split()]
        node = ir.Node("", "Sum", [values[each] for each in read.split()], outputs=new, name=name)
        values |= {each.name: each for each in new}
        if module.endswith("!"):
            node.metadata_props[PLAN_PHASE] = APPLY_GRADIENT
        if module.rstrip("!"):
            node.metadata_props[MODULE] = module.rstrip("!")
        made.append(node)
    given = [values[name] for name in inputs.split()]
    return ir.Graph(
        given, [values[name] for name in outputs.split()], nodes=made, opset_imports={"": 18}, name="g"
    )


def two_layers() -> ir.Graph:
    """x -> a -> relu -> b -> loss, and backwards; the updates come last."""
    return graph_of(
        [
            ("forward_a", "a", "x wa", "ya"),
            ("forward_relu", "relu", "ya", "yr"),
            ("forward_b", "b", "yr wb", "yb"),
            ("forward_loss", "loss", "yb", "loss"),
            ("backward_loss", "loss", "yb", "db"),
            ("derivative_b", "b", "db wb", "dr"),
            ("part_b", "b", "db", "pb"),
            ("gradient_b", "b", "pb yr", "gb"),
            ("backward_relu", "relu", "dr ya", "da"),
            ("gradient_a", "a", "da x", "ga"),
            ("rate", "!", "lr", "scaled"),
            ("apply_a", "a!", "ga wa scaled", "wa.updated"),
            ("apply_b", "b!", "gb wb scaled", "wb.updated"),
        ],
        "x wa wb lr",
        "loss wa.updated wb.updated",
    )


def phases(graph: ir.Graph) -> list[tuple[str, str]]:
    return [(node.name, node.metadata_props[PLAN_PHASE]) for node in graph]


def test_a_layer_calculates_gradients_then_derivatives_then_applies():
    graph = two_layers()
    order_by_phase(graph, ["loss"], [])
    assert phases(graph) == [
        ("forward_a", "forward"),
        ("forward_relu", "forward"),
        ("forward_b", "forward"),
        ("forward_loss", "forward"),
        ("rate", "apply_gradient"),
        ("backward_loss", "calc_derivative"),
        ("part_b", "calc_gradient"),
        ("gradient_b", "calc_gradient"),
        ("derivative_b", "calc_derivative"),
        ("apply_b", "apply_gradient"),
        ("backward_relu", "calc_derivative"),
        ("gradient_a", "calc_gradient"),
        ("apply_a", "apply_gradient"),
    ]


def test_a_second_run_changes_nothing():
    graph = two_layers()
    order_by_phase(graph, ["loss"], [])
    once = phases(graph)
    order_by_phase(graph, ["loss"], [])
    assert phases(graph) == once


def test_gradients_that_are_outputs_are_calculated_without_updates():
    graph = graph_of(
        [
            ("gradient", "a", "y x", "w.grad"),
            ("forward", "a", "x w", "y"),
        ][::-1],
        "x w",
        "y w.grad",
    )
    order_by_phase(graph, ["y"], ["w.grad"])
    assert phases(graph) == [("forward", "forward"), ("gradient", "calc_gradient")]


def test_what_reads_only_inputs_runs_before_its_first_reader():
    graph = graph_of(
        [
            ("transposed", "", "w", "t"),
            ("first", "a", "x", "y"),
            ("second", "b", "y t", "loss"),
        ],
        "x w",
        "loss",
    )
    order_by_phase(graph, ["loss"], [])
    assert [node.name for node in graph] == ["first", "transposed", "second"]


def test_a_shared_weight_is_applied_after_its_last_use():
    graph = graph_of(
        [
            ("forward_a", "a", "x w", "y"),
            ("forward_b", "b", "y w", "loss"),
            ("gradient_b", "b", "y", "gb"),
            ("derivative_b", "b", "y w", "da"),
            ("gradient_a", "a", "da x", "ga"),
            ("total", "a", "ga gb", "g"),
            ("apply", "a!", "g w", "w.updated"),
        ],
        "x w",
        "loss w.updated",
    )
    order_by_phase(graph, ["loss"], [])
    assert [node.name for node in graph][-1] == "apply"
    assert dict(phases(graph))["gradient_b"] == "calc_derivative"


@pytest.mark.parametrize("ranks", [None, {}])
def test_without_ranks_the_order_is_the_graphs(ranks):
    graph = two_layers()
    assert execution_order(graph, ranks) == list(graph)
