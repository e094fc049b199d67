"""Runs a TorchScript program on its example, to tell errors of the model from those of the export."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import torch

from ....registration import CaptureError
from ...torch_boundary.containers import pytree
from ...torch_boundary.process.silence import ignore_warnings
from ...torch_boundary.state.scripted_state import preserve_state
from ..tensor_kinds import named_leaves, without_data
from .script_graph import Program, ScriptBlock, ScriptValue, function_of

_ERROR = re.compile(r"^(?:[\w.]*\.)?(\w*(?:Error|Exception|Interrupt)): ", re.MULTILINE)
"""The beginning of the error itself, after the traceback that TorchScript writes into a message."""
_REACHES_FILES = ("aten::save", "aten::from_file")
_ON_INDICES = tuple(
    f"aten::{name}" for name in "embedding embedding_bag gather index index_select one_hot where".split()
)
_QUICK = 1 << 24
"""A program whose example has this many elements, times the elements of its weights, runs in milliseconds."""
_LONGEST = 300


def check_example(
    model: Program, bound: Mapping[str, object], args: tuple[object, ...], kwargs: Mapping[str, object]
) -> None:
    """Run a program once on copies of its example arguments; what it writes to is restored.

    A program whose tensors have no data, or are on several devices, is not run.

    Args:
        model: a `ScriptModule` or a `ScriptFunction`.
        bound: the arguments by parameter.
        args, kwargs: the arguments.

    Raises:
        CaptureError: PyTorch itself fails on the arguments, or the program reads or writes files.
    """
    graph = function_of(model).inlined_graph
    for operator_name in _REACHES_FILES:
        if graph.findAllNodes(operator_name):
            raise CaptureError(
                f"the program reads or writes files ({operator_name}), which ONNX does not support"
            )
    # Tensors without data, or on several devices, can be captured although the program cannot run.
    if not _can_run(model, args, kwargs):
        return
    error = _error_of(model, args, kwargs)
    if error is None:
        return
    leaf_texts = [
        f"{path}: {str(leaf.dtype).removeprefix('torch.')}{list(leaf.shape)}"
        if isinstance(leaf, torch.Tensor)
        else f"{path}: {leaf!r}"
        for path, leaf in named_leaves(bound)
    ]
    example = ", ".join(leaf_texts)
    raise CaptureError(
        f"the model fails in PyTorch itself on the example arguments ({example}): pass arguments for which "
        f"model(*args, **kwargs) runs. {_message(error)}"
    ) from error


def is_suspect(model: Program, args: tuple[object, ...], kwargs: Mapping[str, object]) -> bool:
    """Whether a program must run on its example: it is quick, or the shapes alone may hide an error.

    Fake tensors find arguments of wrong sizes, but few of wrong element types: floats that are not the
    model's, or integers in a program without operators on indices.
    """
    tensors = [leaf for leaf in pytree.tree_leaves((args, dict(kwargs))) if isinstance(leaf, torch.Tensor)]
    weights = list(model.parameters()) if isinstance(model, torch.jit.ScriptModule) else []
    # The elements of inputs and weights bound the work of most layers.
    elements = sum(tensor.numel() for tensor in tensors)
    if elements * sum(weight.numel() for weight in weights) <= _QUICK and elements <= _QUICK:
        return True
    weight_types = {weight.dtype for weight in weights if weight.is_floating_point()}
    types = {tensor.dtype for tensor in tensors}
    if any(dtype.is_floating_point or dtype.is_complex for dtype in types - weight_types):
        return bool(weight_types)
    graph = function_of(model).inlined_graph
    has_integers = any(not (dtype.is_floating_point or dtype.is_complex) for dtype in types)
    return has_integers and not any(graph.findAllNodes(operator_name) for operator_name in _ON_INDICES)


def _can_run(model: Program, args: tuple[object, ...], kwargs: Mapping[str, object]) -> bool:
    tensors = [leaf for leaf in pytree.tree_leaves((args, dict(kwargs))) if isinstance(leaf, torch.Tensor)]
    if isinstance(model, torch.jit.ScriptModule):
        tensors += [*model.parameters(), *model.buffers()]
    if any(tensor.is_meta or without_data(tensor) is not None for tensor in tensors):
        return False
    return len({tensor.device for tensor in tensors}) < 2


def _error_of(model: Program, args: tuple[object, ...], kwargs: Mapping[str, object]) -> Exception | None:
    """The exception of a call; None if it succeeds without gradients, or with them.

    A program may compute gradients itself.
    """
    if isinstance(model, torch.jit.ScriptModule):
        with preserve_state(model, frozenset(_written_paths(function_of(model).inlined_graph))):
            return _first_error(model, args, kwargs)
    return _first_error(model, args, kwargs)


def _first_error(model: Program, args: tuple[object, ...], kwargs: Mapping[str, object]) -> Exception | None:
    first = None
    # Without gradients first: that is faster, and enough for nearly all programs.
    for has_gradients in (False, True):
        copies, named = pytree.tree_map_only(torch.Tensor, copy_tensor, (args, dict(kwargs)))
        try:
            with torch.set_grad_enabled(has_gradients), ignore_warnings():
                model(*copies, **named)
        except Exception as error:
            first = first or error
        else:
            return None
    return first


def _written_paths(block: ScriptBlock) -> Iterator[str]:
    """The paths of the attributes to which a graph may write in place, also through views."""
    for node in block.nodes():
        if "!" in node.schema():
            yield from filter(None, map(_attribute_of, node.inputs()))
        for inner in node.blocks():
            yield from _written_paths(inner)


def _attribute_of(value: ScriptValue) -> str | None:
    """The path of the attribute of which a value may be a view: any operator may return its first operand."""
    node = value.node()
    while node.kind() not in ("prim::GetAttr", "prim::Param") and node.inputsSize():
        node = next(node.inputs()).node()
    names: list[str] = []
    while node.kind() == "prim::GetAttr":
        names.insert(0, node.s("name"))
        node = next(node.inputs()).node()
    return ".".join(names) or None


def copy_tensor(tensor: torch.Tensor) -> torch.Tensor:
    """A copy that requires gradients like the original."""
    return tensor.detach().clone().requires_grad_(tensor.requires_grad)


def _message(error: Exception) -> str:
    """The error without the traceback of TorchScript."""
    text = str(error).strip()
    starts = [match.start() for match in _ERROR.finditer(text)]
    text = text[starts[-1] :] if starts else f"{type(error).__name__}: {text}"
    words = " ".join(text.partition("\n\n")[0].split())
    words = words.removeprefix("builtins.")
    return words if len(words) <= _LONGEST else words[:_LONGEST].rpartition(" ")[0] + " …"
