"""Collects the facts of a report."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import os
import platform
from collections.abc import Callable, Mapping, Sequence

import onnx_ir as ir

from ...registration import OpsettaError, UnsupportedOperatorsError
from ...registration.opsets import check_opset
from ..captured_graph import dimensions as sizes
from ..captured_graph import specializations
from ..captured_graph.stages import Stage, StageClock
from ..lowering.driver import Observation
from .opsets import OPSETS, Lower, measure_opsets
from .pictures import Drawn, short, source_picture, type_text, written_picture
from .problems import problems_of
from .records import InterfaceValue, Parity, Report, WrittenModel

_PACKAGES = ("opsetta", "torch", "onnx", "onnx-ir", "onnxruntime", "numpy")

Compare = Callable[[ir.Model, Drawn], Parity]
"""Compares a written model with the original, given the picture of the captured graph."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Choices:
    """The requested contents of a report.

    Attributes:
        title: the name of the model; by default its class, or the name of the graph of a file.
        opsets: the opsets to compare; by default some from 9 to 23. An empty list compares none.
        compare: run the model, and compare every intermediate result.
        latency: measure runs in onnxruntime.
        progress: called with the name of each stage as it begins.
    """

    title: str | None = None
    opsets: Sequence[int] | None = None
    compare: bool = True
    latency: bool = True
    progress: Callable[[str], None] | None = None


@dataclasses.dataclass
class Subject:
    """The subject of a report.

    Attributes:
        title: the name of the model.
        asked: what was asked for, by name.
        opset: the opset of the written model.
        source: the captured graph, or the graph of the file that is converted.
        lower: lowers it to `opset`, for the target that was asked for.
        lower_elsewhere: lowers it to another opset, for no target.
        compare: compares a written model with the original; None if there is none.
        feed: inputs for a written model, to measure its runs.
        classes: the class of each module, by its path.
        stages: the stages of the capture.
        is_file: whether the source is a file of ONNX operators.
    """

    title: str
    asked: dict[str, str]
    opset: int
    source: ir.Model
    lower: Lower
    lower_elsewhere: Lower
    compare: Compare | None
    feed: Callable[[ir.Model], Mapping[str, object]]
    classes: Mapping[str, str] = dataclasses.field(default_factory=dict)
    stages: Sequence[Stage] = ()
    is_file: bool = False


def collect(subject: Subject, choices: Choices) -> Report:
    """Collect the facts of a model that was captured or read.

    Raises:
        OpsetError: an opset that opsetta does not write.
    """
    compared_opsets = OPSETS if choices.opsets is None else [check_opset(opset) for opset in choices.opsets]
    show, clock = choices.progress or _silent, StageClock(choices.progress)
    # A model that cannot be lowered still gets a page, with the reasons and the source graph.
    observation, model, refused = Observation(), None, OpsettaError()
    clock("lowering")
    try:
        model = subject.lower(subject.opset, observation)
    except OpsettaError as error:
        refused = error

    def lower_at(opset: int, observation: Observation) -> ir.Model:
        # The target's rewrites apply only to the opset that was requested for it.
        lower = subject.lower if opset == subject.opset else subject.lower_elsewhere
        return lower(opset, observation)

    names = {o.name for o in refused.operators} if isinstance(refused, UnsupportedOperatorsError) else set()
    graph = observation.source or subject.source.graph
    clock.end()
    before = source_picture(graph, model, observation, subject.classes, names)
    after = None if model is None else written_picture(model, observation, subject.classes).picture
    parity = None
    if model is not None and subject.compare is not None and choices.compare:
        show("comparing")
        parity = subject.compare(model, before)
    feed = subject.feed if choices.latency else None
    table = measure_opsets(lower_at, {*compared_opsets, subject.opset} if compared_opsets else (), feed, show)
    metadata = subject.source.metadata_props
    return Report(
        title=choices.title or subject.title,
        asked=subject.asked,
        written=None if model is None else _describe_model(model),
        stages=(*subject.stages, *clock.stages),
        source="file" if subject.is_file else "capture",
        before=before.picture,
        after=after,
        parity=parity,
        problems=() if model is not None else problems_of(refused, "lowering"),
        opsets=table,
        restrictions=tuple(
            dataclasses.asdict(restriction) for restriction in sizes.read_restrictions(metadata)
        ),
        specializations=tuple(specializations.read_specializations(metadata)),
        versions=versions(),
    )


def failed_report(
    title: str, asked: dict[str, str], error: OpsettaError, stage: str, clock: StageClock
) -> Report:
    """The report of a model that could not be captured."""
    clock.end()
    return Report(
        title=title,
        asked=asked,
        stages=tuple(clock.stages),
        problems=problems_of(error, stage),
        versions=versions(),
    )


def save_report(report: Report, path: str | bytes | os.PathLike[str] | None) -> Report:
    """Write the page of a report, unless the path is None; return the report."""
    if path is not None:
        report.save(path)
    return report


def versions() -> dict[str, str]:
    """The versions of Python and of the packages that matter; those that are installed."""
    version_of = {"python": platform.python_version()}
    for name in _PACKAGES:
        try:
            version_of[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return version_of


def classes_of(module: object) -> dict[str, str]:
    """The class of each module of a PyTorch model, by its path."""
    if not hasattr(module, "named_modules"):
        return {}
    return {path: type(submodule).__name__ for path, submodule in module.named_modules()}


def _silent(stage: str) -> None:
    """Show no stage."""


def _describe_model(model: ir.Model) -> WrittenModel:
    graph = model.graph
    # Before IR version 4 initializers are inputs as well.
    fed_inputs = [value for value in graph.inputs if value.name not in graph.initializers]
    interface = [
        InterfaceValue("input", short(value.name or ""), short(type_text(value))) for value in fed_inputs
    ]
    interface += [
        InterfaceValue("output", short(value.name or ""), short(type_text(value))) for value in graph.outputs
    ]
    tensors = [value.const_value for value in graph.initializers.values() if value.const_value is not None]
    return WrittenModel(
        opsets={domain or "ai.onnx": version for domain, version in graph.opset_imports.items()},
        ir_version=model.ir_version or 0,
        nodes=graph.num_nodes(),
        weights=len(tensors),
        weight_bytes=sum(tensor.nbytes for tensor in tensors),
        interface=tuple(interface),
    )
