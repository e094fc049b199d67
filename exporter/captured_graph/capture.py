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
        input_specification: tree structure of `(args, kwargs)`, from torch's pytree; None for a foreign file.
        output_specification: tree structure of the result.
        inputs: per leaf of the call, the name of its graph input, or None for a constant leaf.
        constants: per leaf of the call, its Python constant at capture.
        outputs: per leaf of the result, the position of its graph output, or a one-element list that
            holds a constant.
        numbers: positions of the graph outputs that are Python numbers in the model's result.
        complex_outputs: positions of the graph outputs that are real pairs, [..., 2], for complex tensors.
        mutated: names of the buffers and inputs whose new values follow the results, in order.
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
    """The values among the leaves of a result, and `Interface.outputs`, the entry of each leaf.

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
    # Without outputs all nodes are dead code.
    if not outputs:
        raise CaptureError("the model returns no tensor: there is nothing to export")
    return outputs, entries


class AttachableWeights(Protocol):
    """Weights in files."""

    def attach(self, *, convert_all: bool = False) -> AbstractContextManager[None]:
        """Make them the model's weights within the context."""


@dataclasses.dataclass
class Capture:
    """A captured model.

    Attributes:
        source: the source graph in an `onnx_ir.Model`, before or after the source passes.
        interface: how calls map to it.
        exported: the `torch.export.ExportedProgram` that it was made from, or None.
        origins: the source values of each fx node's results, by the fx node's name.
        example: the `(args, kwargs)` used for capture.
        output_names: names for the graph outputs, from their paths in the model's result.
        module: the user's model, to compare with; None if that is `exported` itself.
        weights: the weights of `module` in files; None if it has its own.
        stages: the stages of the capture, with their times.
        trusted: whether lowering may take as much memory and time as the graph asks for; false for a file
            that anybody may have written.
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
