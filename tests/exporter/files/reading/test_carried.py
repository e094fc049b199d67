"""Maps, opaque types, sparse initializers and training information pass through a model untouched."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import opsetta

from ....opsets import HIGHEST


def sparse(name: str = "w", dims: tuple[int, ...] = (4, 3)) -> onnx.SparseTensorProto:
    values = helper.make_tensor(name, TensorProto.FLOAT, [2], [1.0, 2.0])
    indices = helper.make_tensor(f"{name}_indices", TensorProto.INT64, [2, 2], [0, 0, 1, 2])
    return helper.make_sparse_tensor(values, indices, dims)


def classifier(opset: int = 13) -> onnx.ModelProto:
    """What skl2onnx writes of a linear classifier: probabilities as a list of dicts."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["scores"]),
        helper.make_node("Softmax", ["scores"], ["probabilities"], axis=1),
        helper.make_node(
            "ZipMap",
            ["probabilities"],
            ["labelled"],
            domain="ai.onnx.ml",
            classlabels_strings=["a", "b", "c"],
        ),
    ]
    labelled = helper.make_map_type_proto(
        TensorProto.STRING, helper.make_tensor_type_proto(TensorProto.FLOAT, [])
    )
    graph = helper.make_graph(
        nodes,
        "classifier",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 4])],
        [helper.make_value_info("labelled", helper.make_sequence_type_proto(labelled))],
        sparse_initializer=[sparse()],
    )
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("ai.onnx.ml", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8)


def with_training(model: onnx.ModelProto) -> onnx.ModelProto:
    info = model.training_info.add()
    info.algorithm.name = "step"
    info.algorithm.node.append(helper.make_node("Neg", ["gradient"], ["next"]))
    info.algorithm.initializer.append(helper.make_tensor("gradient", TensorProto.FLOAT, [1], [0.5]))
    info.algorithm.output.append(helper.make_tensor_value_info("next", TensorProto.FLOAT, None))
    info.update_binding.add(key="w", value="next")
    return model


def loaded(model: onnx.ModelProto, folder: Any) -> Any:
    onnx.save(model, folder / "model.onnx")
    return opsetta.load(folder / "model.onnx")


def test_a_file_is_written_as_it_was_read(tmp_path):
    model = with_training(classifier())
    found = loaded(model, tmp_path)
    assert found.input_names == ["x"]
    assert found.model_proto == model
    for external in (False, True):
        found.save(tmp_path / "again.onnx", external_data=external)
        assert onnx.load(tmp_path / "again.onnx") == model


@pytest.mark.parametrize("opset", [7, 9, 11, 18, HIGHEST])
def test_a_classifier_is_converted_and_runs(opset, tmp_path):
    model = loaded(classifier(), tmp_path)
    x = np.arange(8, dtype=np.float32).reshape(2, 4) / 8
    expected = model(x)
    assert [sorted(row) for row in expected] == [["a", "b", "c"]] * 2
    converted = model.lower(opset)
    assert converted.input_names == ["x"]
    for row, other in zip(converted(x), expected, strict=True):
        assert row == pytest.approx(other, rel=1e-6)
    proto = converted.model_proto
    assert proto.graph.output == classifier().graph.output
    assert proto.graph.sparse_initializer == classifier().graph.sparse_initializer
    assert [value.name for value in proto.graph.input] == ["x"]
    onnx.checker.check_model(proto)


def test_an_opaque_type_of_a_custom_operator_stays(tmp_path):
    opaque = onnx.TypeProto(opaque_type=onnx.TypeProto.Opaque(domain="mine", name="Tree"))
    graph = helper.make_graph(
        [helper.make_node("Plant", ["x"], ["tree"], domain="mine"),
         helper.make_node("Grow", ["tree"], ["y"], domain="mine"),
         helper.make_node("Neg", ["y"], ["z"])],
        "trees",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])],
        [helper.make_tensor_value_info("z", TensorProto.FLOAT, None), helper.make_value_info("tree", opaque)],
    )  # fmt: skip
    imports = [helper.make_opsetid("", 13), helper.make_opsetid("mine", 1)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=8)
    found = loaded(model, tmp_path)
    assert found.model_proto == model
    assert found.lower(9).model_proto.graph.output[1].type == opaque


