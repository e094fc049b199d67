"""Images as patches in grids of any size, as Qwen2-VL reads them: `pixel_values` and `image_grid_thw`.

transformers computes the positions of patches with loops in Python over the images, and splits attention by
image. Here all of it is computed from the grids in the graph, so the number and sizes of images are dynamic.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from ....registration import UsageError
from ..caches.shared_buffers import attention_replaced
from ..graphs import ExampleCall, Inputs, Pairs, TaskModel, random_tensor, trial_run
from .grid_encoders import FORWARDS
from .patch_grids import HELPERS, PatchGrids

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

GRID = "grid_thw"
GRIDS, FEATURES, DEEPSTACK_FEATURES = "image_grid_thw", ("image_features",), "deepstack_features"
MERGES = "image_merge_sizes"
"""For each image, the rows and columns of the patches that become one feature, where images may differ."""
GRID_ARGUMENTS = frozenset(
    {
        GRIDS,
        MERGES,
        "second_per_grid_ts",
        "mm_token_type_ids",
        "rope_deltas",
    }
)
"""What models with grids read of images and videos; their decoders read embeddings and positions instead."""
PATCHES, IMAGES = "num_patches", "num_images"
_BLOCKS = ((2, 3), (4, 1), (1, 2))
"""The rows and columns of the images of the example, in blocks of merged patches."""
_MERGE_NAMES = ("spatial_merge_size", "merge_size", "merge_kernel_size")
_SIZES = (_MERGE_NAMES, ("patch_size",), ("in_channels", "num_channels"))
"""What the configuration of an encoder needs, under one of some names."""
_FRAME_NAMES = ("temporal_patch_size", "patch_temporal")
"""The names of the number of frames of a patch; without any, it is one."""
_READS_AXES = ("Kimi_K25VisionModel",)
"""Encoders that read patches with their axes, and not as rows of numbers."""
_READS_BLOCKS = ("Inkling2VisionModel",)
"""Encoders that read the pixels of the patches that become one feature together, and grids of these."""
_READS_COLORS = (*_READS_AXES, "MuseSparkVisionModel", "MuseGlimmerVisionModel")
"""Encoders that read three channels, whatever their configuration says."""
ENCODER_MERGES = "merge_sizes"
"""The name of `MERGES` for the encoder."""
_READS_MERGES = ("VideoLlama3VisionModel",)
"""Encoders that read `MERGES`."""
_EXAMPLE_MERGE = 2
_MEMBERS = ("pooler_output", "last_hidden_state")
"""The members of an encoder's result that models make features of."""
SEGMENTS = "opsetta_flash_segments"
"""The name of an attention; because of "flash", transformers leaves the images to it as segments."""


def grid_encoder(model: PreTrainedModel) -> torch.nn.Module | None:
    """The part of a model that reads patches and grids; None if it has none."""
    for module in model.modules():
        parameters = inspect.signature(type(module).forward).parameters
        if GRID in parameters or type(module).__name__ in _READS_BLOCKS:
            return module
    return None


def encode_call(source: TaskModel, encoder: torch.nn.Module) -> tuple[ExampleCall, int]:
    """The call that gives the features of images, and the number of layers with features for inner layers.

    Args:
        source: the model.
        encoder: its part that reads patches.

    Raises:
        UsageError: it computes features with more than this part.
    """
    pixels, grids = _example_images(encoder, source.model.dtype)
    inputs = {"pixel_values": pixels, GRIDS: grids}
    if type(encoder).__name__ in _READS_MERGES:
        inputs[MERGES] = _example_merges()
    path: _FeaturesPath | None = trial_run(source.model, inputs, use_cache=False, call=_follow_features)
    if path is None:
        raise UsageError(
            f"{type(source.model).__name__} changes the features of its {type(encoder).__name__}, which "
            "image-text-to-text does not support: export its parts with opsetta.huggingface and "
            "export_for_generation"
        )
    outputs = (*FEATURES, DEEPSTACK_FEATURES) if path.layers else FEATURES
    axes = {"pixel_values": {0: PATCHES}, GRIDS: {0: IMAGES}, MERGES: {0: IMAGES}}
    call = functools.partial(_encode, path=path)
    return ExampleCall(call, inputs, other_axes=axes, outputs=outputs), path.layers


