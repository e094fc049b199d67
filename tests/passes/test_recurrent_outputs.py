"""Recurrent nodes have all of their outputs."""

from __future__ import annotations

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
