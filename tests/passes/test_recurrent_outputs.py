"""Recurrent nodes have all of their outputs."""

from __future__ import annotations

import onnx
import onnx_ir as ir
import pytest

from opsetta.passes.onnx_graph.optimize import optimize

from .graph_case import Case, numbers


@pytest.mark.parametrize(("op_type", "gates", "count"), [("LSTM", 4, 3), ("GRU", 3, 2), ("RNN", 1, 2)])
@pytest.mark.parametrize("level", ["none", "full"])
def test_recurrent_nodes_have_all_outputs(op_type: str, gates: int, count: int, level: str) -> None:
    case = Case([3, 1, 2])
    w, r = case.weight("w", numbers(1, gates * 4, 2)), case.weight("r", numbers(1, gates * 4, 4))
    case.returns(case.g.op(op_type, case.x, w, r, hidden_size=4))
    before = case.run(numbers(3, 1, 2))
    optimize(case.model, level=level)
    [node] = case.model.graph
    assert len({value.name for value in node.outputs}) == count
    assert (case.run(numbers(3, 1, 2))[0] == before[0]).all()
    optimize(case.model, level=level)
    assert len(node.outputs) == count


@pytest.mark.parametrize(("op_type", "gates"), [("LSTM", 4), ("GRU", 3), ("RNN", 1)])
def test_states_of_nodes_with_the_batch_first_have_the_batch_first(op_type: str, gates: int) -> None:
    """onnxruntime has no kernel for them; onnx's inference compares the declared shapes."""
    case = Case([3, 5, 2])
    w, r = case.weight("w", numbers(1, gates * 4, 2)), case.weight("r", numbers(1, gates * 4, 4))
    result = case.g.op(op_type, case.x, w, r, hidden_size=4, layout=1)
    result.shape = ir.Shape([3, 5, 1, 4])
    case.returns(result)
    optimize(case.model, level="none")
    [node] = case.model.graph
    assert [list(state.shape or ()) for state in node.outputs[1:]] == [[3, 1, 4]] * (len(node.outputs) - 1)
    onnx.checker.check_model(ir.to_proto(case.model), full_check=True)
