"""Schema-bound emission of what makes, reads and carries sequences."""

import onnx_ir as ir
import pytest
from onnx_ir import DataType, Value

from opsetta.registration import EmissionError, GraphContext, Registry, schemas


def context(opset: int) -> GraphContext:
    graph = ir.Graph([], [], nodes=[], opset_imports={"": opset}, name="g")
    return GraphContext(graph, opset, Registry())


def tensor(dtype: DataType = DataType.FLOAT) -> Value:
    return Value(name="x", type=ir.TensorType(dtype), shape=ir.Shape([2, 3]))


def sequence(dtype: DataType = DataType.FLOAT) -> Value:
    return Value(name="s", type=ir.SequenceType(ir.TensorType(dtype)))


@pytest.mark.parametrize("dtype", [DataType.FLOAT, DataType.INT64, DataType.BOOL])
def test_element_types_pass_between_tensors_and_sequences(dtype: DataType) -> None:
    g = context(13)
    x = tensor(dtype)
    made = [
        g.op("SequenceConstruct", x, x),
        g.op("SequenceEmpty", dtype=int(dtype)),
        g.op("SequenceInsert", sequence(dtype), x),
        g.op("SequenceErase", sequence(dtype)),
        g.op("SplitToSequence", x, axis=0),
    ]
    assert [value.type for value in made] == [ir.SequenceType(ir.TensorType(dtype))] * len(made)
    read = [g.op("SequenceAt", made[0], 0), g.op("ConcatFromSequence", made[0], axis=0)]
    assert [value.type for value in read] == [ir.TensorType(dtype)] * len(read)
    assert g.op("SequenceLength", made[0]).type == ir.TensorType(DataType.INT64)


def test_identity_of_a_sequence_is_one_from_opset_14() -> None:
    assert context(14).op("Identity", sequence()).type == sequence().type
    assert context(14).op("Identity", tensor()).type == tensor().type
    with pytest.raises(
        EmissionError, match="takes no sequence of FLOAT at opset 13; from opset 14"
    ) as caught:
        context(13).op("Identity", sequence())
    assert caught.value.first_opset == 14


def test_a_loop_carries_sequences_from_opset_13() -> None:
    with pytest.raises(EmissionError, match="Loop takes no sequence of FLOAT at opset 12") as caught:
        context(12).op("Loop", 3, None, sequence(), body=ir.Graph([], [], nodes=[]))
    assert caught.value.first_opset == 13
    schema = schemas.operator_schema("Loop", 12)
    assert schema is not None
    assert schemas.carries(schema, tensor())
    assert not schemas.carries(schema, sequence())
    assert schemas.first_opset_that_carries("If", sequence()) == 13


def test_a_tensor_operator_takes_no_sequence() -> None:
    with pytest.raises(EmissionError, match="Relu takes no sequence of FLOAT"):
        context(21).op("Relu", sequence())


def test_elements_are_never_cast_on_their_way_into_a_sequence() -> None:
    with pytest.raises(EmissionError, match="SequenceConstruct does not take BFLOAT16"):
        context(16).op("SequenceConstruct", tensor(DataType.BFLOAT16))


@pytest.mark.parametrize(("opset", "needed"), [(9, 3), (13, 2)])
def test_an_operator_is_refused_fewer_inputs_than_it_needs(opset: int, needed: int) -> None:
    g = context(opset)
    with pytest.raises(EmissionError, match=f"Loop needs {needed} inputs"):
        g.op("Loop", g.constant(3), body=ir.Graph([], [], nodes=[]))


def test_a_sub_graph_gets_its_outputs_later() -> None:
    g = context(13)
    x = tensor()
    kept: list[Value] = []

    def build() -> list[Value]:
        kept.append(g.op("Relu", x))
        return []

    graph = g.subgraph(build)
    assert not graph.outputs
    g.extend(graph, lambda: [g.op("Neg", kept[0]), x])
    assert [node.op_type for node in graph] == ["Relu", "Neg", "Identity"]
    assert [value.producer().op_type for value in graph.outputs] == ["Neg", "Identity"]
    assert not list(g.graph)
