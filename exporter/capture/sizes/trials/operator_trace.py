"""Records the operators that a model or its captured graph runs at given sizes, on fake tensors."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import math
import os
import pathlib
import re
import sys
import traceback
from collections.abc import Container, Mapping, Sequence
from types import NoneType
from typing import Any

import sympy
import torch
import torch.fx

from ....captured_graph.code_lines import shown_line
from ....torch_boundary.fake_tensors import FakeTensor, TorchDispatchMode, storage_of
from ....torch_boundary.operators.overloads import Kwargs, OpOverload, Run, kernel_run, schema_of
from ....torch_boundary.symbolic_numbers import Size
from ...fx_import.fx_graph import ASSERTIONS
from .neutral_calls import argument_of, is_neutral

ALIKE = dict.fromkeys(("aten::view", "aten::_unsafe_view", "aten::reshape"), "reshape")
"""Operators that differ only in whether their result is a view, with a common name."""
_UNBACKED = re.compile(r"u\d+")
VIEWS = frozenset({"aten::slice", "aten::expand", *ALIKE})
"""Views that return their argument if its shape does not change; Python code then skips them."""
NO_VALUE = ASSERTIONS.union(
    "prim::device aten::sym_size aten::size aten::stride aten::is_contiguous aten::promote_types".split()
)
"""Operators without a node in a graph."""
READ = "aten::_local_scalar_dense"
"""The operator that `tensor.item()` calls to get a number."""
READS = frozenset({READ, "aten::item"})
"""The same, and the operator of a graph that calls it."""
COPY = "aten::clone"
"""Counts as the same value where nothing is written to; then each operator does that returns its argument."""
WITHOUT_ONES = "without leading ones"
"""Marks the origin of a view that only drops leading axes of size 1; it is not recorded as a step."""
_BROADCAST_VALUES = {
    "aten::copy_": 1,
    "aten::index_put": 2,
    "aten::index_put_": 2,
    "aten::_index_put_impl_": 2,
}
"""The argument that an assignment `y[index] = value` broadcasts, by operator. Python code first removes the
leading axes of size 1 of the value, which changes nothing."""
_LARGEST_DIGEST = 1 << 24
_GENERATED = ("<eval_with_key", "<frozen")
_INTERNAL = (os.path.dirname(torch.__file__), str(pathlib.Path(__file__).parents[3]), *_GENERATED)

Step = tuple[object, ...]
"""An operator, its arguments with tensors by their origin, and the types of its results."""


class Trace:
    """The record of a run.

    Attributes:
        steps: the operators in order.
        lines: the innermost line outside torch of each operator; only for runs of the model.
        error: the exception of the run, or None.
        differing_axes: for values of the captured graph, the axes whose size in the run differs from the size
            that the graph states, by node name and, for nodes with several results, position.
        other_rank: the number of operators before a value had another rank, or an operator another number of
            results, than in the graph; or None.
        results: the returned values: tensors by origin, numbers unchanged.
        shapes: the shapes of the returned tensors; None for other values.
    """

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.lines: list[str] = []
        self.error: Exception | None = None
        self.differing_axes: dict[str, set[int]] = {}
        self.other_rank: int | None = None
        self.results: list[object] = []
        self.shapes: list[tuple[object, ...] | None] = []

    @property
    def error_line(self) -> str:
        """The innermost line outside torch in the error's traceback."""
        innermost_line = ""
        # traceback.extract_tb would read the source files, which is slow.
        for frame, line in traceback.walk_tb(self.error.__traceback__ if self.error is not None else None):
            if not is_internal(frame.f_code.co_filename):
                innermost_line = shown_line(frame.f_code.co_filename, line)
        return innermost_line


@functools.cache
def is_internal(filename: str) -> bool:
    """Whether a file belongs to torch or to the exporter, and not to the user's model."""
    return filename.startswith(_INTERNAL)


