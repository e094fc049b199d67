"""Writes a Squeeze of the direction behind each unidirectional recurrent layer, which pnnx knows it by.

1. The Squeeze is the only node that reads the sequence of a layer; all others read what it computes.
   `JoinDirections` does the like for bidirectional layers.
2. Where only the cell state of an LSTM is read, the last step is joined to that state and cut off again,
   because pnnx drops a Squeeze that nothing reads.
3. One step of one sequence lies between Transposes, behind which its batch is the first dimension, as in the
   data of other operators. Slices, which give the last state, read it without.
4. Sizes are known.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from ....registration import GraphContext
from ....registration.functions.results import as_list
from ....registration.inference.constant_integers import argument
from ...onnx_graph.node_pass import NodePass, producer_of
from ...onnx_graph.shapes.shape_chains import reshape_target
from ..rewriting import Rewriter

_SHAPES = ("Flatten", "Reshape", "Squeeze", "Unsqueeze")
_BATCH_FIRST = [1, 0, 2]


class SqueezeSequences(NodePass):
    """Writes a Squeeze as the only reader of each sequence of one direction."""

    op_types = ("GRU", "LSTM", "RNN")
    _rewriter: Rewriter | None = None

    def begin(self, model: ir.Model) -> bool:
        """Make the rewriter of the model."""
        self._rewriter = Rewriter(model)
        return True

    def rewrite(self, node: ir.Node) -> bool:
        """Replace a layer by one in front of a Squeeze, and let its readers read that."""
        sequence = node.outputs[0]
        if sequence.shape is None or not sequence.shape.is_static() or len(sequence.shape) != 4:
            return False
        sizes = sequence.shape.numpy()
        is_read = bool(sequence.uses()) or sequence.is_graph_output()
        if not is_read:
            return any(state.uses() for state in node.outputs[2:]) and self._read_cell_state(node, sizes)
        readers = list(dict.fromkeys(reader for reader, _ in sequence.uses()))
        is_step = sizes[0] == sizes[2] == 1 and producer_of(node.inputs[0], "Transpose") is None
        has_squeeze = len(readers) == 1 and _squeezes_direction(readers[0])
        if sizes[1] != 1 or (has_squeeze and not is_step):
            return False
        self._squeeze(node, readers, is_step)
        return True

    def _squeeze(self, node: ir.Node, readers: list[ir.Node], is_step: bool) -> None:
        assert self._rewriter is not None
        with self._rewriter.before(node) as g:
            results = _emit_layer(g, node, is_step)
            steps = squeezed = g.op("Squeeze", results[0], axes=[1])
            if is_step:
                steps = g.op("Transpose", squeezed, perm=_BATCH_FIRST)
            results[0] = g.op("Unsqueeze", steps, axes=[1])
        self._rewriter.replace(node, results)
        for reader in readers:
            target = reshape_target(reader.outputs[0].shape)
            if not reader.domain and reader.op_type in _SHAPES and target is not None:
                with self._rewriter.before(reader) as g:
                    value = steps if _squeezes_direction(reader) else g.op("Reshape", steps, target)
                self._rewriter.replace(reader, [value])
        for reader, position in list(steps.uses()):
            if reader.op_type == "Slice" and not reader.domain:
                reader.replace_input_with(position, squeezed)

    def _read_cell_state(self, node: ir.Node, sizes: tuple[int, ...]) -> bool:
        assert self._rewriter is not None
        if sizes[1] != 1:
            return False
        end, size = np.iinfo(np.int64).max, sizes[-1]
        with self._rewriter.before(node) as g:
            results = _emit_layer(g, node, False)
            last = g.op("Slice", g.op("Squeeze", results[0], axes=[1]), starts=[-1], ends=[end], axes=[0])
            joined = g.op("Concat", last, results[2], axis=2)
            results[2] = g.op("Slice", joined, starts=[size], ends=[2 * size], axes=[2])
        self._rewriter.replace(node, results)
        return True


def _emit_layer(g: GraphContext, node: ir.Node, is_step: bool) -> list[ir.Value]:
    data, *operands = node.inputs
    data = g.op("Transpose", data, perm=_BATCH_FIRST) if is_step else data
    attributes = {name: attribute.value for name, attribute in node.attributes.items()}
    results = as_list(g.op(node.op_type, data, *operands, **attributes, outputs=len(node.outputs)))
    # Emission infers no shapes of recurrent layers.
    for result, output in zip(results, node.outputs, strict=True):
        result.type, result.shape = node.outputs[0].type, output.shape
    return results


def _squeezes_direction(node: ir.Node) -> bool:
    return node.op_type == "Squeeze" and not node.domain and argument(node, "axes", 1) == [1]
