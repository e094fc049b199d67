"""ONNX pass: adds all outputs to LSTM, GRU and RNN, because MNN and others refuse nodes with fewer.

1. The missing outputs are added at the end of the node's outputs; nothing reads them.
2. An output that is left out in front of another one gets a name.
"""

from __future__ import annotations

import onnx_ir as ir

from ....registration import Names
from ..node_pass import NodePass
from ..pass_order import Run

_OUTPUTS = {"GRU": 2, "LSTM": 3, "RNN": 2}


class CompleteRecurrentOutputs(NodePass):
    """Adds the final states to recurrent nodes that only have the sequence."""

    runs = (Run("none", after={"RemoveUnusedAtEnd": "It would leave out the outputs that nothing reads."}),)
    op_types = tuple(_OUTPUTS)
    _main: ir.Graph
    _names: Names | None = None

    def begin(self, model: ir.Model) -> bool:
        """Keep the graph, whose names are read when a node needs one."""
        self._main, self._names = model.graph, None
        return True

    def rewrite(self, node: ir.Node) -> bool:
        """Add the outputs that a node lacks."""
        has_all = len(node.outputs) == _OUTPUTS[node.op_type]
        if not node.outputs or (has_all and all(output.name for output in node.outputs)):
            return False
        self._names = self._names or Names.of(self._main)
        _complete(node, self._names)
        return True


def _complete(node: ir.Node, names: Names) -> None:
    first = node.outputs[0]
    shape = first.shape
    # Y is [length, directions, batch, hidden], or with the batch first [batch, length, directions, hidden];
    # the states lack the length.
    length = 1 if node.attributes.get_int("layout", 0) else 0
    state = None
    if shape is not None and len(shape) == 4:
        state = ir.Shape([size for axis, size in enumerate(shape) if axis != length])
    node.resize_outputs(_OUTPUTS[node.op_type])
    for index, output in enumerate(node.outputs):
        if not output.name:
            output.name = names.unique(f"{node.name or node.op_type}_output_{index}")
            output.type, output.shape = first.type, state if index else shape
