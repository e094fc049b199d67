"""What a symbolic function returns is held against its operator: too much, too little, or no value."""

import numpy as np
import onnx_ir as ir
import pytest
import torch
from onnx import TensorProto, helper

import opsetta
from opsetta import OpsettaError, UnsupportedOperatorsError
from opsetta.exporter.lowering.conversion import convert
from opsetta.registration import GraphContext, ResultError, Value, default_registry

X = torch.randn(2, 3)


@pytest.fixture
def registry():
    return default_registry.fork()


def export(registry, function, returned, name="aten::relu"):
    def symbolic(g: GraphContext, self: Value):
        return returned(g, self)

    registry.register(name, 9, symbolic)
    return opsetta.export(function, (X,), opset=13, registry=registry)


def same(g, x):
    return g.op("Identity", x)


WRONG = {
    "two values": (lambda g, x: (same(g, x), x), "returned 2 values, but the operator has one output"),
    "a list of two": (lambda g, x: [x, x], "returned 2 values, but the operator has one output"),
    "a value and None": (
        lambda g, x: (x, None),
        r"returned a tuple of 2 \(value, NoneType\), but the operator has one",
    ),
    "a string": (lambda g, x: "Relu", "returned str 'Relu', but the operator has one output"),
    "a dict": (lambda g, x: {"y": x}, "returned dict {.*, but the operator has one output"),
    "a node": (lambda g, x: same(g, x).producer(), "returned Node .*, but the operator has one output"),
    "a list of a string": (
        lambda g, x: ["y"],
        r"returned a list of 1 \(str\), but the operator has one output",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_not_one_value_is_refused(registry, name):
    returned, message = WRONG[name]
    with pytest.raises(ResultError, match=message) as caught:
        export(registry, torch.relu, returned)
    assert isinstance(caught.value, OpsettaError)
    assert "aten::relu" in str(caught.value)
    assert "test_symbolic_results.export.<locals>.symbolic" in str(caught.value)


@pytest.mark.parametrize(
    ("came", "shown"), [(None, "None"), ([], r"a list of 0 \(\)"), ([None], "a list of 1")]
)
def test_nothing_for_a_result_that_is_used_is_refused(registry, came, shown):
    with pytest.raises(
        UnsupportedOperatorsError, match=f"returned {shown}.*, but the operator has one output"
    ):
        export(registry, torch.relu, lambda g, x: came)


@pytest.mark.parametrize(
    "returned",
    [same, lambda g, x: [same(g, x)], lambda g, x: 1.5, lambda g, x: np.float32(2), lambda g, x: [[1.0] * 3]],
)
def test_one_value_or_constant_is_taken(registry, returned):
    assert export(registry, torch.relu, returned).opset == 13


def largest(x):
    return torch.max(x, 1)


NAME = "aten::max.dim"


def register_largest(registry, returned):
    def symbolic(g: GraphContext, self: Value, dim: int, keepdim: bool = False):
        return returned(g, g.op("ReduceMax", self, axes=[dim], keepdims=0))

    registry.register(NAME, 9, symbolic)


def test_a_result_that_is_not_used_may_be_left_out(registry):
    register_largest(registry, lambda g, y: (y, None))
    program = opsetta.export(lambda x: largest(x)[0], (X,), opset=13, registry=registry)
    program.verify((X,))


@pytest.mark.parametrize("returned", [lambda g, y: (y, None), lambda g, y: y])
def test_a_result_that_is_used_may_not_be_left_out(registry, returned):
    register_largest(registry, returned)
    with pytest.raises(
        UnsupportedOperatorsError, match="but the operator has 2 outputs, and the model uses '.*'"
    ):
        opsetta.export(lambda x: tuple(largest(x)), (X,), opset=13, registry=registry)


def test_more_results_than_outputs_are_refused(registry):
    register_largest(registry, lambda g, y: (y, y, y))
    with pytest.raises(ResultError, match="returned 3 values, but the operator has 2 outputs"):
        opsetta.export(lambda x: largest(x)[0], (X,), opset=13, registry=registry)


def file_of(op_type):
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 3]) for name in "xy")
    graph = helper.make_graph([helper.make_node(op_type, ["x"], ["y"])], "g", [x], [y])
    return ir.from_proto(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)]))


def test_a_composition_without_a_result_is_refused(registry):
    registry.register("onnx::Mish", 9, lambda g, X: None)
    with pytest.raises(ResultError, match="of onnx::Mish .* returned None, but the operator has one output"):
        export(registry, torch.relu, lambda g, x: g.op("Mish", x))
    with pytest.raises(ResultError, match="of onnx::Mish .* returned None, but the operator has one output"):
        convert(file_of("Mish"), 13, registry)


def test_a_composition_that_gives_no_value_is_refused(registry):
    registry.register("onnx::Mish", 9, lambda g, X: "Mish")
    with pytest.raises(
        ResultError, match="onnx::Mish .* returned str 'Mish', but the operator has one output"
    ):
        convert(file_of("Mish"), 13, registry)
