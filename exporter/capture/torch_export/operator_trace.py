"""Which operators a model, and its captured graph, run at given sizes: both on fake tensors, without data."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import pathlib
import re
import sys
import traceback
from collections.abc import Container, Mapping, Sequence
from types import NoneType
from typing import Any

import torch
import torch.fx

from ...torch_boundary.fake_tensors import FakeTensor, TorchDispatchMode
from ...torch_boundary.operators import schema_of
from .fx_graph import ASSERTIONS

_ALIKE = dict.fromkeys(("aten::view", "aten::_unsafe_view", "aten::reshape"), "reshape")
_UNBACKED = re.compile(r"u\d+")
_VIEWS = frozenset({"aten::slice", "aten::expand", *_ALIKE})
"""They give what they take where its shape is the same; Python leaves them out there."""
_NO_VALUE = ASSERTIONS | {
    "prim::device",
    "aten::sym_size",
    "aten::size",
    "aten::stride",
    "aten::is_contiguous",
}
_LARGEST_DIGEST = 1 << 24
_INTERNAL = (os.path.dirname(torch.__file__), str(pathlib.Path(__file__).parents[2]), "<")

Step = tuple[Any, ...]
"""An operator, its arguments with tensors by their origin, and the types of its results."""


class Trace:
    """What a run did.

    Attributes:
        steps: the operators in order.
        lines: the innermost line of each outside torch, which a run of the model alone has.
        error: what the run raised; None where it came to its end.
        claims: dimensions of the captured graph's values that have another size than the graph says, by
            node name and, for nodes with several results, position.
        other_rank: how many operators had run when a value had another rank, or an operator another number
            of results, than the graph says; None where none had.
        results: what was returned: tensors by their origin, numbers as they are.
    """

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.lines: list[str] = []
        self.error: Exception | None = None
        self.claims: dict[str, set[int]] = {}
        self.other_rank: int | None = None
        self.results: list[Any] = []

    @property
    def error_line(self) -> str:
        """The innermost line outside torch that the error came through."""
        frames = traceback.extract_tb(self.error.__traceback__) if self.error is not None else []
        own = [frame for frame in frames if not is_internal(frame.filename)]
        return f"{own[-1].filename}:{own[-1].lineno}" if own else ""


@functools.cache
def is_internal(filename: str) -> bool:
    """Whether a file belongs to torch or to the exporter, and not to the user's model."""
    return filename.startswith(_INTERNAL)


