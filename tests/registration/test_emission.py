"""Schema-bound emission: places, casts, refusals, constants, names."""

import numpy as np
import onnx_ir as ir
import pytest
from onnx_ir import AttributeType, DataType

from opsetta.registration import MODULE, SOURCE, EmissionError, GraphContext, Registry, Value
from opsetta.registration.arguments import source_node


def tensor(dtype=DataType.FLOAT, shape=(2, 3), name="x") -> Value:
    return Value(
        name=name,
        type=None if dtype is None else ir.TensorType(dtype),
        shape=None if shape is None else ir.Shape(shape),
    )


def context(opset=13) -> GraphContext:
    graph = ir.Graph([], [], nodes=[], opset_imports={"": opset}, name="g")
    return GraphContext(graph, opset, Registry())


def constant_of(value):
    return value.const_value.numpy().tolist()


MOVED = [
    ("Squeeze", 13, {"axes": [0]}, (1, 3)),
    ("Unsqueeze", 13, {"axes": [0]}, (2, 3)),
    ("ReduceSum", 13, {"axes": [1]}, (2, 3)),
    ("ReduceMean", 18, {"axes": [1]}, (2, 3)),
    ("ReduceMax", 18, {"axes": [1]}, (2, 3)),
    ("ReduceMin", 18, {"axes": [1]}, (2, 3)),
    ("ReduceProd", 18, {"axes": [1]}, (2, 3)),
    ("ReduceL1", 18, {"axes": [1]}, (2, 3)),
    ("ReduceL2", 18, {"axes": [1]}, (2, 3)),
    ("ReduceLogSum", 18, {"axes": [1]}, (2, 3)),
    ("ReduceLogSumExp", 18, {"axes": [1]}, (2, 3)),
    ("ReduceSumSquare", 18, {"axes": [1]}, (2, 3)),
    ("Slice", 10, {"starts": [0], "ends": [1], "axes": [1]}, (2, 3)),
    ("Clip", 11, {"min": 0.0, "max": 6.0}, (2, 3)),
    ("Pad", 11, {"pads": [0, 1, 0, 1], "value": 1.5}, (2, 3)),
]


@pytest.mark.parametrize(("op_type", "moved", "arguments", "shape"), MOVED, ids=[m[0] for m in MOVED])
def test_an_argument_is_an_attribute_before_its_move_and_an_input_after(op_type, moved, arguments, shape):
    before = context(moved - 1).op(op_type, tensor(shape=shape), **arguments).producer()
    assert len(before.inputs) == 1
    for name, argument in arguments.items():
        found = before.attributes[name].value
        assert (list(found) if isinstance(argument, list) else found) == argument
    after = context(moved).op(op_type, tensor(shape=shape), **arguments).producer()
    assert not after.attributes
    assert [constant_of(value) for value in after.inputs[1:]] == list(arguments.values())


@pytest.mark.parametrize(("opset", "inputs"), [(9, 1), (12, 1), (13, 2), (18, 2)])
def test_split_sizes(opset, inputs):
    results = context(opset).op("Split", tensor(), split=[1, 2], axis=1, outputs=2)
    assert [value.dtype for value in results] == [DataType.FLOAT] * 2
    assert len(results[0].producer().inputs) == inputs


@pytest.mark.parametrize(("opset", "name"), [(9, "k"), (9, "K"), (10, "k"), (11, "K")])
def test_topk_by_either_name(opset, name):
    values, indices = context(opset).op("TopK", tensor(), axis=1, outputs=2, **{name: 2})
    assert (values.dtype, indices.dtype) == (DataType.FLOAT, DataType.INT64)
    node = values.producer()
    if opset < 10:
        assert node.attributes["k"].value == 2
    else:
        assert constant_of(node.inputs[1]) == [2]


@pytest.mark.parametrize(("opset", "inputs"), [(11, 1), (12, 2)])
def test_dropout_ratio(opset, inputs):
    assert len(context(opset).op("Dropout", tensor(), ratio=0.25).producer().inputs) == inputs


def test_a_left_out_input_in_the_middle_is_kept_open():
    node = context(11).op("Clip", tensor(), max=6.0).producer()
    assert node.inputs[1] is None
    assert constant_of(node.inputs[2]) == 6.0


def test_arguments_that_are_none_are_left_out():
    node = context(11).op("Clip", tensor(), min=None, max=None).producer()
    assert len(node.inputs) == 1
    assert not node.attributes


