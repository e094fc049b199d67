"""The entries of the sweep: torch's OpInfo database and its module database, as models with inputs."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.common_modules import module_db

SEED = 0


@dataclasses.dataclass(frozen=True)
class Case:
    """One sample of an entry.

    Attributes:
        model: takes the tensors, holds everything else.
        inputs: the tensors of the sample, in the order of its flattened arguments.
        gauge_free: makes equal what the operator leaves free, such as the sign of an eigenvector; torch's
            tests of gradients bring it along.
    """

    model: torch.nn.Module
    inputs: tuple[torch.Tensor, ...]
    gauge_free: Callable[[Any], Any]


class _Call(torch.nn.Module):
    """A function whose tensors are the inputs and whose other arguments are constants."""

    def __init__(self, function: Callable[..., Any], arguments: Any):
        super().__init__()
        self.function = function
        leaves, self.structure = pytree.tree_flatten(arguments)
        self.leaves = [None if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
        self.positions = [i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]

    def forward(self, *tensors: torch.Tensor) -> Any:
        leaves = list(self.leaves)
        for position, tensor in zip(self.positions, tensors, strict=True):
            leaves[position] = tensor
        args, kwargs = pytree.tree_unflatten(leaves, self.structure)
        return self.function(*args, **kwargs)


def _case(
    function: Callable[..., Any],
    args: tuple,
    kwargs: dict[str, Any],
    gauge_free: Callable[[Any], Any],
    module: torch.nn.Module | None = None,
) -> Case:
    call = _Call(function, (args, kwargs))
    if module is not None:
        call.module = module
    tensors = [leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
    return Case(call.eval(), tuple(t.detach().clone() for t in tensors), gauge_free)


def _spread(items: list[Any], count: int | None) -> list[Any]:
    """At most `count` of the items, at even distances, the first among them."""
    if count is None or len(items) <= count:
        return items
    return [items[i * len(items) // count] for i in range(count)]


@functools.cache
def operator_names() -> list[str]:
    """The entries of the OpInfo database, by name and variant."""
    return [_operator_name(op) for op in op_db]


def _operator_name(op: Any) -> str:
    return op.name + (f".{op.variant_test_name}" if op.variant_test_name else "")


def module_names() -> list[str]:
    """The entries of torch's module database."""
    return [info.formatted_name for info in module_db]


def operator_cases(
    index: int, dtype: torch.dtype, count: int | None, reference: bool = False
) -> Iterator[Case]:
    """The samples of one entry of the OpInfo database; none where it does not take the element type.

    Args:
        count: samples at most, at even distances.
        reference: take the samples of torch's tests of references, which have more unusual arguments.
    """
    op = op_db[index]
    if not op.supports_dtype(dtype, "cpu"):
        return
    torch.manual_seed(SEED)
    samples = op.reference_inputs if reference else op.sample_inputs
    for sample in _spread(list(samples("cpu", dtype, requires_grad=False)), count):
        leaves = pytree.tree_leaves((sample.input, sample.args, sample.kwargs))
        if all(leaf.layout is torch.strided for leaf in leaves if isinstance(leaf, torch.Tensor)):
            arguments = (sample.input, *sample.args)
            yield _case(op.op, arguments, dict(sample.kwargs), sample.output_process_fn_grad)


def module_cases(index: int, dtype: torch.dtype, count: int | None) -> Iterator[Case]:
    """The samples of one module, with random weights, in eval mode."""
    info = module_db[index]
    torch.manual_seed(SEED)
    samples = info.module_inputs_func(info, device="cpu", dtype=dtype, requires_grad=False, training=False)
    for sample in _spread(list(samples), count):
        if sample.forward_input is None:
            continue
        made = sample.constructor_input
        module = info.module_cls(*made.args, **made.kwargs).to(dtype).eval()
        call = sample.forward_input
        yield _case(module, tuple(call.args), dict(call.kwargs), _same, module)


def _same(output: Any) -> Any:
    return output
