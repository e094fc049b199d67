"""The subject of a report about a converted ONNX file."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

import onnx_ir as ir

from ..devices.targets.target import Target
from ..lowering.driver import Observation
from ..running.model_inputs import inputs_of_model
from ..running.random_inputs import random_inputs
from .captured import requested_options
from .collecting import Choices, Subject, collect, save_report
from .opsets import Lower
from .parity import with_original
from .pictures import Drawn
from .records import Parity, Report


def report_conversion(
    path: str | bytes | os.PathLike[str] | None,
    source: ir.Model,
    opset: int,
    convert: Callable[..., ir.Model] | None,
    lower: Lower,
    target: Target | None,
    choices: Choices,
) -> Report:
    """Write a page about an ONNX file at an opset.

    The converted model is compared with the file, on random inputs.

    Args:
        path: the HTML file; None writes nothing.
        source: the model of the file.
        opset: the opset that it is written at.
        convert: converts the file to that opset; None if it was not converted.
        lower: converts it to another one.
        target: the consumer that it is written for, or None.
        choices: what to put into the report.

    Raises:
        OpsetError: an opset that opsetta does not write.
        ModelFileError: the file cannot be written.
    """

    def convert_again(target_opset: int, observation: Observation) -> ir.Model:
        return source.clone() if convert is None else convert(False, observation)

    def make_feed(model: ir.Model) -> Mapping[str, object]:
        stored = source.graph.initializers
        fed = [value for value in model.graph.inputs if value.name not in stored]
        return random_inputs(inputs_of_model(model, fed))

    def parity(model: ir.Model, drawn: Drawn) -> Parity:
        return with_original(source, model, make_feed(model), drawn.rows)

    subject = Subject(
        title=source.graph.name or "model",
        asked=requested_options(opset, "", target),
        opset=opset,
        source=source,
        lower=convert_again,
        lower_elsewhere=lower,
        compare=None if convert is None else parity,
        feed=make_feed,
        is_file=True,
    )
    return save_report(collect(subject, choices), path)
