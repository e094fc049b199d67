"""ONNX pass: computes several linear layers of one input as one product, where that takes fewer nodes.

    MatMul(x, a) -> Split [4, 4],  MatMul(x, b),  MatMul(x, c)
    MatMul(x, [a, b, c]) -> Split [4, 4, 8, 8]

1. The layers are MatMuls, or Gemms with the same attributes and without a bias. Their weights are constant
   matrices of one element type, which nothing else reads.
2. The graph returns none of the results. A result that only a Split along the last axis reads, with constant
   sizes, is divided by the new Split.
3. At least two nodes less remain, so that the queries, keys and values of ordinary attention, which runtimes
   fuse, stay separate. Parts that are divided into heads lie beside each other.
4. The new weight is computed when it is written.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import onnx_ir as ir

from ....registration.dtypes import FLOATS
from ....registration.origins import inherit
from ..constants.deferred_constants import derive_transposed
from ..node_pass import ConstantPass, new_node, new_split, remove_unread, with_size
from ..pass_order import Run

_MAXIMUM_READERS = 64
"""Values with more readers are not looked at, so that the time stays in proportion to the nodes."""
_MINIMUM_SAVED = 2


class _ParallelLayer(NamedTuple):
    """A linear layer, and what its result is divided into.

    Attributes:
        columns: the sizes of its parts.
        parts: its result, or those of the Split that reads it.
        split: that Split.
    """

    product: ir.Node
    weight: ir.Value
    columns: list[int]
    parts: list[ir.Value]
    split: ir.Node | None

    @property
    def is_transposed(self) -> bool:
        """Whether the rows of the weight are the columns of the result."""
        return self.product.attributes.get_int("transB", 0) == 1


class JoinLayers(ConstantPass):
    """Replaces parallel linear layers by one product and a Split."""

    runs = (
        Run(
            "full",
            after={
                "SeparateColumns": "It writes the Splits of layers.",
                "SplitSlices": "It writes Splits.",
                "FoldLinearScales": "Scales go into the weight of their own layer.",
                "FuseSwiGLU": "The operator reads two layers of one input.",
                "WriteRowGemm": "A bias of a Gemm is no node.",
            },
        ),
    )
    op_types = ("MatMul", "Gemm")

    def rewrite(self, node: ir.Node) -> bool:
        """Join a layer, and those that read the same value after it."""
        source = node.inputs[0]
        if source is None or source.shape is None or len(source.shape) < 2:
            return False
        readers = source.uses()
        producer = source.producer()
        if len(readers) > _MAXIMUM_READERS or (producer is not None and producer.graph is not node.graph):
            return False
        if (producer is None and not source.is_graph_input()) or source.graph is not node.graph:
            return False
        alike = [
            reader
            for reader, position in readers
            if position == 0
            and reader.graph is node.graph
            and reader.op_type == node.op_type
            and reader.domain == node.domain
        ]
        if not alike or alike[0] is not node:
            return False
        layers = [layer for layer in map(self._layer, alike) if layer is not None]
        layers = [
            layer
            for layer in layers
            if layer.is_transposed == layers[0].is_transposed and layer.weight.dtype == layers[0].weight.dtype
        ]
        nodes = sum(1 if layer.split is None else 2 for layer in layers)
        if len(layers) < 2 or nodes - 2 < _MINIMUM_SAVED:
            return False
        is_copy = [layer.weight in self.initializers.transposed for layer in layers]
        if any(is_copy) and not all(is_copy):
            return False
        self._join(source, layers, is_copy[0])
        return True

    def _layer(self, product: ir.Node) -> _ParallelLayer | None:
        """The layer of a product; None if it must stay."""
        weight, result = product.inputs[1], product.outputs[0]
        if weight is None or weight.shape is None or len(weight.shape) != 2 or len(weight.uses()) > 1:
            return None
        if not self.initializers.is_constant(weight) or weight.dtype not in FLOATS:
            return None
        if weight.is_graph_output() or result.is_graph_output() or not result.uses():
            return None
        if any(value is not None for value in product.inputs[2:]) or product.attributes.keys() - {"transB"}:
            return None
        columns = weight.shape[0 if product.attributes.get_int("transB", 0) == 1 else 1]
        if not isinstance(columns, int):
            return None
        readers = [reader for reader, _ in result.uses()]
        split = readers[0] if len(readers) == 1 and readers[0].op_type == "Split" else None
        sizes = None if split is None else self.initializers.integers(split, "split", 1)
        if split is None or sizes is None or split.domain or split.graph is not product.graph:
            return _ParallelLayer(product, weight, [columns], [result], None)
        axis, rank = split.attributes.get_int("axis", 0), len(result.shape or ())
        if axis not in (-1, rank - 1) or any(part.is_graph_output() for part in split.outputs):
            return _ParallelLayer(product, weight, [columns], [result], None)
        return _ParallelLayer(product, weight, sizes, [*split.outputs], split)

    def _join(self, source: ir.Value, layers: list[_ParallelLayer], is_copy: bool) -> None:
        parts = [
            (layer, start, size, part)
            for layer in layers
            for start, size, part in zip(
                np.cumsum([0, *layer.columns]).tolist(), layer.columns, layer.parts, strict=False
            )
        ]
        parts.sort(key=lambda entry: not all(reader.op_type == "Reshape" for reader, _ in entry[3].uses()))
        indices = {id(layer): index for index, layer in enumerate(layers)}
        order = [(indices[id(layer)], start, size) for layer, start, size, _ in parts]
        first = layers[0]
        axis = 0 if is_copy or first.is_transposed else 1

        def join(*weights: np.ndarray) -> np.ndarray:
            pieces = [
                np.take(weights[index], range(start, start + size), axis) for index, start, size in order
            ]
            return np.concatenate(pieces, axis)

        weights = [self.initializers.restore(layer.weight) if is_copy else layer.weight for layer in layers]
        assert source.shape is not None
        assert first.weight.dtype is not None
        columns = sum(size for _, _, size in order)
        depth = next(size for index, size in enumerate(weights[0].shape or ()) if index != axis)
        assert isinstance(depth, int)
        shape = (columns, depth) if axis == 0 else (depth, columns)
        weight = self.initializers.derive(weights, join, first.weight.dtype, shape, suffix="joined")
        if is_copy:
            copy = derive_transposed(self.initializers, weight)
            self.initializers.transposed[copy] = weight
            weight = copy
        last = len(source.shape) - 1
        product = new_node(
            self.initializers,
            first.product.op_type,
            [source, weight],
            with_size(source.shape, last, columns),
            [*first.product.attributes.values()],
        )
        inherit(product, *(layer.product for layer in layers))
        result = product.outputs[0]
        split = new_split(
            product, self.initializers, result, last, [size for _, _, size in order], "joined", self.opset
        )
        graph, producer = first.product.graph, source.producer()
        assert graph is not None
        if producer is None:
            graph.insert_before(graph[0], [product, split])
        else:
            graph.insert_after(producer, [product, split])
        for (_, _, _, part), replacement in zip(parts, split.outputs, strict=True):
            if part.shape is not None:
                replacement.shape = part.shape
            part.replace_all_uses_with(replacement)
        for layer in layers:
            remove_unread(layer.product if layer.split is None else layer.split)
