"""What versions of an operator mean by arguments that they lack: each change of onnx's schemas was judged."""

import itertools

import onnx
import onnx.defs
import onnx_ir as ir
import pytest
from onnx_ir import DataType, Value

import opsetta.symbolics  # noqa: F401
from opsetta.registration import EmissionError, GraphContext, default_registry

# Each line: an operator, the version that gains arguments, and the arguments. The default of the argument is
# what the versions without it mean, but for what `symbolics/onnx/history/implied_arguments.py` says.
GAINED = """
ArgMax 12 select_last_index
ArgMin 12 select_last_index
Attention 24 nonpad_kv_seqlen
Attention 25 left_window_size right_window_size
AveragePool 7 count_include_pad
AveragePool 10 ceil_mode
AveragePool 19 dilations
BatchNormalization 14 input_mean input_var training_mode
Cast 19 saturate
Cast 24 round_mode
CastLike 19 saturate
CastLike 24 round_mode
Constant 11 sparse_value
Constant 12 value_float value_floats value_int value_ints value_string value_strings
DepthToSpace 11 mode
DequantizeLinear 13 axis
DequantizeLinear 21 block_size
DequantizeLinear 23 output_dtype
Dropout 12 seed training_mode
GRU 3 linear_before_reset
GRU 14 layout
GatherND 12 batch_dims
GroupNormalization 21 stash_type
LSTM 14 layout
LpPool 18 ceil_mode dilations
MaxPool 8 storage_order
MaxPool 10 ceil_mode dilations
Pad 2 pads
Pad 11 constant_value
Pad 18 axes
QuantizeLinear 13 axis
QuantizeLinear 19 saturate
QuantizeLinear 21 block_size output_dtype
QuantizeLinear 23 precision
RNN 14 layout
Range 27 stash_type
ReduceL1 18 noop_with_empty_axes
ReduceL2 18 noop_with_empty_axes
ReduceLogSum 18 noop_with_empty_axes
ReduceLogSumExp 18 noop_with_empty_axes
ReduceMax 18 noop_with_empty_axes
ReduceMean 18 noop_with_empty_axes
ReduceMin 18 noop_with_empty_axes
ReduceProd 18 noop_with_empty_axes
ReduceSum 13 noop_with_empty_axes
ReduceSumSquare 18 noop_with_empty_axes
Reshape 14 allowzero
Resize 11 coordinate_transformation_mode cubic_coeff_a exclude_outside extrapolation_value nearest_mode
Resize 11 roi sizes
Resize 18 antialias axes keep_aspect_ratio_policy
RoiAlign 16 coordinate_transformation_mode
Scan 9 scan_input_axes scan_input_directions scan_output_axes scan_output_directions
ScatterElements 16 reduction
ScatterND 16 reduction
Shape 15 end start
Slice 10 steps
SpaceToDepth 28 mode
Split 18 num_outputs
Tile 6 repeats
TopK 10 K
TopK 11 largest sorted
Upsample 7 scales
ai.onnx.ml::LabelEncoder 2 default_float keys_floats keys_int64s keys_strings
ai.onnx.ml::LabelEncoder 2 values_floats values_int64s values_strings
ai.onnx.ml::LabelEncoder 4 default_tensor keys_tensor values_tensor
ai.onnx.ml::TreeEnsembleClassifier 3 base_values_as_tensor class_weights_as_tensor
ai.onnx.ml::TreeEnsembleClassifier 3 nodes_hitrates_as_tensor nodes_values_as_tensor
ai.onnx.ml::TreeEnsembleRegressor 3 base_values_as_tensor target_weights_as_tensor
ai.onnx.ml::TreeEnsembleRegressor 3 nodes_hitrates_as_tensor nodes_values_as_tensor
"""

