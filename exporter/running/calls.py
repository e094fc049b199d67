"""Converts a call of the user's model to graph inputs, and graph outputs to its result; runs it eagerly."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import torch

from ...passes.faults import raise_fault
from ...registration import ModelFileError, OpsettaError, UsageError
from ...registration.printable import one_line
from ..capture.tensor_kinds import without_data
from ..captured_graph.capture import Interface
from ..torch_boundary.containers import pytree
from ..torch_boundary.replacements.models.transformer_modules import disable_fused_attention
from ..torch_boundary.state.model_state import Preserved
from ..torch_boundary.state.scripted_state import preserve_state, tensors_of
from ..torch_boundary.state.written_state import gradients_kept

Value = TypeVar("Value")

_NUMERIC = (torch.Tensor, np.ndarray, np.generic, int, float, complex)


def flatten(interface: Interface, args: tuple[object, ...], kwargs: Mapping[str, object]) -> list[object]:
    """Flatten the arguments of a call into leaves, in the order of the capture.

    Raises:
        UsageError: the arguments have other names or another structure than the example.
        OpsettaError: an input is not a tensor or number, or a constant differs from the capture's.
    """
    leaves = _leaves(interface, args, dict(kwargs))
    if leaves is None and interface.parameter_names:
        # The call may pass by keyword what the example passed by position, or the reverse.
        moved_args, moved_kwargs = _rebind(interface, args, kwargs)
        leaves = _leaves(interface, moved_args, moved_kwargs)
    if leaves is None:
        raise UsageError(
            "the arguments differ from the example's in number, names or structure: "
            + "; ".join(_describe_differences(interface, args, dict(kwargs)))
        )
    for leaf, name, constant in zip(leaves, interface.inputs, interface.constants, strict=True):
        if name is not None and not isinstance(leaf, _NUMERIC):
            raise OpsettaError(f"input '{name}' must be a tensor or a number, not {type(leaf).__name__}")
        # Tensors are skipped: an unused tensor has no constant, and comparing tensors gives a tensor.
        if name is None and not isinstance(leaf, torch.Tensor) and leaf != constant:
            raise OpsettaError(
                f"an argument is {leaf!r}, but the model was captured with the constant {constant!r} "
                "in its place: pass that, or export again"
            )
    return leaves


def input_values(interface: Interface, names: Sequence[str], leaves: Sequence[object]) -> dict[str, object]:
    """Return the leaves of a call that are graph inputs, by input name."""
    values = [leaf for leaf, name in zip(leaves, interface.inputs, strict=True) if name is not None]
    return dict(zip(names, values, strict=True))


def _leaves(interface: Interface, args: tuple[object, ...], kwargs: dict[str, object]) -> list[object] | None:
    specification = interface.input_specification
    # pytree keeps the order of keyword arguments, and callers may pass them in any order.
    order = specification.children()[1].context
    if isinstance(order, list) and set(order) == set(kwargs):
        kwargs = {name: kwargs[name] for name in order}
    leaves, call_structure = pytree.tree_flatten((args, kwargs))
    return leaves if call_structure == specification else None


def _rebind(
    interface: Interface, args: tuple[object, ...], kwargs: Mapping[str, object]
) -> tuple[tuple[object, ...], dict[str, object]]:
    """Split the call's arguments into positional and keyword ones as in the capture."""
    names = interface.parameter_names
    if len(args) > len(names) or any(name in kwargs for name in names[: len(args)]):
        return args, dict(kwargs)
    by_name = dict(zip(names, args, strict=False)) | dict(kwargs)
    positional = interface.input_specification.children()[0].num_children
    positional_names = names[:positional]
    if any(name not in by_name for name in positional_names):
        return args, dict(kwargs)
    keywords = {name: value for name, value in by_name.items() if name not in positional_names}
    return tuple(by_name[name] for name in positional_names), keywords


def _describe_differences(
    interface: Interface, args: tuple[object, ...], kwargs: dict[str, object]
) -> Iterator[str]:
    """Yield descriptions of how the arguments of a call differ from the example's, by parameter name."""
    names = interface.parameter_names
    positional, keywords = interface.input_specification.children()
    expected = {
        **_name_arguments(names, positional.children()),
        **dict(zip(keywords.context, keywords.children(), strict=True)),
    }
    passed = _name_arguments(names, args)
    for name in sorted(passed.keys() & kwargs.keys()):
        yield f"'{name}' is passed twice"
    passed |= kwargs
    yield from (f"'{name}' is missing" for name in expected if name not in passed)
    unexpected = [f"'{name}'" for name in passed if name not in expected]
    if unexpected:
        yield f"the example has no argument {', '.join(unexpected)}"
    for name, value in passed.items():
        structure = pytree.tree_flatten(value)[1]
        if name in expected and structure != expected[name]:
            yield f"'{name}' is {_describe_structure(structure)}, not {_describe_structure(expected[name])}"


def _name_arguments(names: Sequence[str], values: Sequence[Value]) -> dict[str, Value]:
    """Map positional values to the names of their parameters; further ones to their numbers from 1 on."""
    return {
        names[index] if index < len(names) else f"{index + 1}": value for index, value in enumerate(values)
    }


def _describe_structure(structure: pytree.TreeSpec) -> str:
    if structure.is_leaf():
        return "a single value"
    text = f"a {structure.type.__name__} of {structure.num_children}"
    return (
        f"{text} with the keys {', '.join(map(repr, structure.context))}" if structure.type is dict else text
    )


