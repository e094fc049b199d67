"""Runs the source passes, in order, on a new capture."""

from __future__ import annotations

import onnx_ir as ir

from ...passes import promote_types, real_pairs, remove_inplace
from ...passes.faults import faults_of
from ...passes.onnx_graph.simplification.unused_nodes import RemoveUnused
from ...passes.sequences.packed_sequences import fuse_packed_sequences
from ...registration import COMPLEX, MUTATES, STATE_INPUTS
from ..capture.fx_import.exported_program import output_names
from ..captured_graph.capture import Capture


def run_source_passes(model: ir.Model, mutations: str) -> None:
    """Make a source graph functional, without complex values, implicit promotion and unused nodes.

    New values of inputs and buffers become its last outputs if `mutations` is `"outputs"`.

    Raises:
        MutationError: the model writes to inputs or buffers, and `mutations` is `"error"`.
        GraphError: an in-place operator cannot be made functional.
        OpsettaError: a pass failed, which is a fault of opsetta.
    """
    with faults_of("RemoveInplace"):
        remove_inplace(model, mutations=mutations)
    with faults_of("FusePackedSequences"):
        fuse_packed_sequences(model)
    with faults_of("RealPairs"):
        real_pairs(model)
    with faults_of("PromoteTypes"):
        promote_types(model)
    with faults_of("RemoveUnused"):
        RemoveUnused(keeps_effects=False)(model)


def prepare(capture: Capture, mutations: str) -> None:
    """Run the source passes on a capture, and name its outputs. Errors are those of `run_source_passes`.

    Args:
        mutations: as in `export`; for `"state"`, lowering lists what the model writes to as inputs too.
    """
    graph = capture.source.graph
    names = output_names(capture)
    run_source_passes(capture.source, "outputs" if mutations == "state" else mutations)
    if mutations == "state":
        capture.source.metadata_props[STATE_INPUTS] = "true"
    for value in list(graph.outputs)[len(names) :]:
        mutated = value.metadata_props.get(MUTATES, value.name or "")
        capture.interface.mutated.append(mutated)
        names.append(f"{mutated}_mutated")
    capture.interface.complex_outputs = [
        index for index, value in enumerate(graph.outputs) if COMPLEX in value.metadata_props
    ]
    capture.output_names = names
