"""Quantizes the weights of matrix products and embeddings, and computes in floating point.

1. A weight is an initializer of two dimensions, FLOAT, FLOAT16 or BFLOAT16, that is the right operand of a
   MatMul or Gemm, directly or through a Transpose, or the table of a Gather along axis 0.
2. A weight is quantized only if all of its readers are of these operators: a table that is also the
   weight of the last product needs `embeddings` and `head`.
3. Blocks lie along the dimension that a product sums over, and along the rows of a table.
4. Rows of a table are dequantized after they are gathered.
5. A weight whose quantized form is not smaller stays.
"""

from __future__ import annotations

import dataclasses

import onnx_ir as ir

from ...registration import DataType, GraphContext
from ...registration.arguments import every_node
from ..onnx_graph.simplification.unused_nodes import RemoveUnused
from ..realizers.rewriting import Rewriter, attribute, is_onnx
from .blocks import Scheme
from .forms import MICROSOFT, Form, QuantizedStorage, form_of
from .quantized_weight import Latest, QuantizedWeight

_FLOATS = frozenset({DataType.FLOAT, DataType.FLOAT16, DataType.BFLOAT16})
_AFTER_HEAD = frozenset("Add Cast Div Identity Mul Reshape Slice Squeeze Tanh Transpose Unsqueeze".split())
"""Operators that may come between the last product and an output of the model."""
_DEQUANTIZED = (Form.BLOCKS, Form.CHANNELS)
_CHECKED_AT_ONCE = 1 << 24
"""Weights of at most this many bytes are read before the graph is changed."""


@dataclasses.dataclass(frozen=True)
class _WeightReader:
    """A node that reads a weight.

    Attributes:
        node: MatMul, Gemm, Transpose or Gather.
        axis: the axis of the weight that blocks lie along.
        products: the MatMuls and Gemms that use the weight through it; none for a Gather.
    """

    node: ir.Node
    axis: int
    products: tuple[ir.Node, ...] = ()