def test_a_computed_list_is_stacked():
    n = tensor(DataType.INT64, (), "n")
    g = context(13)
    node = g.op("Reshape", tensor(), [n, -1]).producer()
    assert [made.op_type for made in g.graph] == ["Unsqueeze", "Concat", "Reshape"]
    assert node.inputs[1].producer().op_type == "Concat"


def test_a_computed_attribute_is_refused_with_the_opset_that_takes_it():
    computed = tensor(DataType.INT64, (1,), "s")
    with pytest.raises(EmissionError, match="'starts' of ONNX operator Slice .* from 10 it may be") as caught:
        context(9).op("Slice", tensor(), starts=computed, ends=[1])
    assert caught.value.first_opset == 10


def test_a_constant_value_serves_as_an_attribute():
    g = context(12)
    node = g.op("Unsqueeze", tensor(), axes=g.constant([0, 1])).producer()
    assert list(node.attributes["axes"].value) == [0, 1]


def test_an_argument_that_begins_later_is_refused_unless_it_is_the_default():
    x = tensor(shape=(1, 1, 4, 4))
    arguments = {"scales": [1.0, 1.0, 2.0, 2.0], "mode": "linear"}
    node = context(13).op("Resize", x, antialias=0, **arguments).producer()
    assert "antialias" not in node.attributes
    with pytest.raises(EmissionError, match="no argument 'antialias' at opset 13; it begins at 18") as caught:
        context(13).op("Resize", x, antialias=1, **arguments)
    assert caught.value.first_opset == 18


def test_an_argument_of_no_opset_is_refused():
    with pytest.raises(EmissionError, match="Relu has no argument 'slope' at any opset"):
        context().op("Relu", tensor(), slope=1)


def test_an_operator_that_begins_later_is_refused_with_its_opset():
    with pytest.raises(EmissionError, match="LayerNormalization does not exist .* begins at 17") as caught:
        context(16).op("LayerNormalization", tensor(), tensor(shape=(3,)))
    assert caught.value.first_opset == 17


def test_a_deprecated_and_an_unknown_operator_are_refused():
    with pytest.raises(EmissionError, match="Upsample is deprecated at opset 10"):
        context(10).op("Upsample", tensor(), [1.0, 2.0])
    with pytest.raises(EmissionError, match="ONNX has no operator 'Nothing'"):
        context().op("Nothing", tensor())


@pytest.mark.parametrize("prefix", ["onnx::", "ai.onnx::", ""])
def test_the_default_domain_by_its_names(prefix):
    node = context().op(f"{prefix}Relu", tensor()).producer()
    assert (node.domain, node.op_type) == ("", "Relu")


def test_too_many_and_missing_inputs_are_refused():
    with pytest.raises(EmissionError, match="Relu takes 1 inputs at opset 13, not 2"):
        context().op("Relu", tensor(), tensor())
    with pytest.raises(EmissionError, match="Add needs input 'B' at opset 13"):
        context().op("Add", tensor())
    with pytest.raises(EmissionError, match="Cast needs attribute 'to'"):
        context().op("Cast", tensor())
    with pytest.raises(EmissionError, match="Clip was given 'min' twice"):
        context().op("Clip", tensor(), 0.0, min=1.0)
    with pytest.raises(EmissionError, match="Relu has 1 outputs, not 2"):
        context().op("Relu", tensor(), outputs=2)


def test_python_numbers_take_the_element_type_of_the_others():
    for dtype in (DataType.FLOAT, DataType.DOUBLE, DataType.FLOAT16, DataType.INT64):
        node = context(14).op("Add", tensor(dtype), 2).producer()
        assert node.inputs[1].dtype == dtype
        assert constant_of(node.inputs[1]) == 2
    node = context(14).op("Sub", 1, tensor(DataType.DOUBLE)).producer()
    assert node.inputs[0].dtype == DataType.DOUBLE


@pytest.mark.parametrize("number", [1.5, float("inf"), float("nan")])
def test_a_fraction_among_whole_numbers_is_refused(number):
    with pytest.raises(EmissionError, match="input 'B' of ONNX operator Add is of type INT64"):
        context(14).op("Add", tensor(DataType.INT64), number)


def test_whole_numbers_of_any_form_serve_integers():
    node = context(14).op("Add", tensor(DataType.UINT8), -1).producer()
    assert constant_of(node.inputs[1]) == 255  # As PyTorch wraps it.
    node = context(14).op("Add", tensor(DataType.INT64), 2.0).producer()
    assert constant_of(node.inputs[1]) == 2


