"""Matches the tensors of a checkpoint with a model's parameters and buffers, and lists mismatches."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Iterable, Mapping, Sequence

import onnx_ir as ir
import torch

from ....registration import ModelFileError
from ...files.reading.names import quoted
from ...files.weights.stored_tensors import ConvertedTensor, are_equal
from ...torch_boundary.fake_tensors import FakeTensor, is_without_data
from ...torch_boundary.state.attached_state import Holder, holders
from ...torch_boundary.state.computed_buffers import computed_buffers
from ..fx_import.source_values import element_type
from ..tensor_kinds import unsupported_type, without_data

_MAXIMUM_LISTED = 40
"""Maximum number of differences of one kind that a message lists."""
_MAXIMUM_COMPARED = 2000
"""Maximum number of names that are searched for the closest one."""
_CONVERTIBLE = frozenset({ir.DataType.FLOAT16, ir.DataType.BFLOAT16, ir.DataType.FLOAT, ir.DataType.DOUBLE})


@dataclasses.dataclass(frozen=True)
class Match:
    """A parameter or buffer, and its contents.

    Attributes:
        names: all of its names in the model.
        tensor: the model's tensor, which may have no data.
        contents: the tensor of the checkpoint, in the model's element type.
    """

    names: tuple[str, ...]
    tensor: torch.Tensor
    contents: ir.TensorProtocol


@dataclasses.dataclass(frozen=True)
class Matches:
    """The contents of a model's parameters and buffers.

    Attributes:
        stored: the parameters and buffers whose contents are in the checkpoint.
        computed: the contents of buffers that no checkpoint has, by the `id` of the model's tensor.
        converted: the names of tensors whose element type differs from the model's, with both types.
    """

    stored: list[Match]
    computed: dict[int, torch.Tensor]
    converted: list[tuple[str, str]]


def match(model: torch.nn.Module, stored_tensors: Mapping[str, ir.TensorProtocol], label: str) -> Matches:
    """Find the contents of each parameter and buffer.

    A non-persistent buffer that the checkpoint does not have keeps its data, if it has some.

    Raises:
        ModelFileError: tensors are missing, unexpected, or of another shape or type; lists all of them.
    """
    # Tied parameters are one tensor with several names; a checkpoint may have any of them.
    tied: dict[int, list[Holder]] = {}
    for holder in holders(model):
        tied.setdefault(id(holder.tensor), []).append(holder)
    holder_names = {holder.name for group in tied.values() for holder in group}
    unexpected = [name for name in stored_tensors if name not in holder_names]
    missing: list[str] = []
    problems: list[str] = []
    buffers_without_data: list[Holder] = []
    matches = Matches([], {}, [])
    for group in tied.values():
        names = [holder.name for holder in group]
        present = [name for name in names if name in stored_tensors]
        if not present:
            # A state_dict does not have non-persistent buffers.
            if any(holder.persistent for holder in group):
                missing.append(names[0])
            elif without_data(group[0].tensor) is not None:
                buffers_without_data.append(group[0])
            continue
        problem = _describe_difference(group[0].tensor, stored_tensors, present)
        if problem is not None:
            problems.append(problem)
            continue
        contents, model_type = stored_tensors[present[0]], element_type(group[0].tensor.dtype)
        if contents.dtype != model_type:
            matches.converted.append((present[0], f"{contents.dtype.name} to {model_type.name}"))
            contents = ConvertedTensor(contents, model_type, present[0])
        matches.stored.append(Match(tuple(names), group[0].tensor, contents))
    matches.computed.update(computed_buffers(model, buffers_without_data))
    lines = [
        *_limit_lines(
            (f"missing: {quoted(name)}{_closest_name_hint(name, unexpected)}" for name in missing),
            len(missing),
        ),
        *_limit_lines((f"unexpected: {quoted(name)}" for name in unexpected), len(unexpected)),
        *_limit_lines(iter(problems), len(problems)),
        *(
            _remedy_for_buffer(holder)
            for holder in buffers_without_data
            if id(holder.tensor) not in matches.computed
        ),
        *_plain_tensors(model),
    ]
    if lines:
        hint = ""
        if missing or unexpected:
            hint = "\nopsetta.open_weights(path) gives a mapping, to change names or to leave tensors out"
        raise ModelFileError("\n  - ".join([f"{label} do not fit the model:", *lines]) + hint)
    return matches


def _describe_difference(
    tensor: torch.Tensor, stored_tensors: Mapping[str, ir.TensorProtocol], names: list[str]
) -> str | None:
    """Describe how the tensors of a checkpoint differ from the model's tensor; None if they fit."""
    refused_kind = unsupported_type(tensor)
    if refused_kind is not None:
        return f"{quoted(names[0])} is {refused_kind[0]} in the model"
    if is_without_data(tensor) and not isinstance(tensor, FakeTensor):
        return f"{quoted(names[0])} is a {type(tensor).__name__} in the model, which wraps other tensors"
    model_type = element_type(tensor.dtype)
    for name in names:
        stored_tensor = stored_tensors[name]
        shape = tuple(stored_tensor.shape.numpy())
        # Weights of another float type are converted when the file is written.
        fits = stored_tensor.dtype == model_type or {stored_tensor.dtype, model_type} <= _CONVERTIBLE
        if shape != tuple(tensor.shape) or not fits:
            model_text = f"{model_type.name}{list(tensor.shape)}"
            return f"{quoted(name)} is {stored_tensor.dtype.name}{list(shape)}, and {model_text} in the model"
    # A checkpoint may have a tied tensor under several names, with different contents.
    for name in names[1:]:
        if not are_equal(stored_tensors[names[0]], stored_tensors[name]):
            return f"{quoted(names[0])} and {quoted(name)} are one tensor in the model, and differ"
    return None


def _limit_lines(lines: Iterable[str], count: int) -> list[str]:
    # Do not make the lines that are not listed: each searches the closest name.
    listed_lines = [line for _, line in zip(range(_MAXIMUM_LISTED), lines, strict=False)]
    return [*listed_lines, f"and {count - _MAXIMUM_LISTED} more"] if count > _MAXIMUM_LISTED else listed_lines


def _closest_name_hint(name: str, unexpected: Sequence[str]) -> str:
    # Checkpoints often have a prefix on all names, or lack one.
    with_same_end = [
        unexpected_name
        for unexpected_name in unexpected
        if unexpected_name.endswith(f".{name}") or name.endswith(f".{unexpected_name}")
    ]
    close = with_same_end[:1] or difflib.get_close_matches(name, unexpected[:_MAXIMUM_COMPARED], 1)
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
    """List tensors without data that are plain attributes of modules: no checkpoint has those."""
    return [
        f"{quoted(f'{path}.{key}' if path else key)} is an attribute that no checkpoint has, and {reason}: "
        "set it to its values"
        for path, module in model.named_modules()
        for key, item in vars(module).items()
        if isinstance(item, torch.Tensor) and (reason := without_data(item)) is not None
    ]
