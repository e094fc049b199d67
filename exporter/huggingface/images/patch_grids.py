"""What encoders of images compute from the grids of patches, with tensors.

transformers has most of these functions in `vision_utils`, with loops in Python over the images.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .resized_positions import interpolate, resize_table

if TYPE_CHECKING:
    import torch


class PatchGrids:
    """The patches of images of different sizes, one image after the other.

    The methods in `HELPERS` have the names of functions of transformers that they replace, and their results.

    Args:
        grids: the frames, rows and columns of each image.
        count: the number of patches of all images.

    Attributes:
        segments: for each patch, the number of the group of patches that attend to each other, in layers with
            and without windows.
    """

    def __init__(self, grids: torch.Tensor, count: int):
        self._count = count
        height, width, image, offset = locate_patches(grids, count)
        # The patches of an image and frame attend to each other.
        self.segments = {"image": image * 2**20 + offset // (height * width)}

    def get_vision_position_ids(
        self,
        grid_thw: torch.Tensor,
        spatial_merge_size: int | torch.Tensor,
        include_temporal: bool = False,
        **options: object,
    ) -> torch.Tensor:
        """The row and column of each patch in its image, behind the number of its frame if requested."""
        import torch

        height, width, image, offset = locate_patches(grid_thw, self._count)
        merge = spatial_merge_size if isinstance(spatial_merge_size, int) else spatial_merge_size[image]
        axes = rows_and_columns(offset, height, width, merge)
        return torch.stack([offset // (height * width), *axes] if include_temporal else axes, dim=-1)

    def get_vision_cu_seqlens(
        self, grid_thw: torch.Tensor, merge_temporal: bool = False, **options: object
    ) -> torch.Tensor:
        """The ends of the groups of patches that attend to each other, which only flash attention reads."""
        import torch

        if merge_temporal:
            _, _, self.segments["image"], _ = locate_patches(grid_thw, self._count)
        return torch.nn.functional.pad((grid_thw[:, 1] * grid_thw[:, 2]).cumsum(0), (1, 0))

    def get_vision_attention_seqlens(
        self, grid_thw: torch.Tensor, config: object, merge_temporal: bool = False, **options: object
    ) -> tuple[torch.Tensor, int]:
        """The ends of the groups of patches, and the greatest length, which only flash attention needs."""
        return self.get_vision_cu_seqlens(grid_thw, merge_temporal), 0

    def get_max_seqlen(self, *arguments: object, **options: object) -> int:
        """The greatest length; None would make transformers compute it."""
        return 0

    def get_vision_window_index(
        self,
        grid_thw: torch.Tensor,
        spatial_merge_size: int,
        window_size: int,
        patch_size: int,
        **options: object,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The order of patches, and the windows of these.

        A permutation would need a sort in the graph, and attention does not depend on the order: patches keep
        theirs, and masks say what a window is.
        """
        import torch

        height, width, _, offset = locate_patches(grid_thw, self._count)
        row, column = rows_and_columns(offset, height, width, spatial_merge_size)
        side = spatial_merge_size * (window_size // spatial_merge_size // patch_size)
        windows = (row // side) * 2**10 + column // side
        self.segments["window"] = self.segments["image"] * 2**20 + windows
        return torch.arange(self._count // spatial_merge_size**2), self.segments["window"]

    def get_vision_interpolation_indices_and_weights(
        self,
        grid_thw: torch.Tensor,
        num_grid_per_side: int,
        mode: str = "bilinear",
        align_corners: bool = False,
        spatial_merge_size: int = 1,
        padding: str = "border",
        **options: object,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """For each patch, the entries of a table of positions that it takes, and their weights."""
        height, width, _, offset = locate_patches(grid_thw, self._count)
        row, column = rows_and_columns(offset, height, width, spatial_merge_size)
        rows, row_weights = interpolate(row, height, num_grid_per_side, align_corners, mode, padding)
        columns, column_weights = interpolate(column, width, num_grid_per_side, align_corners, mode, padding)
        indices = rows[:, :, None] * num_grid_per_side + columns[:, None]
        return indices.flatten(1), (row_weights[:, :, None] * column_weights[:, None]).flatten(1)

    def get_vision_frame_index(self, grid_thw: torch.Tensor, **options: object) -> torch.Tensor:
        """The number of the frame of each patch, from 1 on; 0 in images of one frame."""
        import torch

        height, width, image, offset = locate_patches(grid_thw, self._count)
        return torch.where(grid_thw[image, 0] > 1, offset // (height * width) + 1, 0)

    def get_vision_temporal_merge_index(
        self, grid_thw: torch.Tensor, kernel_height: int, kernel_width: int, **options: object
    ) -> torch.Tensor:
        """The patches of each feature, `[features, frames, patches]`, for images of one frame."""
        import torch

        kernel = torch.tensor([1, kernel_height, kernel_width])
        features = self._count // (kernel_height * kernel_width)
        _, columns, image, offset = locate_patches(grid_thw // kernel, features)
        sizes = grid_thw.prod(1)
        start = (sizes.cumsum(0) - sizes)[image]
        width = columns * kernel_width
        first = start + (offset // columns) * kernel_height * width + (offset % columns) * kernel_width
        rows = torch.arange(kernel_height)[:, None] * width[:, None, None]
        return (first[:, None, None] + rows + torch.arange(kernel_width)).flatten(1)[:, None]

    def get_vision_pixel_shuffle_index(
        self, grid_thw: torch.Tensor, merge_size: int, **options: object
    ) -> torch.Tensor:
        """The patches in the order of the blocks that become one feature."""
        import torch

        height, width, _, offset = locate_patches(grid_thw, self._count)
        row, column = rows_and_columns(offset, height, width, merge_size)
        first_of_frame = torch.arange(self._count) - offset % (height * width)
        return first_of_frame + row * width + column

    def resize_positional_embeddings(
        self, positional_embeddings: torch.Tensor, grid_thw: torch.Tensor, spatial_merge_size: int
    ) -> torch.Tensor:
        """The position of each patch, from a table that is resized to its image."""
        height, width, _, offset = locate_patches(grid_thw, self._count)
        row, column = rows_and_columns(offset, height, width, spatial_merge_size)
        return resize_table(positional_embeddings, row, height, column, width)

    def pixel_unshuffle(
        self, hidden_states: torch.Tensor, grid_thw: torch.Tensor, merge_sizes: torch.Tensor
    ) -> torch.Tensor:
        """One state for each block of patches: that of its middle, between the patches there."""
        import torch

        _, _, image, offset = locate_patches(grid_thw, self._count)
        merge = merge_sizes[image]
        is_first = offset % merge**2 == 0
        first, side = torch.arange(self._count)[is_first], merge[is_first]
        middle = torch.stack([(side - 1) // 2, side // 2], dim=1)
        inner = middle[:, :, None] * side[:, None, None] + middle[:, None]
        return hidden_states[first[:, None] + inner.flatten(1)].mean(dim=1)


HELPERS = tuple(name for name in vars(PatchGrids) if not name.startswith("_"))
"""The names of functions of transformers, and of methods of encoders."""


def locate_patches(
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


def rows_and_columns(
    offset: torch.Tensor, height: torch.Tensor, width: torch.Tensor, merge: int | torch.Tensor
) -> list[torch.Tensor]:
    """The row and column of each patch; the patches of a block, which is merged, follow each other."""
    block, inner = (offset % (height * width)) // merge**2, offset % merge**2
    blocks = width // merge
    return [(block // blocks) * merge + inner // merge, (block % blocks) * merge + inner % merge]
