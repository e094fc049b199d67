"""ONNX pass: stores constants of bools as numbers with a Cast, for targets that read no tensors of bools.

1. The pass looks at initializers only: `WriteInitializers` turns Constant nodes into initializers first.
2. Initializers that are inputs too, or outputs, stay.
"""

from __future__ import annotations

import onnx_ir as ir

from ....registration.arguments import graphs_of
from ..constants.initializers import Initializers
from .constant_forms import replace_initializer


class StoreBools(ir.passes.InPlacePass):
    """Stores 1 for True and 0 for False, in an element type that Cast takes."""

    def __init__(self, dtype: ir.DataType, initializers: Initializers):
        super().__init__()
        self._dtype = dtype
        self._initializers = initializers

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Rewrite the main graph and its sub-graphs, and report whether anything changed."""
        modified = False
        for graph in graphs_of(model.graph):
            for value in list(graph.initializers.values()):
                if value.dtype != ir.DataType.BOOL or value.const_value is None:
                    continue
                # A caller may replace an input, and expects bools from an output.
                if not value.is_graph_input() and not value.is_graph_output():
                    self._store(graph, value, value.const_value)
                    modified = True
        return ir.passes.PassResult(model, modified)

    def _store(self, graph: ir.Graph, value: ir.Value, tensor: ir.TensorProtocol) -> None:
        stored = self._initializers.make(tensor.numpy().astype(self._dtype.numpy()), f"{value.name}_stored")
        node = ir.node(
            "Cast",
            [stored],
            attributes={"to": ir.DataType.BOOL},
            name=self._initializers.unique(f"Cast_{value.name}"),
        )
        replace_initializer(graph, value, node)
