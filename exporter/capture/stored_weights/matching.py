"""Matches the tensors of a checkpoint with a model's parameters and buffers, and lists mismatches."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Iterable, Mapping, Sequence

import onnx_ir as ir
import torch

from ....registration import ModelFileError
from ...files.reading.names import quoted
from ...files.stored_tensors import ConvertedTensor, FileTensor
from ...torch_boundary.fake_tensors import FakeTensor, is_without_data
from ...torch_boundary.state.attached_state import Holder, holders
from ...torch_boundary.state.computed_buffers import computed_buffers
from ..fx_import.source_values import element_type
from ..tensor_kinds import kind_refused, without_data

_MOST_LISTED = 40
"""Differences of each kind that a message lists."""
_MOST_COMPARED = 2000
"""Names among which the closest one is looked for."""
_CONVERTIBLE = frozenset({ir.DataType.FLOAT16, ir.DataType.BFLOAT16, ir.DataType.FLOAT, ir.DataType.DOUBLE})


@dataclasses.dataclass(frozen=True)
class Match:
    """A parameter or buffer, and its contents.

    Attributes:
        names: all of its names in the model.
        tensor: the model's own tensor, which may have no data.
        contents: the tensor of the checkpoint, in the model's element type.
    """

    names: tuple[str, ...]
    tensor: torch.Tensor
    contents: ir.TensorProtocol


@dataclasses.dataclass(frozen=True)
class Matches:
    """The contents of a model's parameters and buffers.

    Attributes:
        stored: those of the checkpoint.
        computed: buffers that no checkpoint has, by the `id` of the model's tensor.
        converted: names of the tensors whose element type differs from the model's, with the type.
    """

    stored: list[Match]
    computed: dict[int, torch.Tensor]
    converted: list[tuple[str, str]]


def match(model: torch.nn.Module, given: Mapping[str, ir.TensorProtocol], shown: str) -> Matches:
    """Find the contents of each parameter and buffer.

    A non-persistent buffer keeps its own data, if it has some and the checkpoint has none.

    Raises:
        ModelFileError: tensors are missing, unexpected, or of another shape or type; lists all of them.
    """
    tied: dict[int, list[Holder]] = {}
    for holder in holders(model):
        tied.setdefault(id(holder.tensor), []).append(holder)
    known = {holder.name for group in tied.values() for holder in group}
    unexpected = [name for name in given if name not in known]
    missing: list[str] = []
    problems: list[str] = []
    without: list[Holder] = []
    found = Matches([], {}, [])
    for group in tied.values():
        names = [holder.name for holder in group]
        present = [name for name in names if name in given]
        if not present:
            if any(holder.persistent for holder in group):
                missing.append(names[0])
            elif without_data(group[0].tensor) is not None:
                without.append(group[0])
            continue
        problem = _differing(group[0].tensor, given, present)
        if problem is not None:
            problems.append(problem)
            continue
        contents, due = given[present[0]], element_type(group[0].tensor.dtype)
        if contents.dtype != due:
            found.converted.append((present[0], f"{contents.dtype.name} to {due.name}"))
            contents = ConvertedTensor(contents, due, present[0])
        found.stored.append(Match(tuple(names), group[0].tensor, contents))
    found.computed.update(computed_buffers(model, without))
    lines = [
        *_limited((f"missing: {quoted(name)}{_closest(name, unexpected)}" for name in missing), len(missing)),
        *_limited((f"unexpected: {quoted(name)}" for name in unexpected), len(unexpected)),
        *_limited(iter(problems), len(problems)),
        *(_remedy_for_buffer(holder) for holder in without if id(holder.tensor) not in found.computed),
        *_plain_tensors(model),
    ]
    if lines:
        hint = ""
        if missing or unexpected:
            hint = "\nopsetta.open_weights(path) gives a mapping, to change names or to leave tensors out"
        raise ModelFileError("\n  - ".join([f"{shown} do not fit the model:", *lines]) + hint)
    return found


def _differing(tensor: torch.Tensor, given: Mapping[str, ir.TensorProtocol], names: list[str]) -> str | None:
    """How the tensors of a checkpoint differ from the one of the model."""
    refused = kind_refused(tensor)
    if refused is not None:
        return f"{quoted(names[0])} is {refused[0]} in the model"
    if is_without_data(tensor) and not isinstance(tensor, FakeTensor):
        return f"{quoted(names[0])} is a {type(tensor).__name__} in the model, which wraps other tensors"
    due = element_type(tensor.dtype)
    for name in names:
        item = given[name]
        shape = tuple(item.shape.numpy())
        fits = item.dtype == due or {item.dtype, due} <= _CONVERTIBLE
        if shape != tuple(tensor.shape) or not fits:
            here = f"{due.name}{list(tensor.shape)}"
            return f"{quoted(name)} is {item.dtype.name}{list(shape)}, and {here} in the model"
    for name in names[1:]:
        if not _equal(given[names[0]], given[name]):
            return f"{quoted(names[0])} and {quoted(name)} are one tensor in the model, and differ"
    return None


def _equal(one: ir.TensorProtocol, other: ir.TensorProtocol) -> bool:
    """Whether two tensors have the same bytes."""
    if one is other:
        return True
    if one.dtype != other.dtype:
        return False
    if isinstance(one, FileTensor) and isinstance(other, FileTensor):
        if (one.file, one.offset) == (other.file, other.offset):
            return True
        return all(a == b for a, b in zip(one.blocks(), other.blocks(), strict=True))
    return one.tobytes() == other.tobytes()


def _limited(lines: Iterable[str], count: int) -> list[str]:
    shown = [line for _, line in zip(range(_MOST_LISTED), lines, strict=False)]
    return [*shown, f"and {count - _MOST_LISTED} more"] if count > _MOST_LISTED else shown


def _closest(name: str, unexpected: Sequence[str]) -> str:
    end = [other for other in unexpected if other.endswith(f".{name}") or name.endswith(f".{other}")]
    close = end[:1] or difflib.get_close_matches(name, unexpected[:_MOST_COMPARED], 1)
    return f"; the closest is {quoted(close[0])}" if close else ""


def _remedy_for_buffer(holder: Holder) -> str:
    """The remedy for a buffer whose data is neither in the model nor in a checkpoint."""
    path = holder.name.rpartition(".")[0]
    owner = f"model.get_submodule({path!r})" if path else "model"
    return (
        f"{quoted(holder.name)} is a buffer that checkpoints leave out, and {without_data(holder.tensor)}: "
        f"set {owner}.{holder.key} to its values, or add it to the mapping of opsetta.open_weights(path)"
    )


def _plain_tensors(model: torch.nn.Module) -> list[str]:
    """Tensors without data that are plain attributes of modules, which no checkpoint has."""
    return [
        f"{quoted(f'{path}.{key}' if path else key)} is an attribute that no checkpoint has, and {reason}: "
        "set it to its values"
        for path, module in model.named_modules()
        for key, item in vars(module).items()
        if isinstance(item, torch.Tensor) and (reason := without_data(item)) is not None
    ]
