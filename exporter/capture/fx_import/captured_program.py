"""A captured PyTorch program: an `ExportedProgram`, or a recording with the same attributes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, cast

import torch
import torch.export
import torch.fx
from torch.export.graph_signature import InputSpec, OutputSpec

from ...captured_graph.specializations import Specialization
from ...torch_boundary.containers import pytree


@dataclasses.dataclass
class GraphSignature:
    """The roles of a recorded graph's placeholders and outputs, in the form of `ExportGraphSignature`."""

    input_specs: list[InputSpec]
    output_specs: list[OutputSpec]

    @property
    def user_inputs(self) -> list[object]:
        """For each leaf of the call, the name of its placeholder, or its constant value."""
        # Weights and constants have the name of the tensor as their target.
        users = [entry for entry in self.input_specs if entry.target is None]
        return [entry.arg.value if hasattr(entry.arg, "value") else entry.arg.name for entry in users]


@dataclasses.dataclass(frozen=True)
class CallStructure:
    """The tree structures of a call `(args, kwargs)` and of its result."""

    in_spec: pytree.TreeSpec
    out_spec: pytree.TreeSpec


@dataclasses.dataclass
class RecordedProgram:
    """A graph with its weights.

    Attributes:
        graph_module: holds the graph, and the tensors and modules that its `get_attr` nodes name.
        state_dict: the parameters and persistent buffers by name.
        constants: the other tensors that are placeholders of the graph.
        range_constraints: the range of each symbol.
        specializations: the decisions that depend on input values; each is the example's.
        answers: the numbers that the model's code read from tensors, by line, in order.
        gradients: whether the model computes gradients.
        replaced: the names of parameters and buffers that the model replaced in its forward, unrecorded.
        replaced_calls: the argument of `RepeatedReplacements`, with which the model runs these operators.
        other_sides: for each condition on a number of rows of which this is one side, in order, the recording
            of the other side, with its own other sides of later conditions.
        recorded_sides: the answers to these conditions.
        assumed: what holds on the recorded sides.
        namespaces: the globals of modules, besides the model's, whose conversions of sizes stayed symbolic.
        recurrences: the forms in chunks in whose place the model computed a recurrence, by name.
    """

    graph_module: torch.nn.Module
    graph_signature: GraphSignature
    call_spec: CallStructure
    state_dict: Mapping[str, torch.Tensor]
    constants: Mapping[str, object]
    range_constraints: Mapping[Any, Any]
    specializations: Sequence[Specialization]
    answers: Mapping[tuple[str, str], Sequence[object]]
    gradients: bool = False
    replaced: Sequence[str] = ()
    replaced_calls: Sequence[Callable[..., Any] | None] = ()
    namespaces: Sequence[dict[str, Any]] = ()
    recurrences: Collection[str] = ()
    recorded_sides: Sequence[bool] = ()
    assumed: Sequence[Any] = ()
    other_sides: dict[int, RecordedProgram] = dataclasses.field(default_factory=dict)

    @property
    def graph(self) -> torch.fx.Graph:
        """The recorded operators."""
        return cast(torch.fx.Graph, self.graph_module.graph)


CapturedProgram = torch.export.ExportedProgram | RecordedProgram
"""The result of a capture of PyTorch code."""


def placeholders(program: CapturedProgram) -> list[object]:
    """The counterpart of each leaf of the call in a captured graph."""
    names = program.graph_signature.user_inputs
    values = {node.name: node.meta.get("val") for node in program.graph.nodes if node.op == "placeholder"}
    return [values.get(name) if isinstance(name, str) else name for name in names]