# The version that has no argument any more. Its meaning is the default that the argument had, but for what
# `implied_arguments.py` says, and what functions such as `before7::Add` take care of.
LOST = """
Add 7 axis broadcast
And 7 axis broadcast
BatchNormalization 7 is_test
BatchNormalization 9 spatial
BatchNormalization 14 mean var
Div 7 axis broadcast
Dropout 7 is_test
Equal 7 axis broadcast
GRU 7 output_sequence
Gemm 7 broadcast
Greater 7 axis broadcast
LSTM 7 output_sequence
Less 7 axis broadcast
Mul 7 axis broadcast
Or 7 axis broadcast
Pad 2 paddings
Pad 11 value
Pow 7 axis broadcast
RNN 7 output_sequence
Reshape 5 consumed_inputs
Scan 9 directions sequence_lens
Sub 7 axis broadcast
Tile 6 axis tiles
TopK 10 k
Upsample 7 height_scale width_scale
Xor 7 axis broadcast
ai.onnx.ml::LabelEncoder 2 classes_strings
"""

# Versions 6 of these took away `consumed_inputs`, which nothing reads.
CONSUMED = """
Abs Add BatchNormalization Ceil Clip Div Dropout Elu Exp Floor HardSigmoid InstanceNormalization LeakyRelu Log
Max Mean Min Mul Neg PRelu Reciprocal Relu Selu Sigmoid Sqrt Sub Sum Tanh
"""

# The version from which an attribute has another default, or must be given. Conversion writes out the old
# default, or the operator has a function such as `before13::Softmax`. Clip 1 says in words what 6 has as a
# default, GRU 1 is misspelt, and LpPool 1 and Constant 9 are refused, or the same, without the attribute.
CHANGED = """
Clip 6 max min
Concat 4 axis
Constant 11 value
GRU 3 direction
GridSample 20 mode
Hardmax 13 axis
LogSoftmax 13 axis
LpPool 2 kernel_shape
Selu 6 alpha gamma
Softmax 13 axis
Split 2 axis
"""


def listed(text):
    lines = (line.split() for line in text.strip().splitlines())
    return {(name, int(version), argument) for name, version, *arguments in lines for argument in arguments}


def default_of(attribute):
    return onnx.helper.get_attribute_value(attribute.default_value) if attribute.default_value.name else None


def arguments_of(schema):
    return {*schema.attributes, *(formal.name for formal in schema.inputs)}


def changes():
    """What each version of each operator gained, lost and gave another default."""
    every = sorted(
        onnx.defs.get_all_schemas_with_history(), key=lambda s: (s.domain, s.name, s.since_version)
    )
    gained, lost, changed = set(), set(), set()
    for older, newer in itertools.pairwise(every):
        if (older.domain, older.name) != (newer.domain, newer.name):
            continue
        name = f"{newer.domain}::{newer.name}" if newer.domain else newer.name
        old, new = arguments_of(older), arguments_of(newer)
        gained |= {(name, newer.since_version, argument) for argument in new - old}
        lost |= {(name, newer.since_version, argument) for argument in old - new}
        for argument in older.attributes.keys() & newer.attributes.keys():
            a, b = older.attributes[argument], newer.attributes[argument]
            if default_of(a) != default_of(b) or a.required != b.required:
                changed.add((name, newer.since_version, argument))
    return gained, lost, changed


def test_every_change_of_an_argument_was_judged():
    """A line that is missing stands for a new operator version: read the texts of it and the one before.

    Where the version without the argument does not mean its default, say so in `implied_arguments.py`.
    """
    gained, lost, changed = changes()
    assert gained == listed(GAINED)
    assert lost == listed(LOST) | {(name, 6, "consumed_inputs") for name in CONSUMED.split()}
    assert changed == listed(CHANGED)


def test_every_exception_is_one_of_the_changes():
    known = {(name, argument) for name, _, argument in listed(GAINED) | listed(LOST)}
    assert set(default_registry._implied) <= known


def context(opset):
    graph = ir.Graph([], [], nodes=[], opset_imports={"": opset}, name="g")
    return GraphContext(graph, opset, default_registry)


def tensor(*shape, dtype=DataType.FLOAT):
    return Value(name="x", type=ir.TensorType(dtype), shape=ir.Shape(shape))


