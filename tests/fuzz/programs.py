"""Random programs: what one is, and whether it gives at some opset what eager PyTorch gives."""

from __future__ import annotations

import builtins
import contextlib
import copy
import dataclasses
import importlib
import logging
import re
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
import torch.utils._pytree as pytree

import opsetta

from ..exporter.torch_boundary.process_snapshot import changes, model_snapshot
from .rounding import OpenSigns, Rounding

OPSETS = tuple(range(opsetta.MINIMUM_OPSET, opsetta.MAXIMUM_OPSET + 1))

GENERATORS = {
    "tensor": "tensor_programs",
    "scripted": "scripted_programs",
    "submodules": "submodule_programs",
    "sizes": "size_programs",
}
"""The modules beside this one whose function `program` makes a program from a seed."""

RIGHT, REFUSED, WRONG, CRASHED = "right", "refused", "wrong", "crashed"

TOLERANCES = {torch.float16: 2e-3, torch.bfloat16: 1.6e-2, torch.float32: 2e-5, torch.float64: 1e-7}
"""Relative tolerance by element type; what an operator's own rounding becomes further on is added to it."""

_ROUNDINGS = 3


@dataclasses.dataclass
class Program:
    """A random program.

    Attributes:
        seed: what the generator made it from.
        model: what is exported.
        example: the arguments that it is captured with.
        inputs: further arguments to run it with.
        source: its text, which is shown where it fails.
        dynamic_shapes: which dimensions vary, as `opsetta.export` takes it.
        reference: what computes the right results, where calling the model does not.
        options: further arguments of `opsetta.export`.
    """

    seed: int
    model: Callable[..., Any]
    example: tuple[Any, ...]
    inputs: list[tuple[Any, ...]]
    source: str
    dynamic_shapes: Any = None
    reference: Callable[..., Any] | None = None
    options: dict[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What became of a program at an opset.

    Attributes:
        kind: right, refused (an OpsettaError), wrong (not what eager gives) or crashed (any other error).
        text: the error or the difference; empty where the program is right.
    """

    seed: int
    opset: int
    kind: str
    text: str = ""
    source: str = ""

    def __str__(self) -> str:
        return f"{self.kind} at opset {self.opset}, seed {self.seed}\n{self.source}\n{self.text}"


def run(
    generate: Callable[[int], Program],
    seeds: Iterable[int],
    opsets: Sequence[int] = OPSETS,
    each: int = 3,
) -> list[Outcome]:
    """Judge the programs of some seeds, each at `each` of the opsets, other ones for every seed."""
    outcomes = []
    for seed in seeds:
        try:
            program = generate(seed)
        except Exception:
            outcomes.append(Outcome(seed, 0, CRASHED, f"the generator: {traceback.format_exc()}"))
            continue
        outcomes += judge(program, spread(seed, opsets, each))
    return outcomes


def run_range(job: tuple[str, int, int], each: int = 3) -> list[Outcome]:
    """Judge the programs of a generator, given by its name, from a first seed to before a last one."""
    name, first, last = job
    module = importlib.import_module(f".{GENERATORS[name]}", __package__)
    return run(module.program, range(first, last), each=each)


def spread(seed: int, opsets: Sequence[int], count: int) -> list[int]:
    """`count` of the opsets, as far apart as can be; other ones for the next seed."""
    step = max(len(opsets) / count, 1.0)
    return sorted({opsets[int(seed + index * step) % len(opsets)] for index in range(count)})


def judge(program: Program, opsets: Sequence[int]) -> list[Outcome]:
    """Lower the program's one capture to each of the opsets, and compare what it gives with eager PyTorch."""
    with warnings.catch_warnings(record=True) as warned, _no_logging():
        warnings.simplefilter("always")
        reference = program.reference or program.model
        calls = [(arguments, *_expected(reference, arguments)) for arguments in _calls(program)]
        captured: list[opsetta.Program] = []
        before = model_snapshot(program.model, program.example)
        outcomes = [_outcome(program, opset, captured, calls) for opset in opsets]
        changed = changes(before, model_snapshot(program.model, program.example))
        if changed:
            outcomes.append(Outcome(program.seed, 0, WRONG, "\n".join(changed), program.source))
    found = (
        re.search(r"because they cannot be inputs: (.*)", str(warning.message), re.DOTALL)
        for warning in warned
    )
    reason = next((match[1] for match in found if match), None)
    if reason is None:
        return outcomes
    # Other numbers than those of the example are refused then.
    return [
        dataclasses.replace(outcome, text=reason)
        if outcome.kind == REFUSED and "captured with the constant" in outcome.text
        else outcome
        for outcome in outcomes
    ]


@contextlib.contextmanager
def _no_logging() -> Iterator[None]:
    level = logging.root.manager.disable
    logging.disable()
    try:
        yield
    finally:
        logging.disable(level)


def refusals(outcomes: Iterable[Outcome]) -> list[tuple[int, str, int]]:
    """How often each message refused a program, wherever in it, and the first such seed; most often first."""
    seeds: dict[str, list[int]] = {}
    for outcome in outcomes:
        if outcome.kind == REFUSED:
            message = re.sub(r" at <[^>]*>:\d+", "", outcome.text)
            seeds.setdefault(message, []).append(outcome.seed)
    found = [(len(group), message, group[0]) for message, group in seeds.items()]
    return sorted(found, key=lambda item: -item[0])


def _calls(program: Program) -> Iterator[tuple[Any, ...]]:
    yield program.example
    yield from program.inputs


def _outcome(program: Program, opset: int, captured: list[opsetta.Program], calls: Any) -> Outcome:
    kind, text = RIGHT, ""
    try:
        if captured:
            lowered = captured[0].lower(opset)
        else:
            lowered = opsetta.export(
                program.model,
                program.example,
                opset=opset,
                dynamic_shapes=program.dynamic_shapes,
                **program.options,
            )
            captured.append(lowered)
        for number, (arguments, expected, others) in enumerate(calls):
            if isinstance(expected, Exception):
                continue
            try:
                given = lowered(*copy.deepcopy(arguments))
            except opsetta.DimensionError as error:
                if number == 0:
                    return Outcome(program.seed, opset, WRONG, f"its own example: {error}", program.source)
                continue
            text = _difference(given, expected, others)
            if text:
                return Outcome(program.seed, opset, WRONG, f"call {number}: {text}", program.source)
    except opsetta.UnsupportedOperatorsError as error:
        kind, text = REFUSED, "; ".join(sorted({f"{o.name}: {o.reason}" for o in error.operators}))
    except opsetta.InferenceError as error:
        # A kernel that onnxruntime lacks is no fault of the file.
        kind, text = (REFUSED if "NOT_IMPLEMENTED" in str(error) else CRASHED), str(error)
    except opsetta.OpsettaError as error:
        kind, text = REFUSED, f"{type(error).__name__}: {error}"
        if _is_internal(text):
            kind, text = CRASHED, traceback.format_exc()
    except Exception:
        kind, text = CRASHED, traceback.format_exc()
    return Outcome(program.seed, opset, kind, text, program.source if kind == CRASHED else "")


def _is_internal(text: str) -> bool:
    """Whether a refusal tells of an exception that was not foreseen, not of what the program holds."""
    found = re.search(r"(?:cannot be captured|failed at node .*): (\w+): ", text)
    return found is not None and isinstance(getattr(builtins, found[1], None), type)


def _expected(model: Callable[..., Any], arguments: tuple[Any, ...]) -> tuple[Any, list[Any]]:
    """What eager gives, or its exception; and what it gives where it rounds in other ways."""
    try:
        with torch.no_grad():
            expected = model(*copy.deepcopy(arguments))
    except Exception as error:
        return error, []
    others: list[Any] = []
    for seed in range(_ROUNDINGS):
        given = copy.deepcopy(arguments)
        try:
            with torch.no_grad(), Rounding(seed), OpenSigns(seed):
                others.append(model(*given))
        except IndexError as error:
            return error, []
        except Exception:
            others.append(None)
    return expected, others


def _difference(actual: Any, expected: Any, others: list[Any]) -> str:
    found, wanted = _leaves(actual), _leaves(expected)
    if len(found) != len(wanted):
        return f"{len(found)} outputs, eager has {len(wanted)}"
    alternatives = [_leaves(other) if other is not None else [] for other in others]
    for position, (a, b) in enumerate(zip(found, wanted, strict=True)):
        same = [item[position] if len(item) == len(wanted) else None for item in alternatives]
        text = _tensor_difference(a, b, same)
        if text:
            return f"output {position}: {text}"
    return ""


def _leaves(value: Any) -> list[torch.Tensor]:
    return [torch.as_tensor(leaf) for leaf in pytree.tree_leaves(value) if leaf is not None]


def _tensor_difference(a: torch.Tensor, b: torch.Tensor, others: list[torch.Tensor | None]) -> str:
    if a.dtype != b.dtype:
        return f"{a.dtype}, eager has {b.dtype}"
    usable = [other for other in others if other is not None and other.shape == b.shape]
    if len(usable) < len(others):
        return ""  # Rounding decides what the program does.
    if a.shape != b.shape:
        return f"shape {list(a.shape)}, eager has {list(b.shape)}"
    wrong = _is_other(a, b) & _is_determined(b, usable)
    if b.dtype in TOLERANCES:
        wrong &= ~_is_near(a, b, usable)
    if not bool(wrong.any()):
        return ""
    index = tuple(wrong.nonzero()[0].tolist())
    values = f"{a[index].item()!r}, eager has {b[index].item()!r}"
    return f"{int(wrong.sum())} of {b.numel()} elements differ; at {list(index)} {values}"


def _is_other(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Where two tensors do not hold the same bits, NaN being one number."""
    if not b.dtype.is_floating_point:
        return a != b
    return ~((a.isnan() & b.isnan()) | ((a == b) & (torch.signbit(a) == torch.signbit(b))))


def _is_determined(b: torch.Tensor, others: list[torch.Tensor]) -> torch.Tensor:
    """Where no rounding makes another integer, NaN, infinity or sign of zero of a result."""
    determined = torch.ones(b.shape, dtype=torch.bool)
    for other in others:
        different = _is_other(other, b)
        if b.dtype.is_floating_point:
            different &= ~(b.isfinite() & other.isfinite()) | ((b == 0) & (other == 0))
        determined &= ~different
    return determined


def _is_near(a: torch.Tensor, b: torch.Tensor, others: list[torch.Tensor]) -> torch.Tensor:
    """Where a finite number is within tolerance of eager's, and no zero has the wrong sign."""
    limit = TOLERANCES[b.dtype]
    value = b.double()
    allowed = limit * value.abs().clamp(min=0.25)
    for other in others:
        allowed += 16 * (other.double() - value).abs().nan_to_num(0.0, 0.0, 0.0)
    near = ((a.double() - value).abs() <= allowed) & a.isfinite() & b.isfinite()
    is_zero = (a == 0) & (b == 0)
    for other in others:
        is_zero &= other == 0
    return near & ~is_zero
