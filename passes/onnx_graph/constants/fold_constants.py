"""ONNX pass: computes the values that depend on constants alone.

1. Small constants are computed at once, by `registration.emission.folding`. Together they may add a
   megabyte to the file, and a hundredth of its weights.
2. Values that depend on weights become initializers, which are computed one at a time while they are written.
3. The results of nodes that share weights have at most as many bytes as the weights that are no longer read,
   unless they are computed: such results may add 2 % of the weights to the file in each run. A weight with
   other readers is not copied.
4. Sizes that follow from known shapes are constants (`known_sizes`).
5. Conditions that depend on weights are computed at once, so that branches that never run can be removed.
6. An If whose condition becomes constant is replaced by its branch (`chosen_branches`).
7. Initializers that keep their contents, and outputs of graphs, stay.
8. Intermediate values have at most as many bytes as the constants that they are computed from, and 16 MiB.
   The elements that all computations read and write are bounded by those of the initializers
   (`Initializers.reserve_work`). A node beyond these bounds stays.
9. Matrices of 8 bits or fewer are weights of a quantized model: they are not converted to floats, and
   `DequantizeWeights` converts them to 4 bits.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import onnx_ir as ir

from ....registration.dtypes import FLOATS, QUANTIZED
from ....registration.inference.folding import MAXIMUM_ELEMENTS, evaluate
from ....registration.inference.tensor_sizes import byte_count, element_count
from ..disjoint_sets import DisjointSets
from ..node_pass import InitializerPass, NodesByOperator
from ..pass_order import Run
from ..shapes.known_sizes import OPERATORS, known_sizes, refine_shape
from .chosen_branches import ChooseBranches
from .computations import (
    MAXIMUM_STEPS,
    computation,
    exceeds_sources,
    fits_memory,
    sources_of,
    steps_of,
    work_of,
)
from .deferred_constants import Deferred, defer_node, is_matrix_transpose
from .initializers import Initializers

_FREE_BYTES = 4096
"""Bytes that a result may take even if no weight becomes unread by it."""
_MAXIMUM_ELEMENTS = 2**18
"""Larger constants are not computed at once; of floats, which are weights, `MAXIMUM_ELEMENTS`."""
_BUDGET, _SHARE = 2**20, 100
"""Larger results, such as masks, may add `_BUDGET` bytes and one `_SHARE`th of the weights to a file."""
_GROWTH_PERCENT = 2
"""By how much of the weights the file may grow for results of computations on weights, such as position
biases that are gathered from a table; the pass runs twice."""
_REARRANGING = frozenset({"Transpose", "Reshape", "Squeeze", "Unsqueeze", "Identity"})
_SUFFIXES = {"Transpose": "transposed", **dict.fromkeys(("Reshape", "Squeeze", "Unsqueeze"), "reshaped")}
_FEWEST_STORED = 256
"""Matrices of fewer elements save no space in 8 bits."""
_MAXIMUM_CONDITION = 2**16
"""Bytes of a condition that is computed at once."""


class FoldConstants(InitializerPass):
    """Replaces nodes that read constants alone by constants."""

    runs = (
        Run(
            "basic",
            after={
                "WriteMatrixGemm": "A folded Transpose would be a copy of a weight that Gemm can transpose."
            },
        ),
        Run(
            "basic",
            after={
                "PushTransposes": "Small results of weights are constants only after they have been folded."
            },
            name="FoldSmallResults",
        ),
        Run(
            "basic",
            after={
                "RemoveUniformValues": "A tensor of one number may be too large to fold; a scalar is not."
            },
            name="FoldUniformOperands",
        ),
    )

    def __init__(self, initializers: Initializers):
        super().__init__(initializers)
        self._budget: int | None = None
        self._growth_left: float | None = None
        self._branches = ChooseBranches(initializers)

    def run(self, model: ir.Model, nodes: NodesByOperator) -> bool:
        """Fold in the main graph and in its sub-graphs, and report whether anything changed."""
        modified = False
        self._budget = self._growth_left = None
        waiting: dict[ir.Value, Deferred] = {}
        is_constant, opset = self.initializers.is_constant, model.opset_imports.get("", 0)
        returned = {value.producer() for graph in nodes.graphs for value in graph.outputs}
        self._branches.begin(model)
        for node in nodes.all:
            inputs, op_type = node.inputs, node.op_type
            if node.graph is None:
                # It was in a branch that is never taken.
                continue
            if op_type == "If" and not node.domain:
                # The nodes of the branch follow, and are folded in their new graph.
                modified |= self._branches.rewrite(node)
                continue
            if node.domain or not inputs or node in returned:
                continue
            # Shapes refer to folded values, so sizes may have become known since the last pass.
            if modified:
                refine_shape(node)
            if op_type in OPERATORS and self._fold_sizes(node):
                modified = True
                continue
            # Most nodes compute from the model's inputs.
            if inputs[0] not in waiting and not is_constant(inputs[0]):
                continue
            if op_type == "Cast" and _converts_weight(node):
                continue
            if all(map(is_constant, inputs)) and self._fold_small(node):
                modified = True
                continue
            steps = defer_node(node, lambda value: value in waiting or is_constant(value), opset)
            if not any(exceeds_sources(step, waiting) for _, step in steps):
                waiting.update(steps)
                for value, step in steps:
                    # Nodes behind it are deferred only if their shapes are known.
                    if value.shape is None or not value.shape.is_static():
                        value.shape = ir.Shape(step.shape)
        modified |= self._fold_conditions(waiting)
        return self._fold_weights(waiting) or modified

    def _fold_sizes(self, node: ir.Node) -> bool:
        sizes = known_sizes(node, self.initializers.is_constant)
        if sizes is None:
            return False
        stem = (node.outputs[0].name or "sizes").removesuffix("_output_0")
        self._replace(node, self.initializers.make(sizes, stem))
        return True

    def _fold_small(self, node: ir.Node) -> bool:
        if len(node.outputs) != 1:
            return False
        values = [value for value in node.inputs if value is not None and value.const_value]
        tensors = [value.const_value for value in values if value.const_value is not None]
        sizes = list(map(element_count, tensors))
        if any(
            size > MAXIMUM_ELEMENTS and tensor.dtype in FLOATS and value not in self.initializers.computed
            for value, tensor, size in zip(values, tensors, sizes, strict=True)
        ):
            return False
        if any(size > _MAXIMUM_ELEMENTS for size in sizes):
            return False
        attributes: dict[str, Any] = {name: attribute.value for name, attribute in node.attributes.items()}
        if not self.initializers.reserve_work(sum(sizes)):
            return False
        arrays = [tensor.numpy() for tensor in tensors]
        result = evaluate(node.op_type, arrays, attributes, condition=True, limit=_MAXIMUM_ELEMENTS)
        if result is None or result.dtype.hasobject or not self.initializers.reserve_work(result.size):
            return False
        dtype = node.outputs[0].dtype
        # numpy promotes some operands differently from ONNX.
        if dtype is not None and result.dtype != dtype.numpy():
            return False
        if result.nbytes > _FREE_BYTES and not self._affords(result.nbytes - self._freed_bytes(node)):
            return False
        folded = self._derive_rearranged(node, result)
        if folded is None:
            stem = (node.outputs[0].name or "constant").removesuffix("_output_0")
            folded = self.initializers.make(np.asarray(result), stem)
        self._replace(node, folded)
        return True

    def _affords(self, added: int) -> bool:
        """Whether the file may grow by so many bytes more."""
        if self._budget is None:
            self._budget = _BUDGET + _stored_bytes(self.initializers) // _SHARE
        self._budget -= max(0, added)
        return self._budget >= 0

    def _freed_bytes(self, node: ir.Node) -> int:
        """The bytes of constants that only this node reads."""
        # Without duplicates: `x * x` frees x once.
        values = dict.fromkeys(value for value in node.inputs if value is not None)
        tensors = [value.const_value for value in values if {reader for reader, _ in value.uses()} == {node}]
        return sum(byte_count(tensor) for tensor in tensors if tensor is not None)

    def _derive_rearranged(self, node: ir.Node, result: np.ndarray) -> ir.Value | None:
        """A small weight in another shape or order; it keeps its name where a large weight would keep it."""
        data = node.inputs[0]
        if data is None or node.op_type not in _REARRANGING or data.dtype not in FLOATS | QUANTIZED:
            return None
        suffix = _SUFFIXES.get(node.op_type, "folded")
        derived = self.initializers.derive([data], lambda _: result, data.dtype, result.shape, suffix=suffix)
        if is_matrix_transpose(node):
            self.initializers.transposed[derived] = data
        return derived

    def _replace(self, node: ir.Node, constant: ir.Value) -> None:
        node.outputs[0].replace_all_uses_with(constant)
        assert node.graph is not None
        node.graph.remove(node, safe=True)

    def _fold_conditions(self, waiting: dict[ir.Value, Deferred]) -> bool:
        modified = False
        for value, last in list(waiting.items()):
            if last.dtype != ir.DataType.BOOL or last.nbytes > _MAXIMUM_CONDITION:
                continue
            # Only conditions that the remaining graph reads are needed now.
            if all(_result(node) in waiting for node, _ in value.uses()):
                continue
            steps = steps_of(value, waiting, waiting)
            if len(steps) > MAXIMUM_STEPS or not fits_memory(steps, waiting):
                continue
            sources = sources_of(steps, waiting)
            tensors = [source.const_value for source in sources if source.const_value is not None]
            work = work_of(steps, waiting, self.initializers)
            is_small = sum(element_count(tensor) for tensor in tensors) <= _MAXIMUM_ELEMENTS
            if not is_small or not self.initializers.reserve_work(work):
                continue
            array = computation(steps, waiting, sources)(*(tensor.numpy() for tensor in tensors))
            stem = (value.name or "condition").removesuffix("_output_0")
            condition = self.initializers.make(array, stem)
            for node, _ in value.uses():
                reader = waiting.get(node.outputs[0]) if node.outputs else None
                if reader is not None:
                    reader.sources[:] = [
                        condition if source is value else source for source in reader.sources
                    ]
            value.replace_all_uses_with(condition)
            for step in reversed(steps):
                node = waiting[step].node
                if node.graph is not None and not any(output.uses() for output in node.outputs):
                    node.graph.remove(node, safe=True)
                    for output in node.outputs:
                        waiting.pop(output, None)
            modified = True
        return modified

    def _fold_weights(self, waiting: dict[ir.Value, Deferred]) -> bool:
        """Fold the groups of nodes after which the file is not larger."""
        modified = False
        for group in _groups(waiting):
            folded = self._affordable_values(group, waiting)
            if folded:
                modified |= self._fold_group(folded, waiting)
        return modified

    def _affordable_values(self, group: list[ir.Value], waiting: dict[ir.Value, Deferred]) -> list[ir.Value]:
        """The values of a group that may be folded: all, or those that read no weight that stays, or none."""
        growth = self._growth(group, waiting)
        if growth <= 0 or self._affords_growth(growth, group, waiting):
            return group
        inside = set(group)
        remaining_sources = {
            source
            for value in group
            for source in waiting[value].sources
            if source not in waiting
            and not _is_small(source)
            and any(_result(node) not in inside for node, _ in source.uses())
        }
        foldable: dict[ir.Value, None] = {}
        for value in group:
            sources = waiting[value].sources
            if not any(
                source in remaining_sources or (source in inside and source not in foldable)
                for source in sources
            ):
                foldable[value] = None
        return list(foldable) if foldable and self._growth(list(foldable), waiting) <= 0 else []

    def _affords_growth(
        self, growth: float, group: list[ir.Value], waiting: dict[ir.Value, Deferred]
    ) -> bool:
        """Whether the file may grow by computed results; weights in another order are none."""
        if all(waiting[value].node.op_type in _REARRANGING for value in group):
            return False
        if self._growth_left is None:
            self._growth_left = _stored_bytes(self.initializers) * _GROWTH_PERCENT // 100
        if growth > self._growth_left:
            return False
        self._growth_left -= growth
        return True

    def _growth(self, group: list[ir.Value], waiting: dict[ir.Value, Deferred]) -> float:
        """Bytes that folding a group adds to the file; infinite if it cannot be folded."""
        inside = set(group)
        new_values = [
            value for value in group if any(_result(node) not in inside for node, _ in value.uses())
        ]
        added = sum(max(0, waiting[value].nbytes - _FREE_BYTES) for value in new_values)
        sources = dict.fromkeys(
            source for value in group for source in waiting[value].sources if source not in waiting
        )
        freed = 0
        for source in sources:
            if source.const_value is None or source.is_graph_output():
                continue
            if all(_result(node) in inside for node, _ in source.uses()):
                freed += byte_count(source.const_value)
        for value in new_values:
            steps = steps_of(value, waiting, inside)
            if len(steps) > MAXIMUM_STEPS or not fits_memory(steps, waiting):
                return math.inf
        return added - freed

    def _fold_group(self, group: list[ir.Value], waiting: dict[ir.Value, Deferred]) -> bool:
        """Fold a group of nodes, unless that takes more work than is left."""
        inside = set(group)
        computed = {
            value: steps_of(value, waiting, inside)
            for value in group
            if any(_result(node) not in inside for node, _ in value.uses())
        }
        if not self.initializers.reserve_work(
            sum(work_of(steps, waiting, self.initializers) for steps in computed.values())
        ):
            return False
        for value, steps in computed.items():
            sources = sources_of(steps, waiting)
            largest = max(
                sources, key=lambda source: byte_count(source.const_value) if source.const_value else 0
            )
            # The result takes the name of the first source, which should be the weight and not its scale.
            sources = [largest, *(source for source in sources if source is not largest)]
            last = waiting[value]
            readers = sum(_result(node) in inside for node, _ in largest.uses())
            derived = self.initializers.derive(
                sources,
                computation(steps, waiting, sources),
                last.dtype,
                last.shape,
                readers=readers,
                suffix=_SUFFIXES.get(last.node.op_type, "folded"),
                blocks=last.blocks if len(steps) == 1 else None,
                work=work_of(steps, waiting, self.initializers),
            )
            if len(steps) == 1 and is_matrix_transpose(last.node):
                self.initializers.transposed[derived] = largest
            for node, index in list(value.uses()):
                if _result(node) not in inside:
                    node.replace_input_with(index, derived)
        for value in reversed(group):
            node = waiting[value].node
            # Another result of the node may be in the group too.
            if node.graph is not None:
                node.graph.remove(node, safe=True)
        return True


def _stored_bytes(initializers: Initializers) -> int:
    tensors = [value.const_value for value in initializers.graph.initializers.data.values()]
    return sum(byte_count(tensor) for tensor in tensors if tensor is not None)


def _result(node: ir.Node) -> ir.Value | None:
    return node.outputs[0] if node.outputs else None


def _is_small(value: ir.Value) -> bool:
    return value.const_value is not None and byte_count(value.const_value) <= _FREE_BYTES


def _converts_weight(cast: ir.Node) -> bool:
    """Whether a Cast converts a matrix of a quantized model."""
    stored, dtype = cast.inputs[0], cast.outputs[0].dtype
    if stored is None or stored.dtype not in QUANTIZED or len(stored.shape or ()) < 2:
        return False
    if dtype in QUANTIZED:
        return True
    is_small = stored.const_value is not None and element_count(stored.const_value) < _FEWEST_STORED
    return dtype in FLOATS and not is_small


def _groups(waiting: dict[ir.Value, Deferred]) -> Iterable[list[ir.Value]]:
    """The deferred values in groups: values that read one another, or one weight, are together."""
    sets = DisjointSets[ir.Value]()
    for value, step in waiting.items():
        if value is not step.node.outputs[0]:
            sets.join(step.node.outputs[0], value)
        for source in step.sources:
            if source in waiting or not _is_small(source):
                sets.join(source, value)
    return sets.groups(waiting)
