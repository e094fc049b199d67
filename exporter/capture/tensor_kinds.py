"""Refuses tensor layouts and types that ONNX lacks, and suggests a conversion."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping

import torch
from torch.nn.parameter import is_lazy

from ...registration import CaptureError
from ..torch_boundary.containers.pytree import children
from ..torch_boundary.fake_tensors import FakeTensor, is_traceable_wrapper_subclass
from ..torch_boundary.state.module_tree import modules_of, tensors_of

_SPARSE = (torch.sparse_coo, torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc)


def unsupported_type(tensor: torch.Tensor) -> tuple[str, str] | None:
    """Return the unsupported type of a tensor, and the method that converts it; or None."""
    if tensor.is_nested:
        return "a nested tensor", "to_padded_tensor(0.0)"
    if tensor.layout in _SPARSE:
        return f"sparse ({tensor.layout})", "to_dense()"
    if tensor.is_mkldnn:
        return "in the layout of oneDNN", "to_dense()"
    if tensor.is_quantized:
        return f"quantized ({tensor.dtype})", "dequantize()"
    return None


def without_data(tensor: torch.Tensor) -> str | None:
    """Return the reason why a tensor has no data, or None."""
    if tensor.device.type == "meta":
        return "it is on the meta device"
    if isinstance(tensor, FakeTensor):
        return "it is a FakeTensor"
    return None


def check_arguments(bound: Mapping[str, object]) -> None:
    """Refuse arguments, at any depth, that cannot be inputs of the exported file.

    Args:
        bound: the example arguments by parameter name.

    Raises:
        CaptureError: an argument is sparse, nested, quantized, of a subclass that consists of several
            tensors, or a generator; the message names it.
    """
    for path, leaf in named_leaves(bound):
        check("input", path, leaf, "pass")
        if is_traceable_wrapper_subclass(leaf):
            class_name = type(leaf).__name__
            raise CaptureError(
                f"input '{path}' is a {class_name}, which consists of several tensors: pass those, and make "
                f"the {class_name} in the model; or make it a parameter of the model"
            )
        if isinstance(leaf, torch.Generator):
            raise CaptureError(
                f"input '{path}' is a torch.Generator, which ONNX does not support: leave it out, so that "
                "the model uses the default generator"
            )


def check(role: str, name: str, item: object, verb: str) -> None:
    """Refuse a tensor of a kind that has no ONNX counterpart.

    Args:
        role: the tensor's role in the model: input, output, parameter, buffer or constant.
        name: its name, or the expression for it.
        verb: what the user should do with the converted tensor: pass, return or register it.

    Raises:
        CaptureError: it is of such a kind.
    """
    unsupported = unsupported_type(item) if isinstance(item, torch.Tensor) else None
    if unsupported is not None:
        description, method = unsupported
        raise CaptureError(
            f"{role} '{name}' is {description}, which ONNX does not support: {verb} {name}.{method} instead"
        )


def check_state(module: torch.nn.Module) -> None:
    """Refuse a module with nested or quantized parameters or buffers, which torch.export does not support.

    Raises:
        CaptureError: one of them is of such a kind; the message names it.
    """
    for role, named in (("parameter", module.named_parameters()), ("buffer", module.named_buffers())):
        for name, tensor in named:
            if tensor.is_nested or tensor.is_quantized:
                check(role, name, tensor, "register")


def check_initialised(module: torch.nn.Module) -> None:
    """Refuse a module with lazy parameters that are not initialised yet.

    Raises:
        CaptureError: there is one; the message names it.
    """
    tensors = [tensor for submodule in modules_of(module) for tensor in tensors_of(submodule)]
    # Usually there is none, and no names are needed.
    if not any(map(is_lazy, tensors)):
        return
    for name, tensor in [*module.named_parameters(), *module.named_buffers()]:
        if is_lazy(tensor):
            raise CaptureError(
                f"parameter '{name}' of a lazy module has no shape yet: call the model once before the export"
            )


def describe_devices(model: torch.nn.Module, leaves: Iterable[tuple[str, object]]) -> str | None:
    """Name one tensor on each device, if the tensors of a model and a call lie on several; else None.

    Zero-dim tensors, which PyTorch combines with those of any device, and the meta device do not count.

    Args:
        leaves: the leaves of the example arguments by the expression for each.
    """
    state = [*model.named_parameters(), *model.named_buffers()]
    named = [*((f"input '{path}'", leaf) for path, leaf in leaves), *((f"'{name}'", t) for name, t in state)]
    owners: dict[torch.device, str] = {}
    for label, tensor in named:
        if isinstance(tensor, torch.Tensor) and tensor.dim() > 0 and tensor.device.type != "meta":
            owners.setdefault(tensor.device, f"{label} on {tensor.device}")
    return ", ".join(owners.values()) if len(owners) > 1 else None


def named_leaves(bound: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    """The leaves of arguments by the expression for each, as `x['a'][0]`."""
    for name, value in bound.items():
        yield from _leaves(value, name)


def _leaves(value: object, path: str) -> Iterator[tuple[str, object]]:
    """The leaves of an argument by the expression for each."""
    members = children(value)
    if members is None:
        yield path, value
        return
    for step, member in zip(_steps(value, len(members)), members, strict=True):
        yield from _leaves(member, f"{path}{step}")


def _steps(value: object, count: int) -> list[str]:
    # A registered container may have other children than its own entries or fields.
    if isinstance(value, dict) and len(value) == count:
        return [f"[{key!r}]" for key in value]
    fields = getattr(value, "_fields", None)
    if fields is None and dataclasses.is_dataclass(value):
        fields = [field.name for field in dataclasses.fields(value)]
    if fields is not None and len(fields) == count:
        return [f".{field}" for field in fields]
    return [f"[{index}]" for index in range(count)]
