"""What became of one case at one opset: right, refused, wrong, invalid, or of nothing that runs it."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
import onnx.checker
import onnx.numpy_helper
import onnx.version_converter
import onnx_ir as ir

from opsetta import UnsupportedOperatorsError
from opsetta.exporter.lowering import conversion

from ..onnxruntime_sessions import run_onnxruntime
from .cases import TARGETS, all_cases, is_random

RIGHT, REFUSED, WRONG, INVALID, UNRUN = "right", "refused", "wrong", "invalid", "unrun"
STATUSES = (RIGHT, REFUSED, WRONG, INVALID, UNRUN)
# How onnxruntime says that it has no kernel for an operator, or not for these types.
_NO_KERNEL = "NOT_IMPLEMENTED"
# bfloat16 has eight bits: two of its last places.
_BFLOAT16_RTOL = 2**-6


@dataclasses.dataclass(frozen=True)
class Outcome:
    status: str
    detail: str = ""


Convert = Callable[[onnx.ModelProto, int], onnx.ModelProto]
Run = Callable[[onnx.ModelProto, Sequence[Any]], list[Any]]


def ours(model: onnx.ModelProto, opset: int) -> onnx.ModelProto:
    return ir.to_proto(conversion.convert(ir.from_proto(model), opset))


def version_converter(model: onnx.ModelProto, opset: int) -> onnx.ModelProto:
    return onnx.version_converter.convert_version(model, opset)


def judge(case: Any, convert: Convert, opset: int) -> Outcome:
    """Convert a case and run what comes of it."""
    try:
        model = convert(case.model, opset)
    except UnsupportedOperatorsError as error:
        return Outcome(REFUSED, str(error))
    except Exception as error:
        kind = REFUSED if convert is version_converter else INVALID
        return Outcome(kind, f"{type(error).__name__}: {error}")
    versions = {entry.domain: entry.version for entry in model.opset_import}
    if "" in versions and versions[""] != opset:
        return Outcome(INVALID, f"the file is at opset {versions['']}")
    try:
        onnx.checker.check_model(model, full_check=_passes_full_check(case.model))
    except Exception as error:
        return Outcome(INVALID, f"{type(error).__name__}: {error}")
    return _ran(case, model)


def _passes_full_check(model: onnx.ModelProto) -> bool:
    try:
        onnx.checker.check_model(model, full_check=True)
    except Exception:
        return False
    return True


def _ran(case: Any, model: onnx.ModelProto) -> Outcome:
    """The outcome in onnxruntime, which knows what each opset means by an operator.

    onnx's evaluator runs old versions of an operator as its newest one. It judges only what onnxruntime has
    no kernel for, or what onnxruntime gets wrong or refuses before conversion, too.
    """
    found = _judged(case, model, _onnxruntime)
    if found.status == RIGHT:
        return found
    if found.status == WRONG and _before(case, _onnxruntime).status != WRONG:
        return found
    refused = found.status == UNRUN and _NO_KERNEL not in found.detail
    if refused and _before(case, _onnxruntime).status == RIGHT:
        return Outcome(WRONG, f"{found.detail}, unlike before conversion")
    other = _judged(case, model, _reference)
    if other.status == WRONG and _before(case, _reference).status == WRONG:
        # The evaluator is wrong about the case as it is, and says nothing of the converted one.
        other = Outcome(UNRUN, f"{other.detail}, as before conversion")
    if other.status == UNRUN:
        return Outcome(found.status, f"{found.detail} | {other.detail}")
    return other


_found_before: dict[tuple[str, str], Outcome] = {}


def _before(case: Any, run: Run) -> Outcome:
    """The outcome of a case as it is, found once for all opsets."""
    key = (case.name, run.__name__)
    if key not in _found_before:
        _found_before[key] = _judged(case, case.model, run)
    return _found_before[key]


def _judged(case: Any, model: onnx.ModelProto, run: Run) -> Outcome:
    for inputs, expected in case.data_sets:
        inputs, expected = [_content(item) for item in inputs], [_content(item) for item in expected]
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found = run(model, inputs)
        except Exception as error:
            return Outcome(UNRUN, f"{run.__name__}: {type(error).__name__}: {error}")
        problem = difference(found, expected, case.rtol, case.atol, is_random(case.name))
        if problem:
            return Outcome(WRONG, f"{run.__name__}: {problem}")
    return Outcome(RIGHT)


def _content(item: Any) -> Any:
    if isinstance(item, onnx.TensorProto):
        return onnx.numpy_helper.to_array(item)
    return np.asarray(item) if isinstance(item, np.generic) else item


def _onnxruntime(model: onnx.ModelProto, inputs: Sequence[Any]) -> list[Any]:
    return run_onnxruntime(
        model, dict(zip((value.name for value in model.graph.input), inputs, strict=False))
    )


def _reference(model: onnx.ModelProto, inputs: Sequence[Any]) -> list[Any]:
    from onnx.reference import ReferenceEvaluator

    evaluator = ReferenceEvaluator(model)
    return evaluator.run(None, dict(zip(evaluator.input_names, inputs, strict=False)))


def difference(found: Sequence[Any], expected: Sequence[Any], rtol: float, atol: float, drawn: bool) -> str:
    """What is wrong with results, by the rules of onnx's backend runner; empty where nothing is."""
    if len(found) != len(expected):
        return f"{len(found)} results for {len(expected)}"
    for one, other in zip(found, expected, strict=True):
        if isinstance(one, (list, tuple)):
            if not isinstance(other, (list, tuple)):
                return f"a list for {type(other).__name__}"
            problem = difference(one, other, rtol, atol, drawn)
        else:
            problem = _array_difference(one, other, rtol, atol, drawn)
        if problem:
            return problem
    return ""


def _array_difference(one: Any, other: Any, rtol: float, atol: float, drawn: bool) -> str:
    if one is None or other is None:
        return "" if one is other else f"{one} for {other}"
    one, other = np.asarray(one), np.asarray(other)
    if one.shape != other.shape:
        return f"shape {one.shape} for {other.shape}"
    if other.dtype == object or other.dtype.kind in "US":
        return "" if one.tolist() == other.tolist() else "other strings"
    if one.dtype == np.uint8 and other.dtype.name.startswith("float8"):
        # onnxruntime gives the bits of 8-bit floats.
        one = one.view(other.dtype)
    if one.dtype != other.dtype:
        return f"{one.dtype} for {other.dtype}"
    if drawn:
        return ""
    if one.dtype.name == "bfloat16":
        one, other, rtol = one.astype(np.float32), other.astype(np.float32), max(rtol, _BFLOAT16_RTOL)
    if one.dtype in (np.float16, np.float32, np.float64) and other.size:
        # Rounding of the largest element, which is no error where a small one is what it left.
        largest = float(np.max(np.abs(np.where(np.isfinite(other), other, 0))))
        atol = max(atol, 2 * float(np.finfo(one.dtype).eps) * largest)
    try:
        np.testing.assert_allclose(one, other, rtol=rtol, atol=atol)
    except AssertionError as error:
        return " ".join(str(error).split())
    return ""


def judge_case(
    converter: str, targets: Sequence[int], index: int
) -> tuple[str, str, dict[int, tuple[str, str]]]:
    """The name of a case, its first operator, and its outcome at each opset."""
    case = all_cases()[index]
    convert = ours if converter == "ours" else version_converter
    found = {opset: judge(case, convert, opset) for opset in targets or TARGETS}
    operator = case.model.graph.node[0].op_type if case.model.graph.node else ""
    return case.name, operator, {opset: (entry.status, entry.detail) for opset, entry in found.items()}