REGIONS = tensor(1, 2, 8, 8), tensor(3, 4), tensor(3, dtype=DataType.INT64)
IMAGE = tensor(1, 2, 8, 8)
COLUMN = tensor(1, 2), tensor(1, 3, 2), tensor(1, 3, 3)

MEANT = [
    ("RoiAlign", 15, REGIONS, {"coordinate_transformation_mode": "output_half_pixel"}),
    ("Resize", 10, (IMAGE, [1.0, 1.0, 2.0, 2.0]), {"coordinate_transformation_mode": "asymmetric"}),
    ("QuantizeLinear", 10, (IMAGE, 0.5), {"axis": 1, "saturate": 0}),
    ("Cast", 18, (IMAGE,), {"to": 6, "saturate": 0, "round_mode": "down"}),
    ("MaxPool", 9, (IMAGE,), {"kernel_shape": [2, 2], "dilations": [1, 1], "ceil_mode": 0}),
    ("Slice", 9, (IMAGE,), {"starts": [0], "ends": [1], "steps": [1]}),
    ("Dropout", 10, (IMAGE,), {"training_mode": False, "seed": 3}),
    ("Dropout", 7, (IMAGE,), {"is_test": 1}),
    ("ArgMax", 11, (IMAGE,), {"select_last_index": 0}),
]


@pytest.mark.parametrize(("op_type", "opset", "inputs", "arguments"), MEANT)
def test_an_argument_that_says_what_the_version_means_is_left_out(op_type, opset, inputs, arguments):
    node = context(opset).op(op_type, *inputs, **arguments).producer()
    assert node.op_type == op_type
    assert not set(node.attributes) - {"to", "kernel_shape", "starts", "ends"}
    assert len([value for value in node.inputs if value is not None]) == len(inputs)


NOT_MEANT = [
    ("Dropout", 7, (IMAGE,), {"is_test": 0}),
]


@pytest.mark.parametrize(("op_type", "opset", "inputs", "arguments"), NOT_MEANT)
def test_an_argument_that_says_something_else_is_refused(op_type, opset, inputs, arguments):
    with pytest.raises(EmissionError, match="no longer has argument"):
        context(opset).op(op_type, *inputs, **arguments)


TWICE = {"scales": [1.0, 1.0, 2.0, 1.5]}
COMPOSED = [
    ("Resize", 10, {**TWICE, "coordinate_transformation_mode": "half_pixel"}),
    ("Resize", 10, {**TWICE, "coordinate_transformation_mode": "asymmetric", "nearest_mode": "ceil"}),
    ("Resize", 17, {**TWICE, "mode": "linear", "antialias": 1}),
    ("MaxPool", 9, {"kernel_shape": [2, 2], "dilations": [2, 1]}),
    ("AveragePool", 9, {"kernel_shape": [2, 2], "dilations": [2, 1]}),
]


@pytest.mark.parametrize(("op_type", "opset", "arguments"), COMPOSED)
def test_an_argument_that_says_something_else_is_composed(op_type, opset, arguments):
    g = context(opset)
    g.op(op_type, IMAGE, **arguments)
    assert op_type not in [node.op_type for node in g.graph]


def test_windows_that_are_rounded_up_are_pads_where_the_operator_rounds_down():
    arguments = {"kernel_shape": [3, 2], "strides": [2, 3], "ceil_mode": 1}
    node = context(9).op("AveragePool", IMAGE, **arguments).producer()
    assert (node.op_type, "ceil_mode" in node.attributes) == ("AveragePool", False)
    # Of eight rows, the last window begins at 6 and has three; that of the columns ends with the image.
    assert tuple(node.attributes["pads"].value) == (0, 0, 1, 0)


def test_a_scale_for_each_channel_is_composed_where_the_operator_has_one_scale():
    g = context(10)
    g.op("QuantizeLinear", IMAGE, tensor(2), axis=1)
    assert "QuantizeLinear" not in [node.op_type for node in g.graph]
