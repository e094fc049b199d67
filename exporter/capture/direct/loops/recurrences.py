"""Parts of transformers that compute a recurrence in chunks, as loops over tokens for a dynamic length.

A form in chunks has a fixed number of steps inside of a chunk, and the last chunk is shorter or padded. The
same modules define the recurrence itself, with the same arguments and results, for decoding.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import types
from collections.abc import Callable, Collection, Iterable, Iterator

import torch

from ....torch_boundary.replacements.models.linear_attention import (
    compute_gated_delta_rule,
    compute_lightning_attention,
    compute_mamba2_scan,
    compute_mlstm,
)
from ....torch_boundary.state.module_tree import modules_of

_RECURRENCES = {
    "torch_chunk_gated_delta_rule": "torch_recurrent_gated_delta_rule",
    "chunk_kimi_delta_attention": "recurrent_kimi_delta_attention",
    # This one has no recurrence with the same arguments, and a gradient takes the form in chunks.
    "mamba2_chunk_scan": "mamba2_chunk_scan",
}
"""By the name of a function in chunks over the second axis of its first argument, that of the recurrence."""
_BY_OPERATOR: dict[str, Callable[..., object]] = {
    "torch_chunk_gated_delta_rule": compute_gated_delta_rule,
    "mamba2_chunk_scan": compute_mamba2_scan,
}
"""The functions that the operator `opsetta::linear_attention` computes for any length, and how."""
_PACKED = ("cu_seqlens", "seq_idx")
"""Arguments that divide a sequence into several ones."""
_BLOCKS_OF_TOKENS = frozenset({"MiniMaxLightningAttention"})
"""Classes of modules whose attribute `block_size` is the length of a chunk of any size."""
_CHUNKS_OF_MLSTM = "wrap_chunkwise_arbitrary_sequence_length"
"""The function of xLSTM's backend that divides a sequence; it takes the recurrence as a keyword argument."""


@contextlib.contextmanager
def as_recurrences(
    model: torch.nn.Module, namespaces: Iterable[dict[str, object]], captured: Collection[str] = ()
) -> Iterator[set[str]]:
    """Within the context, forms in chunks are loops over the tokens for a dynamic length.

    Args:
        namespaces: the globals of the modules that define the model.
        captured: the forms that a capture replaced; a trial at static sizes must run the same.

    Yields:
        The forms that are replaced for a dynamic length, by the time that the context ends.
    """
    replaced = set(captured)
    with contextlib.ExitStack() as stack:
        for namespace in namespaces:
            for name, recurrence_name in _RECURRENCES.items():
                chunked, recurrence = namespace.get(name), namespace.get(recurrence_name)
                if isinstance(chunked, types.FunctionType) and isinstance(recurrence, types.FunctionType):
                    stack.callback(namespace.__setitem__, name, chunked)
                    dynamic: Callable[..., object] = recurrence
                    if name in _BY_OPERATOR:
                        by_operator = _BY_OPERATOR[name]
                        dynamic = functools.partial(_run_operator, by_operator, chunked, recurrence)
                    namespace[name] = _choose(chunked, dynamic, 1, name, replaced)
        for module in modules_of(model):
            # A block that is shorter than the others would have another shape in the last iteration.
            if type(module).__name__ in _BLOCKS_OF_TOKENS:
                stack.callback(vars(module).pop, "forward")
                vars(module)["forward"] = functools.partial(_run_by_tokens, module, module.forward, replaced)
            inference = vars(module).get("_inference_fn")
            if isinstance(inference, functools.partial) and inference.func.__name__ == _CHUNKS_OF_MLSTM:
                options = inference.keywords
                kernel, eps = options["mlstm_sequence_kernel"], options["eps"]
                recurrence = functools.partial(kernel, eps=eps, return_last_states=True)
                # While a capture runs, `range` in the code of a model is one whose loops are recorded.
                positions = inference.func.__globals__.get("range", range)
                by_operator = functools.partial(compute_mlstm, eps=eps, positions=positions)
                recurrence = functools.partial(_run_operator, by_operator, inference, recurrence)
                stack.callback(vars(module).__setitem__, "_inference_fn", inference)
                vars(module)["_inference_fn"] = _choose(inference, recurrence, 2, _CHUNKS_OF_MLSTM, replaced)
        yield replaced


def _choose(
    chunked: Callable[..., object],
    recurrence: Callable[..., object],
    axis: int,
    name: str,
    replaced: set[str],
) -> Callable[..., object]:
    """A function that calls the recurrence if the length is dynamic, or was in a capture.

    Args:
        axis: of the length in the queries, the first argument, which both functions name `query`.
        name: of the form in chunks.
        replaced: the names of such forms; gets `name` if the length is dynamic.
    """

    def choose(*args: object, **kwargs: object) -> object:
        # xLSTM passes all arguments by keyword.
        query = args[0] if args else kwargs["query"]
        assert isinstance(query, torch.Tensor)
        if isinstance(query.shape[axis], torch.SymInt):
            replaced.add(name)
        function = recurrence if name in replaced else chunked
        return function(*args, **kwargs)

    return choose


def _run_operator(
    by_operator: Callable[..., object],
    chunked: Callable[..., object],
    recurrence: Callable[..., object],
    *args: object,
    **kwargs: object,
) -> object:
    """A function by the operator, or by the recurrence for a gradient, which the operator lacks."""
    if _needs_gradient(*args, *kwargs.values()) or any(kwargs.get(name) is not None for name in _PACKED):
        return recurrence(*args, **kwargs)
    arguments = inspect.signature(chunked).bind(*args, **kwargs).arguments
    names = inspect.signature(by_operator).parameters
    return by_operator(**{name: arguments[name] for name in names if name in arguments})


def _needs_gradient(*arguments: object) -> bool:
    """Whether a call with these arguments is part of a computation of gradients."""
    tensors = [argument for argument in arguments if isinstance(argument, torch.Tensor)]
    return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)


def _run_by_tokens(
    module: torch.nn.Module,
    forward: Callable[..., object],
    replaced: set[str],
    hidden_states: torch.Tensor,
    *args: object,
    **kwargs: object,
) -> object:
    """Run a module by the operator if its length (axis 1) is dynamic, or was in the capture.

    For a gradient, which the operator lacks, it runs in blocks of one token.
    """
    block_size, name = module.block_size, type(module).__name__
    if isinstance(hidden_states.shape[1], torch.SymInt):
        replaced.add(name)
    if name in replaced and not _needs_gradient(hidden_states):
        arguments = inspect.signature(forward).bind(hidden_states, *args, **kwargs).arguments
        names = ("attention_mask", "past_key_values")
        return compute_lightning_attention(module, hidden_states, *(arguments.get(name) for name in names))
    if name in replaced:
        vars(module)["block_size"] = 1
    try:
        return forward(hidden_states, *args, **kwargs)
    finally:
        vars(module)["block_size"] = block_size
