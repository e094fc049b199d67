"""The contents of a report as plain data.

`docs/report.md` describes the JSON form, which has the same names.
"""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Sequence

from ..captured_graph.specializations import Specialization
from ..captured_graph.stages import Stage

ORIGINS = ("as is", "composed", "recognised", "folded", "unsupported")
"""How a source node was lowered, or where an ONNX node comes from; pictures refer to these by position."""


@dataclasses.dataclass(frozen=True)
class InterfaceValue:
    """One input or output.

    Attributes:
        kind: `input` or `output`.
        type: element type and shape, `float32[batch, 3]`.
    """

    kind: str
    name: str
    type: str


@dataclasses.dataclass(frozen=True)
class WrittenModel:
    """The model that was written.

    Attributes:
        opsets: the version by domain.
        weights: the number of initializers.
        weight_bytes: their size.
    """

    opsets: dict[str, int]
    ir_version: int
    nodes: int
    weights: int
    weight_bytes: int
    interface: tuple[InterfaceValue, ...]


@dataclasses.dataclass(frozen=True)
class Picture:
    """A graph, with nodes in order of execution and the modules that they belong to.

    Attributes:
        modules: rows of name, path, class, row of the enclosing module (-1 for the first row, the model), the
            number of its nodes by origin, and whether the report has these nodes.
        nodes: rows of operator, name, row of the module, origin, source operators, result, line, attributes.
            A node of a module that the report leaves out has the operator `…`.
        edges: pairs of rows of nodes: maker and reader.
        left_out: the nodes that the report leaves out, to stay small.
    """

    modules: list[list[object]]
    nodes: list[list[object]]
    edges: list[list[int]]
    left_out: int = 0


@dataclasses.dataclass(frozen=True)
class Compared:
    """The error of one tensor.

    Attributes:
        position: the row of its node in the captured graph; -1 for an output of the model.
        error: the largest absolute error; infinite where only one side is finite, or types differ.
        relative: the largest relative error.
        share: the largest ratio of an error to its tolerance; above 1 is outside tolerance.
        index: the position of the worst element.
    """

    name: str
    operator: str
    module: str
    position: int
    type: str
    error: float
    relative: float
    share: float
    index: tuple[int, ...]
    problem: str = ""


@dataclasses.dataclass(frozen=True)
class Parity:
    """The results of the written model beside those of the original.

    Attributes:
        against: the source of the expected results.
        outputs: the outputs of the model.
        nodes: intermediate results, in order of execution.
        tolerances: relative and absolute tolerance by element type.
        note: why something was not compared; empty if everything was.
    """

    against: str
    outputs: tuple[Compared, ...] = ()
    nodes: tuple[Compared, ...] = ()
    tolerances: dict[str, tuple[float, float]] = dataclasses.field(default_factory=dict)
    note: str = ""

    @property
    def agrees(self) -> bool | None:
        """Whether every output is within tolerance; None if none was compared."""
        return all(output.share <= 1 for output in self.outputs) if self.outputs else None


@dataclasses.dataclass(frozen=True)
class Problem:
    """A problem that prevents the export.

    Attributes:
        subject: the operator, or the stage that failed.
        places: paths of modules.
        remedy: what to do.
    """

    subject: str
    places: tuple[str, ...]
    reason: str
    remedy: str


@dataclasses.dataclass(frozen=True)
class AtOpset:
    """The same model at one opset.

    Attributes:
        nodes: ONNX nodes; None if the opset cannot express the model.
        composed: ONNX nodes that write an operator as several.
        recognised: ONNX nodes that an optimization made.
        latency: the median time of a run in onnxruntime, in seconds; None if it was not measured.
        note: why there is no number.
    """

    opset: int
    nodes: int | None
    composed: int = 0
    recognised: int = 0
    latency: float | None = None
    note: str = ""


@dataclasses.dataclass(frozen=True)
class Report:
    """The facts of a report.

    Attributes:
        title: the name of the model.
        asked: the requested options, by name.
        written: the written model; None if the model cannot be written.
        stages: the stages of the export, with time and memory.
        source: `capture` or `file`, what the model was written from.
        before: the captured graph, or that of the file.
        after: the written graph.
        parity: how results agree.
        problems: the problems that prevent the export.
        opsets: the same model across opsets.
        restrictions: conditions on sizes, with their reasons.
        specializations: decisions on values that are fixed at those of the example.
        versions: versions of the packages that were used.
    """

    title: str
    asked: dict[str, str]
    written: WrittenModel | None = None
    stages: tuple[Stage, ...] = ()
    source: str = "capture"
    before: Picture | None = None
    after: Picture | None = None
    parity: Parity | None = None
    problems: tuple[Problem, ...] = ()
    opsets: tuple[AtOpset, ...] = ()
    restrictions: tuple[dict[str, str], ...] = ()
    specializations: tuple[Specialization, ...] = ()
    versions: dict[str, str] = dataclasses.field(default_factory=dict)

    def to_json(self) -> dict[str, object]:
        """The data as dicts and lists for JSON; infinite numbers are the text `Infinity`."""
        return {field.name: _plain(getattr(self, field.name)) for field in dataclasses.fields(self)}

    def save(self, path: str | bytes | os.PathLike[str]) -> None:
        """Write the page.

        Raises:
            ModelFileError: the file cannot be written.
        """
        from .page import save

        save(self.to_json(), path)


def _plain(item: object) -> object:
    if dataclasses.is_dataclass(item) and not isinstance(item, type):
        return {field.name: _plain(getattr(item, field.name)) for field in dataclasses.fields(item)}
    if isinstance(item, dict):
        return {key: _plain(value) for key, value in item.items()}
    # Tuples become lists, as JSON would make them.
    if isinstance(item, Sequence) and not isinstance(item, str):
        return [_plain(member) for member in item]
    # JSON has no infinities.
    if isinstance(item, float) and not math.isfinite(item):
        return "Infinity" if item > 0 else "NaN"
    return item
