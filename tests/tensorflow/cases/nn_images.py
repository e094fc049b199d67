"""Resizing, colours, crops and projective transformations of images."""

from __future__ import annotations

import numpy as np

from ..records import array_of, const, floats, integers, positive, record

SIZES = ((7, 9), (3, 4), (5, 12), (1, 1), (10, 18))


def _resizing():
    for op in ("ResizeBilinear", "ResizeNearestNeighbor", "ResizeBicubic"):
        for align, half in ((False, False), (True, False), (False, True)):
            kind = "corners" if align else "half_pixel" if half else "asymmetric"
            for size in SIZES:
                yield record(
                    op,
                    f"{kind}_{size[0]}_{size[1]}",
                    images=floats(1, 5, 9, 2),
                    size=const(list(size)),
                    align_corners=align,
                    half_pixel_centers=half,
                    atol=1e-5,
                )
            yield record(
                op,
                f"{kind}_computed",
                images=floats(1, 4, 6, 2),
                size=array_of([8, 3]),
                align_corners=align,
                half_pixel_centers=half,
                lowest=11,
                atol=1e-5,
            )
    for align in (False, True):
        for size in SIZES:
            yield record(
                "ResizeArea",
                f"{'corners' if align else 'plain'}_{size[0]}_{size[1]}",
                images=floats(1, 5, 9, 2),
                size=const(list(size)),
                align_corners=align,
                atol=1e-5,
            )
    for op in ("ResizeBilinear", "ResizeNearestNeighbor", "ResizeBicubic", "ResizeArea"):
        for dtype in (np.uint8, np.int32, np.int64, np.float64):
            yield record(
                op,
                np.dtype(dtype).name,
                images=integers(1, 5, 4, 2, low=0, high=200, dtype=dtype),
                size=const([8, 6]),
                rtol=1e-4,
            )


def _colours():
    colours = positive(2, 3, 4, 3, low=0, high=1)
    colours[0, 0, :, :] = [[1, 0, 0], [0.5, 0.5, 0.5], [0, 0, 0], [0.2, 0.7, 0.2]]
    yield record("RGBToHSV", "", images=colours, atol=1e-5)
    yield record("HSVToRGB", "", images=colours, atol=1e-5)
    yield record("RGBToHSV", "rank_1", images=array_of([0.1, 0.6, 0.3]), atol=1e-5)
    yield record("RGBToHSV", "double", images=colours.astype(np.float64), atol=1e-6)
    for delta in (0.3, -0.4):
        yield record("AdjustHue", f"by_{delta}", images=colours, delta=const(delta), atol=1e-5)
    for scale in (0.5, 3.0):
        yield record("AdjustSaturation", f"by_{scale}", images=colours, scale=const(scale), atol=1e-5)
    yield record("AdjustContrastv2", "", images=colours, contrast_factor=const(1.7), atol=1e-5)
    yield record("AdjustContrastv2", "computed", images=colours, contrast_factor=array_of(0.4), atol=1e-5)


def _crops():
    boxes = array_of(
        [[0.1, 0.2, 0.8, 0.9], [0.0, 0.0, 1.0, 1.0], [0.9, 0.8, 0.1, 0.2], [-0.2, 0.1, 1.3, 0.7]]
    )
    given = {"image": floats(2, 6, 7, 3), "boxes": boxes, "box_ind": array_of([0, 1, 1, 0])}
    for method in ("bilinear", "nearest"):
        for size in ((4, 5), (1, 3), (1, 1)):
            yield record(
                "CropAndResize",
                f"{method}_{size[0]}_{size[1]}",
                **given,
                crop_size=const(list(size)),
                method=method,
                extrapolation_value=-2.0,
                atol=1e-5,
            )
    # The sampled column is just below 0.5 and rounds to 0: -0.3 in float32 is not exactly -0.3.
    yield record(
        "CropAndResize",
        "nearest_below_half",
        image=floats(1, 6, 3, 1),
        boxes=array_of([[-0.3, 0.0, 0.5, 1.0]]),
        box_ind=array_of([0]),
        crop_size=const([1, 1]),
        method="nearest",
    )
    yield record("CropAndResize", "computed", **given, crop_size=array_of([3, 4]), atol=1e-5)
    yield record(
        "CropAndResize",
        "uint8",
        image=integers(2, 6, 7, 3, low=0, high=255, dtype=np.uint8),
        boxes=boxes,
        box_ind=array_of([0, 1, 1, 0]),
        crop_size=const([3, 3]),
        rtol=1e-4,
    )


