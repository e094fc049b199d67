"""What the intermediate representation would lose or misread is refused by name."""

import onnx
import pytest
from onnx import TensorProto, helper, parser

from opsetta import ModelFileError
from opsetta.exporter.files.reading import Bounds, to_ir

BASE = """<ir_version: 12, opset_import: ["": 18, "mine": 1]>
g (float[n, 2] x, bool c) => (float[n, 2] y) <float[2] w = {1, 2}, float[n, 2] a>
{
  a = Add (x, w)
  b = If (c) <then_branch = t () => (r) { r = Neg (a) }, else_branch = e () => (r) { r = Abs (a) }>
  y = mine.F <alpha = 0.5> (b)
}
<domain: "mine", opset_import: ["": 18]> F <alpha> (f) => (r) { r = LeakyRelu <alpha: float = @alpha> (f) }
"""


def base() -> onnx.ModelProto:
    return parser.parse_model(BASE)


def add_unknown(message, field=b"\xf2\x3f\x01z"):
    message.MergeFromString(field)


def not_text(message, number):
    message.MergeFromString(bytes([number << 3 | 2, 2, 0xFF, 0xFE]))


def branch(model):
    return model.graph.node[1].attribute[0].g


def tensor(**fields):
    return lambda m: (m.graph.initializer[0].Clear(), m.graph.initializer[0].MergeFrom(made(**fields)))


def made(name="w", data_type=TensorProto.FLOAT, dims=(2,), **fields):
    return TensorProto(name=name, data_type=data_type, dims=dims, **fields)


def attribute(**fields):
    return lambda m: m.graph.node[0].attribute.add(name="z", **fields)


def value(kind):
    return lambda m: m.graph.input.add(name="v", type=kind)


def dims(*sizes):
    return helper.make_tensor_value_info("a", TensorProto.FLOAT, sizes)


def recursive(m):
    m.functions[0].node[0].CopyFrom(helper.make_node("F", ["f"], ["r"], domain="mine"))
    m.functions[0].opset_import.add(domain="mine", version=1)


