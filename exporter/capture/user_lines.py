"""Finds the line of the user's code in an error."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import re
import sysconfig
import traceback
import types
from collections.abc import Callable, Iterator, Sequence

import torch

from ..captured_graph.code_lines import shown_file

_PACKAGE = pathlib.Path(__file__).resolve().parents[2]
_OURS = [
    str(_PACKAGE / name) + os.sep for name in "exporter passes registration symbolics torch_onnx".split()
]
_TORCH = str(pathlib.Path(torch.__file__).resolve().parent) + os.sep
_PATHS = sysconfig.get_paths()
_LIBRARIES = [_PATHS[name] + os.sep for name in ("purelib", "platlib")]
_PYTHON = [_PATHS[name] + os.sep for name in ("stdlib", "platstdlib")]
_BELOW_TORCH = ("sympy", "mpmath", "networkx", "numpy", "jinja2", "fsspec", "filelock", "typing_extensions")
"""Packages that torch calls and models rarely do."""
_GENERATED_BY_TORCH = ("<eval_with_key", "<frozen")
_GENERATED = (*_GENERATED_BY_TORCH, "<string>")
_WRITTEN = re.compile(r'File "([^"]+)", line (\d+), in (\S+)\n\s*(.*)')


@dataclasses.dataclass(frozen=True)
class CodeLine:
    """A line of code.

    Attributes:
        file: its module path or name.
        code: the text of the line.
    """

    file: str
    line: int
    function: str
    code: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}, in {self.function}: {self.code}"


def user_line_of(error: BaseException) -> CodeLine | None:
    """The innermost line of the user's code in an error and its causes.

    The user's code is outside torch, Python's library and installed packages; without such a line, the
    innermost line of an installed package counts.
    """
    return user_line_in(_all_stacks(error))


def origin_of(error: BaseException) -> CodeLine | None:
    """The innermost line of the user's code or of an installed package in an error and its causes."""
    return user_line_in(_all_stacks(error), innermost=True)


def instructions_of(error: BaseException) -> list[tuple[types.CodeType, int]]:
    """The calls of the user's code in which an error was raised, innermost last: code and offset of each."""
    for chained_error in _chain(error):
        calls = []
        trace = chained_error.__traceback__
        while trace is not None:
            code = trace.tb_frame.f_code
            is_generated = code.co_filename.startswith(_GENERATED_BY_TORCH)
            if not is_generated and (code.co_filename.startswith("<") or _is_users(code.co_filename)):
                calls.append((code, trace.tb_lasti))
            trace = trace.tb_next
        if calls:
            return calls
    return []


def _all_stacks(error: BaseException) -> list[Sequence[traceback.FrameSummary]]:
    return [stack for chained_error in _chain(error) for stack in _stacks(chained_error)]


def user_line_in(
    stacks: Sequence[Sequence[traceback.FrameSummary]], *, innermost: bool = False
) -> CodeLine | None:
    """The innermost line of the user's code in the first stack that has one, by the rules of `user_line_of`.

    Args:
        innermost: a line of an installed package counts as the user's.
    """
    predicates: list[Callable[[str], bool]] = [_is_users, _is_of_library]
    for is_sought in [lambda file: _is_users(file) or _is_of_library(file)] if innermost else predicates:
        for stack in stacks:
            for frame in reversed(stack):
                if is_sought(frame.filename) and frame.line:
                    return CodeLine(
                        shown_file(frame.filename), frame.lineno or 0, frame.name, frame.line.strip()
                    )
    return None


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    current: BaseException | None = error
    # Causes may form a cycle.
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        yield current
        current = current.__cause__ or current.__context__


def _stacks(error: BaseException) -> Iterator[Sequence[traceback.FrameSummary]]:
    yield traceback.extract_tb(error.__traceback__)
    # TorchDynamo does not run the user's frames: it stores the stack, or writes it into the message.
    stored_stack = getattr(error, "real_stack", None)
    if stored_stack:
        yield list(stored_stack)
    yield [
        traceback.FrameSummary(file, int(line), function, line=code)
        for file, line, function, code in _WRITTEN.findall(str(error))
    ]


def _is_users(file: str) -> bool:
    if file.startswith(_GENERATED):
        return False
    path = os.path.realpath(file)
    return not any(path.startswith(folder) for folder in (*_OURS, _TORCH, *_LIBRARIES, *_PYTHON))


def _is_of_library(file: str) -> bool:
    path = os.path.realpath(file)
    names = [path.removeprefix(folder) for folder in _LIBRARIES if path.startswith(folder)]
    return any(
        name.partition(os.sep)[0].removesuffix(".py") not in ("torch", "opsetta", *_BELOW_TORCH)
        for name in names
    )
