"""All limits on reading and converting a file.

A few bytes of an untrusted file can ask for much memory and time. A bound on memory applies to a file of any
size; each byte of the file adds some.
"""

from __future__ import annotations

import dataclasses
import sys

REMEDY = "if you trust the file, pass trusted=True, or --trusted on the command line"
"""The end of the error messages of these bounds."""


_BYTES_OF_ENTRY, _BYTES_OF_ATTRIBUTE, _BYTES_OF_GRAPH_NODE = 250, 40, 150
"""Bytes of a checkpoint for each further entry, of a model for each further attribute, and of a TensorFlow
graph and its weights for each further node. Real ones have more for each.
"""


@dataclasses.dataclass(frozen=True, slots=True)
class Bounds:
    """Limits on size. Limits on nesting, and all checks of contents, apply to trusted files too.

    Attributes:
        parsed: bytes that protobuf takes beside the contents of strings.
        fields: fields that are visited to compute `parsed`.
        text_bytes: bytes of a text or JSON file.
        text_values: values in a text or JSON file.
        memory: bytes of a model, in the message and in the intermediate representation.
        nodes: nodes of a model after its functions are inlined.
        expanded_nodes: the same for a small file.
        graph_nodes: nodes of a small TensorFlow graph, with those of its functions.
        attributes: attributes of a small model.
        expanded_bytes: bytes of a model's functions after inlining.
        placements: nodes with device configurations, times values: each such node looks at every value.
        inference: bytes that shape inference takes.
        dimensions: inferred dimensions of all values; above this, values keep the shapes that the file has.
        conversion: bytes of a model while it is converted.
        made_nodes: nodes that one conversion of a small file makes, without those that it copies; reading
            and copying a large file takes time too, and leaves fewer.
        made_elements: elements of the constants that one conversion makes.
        squared_inputs: the squared numbers of inputs of all nodes together, when they are converted: onnx-ir
            copies all inputs of a node to replace one of them.
        entries: entries of a small checkpoint; each takes as long to read and write as a kilobyte.
        most_entries: entries of a checkpoint of any size.
    """

    parsed: int = 130_000_000
    fields: int = 8_000_000
    text_bytes: int = 2**26
    text_values: int = 2_000_000
    memory: int = 180_000_000
    nodes: int = 1_000_000
    expanded_nodes: int = 8_000
    graph_nodes: int = 24_000
    attributes: int = 60_000
    expanded_bytes: int = 2**24
    placements: int = 10_000_000
    inference: int = 48_000_000
    dimensions: int = 100_000
    conversion: int = 190_000_000
    made_nodes: int = 22_000
    made_elements: int = 2**22
    squared_inputs: int = 20_000_000
    entries: int = 14_000
    most_entries: int = 120_000

    def graph_nodes_of(self, size: int) -> int:
        """The nodes that a TensorFlow graph may have, by the bytes of the graph and of its weights."""
        return min(self.graph_nodes + size // _BYTES_OF_GRAPH_NODE, self.nodes)

    def attributes_of(self, size: int) -> int:
        """The attributes that the nodes of a model of a size may have together."""
        return self.attributes + size // _BYTES_OF_ATTRIBUTE

    def entries_of(self, size: int) -> int:
        """The entries that a checkpoint of a size may have."""
        return min(self.entries + size // _BYTES_OF_ENTRY, self.most_entries)


BOUNDS = Bounds()
"""The limits for untrusted files."""
TRUSTED = Bounds(*[sys.maxsize] * len(dataclasses.fields(Bounds)))
"""The limits for trusted files: none."""


def bounds_of(trusted: bool) -> Bounds:
    """Return the limits for a trusted or an untrusted file."""
    return TRUSTED if trusted else BOUNDS
