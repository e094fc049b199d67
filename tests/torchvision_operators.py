"""torchvision's operators where torchvision is not installed; their kernels are loops over numbers.

Schemas and semantics: torchvision/csrc/ops. torchvision's own binaries need the build of torch that they were
made with.
"""

import math

import numpy as np
import torch

SCHEMAS = {
    "nms": "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "roi_align": "(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width,"
    " int sampling_ratio, bool aligned) -> Tensor",
    "roi_pool": "(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width)"
    " -> (Tensor, Tensor)",
    "ps_roi_align": "(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height,"
    " SymInt pooled_width, int sampling_ratio) -> (Tensor, Tensor)",
    "ps_roi_pool": "(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height,"
    " SymInt pooled_width) -> (Tensor, Tensor)",
    "deform_conv2d": "(Tensor input, Tensor weight, Tensor offset, Tensor mask, Tensor bias, SymInt stride_h,"
    " SymInt stride_w, SymInt pad_h, SymInt pad_w, SymInt dilation_h, SymInt dilation_w, SymInt groups,"
    " SymInt offset_groups, bool use_mask) -> Tensor",
}


def _nms(dets: torch.Tensor, scores: torch.Tensor, iou_threshold: float) -> torch.Tensor:
    boxes, kept, suppressed = dets.numpy(), [], set()
    areas = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    order = torch.sort(scores, descending=True, stable=True).indices.tolist()
    for number, i in enumerate(order):
        if i in suppressed:
            continue
        kept.append(i)
        for j in order[number + 1 :]:
            sides = np.minimum(boxes[i, 2:], boxes[j, 2:]) - np.maximum(boxes[i, :2], boxes[j, :2])
            common = np.maximum(sides, 0).prod()
            with np.errstate(invalid="ignore"):
                if common / (areas[i] + areas[j] - common) > iou_threshold:
                    suppressed.add(j)
    return torch.tensor(kept, dtype=torch.int64)


def _bilinear(plane: np.ndarray, y: float, x: float) -> float:
    """A sample as RoiAlign takes it: up to one pixel outside, the edge continues."""
    height, width = plane.shape
    if not (-1 <= y <= height and -1 <= x <= width):
        return 0.0
    y, x = min(max(y, 0), height - 1), min(max(x, 0), width - 1)
    return _bilinear_in_zeros(plane, y, x)


def _bilinear_in_zeros(plane: np.ndarray, y: float, x: float) -> float:
    height, width = plane.shape
    total, top, left = 0.0, math.floor(y), math.floor(x)
    for row, row_weight in ((top, 1 - (y - top)), (top + 1, y - top)):
        for column, weight in ((left, 1 - (x - left)), (left + 1, x - left)):
            if 0 <= row < height and 0 <= column < width:
                total += row_weight * weight * plane[row, column]
    return total


def _align(
    plane: np.ndarray, roi: np.ndarray, bins: tuple[int, int], ratio: int, aligned: bool
) -> np.ndarray:
    (x1, y1, x2, y2), shift = roi, 0.5 if aligned else 0.0
    sizes = [y2 - y1, x2 - x1]
    sizes = sizes if aligned else [max(size, 1.0) for size in sizes]
    steps = [size / count for size, count in zip(sizes, bins, strict=True)]
    grid = [ratio if ratio > 0 else math.ceil(step) for step in steps]
    result = np.zeros(bins)
    for row, column in np.ndindex(*bins):
        samples = [
            _bilinear(
                plane,
                y1 - shift + (row + (i + 0.5) / grid[0]) * steps[0],
                x1 - shift + (column + (j + 0.5) / grid[1]) * steps[1],
            )
            for i in range(grid[0])
            for j in range(grid[1])
        ]
        result[row, column] = sum(samples) / max(len(samples), 1)
    return result


def _round(x: float) -> int:
    return int(math.copysign(math.floor(abs(x) + 0.5), x))


def _bin_windows(roi: np.ndarray, bins: tuple[int, int], sizes: tuple[int, int], added: int, removed: int):
    """The slices of every bin's pixels."""
    x1, y1, x2, y2 = (_round(edge) for edge in roi)
    edges = []
    for start, end, count, size in ((y1, y2, bins[0], sizes[0]), (x1, x2, bins[1], sizes[1])):
        step = np.float32(max(end - start + added, 1)) / np.float32(count)
        edges.append(
            [
                tuple(
                    min(max(int(edge) + start, 0), size - removed)
                    for edge in (math.floor(np.float32(i) * step), math.ceil(np.float32(i + 1) * step))
                )
                for i in range(count)
            ]
        )
    return [[(slice(*rows), slice(*columns)) for columns in edges[1]] for rows in edges[0]]


def _roi_align(input, rois, spatial_scale, pooled_height, pooled_width, sampling_ratio, aligned):
    bins = (pooled_height, pooled_width)
    result = input.new_zeros(len(rois), input.shape[1], *bins)
    for k, roi in enumerate(rois.numpy()):
        for c in range(input.shape[1]):
            plane = input[int(roi[0]), c].numpy()
            pooled = _align(plane, roi[1:] * spatial_scale, bins, sampling_ratio, aligned)
            result[k, c] = torch.from_numpy(pooled)
    return result


def _channel_mapping(input, rois, bins):
    mapping = torch.arange(input.shape[1], dtype=torch.int32).reshape(1, -1, *bins)
    return mapping.repeat(len(rois), 1, 1, 1)


def _ps_roi_align(input, rois, spatial_scale, pooled_height, pooled_width, sampling_ratio):
    bins = (pooled_height, pooled_width)
    mapping = _channel_mapping(input, rois, bins)
    result = input.new_zeros(mapping.shape)
    for k, c, i, j in np.ndindex(*mapping.shape):
        plane = input[int(rois[k, 0]), mapping[k, c, i, j]].numpy()
        roi = rois[k, 1:].numpy() * spatial_scale
        result[k, c, i, j] = _align(plane, roi, bins, sampling_ratio, aligned=True)[i, j]
    return result, mapping


def _roi_pool(input, rois, spatial_scale, pooled_height, pooled_width):
    shape = (len(rois), input.shape[1], pooled_height, pooled_width)
    result, positions = input.new_zeros(shape), torch.full(shape, -1, dtype=torch.int32)
    width = input.shape[3]
    for k, roi in enumerate(rois.numpy()):
        windows = _bin_windows(roi[1:] * spatial_scale, shape[2:], input.shape[2:], 1, 0)
        for c, i, j in np.ndindex(*shape[1:]):
            rows, columns = windows[i][j]
            pixels = input[int(roi[0]), c][rows, columns]
            if pixels.numel():
                row, column = np.unravel_index(pixels.numpy().argmax(), pixels.shape)
                result[k, c, i, j] = pixels.max()
                positions[k, c, i, j] = (rows.start + row) * width + columns.start + column
    return result, positions


def _ps_roi_pool(input, rois, spatial_scale, pooled_height, pooled_width):
    bins = (pooled_height, pooled_width)
    mapping = _channel_mapping(input, rois, bins)
    result = input.new_zeros(mapping.shape)
    for k, c, i, j in np.ndindex(*mapping.shape):
        windows = _bin_windows(rois[k, 1:].numpy() * spatial_scale, bins, input.shape[2:], 0, 1)
        pixels = input[int(rois[k, 0]), mapping[k, c, i, j]][windows[i][j]]
        result[k, c, i, j] = pixels.mean() if pixels.numel() else 0.0
    return result, mapping


def _deform_conv2d(
    input, weight, offset, mask, bias, sh, sw, ph, pw, dh, dw, groups, offset_groups, use_mask
):
    n, channels = input.shape[:2]
    out_channels, _, kh, kw = weight.shape
    out_h, out_w = offset.shape[2:]
    columns = np.zeros((n, channels, kh, kw, out_h, out_w))
    offsets = offset.reshape(n, offset_groups, kh, kw, 2, out_h, out_w).numpy()
    factors = mask.reshape(n, offset_groups, kh, kw, out_h, out_w).numpy() if use_mask else None
    for b, c, i, j, oy, ox in np.ndindex(*columns.shape):
        group = c // (channels // offset_groups)
        y = oy * sh - ph + i * dh + offsets[b, group, i, j, 0, oy, ox]
        x = ox * sw - pw + j * dw + offsets[b, group, i, j, 1, oy, ox]
        value = _bilinear_in_zeros(input[b, c].numpy(), float(y), float(x))
        columns[b, c, i, j, oy, ox] = value * (1.0 if factors is None else factors[b, group, i, j, oy, ox])
    rows = torch.from_numpy(columns).to(input.dtype).reshape(n, groups, -1, out_h * out_w)
    product = weight.reshape(groups, out_channels // groups, -1) @ rows
    return product.reshape(n, out_channels, out_h, out_w) + bias.reshape(1, -1, 1, 1)


def _nms_shape(dets, scores, iou_threshold):
    return dets.new_empty(torch.library.get_ctx().new_dynamic_size(), dtype=torch.int64)


def _region_shape(input, rois, spatial_scale, pooled_height, pooled_width, *_):
    return input.new_empty(rois.shape[0], input.shape[1], pooled_height, pooled_width)


def _pooled_shape(input, rois, spatial_scale, pooled_height, pooled_width):
    result = _region_shape(input, rois, spatial_scale, pooled_height, pooled_width)
    return result, torch.empty_like(result, dtype=torch.int32)


def _by_position_shape(input, rois, spatial_scale, pooled_height, pooled_width, *_):
    channels = input.shape[1] // (pooled_height * pooled_width)
    result = input.new_empty(rois.shape[0], channels, pooled_height, pooled_width)
    return result, torch.empty_like(result, dtype=torch.int32)


def _convolution_shape(input, weight, offset, *_):
    return input.new_empty(input.shape[0], weight.shape[0], *offset.shape[2:])


_KERNELS = {
    "nms": (_nms, _nms_shape),
    "roi_align": (_roi_align, _region_shape),
    "roi_pool": (_roi_pool, _pooled_shape),
    "ps_roi_align": (_ps_roi_align, _by_position_shape),
    "ps_roi_pool": (_ps_roi_pool, _by_position_shape),
    "deform_conv2d": (_deform_conv2d, _convolution_shape),
}


def define_operators() -> None:
    """Define the operators, unless an earlier call did."""
    for name, (kernel, shape) in _KERNELS.items():
        if not hasattr(torch.ops.torchvision, name):
            torch.library.define(f"torchvision::{name}", SCHEMAS[name])
            torch.library.impl(f"torchvision::{name}", "CPU", kernel)
            torch.library.register_fake(f"torchvision::{name}", shape)
