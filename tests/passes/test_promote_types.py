"""`promote_types` on graphs of one or two nodes."""

from __future__ import annotations

import onnx_ir as ir
import torch
from onnx_ir import DataType

from opsetta.passes import PromoteTypes, promote_types
from opsetta.registration import MUTATES
from opsetta.registration.arguments import arguments, source_node

from .source_interpreter import Recorder, run


def _ops(model: ir.Model) -> list[str]:
    return [node.op_type for node in model.graph]


def _checked(recorder: Recorder, *values: ir.Value) -> ir.Model:
    model = recorder.model(*values)
    assert PromoteTypes()(model).modified
    torch.testing.assert_close(run(model, recorder.originals), [recorder.tensors[value] for value in values])
    assert not PromoteTypes()(model).modified
    return model


def test_one_float_type_is_left_alone() -> None:
    recorder = Recorder()
    x = recorder.input(torch.ones(2))
    y = recorder.call("add", "Tensor", self=x, other=2.5)
    assert not promote_types(recorder.model(recorder.call("sqrt", self=y)))


def test_narrower_tensor_is_cast() -> None:
    recorder = Recorder()
    x, h = recorder.input(torch.ones(2)), recorder.input(torch.ones(2, dtype=torch.float16), "h")
    model = _checked(recorder, recorder.call("mul", "Tensor", self=h, other=x))
    assert _ops(model) == ["to", "mul"]
    assert model.graph[0].inputs[0] is h


def test_zero_dim_tensor_weighs_less_than_a_dimensioned_one() -> None:
    recorder = Recorder()
    h = recorder.input(torch.ones(2, dtype=torch.float16), "h")
    scale = recorder.input(torch.tensor(2.0), "scale")
    model = _checked(recorder, recorder.call("mul", "Tensor", self=h, other=scale))
    assert model.graph[0].inputs[0] is scale
    assert model.graph[0].outputs[0].dtype == DataType.FLOAT16


def test_float_number_casts_an_integer_tensor_and_stays() -> None:
    recorder = Recorder()
    x = recorder.input(torch.tensor([1, 2]))
    y = recorder.call("add", "Tensor", self=x, other=2.5)
    model = _checked(recorder, y)
    assert _ops(model) == ["to", "add"]
    assert arguments(y.producer())["other"] == 2.5


def test_division_of_integers_is_in_float_and_rounding_keeps_them() -> None:
    recorder = Recorder()
    x = recorder.input(torch.tensor([5, 2]))
    y = recorder.call("div", "Tensor", self=x, other=x)
    z = recorder.call("div", "Tensor_mode", self=x, other=x, rounding_mode="floor")
    model = _checked(recorder, y, z)
    assert _ops(model) == ["to", "div", "div"]


def test_one_cast_serves_every_reader() -> None:
    recorder = Recorder()
    x = recorder.input(torch.tensor([5, 2]))
    model = _checked(recorder, recorder.call("sin", self=x), recorder.call("cos", self=x))
    assert _ops(model) == ["to", "sin", "cos"]


def test_dtype_argument_becomes_a_cast() -> None:
    recorder = Recorder()
    x = recorder.input(torch.ones(2, dtype=torch.float16))
    y = recorder.call("softmax", "int", self=x, dim=0, dtype=DataType.FLOAT)
    model = _checked(recorder, y)
    assert _ops(model) == ["to", "softmax"]
    assert list(arguments(y.producer())) == ["self", "dim"]


def test_sum_of_bools_is_in_int64() -> None:
    recorder = Recorder()
    x = recorder.input(torch.tensor([True, True]))
    assert _ops(_checked(recorder, recorder.call("sum", self=x))) == ["to", "sum"]


def test_comparison_promotes_and_gives_bool() -> None:
    recorder = Recorder()
    x = recorder.input(torch.tensor([1, 2]))
    y = recorder.call("eq", "Scalar", self=x, other=2.0)
    _checked(recorder, y)
    assert y.dtype == DataType.BOOL


