"""Collects the patches of torch for a capture; skips patches that need names this torch version lacks.

A replacement is imported only after a probe for the names that it needs.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager

import torch

from ..captured_graph.dimensions import Dimension
from . import probe
from .fake_tensors import pretend_exporting
from .operators.overloads import Args, Function, Kwargs
from .process.silence import quiet
from .replacements.functions import data_attribute, distributions, loss_checks
from .replacements.models import (
    attention_masks,
    chunked_attention,
    codec_padding,
    detection_rows,
    named_experts,
    transformer_modules,
)

Patches = list[AbstractContextManager[object]]


def list_capture_patches(
    *,
    strict: bool,
    gradients: bool,
    recorded: bool,
    dimensions: Mapping[tuple[int, int], Dimension],
) -> Patches:
    """Return the patches for a capture by torch.export, or for a recording, in the order to enter them.

    Args:
        strict: whether TorchDynamo traces.
        gradients: whether the model runs with autograd; torch.export records where it switches that off.
        recorded: whether a `GraphRecorder` captures, which redirects calls by `redirection`.
        dimensions: the named dimensions, by (index of the tensor among the flattened arguments, axis).
    """
    from torch._dynamo import config

    if not recorded:
        # Also imports the module whose functions the patches replace. A recording does without it.
        probe.require(probe.TORCH_EXPORT)
    mode: AbstractContextManager[object] = torch.enable_grad() if gradients else torch.no_grad()
    if recorded and gradients:
        from .recording import gradients as recorded_gradients

        mode = recorded_gradients.enable_gradients()
    patches = [
        quiet(),
        mode,
        _disable_profiling(),
        _attention(),
        distributions.skip_validation(),
        detection_rows.detect_by_rows(),
        named_experts.run_all(),
        chunked_attention.chunk_any_count(),
        codec_padding.pad_any_length(),
        attention_masks.omit_full_masks(),
        loss_checks.skip_variance_check(),
        *([] if strict else _conversions()),
        *_scans(strict),
        *_recurrent(redirects=not (strict or recorded)),
        *_shapes(losses=True),
    ]
    if not (strict or recorded):
        patches.append(data_attribute.intercept(data_attribute.refuse))
    if not strict and probe.has(probe.FLOAT_SIZES):
        from .size_texts import use_example_texts

        patches.append(use_example_texts())
    if not recorded and probe.has(probe.FLOAT_SIZES):
        from . import size_questions
        from .replacements import float_sizes

        patches += [float_sizes.keep_order(), size_questions.record_questions()]
    if recorded:
        patches += _function_gradients()
    if gradients and not recorded:
        from .replacements.functions import custom_gradients

        probe.require(probe.TRAINING)
        patches.append(custom_gradients.refuse_custom_gradients())
    # TorchDynamo makes its own symbols.
    if dimensions and not strict and probe.has(probe.NAMED_DIMENSIONS):
        from .replacements import named_dimensions

        is_repeated = len({dimension.name for dimension in dimensions.values()}) < len(dimensions)
        if is_repeated or any(map(named_dimensions.has_range, dimensions.values())):
            patches.append(named_dimensions.declare_symbols(dimensions))
    if probe.has(probe.SIZE_BOUNDS):
        from .replacements import size_bounds

        patches.append(size_bounds.shared_parts())
    # Only the caller decides which sizes are dynamic, not torch's earlier traces.
    return [*patches, config.patch(automatic_dynamic_shapes=False)]


@contextlib.contextmanager
def apply_capture_patches(packs: bool) -> Iterator[None]:
    """Apply patches under which a model that runs on fake tensors takes the same branches as in a capture.

    Args:
        packs: whether the model packs sequences (`torch.nn.utils.rnn`).
    """
    packed = _recurrent(redirects=True) if packs else []
    with contextlib.ExitStack() as stack:
        patches = [
            *packed,
            *_shapes(losses=False),
            _attention(),
            distributions.skip_validation(),
            detection_rows.detect_by_rows(),
            named_experts.run_all(),
            chunked_attention.chunk_any_count(),
            codec_padding.pad_any_length(),
            attention_masks.omit_full_masks(),
            loss_checks.skip_variance_check(),
            *_conversions(),
            _disable_profiling(),
            pretend_exporting(),
            *_extremes(),
            *_function_gradients(),
        ]
        for patch in patches:
            stack.enter_context(patch)
        yield


@contextlib.contextmanager
def apply_script_patches() -> Iterator[None]:
    """Apply patches under which a script's operators give fake tensors the shapes and types of real ones."""
    if not probe.has(probe.SHAPE_KERNELS):
        yield
        return
    from .replacements.kernels import linear_algebra
    from .replacements.kernels.result_types import corrected_types
    from .replacements.kernels.shape_kernels import use_shape_kernels

    with use_shape_kernels({}, linear_algebra.GROUPED_PRODUCT), corrected_types():
        yield