class OperatorRecorder(TorchDispatchMode):
    """Records every operator on fake tensors.

    Args:
        trace: the record to append to.
        origins: the origins of tensors by identity.
        same_value: operators whose result counts as the same value as their argument.
        unbacked: the order of data-dependent sizes; shared by the recorders of one run.
        run: calls an operator with its arguments.
        writes_before_copies: copies count as the same value, unless the model then writes to one, or to the
            original.
    """

    def __init__(
        self,
        trace: Trace,
        origins: Mapping[int, object],
        same_value: Container[str],
        unbacked: dict[str, int] | None = None,
        run: Run | None = None,
        writes_before_copies: bool = False,
    ):
        super().__init__()  # type: ignore[no-untyped-call]
        self._run = run or kernel_run
        self.trace = trace
        self._same_value = same_value
        self._writes_before_copies = writes_before_copies
        self._copied: set[int | None] = set()
        """The storages of copies and originals."""
        self._unbacked = {} if unbacked is None else unbacked
        self._origins: dict[int, object] = dict(origins)
        self._created: dict[int | None, torch.Tensor] = {}
        """The tensors that functions such as `torch.zeros` created, by their storage."""
        self._living_tensors: list[torch.Tensor] = []
        """Keeps tensors alive, because the id of a deleted one could be reused."""

    def __torch_dispatch__(
        self, func: Any, types: object, args: tuple[Any, ...] = (), kwargs: Kwargs | None = None
    ) -> Any:
        if func is torch.ops.prim.device.default:
            # Half of all calls ask for the device; answering from the tensor is faster.
            return args[0].device
        keywords = kwargs or {}
        name = schema_of(func).name
        if name in NO_VALUE:
            return kernel_run(func, args, keywords)
        origins = [self.origin(leaf) for leaf in flatten_values((*args, *keywords.values()))]
        result = self._run(func, args, keywords)
        if name == READ and isinstance(result, (int, float)):
            # The captured graph has the number of this constant tensor instead of the operator.
            return result
        results = [leaf for leaf in flatten_values((result,)) if isinstance(leaf, torch.Tensor)]
        if (
            name == "aten::copy_"
            and None is not storage_of(args[0]) == storage_of(args[1])
            and is_same_memory(*args[:2])
        ):
            # `self.count += 1` assigns the buffer to itself, which a capture ends with as a copy.
            return result
        if is_number_of_weights(func, args, result):
            # The captured graph has the number, or the same operators.
            self._note(results, [("number", result.dtype, str(constant_of(result)))])
            return result
        is_same = name in self._same_value or (name in VIEWS and has_shape_of(result, args[0]))
        is_skipped = COPY in self._same_value and is_neutral(name, args)
        if self._writes_before_copies and (name == COPY or is_skipped):
            self._copied |= {storage_of(argument_of(args)), storage_of(result)}
        if is_same or is_skipped:
            origin = origins[0] if is_same else self.origin(argument_of(args))
            self._note(results, [origin] * len(results))
            return result
        if creates(func) and results and all(map(_has_no_elements, results)):
            # The model makes such tensors on one side of a branch only, to join them with others.
            self._note(results, [("empty", leaf.dtype, *leaf.shape) for leaf in results])
            return result
        if name in ALIKE and _removes_leading_ones(args[0], result):
            self._note(results, [(WITHOUT_ONES, origins[0], result.ndim)])
            return result
        if self._copied and any(storage_of(leaf) in self._copied for leaf in written_arguments(func, args)):
            self.trace.steps.append((COPY,))
            self.trace.lines.append(_line())
        number = len(self.trace.steps)
        # A written tensor keeps its origin; the step records the write.
        new_tensors = [leaf for leaf in results if id(leaf) not in self._origins]
        self._note(new_tensors, [("result", number, i) for i in range(len(new_tensors))])
        if creates(func):
            self._created |= {storage_of(leaf): leaf for leaf in new_tensors}
        kinds = tuple((leaf.dtype, *map(self._size, leaf.shape)) for leaf in results)
        self.trace.steps.append(
            (ALIKE.get(name, str(func)), *normalize_arguments(name, args, origins), kinds)
        )
        self.trace.lines.append(_line())
        return result

    def assign(self, tensor: torch.Tensor, value: torch.Tensor) -> None:
        """Record that the model assigns a value to the `data` of a tensor."""
        self._note([tensor], [self.origin(value)])

    def _note(self, results: Sequence[torch.Tensor], origins: Sequence[object]) -> None:
        self._living_tensors.extend(results)
        self._origins |= {id(leaf): origin for leaf, origin in zip(results, origins, strict=True)}

    def of_operator(self, trace: Trace, origins: Mapping[int, object]) -> OperatorRecorder:
        """A recorder for one operator of this run."""
        return OperatorRecorder(
            trace, origins, self._same_value, self._unbacked, self._run, self._writes_before_copies
        )

    def origin(self, leaf: object) -> object:
        """An argument or result in a form comparable between runs: a tensor by its origin or contents."""
        if not isinstance(leaf, torch.Tensor):
            return self._size(leaf) if isinstance(leaf, (int, torch.SymInt)) else str(leaf)
        origin = self._origins.get(id(leaf))
        if origin is not None:
            return origin
        created = self._created.get(storage_of(leaf)) if isinstance(leaf, FakeTensor) else None
        if created is not None and is_same_memory(leaf, created):
            # torch.zeros and others return an alias if this recorder refers to the new tensor.
            return self._origins[id(created)]
        self._living_tensors.append(leaf)
        constant = "unknown" if isinstance(leaf, FakeTensor) else contents(leaf)
        return self._origins.setdefault(id(leaf), (constant, leaf.dtype, *map(self._size, leaf.shape)))

    def _size(self, size: Size) -> int | str:
        """A size; a data-dependent one is represented by its order in this run."""
        if isinstance(size, int):
            return size
        expression = size.node.expr
        unbacked = [symbol for symbol in expression.free_symbols if _UNBACKED.fullmatch(symbol.name)]
        # Renamed before the terms are ordered, which their names decide.
        renamed = {
            symbol: sympy.Symbol(
                f"u{self._unbacked.setdefault(symbol.name, len(self._unbacked))}", integer=True
            )
            for symbol in sorted(unbacked, key=lambda symbol: int(symbol.name[1:]))
        }
        return str(expression.xreplace(renamed))


