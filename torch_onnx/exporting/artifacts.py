"""Writes the files of the keywords `report`, `profile` and `dump_exported_program`."""

from __future__ import annotations

import collections
import datetime
import os
import pathlib
import time
from typing import TYPE_CHECKING

from ...registration import ModelFileError

if TYPE_CHECKING:
    from .keywords import ExportOptions
    from .onnx_program import ONNXProgram


class Artifacts:
    """Records the stages of one export, and writes the requested files.

    A failed export also gets a report, with the error.

    Raises:
        ModelFileError: the folder of the files does not exist, and cannot be made.
    """

    def __init__(self, options: ExportOptions, opset: int):
        self._options = options
        self._opset = opset
        now = datetime.datetime.now().strftime("%Y-%m-%d_%H-%M-%S-%f")
        folder = pathlib.Path(os.fspath(options.artifacts_dir))
        self._stem = folder / f"onnx_export_{now}"
        if options.report or options.profile or options.dump_exported_program:
            try:
                folder.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise ModelFileError(f"artifacts_dir: '{folder}' cannot be made: {error.strerror}") from error
        self._stages: list[tuple[str, float, int]] = []

    def begin(self, stage: str) -> None:
        """Record the time and memory at the beginning of a stage; print its name if `verbose` is set."""
        self._stages.append((stage, time.perf_counter(), _peak_memory()))
        if self._options.verbose:
            print(f"[torch.onnx] {stage}")

    def write(self, result: ONNXProgram) -> None:
        """Write the requested files after an export.

        Raises:
            ModelFileError: a file cannot be written.
        """
        self.begin("end")
        if self._options.dump_exported_program and result.exported_program is not None:
            import torch

            torch.export.save(result.exported_program, f"{self._stem}.pt2")
        if self._options.profile:
            self._write_lines("profile", ["# Profile of an export", "", *self._times()])
        if self._options.report:
            self._write_lines("success", [*self._heading("succeeded"), *_contents(result), *self._times()])

    def write_failure(self, error: BaseException) -> None:
        """Write the report of a failed export, if a report is requested."""
        if self._options.report:
            self.begin("end")
            text = [f"    {line}" for line in f"{type(error).__name__}: {error}".splitlines()]
            self._write_lines("failed", [*self._heading("failed"), *text, "", *self._times()])

    def _heading(self, outcome: str) -> list[str]:
        model = type(self._options.model).__name__
        return ["# ONNX export", "", f"The export of `{model}` at opset {self._opset} {outcome}.", ""]

    def _times(self) -> list[str]:
        lines = ["| stage | seconds | peak memory, MB |", "|---|---|---|"]
        for (stage, start, _), (_, end, memory) in zip(self._stages, self._stages[1:], strict=False):
            lines.append(f"| {stage} | {end - start:.3f} | {memory / 1e6:.0f} |")
        return lines

    def _write_lines(self, suffix: str, lines: list[str]) -> None:
        path = f"{self._stem}_{suffix}.md"
        try:
            with open(path, "w", encoding="utf-8") as file:
                file.write("\n".join(lines) + "\n")
        except OSError as error:
            raise ModelFileError(f"artifacts_dir: {path} cannot be written: {error.strerror}") from error


def _contents(result: ONNXProgram) -> list[str]:
    """The opsets, inputs, outputs and operators of a model."""
    graph = result.model.graph
    counts = collections.Counter(node.op_type for node in graph)
    opsets = ", ".join(f"{domain or 'ai.onnx'} {version}" for domain, version in graph.opset_imports.items())
    lines = [f"Opsets: {opsets}.", "", "| | name | element type | shape |", "|---|---|---|---|"]
    for role, values in (("input", graph.inputs), ("output", graph.outputs)):
        lines += [f"| {role} | {value.name} | {value.dtype} | {value.shape} |" for value in values]
    lines += ["", "| operator | nodes |", "|---|---|"]
    lines += [f"| {name} | {count} |" for name, count in sorted(counts.items())]
    return [*lines, ""]


def _peak_memory() -> int:
    """Return the peak resident memory of this process in bytes; 0 if the system does not report it."""
    try:
        import resource
    except ImportError:
        return 0
    # Linux counts in kilobytes.
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
