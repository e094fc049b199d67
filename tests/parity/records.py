"""Records of operator calls, and the check that each agrees with eager PyTorch where it matters."""

import collections
import dataclasses
import functools
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pytest
import torch

import opsetta

from ..default_attributes import written_defaults
from ..opsets import HIGHEST, choose, emission, is_full_run, named
from ..thinning import Variants

EVERYWHERE = (7, 8, 9, 13, HIGHEST)
BASE = (9, 13, HIGHEST)


@dataclasses.dataclass(frozen=True, eq=False)
class Record:
    """One call of an operator.

    Attributes:
        name: the test's name.
        function: what is exported.
        inputs: its arguments.
        opsets: where it is lowered, run, and compared with eager.
        refused: opsets where it is refused, with the reason. Below 9, where compositions of many operators
            serve in the place of missing ones, what is not refused any more must agree.
        rtol, atol: relative and absolute tolerance; by default those of the element type.
        dynamic: the `dynamic_shapes` of the export.
        also_highest: whether the highest opset is tested, too.
    """

    name: str
    function: Callable[..., Any]
    inputs: tuple[Any, ...]
    opsets: tuple[int, ...] = BASE
    refused: Mapping[int, str] = dataclasses.field(default_factory=dict)
    rtol: float | None = None
    atol: float | None = None
    dynamic: Any = None
    also_highest: bool = True


class _Call(torch.nn.Module):
    def __init__(self, function: Callable[..., Any]):
        super().__init__()
        self.function = function

    def forward(self, *inputs: Any) -> Any:
        return self.function(*inputs)


@functools.lru_cache(maxsize=4)
def _program(record: Record) -> opsetta.Program:
    dynamic = None if record.dynamic is None else (record.dynamic,)
    return opsetta.export(
        _Call(record.function).eval(), record.inputs, opset=max(record.opsets), dynamic_shapes=dynamic
    )


def parametrized(records: Iterable[Record]) -> Any:
    """A test for each record; of the variants of one subject, full runs take all, others every fourth.

    The subject is the first word of the name. Its first variant is always tested.
    """
    variants = Variants(first=1, step=4)
    parameters = [
        pytest.param(record, id=record.name, marks=variants.marks(re.split(r"[-\s]", record.name)[0]))
        for record in records
    ]
    return pytest.mark.parametrize("record", parameters)


def opsets_of(record: Record) -> list[int]:
    """Where a record is tested, with the highest opset; 8, which is mostly what 7 is, in full runs only."""
    opsets = {*record.opsets, *record.refused, *([HIGHEST] if record.also_highest else [])}
    if not is_full_run() and min(record.opsets) < 8 and len(record.opsets) > 1:
        opsets.discard(8)
    return sorted(opsets)


_records_of: collections.Counter[tuple[str, frozenset[str]]] = collections.Counter()
"""How many records have run, by module and operators."""


def _opsets_to_run(record: Record, program: opsetta.Program) -> list[int]:
    """Where a record runs now.

    The first two records of a module with the same operators run at all of their opsets. The others, which
    differ in arguments, run at the lowest, the highest and one in between, each at another one.
    """
    operators = frozenset(f"{node.domain}::{node.op_type}" for node in program.source.graph.all_nodes())
    group = (record.function.__module__, operators)
    turn = _records_of[group] - 2
    _records_of[group] += 1
    opsets = opsets_of(record)
    return opsets if turn < 0 or len(opsets) < 4 else choose(opsets, turn)


def lowered_from(program: opsetta.Program, opset: int, lowest: int) -> opsetta.Program | None:
    """The program at an opset; None where it is refused, which it may be below the lowest only."""
    try:
        return program.lower(opset=opset)
    except opsetta.UnsupportedOperatorsError:
        if opset >= lowest:
            raise
        return None


def check(record: Record, others: Iterable[tuple[Any, ...]] = ()) -> None:
    """Lower the record's one capture to each of its opsets, and compare, or see it refused.

    Args:
        others: further arguments to compare with.
    """
    program = _program(record)
    compared = None
    for opset in _opsets_to_run(record, program):
        with named(opset):
            lowered = _lowered(program, record, opset)
            if lowered is None:
                continue
            emitted = emission(lowered)
            # The same nodes of the same versions run the same kernels.
            if emitted == compared and not is_full_run():
                continue
            compared = emitted
            for inputs in (record.inputs, *others):
                lowered.verify(inputs, rtol=record.rtol, atol=record.atol)


def _lowered(program: opsetta.Program, record: Record, opset: int) -> opsetta.Program | None:
    """The program at an opset; None where it is refused, as the record has it."""
    try:
        lowered = program if opset == program.opset else program.lower(opset=opset)
    except opsetta.UnsupportedOperatorsError:
        if opset not in record.refused:
            raise
        return None
    assert opset not in record.refused or opset < min(BASE), "it is refused no longer"
    assert not written_defaults(lowered.model)
    return lowered


def floats(
    *shape: int, seed: int = 0, scale: float = 1.0, dtype: torch.dtype = torch.float32
) -> torch.Tensor:
    """Normally distributed numbers, the same ones every time."""
    generator = torch.Generator().manual_seed(seed)
    return (torch.randn(*shape, generator=generator, dtype=torch.float64) * scale).to(dtype)


def integers(
    *shape: int, low: int = -9, high: int = 10, seed: int = 0, dtype: torch.dtype = torch.int64
) -> torch.Tensor:
    """Whole numbers from `low` to `high - 1`, the same ones every time."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(low, high, shape, generator=generator).to(dtype)
