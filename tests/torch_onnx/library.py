"""Operators of a library, in eager PyTorch, for which the files in `written/` have symbolic functions."""

import torch

LIBRARY = torch.library.Library("portable", "DEF")


def operator(schema):
    """Define an operator of the library, whose kernel is the decorated function."""

    def register(function):
        name = schema.partition("(")[0]
        LIBRARY.define(schema)
        LIBRARY.impl(name, function, "CompositeExplicitAutograd")
        return function

    return register


@operator(
    "channel_norm(Tensor x, Tensor? weight, Tensor? bias, float eps=1e-05, bool corrected=False) -> Tensor"
)
def channel_norm(x, weight, bias, eps=1e-5, corrected=False):
    variance = x.var(1, correction=int(corrected), keepdim=True)
    normalized = (x - x.mean(1, keepdim=True)) / torch.sqrt(variance + eps)
    shape = [1, -1] + [1] * (x.dim() - 2)
    normalized = normalized if weight is None else normalized * weight.reshape(shape)
    return 2 * (normalized if bias is None else normalized + bias.reshape(shape))


@operator("soft_clip(Tensor self, float maximum=1.0) -> Tensor")
def soft_clip(self, maximum=1.0):
    return torch.tanh(self / maximum) * maximum


@operator("nms(Tensor boxes, Tensor scores, float iou_threshold) -> Tensor")
def nms(boxes, scores, iou_threshold):
    kept = []
    for index in scores.argsort(descending=True).tolist():
        low = torch.maximum(boxes[kept, :2], boxes[index, :2])
        high = torch.minimum(boxes[kept, 2:], boxes[index, 2:])
        shared = (high - low).clamp(min=0).prod(1)
        area = (boxes[[*kept, index], 2:] - boxes[[*kept, index], :2]).prod(1)
        if not bool((shared / (area[:-1] + area[-1] - shared) > iou_threshold).any()):
            kept.append(index)
    return torch.tensor(kept)


@torch.library.register_fake("portable::nms")
def _(boxes, scores, iou_threshold):
    return boxes.new_empty([torch.library.get_ctx().new_dynamic_size()], dtype=torch.int64)


@operator("best_rows(Tensor x, int count, int axis=1) -> (Tensor, Tensor)")
def best_rows(x, count, axis=1):
    values, indices = x.topk(count, axis)
    return values.sum(axis), indices.select(axis, 0).clone()


@operator("window(Tensor x, int[2] bounds, Tensor? unused=None) -> Tensor")
def window(x, bounds, unused=None):
    return x[:, bounds[0] : bounds[1]].clone()


@operator("joined(Tensor[] tensors, int dim=0) -> Tensor")
def joined(tensors, dim=0):
    return torch.cat(tensors, dim)


@operator(
    "batched_nms(Tensor b, Tensor s, int n, float threshold, str coding) -> (Tensor, Tensor, Tensor, Tensor)"
)
def batched_nms(b, s, n, threshold, coding):
    found = b.new_zeros(b.shape[0], 1, dtype=torch.int32)
    return found, b[:, :n].clone(), s[:, :n, 0].clone(), s[:, :n, 0].to(torch.int32)


@operator(
    "deform_conv2d(Tensor i, Tensor w, Tensor o, Tensor m, Tensor? b, int[2] s, int[2] p, bool masked)"
    " -> Tensor"
)
def deform_conv2d(i, w, o, m, b, s, p, masked):
    return torch.nn.functional.conv2d(i, w, b, s, p)


@operator("rows_softmax(Tensor x, int start) -> Tensor")
def rows_softmax(x, start):
    return x.flatten(start).softmax(-1).reshape(x.shape)


@operator("enlarged(Tensor x, int by) -> Tensor")
def enlarged(x, by):
    return x.repeat_interleave(by, 2).repeat_interleave(by, 3)


@operator("squashed(Tensor x, float low, float high) -> Tensor")
def squashed(x, low, high):
    x = torch.nn.functional.pad(x.clamp(low, high), (1, 1), value=1.5)
    return torch.cat([x[:, 2:], x[:, :2]], 1).unsqueeze(0)


@operator("replaced(Tensor x, Tensor index, Tensor source) -> Tensor")
def replaced(x, index, source):
    return x.scatter(1, index, source)


@operator("pooled_rois(Tensor features, Tensor boxes, Tensor batch, int size, float scale) -> Tensor")
def pooled_rois(features, boxes, batch, size, scale):
    """RoIAlign without the half pixel offset: two by two bilinear samples in each bin."""
    found = []
    height, width = features.shape[2:]
    for box, image in zip(boxes * scale, batch.tolist(), strict=True):
        extent = (box[2:] - box[:2]).clamp(min=1.0)
        steps = (torch.arange(2 * size) + 0.5) / (2 * size)
        xs = (box[0] + extent[0] * steps).clamp(0, width - 1)
        ys = (box[1] + extent[1] * steps).clamp(0, height - 1)
        places = torch.stack(torch.meshgrid(xs, ys, indexing="xy"), -1)
        grid = places / torch.tensor([width - 1, height - 1]) * 2 - 1
        samples = torch.nn.functional.grid_sample(features[image : image + 1], grid[None], align_corners=True)
        found.append(torch.nn.functional.avg_pool2d(samples, 2)[0])
    return torch.stack(found)


@torch.library.register_fake("portable::pooled_rois")
def _(features, boxes, batch, size, scale):
    return features.new_empty(boxes.shape[0], features.shape[1], size, size)


@operator("sampled(Tensor x, Tensor grid) -> Tensor")
def sampled(x, grid):
    return torch.nn.functional.grid_sample(x, grid, align_corners=False)