def restore_operators(module: torch.nn.Module) -> None:
    """Replace the stand-in operators in a captured graph module by ATen's operators, in place."""
    if probe.has(probe.RECURRENT):
        from .replacements.kernels import recurrent

        recurrent.restore_operators(module)


def original_operator(target: Function) -> Function:
    """Return ATen's operator for a stand-in operator of a capture; return other functions unchanged."""
    if not probe.has(probe.RECURRENT):
        return target
    from .replacements.kernels import recurrent

    return recurrent.original_operator(target)


def redirection() -> Callable[[Function, Args, Kwargs], Function]:
    """Return a callable `(func, args, kwargs)` that returns the function to run: another one, or `func`."""
    if not probe.has(probe.RECURRENT):
        return lambda func, args, kwargs: func
    from .replacements.kernels import recurrent

    return recurrent.Redirection()


def _function_gradients() -> Patches:
    if not probe.has(probe.FUNCTION_GRADIENTS):
        return []
    from .replacements.functions import function_gradients

    return [function_gradients.trace_gradients()]


def _disable_profiling() -> AbstractContextManager[None]:
    """Run TorchScript modules without profiling, which would fix the sizes of the first runs."""
    return torch.jit.optimized_execution(False)  # type: ignore[attr-defined]


def _recurrent(redirects: bool) -> Patches:
    if not probe.has(probe.RECURRENT):
        return []
    from .replacements.kernels import recurrent

    return [recurrent.use_recurrent_kernels(redirects)]


def _shapes(losses: bool) -> Patches:
    """Return patches with kernels that compute only the shapes of results.

    Args:
        losses: whether to include the kernels of `ctc_loss`.
    """
    if not probe.has(probe.SHAPE_KERNELS):
        return []
    from .replacements.kernels import (
        composite_sizes,
        fake_quantization,
        gpu_kernels,
        hashing,
        linear_algebra,
        sequence_losses,
    )
    from .replacements.kernels.result_types import corrected_types
    from .replacements.kernels.shape_kernels import use_shape_kernels

    composite = linear_algebra.COMPOSITE | composite_sizes.COMPOSITE
    non_composite = linear_algebra.NON_COMPOSITE | hashing.NON_COMPOSITE | fake_quantization.NON_COMPOSITE
    non_composite |= gpu_kernels.NON_COMPOSITE | composite_sizes.NON_COMPOSITE
    if losses:
        composite |= sequence_losses.COMPOSITE
        non_composite |= sequence_losses.NON_COMPOSITE
    return [use_shape_kernels(composite, non_composite), corrected_types()]


def _conversions() -> Patches:
    """Return the patch for modules that convert (`.to`, `.half`) while their weights are fake tensors."""
    if not probe.has(probe.MODULE_CONVERSIONS):
        return []
    from .replacements.models import module_conversions

    return [module_conversions.convert_fake_weights()]


def _extremes() -> Patches:
    if not probe.has(probe.DIRECT_CAPTURE):
        return []
    from .recording import float_extremes

    return [float_extremes.keep_extremes()]


def _attention() -> AbstractContextManager[None]:
    if not probe.has(probe.CAUSAL_MASKS):
        return transformer_modules.disable_fused_attention()
    return transformer_modules.skip_mask_test()


def _scans(strict: bool) -> Patches:
    if not probe.has(probe.ASSOCIATIVE_SCAN):
        return []
    from .replacements.functions import associative_scan

    return [associative_scan.call_operator(strict=strict)]