REFUSED = {
    "an IR version to come": (
        lambda m: setattr(m, "ir_version", 99),
        "IR version 99, but the installed onnx supports 1 to",
    ),
    "an unknown field of the model": (add_unknown, "model has the field 1022 in ModelProto"),
    "an unknown field": (
        lambda m: add_unknown(m.graph.node[0]),
        "the Add of 'a' has the field 1022 in NodeProto",
    ),
    "an unknown attribute type": (
        lambda m: add_unknown(m.graph.node[2].attribute[0], b"\xa0\x01\x63"),
        "the F of 'y' has a value of type in AttributeProto that the installed onnx does not define",
    ),
    "a name that is no text": (
        lambda m: not_text(m.graph.node[0], 3),
        "holds text that is not UTF-8, in name",
    ),
    "an input that is no text": (lambda m: not_text(m.graph.node[0], 1), "not UTF-8, in input"),
    "text of an attribute": (attribute(type="STRINGS", strings=[b"\xff"]), "attribute 'z' .* not UTF-8"),
    "two versions": (lambda m: m.opset_import.add(domain="ai.onnx", version=9), "two versions of 'ai.onnx'"),
    "version 0": (lambda m: m.opset_import.add(domain="q", version=0), "imports version 0 of 'q'"),
    "a domain not imported": (
        lambda m: setattr(m.graph.node[0], "domain", "ai.onnx.ml"),
        "'ai.onnx.ml', which the model does not import",
    ),
    "two values of metadata": (
        lambda m: [m.graph.node[0].metadata_props.add(key="k", value=v) for v in "ab"],
        "the Add of 'a' has two values of the metadata key 'k'",
    ),
    "a sparse initializer without indices": (
        lambda m: m.graph.sparse_initializer.add().values.MergeFrom(made("s", float_data=[1, 2])),
        "the indices of sparse initializer 's' has the element type 0",
    ),
    "sparse initializers of a branch": (
        lambda m: branch(m).sparse_initializer.add().values.MergeFrom(made("s")),
        "graph 'then_branch' of .* has the sparse initializer 's'",
    ),
    "sparse attributes": (attribute(sparse_tensor=onnx.SparseTensorProto()), "'z' of .* is a sparse tensor"),
    "no operator": (lambda m: m.graph.node[0].ClearField("op_type"), "the node of 'a' has no operator"),
    # Names.
    "made twice": (
        lambda m: m.graph.node.add(op_type="Neg", input=["x"], output=["a"]),
        "'a' is defined twice",
    ),
    "an input made again": (lambda m: m.graph.node[0].output.append("x"), "'x' is defined twice"),
    "two inputs": (lambda m: m.graph.input.add(name="x"), "'x' is defined twice in the graph"),
    "two initializers": (lambda m: m.graph.initializer.append(m.graph.initializer[0]), "'w' occurs twice"),
    "an input without a name": (lambda m: m.graph.input.add(), "an input of the graph has no name"),
    "an initializer without one": (
        tensor(name="", float_data=[1, 2]),
        "an initializer of the graph has no name",
    ),
    "read and never made": (
        lambda m: m.graph.node[0].input.append("q"),
        "the Add of 'a' reads 'q', which no node",
    ),
    "returned and never made": (
        lambda m: m.graph.output.add(name="q"),
        "the graph returns 'q', which no node",
    ),
    "a cycle": (lambda m: m.graph.node[0].input.append("b"), "the graph has a cycle"),
    "a cycle through a branch": (lambda m: branch(m).node[0].input.append("y"), "the graph has a cycle"),
    "one name of two values": (
        lambda m: branch(m).node.add(op_type="Neg", input=["x"], output=["a"]),
        "reads 'a', which graph 'then_branch' of the If of 'b' computes later",
    ),
    "an outer value returned": (
        lambda m: setattr(branch(m).output[0], "name", "a"),
        "graph 'then_branch' of the If of 'b' returns 'a', which no node in it computes",
    ),
    # Types.
    "a map in a branch": (
        lambda m: branch(m).value_info.add(
            name="v", type=onnx.TypeProto(map_type=onnx.TypeProto.Map(key_type=7))
        ),
        "value 'v' has a type that onnx-ir does not support: map",
    ),
    "an opaque type in a branch": (
        lambda m: branch(m).value_info.add(
            name="v", type=onnx.TypeProto(opaque_type=onnx.TypeProto.Opaque())
        ),
        "does not support: opaque",
    ),
    "a sequence of nothing": (
        value(onnx.TypeProto(sequence_type=onnx.TypeProto.Sequence())),
        "undeclared type",
    ),
    "a denotation alone": (value(onnx.TypeProto(denotation="IMAGE")), "a denotation, but no type"),
    "no element type": (value(helper.make_tensor_type_proto(99, [])), "the element type 99"),
    "two types": (lambda m: m.graph.value_info.append(dims(7)), "declares 'a' twice"),
    "another type of an input": (
        lambda m: m.graph.value_info.append(helper.make_tensor_value_info("x", 7, None)),
        "value 'x' is declared with two types",
    ),
    "another shape of an initializer": (
        lambda m: m.graph.value_info.append(helper.make_tensor_value_info("w", 1, [3])),
        "initializer 'w' has a shape that differs from its declaration",
    ),
    "another element type of one": (
        lambda m: m.graph.value_info.append(helper.make_tensor_value_info("w", 7, [2])),
        "initializer 'w' has an element type that differs from its declaration",
    ),
    "two annotations": (
        lambda m: [
            m.graph.quantization_annotation.add(tensor_name="a").quant_parameter_tensor_names.add(key=k)
            for k in "ab"
        ],
        "the quantization annotation of 'a' occurs twice",
    ),
    # Tensors.
    "an element type that is none": (tensor(data_type=77), "initializer 'w' has the element type 77"),
    "an undefined one": (tensor(data_type=0), "the element type 0"),
    "terabytes": (tensor(dims=[2**40], raw_data=b"12345678"), "is 4398046511104 bytes .* contains 8"),
    "more than memory": (tensor(dims=[2**62, 2**62, 0]), "sizes that exceed any memory"),
    "a negative size": (tensor(dims=[-2], float_data=[1]), "a negative size, -2"),
    "many dimensions": (tensor(dims=[1] * 33, float_data=[1]), "33 dimensions, more than 32"),
    "too few": (tensor(raw_data=b"1234567"), "is 8 bytes by its type and shape, but contains 7"),
    "none": (tensor(), "2 elements in float_data by its shape, but contains 0"),
    "too many": (tensor(float_data=[1, 2, 3]), "but contains 3"),
    "twice": (tensor(float_data=[1, 2], raw_data=b"12345678"), "contents twice, in float_data and raw_data"),
    "in another field": (tensor(int64_data=[1, 2]), "in int64_data, but FLOAT must be in float_data"),
    "unpacked int4": (tensor(data_type=TensorProto.INT4, int32_data=[1, 2]), "1 elements in int32_data"),
    "int4 of another length": (tensor(data_type=TensorProto.INT4, dims=[3], raw_data=b"1"), "is 2 bytes"),
    "half a complex number": (tensor(data_type=TensorProto.COMPLEX64, float_data=[1, 2]), "4 elements"),
    "no uint8": (
        tensor(data_type=TensorProto.UINT8, int32_data=[1, 256]),
        "a number that UINT8 does not represent",
    ),
    "no int16": (
        tensor(data_type=TensorProto.INT16, int32_data=[1, -32769]),
        "a number that INT16 does not represent",
    ),
    "no uint32": (
        tensor(data_type=TensorProto.UINT32, uint64_data=[1, 2**32]),
        "a number that UINT32 does not represent",
    ),
    "no boolean": (tensor(data_type=TensorProto.BOOL, raw_data=b"\1\2"), "neither 0 nor 1"),
    "no boolean in a field": (
        tensor(data_type=TensorProto.BOOL, int32_data=[1, 2]),
        "that BOOL does not represent",
    ),
    "raw strings": (tensor(data_type=TensorProto.STRING, raw_data=b"ab"), "strings in raw_data"),
    "too few strings": (tensor(data_type=TensorProto.STRING, string_data=[b"ab"]), "but contains 1"),
    "a segment": (tensor(float_data=[1, 2], segment=TensorProto.Segment(begin=1)), "is a segment"),
    "a tensor that is an attribute": (
        attribute(type="TENSOR", t=made()),
        "attribute 'z' of the Add of 'a' has 2",
    ),
    # Attributes.
    "two of a name": (lambda m: [attribute(type="INT", i=1)(m) for _ in "ab"], "has the attribute 'z' twice"),
    "an attribute without a name": (lambda m: m.graph.node[0].attribute.add(type="INT"), "has no name"),
    "two values": (attribute(type="INT", i=1, f=2.0), "is of type INT, but has a value in f"),
    "a value of another type": (attribute(type="INTS", f=2.0), "is of type INTS, but has a value in f"),
    "no value": (attribute(type="GRAPH"), "'z' of the Add of 'a' has no value"),
    "no type": (attribute(f=2.0, i=3), "has no supported type"),
    "a reference outside of functions": (attribute(type="INT", ref_attr_name="q"), "outside of a function"),
    "a reference and a value": (
        lambda m: m.functions[0].node[0].attribute[0].MergeFrom(onnx.AttributeProto(f=1.0)),
        "refers to 'alpha' and has a value",
    ),
    "a reference to a graph": (
        lambda m: m.functions[0].node[0].attribute.add(name="z", type="GRAPHS", ref_attr_name="q"),
        "attribute 'z' of .* refers to a graph",
    ),
    # Functions.
    "two functions": (lambda m: m.functions.append(m.functions[0]), "function 'mine::F' occurs twice"),
    "a function that calls itself": (recursive, "function 'mine::F' calls itself"),
    "its attributes": (lambda m: m.functions[0].attribute.append("alpha"), "has an attribute twice"),
    "its inputs": (lambda m: m.functions[0].input.append("f"), "'f' is defined twice in function 'mine::F'"),
    "its outputs": (lambda m: m.functions[0].output.append("q"), "function 'mine::F' returns 'q'"),
    "its imports": (
        lambda m: m.functions[0].ClearField("opset_import"),
        "of ONNX's own domain, which the model does not import, so that its opset is not known",
    ),
    "types in it and in the graph": (
        lambda m: (
            setattr(m, "ir_version", 9),
            m.functions[0].value_info.append(helper.make_tensor_value_info("r", 1, None)),
            m.graph.value_info.append(helper.make_tensor_value_info("mine::F/r", 7, None)),
        ),
        "function 'mine::F' and the main graph declare 'r' differently",
    ),
    "a graph as a default": (
        lambda m: m.functions[0].attribute_proto.add(name="g", type="GRAPH").g.SetInParent(),
        "a graph as the default",
    ),
    # Device configurations.
    "devices of one name": (
        lambda m: [m.configuration.add(name="d") for _ in "ab"],
        "two device configurations",
    ),
    "devices before IR version 11": (
        lambda m: (setattr(m, "ir_version", 10), m.graph.node[0].device_configurations.add()),
        "the Add of 'a' has device configurations, which IR version 10 does not have",
    ),
}