def _example_images(encoder: torch.nn.Module, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """The patches and the grids of images of different sizes.

    Raises:
        UsageError: the configuration of the encoder has other sizes.
    """
    import torch

    config = cast("Any", encoder.config)
    sizes: list[Any] = [
        next((getattr(config, name) for name in names if hasattr(config, name)), None) for names in _SIZES
    ]
    if type(encoder).__name__ in _READS_COLORS:
        sizes[2] = 3
    if type(encoder).__name__ in _READS_MERGES:
        sizes[0] = _EXAMPLE_MERGE
    if None in sizes:
        raise UsageError(
            f"the configuration of {type(encoder).__name__} has no {' or '.join(_SIZES[sizes.index(None)])}, "
            "from which an example of images is made: export its parts with opsetta.huggingface and "
            "export_for_generation"
        )
    # A patch has all pixels of some frames, one after the other; sizes may be a number or one for each axis.
    rows, columns, *sides = [
        side for size in sizes[:2] for side in (size if isinstance(size, (list, tuple)) else [size] * 2)
    ]
    blocks = torch.tensor([[1, *block] for block in _BLOCKS])
    if type(encoder).__name__ in _READS_BLOCKS:
        height, width = rows * sides[0], columns * sides[1]
        return random_tensor(int(blocks.prod(1).sum()), height, width, sizes[2], dtype=dtype), blocks
    grids = blocks * torch.tensor([1, rows, columns])
    frames = next((getattr(config, name) for name in _FRAME_NAMES if hasattr(config, name)), 1)
    shape = (int(grids.prod(1).sum()), frames * sizes[2], *sides)
    pixels = random_tensor(*shape, dtype=dtype)
    # Encoders that convolve patches as they are read them with their axes.
    return pixels if type(encoder).__name__ in _READS_AXES else pixels.flatten(1), grids


def _example_merges() -> torch.Tensor:
    """The rows and columns of the patches of each image of the example that become one feature."""
    import torch

    return torch.tensor([_EXAMPLE_MERGE, _EXAMPLE_MERGE, 1])


def features_call(source: TaskModel) -> ExampleCall:
    """The call of an encoder of images by itself.

    It gives the merged features, since windows change the order of the others; or those of an encoder that
    merges none.
    """
    model = source.model
    _, patches, grid, *_ = inspect.signature(type(model).forward).parameters
    pixels, grids = _example_images(model, model.dtype)
    inputs = {patches: pixels, grid: grids}
    if type(model).__name__ in _READS_MERGES:
        inputs[ENCODER_MERGES] = _example_merges()
    merged = getattr(trial_run(model, inputs, use_cache=False), "pooler_output", None) is not None
    output = "pooler_output" if merged else "last_hidden_state"

    def call(model: PreTrainedModel, inputs: Inputs, past: Pairs) -> torch.Tensor:
        with _computed_in_graph(model, inputs[grid], inputs[patches].shape[0]) as forward:
            features: torch.Tensor = forward(**inputs)[output]
        return features

    axes = {patches: {0: PATCHES}, grid: {0: IMAGES}, ENCODER_MERGES: {0: IMAGES}}
    return ExampleCall(call, inputs, other_axes=axes, outputs=(output,))


@dataclasses.dataclass(frozen=True)
class _FeaturesPath:
    """How a model makes the features of images of the result of its encoder.

    Attributes:
        member: of the result.
        modules: the names of the modules that the member goes through, one after the other; none if it is the
            features themselves. True with a name if the module also reads the grids.
        joins_axes: whether the first of them reads the first two axes of the member as one.
        layers: the number of features for inner layers.
    """

    member: str
    modules: tuple[tuple[str, bool], ...]
    joins_axes: bool
    layers: int


def _follow_features(model: PreTrainedModel, **inputs: torch.Tensor) -> _FeaturesPath | None:
    """How a model makes the features of images; None if it does more than to call some modules."""
    encoder = grid_encoder(model)
    assert encoder is not None
    members: dict[str, torch.Tensor] = {}
    layers = 0
    calls: list[tuple[str, tuple[torch.Tensor, ...], torch.Tensor]] = []

    def record_encoder(module: torch.nn.Module, arguments: object, result: Any) -> None:
        nonlocal layers
        # transformers replaces the members of this result.
        members.update((name, result[name]) for name in _MEMBERS if result.get(name) is not None)
        layers = len(getattr(result, DEEPSTACK_FEATURES, None) or ())

    def record(name: str, module: torch.nn.Module, arguments: object, options: object, result: Any) -> None:
        match arguments, options:
            case (torch.Tensor(), *_), {} if members and isinstance(result, torch.Tensor):
                calls.append((name, cast("tuple[torch.Tensor, ...]", arguments), result))

    import torch

    with contextlib.ExitStack() as stack:
        stack.callback(encoder.register_forward_hook(record_encoder).remove)
        for name, module in model.named_modules():
            hook = functools.partial(record, name)
            stack.callback(module.register_forward_hook(hook, with_kwargs=True).remove)
        features = getattr(model, "get_image_features")(**inputs).pooler_output  # noqa: B009
    modules: list[tuple[str, bool]] = []
    argument: torch.Tensor | None = None
    while True:
        for member, whole in members.items():
            # transformers splits the features by image: the parts share the memory of the whole.
            if _are_same(features, whole):
                joins_axes = argument is not None and argument.ndim < whole.ndim
                return _FeaturesPath(member, tuple(modules), joins_axes, layers)
        # The call of a module follows those of its parts, of which the last has the same result.
        call = next((call for call in reversed(calls) if _are_same(features, call[2])), None)
        if call is None or not all(item is inputs[GRIDS] for item in call[1][1:]):
            return None
        calls = calls[: calls.index(call)]
        argument = call[1][0]
        modules.insert(0, (call[0], len(call[1]) > 1))
        features = [argument]


def _are_same(parts: Sequence[torch.Tensor], whole: torch.Tensor) -> bool:
    """Whether tensors are the parts of another one: views of its memory, with all of its elements."""
    memories = {part.untyped_storage().data_ptr() for part in parts}
    return (
        memories == {whole.untyped_storage().data_ptr()}
        and sum(part.numel() for part in parts) == whole.numel()
    )


def _encode(
    model: PreTrainedModel, inputs: Inputs, past: Pairs, *, path: _FeaturesPath
) -> torch.Tensor | tuple[torch.Tensor, ...]:
    """The features of all images, one after the other: `[positions, width]`; then those of inner layers."""
    import torch

    encoder = grid_encoder(model)
    assert encoder is not None
    merges = [inputs[MERGES]] if MERGES in inputs else []
    with _computed_in_graph(encoder, inputs[GRIDS], inputs["pixel_values"].shape[0]):
        result = encoder(inputs["pixel_values"].to(model.dtype), inputs[GRIDS], *merges)
        deepstack = getattr(result, DEEPSTACK_FEATURES, None)
        features: torch.Tensor = result[path.member]
        if path.joins_axes:
            features = features.flatten(0, 1)
        for name, reads_grids in path.modules:
            features = model.get_submodule(name)(features, *([inputs[GRIDS]] if reads_grids else []))
    features = features.reshape(-1, features.shape[-1])
    return (features, torch.stack(list(deepstack))) if deepstack else features


@contextlib.contextmanager
def _computed_in_graph(
    encoder: torch.nn.Module, grids: torch.Tensor, count: int
) -> Iterator[Callable[..., Any]]:
    """Within the context, an encoder computes with tensors what depends on the grids; yields its `forward`.

    Args:
        encoder: that reads patches.
        grids: the frames, rows and columns of each image.
        count: the number of patches of all images.
    """
    import torch

    from ...torch_boundary.process.process_state import replace_attribute

    if type(encoder).__name__ in _READS_BLOCKS:
        merge = cast("Any", encoder.config).spatial_merge_size
        grids, count = grids * torch.tensor([1, merge, merge]), count * merge**2
    patches = PatchGrids(grids, count)
    forward: Callable[..., Any] = functools.partial(type(encoder).forward, encoder)
    with contextlib.ExitStack() as stack:
        if type(encoder).__name__ in FORWARDS:
            forward = FORWARDS[type(encoder).__name__](encoder, patches)
            stack.enter_context(replace_attribute(encoder, "forward", forward))
        # A model imports those functions that it uses into its own module, and others are methods of a part.
        for owner in (sys.modules[type(encoder).__module__], *encoder.modules()):
            for name in HELPERS:
                if hasattr(owner, name):
                    stack.enter_context(replace_attribute(owner, name, getattr(patches, name)))
        attend = functools.partial(attend_in_segments, patches.segments)
        stack.enter_context(attention_replaced(encoder.config, attend, SEGMENTS))
        yield forward


def attend_in_segments(
    segments: Mapping[str, torch.Tensor],
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    scaling: float,
    cu_seq_lens_q: torch.Tensor,
    **options: object,
) -> tuple[torch.Tensor, None]:
    """Attention of transformers in which each patch attends to those of its segment.

    Args:
        segments: the number of the segment of each patch, by image, and by window where layers have windows.
        module, query, key, value, attention_mask, scaling, options: as transformers passes them.
        cu_seq_lens_q: the ends of images, or the segments of windows.
    """
    import torch

    # Layers with windows pass the second result of `get_vision_window_index`.
    segment = segments["window" if cu_seq_lens_q is segments.get("window") else "image"]
    mask = segment[:, None] == segment
    output = torch.nn.functional.scaled_dot_product_attention(
        query, key, value, mask, scale=scaling, enable_gqa=query.shape[1] != key.shape[1]
    )
    return output.transpose(1, 2), None