def test_training_information_is_converted_where_its_operators_stay_the_same(tmp_path):
    model = with_training(classifier())
    found = loaded(model, tmp_path)
    assert found.lower(28).model_proto.training_info == model.training_info
    with pytest.raises(
        opsetta.ModelFileError,
        match="training_info .* opset 13, and its operator 'Neg' has another definition",
    ):
        found.lower(12)


BROKEN: dict[str, tuple[Callable[[onnx.ModelProto], Any], str]] = {
    "no name": (lambda m: m.graph.sparse_initializer[0].values.ClearField("name"), "has no name"),
    "the name of an input": (lambda m: m.graph.input.add(name="w"), "'w' has the name of an input"),
    "two of one name": (lambda m: m.graph.sparse_initializer.append(sparse()), "'w' has the name of"),
    "fewer indices": (
        lambda m: m.graph.sparse_initializer[0].indices.CopyFrom(
            helper.make_tensor("i", TensorProto.INT64, [1, 2], [0, 0])
        ),
        r"values of shape \[2\], but indices of shape \[1, 2\]",
    ),
    "a negative size": (lambda m: m.graph.sparse_initializer[0].dims.append(-1), "a negative size"),
    "external values": (
        lambda m: (
            m.graph.sparse_initializer[0].values.ClearField("float_data"),
            setattr(m.graph.sparse_initializer[0].values, "data_location", TensorProto.EXTERNAL),
        ),
        "'w'",
    ),
    "two types": (
        lambda m: m.graph.value_info.add(
            name="labelled", type=helper.make_map_type_proto(7, helper.make_tensor_type_proto(1, []))
        ),
        "'labelled' is declared with two types",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_contradicts_itself_is_refused_by_name(name, tmp_path):
    model = classifier()
    change, message = BROKEN[name]
    change(model)
    with pytest.raises(opsetta.ModelFileError, match=message):
        loaded(model, tmp_path)


def test_types_within_types_are_bounded(tmp_path):
    model = classifier()
    kind = model.graph.output[0].type
    for _ in range(28):
        outer = onnx.TypeProto()
        outer.sequence_type.elem_type.CopyFrom(kind)
        kind = outer
    model.graph.output[0].type.CopyFrom(kind)
    assert loaded(model, tmp_path).model_proto == model
    for _ in range(8):
        outer = onnx.TypeProto()
        outer.sequence_type.elem_type.CopyFrom(kind)
        kind = outer
    model.graph.output[0].type.CopyFrom(kind)
    with pytest.raises(opsetta.ModelFileError, match="nested more than|'labelled' is of a type"):
        loaded(model, tmp_path)


@pytest.mark.parametrize("optimize", ["none", "full"])
@pytest.mark.parametrize("last", ["Identity", "Relu"])
def test_products_of_declared_sizes_beyond_the_format_are_refused(
    tmp_path: Any, last: str, optimize: str
) -> None:
    nodes = f"h = Concat<axis=0>(x, x, x, x) y = {last}(h)"
    sizes = f"{2**61}, {2**40}, {2**20}, 4"
    text = f'<ir_version: 8, opset_import: ["": 17]> g (float[{sizes}] x) => (float y) {{ {nodes} }}'
    model = onnx.parser.parse_model(text)
    model.graph.output[0].type.tensor_type.ClearField("shape")
    with pytest.raises(opsetta.ModelFileError, match=r"ONNX has no sizes from 2\*\*63 on"):
        loaded(model, tmp_path).lower(9, optimize=optimize).save(tmp_path / "lowered.onnx")
    assert not (tmp_path / "lowered.onnx").exists()
