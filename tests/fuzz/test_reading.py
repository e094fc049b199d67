"""Whatever message a file holds, it becomes a model that says the same, or it is refused."""

import random
import warnings

import hypothesis
import hypothesis.strategies as st
import numpy as np
import onnx
import onnx_ir as ir
import pytest
from google.protobuf import json_format, text_format

from opsetta import ModelFileError
from opsetta.exporter.files.reading import read_model, to_ir

from . import cases, corpus, mutations
from .canonical import canonical

NAMES = st.sampled_from(["", "a", "b", "c", "x", "a:b/c$ d", "é"])
KINDS = st.integers(-1, 30)
SIZES = st.lists(st.sampled_from([0, 1, 2, 3, -1, 2**40]), max_size=3)
ENTRIES = st.lists(
    st.builds(onnx.StringStringEntryProto, key=st.sampled_from("kl"), value=st.sampled_from("vw")), max_size=2
)


@st.composite
def types(draw) -> onnx.TypeProto:
    made = onnx.TypeProto(denotation=draw(st.sampled_from([None, "IMAGE"])))
    inner = made
    for wrapper in draw(
        st.lists(st.sampled_from(["sequence_type", "optional_type", "map_type"]), max_size=2)
    ):
        inner = getattr(inner, wrapper)
        inner = inner.value_type if wrapper == "map_type" else inner.elem_type
    which = draw(st.sampled_from(["tensor_type", "tensor_type", "sparse_tensor_type", "opaque_type", None]))
    if which in ("tensor_type", "sparse_tensor_type"):
        tensor = getattr(inner, which)
        if draw(st.booleans()):
            tensor.elem_type = draw(KINDS)
        if draw(st.booleans()):
            tensor.shape.SetInParent()
            for size in draw(st.lists(st.sampled_from([-1, 0, 3, "n", "", None]), max_size=3)):
                dim = tensor.shape.dim.add(denotation=draw(st.sampled_from([None, "D"])))
                if size is not None:
                    setattr(dim, "dim_value" if isinstance(size, int) else "dim_param", size)
    elif which is not None:
        getattr(inner, which).SetInParent()
    return made


values = st.builds(
    onnx.ValueInfoProto,
    name=NAMES,
    type=types(),
    doc_string=st.sampled_from([None, "", "d"]),
    metadata_props=ENTRIES,
)
tensors = st.one_of(
    st.builds(
        onnx.TensorProto,
        name=NAMES,
        dims=SIZES,
        data_type=KINDS,
        raw_data=st.one_of(st.none(), st.binary(max_size=8)),
        int32_data=st.one_of(st.just([]), st.lists(st.integers(-(2**31), 2**31 - 1), max_size=3)),
        float_data=st.one_of(st.just([]), st.lists(st.floats(width=32), max_size=3)),
        string_data=st.one_of(st.just([]), st.lists(st.binary(max_size=2), max_size=2)),
        metadata_props=ENTRIES,
        doc_string=st.sampled_from([None, "d"]),
    ),
    st.builds(onnx.numpy_helper.from_array, st.just(np.arange(3, dtype=np.float32)), name=NAMES),
)


@st.composite
def attributes(draw, depth: int) -> onnx.AttributeProto:
    made = onnx.AttributeProto(name=draw(NAMES), doc_string=draw(st.sampled_from([None, "d"])))
    kind = draw(st.sampled_from(sorted(onnx.AttributeProto.AttributeType.items())))
    values = {
        "FLOAT": ("f", st.floats(width=32)),
        "INT": ("i", st.integers(-(2**63), 2**63 - 1)),
        "STRING": ("s", st.binary(max_size=3)),
        "FLOATS": ("floats", st.lists(st.floats(width=32), max_size=2)),
        "STRINGS": ("strings", st.lists(st.binary(max_size=3), max_size=2)),
        "TENSOR": ("t", tensors),
        "TENSORS": ("tensors", st.lists(tensors, max_size=2)),
        "TYPE_PROTO": ("tp", types()),
    }
    if depth:
        values["GRAPH"] = "g", graphs(depth - 1)
        values["GRAPHS"] = "graphs", st.lists(graphs(depth - 1), max_size=2)
    if draw(st.integers(0, 5)):
        made.type = kind[1]
    if draw(st.integers(0, 9)) == 0:
        made.ref_attr_name = draw(NAMES)
    field, strategy = values.get(kind[0], ("ints", st.lists(st.integers(-9, 9), max_size=2)))
    if draw(st.integers(0, 5)):
        made.MergeFrom(onnx.AttributeProto(**{field: draw(strategy)}))
    return made