def restore(interface: Interface, results: Sequence[torch.Tensor]) -> Any:
    """Convert the graph's outputs to the model's result: its structure, Python numbers and constants."""
    converted: list[object] = list(results)
    for position in interface.numbers:
        number = results[position]
        if number.numel() != 1:
            raise ModelFileError(
                f"the model's result {position} is a Python number, but the graph gives a tensor of the "
                f"shape {list(number.shape)} there: the file's interface does not fit its graph"
            )
        converted[position] = number.item()
    leaves = [converted[entry] if isinstance(entry, int) else entry[0] for entry in interface.outputs]
    return pytree.tree_unflatten(leaves, interface.output_specification)


def run_eager(
    module: Callable[..., object],
    interface: Interface,
    args: tuple[object, ...],
    kwargs: Mapping[str, object],
) -> list[object]:
    """Run the model in PyTorch on copies of its arguments and of the buffers that it writes to.

    Returns:
        The results in the order of the graph's outputs, then the new values of mutated buffers and inputs.

    Raises:
        OpsettaError: the model itself fails on these arguments, or returns another number of values.
    """
    # Copied, because a model may write to its arguments, and the graph runs on them too.
    args, keywords = pytree.tree_map(_copy_tensor, (args, dict(kwargs)))
    leaves = pytree.tree_flatten((args, keywords))[0]
    with blame_model():
        result, state = call_model(module, interface.mutated, args, keywords)
    result_leaves = pytree.tree_flatten(result)[0]
    entries = interface.outputs
    if len(result_leaves) != len(entries):
        raise OpsettaError(
            f"the model returned {len(result_leaves)} values, but {len(entries)} when it was captured"
        )
    # The graph has an output for each leaf, even if two leaves are the same value.
    outputs = [item for item, entry in zip(result_leaves, entries, strict=True) if isinstance(entry, int)]
    for item in outputs:
        reason = without_data(item) if isinstance(item, torch.Tensor) else None
        if reason is not None:
            raise OpsettaError(f"a result of the model has no data to compare with ({reason})")
    by_name = {name: leaf for name, leaf in zip(interface.inputs, leaves, strict=True) if name is not None}
    return outputs + [by_name[name] if name in by_name else state[name] for name in interface.mutated]


@contextlib.contextmanager
def blame_model() -> Iterator[None]:
    """Convert exceptions of the user's model within the context to an error that blames the model.

    Raises:
        OpsettaError: the model failed.
    """
    try:
        yield
    except OpsettaError:
        raise
    except Exception as error:
        raise_fault(error, "when it ran the model in PyTorch")
        text = one_line(error)
        raise OpsettaError(
            f"the model itself fails on these arguments: {type(error).__name__}: {text}"
        ) from error


def call_model(
    module: Callable[..., object], mutated: Sequence[str], args: tuple[object, ...], kwargs: dict[str, object]
) -> tuple[object, dict[str, torch.Tensor]]:
    """Call a model without changing it; return its result, and the state that it wrote to by name."""
    try:
        with torch.no_grad():
            return _call_once(module, mutated, args, kwargs)
    except RuntimeError as error:
        # A model that computes gradients may need autograd, so it is tried again with autograd.
        try:
            with torch.enable_grad():
                result, state = pytree.tree_map_only(
                    torch.Tensor, torch.Tensor.detach, _call_once(module, mutated, args, kwargs)
                )
        except Exception:
            raise error from None
        return result, state


def _call_once(
    module: Callable[..., object], mutated: Sequence[str], args: tuple[object, ...], kwargs: dict[str, object]
) -> tuple[object, dict[str, torch.Tensor]]:
    if isinstance(module, torch.jit.ScriptModule):
        return _call_script(module, mutated, args, kwargs)
    if not isinstance(module, torch.nn.Module):
        with disable_fused_attention(), Preserved(module):
            return module(*args, **kwargs), {}
    # Copied, because the graph's initializers share memory with the model's buffers.
    state = _copy_state(module, mutated)
    called, prefix = module, ""
    if isinstance(module, torch.nn.DataParallel):
        # functional_call does not accept the wrapper, which prefixes the names of the state by "module.".
        called, prefix = module.module, "module."
    inner = {name.removeprefix(prefix): tensor for name, tensor in state.items()}
    with disable_fused_attention(), Preserved(module), gradients_kept(module):
        result = torch.func.functional_call(called, inner, args, kwargs)
    # The call also puts tensors there that the model assigned to its buffers.
    return result, {prefix + name: tensor for name, tensor in inner.items()}


def _call_script(
    module: torch.jit.ScriptModule,
    mutated: Sequence[str],
    args: tuple[object, ...],
    kwargs: dict[str, object],
) -> tuple[object, dict[str, torch.Tensor]]:
    """Call a TorchScript module and restore its state; `functional_call` does not support such modules."""
    with preserve_state(module, frozenset(mutated)):
        # Copied, because a result may be a view of state that is restored afterwards.
        result = pytree.tree_map(_copy_tensor, module(*args, **kwargs))
        tensors = tensors_of(module)
        return result, {name: tensors[name].detach().clone() for name in mutated if name in tensors}


def _copy_state(module: torch.nn.Module, mutated: Sequence[str]) -> dict[str, torch.Tensor]:
    """Copy the buffers, and the parameters that the model writes to."""
    state = {name: buffer.clone() for name, buffer in module.named_buffers()}
    for name, parameter in module.named_parameters():
        if name in mutated:
            state[name] = parameter.detach().clone()
    return state


def _copy_tensor(leaf: object) -> object:
    return leaf.detach().clone() if isinstance(leaf, torch.Tensor) else leaf
