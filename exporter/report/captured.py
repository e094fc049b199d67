"""The subject of a report about a captured model."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Protocol

import onnx_ir as ir

from ..captured_graph import dimensions as sizes
from ..captured_graph.capture import Capture
from ..devices.targets.target import Target
from ..lowering.driver import Observation
from ..lowering.source_dialect import LoweredModel
from ..running.captured_calls import CapturedCalls
from ..running.model_inputs import inputs_of_model
from ..running.random_inputs import random_inputs
from .collecting import Choices as Choices
from .collecting import Subject, classes_of, collect, save_report
from .parity import with_eager
from .pictures import Drawn
from .records import Parity, Report


class Lowering(Protocol):
    """Lowers a capture, as `SourceModel` does."""

    def __call__(
        self,
        opset: int,
        *,
        keep: Sequence[ir.Value] = (),
        target: Target | None = None,
        observation: Observation | None = None,
    ) -> LoweredModel:
        """The ONNX model, with the values of `keep` as further outputs."""


def report_capture(
    path: str | bytes | os.PathLike[str] | None,
    capture: Capture,
    lower: Lowering,
    opset: int,
    level: str,
    target: Target | None,
    choices: Choices,
) -> Report:
    """Write a page about a captured model at an opset.

    Args:
        path: the HTML file; None writes nothing.
        capture: the captured model.
        lower: lowers it.
        opset: the opset to write.
        level: of optimization.
        target: the consumer to write for, or None.
        choices: what to put into it.

    Raises:
        OpsetError: an opset that opsetta does not write.
        ModelFileError: the file cannot be written.
    """
    calls = CapturedCalls(capture)
    runnable = not calls.obstacle and capture.example is not None
    inputs = capture.source.graph.inputs

    def names(model: ir.Model) -> list[str]:
        return [value.name or "" for value in list(model.graph.inputs)[: len(inputs)]]

    def parity(model: ir.Model, drawn: Drawn) -> Parity:
        def lower_keeping(values: Sequence[ir.Value]) -> ir.Model:
            return lower(opset, keep=values, target=target).model

        return with_eager(calls, model, names(model), lower_keeping, drawn.rows)

    def make_feed(model: ir.Model) -> Mapping[str, object]:
        if runnable and capture.example is not None:
            return calls.input_values(names(model), *capture.example)[1]
        return random_inputs(inputs_of_model(model, list(model.graph.inputs)[: len(inputs)]))

    declared = sizes.inputs_of(capture.source, [value.name or "" for value in inputs])
    dynamic = list(sizes.dimensions(declared, capture.source.metadata_props))
    subject = Subject(
        title="model" if capture.module is None else type(capture.module).__name__,
        asked=requested_options(opset, level, target, dynamic),
        opset=opset,
        source=capture.source,
        lower=lambda target_opset, observation: (
            lower(target_opset, target=target, observation=observation).model
        ),
        lower_elsewhere=lambda target_opset, observation: lower(target_opset, observation=observation).model,
        compare=parity,
        feed=make_feed,
        classes=classes_of(capture.module),
        stages=capture.stages,
    )
    return save_report(collect(subject, choices), path)


def requested_options(
    opset: int, level: str, target: Target | None, dynamic: Sequence[str] = ()
) -> dict[str, str]:
    """The requested options, by name."""
    options = {"opset": str(opset)}
    if level:
        options["optimize"] = level
    if target is not None:
        options["target"] = target.name
    if dynamic:
        options["dynamic dimensions"] = ", ".join(dynamic)
    return options
