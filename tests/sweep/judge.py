"""What becomes of one case: passed, refused by name, or one of the faults, per opset."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import onnx_ir as ir
import torch
import torch.utils._pytree as pytree
from onnx.reference import ReferenceEvaluator

import opsetta
from opsetta.exporter.capture.capture_options import CaptureOptions
from opsetta.exporter.captured_graph.capture import Capture
from opsetta.exporter.export_model import capture_model, lower_capture
from opsetta.exporter.running.comparisons.verification import compare
from opsetta.exporter.running.sessions.torch_values import as_real
from opsetta.registration.arguments import overloaded_name

from .cases import SEED, Case

PASSED = "passed"
REFUSED = "refused"
UNCAPTURED = "not captured"
NO_KERNEL = "no kernel"
BY_REFERENCE = "agrees by onnx.reference"
KNOWN = "known difference"
RUNTIME = "runtime"
WRONG = "wrong"
FAILED = "failed"
FAULTS = (RUNTIME, WRONG, FAILED)
"""What must not happen: a file that does not run or gives something else, or an error that is not ours."""

UNDEFINED_CONTENTS = (
    "empty",
    "empty_like",
    "new_empty",
    "empty_strided",
    "empty_permuted",
    "new_empty_strided",
)
GAUGE = ("linalg_eigh", "_linalg_eigh", "linalg_svd", "_linalg_svd", "svd", "linalg_eig", "symeig")

LOOK_PAST_NAN = ("argmax", "argmin")
"""Operators that onnxruntime's kernels give another result for where there is NaN: docs/limits.md says so."""
TIES = ("sort", "argsort", "msort", "topk", "kthvalue", "mode", "median", "nanmedian")
"""Operators that may give the position of any one of equal elements."""