def test_logical_operands_become_bool() -> None:
    recorder = Recorder()
    x, y = recorder.input(torch.tensor([0.5, 0.0])), recorder.input(torch.tensor([1, 2]), "y")
    model = _checked(recorder, recorder.call("logical_and", self=x, other=y))
    assert _ops(model) == ["to", "to", "logical_and"]


def test_byte_condition_of_where_becomes_bool() -> None:
    recorder = Recorder()
    condition = recorder.input(torch.tensor([1, 0], dtype=torch.uint8), "condition")
    x = recorder.input(torch.ones(2))
    model = _checked(recorder, recorder.call("where", "ScalarOther", condition=condition, self=x, other=0))
    assert _ops(model) == ["to", "where"]


def test_result_of_another_type_than_captured_is_cast_back() -> None:
    x = ir.Value(name="x", type=ir.TensorType(DataType.FLOAT16), shape=ir.Shape([2]))
    y = ir.Value(name="y", type=ir.TensorType(DataType.FLOAT), shape=ir.Shape([2]))
    out = ir.Value(name="out", type=ir.TensorType(DataType.FLOAT16), shape=ir.Shape([2]))
    out.metadata_props[MUTATES] = "x"
    node = source_node("aten::add", {"self": x, "other": y}, overload="Tensor", outputs=[out])
    reader = source_node("aten::relu", {"self": out}, num_outputs=1)
    model = ir.Model(ir.Graph([x, y], [out, *reader.outputs], nodes=[node, reader], name="g"), ir_version=10)
    assert promote_types(model)
    assert _ops(model) == ["to", "add", "to", "relu"]
    cast = model.graph.outputs[0]
    assert out.dtype == DataType.FLOAT
    assert cast.dtype == DataType.FLOAT16
    assert cast.metadata_props[MUTATES] == "x"
    assert reader.inputs[0] is cast
    assert not promote_types(model)


def test_number_in_the_place_of_a_tensor_takes_its_type() -> None:
    recorder = Recorder()
    x = recorder.input(torch.ones(2, dtype=torch.float64))
    model = _checked(recorder, recorder.call("sub", "Tensor", self=2.5, other=x))
    assert _ops(model) == ["scalar_tensor", "sub"]


def test_number_wraps_around_a_narrow_integer_type() -> None:
    recorder = Recorder()
    x = recorder.input(torch.tensor([3, 5], dtype=torch.uint8))
    y = recorder.call("remainder", "Scalar", self=x, other=-1)
    _checked(recorder, y)
    assert arguments(y.producer())["other"] == 255


def test_fraction_that_follows_integers_is_cut_off() -> None:
    recorder = Recorder()
    x = recorder.input(torch.tensor([3, 5]))
    y = recorder.call("addcmul", self=x, tensor1=x, tensor2=x, value=-1.5)
    _checked(recorder, y)
    assert arguments(y.producer())["value"] == -1


def test_lists_that_gain_a_dimension_promote_as_dimensioned() -> None:
    recorder = Recorder()
    x, y = recorder.input(torch.tensor(2.0, dtype=torch.float64)), recorder.input(torch.ones(2), "y")
    joined = recorder.call("hstack", tensors=[x, y])
    assert _ops(_checked(recorder, joined)) == ["to", "hstack"]
    assert joined.dtype == DataType.DOUBLE


def test_unknown_rank_trusts_the_captured_type() -> None:
    x = ir.Value(name="x", type=ir.TensorType(DataType.FLOAT16))
    y = ir.Value(name="y", type=ir.TensorType(DataType.FLOAT))
    out = ir.Value(name="out", type=ir.TensorType(DataType.FLOAT16))
    node = source_node("aten::add", {"self": x, "other": y}, overload="Tensor", outputs=[out])
    model = ir.Model(ir.Graph([x, y], [out], nodes=[node], name="g"), ir_version=10)
    assert promote_types(model)
    assert model.graph[0].inputs[0] is y