class QuantizeWeights(ir.passes.InPlacePass):
    """Quantizes weights.

    Args:
        embeddings: whether to quantize the tables that rows are gathered from.
        head: whether to quantize the weights of products whose results are outputs of the model.
        domains: operator domains that the target takes; with `com.microsoft`, products become MatMulNBits.

    Attributes:
        weights: the weights that were quantized.
        form: how the weights of products are stored.
    """

    def __init__(
        self, scheme: Scheme, *, embeddings: bool = False, head: bool = True, domains: tuple[str, ...] = ()
    ):
        super().__init__()
        self.weights: list[QuantizedWeight] = []
        self.form = Form.ARITHMETIC
        self._scheme = scheme
        self._embeddings = embeddings
        self._head = head
        self._domains = domains

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Rewrite the main graph and its sub-graphs, and report whether anything changed.

        Contents are computed when they are written. Large weights with an infinity or NaN are refused then.

        Raises:
            GraphError: a small weight contains an infinity or NaN.
        """
        rewriter = Rewriter(model)
        self.form = form_of(self._scheme, rewriter.opset, self._domains)
        latest = Latest()
        order = {node: index for index, node in enumerate(every_node(model.graph))}
        for value in list(model.graph.initializers.values()):
            readers = self._readers(value)
            axes = {reader.axis for reader in readers}
            tensor = value.const_value
            # Blocks lie along one axis, so all readers must agree on it.
            if len(axes) != 1 or tensor is None:
                continue
            [axis] = axes
            # Rows of a table are gathered from bytes, which its products then read, too.
            has_table = any(not reader.products for reader in readers)
            form = Form.ARITHMETIC if has_table and self.form is not Form.MATMUL_N_BITS else self.form
            weight = QuantizedWeight(
                value.name or "weight", tensor, axis, self._scheme, form is Form.CHANNELS, latest
            )
            if weight.expected_bytes(form not in _DEQUANTIZED) >= weight.bytes_before:
                continue
            # Reading a larger weight twice would cost too much; it is checked when it is written.
            if tensor.nbytes <= _CHECKED_AT_ONCE:
                weight.check()
            self._replace(rewriter, QuantizedStorage(weight, rewriter.initializer), form, readers, order)
            self.weights.append(weight)
        if self.weights:
            RemoveUnused()(model)
            if self.form is Form.MATMUL_N_BITS:
                model.graph.opset_imports[MICROSOFT] = 1
        return ir.passes.PassResult(model, bool(self.weights))

    def _readers(self, value: ir.Value) -> list[_WeightReader]:
        """The readers of a weight; none if one of them needs the weight as it is."""
        if value.dtype not in _FLOATS or value.is_graph_input() or value.is_graph_output():
            return []
        if value.const_value is None or len(value.const_value.shape) != 2 or not value.const_value.size:
            return []
        readers = []
        for use in value.uses():
            reader = _reader(use.node, use.idx)
            if reader is None or (not reader.products and not self._embeddings):
                return []
            if not self._head and any(map(_is_head, reader.products)):
                return []
            readers.append(reader)
        return readers

    def _replace(
        self,
        rewriter: Rewriter,
        storage: QuantizedStorage,
        form: Form,
        readers: list[_WeightReader],
        order: dict[ir.Node, int],
    ) -> None:
        matrices: dict[ir.Graph | None, ir.Value] = {}
        # In graph order, so that the first reader of a graph computes the matrix for all later ones.
        for reader in sorted(readers, key=lambda weight_reader: order[weight_reader.node]):
            node = reader.node
            if not reader.products:
                indices = node.inputs[1]
                assert indices is not None
                assert indices.shape is not None
                with rewriter.before(node) as g:
                    rows = storage.emit_gather(g, indices, len(indices.shape))
                rewriter.replace(node, [rows])
            elif form is Form.MATMUL_N_BITS and all(map(is_plain_product, reader.products)):
                for product in reader.products:
                    x = product.inputs[0]
                    assert x is not None
                    with rewriter.before(product) as g:
                        result = with_bias(g, product, storage.emit_product(g, x))
                    rewriter.replace(product, [result])
            else:
                matrix = matrices.get(node.graph)
                if matrix is None:
                    with rewriter.before(node, storage.weight.name) as g:
                        matrix = (
                            storage.emit_dequantize(g) if form in _DEQUANTIZED else storage.emit_arithmetic(g)
                        )
                    matrices[node.graph] = rewriter.use(matrix)
                node.replace_input_with(0 if is_onnx(node, "Transpose") else 1, matrix)


def _reader(node: ir.Node, input_index: int) -> _WeightReader | None:
    """A use of a weight, if it can read a quantized one."""
    if is_onnx(node, "MatMul") and input_index == 1:
        return _WeightReader(node, 0, (node,))
    if is_onnx(node, "Gemm") and input_index == 1:
        return _WeightReader(node, 1 if attribute(node, "transB", 0) else 0, (node,))
    if is_onnx(node, "Gather") and input_index == 0 and attribute(node, "axis", 0) == 0:
        indices = node.inputs[1]
        return _WeightReader(node, 1) if indices is not None and indices.shape is not None else None
    if is_onnx(node, "Transpose"):
        result = node.outputs[0]
        uses = [(use.node, use.idx) for use in result.uses()]
        are_weights = all(is_onnx(reader, "MatMul") and index == 1 for reader, index in uses)
        if uses and are_weights and not result.is_graph_output():
            return _WeightReader(node, 1, tuple(reader for reader, _ in uses))
    return None


def _is_head(node: ir.Node) -> bool:
    """Whether the result of a product is an output, directly or behind nodes that keep its rows."""
    values, seen = [node.outputs[0]], set()
    while values:
        value = values.pop()
        if value.is_graph_output():
            return True
        for use in value.uses():
            if use.node not in seen and is_onnx(use.node, *_AFTER_HEAD):
                seen.add(use.node)
                values += use.node.outputs
    return False


def is_plain_product(node: ir.Node) -> bool:
    """Whether a product is that of a value of two dimensions or more and the weight, with a bias at most."""
    x = node.inputs[0]
    # MatMulNBits takes no vectors.
    if x is None or x.shape is None or len(x.shape) < 2:
        return False
    if is_onnx(node, "MatMul"):
        return True
    return (
        not attribute(node, "transA", 0)
        and attribute(node, "alpha", 1.0) == attribute(node, "beta", 1.0) == 1
    )


def with_bias(g: GraphContext, node: ir.Node, product: ir.Value) -> ir.Value:
    """A product that replaces a MatMul or Gemm, with the bias of the Gemm."""
    bias = node.inputs[2] if len(node.inputs) > 2 else None
    return product if bias is None else g.op("Add", product, bias)