def test_two_numbers_of_one_type_variable_are_of_the_type_that_holds_both():
    node = context(13).op("Where", tensor(DataType.BOOL), 1, 2.5).producer()
    assert node.inputs[1].dtype == node.inputs[2].dtype == DataType.FLOAT
    assert [constant_of(value) for value in node.inputs[1:]] == [1.0, 2.5]


def test_two_element_types_where_one_is_taken_are_refused():
    with pytest.raises(EmissionError, match="Add takes .* received FLOAT and INT64: convert one"):
        context().op("Add", tensor(), tensor(DataType.INT64))


@pytest.mark.parametrize(
    ("op_type", "opset", "dtype", "wide"),
    [
        ("Clip", 11, DataType.INT32, DataType.DOUBLE),
        ("Clip", 11, DataType.INT8, DataType.FLOAT),
        ("Relu", 13, DataType.INT32, DataType.DOUBLE),
        ("Transpose", 13, DataType.INT8, None),
        ("Relu", 14, DataType.INT32, None),
        ("Neg", 13, DataType.UINT8, DataType.INT16),
        ("Abs", 13, DataType.BOOL, DataType.INT32),
        ("Round", 21, DataType.BFLOAT16, DataType.FLOAT),
    ],
)
def test_element_types_outside_the_list_are_cast_there_and_back(op_type, opset, dtype, wide):
    g = context(opset)
    result = g.op(op_type, tensor(dtype))
    assert result.dtype == dtype
    made = [node.op_type for node in g.graph]
    assert made == ([op_type] if wide is None else ["Cast", op_type, "Cast"])
    if wide is not None:
        assert next(iter(g.graph)).outputs[0].dtype == wide


def test_a_comparison_is_cast_there_but_not_back():
    g = context(7)
    result = g.op("Less", tensor(DataType.INT32), tensor(DataType.INT32))
    assert result.dtype == DataType.BOOL
    assert [node.op_type for node in g.graph] == ["Cast", "Cast", "Less"]


def test_an_element_type_that_nothing_holds_is_refused_with_the_opset_that_takes_it():
    with pytest.raises(EmissionError, match="Clip does not take INT64 at opset 11.*from opset 12") as caught:
        context(11).op("Clip", tensor(DataType.INT64), min=0)
    assert caught.value.first_opset == 12
    with pytest.raises(EmissionError, match="Equal does not take FLOAT at opset 10") as caught:
        context(10).op("Equal", tensor(), tensor())
    assert caught.value.first_opset == 11


def test_an_element_type_that_no_cast_takes_is_refused():
    with pytest.raises(EmissionError, match="Cast does not take BFLOAT16 at opset 12") as caught:
        context(12).op("Sqrt", tensor(DataType.BFLOAT16))
    assert caught.value.first_opset == 13


def test_a_result_type_that_the_opset_lacks_is_refused():
    with pytest.raises(EmissionError, match="Cast cannot return BFLOAT16.* from opset 13") as caught:
        context(12).op("Cast", tensor(), to=int(DataType.BFLOAT16))
    assert caught.value.first_opset == 13


def test_an_input_of_a_fixed_type_is_cast_or_refused():
    g = context(13)
    node = g.op("Reshape", tensor(), tensor(DataType.INT32, (2,), "s")).producer()
    assert node.inputs[1].dtype == DataType.INT64
    with pytest.raises(EmissionError, match="input 'shape' of ONNX operator Reshape takes INT64"):
        context(13).op("Reshape", tensor(), tensor(DataType.FLOAT, (2,), "s"))


def test_an_unknown_element_type_and_rank_pass():
    result = context().op("Relu", tensor(None, None))
    assert result.dtype is None
    assert result.shape is None


@pytest.mark.parametrize(
    ("op_type", "arguments", "dtype"),
    [
        ("Cast", {"to": int(DataType.INT32)}, DataType.INT32),
        ("Shape", {}, DataType.INT64),
        ("IsNaN", {}, DataType.BOOL),
        ("ArgMax", {"axis": 0}, DataType.INT64),
        ("RandomNormalLike", {}, DataType.FLOAT),
        ("RandomNormalLike", {"dtype": int(DataType.DOUBLE)}, DataType.DOUBLE),
    ],
)
def test_result_types_come_from_the_schema(op_type, arguments, dtype):
    assert context().op(op_type, tensor(shape=None), **arguments).dtype == dtype


