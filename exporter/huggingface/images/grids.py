"""Images as patches in grids of any size, as Qwen2-VL reads them: `pixel_values` and `image_grid_thw`.

transformers computes the positions of patches with loops in Python over the images, and splits attention by
image. Here all of it is computed from the grids in the graph, so the number and sizes of images are dynamic.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from ....registration import UsageError
from ..caches.shared_buffers import attention_replaced
from ..graphs import ExampleCall, Inputs, Pairs, TaskModel, random_tensor, trial_run
from .resized_positions import interpolate, resize_table

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

GRID = "grid_thw"
GRIDS, FEATURES, DEEPSTACK_FEATURES = "image_grid_thw", ("image_features",), "deepstack_features"
GRID_ARGUMENTS = frozenset(
    {
        GRIDS,
        "second_per_grid_ts",
        "mm_token_type_ids",
        "rope_deltas",
    }
)
"""What models with grids read of images and videos; their decoders read embeddings and positions instead."""
PATCHES, IMAGES = "num_patches", "num_images"
_BLOCKS = ((2, 3), (4, 1), (1, 2))
"""The rows and columns of the images of the example, in blocks of merged patches."""
_SIZES = (("spatial_merge_size",), ("patch_size",), ("in_channels", "num_channels"))
"""What the configuration of an encoder needs, under one of some names."""
_MEMBERS = ("pooler_output", "last_hidden_state")
"""The members of an encoder's result that models make features of."""
SEGMENTS = "opsetta_flash_segments"
"""The name of an attention; because of "flash", transformers leaves the images to it as segments."""


def grid_encoder(model: PreTrainedModel) -> torch.nn.Module | None:
    """The part of a model that reads patches and grids; None if it has none."""
    for module in model.modules():
        if GRID in inspect.signature(type(module).forward).parameters:
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
    inputs = dict(zip(("pixel_values", GRIDS), _example_images(encoder, source.model.dtype), strict=True))
    path: _FeaturesPath | None = trial_run(source.model, inputs, use_cache=False, call=_follow_features)
    if path is None:
        raise UsageError(
            f"{type(source.model).__name__} changes the features of its {type(encoder).__name__}, which "
            "image-text-to-text does not support: export its parts with opsetta.huggingface and "
            "export_for_generation"
        )
    outputs = (*FEATURES, DEEPSTACK_FEATURES) if path.layers else FEATURES
    axes = {"pixel_values": {0: PATCHES}, GRIDS: {0: IMAGES}}
    call = functools.partial(_encode, path=path)
    return ExampleCall(call, inputs, other_axes=axes, outputs=outputs), path.layers


