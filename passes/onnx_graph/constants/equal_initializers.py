"""ONNX pass: merges equal weights into one.

1. Only weights of a kilobyte or more are merged, in the main graph; those that keep their contents stay.
2. Weights of one type and shape are compared by a sample first, so that few are read as a whole.
3. Weights that are computed when they are written are not compared.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict

import numpy as np
import onnx_ir as ir

from ....registration.inference.tensor_sizes import byte_count
from ..node_pass import InitializerPass, NodesByOperator
from ..pass_order import Run

_SMALLEST = 1024
_SAMPLES = 16


class MergeEqualInitializers(InitializerPass):
    """Removes weights that are equal to another one."""

    runs = (
        Run(
            "full",
            after={
                "FoldLinearScales": "Scaled weights are no longer equal.",
                "FuseRotaryEmbedding": "It reads one half of a table, which may be shared.",
            },
        ),
    )

    keeps_nodes = True

    def run(self, model: ir.Model, nodes: NodesByOperator) -> bool:
        """Merge equal weights of the main graph, and report whether there were any."""
        alike: dict[tuple[ir.DataType, tuple[object, ...]], list[ir.Value]] = defaultdict(list)
        for value in model.graph.initializers.data.values():
            tensor = value.const_value
            if (
                tensor is None
                or isinstance(tensor, ir.LazyTensor)
                or not self.initializers.is_constant(value)
            ):
                continue
            if not value.is_graph_output():
                alike[tensor.dtype, tuple(tensor.shape.dims)].append(value)
        modified = False
        for (dtype, _), values in alike.items():
            is_large = len(values) > 1 and byte_count(values[0].const_value) >= _SMALLEST  # type: ignore[arg-type]
            is_read = any(value.uses() for value in values)
            if is_large and is_read and dtype != ir.DataType.STRING:
                modified |= _merge(model.graph, values)
        return modified


def _merge(graph: ir.Graph, values: list[ir.Value]) -> bool:
    modified = False
    groups: dict[bytes, list[ir.Value]] = defaultdict(list)
    for value in values:
        groups[_sample(value)].append(value)
    for group in groups.values():
        # Of weights that nothing reads, none is needed. One may lend its name to an equal one that is read.
        if len(group) < 2 or not any(value.uses() for value in group):
            continue
        by_tensor: dict[int, ir.Value] = {}
        by_digest: dict[bytes, ir.Value] = {}
        for value in group:
            assert value.const_value is not None
            equal = by_tensor.setdefault(id(value.const_value), value)
            if equal is value:
                # Bytes, because they tell -0.0 from 0.0, and a NaN is not equal to itself. Their digests,
                # because comparing each with each other would take long for thousands that differ.
                contents = np.ascontiguousarray(value.const_value.numpy()).reshape(-1).view(np.uint8)
                equal = by_digest.setdefault(hashlib.blake2b(contents.data).digest(), value)
            if equal is value:
                continue
            value.replace_all_uses_with(equal)
            del graph.initializers[str(value.name)]
            modified = True
    return modified


def _sample(value: ir.Value) -> bytes:
    assert value.const_value is not None
    elements = value.const_value.numpy().reshape(-1)
    return elements[:: max(1, len(elements) // _SAMPLES)].tobytes()