@dataclasses.dataclass
class Outcome:
    """What one case came to at one opset.

    Attributes:
        status: one of the words above.
        detail: why, where it did not pass.
        refused: per operator that was refused, the reason.
    """

    status: str
    detail: str = ""
    refused: dict[str, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass
class Verdict:
    """What one case came to at every opset, and the operators that its source graph holds."""

    outcomes: dict[int, Outcome]
    operators: list[str]


def judge(case: Case, opsets: Sequence[int], dynamic: bool) -> Verdict | None:
    """Capture a case once, and lower, run and compare it at each opset.

    Returns:
        None where there is nothing to compare: eager PyTorch, or with `dynamic` torch.export, refuses the
        case, or it has no tensor among its results.
    """
    if eager(case, case.inputs) is None:
        return None
    shapes = (tuple(_all_dynamic(tensor) for tensor in case.inputs),) if dynamic else None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = capture_model(
                case.model, case.inputs, {}, CaptureOptions(dynamic_shapes=shapes, mutations="outputs")
            )
    except opsetta.OpsettaError as error:
        if dynamic:
            return None
        return Verdict({opset: Outcome(UNCAPTURED, _first_line(error)) for opset in opsets}, [])
    except Exception as error:
        return Verdict({opset: Outcome(FAILED, described(error)) for opset in opsets}, [])
    inputs = _resized(case, found.source.graph) if dynamic else case.inputs
    if inputs is None or not _is_repeatable(case, inputs):
        return None
    operators = sorted(set(_operators(found.source.graph)))
    outcomes = {opset: _outcome(found, opset, case, inputs, operators) for opset in opsets}
    return Verdict(outcomes, operators)


def eager(case: Case, inputs: Sequence[torch.Tensor]) -> Any:
    """The result of eager PyTorch, or None where it refuses the inputs or gives no dense tensor."""
    torch.manual_seed(SEED)
    try:
        result = case.model(*(tensor.clone() for tensor in inputs))
    except Exception:
        # Some samples are there to show that PyTorch refuses them.
        return None
    tensors = [leaf for leaf in pytree.tree_leaves(result) if isinstance(leaf, torch.Tensor)]
    dense = all(tensor.layout is torch.strided and not tensor.is_quantized for tensor in tensors)
    return result if tensors and dense else None


def _is_repeatable(case: Case, inputs: tuple[torch.Tensor, ...]) -> bool:
    """Whether eager PyTorch gives the same twice; it does not where it leaves memory as it finds it."""
    first = pytree.tree_leaves(eager(case, inputs))
    # What is freed here is what the next call may find.
    del first[1:]
    again = pytree.tree_leaves(eager(case, inputs))[:1]
    pairs = zip(first, again, strict=True)
    return all(compare("", torch.as_tensor(a), torch.as_tensor(b)).within_tolerance for a, b in pairs)


def _operators(graph: ir.Graph) -> Iterator[str]:
    """The operators of a source graph and of its blocks, with their overloads."""
    for node in graph.all_nodes():
        yield overloaded_name(node)


def _outcome(
    found: Capture, opset: int, case: Case, inputs: tuple[torch.Tensor, ...], operators: Sequence[str]
) -> Outcome:
    try:
        program = lower_capture(found, opset)
    except opsetta.UnsupportedOperatorsError as error:
        refused = {operator.name: operator.reason for operator in error.operators}
        return Outcome(REFUSED, "; ".join(f"{name}: {why}" for name, why in refused.items()), refused)
    except Exception as error:
        return Outcome(FAILED, described(error))
    try:
        program.verify(inputs)
    except opsetta.VerificationError as error:
        return _second_look(program, case, inputs, operators, error)
    except opsetta.InferenceError as error:
        if "NOT_IMPLEMENTED" in str(error):
            return _by_reference(program, case, inputs, operators, described(error))
        return Outcome(RUNTIME, described(error))
    except Exception as error:
        return Outcome(FAILED, described(error))
    return Outcome(PASSED)


def _by_reference(
    program: opsetta.Program,
    case: Case,
    inputs: tuple[torch.Tensor, ...],
    operators: Sequence[str],
    problem: str,
) -> Outcome:
    """What ONNX's own evaluator makes of a valid file for which onnxruntime has no kernel."""
    feed = dict(zip(program.input_names, map(_as_array, inputs), strict=True))
    try:
        found = ReferenceEvaluator(program.model_proto).run(None, feed)
    except Exception as error:
        return Outcome(NO_KERNEL, f"{problem}; and onnx.reference: {described(error)}")
    leaves, structure = pytree.tree_flatten(eager(case, inputs))
    expected = [torch.as_tensor(leaf) for leaf in leaves]
    actual = [_as_tensor(np.asarray(item)) for item in found[: len(expected)]]
    if all(compare("", a, b).within_tolerance for a, b in zip(actual, expected, strict=True)):
        return Outcome(BY_REFERENCE, problem)
    sides = (pytree.tree_unflatten(side, structure) for side in (actual, expected))
    return Outcome(BY_REFERENCE if may_stand(*sides, case, inputs, operators) else WRONG, problem)


def _as_array(tensor: torch.Tensor) -> np.ndarray:
    if tensor.dtype == torch.bfloat16:
        return tensor.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    return as_real(tensor).numpy()


def _as_tensor(array: np.ndarray) -> torch.Tensor:
    if array.dtype == ml_dtypes.bfloat16:
        return torch.as_tensor(array.view(np.int16)).view(torch.bfloat16)
    return torch.as_tensor(array)


def _second_look(
    program: opsetta.Program,
    case: Case,
    inputs: tuple[torch.Tensor, ...],
    operators: Sequence[str],
    error: opsetta.VerificationError,
) -> Outcome:
    """Whether results that differ are what the operator may give: random, undefined, or up to a sign."""
    actual = program(*inputs)
    agree = may_stand(actual, eager(case, inputs), case, inputs, operators) or _as_in_float32(
        actual, case, inputs
    )
    if agree:
        return Outcome(PASSED)
    past_nan = any(_short(name) in LOOK_PAST_NAN for name in operators)
    if past_nan and any(bool(tensor.isnan().any()) for tensor in inputs):
        return Outcome(KNOWN, "onnxruntime looks past NaN")
    return Outcome(WRONG, described(error))


def _short(name: str) -> str:
    """An operator without its namespace and overload."""
    return name.partition("::")[2].partition(".")[0]


def _as_in_float32(actual: Any, case: Case, inputs: tuple[torch.Tensor, ...]) -> bool:
    """Whether float16 results are what float32 gives: onnxruntime rounds less often than PyTorch does."""
    if not any(tensor.dtype == torch.float16 for tensor in inputs):
        return False
    wide = tuple(tensor.float() if tensor.dtype == torch.float16 else tensor for tensor in inputs)
    expected = eager(case, wide)
    if expected is None or pytree.tree_structure(expected) != pytree.tree_structure(actual):
        return False
    pairs = zip(pytree.tree_leaves(actual), pytree.tree_leaves(expected), strict=True)
    return all(compare("", a, torch.as_tensor(b).to(a.dtype)).within_tolerance for a, b in pairs)


def may_stand(
    actual: Any, expected: Any, case: Case, inputs: Sequence[torch.Tensor], operators: Sequence[str]
) -> bool:
    """Whether results that differ in their numbers are both what the operators may give."""
    if any(_is_arbitrary(name) for name in operators):
        return _alike(actual, expected)
    names = set(map(_short, operators))
    if names & set(TIES):
        return _same_up_to_ties(actual, expected, inputs[0])
    if "linalg_cholesky_ex" in names and _same_where_done(actual, expected):
        return True
    if not names & set(GAUGE):
        return False
    pairs = zip(*(pytree.tree_leaves(case.gauge_free(side)) for side in (actual, expected)), strict=True)
    return all(compare("", a, b).within_tolerance for a, b in pairs)


def _same_where_done(actual: Any, expected: Any) -> bool:
    """Whether factors and error codes agree, leaving out factors that could not be computed."""
    (factor, code), (other, other_code) = actual, expected
    done = other_code == 0
    same = torch.equal(code == 0, done)
    return same and compare("", factor[done], other[done]).within_tolerance


def _same_up_to_ties(actual: Any, expected: Any, tensor: torch.Tensor) -> bool:
    """Whether positions that differ are those of equal elements, and all else is the same."""
    for a, b in zip(pytree.tree_leaves(actual), pytree.tree_leaves(expected), strict=True):
        if compare("", a, b).within_tolerance:
            continue
        if a.dtype != torch.int64 or a.shape != b.shape:
            return False
        if not any(_same_elements(tensor, a, b, dim) for dim in range(tensor.ndim)):
            return False
    return True


def _same_elements(tensor: torch.Tensor, a: torch.Tensor, b: torch.Tensor, dim: int) -> bool:
    """Whether two tensors of positions along a dimension name equal elements, each position once."""
    if a.ndim == tensor.ndim - 1:
        a, b = a.unsqueeze(dim), b.unsqueeze(dim)
    kept = [size for axis, size in enumerate(tensor.shape) if axis != dim]
    if a.ndim != tensor.ndim or [size for axis, size in enumerate(a.shape) if axis != dim] != kept:
        return False
    if max(int(a.max()), int(b.max())) >= tensor.shape[dim] or int(a.min()) < 0:
        return False
    in_order = a.sort(dim).values
    unique = bool((in_order.diff(dim=dim) != 0).all())
    return unique and torch.equal(tensor.take_along_dim(a, dim), tensor.take_along_dim(b, dim))


def _is_arbitrary(name: str) -> bool:
    """Whether an operator draws random numbers, or leaves the contents of its result undefined."""
    namespace, _, rest = name.partition("::")
    operator, _, overload = rest.partition(".")
    if namespace != "aten":
        return False
    if operator in UNDEFINED_CONTENTS:
        return True
    function = getattr(getattr(torch.ops.aten, operator, None), overload or "default", None)
    return function is not None and torch.Tag.nondeterministic_seeded in function.tags


def _alike(actual: Any, expected: Any) -> bool:
    """Whether two results have the same element types and shapes."""
    pairs = zip(pytree.tree_leaves(actual), pytree.tree_leaves(expected), strict=True)
    return all(
        a.dtype == b.dtype and a.shape == b.shape if isinstance(b, torch.Tensor) else type(a) is type(b)
        for a, b in pairs
    )


def _all_dynamic(tensor: torch.Tensor) -> dict[int, Any]:
    return dict.fromkeys(range(tensor.ndim), torch.export.Dim.AUTO)


def _resized(case: Case, graph: ir.Graph) -> tuple[torch.Tensor, ...] | None:
    """Inputs of other sizes, wherever the capture left a dimension free, that eager PyTorch takes; or None.

    Dimensions of one size go to one other size, for operators relate them. The elements are near those of
    the sample, so that they stay in their range.
    """
    structure = pytree.tree_structure(eager(case, case.inputs))
    by_name = {value.name: value for value in graph.inputs}
    values = [by_name.get(f"tensors_{i}") for i in range(len(case.inputs))]
    free = [
        [not isinstance(size, int) for size in value.shape] if value is not None and value.shape else []
        for value in values
    ]
    if not any(any(entry) for entry in free):
        return None
    for change in (lambda n: n + 1, lambda n: n + 2, lambda n: 2 * n, lambda n: 3 * n):
        resized = tuple(
            _repeated(
                tensor, [change(n) if is_free else n for n, is_free in zip(tensor.shape, dims, strict=True)]
            )
            if dims
            else tensor
            for tensor, dims in zip(case.inputs, free, strict=True)
        )
        result = eager(case, resized)
        if result is not None and pytree.tree_structure(result) == structure:
            return resized
    return None


def _repeated(tensor: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
    """A tensor of another shape with elements near those of the first, sorted or symmetric where it is.

    Floating-point elements are made a little smaller, each by its own factor, so that none is like another.
    """
    if not tensor.numel():
        return torch.testing.make_tensor(shape, dtype=tensor.dtype, device="cpu", low=0, high=1)
    result = tensor
    for dim, size in enumerate(shape):
        result = result.index_select(dim, torch.arange(size) % tensor.shape[dim])
    if tensor.is_floating_point():
        factor = 1 - torch.rand(shape) / 10
        if tensor.ndim > 1 and tensor.shape[-1] == tensor.shape[-2] and torch.equal(tensor, tensor.mT):
            factor = (factor + factor.mT) / 2
        result = (result * factor).to(tensor.dtype)
    is_sorted = tensor.ndim > 0 and torch.equal(tensor, tensor.sort(dim=-1).values)
    return result.sort(dim=-1).values if is_sorted else result


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [""])[0][:300]


def described(error: Exception) -> str:
    return f"{type(error).__name__}: {_first_line(error)}"
