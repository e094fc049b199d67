"""Records of scripted programs, and the check that each agrees with eager on every path at an opset."""

import dataclasses
import functools
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
import torch

import opsetta

from ...opsets import is_full_run, named

OPSETS = (9, 11, 13, 16, 18, 21, 24)
EVERYWHERE = (7, 8, *OPSETS)


@dataclasses.dataclass(frozen=True, eq=False)
class Record:
    """One program.

    Attributes:
        name: the test's name.
        program: a function or module; it is scripted.
        example: the arguments that it is captured with.
        further: arguments that take other paths, trip counts and sizes.
        dynamic: what `dynamic_shapes` is given.
        opsets: where it is lowered, run and compared.
        refused: opsets where it must be refused, with the reason.
        mutations: what becomes of buffers that it writes to.
    """

    name: str
    program: Any
    example: tuple[Any, ...]
    further: Sequence[tuple[Any, ...]] = ()
    dynamic: Any = None
    opsets: tuple[int, ...] = OPSETS
    refused: Mapping[int, str] = dataclasses.field(default_factory=dict)
    mutations: str = "error"


def scripted(
    records: list[Record], *example: Any, further: Sequence[tuple[Any, ...]] = (), **settings: Any
) -> Callable[[Any], Any]:
    """Record a function, or a module class without arguments, under its own name."""

    def record(program: Any) -> Any:
        made = program() if isinstance(program, type) else program
        made = made.eval() if isinstance(made, torch.nn.Module) else made
        name = settings.pop("name", program.__name__)
        records.append(Record(name, made, example, further, **settings))
        return program

    return record


@functools.lru_cache(maxsize=4)
def _captured(record: Record) -> opsetta.Program:
    with warnings.catch_warnings():
        if record.mutations != "drop":
            # That numbers became constants of the export would be one.
            warnings.simplefilter("error")
        warnings.filterwarnings(
            "ignore", message="the new values of tensors that the model writes to are dropped"
        )
        warnings.filterwarnings("ignore", category=DeprecationWarning)
        return opsetta.export(
            torch.jit.script(record.program),
            record.example,
            opset=max(record.opsets),
            dynamic_shapes=record.dynamic,
            mutations=record.mutations,
        )


def parametrized(records: Sequence[Record]) -> Any:
    """A test for each record."""
    cases = [pytest.param(record, id=record.name) for record in records]
    return pytest.mark.parametrize("record", cases)


def check(record: Record) -> None:
    """Lower the record's one capture to each opset, and compare with eager for all its inputs."""
    captured = _captured(record)
    for opset in sorted({*record.opsets, *record.refused}):
        if opset not in (7, 9, max(record.opsets)) and not is_full_run():
            continue
        with named(opset):
            if opset in record.refused:
                with pytest.raises(opsetta.UnsupportedOperatorsError):
                    captured.lower(opset)
                continue
            program = captured.lower(opset)
            for args in (None, *record.further):
                program.verify(args)
