"""The patches of torch for a capture, without those that this torch version cannot take.

A replacement is imported only after a probe for the names that it needs.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch

from . import probe
from .fake_tensors import as_exporting
from .process.process_state import vmaps_closed
from .process.silence import quiet
from .replacements import data_attribute, distributions, transformer_modules

Patches = list[AbstractContextManager[Any]]


def for_capture(
    *, strict: bool, gradients: bool = False, recorded: bool = False, names: Mapping[tuple[int, int], str]
) -> Patches:
    """The patches for a capture by torch.export, or for a recording.

    Args:
        strict: whether TorchDynamo traces.
        gradients: whether the model runs with autograd; torch.export records where it switches that off.
        recorded: whether a `Recorder` captures, which redirects calls by `redirection`.
        names: the names of dimensions, by the position of a leaf of the call, and the axis.
    """
    from torch._dynamo import config

    mode: AbstractContextManager[Any] = torch.enable_grad() if gradients else torch.no_grad()
    if recorded and gradients:
        from .recording import gradients as recorded_gradients

        mode = recorded_gradients.enabled()
    patches = [
        quiet(),
        mode,
        _unprofiled(),
        *_recurrent(redirects=not (strict or recorded)),
        *_shapes(),
        *_losses(),
    ]
    patches += [_attention(), distributions.unchecked(), *_scans(strict)]
    if not (strict or recorded):
        patches.append(data_attribute.seen(data_attribute.refuse))
    if not recorded and probe.has(probe.FLOAT_SIZES):
        from . import size_questions
        from .replacements import float_sizes

        patches += [float_sizes.in_order(), size_questions.noted()]
    if gradients and not recorded:
        from .replacements import custom_gradients

        probe.need(probe.TRAINING)
        patches.append(custom_gradients.refused())
    if len(set(names.values())) < len(names) and not strict and probe.has(probe.NAMED_DIMENSIONS):
        from .replacements import named_dimensions

        patches.append(named_dimensions.unified(names))
    if probe.has(probe.SIZE_BOUNDS):
        from .replacements import size_bounds

        patches.append(size_bounds.shared_parts())
    # Only the caller decides which sizes are dynamic, not torch's earlier traces.
    return [*patches, config.patch(automatic_dynamic_shapes=False)]


@contextlib.contextmanager
def as_captured(packs: bool) -> Iterator[None]:
    """Patches under which a model on fake tensors takes the captured path.

    Args:
        packs: whether it packs sequences.
    """
    packed = _recurrent(redirects=True) if packs else []
    with contextlib.ExitStack() as stack:
        patches = [
            vmaps_closed(),
            *packed,
            *_shapes(),
            _attention(),
            distributions.unchecked(),
            _unprofiled(),
            as_exporting(),
        ]
        for patch in patches:
            stack.enter_context(patch)
        yield


def grouped_products() -> AbstractContextManager[None]:
    """Patches that define shapes of grouped products for every element type and stride."""
    if not probe.has(probe.SHAPE_KERNELS):
        return contextlib.nullcontext()
    from .replacements import linear_algebra

    return linear_algebra.grouped_products_by_shapes()


def restore_operators(program: Any) -> None:
    """Replace the stand-in operators of a capture by ATen's, in place."""
    if probe.has(probe.RECURRENT):
        from .replacements import recurrent

        recurrent.restore_operators(program)


def original_operator(target: Any) -> Any:
    """ATen's operator for a stand-in operator of a capture; other functions are returned as they are."""
    if not probe.has(probe.RECURRENT):
        return target
    from .replacements import recurrent

    return recurrent.original_operator(target)


def redirection() -> Callable[[Any, Sequence[Any], Mapping[str, Any]], Any]:
    """A function that takes a call, and returns the function to run instead, or the same one."""
    if not probe.has(probe.RECURRENT):
        return lambda func, args, kwargs: func
    from .replacements import recurrent

    return recurrent.Redirection()


def _unprofiled() -> AbstractContextManager[None]:
    """Modules of TorchScript within a model run without a profile, which would fix the sizes that it sees."""
    return torch.jit.optimized_execution(False)  # type: ignore[attr-defined]


def _recurrent(redirects: bool) -> Patches:
    if not probe.has(probe.RECURRENT):
        return []
    from .replacements import recurrent

    return [recurrent.by_shapes(redirects)]


def _shapes() -> Patches:
    if not probe.has(probe.SHAPE_KERNELS):
        return []
    from .replacements import composite_sizes, hashing, linear_algebra

    return [linear_algebra.by_shapes(), hashing.by_shapes(), composite_sizes.kept_symbolic()]


def _attention() -> AbstractContextManager[None]:
    if not probe.has(probe.CAUSAL_MASKS):
        return transformer_modules.without_fused_attention()
    return transformer_modules.captured()


def _losses() -> Patches:
    if not probe.has(probe.SHAPE_KERNELS):
        return []
    from .replacements import sequence_losses

    return [sequence_losses.by_shapes()]


def _scans(strict: bool) -> Patches:
    if not probe.has(probe.ASSOCIATIVE_SCAN):
        return []
    from .replacements import associative_scan

    return [associative_scan.as_operator(strict=strict)]