def _value(name: str, dtype: DataType, *dims: int) -> ir.Value:
    return ir.Value(name=name, type=ir.TensorType(dtype), shape=ir.Shape(dims))


def _branch(node: ir.Node, name: str) -> ir.Graph:
    return ir.Graph([], node.outputs, nodes=[node], name=name)


def _if(condition: ir.Value, then_node: ir.Node, else_node: ir.Node) -> ir.Node:
    branches = [
        ir.AttrGraph("then_branch", _branch(then_node, "then_branch")),
        ir.AttrGraph("else_branch", _branch(else_node, "else_branch")),
    ]
    return source_node("prim::If", {"condition": condition}, attributes=branches, num_outputs=1)


def _names(graph: ir.Graph) -> list[str]:
    return [node.op_type for node in graph]


def test_cast_inside_a_block_stays_inside() -> None:
    condition, x = _value("condition", DataType.BOOL), _value("x", DataType.INT64, 2)
    inner = source_node("aten::sqrt", {"self": x}, num_outputs=1)
    other = source_node("aten::exp", {"self": x}, num_outputs=1)
    choice = _if(condition, inner, other)
    after = source_node("aten::sin", {"self": x}, num_outputs=1)
    outputs = [*choice.outputs, *after.outputs]
    model = ir.Model(ir.Graph([condition, x], outputs, nodes=[choice, after], name="g"), ir_version=10)
    assert promote_types(model)
    assert _names(model.graph) == ["If", "to", "sin"]
    for branch, name in zip(model.graph.subgraphs(), ("sqrt", "exp"), strict=True):
        assert _names(branch) == ["to", name]
        assert branch[1].inputs[0] is branch[0].outputs[0]
    assert not promote_types(model)


def test_cast_before_a_block_serves_inside() -> None:
    condition, x = _value("condition", DataType.BOOL), _value("x", DataType.INT64, 2)
    before = source_node("aten::sin", {"self": x}, num_outputs=1)
    inner = source_node("aten::sqrt", {"self": x}, num_outputs=1)
    other = source_node("aten::exp", {"self": x}, num_outputs=1)
    choice = _if(condition, inner, other)
    outputs = [*before.outputs, *choice.outputs]
    model = ir.Model(ir.Graph([condition, x], outputs, nodes=[before, choice], name="g"), ir_version=10)
    assert promote_types(model)
    cast = model.graph[0].outputs[0]
    assert [_names(branch) for branch in model.graph.subgraphs()] == [["sqrt"], ["exp"]]
    assert inner.inputs[0] is cast
    assert other.inputs[0] is cast


def test_corrected_result_is_what_a_block_reads_and_returns() -> None:
    condition = _value("condition", DataType.BOOL)
    x, y = _value("x", DataType.FLOAT16, 2), _value("y", DataType.FLOAT, 2)
    out = _value("out", DataType.FLOAT16, 2)
    node = source_node("aten::add", {"self": x, "other": y}, overload="Tensor", outputs=[out])
    reader = source_node("aten::relu", {"self": out}, num_outputs=1)
    then_branch = ir.Graph([], [out], nodes=[], name="then_branch")
    attributes = [
        ir.AttrGraph("then_branch", then_branch),
        ir.AttrGraph("else_branch", _branch(reader, "else_branch")),
    ]
    choice = source_node("prim::If", {"condition": condition}, attributes=attributes, num_outputs=1)
    graph = ir.Graph([condition, x, y], choice.outputs, nodes=[node, choice], name="g")
    assert promote_types(ir.Model(graph, ir_version=10))
    assert _names(graph) == ["to", "add", "to", "If"]
    cast = graph[2].outputs[0]
    assert cast.dtype == DataType.FLOAT16
    assert list(then_branch.outputs) == [cast]
    assert reader.inputs[0] is cast
