"""torch.onnx on the same cases: its TorchScript exporter, and its current one."""

from __future__ import annotations

import contextlib
import io
import logging
import os
import tempfile
import warnings
from collections.abc import Sequence
from typing import Any

import onnx
import onnxruntime
import torch
import torch.utils._pytree as pytree

from opsetta.exporter.running.comparisons.verification import compare
from opsetta.exporter.running.sessions.torch_values import to_ortvalue, to_torch

from .cases import Case
from .judge import PASSED, REFUSED, RUNTIME, WRONG, Outcome, described, eager, may_stand


def torch_onnx(case: Case, operators: Sequence[str], opset: int, dynamo: bool) -> Outcome:
    """One of torch.onnx's exporters at an opset; a file at any other opset counts as refused.

    Args:
        operators: those of our capture, which say whether numbers may differ.
    """
    names = [f"input_{index}" for index in range(len(case.inputs))]
    with warnings.catch_warnings(), tempfile.TemporaryDirectory() as folder:
        warnings.simplefilter("ignore")
        path = os.path.join(folder, "model.onnx")
        try:
            _export(case, path, input_names=names, opset_version=opset, dynamo=dynamo)
        except Exception as error:
            return Outcome(REFUSED, described(error))
        written = onnx.load(path, load_external_data=False).opset_import
        versions = [entry.version for entry in written if entry.domain in ("", "ai.onnx")]
        if versions != [opset]:
            return Outcome(REFUSED, f"the file is at opset {versions}")
        try:
            results = _run(path, dict(zip(names, case.inputs, strict=True)))
        except Exception as error:
            return Outcome(RUNTIME, described(error))
    return _compared(case, operators, results)


def _export(case: Case, path: str, **options: Any) -> None:
    logging.disable(logging.ERROR)
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            torch.onnx.export(case.model, case.inputs, path, verbose=False, **options)
    finally:
        logging.disable(logging.NOTSET)


def _run(path: str, inputs: dict[str, torch.Tensor]) -> list[torch.Tensor]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    feed = {entry.name: to_ortvalue(inputs[entry.name]) for entry in session.get_inputs()}
    results = session.run_with_ort_values([entry.name for entry in session.get_outputs()], feed)
    return [to_torch(result) for result in results]


def _compared(case: Case, operators: Sequence[str], results: list[torch.Tensor]) -> Outcome:
    leaves, structure = pytree.tree_flatten(eager(case, case.inputs))
    expected = [torch.as_tensor(leaf) for leaf in leaves]
    if len(results) != len(expected):
        return Outcome(WRONG, f"{len(results)} results for {len(expected)}")
    reports = [compare("", a, b) for a, b in zip(results, expected, strict=True)]
    bad = [report for report in reports if not report.within_tolerance]
    if not bad:
        return Outcome(PASSED)
    actual, wanted = (pytree.tree_unflatten(side, structure) for side in (results, expected))
    if may_stand(actual, wanted, case, case.inputs, operators):
        return Outcome(PASSED)
    return Outcome(WRONG, bad[0].problem or f"largest absolute error {bad[0].max_absolute_error:.3g}")