def written_arguments(func: OpOverload, args: Sequence[object]) -> list[FakeTensor]:
    """The tensors to which a call writes."""
    arguments = schema_of(func).arguments if schema_of(func).is_mutable else []
    return [
        actual
        for formal, actual in zip(arguments, args, strict=False)
        if formal.alias_info is not None and formal.alias_info.is_write and isinstance(actual, FakeTensor)
    ]


def constant_of(value: object) -> torch.Tensor | None:
    """The data of a fake tensor whose one element is known; None for other values."""
    constant: torch.Tensor | None = value.constant if isinstance(value, FakeTensor) else None
    return constant


def is_number_of_weights(func: OpOverload, args: Sequence[object], result: object) -> bool:
    """Whether a call computes a known number from known ones, such as a stride that a buffer holds."""
    return (
        constant_of(result) is not None
        and not schema_of(func).is_mutable
        and any(constant_of(leaf) is not None for leaf in flatten_values(args))
    )


@functools.cache
def creates(func: OpOverload) -> bool:
    """Whether an operator creates a tensor with given values."""
    return any(argument.name == "pin_memory" for argument in schema_of(func).arguments)


def has_shape_of(tensor: Any, other_tensor: Any) -> bool:
    """Whether tensors have the same sizes; data-dependent ones are the same if their expressions are."""
    sizes, other_sizes = tensor.shape, other_tensor.shape
    return len(sizes) == len(other_sizes) and all(
        size is other_size
        or (
            size == other_size
            if isinstance(size, int) and isinstance(other_size, int)
            else isinstance(size, torch.SymInt) and str(size) == str(other_size)
        )
        for size, other_size in zip(sizes, other_sizes, strict=True)
    )


def _has_no_elements(tensor: torch.Tensor) -> bool:
    """Whether a size is 0; torch does not answer this for one that depends on data."""
    return any(isinstance(size, int) and size == 0 for size in tensor.shape)


