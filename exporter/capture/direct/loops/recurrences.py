"""Parts of transformers that compute a recurrence in chunks, as loops over tokens for a dynamic length.

A form in chunks has a fixed number of steps inside of a chunk, and the last chunk is shorter or padded. The
same modules define the recurrence itself, with the same arguments and results, for decoding.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import types
from collections.abc import Callable, Iterable, Iterator

import torch

from ....torch_boundary.replacements.linear_attention import compute_gated_delta_rule
from ....torch_boundary.state.module_tree import modules_of

_GATED_DELTA_RULE = "torch_chunk_gated_delta_rule"
"""The function of several models that the operator `opsetta::linear_attention` computes for any length."""
_RECURRENCES = {
    _GATED_DELTA_RULE: "torch_recurrent_gated_delta_rule",
    "chunk_kimi_delta_attention": "recurrent_kimi_delta_attention",
}
"""By the name of a function in chunks over the second axis of its first argument, that of the recurrence."""
_BLOCKS_OF_TOKENS = frozenset({"MiniMaxLightningAttention"})
"""Classes of modules whose attribute `block_size` is the length of a chunk of any size."""
_CHUNKS_OF_MLSTM = "wrap_chunkwise_arbitrary_sequence_length"
"""The function of xLSTM's backend that divides a sequence; it takes the recurrence as a keyword argument."""


@contextlib.contextmanager
def as_recurrences(model: torch.nn.Module, namespaces: Iterable[dict[str, object]]) -> Iterator[None]:
    """Within the context, forms in chunks are loops over the tokens for a dynamic length.

    Args:
        namespaces: the globals of the modules that define the model.
    """
    with contextlib.ExitStack() as stack:
        for namespace in namespaces:
            for name, recurrence_name in _RECURRENCES.items():
                chunked, recurrence = namespace.get(name), namespace.get(recurrence_name)
                if isinstance(chunked, types.FunctionType) and isinstance(recurrence, types.FunctionType):
                    stack.callback(namespace.__setitem__, name, chunked)
                    by_operator = functools.partial(_run_operator, chunked, recurrence)
                    dynamic = by_operator if name == _GATED_DELTA_RULE else recurrence
                    namespace[name] = _choose(chunked, dynamic, axis=1)
        for module in modules_of(model):
            # A block that is shorter than the others would have another shape in the last iteration.
            if type(module).__name__ in _BLOCKS_OF_TOKENS:
                stack.callback(vars(module).pop, "forward")
                vars(module)["forward"] = functools.partial(_run_by_tokens, module, module.forward)
            inference = vars(module).get("_inference_fn")
            if isinstance(inference, functools.partial) and inference.func.__name__ == _CHUNKS_OF_MLSTM:
                options = inference.keywords
                recurrence = functools.partial(
                    options["mlstm_sequence_kernel"], eps=options["eps"], return_last_states=True
                )
                stack.callback(vars(module).__setitem__, "_inference_fn", inference)
                vars(module)["_inference_fn"] = _choose(inference, recurrence, axis=2)
        yield


def _choose(
    chunked: Callable[..., object], recurrence: Callable[..., object], axis: int
) -> Callable[..., object]:
    """A function that calls the recurrence if the length is dynamic.

    Args:
        axis: of the length in the queries, the first argument, which both functions name `query`.
    """

    def choose(*args: object, **kwargs: object) -> object:
        # xLSTM passes all arguments by keyword.
        query = args[0] if args else kwargs["query"]
        assert isinstance(query, torch.Tensor)
        function = recurrence if isinstance(query.shape[axis], torch.SymInt) else chunked
        return function(*args, **kwargs)

    return choose


def _run_operator(
    chunked: Callable[..., object], recurrence: Callable[..., object], *args: object, **kwargs: object
) -> object:
    """The gated delta rule by the operator, or by the recurrence for a gradient, which the operator lacks."""
    tensors = [item for item in (*args, *kwargs.values()) if isinstance(item, torch.Tensor)]
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
        return recurrence(*args, **kwargs)
    arguments = inspect.signature(chunked).bind(*args, **kwargs).arguments
    names = inspect.signature(compute_gated_delta_rule).parameters
    return compute_gated_delta_rule(**{name: arguments[name] for name in names if name in arguments})


def _run_by_tokens(
    module: torch.nn.Module,
    forward: Callable[..., object],
    hidden_states: torch.Tensor,
    *args: object,
    **kwargs: object,
) -> object:
    """Run a module with blocks of one token if the length, the second axis, is dynamic."""
    block_size = module.block_size
    if isinstance(hidden_states.shape[1], torch.SymInt):
        vars(module)["block_size"] = 1
    try:
        return forward(hidden_states, *args, **kwargs)
    finally:
        vars(module)["block_size"] = block_size