class Recorder(TorchDispatchMode):
    """Notes every operator that reaches the fake tensors.

    Args:
        trace: where it notes them.
        known: the origins of tensors by identity.
        same_value: operators whose result stands for what they are given.
        unbacked: the turn of each size that only data tells; recorders of one run share it.
    """

    def __init__(
        self,
        trace: Trace,
        known: Mapping[int, Any],
        same_value: Container[str],
        unbacked: dict[str, int] | None = None,
    ):
        super().__init__()
        self.trace = trace
        self._same_value = same_value
        self._unbacked = {} if unbacked is None else unbacked
        self._origins: dict[int, Any] = dict(known)
        self._held: list[Any] = []
        """Keeps tensors alive: the identity of one that is gone could be another's."""

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: Any = None) -> Any:
        if func is torch.ops.prim.device.default:
            # Half of what is dispatched; the tensor itself knows.
            return args[0].device
        keywords = kwargs or {}
        name = schema_of(func).name
        if name in _NO_VALUE:
            return func(*args, **keywords)
        given = [self.origin(leaf) for leaf in _leaves((*args, *keywords.values()))]
        result = func(*args, **keywords)
        if name == "aten::_local_scalar_dense" and isinstance(result, (int, float)):
            # The number that a constant holds, which the captured graph has in its place.
            return result
        results = [leaf for leaf in _leaves((result,)) if isinstance(leaf, torch.Tensor)]
        if name in self._same_value or (name in _VIEWS and result.shape == args[0].shape):
            self._note(results, [given[0]] * len(results))
            return result
        number = len(self.trace.steps)
        # What is written to stays what it was: the step says what became of it.
        made = [leaf for leaf in results if id(leaf) not in self._origins]
        self._note(made, [("result", number, i) for i in range(len(made))])
        kinds = tuple((leaf.dtype, *map(self._size, leaf.shape)) for leaf in results)
        self.trace.steps.append((_ALIKE.get(name, str(func)), *_meaning(name, args, given), kinds))
        self.trace.lines.append(_line())
        return result

    def _note(self, results: Sequence[torch.Tensor], origins: Sequence[Any]) -> None:
        self._held.extend(results)
        self._origins |= {id(leaf): origin for leaf, origin in zip(results, origins, strict=True)}

    def of_operator(self, trace: Trace, known: Mapping[int, Any]) -> Recorder:
        """A recorder for one operator of this run."""
        return Recorder(trace, known, self._same_value, self._unbacked)

    def origin(self, leaf: Any) -> Any:
        """An argument or result as both runs have it: a tensor by where it comes from, or by its contents."""
        if not isinstance(leaf, torch.Tensor):
            return self._size(leaf) if isinstance(leaf, (int, torch.SymInt)) else str(leaf)
        found = self._origins.get(id(leaf))
        if found is not None:
            return found
        self._held.append(leaf)
        made = "unknown" if isinstance(leaf, FakeTensor) else _contents(leaf)
        return self._origins.setdefault(id(leaf), (made, leaf.dtype, *map(self._size, leaf.shape)))

    def _size(self, size: Any) -> Any:
        """A size; one that only data tells is called by its turn in this run."""
        if isinstance(size, int):
            return size
        return _UNBACKED.sub(
            lambda found: f"u{self._unbacked.setdefault(found[0], len(self._unbacked))}", str(size)
        )


def _leaves(values: Sequence[Any]) -> list[Any]:
    """The arguments of an operator, or its results, without the lists that they stand in."""
    found: list[Any] = []
    for value in values:
        if isinstance(value, (list, tuple)):
            found += _leaves(value)
        else:
            found.append(value)
    return found


def _contents(tensor: torch.Tensor) -> Any:
    """What a constant holds; where it is large or not in plain memory, where it holds it."""
    size = tensor.numel() * tensor.element_size()
    if tensor.device.type != "cpu" or not tensor.is_contiguous() or size > _LARGEST_DIGEST:
        return tensor.data_ptr()
    # Read from memory: an operator on the tensor would be run on a fake one here.
    return hashlib.sha256(ctypes.string_at(tensor.data_ptr(), size) if size else b"").hexdigest()


def _meaning(name: str, args: tuple, given: list[Any]) -> list[Any]:
    """The arguments of an operator; what two spellings of them do alike is spelt alike."""
    if name == "aten::slice" and all(isinstance(arg, (int, NoneType)) for arg in args[1:]):
        spelt: tuple[Any, ...] = (*args[1:], *(0, None, None, 1)[len(args) - 1 :])
        dim, start, end, step = spelt
        return [given[0], dim % args[0].ndim, *slice(start, end, step).indices(args[0].shape[dim])]
    if name.startswith("aten::_scaled_dot_product") and args[0].shape[-2] == args[1].shape[-2] == 1:
        # A causal mask over one query and one key masks nothing.
        return [item for item in given if not isinstance(item, bool)]
    return given


def _line() -> str:
    """The innermost line that runs outside torch and the exporter."""
    frame = sys._getframe(2)
    while frame is not None and is_internal(frame.f_code.co_filename):
        frame = frame.f_back  # type: ignore[assignment]
    return f"{frame.f_code.co_filename}:{frame.f_lineno}" if frame is not None else ""


def line_of_guard(guard: Any) -> str:
    """`model.py:12` of the place where torch.export made a guard; empty where that is inside torch."""
    frame = guard.sloc.framework_loc
    if frame is None or isinstance(frame, str) or is_internal(frame.filename):
        return ""
    return f"{frame.filename}:{frame.lineno}"
