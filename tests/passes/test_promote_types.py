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


def test_unknown_types_are_left_alone() -> None:
    x, y = ir.Value(name="x"), ir.Value(name="y", type=ir.TensorType(DataType.FLOAT))
    node = source_node("aten::add", {"self": x, "other": y}, overload="Tensor", num_outputs=1)
    model = ir.Model(ir.Graph([x, y], node.outputs, nodes=[node], name="g"), ir_version=10)
    assert not promote_types(model)


def test_unknown_rank_trusts_the_captured_type() -> None:
    x = ir.Value(name="x", type=ir.TensorType(DataType.FLOAT16))
    y = ir.Value(name="y", type=ir.TensorType(DataType.FLOAT))
    out = ir.Value(name="out", type=ir.TensorType(DataType.FLOAT16))
    node = source_node("aten::add", {"self": x, "other": y}, overload="Tensor", outputs=[out])
    model = ir.Model(ir.Graph([x, y], [out], nodes=[node], name="g"), ir_version=10)
    assert promote_types(model)
    assert model.graph[0].inputs[0] is y


def test_sub_blocks_are_promoted() -> None:
    x = ir.Value(name="x", type=ir.TensorType(DataType.INT64), shape=ir.Shape([2]))
    inner = source_node("aten::sqrt", {"self": x}, num_outputs=1)
    block = ir.Graph([x], inner.outputs, nodes=[inner], name="block")
    outer = source_node("higher_order::cond", {}, attributes=[ir.AttrGraph("graph_0", block)], num_outputs=1)
    model = ir.Model(ir.Graph([], outer.outputs, nodes=[outer], name="g"), ir_version=10)
    assert promote_types(model)
    assert [node.op_type for node in block] == ["to", "sqrt"]