def test_the_model_itself_is_read(tmp_path):
    assert [node.op_type for node in to_ir(base(), tmp_path).graph] == ["Add", "If", "F"]


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name, tmp_path):
    change, match = REFUSED[name]
    model = base()
    change(model)
    with pytest.raises(ModelFileError, match=match):
        to_ir(onnx.ModelProto.FromString(model.SerializeToString()), tmp_path)


def test_a_custom_domain_without_import_has_version_1(tmp_path):
    model = base()
    model.graph.node[0].domain = "vendor"
    model.functions[0].node[0].domain = "com.other"
    with pytest.warns(UserWarning, match="version 1 is assumed") as warnings:
        read = to_ir(model, tmp_path)
    assert [str(warning.message) for warning in warnings] == [
        "the model does not import 'vendor', which its nodes use; version 1 is assumed",
        "function 'mine::F' does not import 'com.other', which its nodes use; version 1 is assumed",
    ]
    assert read.graph.opset_imports["vendor"] == 1
    assert [function.opset_imports["com.other"] for function in read.functions.values()] == [1]


def chain(calls: int, levels: int) -> onnx.ModelProto:
    model = base()
    del model.functions[:]
    for level in range(levels):
        function = model.functions.add(domain="mine", name=f"F{level or ''}", input=["x"], output=["0"])
        function.opset_import.add(domain="mine", version=1)
        for call in range(calls):
            function.node.add(domain="mine", op_type=f"F{level + 1}", input=["x"], output=[str(call)])
    return model


