"""Shape-only kernels for recurrent operators and packed sequences in torch.export.

torch.export runs a recurrent operator step by step to find the shapes of its results, which fixes the
sequence length. During a capture, its kernels only compute shapes.

torch.export cannot run the operators of packed sequences, because their sizes depend on the values of the
lengths. A mode of this thread redirects their calls to stand-ins with the same schemas in a separate
namespace; `restore_operators` puts ATen's operators back into the captured program. Two sizes are new
symbols: the length of the longest sequence, and the total number of elements. The batch size, which equals
`batch_sizes[0]`, is taken from the padded tensor.

Everything except the namespace is restored afterwards.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, MutableMapping
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils.weak import WeakTensorKeyDictionary

from ...fake_tensors import FakeTensor
from ...operators.overloads import Args, Function, Kwargs, OpOverload
from ...process.process_state import replace_attribute
from ...symbolic_numbers import Size
from ...symbolic_sizes import check
from .recurrent_shapes import OPERATORS, packed_shapes, padded_shapes
from .shape_kernels import use_shape_kernels

_NAMESPACE = "opsetta_capture"
_LIBRARY = torch.library.Library(_NAMESPACE, "FRAGMENT")
_ATEN: dict[Function, OpOverload] = {}
"""By stand-in, the ATen operator that it replaces."""


def _stand_in(operator: OpOverload, shapes: Function) -> OpOverload:
    """Define the stand-in of an operator: its schema, with `SymInt total_length`, and a shape function."""
    schema = str(operator._schema).removeprefix("aten::").replace("int total_length", "SymInt total_length")
    _LIBRARY.define(schema)
    name = schema.partition("(")[0]
    # A fake kernel is enough, because a stand-in never runs on data.
    torch.library.register_fake(f"{_NAMESPACE}::{name}", shapes, lib=_LIBRARY)
    packet = getattr(getattr(torch.ops, _NAMESPACE), name.partition(".")[0])
    stand_in: OpOverload = getattr(packet, operator._overloadname)
    _ATEN[stand_in] = operator
    return stand_in


def _pack_shapes(
    input: torch.Tensor, lengths: torch.Tensor, batch_first: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    context = torch.library.get_ctx()
    length = input.shape[1 if batch_first else 0]
    longest, count = context.new_dynamic_size(min=1, max=_largest(length)), context.new_dynamic_size(min=1)
    # Without this, torch.export could not decide comparisons of the two sizes.
    check(longest <= length)
    return input.new_empty(count, *input.shape[2:]), lengths.new_empty(longest)


def _largest(size: int | torch.SymInt) -> int | None:
    """Return the upper bound of a size; None if it has none."""
    if isinstance(size, int):
        return size
    bound = size.node.shape_env.bound_sympy(size.node.expr).upper
    return int(bound) if bound.is_Integer else None


def _pad_shapes(
    data: torch.Tensor, batch_sizes: torch.Tensor, batch_first: bool, padding_value: float, total_length: int
) -> tuple[torch.Tensor, torch.Tensor]:
    batch = _batches.get(batch_sizes)
    if batch is None:
        batch = torch.library.get_ctx().new_dynamic_size(min=1)
    sizes = (batch, total_length) if batch_first else (total_length, batch)
    return data.new_empty(*sizes, *data.shape[1:]), batch_sizes.new_empty(batch)


_batches: MutableMapping[torch.Tensor, Size] = WeakTensorKeyDictionary()
"""The batch size by `batch_sizes` tensor of a capture, and by the tensor of its first element."""

_PACK = _stand_in(torch.ops.aten._pack_padded_sequence.default, _pack_shapes)
_PAD = _stand_in(torch.ops.aten._pad_packed_sequence.default, _pad_shapes)
_PACKED = {name: _stand_in(getattr(torch.ops.aten, name).data, packed_shapes) for name in OPERATORS}


def _pack(*args: Any, **kwargs: Any) -> tuple[torch.Tensor, torch.Tensor]:
    data, batch_sizes = _PACK(*args, **kwargs)
    named = {**dict(zip(("input", "lengths", "batch_first"), args, strict=False)), **kwargs}
    _batches[batch_sizes] = named["input"].shape[0 if named["batch_first"] else 1]
    return data, batch_sizes


def _item(tensor: torch.Tensor, index: Any) -> torch.Tensor:
    element = tensor[index]
    if tensor in _batches and type(index) is int and index == 0 and tensor.dim() == 1:
        _batches[element] = _batches[tensor]
    return element


def _zeros(*size: Any, **kwargs: Any) -> torch.Tensor:
    """`torch.zeros`, whose sizes may be elements of `batch_sizes`, which eager torch reads as numbers."""
    sizes = kwargs.pop("size") if "size" in kwargs else size
    sizes = sizes[0] if len(sizes) == 1 and isinstance(sizes[0], (tuple, list)) else sizes
    numbers = [
        _number(dimension) if isinstance(dimension, torch.Tensor) else dimension for dimension in sizes
    ]
    return torch.zeros(numbers, **kwargs)


def _number(element: torch.Tensor) -> Any:
    return _batches[element] if element in _batches else element.item()


def _redirect_if_packed(function: Function, stand_in: Function) -> Function:
    """Redirect calls of a torch function with packed sequences; calls with padded ones are not redirected."""

    def call(*args: object, **kwargs: object) -> object:
        # Packed calls have batch_sizes and states before the parameters, others only the states.
        is_packed = "batch_sizes" in kwargs or (len(args) > 3 and isinstance(args[3], (list, tuple)))
        return (stand_in if is_packed else function)(*args, **kwargs)

    return call


def _redirections() -> dict[Function, Function]:
    table: dict[Function, Function] = {torch._VF._pack_padded_sequence: _pack, torch.zeros: _zeros}
    table[torch.ops.aten._pack_padded_sequence.default] = _pack
    table[torch._VF._pad_packed_sequence] = table[torch.ops.aten._pad_packed_sequence.default] = _PAD
    # `batch_sizes[0]` is the batch size, which would otherwise be a new symbol.
    table[torch.Tensor.__getitem__] = _item
    for name, stand_in in _PACKED.items():
        function = getattr(torch, name)
        table[getattr(torch.ops.aten, name).data] = stand_in
        table[function] = _redirect_if_packed(function, stand_in)
    return table


class Redirection:
    """Redirects calls that would read the values of lengths or batch sizes."""

    def __init__(self) -> None:
        self._table = _redirections()

    def __call__(self, func: Function, args: Args, kwargs: Kwargs) -> Function:
        """Return the function to call in place of `func`, or `func` itself."""
        replacement = self._table.get(func)
        return func if replacement is None or not _takes_fake_tensor(func, args, kwargs) else replacement


class _ByShapes(TorchFunctionMode):
    """Redirects the calls of this thread."""

    def __init__(self) -> None:
        super().__init__()
        self._redirection = Redirection()

    def __torch_function__(
        self, func: Function, types: object, args: Args = (), kwargs: Kwargs | None = None
    ) -> object:
        named = dict(kwargs or {})
        return self._redirection(func, args, named)(*args, **named)


def _takes_fake_tensor(func: Function, args: Args, named: Kwargs) -> bool:
    if func is torch.zeros:
        size = named.get("size", args)
        sizes = size[0] if len(size) == 1 and isinstance(size[0], (tuple, list)) else size
        return any(isinstance(dimension, FakeTensor) for dimension in sizes)
    return bool(args) and isinstance(args[0], FakeTensor)


def _expected_hidden_size(original: Function) -> Function:
    """Wrap `RNNBase.get_expected_hidden_size`, which would read the batch size as a Python int."""

    def get_expected_hidden_size(
        self: torch.nn.RNNBase, input: torch.Tensor, batch_sizes: torch.Tensor | None
    ) -> tuple[int, int, int]:
        if not isinstance(batch_sizes, FakeTensor):
            result: tuple[int, int, int] = original(self, input, batch_sizes)
            return result
        hidden = self.proj_size if self.proj_size > 0 else self.hidden_size
        return self.num_layers * (1 + bool(self.bidirectional)), _number(batch_sizes[0]), hidden

    return get_expected_hidden_size


@contextlib.contextmanager
def use_recurrent_kernels(redirects: bool = True) -> Iterator[None]:
    """Use shape-only kernels for recurrent operators and packed sequences within the context.

    The captured program must go through `restore_operators` first.

    Args:
        redirects: whether to redirect calls by a mode. Not for the recorder, which redirects them itself, nor
            for TorchDynamo, which does not support packed sequences.
    """
    kernels = {getattr(torch.ops.aten, name).input: padded_shapes for name in OPERATORS}
    hidden_size = _expected_hidden_size(torch.nn.RNNBase.get_expected_hidden_size)
    with contextlib.ExitStack() as stack:
        stack.enter_context(replace_attribute(torch.nn.RNNBase, "get_expected_hidden_size", hidden_size))
        stack.enter_context(use_shape_kernels(kernels, {}))
        if redirects:
            stack.enter_context(_ByShapes())
        yield


def original_operator(target: Function) -> Function:
    """Return ATen's operator for a stand-in; return other functions unchanged."""
    return _ATEN.get(target, target)


def restore_operators(module: torch.nn.Module) -> None:
    """Replace stand-ins by ATen's operators in the graphs of a module and its sub-modules, in place."""
    for inner in module.modules():
        graph = getattr(inner, "graph", None)
        if not isinstance(graph, torch.fx.Graph):
            continue
        stand_ins = [node for node in graph.nodes if node.target in _ATEN]
        for node in stand_ins:
            node.target = _ATEN[node.target]
        if stand_ins and isinstance(inner, torch.fx.GraphModule):
            inner.recompile()