def _example_images(encoder: torch.nn.Module, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """The patches and the grids of images of different sizes.

    Raises:
        UsageError: the configuration of the encoder has other sizes.
    """
    import torch

    config = cast("Any", encoder.config)
    missing = next((names for names in _SIZES if not any(hasattr(config, name) for name in names)), None)
    if missing is not None:
        raise UsageError(
            f"the configuration of {type(encoder).__name__} has no {' or '.join(missing)}, from which an "
            "example of images is made: export its parts with opsetta.huggingface and export_for_generation"
        )
    merge = config.spatial_merge_size
    grids = torch.tensor([[1, rows * merge, columns * merge] for rows, columns in _BLOCKS])
    # A patch has all pixels of some frames, one after the other; sizes may be a number or one for each axis.
    sides = config.patch_size if isinstance(config.patch_size, (list, tuple)) else [config.patch_size] * 2
    channels = getattr(config, "in_channels", None) or config.num_channels
    width = channels * getattr(config, "temporal_patch_size", 1) * math.prod(sides)
    return random_tensor(int(grids.prod(1).sum()), width, dtype=dtype), grids


def features_call(source: TaskModel) -> ExampleCall:
    """The call of an encoder of images by itself.

    It gives the merged features, since windows change the order of the others; or those of an encoder that
    merges none.
    """
    model = source.model
    patches = next(name for name in inspect.signature(type(model).forward).parameters if name != "self")
    pixels, grids = _example_images(model, model.dtype)
    inputs = {patches: pixels, GRID: grids}
    merged = getattr(trial_run(model, inputs, use_cache=False), "pooler_output", None) is not None
    output = "pooler_output" if merged else "last_hidden_state"

    def call(model: PreTrainedModel, inputs: Inputs, past: Pairs) -> torch.Tensor:
        with _computed_in_graph(model, inputs[GRID], inputs[patches].shape[0]):
            features: torch.Tensor = type(model).forward(model, inputs[patches], inputs[GRID])[output]
        return features

    axes = {patches: {0: PATCHES}, GRID: {0: IMAGES}}
    return ExampleCall(call, inputs, other_axes=axes, outputs=(output,))


@dataclasses.dataclass(frozen=True)
class _FeaturesPath:
    """How a model makes the features of images of the result of its encoder.

    Attributes:
        member: of the result.
        projector: the name of the module that the member goes through; None if it is the features themselves.
        joins_axes: whether the projector reads the first two axes of the member as one.
        layers: the number of features for inner layers.
    """

    member: str
    projector: str | None
    joins_axes: bool
    layers: int


def _follow_features(model: PreTrainedModel, **inputs: torch.Tensor) -> _FeaturesPath | None:
    """How a model makes the features of images; None if it does more than to call one module."""
    encoder = grid_encoder(model)
    assert encoder is not None
    members: dict[str, torch.Tensor] = {}
    layers = 0
    calls: list[tuple[str, torch.Tensor, torch.Tensor]] = []

    def record_encoder(module: torch.nn.Module, arguments: object, result: Any) -> None:
        nonlocal layers
        # transformers replaces the members of this result.
        members.update((name, result[name]) for name in _MEMBERS if result.get(name) is not None)
        layers = len(getattr(result, DEEPSTACK_FEATURES, None) or ())

    def record(name: str, module: torch.nn.Module, arguments: object, options: object, result: Any) -> None:
        match arguments, options:
            case (torch.Tensor() as argument,), {} if members and isinstance(result, torch.Tensor):
                calls.append((name, argument, result))

    import torch

    with contextlib.ExitStack() as stack:
        stack.callback(encoder.register_forward_hook(record_encoder).remove)
        for name, module in model.named_modules():
            hook = functools.partial(record, name)
            stack.callback(module.register_forward_hook(hook, with_kwargs=True).remove)
        features = getattr(model, "get_image_features")(**inputs).pooler_output  # noqa: B009
    for member, whole in members.items():
        # transformers splits the features by image: the parts share the memory of the whole.
        if _are_same(features, whole):
            return _FeaturesPath(member, None, False, layers)
        for name, argument, result in calls:
            if _are_same([argument], whole) and _are_same(features, result):
                return _FeaturesPath(member, name, argument.ndim < whole.ndim, layers)
    return None


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
    with _computed_in_graph(encoder, inputs[GRIDS], inputs["pixel_values"].shape[0]):
        result = encoder(inputs["pixel_values"].to(model.dtype), inputs[GRIDS])
    deepstack = getattr(result, DEEPSTACK_FEATURES, None)
    features: torch.Tensor = result[path.member]
    if path.projector is not None:
        projected = model.get_submodule(path.projector)(
            features.flatten(0, 1) if path.joins_axes else features
        )
        features = projected.reshape(-1, projected.shape[-1])
    return (features, torch.stack(list(deepstack))) if deepstack else features


@contextlib.contextmanager
def _computed_in_graph(encoder: torch.nn.Module, grids: torch.Tensor, count: int) -> Iterator[None]:
    """Within the context, an encoder computes with tensors what depends on the grids.

    Args:
        encoder: that reads patches.
        grids: the frames, rows and columns of each image.
        count: the number of patches of all images.
    """
    import torch

    from ...torch_boundary.process.process_state import replace_attribute

    height, width, image, offset = _locate_patches(grids, count)
    # The patches of an image and frame attend to each other, and in layers with windows those of a window.
    segments = {"image": image * 2**20 + offset // (height * width)}

    def get_vision_position_ids(
        grid_thw: torch.Tensor, spatial_merge_size: int, **options: object
    ) -> torch.Tensor:
        return torch.stack(_rows_and_columns(offset, height, width, spatial_merge_size), dim=-1)

    def get_vision_attention_seqlens(
        grid_thw: torch.Tensor, config: object, **options: object
    ) -> tuple[torch.Tensor, int]:
        ends = (grid_thw[:, 1] * grid_thw[:, 2]).cumsum(0)
        return torch.nn.functional.pad(ends, (1, 0)), 0

    # Only kernels of flash attention need the greatest length; None would make transformers compute it.
    def get_max_seqlen(*arguments: object, **options: object) -> int:
        return 0

    def get_vision_window_index(
        grid_thw: torch.Tensor, spatial_merge_size: int, window_size: int, patch_size: int, **options: object
    ) -> tuple[torch.Tensor, torch.Tensor]:
        # A permutation would need a sort in the graph, and attention does not depend on the order.
        # Patches keep their order: masks say what a window is.
        row, column = _rows_and_columns(offset, height, width, spatial_merge_size)
        side = spatial_merge_size * (window_size // spatial_merge_size // patch_size)
        windows = (row // side) * 2**10 + column // side
        segments["window"] = segments["image"] * 2**20 + windows
        return torch.arange(count // spatial_merge_size**2), segments["window"]

    def get_vision_interpolation_indices_and_weights(
        grid_thw: torch.Tensor,
        num_grid_per_side: int,
        mode: str = "bilinear",
        align_corners: bool = False,
        spatial_merge_size: int = 1,
        padding: str = "border",
        **options: object,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        if (mode, padding) != ("bilinear", "border"):
            raise UsageError(f"positions by {mode} interpolation with {padding} are not supported")
        row, column = _rows_and_columns(offset, height, width, spatial_merge_size)
        rows, row_weights = interpolate(row, height, num_grid_per_side, align_corners)
        columns, column_weights = interpolate(column, width, num_grid_per_side, align_corners)
        indices = rows[:, :, None] * num_grid_per_side + columns[:, None]
        return indices.flatten(1), (row_weights[:, :, None] * column_weights[:, None]).flatten(1)

    def resize_positional_embeddings(
        positional_embeddings: torch.Tensor, grid_thw: torch.Tensor, spatial_merge_size: int
    ) -> torch.Tensor:
        row, column = _rows_and_columns(offset, height, width, spatial_merge_size)
        return resize_table(positional_embeddings, row, height, column, width)

    module = sys.modules[type(encoder).__module__]
    helpers: tuple[Callable[..., object], ...] = (
        get_vision_position_ids,
        get_vision_attention_seqlens,
        get_max_seqlen,
        get_vision_window_index,
        get_vision_interpolation_indices_and_weights,
    )
    with contextlib.ExitStack() as stack:
        for helper in helpers:
            # A model imports those that it uses into its own module.
            if hasattr(module, helper.__name__):
                stack.enter_context(replace_attribute(module, helper.__name__, helper))
        for part in encoder.modules():
            if hasattr(part, "resize_positional_embeddings"):
                stack.enter_context(
                    replace_attribute(part, "resize_positional_embeddings", resize_positional_embeddings)
                )
        attend = functools.partial(attend_in_segments, segments)
        stack.enter_context(attention_replaced(encoder.config, attend, SEGMENTS))
        yield


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


def _locate_patches(
    grids: torch.Tensor, count: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """For each patch the height and width of its image, the image's number, and the patch's number in it."""
    import torch

    patches = torch.arange(count)
    sizes = grids.prod(1)
    ends = sizes.cumsum(0)
    # `repeat_interleave` would have a size that depends on values.
    image = (patches[:, None] >= ends).sum(1)
    return grids[image, 1], grids[image, 2], image, patches - (ends - sizes)[image]


def _rows_and_columns(
    offset: torch.Tensor, height: torch.Tensor, width: torch.Tensor, merge: int
) -> list[torch.Tensor]:
    """The row and column of each patch; the patches of a block, which is merged, follow each other."""
    block, inner = (offset % (height * width)) // merge**2, offset % merge**2
    blocks = width // merge
    return [(block // blocks) * merge + inner // merge, (block % blocks) * merge + inner % merge]