def test_what_functions_are_when_written_out_is_bounded(tmp_path):
    with pytest.raises(ModelFileError, match="more than 8[0-9]+ nodes when its functions are inlined"):
        to_ir(chain(10, 90), tmp_path)
    with pytest.raises(ModelFileError, match="more than 100 levels deep"):
        to_ir(chain(1, 2000), tmp_path)
    to_ir(chain(1, 100), tmp_path)
    to_ir(chain(10, 3), tmp_path)


def test_nodes_and_placements_are_bounded(tmp_path):
    with pytest.raises(ModelFileError, match="more than 5 nodes"):
        to_ir(base(), tmp_path, Bounds(nodes=5))
    model = base()
    model.graph.node[0].device_configurations.add()
    with pytest.raises(ModelFileError, match="device configurations on more nodes"):
        to_ir(model, tmp_path, Bounds(placements=3))


def test_attributes_are_bounded_by_the_size_of_the_file(tmp_path):
    model = base()
    for i in range(100):
        model.graph.node[0].attribute.add(name=f"a{i}", type=onnx.AttributeProto.INT, i=1)
    model.graph.node[0].domain = "own"
    match = r"more than (\d+) attributes, the limit for a file of \d+ bytes; .* --trusted on the command line"
    with pytest.raises(ModelFileError, match=match):
        to_ir(onnx.ModelProto.FromString(model.SerializeToString()), tmp_path, Bounds(attributes=40))
    to_ir(model, tmp_path, Bounds(attributes=110))


def test_names_are_shown_harmlessly(tmp_path):
    model = base()
    model.graph.node[0].name = "\x1b[2J\n\u202e" + "a" * 1000
    model.graph.node[0].input.append("q")
    with pytest.raises(ModelFileError) as caught:
        to_ir(model, tmp_path)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 300
