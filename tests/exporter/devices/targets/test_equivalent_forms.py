"""Equivalent forms of operators that a target lacks or names, and less broadcasting."""

import numpy as np
import onnx
import pytest
import torch
from onnx import helper, numpy_helper

import opsetta
from opsetta.exporter.devices.targets.load_target import load_target, parse_target
from opsetta.registration import TargetError
from tests.onnxruntime_sessions import run_onnxruntime

HEAD = 'title = "A device"\nsources = ["its manual, version 2.1"]\n'
FLOATS = np.array([[[-3.0, -0.5, 0.0, 0.25], [1.0, 2.0, 4.0, 7.0]]], np.float32)
POSITIVE = np.abs(FLOATS) + 0.5
BOOLS = FLOATS > 0.1
VOLUME = np.random.default_rng(0).standard_normal((2, 3, 4, 5, 3)).astype(np.float32)


def node_model(op_type, inputs, constants=(), outputs=1, opset=13, **attributes):
    names = [f"x{index}" for index in range(len(inputs))]
    node = helper.make_node(
        op_type,
        [*names, *(f"c{i}" for i in range(len(constants)))],
        [f"y{i}" for i in range(outputs)],
        **attributes,
    )
    graph = helper.make_graph(
        [node],
        "g",
        [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
            for name, value in zip(names, inputs, strict=True)
        ],
        [onnx.ValueInfoProto(name=f"y{i}") for i in range(outputs)],
        [numpy_helper.from_array(value, f"c{i}") for i, value in enumerate(constants)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    return onnx.shape_inference.infer_shapes(model)


def results(model, inputs):
    return run_onnxruntime(model, {f"x{index}": value for index, value in enumerate(inputs)})


def integers(*numbers):
    return np.array(numbers, np.int64)


RECORDS = {
    "Neg.mul": ("Neg", (FLOATS,)),
    "Neg.sub": ("Neg", (integers(-2, 0, 3),)),
    "Not.sub": ("Not", (BOOLS,)),
    "Not.equal": ("Not", (BOOLS,)),
    "Not.less": ("Not", (BOOLS,)),
    "And.mul": ("And", (BOOLS, BOOLS[:, :1])),
    "Or.add": ("Or", (BOOLS, BOOLS[:, :1])),
    "Or.max": ("Or", (BOOLS, BOOLS[:, :1])),
    "Xor.abs": ("Xor", (BOOLS, BOOLS[:, :1])),
    "Xor.sub": ("Xor", (BOOLS, BOOLS[:, :1])),
    "Greater.less": ("Greater", (FLOATS, POSITIVE)),
    "Less.greater": ("Less", (FLOATS, POSITIVE)),
    "Greater.expanded": ("Greater", (-POSITIVE[0, :, :1], FLOATS[:, :1])),
    "LessOrEqual.expanded": ("LessOrEqual", (FLOATS[:, :1], -POSITIVE[0, :, :1]), (), {"opset": 16}),
    "Cast.comparison": ("Cast", (np.float32([[0, -0.0, 0.3, 8, np.nan]]),), (), {"to": 9}),
    "MaxPool.two_dimensions": (
        "MaxPool", (VOLUME,), (),
        {"kernel_shape": [2, 3, 1], "strides": [2, 1, 2], "pads": [1, 0, 0, 0, 1, 0]},
    ),
    "AveragePool.two_dimensions": (
        "AveragePool", (VOLUME,), (),
        {"kernel_shape": [3, 2, 2], "strides": [2, 2, 1], "ceil_mode": 1},
    ),
    "MaxPool.separate_pad": (
        "MaxPool", (VOLUME[0],), (), {"kernel_shape": [3, 2], "strides": [2, 2], "pads": [1, 0, 2, 1]},
    ),
    "AveragePool.uneven_pad": (
        "AveragePool", (VOLUME[0],), (),
        {"kernel_shape": [3, 2], "pads": [1, 0, 2, 1], "count_include_pad": 1},
    ),
    "Pad.gather": ("Pad", (VOLUME,), (integers(0, 0, 1, 2, 0, 0, 0, 3, 0, 2),), {"mode": "reflect"}),
    "Conv.dense_kernel": (
        "Conv", (VOLUME,), (VOLUME[:, :, :2, :2, :1],),
        {"dilations": [2, 3, 1], "pads": [1, 0, 2, 1, 0, 2], "kernel_shape": [2, 2, 1]},
    ),
    "ConvTranspose.dense_kernel": (
        "ConvTranspose", (VOLUME[:, :, 0],), (VOLUME[0, :, :2, :2, :2],),
        {"dilations": [2, 3], "strides": [2, 1], "output_padding": [1, 0]},
    ),
    "Conv.product": (
        "Conv", (VOLUME[:, :, 0], VOLUME[0, :, :3, :2, :2]), (),
        {"pads": [1, 0, 2, 1], "strides": [2, 1], "dilations": [1, 2]},
    ),
    "ConvTranspose.convolution": (
        "ConvTranspose", (VOLUME[:, :2, 0], VOLUME[0, :2, :2, :2, :3]), (np.float32([1, 2, 3, 4]),),
        {"group": 2, "dilations": [1, 2], "strides": [3, 1], "pads": [1, 0, 0, 2], "output_padding": [2, 0]},
    ),
    "GatherElements.equal_sizes": (
        "GatherElements", (VOLUME[0, 0], integers(4, 2, 0, 1, 3, 2).reshape(2, 3, 1)), (), {"axis": 1},
    ),
    "ScatterElements.equal_sizes": (
        "ScatterElements",
        (VOLUME[0, 0], integers(4, 2, 0, 1, 3, 2).reshape(2, 3, 1), VOLUME[1, 0, :2, :3, :1]),
        (), {"axis": 1},
    ),
    "Gather.sum": ("Gather", (FLOATS[0, 0],), (np.array(-1),)),
    "Gather.axis_from_end": ("Gather", (VOLUME,), (integers(2, 0, 1),), {"axis": 1}),
    "Celu.elu": ("Celu", (FLOATS,), (), {"alpha": 2.0}),
    "Mod.one_row": ("Mod", (FLOATS[0, 0],), (np.float32(1.5),), {"fmod": 1}),
    "Equal.one_row": ("Equal", (FLOATS[0, 0],), (np.float32(0.25),)),
    "Where.one_row": ("Where", (BOOLS[0, 0], FLOATS[0, 0]), (np.float32(0.25),)),
    "LayerNormalization.grouped_batches": (
        "LayerNormalization", (FLOATS[0],), (POSITIVE[0, 0],), {"opset": 17},
    ),
    "ReduceLogSum.sum": ("ReduceLogSum", (POSITIVE,), (), {"axes": [1], "keepdims": 0}),
    "ReduceLogSumExp.sum": ("ReduceLogSumExp", (FLOATS - 1,), (), {"axes": [2], "keepdims": 0}),
    "ReduceMax.merged_axes": ("ReduceMax", (VOLUME,), (), {"axes": [1, 3, 4], "keepdims": 0}),
    "ReduceSum.merged_axes": ("ReduceSum", (VOLUME,), (integers(1, 2, 3),)),
    "ReduceMean.merged_axes": ("ReduceMean", (VOLUME,), ()),
    "GlobalAveragePool.two_dimensions": ("GlobalAveragePool", (VOLUME,)),
    "GlobalMaxPool.two_dimensions": ("GlobalMaxPool", (VOLUME,)),
    "Where.arithmetic": ("Where", (BOOLS, FLOATS, POSITIVE)),
    "Reciprocal.div": ("Reciprocal", (POSITIVE,)),
    "Reciprocal.pow": ("Reciprocal", (POSITIVE,)),
    "Sqrt.pow": ("Sqrt", (POSITIVE,)),
    "Sub.add": ("Sub", (FLOATS, POSITIVE)),
    "Div.pow": ("Div", (FLOATS, POSITIVE)),
    "Abs.max": ("Abs", (FLOATS,)),
    "Abs.relu": ("Abs", (FLOATS,)),
    "LeakyRelu.relu": ("LeakyRelu", (FLOATS,), (), {"alpha": 0.1}),
    "HardSigmoid.clip": ("HardSigmoid", (FLOATS,), (), {"alpha": 0.3, "beta": 0.4}),
    "Clip.relu": ("Clip", (FLOATS,), (np.float32(-1), np.float32(6))),
    "Clip.extremes": ("Clip", (FLOATS, np.array(-0.5, np.float32)), (np.float32(0.5),)),
    "ReduceL2.sum": ("ReduceL2", (FLOATS,), (), {"axes": [-1], "keepdims": 0}),
    "ReduceL2.sum_square": ("ReduceL2", (FLOATS,), (), {"axes": [1]}),
    "ReduceSumSquare.sum": ("ReduceSumSquare", (FLOATS,), (), {}),
    "ReduceL1.sum": ("ReduceL1", (FLOATS,), (), {"axes": [0, 2]}),
    "ReduceMean.single": ("ReduceMean", (FLOATS,), (), {"axes": [0, 1], "keepdims": 0}),
    "ReduceMax.each_axis": ("ReduceMax", (FLOATS,), (), {"axes": [-2, -1], "keepdims": 0}),
    "ReduceMean.last": ("ReduceMean", (FLOATS,), (), {"axes": [0, 1]}),
    "TopK.arg_max": ("TopK", (FLOATS,), (integers(1),), {"axis": 1, "largest": 0, "outputs": 2}),
    "Unsqueeze.single": ("Unsqueeze", (FLOATS,), (integers(-1, 1),)),
    "Gather.slices": ("Gather", (FLOATS,), (integers(-1, 0, 1, 3),), {"axis": 2}),
    "Gather.slices_or_one_hot": ("Gather", (FLOATS,), (integers(1, 0).reshape(2, 1),), {"axis": 1}),
    "Expand.concat": ("Expand", (FLOATS,), (integers(3, 1, 1),)),
    "Expand.mul": ("Expand", (FLOATS,), (integers(3, 2, 1, 4),)),
    "Transpose.blocks": (
        "Transpose", (np.arange(144, dtype=np.float32).reshape(1, 3, 2, 4, 2, 3),), (),
        {"perm": [0, 1, 3, 2, 4, 5]},
    ),
    "Gemm.separate_bias": (
        "Gemm", (FLOATS[0].T,), (FLOATS[0, [0, 1, 0]], np.float32([1, 0.5, 2])),
        {"alpha": 0.5, "beta": 2.0, "transA": 1, "transB": 1},
    ),
    "Softmax.three_dimensions": ("Softmax", (FLOATS.reshape(2, 2, 1, 2),), (), {"axis": 3}),
    "Resize.samples": (
        "Resize", (FLOATS[None],), (np.float32([]), np.float32([]), integers(1, 1, 3, 7)),
        {"mode": "cubic"},
    ),
    "LayerNormalization.instance_normalization": (
        "LayerNormalization", (FLOATS,), (np.float32([1, 2, 3, 4]), np.float32([0, 1, 0, 2])),
        {"epsilon": 1e-3, "opset": 17},
    ),
}  # fmt: skip

COUNTS = {
    "ReduceMax.each_axis": 2, "ReduceMean.single": 2, "ReduceMean.last": 1, "Transpose.blocks": 1,
    "Softmax.three_dimensions": 1,
    "Gemm.separate_bias": 1, "MaxPool.two_dimensions": 2, "AveragePool.two_dimensions": 2,
    "GlobalAveragePool.two_dimensions": 1, "GlobalMaxPool.two_dimensions": 1, "Greater.expanded": 1,
    "LessOrEqual.expanded": 1, "MaxPool.separate_pad": 1, "AveragePool.uneven_pad": 1, "Conv.dense_kernel": 1,
    "ConvTranspose.dense_kernel": 1, "Gather.axis_from_end": 1, "Mod.one_row": 1, "Equal.one_row": 1,
    "Where.one_row": 1, "LayerNormalization.grouped_batches": 1, "ReduceMax.merged_axes": 1,
    "ReduceSum.merged_axes": 1, "ReduceMean.merged_axes": 1, "GatherElements.equal_sizes": 1,
    "ScatterElements.equal_sizes": 1,
}  # fmt: skip
"""How many nodes of the operator forms have that consist of it too."""


def target_with(op_type, form, at_emission):
    emission = "at_emission = true" if at_emission else ""
    return parse_target("device", f'{HEAD}[[forms]]\noperator = "{op_type}"\nform = "{form}"\n{emission}\n')


@pytest.mark.parametrize("at_emission", [False, True])
@pytest.mark.parametrize("name", RECORDS)
def test_a_form_computes_the_operator(name, at_emission, tmp_path):
    op_type, inputs, constants, attributes = (*RECORDS[name], (), {})[:4]
    constants, attributes = constants or (), attributes or {}
    model = node_model(op_type, inputs, constants, **attributes)
    target = target_with(op_type, name.partition(".")[2], at_emission)
    onnx.save(model, tmp_path / "model.onnx")
    opset = attributes.get("opset", 13)
    lowered = opsetta.load(tmp_path / "model.onnx").lower(opset, target=target).model_proto
    count = sum(node.op_type == op_type for node in lowered.graph.node)
    assert count == COUNTS.get(name, 0)
    for result, expected in zip(results(lowered, inputs), results(model, inputs), strict=True):
        assert (result.dtype, result.shape) == (expected.dtype, expected.shape)
        np.testing.assert_allclose(result, expected, rtol=2e-6, atol=1e-6)


def test_counts_of_a_mask_are_summed_in_32_bits():
    target = target_with("CumSum", "int32", False)

    def positions(x):
        return torch.cumsum(x.ne(1).int(), 1) * x, torch.cumsum(x, 1)

    program = opsetta.export(positions, (torch.arange(6).reshape(2, 3),), target=target)
    program.verify()
    # Sums of the numbers themselves may need 64 bits.
    dtypes = [node.inputs[0].dtype.name for node in program.model.graph if node.op_type == "CumSum"]
    assert sorted(dtypes) == ["INT32", "INT64"]


@pytest.mark.parametrize("perm", [(3, 1, 4, 0, 2), (4, 3, 2, 1, 0), (2, 0, 3, 1, 4)])
@pytest.mark.parametrize("first", [1, 2])
def test_permutations_are_exchanges_of_blocks(perm, first):
    target = target_with("Transpose", "blocks", False)
    x = torch.randn(first, 3, 2, 4, 3)
    program = opsetta.export(lambda x: x.permute(perm) + 1, (x,), target=target)
    program.verify()
    for node in program.model.graph:
        if node.op_type == "Transpose":
            shape = list(node.inputs[0].shape)
            assert len(shape) - (shape[0] == 1) <= 4


@pytest.mark.parametrize("batch", [1, 2])
def test_queries_keys_and_values_are_parts_of_the_result_of_a_layer(batch):
    layer = torch.nn.Linear(8, 36).eval()
    target = parse_target(
        "device", f'{HEAD}[[forms]]\noperator = "Split"\nform = "earlier"\nbehind = ["Transpose"]\n'
    )

    def attention(x):
        q, k, v = layer(x).reshape(batch, 5, 3, 2, 6).permute(2, 0, 3, 1, 4).unbind(0)
        return torch.softmax(q @ k.transpose(-2, -1), -1) @ v

    program = opsetta.export(attention, (torch.randn(batch, 5, 8),), target=target)
    program.verify()
    [split] = [node for node in program.model.graph if node.op_type == "Split"]
    assert list(split.inputs[0].shape) == [batch, 5, 36]
    assert [list(value.shape) for value in split.outputs] == [[batch, 5, 12]] * 3


def test_forms_of_operators_on_weights_are_computed():
    class Positions(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.table = torch.nn.Parameter(torch.randn(1, 2, 5, 5))

        def forward(self, x):
            table = torch.nn.functional.interpolate(self.table, size=(4, 7), mode="bicubic")
            return x + table.flatten(2)

    target = target_with("Resize", "samples", False)
    program = opsetta.export(Positions().eval(), (torch.randn(1, 2, 28),), target=target, opset=17)
    program.verify()
    assert [node.op_type for node in program.model.graph] == ["Add"]


def test_a_table_is_selected_by_one_hot_rows(tmp_path):
    target = target_with("Gather", "one_hot", True)
    embedding = torch.nn.Embedding(7, 3).eval()
    program = opsetta.export(embedding, (torch.tensor([[0, 6, 2]]),), target=target, opset=11)
    assert "Gather" not in {node.op_type for node in program.model.graph}
    program.verify()
    table = np.arange(6, dtype=np.float32).reshape(3, 2)
    model = node_model("Gather", (integers(-1, 0, -3, 2),))
    node = model.graph.node[0]
    node.input[:] = ["c0", "x0"]
    model.graph.initializer.append(numpy_helper.from_array(table, "c0"))
    onnx.save(model, tmp_path / "model.onnx")
    lowered = opsetta.load(tmp_path / "model.onnx").lower(13, target=target).model_proto
    [result] = results(lowered, (integers(-1, 0, -3, 2),))
    assert result.tolist() == table[[2, 0, 0, 2]].tolist()


def test_a_refused_operator_gets_a_form_whose_operators_are_taken():
    def export(refused):
        target = parse_target("device", f"{HEAD}[operators]\nrefused = {refused}\n")
        program = opsetta.export(lambda x: -torch.linalg.norm(x, dim=-1), (torch.randn(2, 3),), target=target)
        program.verify()
        return {node.op_type for node in program.model.graph}

    assert export(["Neg"]) == {"ReduceL2", "Mul"}
    assert export(["ReduceL2"]) == {"Mul", "Neg", "ReduceSum", "Sqrt"}
    with pytest.raises(
        TargetError,
        match=r"other forms were tried: .*sum \(needs Mul\), sum_square \(needs ReduceSumSquare\)",
    ):
        export(["ReduceL2", "ReduceSumSquare", "Mul"])


def test_rules_come_before_the_forms_that_no_rule_names():
    refused = 'operators = { refused = ["Not"] }\n'
    rules = "".join(
        f'[[forms]]\noperator = "Not"\nform = "{form}"\n{condition}\n'
        for form, condition in (("less", "ranks = [1]"), ("sub", ""))
    )
    x = torch.randn(2, 3)

    def export(text):
        target = parse_target("device", f"{HEAD}{refused}{text}")
        program = opsetta.export(lambda x: torch.logical_not(x > 0), (x,), target=target)
        program.verify()
        return {node.op_type for node in program.model.graph} - {"Greater", "Cast"}

    assert export("") == {"Equal"}
    assert export(rules) == {"Sub"}


def test_emission_composes_an_operator_whose_form_refuses_it():
    target = target_with("LayerNormalization", "instance_normalization", True)
    for dtype, has_form in ((torch.float32, True), (torch.float64, False)):
        layer = torch.nn.LayerNorm(4, dtype=dtype).eval()
        program = opsetta.export(layer, (torch.randn(2, 3, 4, dtype=dtype),), target=target, opset=11)
        program.verify()
        operators = {node.op_type for node in program.model.graph}
        assert ("InstanceNormalization" in operators) == has_form


def test_rules_of_a_version_come_before_those_of_the_file():
    text = f"""{HEAD}measured_versions = ["1", "2"]
[[forms]]
operator = "Not"
form = "sub"
[[versions]]
below = "2"
[[versions.forms]]
operator = "Not"
form = "less"
"""
    assert [rule.form for rule in parse_target("device", text).forms] == ["sub"]
    assert [rule.form for rule in parse_target("device", text, "1").forms] == ["less", "sub"]


@pytest.mark.parametrize("version", ["4.2", "4.5.4", "4.5.5", "4.6", "4.8", "4.10", "4.14"])
def test_a_block_of_a_transformer_for_old_opencv_is_right(version):
    layers = torch.nn.Sequential(
        torch.nn.LayerNorm(8), torch.nn.Linear(8, 12), torch.nn.Hardsigmoid(), torch.nn.Linear(12, 8)
    )
    model = layers.eval()
    target = load_target(f"opencv@{version}")
    program = opsetta.export(model, (torch.randn(1, 5, 8),), target=target)
    program.verify()
    operators = {node.op_type for node in program.model.graph}
    assert not operators & target.operators.refused
    old = version.startswith(("4.2", "4.5", "4.6"))
    assert ("InstanceNormalization" in operators) == old
    assert program.opset == (11 if old else 17)


class Broadcasts(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("scale", torch.randn(8))
        self.register_buffer("column", torch.randn(5, 1))
        self.register_buffer("table", torch.randn(2, 5, 8))

    def forward(self, x, mask, row):
        return (x * self.scale + self.column) / (row.abs() + 1) + mask - row + self.table * row.exp()


@pytest.mark.parametrize("form", ["ranks", "none"])
def test_operands_are_written_with_less_broadcasting(form):
    target = parse_target("device", f'{HEAD}[conventions]\nbroadcasts = "{form}"\n')
    arguments = torch.randn(2, 5, 8), torch.randn(2, 1, 8), torch.randn(8)
    program = opsetta.export(Broadcasts().eval(), arguments, target=target, opset=13)
    program.verify()
    for node in program.model.graph:
        if node.op_type in ("Add", "Sub", "Mul", "Div") and node.inputs[1].shape.rank():
            first, second = (tuple(value.shape) for value in node.inputs)
            assert len(first) == len(second) or (form == "none" and len(second) == 1)
            is_shaped = node.op_type in ("Add", "Sub") or node.inputs[0].const_value is not None
            if form == "none" and is_shaped and len(second) > 1:
                assert first == second


class Vectors(torch.nn.Module):
    def forward(self, x):
        vector = x.mean((0, 1)).exp()
        return torch.where(x > vector, torch.maximum(vector, x), x**vector) - vector


@pytest.mark.parametrize("shapes", [None, {"x": {2: torch.export.Dim("columns", min=2)}}])
def test_computed_vectors_get_the_rank_of_the_result(shapes):
    target = parse_target("device", f'{HEAD}[conventions]\nbroadcasts = "vectors"\n')
    x = torch.randn(2, 5, 3)
    program = opsetta.export(Vectors().eval(), (x,), opset=13, target=target, dynamic_shapes=shapes)
    program.verify()
    readers = [node for node in program.model.graph if node.op_type in ("Greater", "Max", "Pow", "Sub")]
    assert len(readers) == 4
    assert all(len(value.shape) == 3 for node in readers for value in node.inputs)


def test_weights_of_gemm_are_transposed():
    target = parse_target("device", f'{HEAD}[conventions]\ngemm_weights = "transposed"\n')
    program = opsetta.export(
        lambda x, y: (torch.addmm(torch.ones(4), x, torch.eye(3, 4)), torch.addmm(y[0], y.T, y)),
        (torch.randn(2, 3), torch.randn(3, 3)),
        target=target,
        opset=13,
    )
    program.verify()
    assert all(node.attributes.get("transB") for node in program.model.graph if node.op_type == "Gemm")