def is_same_memory(tensor: torch.Tensor, other_tensor: torch.Tensor) -> bool:
    """Whether tensors of one storage have the same elements in the same order."""
    return (
        tensor.dtype == other_tensor.dtype
        and tensor.shape == other_tensor.shape
        and tensor.stride() == other_tensor.stride()
        and tensor.storage_offset() == other_tensor.storage_offset()
    )


def flatten_values(values: Sequence[object]) -> list[Any]:
    """The arguments or results of an operator, flattened."""
    leaves: list[Any] = []
    for value in values:
        if isinstance(value, (list, tuple)):
            leaves += flatten_values(value)
        else:
            leaves.append(value)
    return leaves


def contents(tensor: torch.Tensor) -> int | str:
    """The contents of a constant, or its address if it is large or not in plain memory."""
    size = tensor.numel() * tensor.element_size()
    if tensor.device.type != "cpu" or not tensor.is_contiguous() or size > _LARGEST_DIGEST:
        return tensor.data_ptr()
    # Read the memory directly: under the fake mode an operator on the tensor would return a fake tensor.
    return hashlib.sha256(ctypes.string_at(tensor.data_ptr(), size) if size else b"").hexdigest()


def normalize_arguments(name: str, args: Sequence[Any], leaves: list[object]) -> list[object]:
    """The arguments of an operator, with equivalent forms made equal."""
    if name == "aten::slice" and all(isinstance(arg, (int, NoneType)) for arg in args[1:]):
        dim, start, end, step = slice_arguments(args)
        if isinstance(args[0].shape[dim], int):
            return [leaves[0], dim % args[0].ndim, *slice(start, end, step).indices(args[0].shape[dim])]
    if name in ALIKE and -1 in leaves[1:] and all(isinstance(size, int) for size in args[0].shape):
        # A capture may know the size of which it makes the other rows.
        remaining = math.prod(args[0].shape) // (math.prod(size for size in args[1] if size != -1) or 1)
        return [leaves[0], *(remaining if size == -1 else size for size in leaves[1:])]
    if name.startswith("aten::_scaled_dot_product") and args[0].shape[-2] == args[1].shape[-2] == 1:
        # A causal mask over one query and one key masks nothing.
        return [item for item in leaves if not isinstance(item, bool)]
    position = _BROADCAST_VALUES.get(name)
    if position is not None:
        leaf_position = len(flatten_values(args[:position]))
        value = leaves[leaf_position]
        if isinstance(value, tuple) and value and value[0] == WITHOUT_ONES:
            value = value[1]
        return [*leaves[:leaf_position], value, *leaves[leaf_position + 1 :]]
    return leaves


def _removes_leading_ones(tensor: torch.Tensor, view: torch.Tensor) -> bool:
    """Whether a view has the axes of a tensor without some of the first ones, which have the size 1."""
    removed = tensor.ndim - view.ndim
    shape: Sequence[Size] = tensor.shape
    return (
        removed > 0
        and all(type(size) is int and size == 1 for size in shape[:removed])
        and list(shape[removed:]) == list(view.shape)
    )


def slice_arguments(args: Sequence[object]) -> tuple[Any, ...]:
    """The axis, start, end and step of `aten::slice`, with defaults for those that are left out."""
    return (*args[1:], *(0, None, None, 1)[len(args) - 1 :])


def _line() -> str:
    """The innermost line that runs outside torch and the exporter."""
    frame = sys._getframe(2)
    while frame is not None and is_internal(frame.f_code.co_filename):
        frame = frame.f_back  # type: ignore[assignment]
    return shown_line(frame.f_code.co_filename, frame.f_lineno) if frame is not None else ""


def line_of_guard(guard: Any) -> str:
    """The line, as `model.py:12`, where torch.export made a guard; empty if it is inside torch."""
    frame = guard.sloc.framework_loc
    if frame is None or isinstance(frame, str) or is_internal(frame.filename):
        return ""
    return shown_line(frame.filename, frame.lineno)