def test_constants_are_shared_and_kept_only_when_used():
    g = context(13)
    a, b, unused = g.constant([1, 2]), g.constant([1, 2]), g.constant(3)
    assert a is b
    assert g.constant([1, 2], DataType.INT32) is not a
    assert g.constant(0.0) is not g.constant(-0.0)
    assert g.constant(True) is not g.constant(1)
    assert g.constant(1) is not g.constant([1])
    g.op("Reshape", tensor(), a)
    assert list(g.graph.initializers.values()) == [a]
    assert not unused.is_initializer()


@pytest.mark.parametrize(
    ("value", "dtype"),
    [(1, DataType.INT64), (True, DataType.BOOL), (1.0, DataType.FLOAT), ([], DataType.INT64)],
)
def test_element_types_of_constants(value, dtype):
    assert context().constant(value).dtype == dtype
    assert context().constant(value, DataType.FLOAT16).dtype == DataType.FLOAT16


def test_a_constant_of_an_array_keeps_its_type_and_layout():
    array = np.arange(6, dtype=np.int8).reshape(2, 3).T
    value = context().constant(array)
    assert value.dtype == DataType.INT8
    assert constant_of(value) == array.tolist()


def test_shape_arithmetic_over_constants_leaves_no_nodes():
    g = context(13)
    x = tensor(shape=(2, 3, 4))
    last = g.op("Gather", g.op("Shape", x), [2], axis=0)
    target = g.op("Concat", [-1], g.op("Mul", last, 2), axis=0)
    assert constant_of(target) == [-1, 8]
    assert len(g.graph) == 0
    assert not g.graph.initializers


@pytest.mark.parametrize(("opset", "dtype"), [(9, DataType.INT8), (13, DataType.UINT8)])
def test_folding_keeps_the_element_type_where_the_operator_needs_another(opset, dtype):
    g = context(opset)
    result = g.op("Add", g.constant(100, dtype), g.constant(100, dtype))
    assert result.dtype == dtype
    assert constant_of(result) == np.add(np.int64(100), 100).astype(dtype.numpy())


def test_the_state_of_the_model_is_not_folded():
    g = context(13)
    weight = g.constant([1, 2])
    state = Value(
        name="w", type=ir.TensorType(DataType.INT64), shape=ir.Shape([2]), const_value=weight.const_value
    )
    assert g.op("Neg", state).producer() is not None
    assert not g.is_foldable(state)
    assert g.constant_value(state).tolist() == [1, 2]


def test_sizes_are_ints_where_they_are_known():
    g = context(13)
    x = tensor(shape=("batch", 3))
    assert g.size(x, 1) == g.size(x, -1) == 3
    assert len(g.graph) == 0
    batch = g.size(x, 0)
    assert (batch.dtype, batch.shape.dims) == (DataType.INT64, ())
    assert [node.op_type for node in g.graph] == ["Shape", "Gather", "Squeeze"]
    unknown = g.size(tensor(shape=None), -2)
    assert unknown.dtype == DataType.INT64


def test_stack_undoes_the_squeeze_of_a_size():
    g = context(13)
    shape = g.stack([g.size(tensor(shape=("batch", 3)), 0), 3, g.constant(4)])
    assert shape.producer().op_type == "Concat"
    assert shape.producer().inputs[0].producer().op_type == "Gather"
    assert constant_of(shape.producer().inputs[1]) == [3, 4]


def test_stack_of_ints_is_a_constant():
    assert constant_of(context().stack([1, 2])) == [1, 2]
    assert constant_of(context().stack([])) == []


def test_cast_to_its_own_type_is_nothing():
    g, x = context(), tensor()
    assert g.cast(x, DataType.FLOAT) is x
    assert len(g.graph) == 0


def test_nodes_carry_names_and_where_they_come_from():
    g = context()
    node = source_node("aten::relu", {"self": tensor()}, overload="default", num_outputs=1)
    g.construction.enter(node, "layer1.0.relu")
    made = g.op("Relu", tensor()).producer()
    again = g.op("Relu", tensor()).producer()
    assert (made.name, again.name) == ("layer1.0.relu/Relu", "layer1.0.relu/Relu_1")
    assert made.metadata_props[SOURCE] == "aten::relu.default"
    assert made.metadata_props[MODULE] == "layer1.0.relu"
    assert g.expected == node.outputs