@st.composite
def nodes(draw, depth: int) -> onnx.NodeProto:
    return onnx.NodeProto(
        op_type=draw(st.sampled_from(["Add", "If", "F", "F", ""])),
        domain=draw(st.sampled_from(["", "", "ai.onnx", "m", "q"])),
        name=draw(NAMES),
        input=draw(st.lists(NAMES, max_size=3)),
        output=draw(st.lists(NAMES, max_size=2)),
        attribute=draw(st.lists(attributes(depth), max_size=2)),
        metadata_props=draw(ENTRIES),
    )


@st.composite
def graphs(draw, depth: int) -> onnx.GraphProto:
    graph = onnx.GraphProto(name="g", metadata_props=draw(ENTRIES))
    graph.input.extend(draw(st.lists(values, max_size=2)))
    graph.initializer.extend(draw(st.lists(tensors, max_size=2)))
    graph.node.extend(draw(st.lists(nodes(depth), max_size=3)))
    graph.output.extend(draw(st.lists(values, max_size=2)))
    graph.value_info.extend(draw(st.lists(values, max_size=2)))
    return graph


@st.composite
def messages(draw) -> onnx.ModelProto:
    model = onnx.ModelProto(ir_version=draw(st.sampled_from([1, 3, 8, 10, 12, 13])), graph=draw(graphs(2)))
    for domain, version in [("", 18), ("m", 1)]:
        model.opset_import.add(domain=domain, version=version)
    for _ in range(draw(st.integers(0, 1))):
        function = model.functions.add(domain="m", name="F", input=["a"], output=["b"])
        function.opset_import.add(domain="", version=18)
        function.node.extend(draw(st.lists(nodes(1), max_size=2)))
        function.node.add(op_type="Neg", input=["a"], output=["b"])
        function.value_info.extend(draw(st.lists(values, max_size=1)))
    return model


@hypothesis.settings(suppress_health_check=list(hypothesis.HealthCheck))
@hypothesis.given(model=messages())
def test_a_message_is_kept_or_refused(model, tmp_path_factory):
    folder = tmp_path_factory.getbasetemp()
    refusal, made = "", None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            made = to_ir(model, folder)
    except ModelFileError as error:
        refusal = str(error)
    hypothesis.event("refused" if made is None else "read")
    assert refusal.isprintable()
    if made is None:
        return
    if not made.meta.get("left_out"):
        written = ir.to_proto(made)
        assert canonical(written) == canonical(model), cases.difference(model, written)


@hypothesis.settings(suppress_health_check=list(hypothesis.HealthCheck))
@hypothesis.given(
    data=st.binary(max_size=200), prefix=st.sampled_from([b"", b"\x08\x0a\x3a", b"graph {", b"{"])
)
def test_bytes_are_a_model_or_refused(data, prefix, tmp_path_factory):
    path = tmp_path_factory.getbasetemp() / "bytes"
    path.write_bytes(prefix + data)
    refusal, model = "", None
    try:
        model = read_model(path)
    except ModelFileError as error:
        refusal = str(error)
    assert model is None or model.HasField("graph")
    assert len(refusal) < 1000


@pytest.mark.parametrize("model", corpus.models(), ids=lambda model: model.graph.name)
def test_files_of_onnx_are_kept(model, tmp_path):
    folder = corpus.make_folder(tmp_path)
    path = folder / "model"
    for write in (text_format.MessageToString, json_format.MessageToJson):
        if model.ByteSize() < 5_000:
            path.write_text(write(model))
            assert read_model(path) == model
    path.write_bytes(model.SerializeToString())
    proto = read_model(path)
    made = to_ir(proto, folder)
    assert "left_out" not in made.meta
    assert canonical(ir.to_proto(made)) == canonical(proto)


@pytest.fixture(scope="module")
def setting(tmp_path_factory):
    return cases.Setting(tmp_path_factory.mktemp("fuzz"))


@pytest.mark.parametrize("start", range(0, 500, 50))
def test_mutated_files_end_in_a_model_or_a_refusal(setting, start):
    problems = [(number, cases.run_case(setting, 0, number)[1]) for number in range(start, start + 50)]
    assert [(number, problem) for number, problem in problems if problem] == []


def test_a_case_is_made_from_its_number(setting):
    for number in range(20):
        first, again = (mutations.mutate(random.Random(f"0:{number}"), setting.files) for _ in range(2))
        assert first == again
