"""The result of a capture: the source graph, and how the user's calls map to its inputs and outputs."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

import onnx_ir as ir

from ...registration import CaptureError
from .stages import Stage


@dataclasses.dataclass
class Interface:
    """How a call of the user's model maps to the inputs and outputs of a graph.

    Attributes:
        input_specification: pytree structure of `(args, kwargs)`; None for a model file that is not torch's.
        output_specification: pytree structure of the result.
        inputs: for each leaf of the call, the name of its graph input; None for a constant.
        constants: for each leaf of the call, its Python value at capture.
        outputs: for each leaf of the result, the position of its graph output, or `[constant]`.
        numbers: positions of the graph outputs that are Python numbers in the model's result.
        complex_outputs: positions of the graph outputs [..., 2] that hold complex tensors as real pairs.
        mutated: names of the buffers and inputs whose new values are the last graph outputs, in order.
        parameter_names: names of the parameters that a call may pass by position or by name, in order.
    """

    input_specification: Any
    output_specification: Any
    inputs: list[str | None]
    constants: list[object]
    outputs: list[int | list[object]]
    numbers: list[int] = dataclasses.field(default_factory=list)
    complex_outputs: list[int] = dataclasses.field(default_factory=list)
    mutated: list[str] = dataclasses.field(default_factory=list)
    parameter_names: list[str] = dataclasses.field(default_factory=list)


def graph_outputs(leaves: Sequence[object]) -> tuple[list[ir.Value], list[int | list[object]]]:
    """Return the values among the leaves of a result, and the list for `Interface.outputs`.

    Raises:
        CaptureError: no leaf is a value.
    """
    outputs: list[ir.Value] = []
    entries: list[int | list[object]] = []
    for leaf in leaves:
        if isinstance(leaf, ir.Value):
            entries.append(len(outputs))
            outputs.append(leaf)
        else:
            entries.append([leaf])
    # A graph without outputs would be empty, because all its nodes are dead code.
    if not outputs:
        raise CaptureError("the model returns no tensor: there is nothing to export")
    return outputs, entries


class AttachableWeights(Protocol):
    """Weights that lie in files until they are needed."""

    def attach(self, *, convert_all: bool = False) -> AbstractContextManager[None]:
        """Make these weights the model's within the context."""


@dataclasses.dataclass
class Capture:
    """A captured model.

    Attributes:
        source: the source graph in an `onnx_ir.Model`, before or after the source passes.
        interface: how calls map to the inputs and outputs of the graph.
        exported: the `torch.export.ExportedProgram` that the graph was made from, or None.
        origins: the source values of each fx node's results, by the fx node's name.
        example: the `(args, kwargs)` used for capture.
        output_names: names for the graph outputs, from their paths in the model's result.
        module: the user's model, to compare with; None to compare with `exported`.
        weights: the weights of `module` in files; None if its tensors are in memory.
        stages: the stages of the capture, with their times.
        trusted: whether lowering may take as much memory and time as the graph asks for; False for files,
            which anybody may have written.
    """

    source: ir.Model
    interface: Interface
    exported: Any = None
    origins: dict[str, object] = dataclasses.field(default_factory=dict)
    example: tuple[tuple[object, ...], dict[str, object]] | None = None
    output_names: list[str] = dataclasses.field(default_factory=list)
    module: Any = None
    weights: AttachableWeights | None = None
    stages: list[Stage] = dataclasses.field(default_factory=list)
    trusted: bool = True
