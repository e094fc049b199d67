"""Runs the source passes, in order, on a new capture."""

from __future__ import annotations

from onnx_ir.passes import common

from ...passes import promote_types, real_pairs, remove_inplace
from ...passes.sequences.packed_sequences import fuse_packed_sequences
from ...registration import COMPLEX, MUTATES
from ..capture.torch_export.exported_program import output_names
from ..source.capture import Capture


def prepare(capture: Capture, mutations: str) -> None:
    """Make a captured graph functional, without complex values and implicit promotion; name its outputs.

    Raises:
        MutationError: inputs or buffers are written to, and `mutations` is `"error"`.
        GraphError: an in-place operator that cannot be made functional.
    """
    graph = capture.source.graph
    names = output_names(capture)
    remove_inplace(capture.source, mutations=mutations)
    fuse_packed_sequences(capture.source)
    real_pairs(capture.source)
    promote_types(capture.source)
    common.RemoveUnusedNodesPass()(capture.source)
    for value in list(graph.outputs)[len(names) :]:
        mutated = value.metadata_props.get(MUTATES, value.name or "")
        capture.interface.mutated.append(mutated)
        names.append(f"{mutated}_mutated")
    capture.interface.complex_outputs = [
        index for index, value in enumerate(graph.outputs) if COMPLEX in value.metadata_props
    ]
    capture.output_names = names
