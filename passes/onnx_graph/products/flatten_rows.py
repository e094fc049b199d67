"""ONNX pass: computes linear layers and the nodes between them on matrices, where that saves nodes.

    [2, 64, 256] -> MatMul -> Add -> LayerNormalization -> MatMul -> Add
    [2, 64, 256] -> Reshape [128, 256] -> Gemm -> LayerNormalization -> Gemm -> Reshape [2, 64, 256]

1. `row_rules` has the operators that compute each row independently. Their results have known columns, and at
   most one of the other sizes is unknown, so that Reshape can restore them. If all of the others are unknown
   and have names, `row_sizes` computes the targets of the Reshapes.
2. A Reshape before such nodes outputs the matrix itself, and one after them reads it. Elsewhere a Reshape
   is added.
3. A part of the graph is rewritten if it removes more nodes (Reshapes, and Adds of a bias that a Gemm takes)
   than it adds (Reshapes, and the nodes that compute their targets). `WriteGemm` then writes the Gemms.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

import onnx_ir as ir

from ..constants.initializers import Initializers
from ..disjoint_sets import DisjointSets
from ..node_pass import InitializerPass, NodesByOperator, new_node
from ..pass_order import Run
from .gemm import is_biased_product
from .row_rules import ByRows, RowRules, matrix_shape
from .row_sizes import Dimensions, RowSizes

_ROUNDS = 4


class FlattenRows(InitializerPass):
    """Merges the first dimensions of tensors that are computed row by row."""

    runs = (
        Run(
            "basic",
            after={
                "ChooseBranches": "The nodes of a branch are flattened with those around it.",
                "FoldLinearScales": "The Reshapes around Gemms would separate a scale from its product.",
                "MergeShapesBehindScales": "A merged Reshape may be one around a matrix.",
                "FuseLayerNormalization": "It is computed row by row, unlike some of its parts.",
                "FuseRMSNormalization": "It is computed row by row, unlike some of its parts.",
                "FuseGelu": "One node has fewer borders than the formula.",
            },
        ),
    )

    def run(self, model: ir.Model, nodes: NodesByOperator) -> bool:
        """Rewrite the main graph and its sub-graphs, and report whether anything changed."""
        modified = False
        if not nodes.of(("MatMul", "Gemm")):
            return False
        opset = model.opset_imports.get("", 0)
        for graph in nodes.graphs:
            plan = FlattenPlan(graph, RowRules(self.initializers, opset), self.initializers, opset)
            if plan.choose():
                _RowRewriter(plan, self.initializers).rewrite()
                modified = True
        return modified


class _Part(NamedTuple):
    """Nodes that share matrices.

    Attributes:
        saved: how many nodes it saves, without those that compute the targets of Reshapes.
        shapes: the shapes that its Reshapes restore.
    """

    nodes: list[ir.Node]
    saved: int
    shapes: set[Dimensions]


@dataclasses.dataclass(slots=True, eq=False)
class _Tensor:
    """A value whose cost depends on the choice, and its readers.

    Attributes:
        is_computed: whether it has rows, and is no constant, whose Reshape costs nothing.
        by_rows: the nodes that read its matrix if they are chosen.
        reshaped: the results of Reshapes that read it.
        has_other_uses: whether other nodes need it in its own shape, or a graph returns it.
    """

    value: ir.Value
    is_computed: bool
    by_rows: list[ir.Node]
    reshaped: list[ir.Value]
    has_other_uses: bool


class FlattenPlan:
    """Chooses the nodes of one graph that compute on matrices.

    Attributes:
        chosen: those nodes, in the order of the graph, and the rule of each.
        reshapes: the Reshapes of the graph, by `is_reshape`, in its order.
        sizes: the targets of Reshapes.
    """

    def __init__(self, graph: ir.Graph, rules: RowRules, initializers: Initializers, opset: int):
        self.graph = graph
        self._initializers = initializers
        self._rules = rules
        self.chosen: dict[ir.Node, ByRows] = {}
        # All nodes that could be chosen, for `_read_tensor`; `chosen` loses those that save nothing.
        self._rules_of: dict[ir.Node, ByRows] = {}
        # The product and the addition of each Gemm that `WriteGemm` can write.
        self._additions: dict[ir.Node, ir.Node] = {}
        self._products: dict[ir.Node, ir.Node] = {}
        self._tensors: dict[ir.Value, _Tensor] = {}
        self._affected: dict[ir.Node, list[_Tensor]] = {}
        self._readable: dict[ir.Node, bool] = {}
        self._nodes = list(graph)
        self.reshapes = {node: None for node in self._nodes if is_reshape(node)}
        # Results of Reshapes between a tensor and the matrix of its rows, and the operand of each.
        self._between: dict[ir.Value, ir.Value] = {}
        for node in self.reshapes:
            data, result = node.inputs[0], node.outputs[0]
            if data is not None and _keeps_columns(data, result) and not result.is_graph_output():
                self._between[result] = data
        for node in self._nodes:
            rule = rules.by_rows(node)
            if rule is not None:
                self.chosen[node] = rule
                if is_biased_product(node, opset):
                    [(addition, _)] = node.outputs[0].uses()
                    self._additions[node], self._products[addition] = addition, node
        self.sizes = RowSizes(graph, self._nodes, initializers, opset)

    def choose(self) -> bool:
        """Remove the nodes that save nothing from the choice, and report whether any remain."""
        # Only a product that becomes a Gemm, or a removed Reshape, saves a node.
        # A Gemm reads a matrix already, so the Reshape before it may be removed.
        has_gemms = bool(self._between) and any(node.op_type == "Gemm" for node in self._nodes)
        if not self._additions and not has_gemms:
            return False
        self.sizes.find_sources(self.chosen)
        for node in list(self.chosen):
            if not all(self.sizes.restores(value.shape, node) for value in node.outputs):
                del self.chosen[node]
        self._rules_of = dict(self.chosen)
        pending = list(self.chosen)
        # Dropping a node may make its neighbours useless; only those are examined again.
        for _ in range(_ROUNDS):
            dropped = [node for node in pending if node in self.chosen and self._drop_if_free(node)]
            pending = list(dict.fromkeys(adjacent for node in dropped for adjacent in _adjacent_nodes(node)))
        parts = []
        for part in self._parts():
            part_rules = {node: self.chosen[node] for node in part}
            tensors = list(dict.fromkeys(tensor for node in part for tensor in self._affected_tensors(node)))
            shapes = set(map(tuple, self._restored_shapes(part)))
            before = self._cost(tensors, part)
            for node in part:
                del self.chosen[node]
            saved = self._cost(tensors, part) - before
            if saved > 0:
                self.chosen.update(part_rules)
                parts.append(_Part(part, saved, shapes))
        for node in self._unprofitable_nodes(parts):
            del self.chosen[node]
        self.chosen = {node: self.chosen[node] for node in self.sizes.in_order(self.chosen)}
        return bool(self.chosen)

    def _unprofitable_nodes(self, parts: list[_Part]) -> list[ir.Node]:
        """The nodes of parts that save fewer nodes than the computation of their Reshapes' targets adds.

        Parts that restore the same shape share that computation.
        """
        times = Counter(shape for part in parts for shape in part.shapes)
        profitable: list[_Part] = []
        unprofitable: list[_Part] = []
        for part in parts:
            unshared_shapes = [shape for shape in part.shapes if times[shape] == 1]
            (profitable if part.saved > self.sizes.cost(unshared_shapes) else unprofitable).append(part)
        computed = [part for part in profitable if self.sizes.cost(part.shapes)]
        shapes = [shape for part in computed for shape in part.shapes]
        if sum(part.saved for part in computed) <= self.sizes.cost(shapes):
            unprofitable += computed
        return [node for part in unprofitable for node in part.nodes]

    def _drop_if_free(self, node: ir.Node) -> bool:
        """Remove a node from the choice if that costs nothing."""
        if self._is_inner(node):
            return False
        product = self._products.get(node)
        # Whether the product before an addition can become a Gemm depends on the addition.
        tensors, nodes = self._affected_tensors(node), [node] if product is None else [node, product]
        rule = self.chosen[node]
        before = self._cost(tensors, nodes)
        del self.chosen[node]
        if self._cost(tensors, nodes) <= before:
            return True
        self.chosen[node] = rule
        return False

    def _is_inner(self, node: ir.Node) -> bool:
        """Whether only chosen nodes compute the matrices that a node reads, and only such read its results.

        Without the node, each of these values would need a Reshape.
        """
        inputs = node.inputs
        read = [inputs[index] for index in self.chosen[node].operands]
        if any(value is None or value.producer() not in self.chosen for value in read):
            return False
        for value in (*read, *node.outputs):
            tensor = self._tensor(value)  # type: ignore[arg-type]
            if (
                tensor.has_other_uses
                or tensor.reshaped
                or not all(map(self.chosen.__contains__, tensor.by_rows))
            ):
                return False
        return True

    def _affected_tensors(self, node: ir.Node) -> list[_Tensor]:
        """The values whose cost depends on whether a node is chosen; found once for each node."""
        affected = self._affected.get(node)
        if affected is None:
            values = [value for value in (*node.inputs, *node.outputs) if self._is_computed(value)]
            tensors = [self._tensor(value) for value in values if value is not None]
            reshaped = [self._tensor(value) for tensor in tensors for value in tensor.reshaped]
            affected = self._affected[node] = list(dict.fromkeys([*tensors, *reshaped]))
        return affected

    def _is_computed(self, value: ir.Value | None) -> bool:
        return self._rules.has_rows(value) and not self._initializers.is_constant(value)

    def _tensor(self, value: ir.Value) -> _Tensor:
        """The readers and the cost of a value, gathered once for each value."""
        tensor = self._tensors.get(value)
        if tensor is None:
            tensor = self._tensors[value] = self._read_tensor(value)
        return tensor

    def _read_tensor(self, value: ir.Value) -> _Tensor:
        by_rows, reshaped, has_other_uses = [], [], value.is_graph_output()
        for node, index in value.uses():
            rule = self._rules_of.get(node)
            if rule is not None and index in rule.operands:
                by_rows.append(node)
                continue
            has_other_uses = has_other_uses or not self.takes_matrix(node, index)
            if node.op_type == "Reshape" and node.outputs and not node.domain:
                reshaped.append(node.outputs[0])
        return _Tensor(value, self._is_computed(value), by_rows, reshaped, has_other_uses)

    def _cost(self, tensors: Iterable[_Tensor], nodes: Iterable[ir.Node]) -> int:
        """The number of nodes that the choice adds around values, minus those that it saves."""
        return sum(map(self._added_reshapes, tensors)) - sum(map(self._is_gemm, nodes))

    def _is_gemm(self, node: ir.Node) -> bool:
        return node in self.chosen and self._additions.get(node) in self.chosen

    def _added_reshapes(self, tensor: _Tensor) -> int:
        """The number of Reshapes that are added for a value; -1 if one is removed."""
        value = tensor.value
        if value in self._between and self.is_superfluous(value):
            return -1
        if not tensor.is_computed:
            return 0
        reads_matrix, has_other_uses = self._is_read(tensor)
        producer = value.producer()
        if producer in self.chosen:
            return int(has_other_uses)
        return int(reads_matrix and (has_other_uses or producer not in self.reshapes))

    def _is_read(self, tensor: _Tensor) -> tuple[bool, bool]:
        """Whether chosen nodes read a value as a matrix, and whether other nodes need its own shape."""
        count = sum(map(self.chosen.__contains__, tensor.by_rows))
        return count > 0, tensor.has_other_uses or count < len(tensor.by_rows)

    def _restored_shapes(self, part: Iterable[ir.Node]) -> Iterable[ir.Shape]:
        """The shapes that Reshapes restore after the nodes of a part."""
        for value in (value for node in part for value in node.outputs):
            if value.shape is not None and self._is_read(self._tensor(value))[1]:
                yield value.shape
            for node, index in value.uses():
                if node in self.chosen or not self.takes_matrix(node, index) or not _copies_sizes(node):
                    continue
                shape = node.outputs[0].shape
                if shape is not None and shape != matrix_shape(value.shape):
                    yield shape

    def takes_matrix(self, node: ir.Node, index: int) -> bool:
        """Whether a node is a Reshape that can read the matrix instead; decided once for each."""
        if index or node not in self.reshapes:
            return False
        is_readable = self._readable.get(node)
        if is_readable is None:
            if self._initializers.is_constant(node.inputs[1]):
                is_readable = not _copies_sizes(node) or self.sizes.restores(node.outputs[0].shape, node)
            else:
                # A zero in a computed target copies a size of the input, unless `allowzero` is set.
                is_readable = _keeps_zeros(node)
            self._readable[node] = is_readable
        return is_readable

    def is_superfluous(self, value: ir.Value) -> bool:
        """Whether a value comes from a Reshape between a tensor and its matrix, which will be removed."""
        data = self._between.get(value)
        if data is None or data.shape is None or value.shape is None:
            return False
        if len(value.shape) == 2:
            return data.producer() in self.chosen
        reads_matrix, has_other_uses = self._is_read(self._tensor(value))
        return (
            reads_matrix and not has_other_uses and (len(data.shape) == 2 or data.producer() in self.chosen)
        )

    def _parts(self) -> list[list[ir.Node]]:
        """The chosen nodes in groups: nodes that share values, or meet at a Reshape, are together."""
        sets = DisjointSets[ir.Node | ir.Value]()
        for node, rule in self.chosen.items():
            for value in (*(node.inputs[index] for index in rule.operands), *node.outputs):
                if value is None or self._initializers.is_constant(value):
                    continue
                sets.join(value, node)
                if self.is_superfluous(value):
                    sets.join(self._between[value], node)
        return sets.groups(self.chosen)


class _RowRewriter:
    """Lets the chosen nodes compute on matrices."""

    def __init__(self, plan: FlattenPlan, initializers: Initializers):
        self._plan = plan
        self._initializers = initializers
        self._matrices: dict[ir.Value, ir.Value] = {}

    def rewrite(self) -> None:
        shapes: dict[ir.Value, ir.Shape] = {}
        for node, rule in self._plan.chosen.items():
            operands = [(index, node.inputs[index]) for index in rule.operands]
            rule.edit()
            for index, value in operands:
                assert value is not None
                matrix = self._matrix(value)
                if matrix is not value:
                    node.replace_input_with(index, matrix)
            for value in node.outputs:
                assert value.shape is not None
                shapes[value] = value.shape
                self._matrices[value] = value
        for value, shape in shapes.items():
            value.shape = matrix_shape(shape)
            self._update_readers(value, shape)
        self._remove_unread()

    def _matrix(self, value: ir.Value) -> ir.Value:
        """The value as a matrix."""
        matrix = self._matrices.get(value)
        if matrix is None:
            matrix = self._matrices[value] = self._reshape_to_matrix(value)
        return matrix

    def _reshape_to_matrix(self, value: ir.Value) -> ir.Value:
        shape = matrix_shape(value.shape)
        assert shape is not None
        if self._initializers.is_constant(value) and value.const_value is not None:
            sizes, dtype = shape.numpy(), value.const_value.dtype
            return self._initializers.derive(
                [value], lambda a: a.reshape(sizes), dtype, sizes, suffix="reshaped"
            )
        producer, data = value.producer(), value
        if producer is not None and is_reshape(producer) and producer.graph is self._plan.graph:
            data = producer.inputs[0] or value
            if data.shape is not None and len(data.shape) > 1 and data.shape[-1] == shape[-1]:
                if data in self._matrices:
                    return self._matrices[data]
                if len(data.shape) == 2:
                    return data
        return self._insert_reshape(data, shape)

    def _insert_reshape(self, data: ir.Value, shape: ir.Shape) -> ir.Value:
        """A value in another shape."""
        node = new_node(self._initializers, "Reshape", [data, None], shape)
        self._plan.sizes.set_target(node, shape)
        self._plan.sizes.insert(node, data)
        return node.outputs[0]

    def _update_readers(self, value: ir.Value, shape: ir.Shape) -> None:
        """Let each reader of a result read the matrix, or a tensor of the original shape."""
        tensor_uses = []
        for node, index in value.uses():
            rule = self._plan.chosen.get(node)
            if rule is not None and index in rule.operands:
                continue
            if self._plan.takes_matrix(node, index):
                self._read_matrix(node, value)
            else:
                tensor_uses.append((node, index))
        if not tensor_uses and not value.is_graph_output():
            return
        restored = self._insert_reshape(value, shape)
        for node, index in tensor_uses:
            node.replace_input_with(index, restored)
        if value.is_graph_output():
            name = value.name
            value.name = self._initializers.unique(f"{name}_rows")
            restored.name = name
            outputs = self._plan.graph.outputs
            for output_index, output in enumerate(outputs):
                if output is value:
                    outputs[output_index] = restored

    def _read_matrix(self, reshape: ir.Node, matrix: ir.Value) -> None:
        result = reshape.outputs[0]
        shape = result.shape
        if shape is not None and len(shape) == 2 and shape[-1] == matrix.shape[-1]:  # type: ignore[index]
            if not result.is_graph_output():
                result.replace_all_uses_with(matrix)
            return
        if _copies_sizes(reshape):
            assert shape is not None
            self._plan.sizes.set_target(reshape, shape)

    def _remove_unread(self) -> None:
        for node in reversed(self._plan.reshapes):
            result = node.outputs[0]
            if not result.uses() and not result.is_graph_output() and is_reshape(node):
                self._plan.graph.remove(node, safe=True)


def _adjacent_nodes(node: ir.Node) -> Iterable[ir.Node]:
    """The producers of a node's inputs, and the readers of its outputs."""
    for value in node.inputs:
        producer = value.producer() if value is not None else None
        if producer is not None:
            yield producer
    for value in node.outputs:
        yield from (reader for reader, _ in value.uses())


def _keeps_columns(data: ir.Value, result: ir.Value) -> bool:
    """Whether two values have matrices or more dimensions, and the same known number of columns."""
    data_shape, result_shape = data.shape, result.shape
    if data_shape is None or result_shape is None or min(len(data_shape), len(result_shape)) < 2:
        return False
    return isinstance(result_shape[-1], int) and data_shape[-1] == result_shape[-1]


def _copies_sizes(reshape: ir.Node) -> bool:
    """Whether the constant target of a Reshape has zeros, which stand for sizes of its input."""
    target = reshape.inputs[1].const_value if reshape.inputs[1] is not None else None
    return target is not None and 0 in target.numpy()


def is_reshape(node: ir.Node | None) -> bool:
    """Whether a Reshape has a target that, apart from zeros, does not depend on the shape of its input."""
    if node is None or node.op_type != "Reshape" or node.domain or len(node.inputs) != 2:
        return False
    target = node.inputs[1].const_value if node.inputs[1] is not None else None
    return not _keeps_zeros(node) or target is None or 0 not in target.numpy()


def _keeps_zeros(reshape: ir.Node) -> bool:
    return bool(reshape.attributes.get_int("allowzero", 0))
