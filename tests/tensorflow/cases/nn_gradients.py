"""Gradients of pooling, convolutions, resizing and normalization."""

from __future__ import annotations

import numpy as np

from ..records import array_of, const, floats, positive, record


def _pools():
    for padding, size, outputs in (("SAME", 3, (4, 4)), ("VALID", 2, (3, 4))):
        window = {"ksize": [1, size, size, 1], "strides": [1, 2, 2, 1], "padding": padding}
        yield record(
            "AvgPoolGrad",
            padding,
            orig_input_shape=const([2, 7, 8, 3]),
            grad=floats(2, *outputs, 3),
            **window,
        )
        # The second operand is not read.
        yield record(
            "MaxPoolGrad",
            padding,
            orig_input=floats(2, 7, 8, 3),
            orig_output=floats(2, *outputs, 3),
            grad=floats(2, *outputs, 3, seed=1),
            **window,
        )
    yield record(
        "MaxPoolGrad",
        "ties",
        orig_input=np.ones((1, 4, 4, 1), np.float32),
        orig_output=np.ones((1, 3, 3, 1), np.float32),
        grad=floats(1, 3, 3, 1),
        ksize=[1, 2, 2, 1],
        strides=[1, 1, 1, 1],
        padding="VALID",
    )
    volumes = {"ksize": [1, 2, 2, 2, 1], "strides": [1, 2, 2, 2, 1], "padding": "SAME"}
    yield record(
        "AvgPool3DGrad",
        orig_input_shape=const([1, 3, 4, 5, 2]),
        grad=floats(1, 2, 2, 3, 2),
        **volumes,
    )
    # The kernel for volumes reads the second operand.
    volume = floats(1, 3, 4, 5, 2)
    padded = np.pad(volume, [(0, 0), (0, 1), (0, 0), (0, 1), (0, 0)], constant_values=-9)
    yield record(
        "MaxPool3DGrad",
        orig_input=volume,
        orig_output=padded.reshape(1, 2, 2, 2, 2, 3, 2, 2).max((2, 4, 6)),
        grad=floats(1, 2, 2, 3, 2, seed=1),
        **volumes,
    )
    yield record(
        "MaxPool3DGrad",
        "ties",
        orig_input=np.ones((1, 2, 2, 2, 1), np.float32),
        orig_output=np.ones((1, 1, 1, 1, 1), np.float32),
        grad=floats(1, 1, 1, 1, 1),
        **volumes,
    )


def _filters():
    for case, arguments, outputs in (
        ("same", {"padding": "SAME", "strides": [1, 2, 2, 1]}, (4, 4)),
        ("valid", {"padding": "VALID", "strides": [1, 2, 1, 1]}, (3, 6)),
        (
            "explicit",
            {
                "padding": "EXPLICIT",
                "strides": [1, 1, 1, 1],
                "explicit_paddings": [0, 0, 1, 0, 0, 2, 0, 0],
            },
            (6, 8),
        ),
    ):
        yield record(
            "Conv2DBackpropFilter",
            case,
            input=floats(2, 7, 8, 3),
            filter_sizes=const([3, 3, 3, 4]),
            out_backprop=floats(2, *outputs, 4, seed=1),
            **arguments,
            needs_sizes=True,
        )
    yield record(
        "DepthwiseConv2dNativeBackpropFilter",
        input=floats(2, 7, 8, 3),
        filter_sizes=const([3, 3, 3, 2]),
        out_backprop=floats(2, 4, 4, 6, seed=1),
        padding="SAME",
        strides=[1, 2, 2, 1],
    )
    yield record(
        "Conv3DBackpropFilterV2",
        input=floats(1, 4, 5, 3, 2),
        filter_sizes=const([2, 2, 2, 2, 3]),
        out_backprop=floats(1, 4, 5, 3, 3, seed=1),
        padding="SAME",
        strides=[1, 1, 1, 1, 1],
        needs_sizes=True,
    )


def _resizes():
    for op, options in (
        ("ResizeBilinearGrad", {"half_pixel_centers": True}),
        ("ResizeBilinearGrad", {"align_corners": True}),
        ("ResizeBilinearGrad", {}),
        ("ResizeBicubicGrad", {"half_pixel_centers": True}),
        ("ResizeBicubicGrad", {}),
    ):
        yield record(
            op, "_".join(options), grads=floats(1, 9, 4, 2), original_image=floats(1, 5, 6, 2), **options
        )
    for options in ({"half_pixel_centers": True}, {"align_corners": True}, {}):
        yield record(
            "ResizeNearestNeighborGrad",
            "_".join(options),
            grads=floats(1, 9, 4, 2),
            size=const([5, 6]),
            **options,
        )


def _normalizations():
    for op in ("FusedBatchNormGrad", "FusedBatchNormGradV2", "FusedBatchNormGradV3"):
        for is_training in (True, False):
            reserve = {"reserve_space_3": floats(0)} if op.endswith("V3") else {}
            yield record(
                op,
                "training" if is_training else "inference",
                y_backprop=floats(2, 3, 4, 2),
                x=floats(2, 3, 4, 2, seed=1),
                scale=positive(2),
                reserve_space_1=floats(2, seed=2, scale=0.1),
                reserve_space_2=positive(2, seed=3),
                **reserve,
                is_training=is_training,
                outputs=(0, 1, 2),
            )

    images = {"input_grads": floats(1, 2, 3, 5), "input_image": floats(1, 2, 3, 5, seed=1)}
    yield record("LRNGrad", "", **images, output_image=floats(1, 2, 3, 5, seed=2))
    yield record(
        "LRNGrad",
        "narrow",
        **images,
        output_image=floats(1, 2, 3, 5, seed=2),
        depth_radius=1,
        bias=2.0,
        alpha=0.5,
        beta=0.75,
    )


def _crops():
    boxes = array_of([[0.1, 0.2, 0.8, 0.9], [-0.3, 0.0, 0.5, 1.2], [0.9, 0.3, 0.2, 0.3]])
    indices = array_of([1, 0, 1])
    for case, height, width in (("", 3, 4), ("single", 1, 1)):
        grads = floats(3, height, width, 2)
        yield record(
            "CropAndResizeGradBoxes",
            case,
            grads=grads,
            image=positive(2, 6, 5, 2, seed=1),
            boxes=boxes,
            box_ind=indices,
        )
        for method in ("bilinear", "nearest"):
            yield record(
                "CropAndResizeGradImage",
                f"{method}_{case}",
                grads=grads,
                boxes=boxes,
                box_ind=indices,
                image_size=const([2, 6, 5, 2]),
                T="float32",
                method=method,
            )


RECORDS = [*_pools(), *_filters(), *_resizes(), *_normalizations(), *_crops()]
