import pytest

from opsetta.exporter.capture.tensorflow.messages import message_type
from opsetta.exporter.capture.tensorflow.operator_definitions import Definitions, definition, table

CLASSIC = """
Placeholder PlaceholderWithDefault Const Identity IdentityN NoOp StopGradient Conv2D Conv2DBackpropInput
DepthwiseConv2dNative BiasAdd FusedBatchNormV3 MaxPool AvgPool Relu Relu6 LeakyRelu Sigmoid Tanh Softmax
MatMul BatchMatMulV2 Add AddV2 Sub Mul RealDiv Neg Maximum Floor Sqrt Rsqrt SquaredDifference Erfc Mean
Max Prod All Shape Reshape Squeeze ExpandDims Transpose ConcatV2 Pack Unpack Split StridedSlice GatherV2
Pad Fill Range Less Greater GreaterEqual LogicalAnd SelectV2 MatrixBandPart RandomUniform If While
TensorListReserve TensorListFromTensor TensorListGetItem TensorListSetItem TensorListStack Enter Exit
Merge Switch NextIteration LoopCond
"""
PRUNED = """
Assert ScalarSummary SaveV2 RestoreV2 Assign AssignVariableOp VariableV2 VarHandleOp QueueDequeueV2
ReaderReadV2
"""


def test_the_table_has_the_operators_of_frozen_graphs():
    assert [name for name in (CLASSIC + PRUNED).split() if definition(name) is None] == []


def test_the_table_has_no_documentation():
    assert len(table()) > 900
    for operator in table().values():
        assert not operator.summary
        assert not any(attribute.description for attribute in operator.attr)


def test_a_definition_has_arguments_and_defaults():
    concatenation = definition("ConcatV2")
    assert [(a.name, a.number_attr) for a in concatenation.input_arg] == [("values", "N"), ("axis", "")]
    defaults = {a.name: a.default_value for a in definition("Conv2D").attr if a.HasField("default_value")}
    assert list(defaults["dilations"].list.i) == [1, 1, 1, 1]
    assert defaults["data_format"].s == b"NHWC"
    assert "strides" not in defaults


@pytest.mark.parametrize("name", ["", "conv2d", "TPUReplicate", "ApplyAdam"])
def test_an_operator_that_is_not_in_the_table_has_none(name):
    assert definition(name) is None


def test_a_file_defines_operators_of_its_own():
    own = message_type("OpList")()
    own.op.add(name="Relu").attr.add(name="older")
    own.op.add(name="MyOwn").input_arg.add(name="x")
    found = Definitions(own.op)
    assert found("Relu") is definition("Relu")
    assert found("MyOwn").input_arg[0].name == "x"
    assert found("TheirOwn") is None
