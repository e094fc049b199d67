"""The shapes, multiplications and weights of a model's nodes."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Sequence

import onnx_ir as ir

from ...registration import MODULE
from ...registration.size_algebra.dimensions import Dim, product, total
from ...registration.validity.node_check import check_structure

_UNKNOWN = ir.SymbolicDim(None)


@dataclasses.dataclass(frozen=True)
class NodeCost:
    """One node.

    Attributes:
        name: its name, or that of its first result.
        operator: its operator.
        module: the path of the module that it was exported from; "" if unknown.
        result: the name of its first result.
        dtype: the element type of that; "" if unknown.
        shape: the shape of that; None if unknown.
        macs: multiplications with additions, a number or a formula of dimensions; 0 for other operators than
            convolutions, matrix products and recurrent layers, and None if a size is unknown.
        weight_bytes: the bytes of the initializers that it is the first to read.
    """

    name: str
    operator: str
    module: str
    result: str
    dtype: str
    shape: tuple[int | str | None, ...] | None
    macs: int | str | None
    weight_bytes: int


@dataclasses.dataclass(frozen=True)
class ModelCosts:
    """The nodes of a model in order, and their sums.

    Attributes:
        parameters: the number of elements of all floating-point and quantized weights.
        macs: as for a node.
        nodes: all nodes of the main graph; a node with sub-graphs counts without them.
    """

    parameters: int
    macs: int | str | None
    nodes: tuple[NodeCost, ...]

    def weight_bytes_by(self, attribute: str) -> dict[str, int]:
        """The bytes of weights by "operator" or "module", the largest first."""
        counts: collections.Counter[str] = collections.Counter()
        for node in self.nodes:
            counts[getattr(node, attribute)] += node.weight_bytes
        return {name: size for name, size in counts.most_common() if size}


def model_costs(source: ir.Model) -> ModelCosts:
    """The costs of a model that `prepare_source` has prepared, so that shapes are inferred.

    Raises:
        InvalidNodesError: attributes or inputs are missing, or attributes have a wrong type.
    """
    graph = source.graph
    check_structure(graph)
    counted: set[ir.Value] = set()
    nodes, macs = [], []
    for node in graph:
        weights = {v for v in node.inputs if v is not None and v.is_initializer()} - counted
        counted |= weights
        count = _macs(node)
        macs.append(count)
        result = next((value for value in node.outputs if value.name), node.outputs[0])
        nodes.append(
            NodeCost(
                node.name or str(result.name),
                node.op_type if node.domain in ("", "ai.onnx") else f"{node.domain}::{node.op_type}",
                node.metadata_props.get(MODULE, ""),
                str(result.name),
                "" if result.dtype is None else result.dtype.name,
                None if result.shape is None else tuple(map(_plain, result.shape)),
                _plain(count),
                sum(v.const_value.nbytes for v in weights if v.const_value is not None),
            )
        )
    tensors = [value.const_value for value in graph.initializers.values() if value.const_value is not None]
    # Shapes and indices are no parameters.
    parameters = sum(t.size for t in tensors if t.dtype not in (ir.DataType.INT64, ir.DataType.BOOL))
    return ModelCosts(parameters, _plain(total(macs)) if macs else 0, tuple(nodes))


def _macs(node: ir.Node) -> Dim:
    """The multiplications of a node, as the definitions of the operators give them."""
    shapes = [None if value is None or value.shape is None else value.shape.dims for value in node.inputs]
    result = node.outputs[0].shape if node.outputs else None
    output = None if result is None else result.dims
    if node.domain not in ("", "ai.onnx"):
        return 0
    match node.op_type:
        case "Conv" | "ConvInteger":
            return _product(output, shapes[1] and shapes[1][1:])
        case "QLinearConv":
            return _product(output, shapes[3] and shapes[3][1:])
        case "ConvTranspose":
            return _product(shapes[0], shapes[1] and shapes[1][1:])
        case "MatMul" | "MatMulInteger" | "QLinearMatMul":
            return _product(output, shapes[0] and shapes[0][-1:])
        case "Gemm":
            axis = 0 if node.attributes.get_int("transA", 0) else 1
            return _product(output, shapes[0] and shapes[0][axis : axis + 1])
        case "LSTM" | "GRU" | "RNN":
            # Each step multiplies its input by W, and its state by R.
            steps = shapes[0] and shapes[0][:2]
            return total([_product(steps, shapes[1]), _product(steps, shapes[2])])
    return 0


def _product(*parts: Sequence[Dim] | None) -> Dim:
    count: Dim = 1
    for part in parts:
        if part is None:
            return _UNKNOWN
        for size in part:
            count = product(count, size)
    return count


def _plain(size: Dim) -> int | str | None:
    return size if isinstance(size, int) else size.value
