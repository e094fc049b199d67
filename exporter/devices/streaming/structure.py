"""Analyzes a main graph for segmentation: node keys, lifetimes of values, weights of each node."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence

import onnx

from ...files.reading.subgraphs import subgraphs
from .budget import Lifetime
from .segment_models import GraphParts
from .segmentation import Sequential


class Structure:
    """The nodes of a main graph in execution order.

    Attributes:
        nodes: the nodes.
        lifetimes: the lifetimes of inputs and results, by name.
        sequential: the properties on which cuts depend.
    """

    def __init__(self, parts: GraphParts, weight_bytes: Mapping[str, int], written: Collection[str] = ()):
        """Analyze a graph.

        Args:
            written: outputs that are written to a file at once, so that they need no memory until the end.
        """
        self._written = frozenset(written)
        self.nodes: Sequence[onnx.NodeProto] = list(parts.proto.graph.node)
        self._reads = parts.reads
        outputs = [info.name for info in parts.proto.graph.output if info.name not in self._written]
        self.lifetimes = self._lifetimes(parts, outputs)
        self.sequential = Sequential(
            [_node_key(node, parts) for node in self.nodes],
            [frozenset(name for name in names if name in parts.weights) for names in self._reads],
            weight_bytes,
            self._widths(parts),
        )
        self._outputs = frozenset(outputs)

    def read_from(self, position: int) -> frozenset[str]:
        """Return the names that nodes from `position` on read, and the names of the outputs."""
        read = (name for name, life in self.lifetimes.items() if life.last >= position)
        return self._written.union(read)

    def _lifetimes(self, parts: GraphParts, outputs: Sequence[str]) -> dict[str, Lifetime]:
        first = dict.fromkeys(parts.inputs, -1)
        first |= {name: index for index, node in enumerate(self.nodes) for name in node.output if name}
        last = dict(first)
        for index, names in enumerate(self._reads):
            last.update((name, index) for name in names if name in first)
        # Outputs live until the end of the model.
        last.update((name, len(self.nodes)) for name in outputs if name in first)
        return {name: Lifetime(first[name], last[name]) for name in first}

    def _widths(self, parts: GraphParts) -> list[int | None]:
        """Return the number of live values at each cut; None if one of them is not a tensor of numbers."""
        count = len(self.nodes)
        changes = [0] * (count + 2)
        barred = [0] * (count + 2)
        for name, life in self.lifetimes.items():
            if life.first < 0:
                # Inputs are in memory anyway, because the caller keeps them.
                continue
            # Sessions exchange only tensors, so no cut may cross a sequence or a map.
            passed = changes if name in parts.types else barred
            last = min(life.last, count)
            if last == count and name not in parts.types:
                # An output of another type is returned to the caller, but not passed to other segments.
                readers = [index for index, names in enumerate(self._reads) if name in names]
                last = max([life.first, *readers])
            passed[life.first + 1] += 1
            passed[last + 1] -= 1
        widths: list[int | None] = []
        width = bars = 0
        for position in range(count + 1):
            width, bars = width + changes[position], bars + barred[position]
            widths.append(None if bars else width)
        return widths


def _node_key(node: onnx.NodeProto, parts: GraphParts) -> tuple[object, ...]:
    """Return a key that is equal for nodes that differ only in names and in the contents of weights."""
    inputs = tuple(_input_key(name, parts) for name in node.input)
    attributes: list[tuple[str, object]] = []
    for attribute in node.attribute:
        if not (attribute.HasField("g") or attribute.graphs):
            # Digests, because constants in attributes may be large.
            attributes.append((attribute.name, _digest(attribute)))
        else:
            inner = tuple(
                _node_key(inner_node, parts) for graph in subgraphs(node) for inner_node in graph.node
            )
            attributes.append((attribute.name, inner))
    return (
        node.domain,
        node.op_type,
        inputs,
        tuple(map(bool, node.output)),
        tuple(sorted(attributes, key=str)),
    )


def _input_key(name: str, parts: GraphParts) -> object:
    if name in parts.weights:
        return parts.weights[name]
    if name in parts.constants:
        constant = parts.constants[name]
        return constant.data_type, *constant.dims
    return bool(name)


def _digest(attribute: onnx.AttributeProto) -> bytes:
    return hashlib.sha256(attribute.SerializeToString(deterministic=True)).digest()