def _transforms():
    turns = array_of(
        [[0.9, -0.3, 1.2, 0.4, 0.8, -1.1, 0.01, -0.02], [1.1, 0.2, -6.3, -0.1, 1.3, 9.7, 0.0, 0.0]]
    )
    for interpolation in ("NEAREST", "BILINEAR"):
        for mode in ("CONSTANT", "REFLECT", "WRAP", "NEAREST"):
            yield record(
                "ImageProjectiveTransformV3",
                f"{interpolation}_{mode}",
                images=floats(2, 6, 7, 2),
                transforms=turns,
                output_shape=const([5, 8]),
                fill_value=const(0.5),
                interpolation=interpolation,
                fill_mode=mode,
                atol=1e-4,
            )
        yield record(
            "ImageProjectiveTransformV2",
            f"{interpolation}_shared",
            images=floats(2, 6, 7, 2),
            transforms=turns[:1],
            output_shape=array_of([4, 4]),
            interpolation=interpolation,
            atol=1e-4,
        )
    yield record(
        "ImageProjectiveTransformV2",
        "int32",
        images=integers(1, 6, 7, 2),
        transforms=turns[:1],
        output_shape=const([6, 7]),
        interpolation="NEAREST",
    )


def _scaling():
    scale, shift = np.float32([0.4, 1.7]), np.float32([0.0, 0.5])
    images = {"images": floats(2, 6, 7, 2)}
    for kernel in ("lanczos1", "lanczos3", "lanczos5", "gaussian", "box", "triangle", "keyscubic"):
        yield record(
            "ScaleAndTranslate",
            kernel,
            **images,
            size=const([3, 11]),
            scale=const(scale),
            translation=const(shift),
            kernel_type=kernel,
            atol=1e-5,
        )
    cubic = {"kernel_type": "mitchellcubic", "antialias": False, "atol": 1e-5}
    yield record(
        "ScaleAndTranslate",
        "computed",
        **images,
        size=array_of([4, 5]),
        scale=scale,
        translation=-shift,
        **cubic,
    )


def _drawing():
    inside, outside = [[0.1, 0.1, 0.6, 0.7], [0, 0, 1, 1]], [[0.2, -0.3, 0.9, 1.4], [0.5, 0.5, 0.4, 0.4]]
    boxes = array_of([inside, outside])
    for channels in (1, 4):
        yield record(
            "DrawBoundingBoxes",
            f"{channels}",
            images=positive(2, 8, 9, channels),
            boxes=boxes,
            needs_sizes=True,
        )
    colors = const([[1, 0, 0], [0, 1, 0]], np.float32)
    yield record(
        "DrawBoundingBoxesV2", "", images=positive(2, 8, 9, 3), boxes=boxes, colors=colors, needs_sizes=True
    )


def _audio():
    samples = floats(100, 2, scale=0.3)
    yield record("AudioSpectrogram", "", input=samples, window_size=20, stride=7, atol=1e-4)
    yield record(
        "AudioSpectrogram",
        "squared",
        input=samples,
        window_size=16,
        stride=16,
        magnitude_squared=True,
        atol=1e-4,
    )
    squares = np.square(floats(1, 2, 129))
    yield record("Mfcc", "", spectrogram=squares, sample_rate=array_of(16000), atol=1e-4, needs_sizes=True)
    yield record(
        "Mfcc",
        "few",
        spectrogram=squares,
        sample_rate=array_of(8000),
        upper_frequency_limit=3500.0,
        lower_frequency_limit=200.0,
        filterbank_channel_count=9,
        dct_coefficient_count=5,
        atol=1e-4,
        needs_sizes=True,
    )


def _random_crops():
    whole = {"aspect_ratio_range": [1.0, 1.0], "area_range": [1.0, 1.0], "max_attempts": 3}
    boxes = array_of([[[0.1, 0.2, 0.5, 0.9]]])
    for case, sizes, options in (
        # Only the whole image has this area; the second image is no square, so that no crop is accepted.
        ("whole", [10, 10, 3], {**whole, "bounding_boxes": boxes}),
        ("none", [10, 20, 3], {**whole, "bounding_boxes": boxes}),
        (
            "no_boxes",
            [10, 10, 3],
            {**whole, "bounding_boxes": floats(1, 0, 4), "use_image_if_no_bounding_boxes": True},
        ),
        ("drawn", [30, 40, 3], {"bounding_boxes": boxes, "compared": False}),
    ):
        shared = {"image_size": array_of(sizes), **options, "run_until": 21}
        yield record("SampleDistortedBoundingBox", case, **shared)
        covered = {"min_object_covered": array_of(0.5)}
        yield record("SampleDistortedBoundingBoxV2", case, **shared, **covered)
        seed = {"seed": array_of([1, 2])}
        yield record("StatelessSampleDistortedBoundingBox", case, **shared, **covered, **seed)


RECORDS = [
    *_random_crops(),
    *_drawing(),
    *_resizing(),
    *_scaling(),
    *_colours(),
    *_crops(),
    *_transforms(),
    *_audio(),
]

WITHOUT_RECORDS = dict.fromkeys(
    ("DecodeBmp", "DecodeImage", "DecodeJpeg", "DecodePng"),
    "their input becomes a vector of bytes; tests/exporter/capture/tensorflow/test_encoded_images.py",
)