def test_the_element_types_of_a_foreign_operator_are_free():
    g = context()
    result = g.op("mylib::Op", tensor(), 2, None, alpha=0.5, axes=[1, 2], mode="a", flag=True, left_out=None)
    node = result.producer()
    assert (node.domain, node.op_type) == ("mylib", "Op")
    assert g.graph.opset_imports["mylib"] == 1
    kinds = {name: attribute.type for name, attribute in node.attributes.items()}
    assert kinds == {
        "alpha": AttributeType.FLOAT,
        "axes": AttributeType.INTS,
        "mode": AttributeType.STRING,
        "flag": AttributeType.INT,
    }
    assert constant_of(node.inputs[1]) == 2


@pytest.mark.parametrize(
    ("argument", "value", "kind"),
    [
        ("alpha_f", 0.5, AttributeType.FLOAT),
        ("alpha_f", 2, AttributeType.FLOAT),
        ("alpha_f", [0.5, 1.0], AttributeType.FLOATS),
        ("k_i", 3, AttributeType.INT),
        ("axes_i", [1], AttributeType.INTS),
        ("axes_i", [1, 2], AttributeType.INTS),
        ("mode_s", "nearest", AttributeType.STRING),
        ("modes_s", ["a", "b"], AttributeType.STRINGS),
    ],
)
def test_suffixes_of_torch_onnx_name_the_type_of_an_attribute(argument, value, kind):
    node = context().op("mylib::Op", tensor(), **{argument: value}).producer()
    attribute = node.attributes[argument[:-2]]
    assert attribute.type == kind
    assert (list(attribute.value) if isinstance(value, list) else attribute.value) == value


def test_a_tensor_attribute_by_suffix():
    node = context().op("mylib::Op", tensor(), table_t=np.ones(2, dtype=np.float32)).producer()
    assert node.attributes["table"].type == AttributeType.TENSOR
    assert node.attributes["table"].value.numpy().tolist() == [1.0, 1.0]


def test_suffixes_serve_operators_with_a_schema_too():
    node = context(9).op("LeakyRelu", tensor(), alpha_f=0.1).producer()
    assert node.attributes["alpha"].value == pytest.approx(0.1)
    after = context(13).op("Squeeze", tensor(shape=(1, 3)), axes_i=[0]).producer()
    assert constant_of(after.inputs[1]) == [0]


def test_an_attribute_of_one_value_refuses_a_list():
    with pytest.raises(EmissionError, match="'axis' of ONNX operator Softmax takes one value"):
        context().op("Softmax", tensor(), axis=[0, 1])
    with pytest.raises(EmissionError, match="'threshold' of ONNX operator Binarizer takes one value"):
        context().op("ai.onnx.ml::Binarizer", tensor(), threshold=[0.0, 1.0])


def test_an_attribute_of_whole_numbers_refuses_a_fraction():
    with pytest.raises(EmissionError, match="axis"):
        context().op("Softmax", tensor(), axis=1.5)


def test_an_unknown_operator_of_the_ml_domain_is_refused():
    with pytest.raises(EmissionError, match="Nothing"):
        context().op("ai.onnx.ml::Nothing", tensor())


def test_what_the_target_lacks_is_composed_where_a_function_is_registered():
    g = context(opset=8)
    with pytest.raises(EmissionError, match="begins at 9"):
        g.op("Where", tensor(DataType.BOOL), tensor(), tensor(name="y"))

    def where(g: GraphContext, condition: Value, X: Value, Y: Value) -> Value:
        return g.op("Add", X, Y)

    g.registry.register("onnx::Where", 8, where)
    composed = g.op("Where", tensor(DataType.BOOL), tensor(), Y=tensor(name="y"))
    assert composed.producer().op_type == "Add"
    later = context(opset=9)
    later.registry.register("onnx::Where", 8, where)
    assert later.op("Where", tensor(DataType.BOOL), tensor(), tensor(name="y")).producer().op_type == "Where"


def test_an_element_type_that_the_target_lacks_is_composed_where_a_function_is_registered():
    g = context(opset=8)

    def less(g: GraphContext, A: Value, B: Value) -> Value:
        return g.op("Equal", A, B)

    g.registry.register("onnx::Less", 8, less)
    numbers = tensor(DataType.INT64)
    assert g.op("Less", numbers, numbers).producer().op_type == "Equal"
    assert g.op("Less", tensor(), tensor()).producer().op_type == "Less"
