"""Pooling, and patches of images."""

from __future__ import annotations

import numpy as np

from ..records import const, floats, integers, record


def _pools():
    for op, name in (("MaxPool", "input"), ("AvgPool", "value")):
        for padding, stride, size in (("SAME", 1, 3), ("SAME", 2, 3), ("VALID", 2, 3), ("SAME", 2, 2)):
            yield record(
                op,
                f"{padding}_{size}_{stride}",
                **{name: floats(2, 7, 8, 3)},
                ksize=[1, size, size, 1],
                strides=[1, stride, stride, 1],
                padding=padding,
            )
    window = {"ksize": [1, 2, 3, 1], "strides": [1, 2, 2, 1]}
    yield record(
        "MaxPool",
        "small_window",
        input=floats(1, 8, 8, 2),
        ksize=[1, 2, 2, 1],
        strides=[1, 3, 3, 1],
        padding="SAME",
    )
    for size in (6, 7):
        yield record(
            "AvgPool",
            f"small_window_{size}",
            value=floats(1, size, 8, 2),
            ksize=[1, 2, 2, 1],
            strides=[1, 3, 3, 1],
            padding="SAME",
        )
    yield record(
        "MaxPool",
        "explicit",
        input=floats(1, 7, 8, 2),
        **window,
        padding="EXPLICIT",
        explicit_paddings=[0, 0, 1, 0, 0, 2, 0, 0],
    )
    yield record("MaxPool", "double", input=floats(1, 5, 6, 2, dtype=np.float64), **window, padding="VALID")
    yield record("MaxPool", "int32", input=integers(1, 5, 6, 2), **window, padding="VALID")
    yield record("MaxPool", "int32_same", input=integers(1, 5, 6, 2), **window, padding="SAME")
    yield record("MaxPool", "int64", input=integers(1, 5, 6, 2, dtype=np.int64), **window, padding="VALID")
    yield record(
        "MaxPool",
        "uint8",
        input=integers(1, 5, 6, 2, low=0, high=99, dtype=np.uint8),
        **window,
        padding="VALID",
    )
    yield record(
        "AvgPool",
        "double",
        value=floats(1, 5, 6, 2, dtype=np.float64),
        **window,
        padding="SAME",
    )
    yield record(
        "MaxPoolV2",
        "same",
        input=floats(1, 5, 6, 2),
        ksize=const([1, 2, 3, 1]),
        strides=const([1, 2, 2, 1]),
        padding="SAME",
    )
    for op in ("MaxPool3D", "AvgPool3D"):
        for padding in ("SAME", "VALID"):
            yield record(
                op,
                padding,
                input=floats(1, 5, 6, 7, 2),
                ksize=[1, 2, 3, 2, 1],
                strides=[1, 2, 2, 1, 1],
                padding=padding,
            )
    for batch in (False, True):
        for padding in ("SAME", "VALID"):
            yield record(
                "MaxPoolWithArgmax",
                f"{padding}_{'batch' if batch else 'plane'}",
                input=floats(2, 5, 6, 3),
                **window,
                padding=padding,
                include_batch_in_index=batch,
            )
    yield record(
        "MaxPoolWithArgmax", "int32", input=floats(2, 5, 6, 3), **window, padding="VALID", Targmax="int32"
    )


def _patches():
    for padding in ("SAME", "VALID"):
        yield record(
            "ExtractImagePatches",
            padding,
            images=floats(2, 7, 8, 3),
            ksizes=[1, 3, 2, 1],
            strides=[1, 2, 3, 1],
            rates=[1, 1, 2, 1],
            padding=padding,
            lowest=11 if padding == "SAME" else 9,
        )
    yield record(
        "ExtractImagePatches",
        "int32",
        images=integers(1, 5, 5, 2),
        ksizes=[1, 2, 2, 1],
        strides=[1, 1, 1, 1],
        rates=[1, 1, 1, 1],
        padding="VALID",
    )
    yield record(
        "ExtractVolumePatches",
        "same",
        input=floats(1, 4, 5, 6, 2),
        ksizes=[1, 2, 2, 3, 1],
        strides=[1, 2, 1, 2, 1],
        padding="SAME",
        lowest=11,
    )


RECORDS = [*_pools(), *_patches()]
