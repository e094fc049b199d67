"""States that the modules of a model keep as attributes between two calls, as those of RecurrentGemma do.

A call sets such an attribute to a tensor, and the next call reads it. In a graph the tensors are inputs and
outputs. Which attributes they are is found by running the model; no name of a model is in this file.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from .cache_layout import tensors_in

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

States = dict[str, dict[str, object]]
"""Tensors, or containers of them, by the name of a module and of its attribute."""


def find_states(model: PreTrainedModel) -> States:
    """The attributes of modules that hold tensors, apart from parameters and buffers."""
    import torch

    # Names that each module has, such as `_parameters`.
    internal = vars(torch.nn.Module())
    states: States = {}
    for name, module in model.named_modules():
        for attribute, value in vars(module).items():
            if attribute not in internal and _has_only_tensors(value):
                states.setdefault(name, {})[attribute] = value
    return states


def _has_only_tensors(value: object) -> bool:
    """Whether a value is a tensor, or a container of tensors; lists of modules, for example, are not."""
    import torch

    if isinstance(value, torch.Tensor):
        return True
    members = list(value.values()) if isinstance(value, dict) else value
    return isinstance(members, (list, tuple)) and bool(members) and all(map(_has_only_tensors, members))


def select_changed(states: States, earlier: States) -> States:
    """The states whose tensors a call has replaced."""
    selected: States = {}
    for name, attributes in states.items():
        for attribute, value in attributes.items():
            before = [tensor for _, tensor in tensors_in(earlier.get(name, {}).get(attribute))]
            after = [tensor for _, tensor in tensors_in(value)]
            if len(before) != len(after) or any(
                old is not new for old, new in zip(before, after, strict=True)
            ):
                selected.setdefault(name, {})[attribute] = value
    return selected


def select_batched(states: States, other: States, batches: tuple[int, int]) -> States:
    """The states that have one axis of the batch, and no axis of the length.

    Others are results that a module keeps for its users, such as the logits of a router.

    Args:
        states: after a call.
        other: after a call with another batch and length.
        batches: the sizes of the batch in these calls.
    """

    def is_state(tensor: torch.Tensor, other_tensor: torch.Tensor) -> bool:
        pairs = list(zip(tensor.shape, other_tensor.shape, strict=False))
        changed = [pair for pair in pairs if pair[0] != pair[1]]
        return tensor.dim() == other_tensor.dim() and changed == [batches]

    selected: States = {}
    for name, attributes in states.items():
        for attribute, value in attributes.items():
            tensors = [tensor for _, tensor in tensors_in(value)]
            others = [tensor for _, tensor in tensors_in(other.get(name, {}).get(attribute))]
            if len(tensors) == len(others) and all(map(is_state, tensors, others)):
                selected.setdefault(name, {})[attribute] = value
    return selected


@contextlib.contextmanager
def restore_attributes(model: PreTrainedModel) -> Iterator[None]:
    """Restore the attributes of all modules after the context."""
    attributes = [(vars(module), dict(vars(module))) for module in model.modules()]
    try:
        yield
    finally:
        for current, original in attributes:
            current.clear()
            current.update(original)


@contextlib.contextmanager
def continue_from(model: PreTrainedModel, states: States) -> Iterator[Callable[[], States]]:
    """Within the context, modules have other states.

    The code of some models begins a causal convolution with zeros where it reads several tokens. Here it
    begins with the state, so that a graph for any number of tokens can continue.

    Args:
        states: to begin with.

    Yields:
        A function that returns the states after a call.
    """
    import torch

    from ...torch_boundary.process.process_state import replace_attribute

    modules = {name: model.get_submodule(name) for name in states}
    convolved: States = {}

    def read_states() -> States:
        return {
            name: {
                attribute: convolved.get(name, {}).get(attribute, getattr(modules[name], attribute))
                for attribute in attributes
            }
            for name, attributes in states.items()
        }

    with restore_attributes(model), contextlib.ExitStack() as stack:
        for name, attributes in states.items():
            for attribute, value in attributes.items():
                setattr(modules[name], attribute, value)
                convolution = _convolution_of(modules[name], value)
                if convolution is not None and isinstance(value, torch.Tensor):
                    keep = functools.partial(convolved.setdefault(name, {}).__setitem__, attribute)
                    forward = functools.partial(_continue_convolution, convolution, value, keep)
                    stack.enter_context(replace_attribute(convolution, "forward", forward))
        yield read_states


def _convolution_of(module: torch.nn.Module, state: object) -> torch.nn.Conv1d | None:
    """The causal convolution by channels whose last inputs are a state `[batch, channels, length]`."""
    import torch

    if not isinstance(state, torch.Tensor) or state.dim() != 3:
        return None
    for child in module.children():
        if not isinstance(child, torch.nn.Conv1d) or child.groups != child.in_channels:
            continue
        size = child.kernel_size[0]
        is_causal = child.padding == (size - 1,) and child.stride == child.dilation == (1,)
        if is_causal and state.shape[1] == child.in_channels and state.shape[2] in (size - 1, size):
            return child
    return None


def _continue_convolution(
    convolution: torch.nn.Conv1d,
    state: torch.Tensor,
    keep: Callable[[torch.Tensor], None],
    inputs: torch.Tensor,
) -> torch.Tensor:
    """Convolve inputs that follow a state, and keep the next state."""
    import torch

    length = state.shape[2]
    extended = torch.cat([state.to(inputs.dtype), inputs], dim=-1)
    keep(extended[..., -length:].to(state.dtype))
    # Some states have one column more than a convolution reads.
    extended = extended[..., length - convolution.kernel_size[0] + 1 :]
    return torch.nn.functional.conv1d(
        extended, convolution.weight, convolution.bias, groups=convolution.groups
    )
