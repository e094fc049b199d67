"""Non-maximum suppression, and decoding of CTC."""

from __future__ import annotations

import numpy as np

from ..records import array_of, const, floats, positive, record


def _boxes(*shape, seed=0):
    corners = positive(*shape, 2, seed=seed, low=0, high=0.8)
    sizes = positive(*shape, 2, seed=seed + 1, low=0.1, high=0.5)
    return np.concatenate([corners, corners + sizes], axis=-1)


def _suppression():
    given = {"boxes": _boxes(12), "scores": positive(12, seed=2, low=0, high=1), "max_output_size": const(5)}
    single = {"iou_threshold": const(0.3), "score_threshold": const(0.4)}
    yield record("NonMaxSuppression", "", **given, iou_threshold=0.3)
    yield record("NonMaxSuppressionV2", "", **given, iou_threshold=const(0.3))
    yield record("NonMaxSuppressionV3", "", **given, **single)
    many = {**given, "max_output_size": const(20)}
    yield record("NonMaxSuppressionV3", "computed", **{**given, "max_output_size": array_of(4)}, **single)
    for padded in (False, True):
        name = "padded" if padded else ""
        lowest = 11 if padded else 9
        yield record(
            "NonMaxSuppressionV4", name, **many, **single, pad_to_max_output_size=padded, lowest=lowest
        )
        for sigma, threshold in ((0.5, 0.3), (0.2, 1.0)):
            yield record(
                "NonMaxSuppressionV5",
                f"soft_{sigma}_{name}",
                **many,
                iou_threshold=const(threshold),
                score_threshold=const(0.1),
                soft_nms_sigma=const(sigma),
                pad_to_max_output_size=padded,
                lowest=lowest,
            )
        yield record(
            "NonMaxSuppressionV5",
            name,
            **many,
            **single,
            soft_nms_sigma=const(0.0),
            pad_to_max_output_size=padded,
            lowest=lowest,
        )


def _by_overlaps():
    overlaps = positive(8, 8, seed=3, low=0, high=1)
    thresholds = {"overlap_threshold": const(0.5), "score_threshold": const(0.2)}
    yield record(
        "NonMaxSuppressionWithOverlaps",
        "",
        overlaps=(overlaps + overlaps.T) / 2,
        scores=positive(8, seed=2, low=0, high=1),
        max_output_size=const(4),
        **thresholds,
    )


def _combined():
    limits = {
        "max_output_size_per_class": const(3),
        "iou_threshold": const(0.3),
        "score_threshold": const(0.2),
    }
    scores = positive(2, 10, 3, seed=4, low=0, high=1)
    shared = {"boxes": _boxes(2, 10, 1), "scores": scores}
    own = {"boxes": _boxes(2, 10, 3), "scores": scores}
    order = (
        "boxes",
        "scores",
        "max_output_size_per_class",
        "max_total_size",
        "iou_threshold",
        "score_threshold",
    )

    def ordered(total, **items):
        given = {**items, **limits, "max_total_size": const(total)}
        return {name: given[name] for name in order}

    yield record("CombinedNonMaxSuppression", "shared", **ordered(6, **shared), lowest=11)
    yield record("CombinedNonMaxSuppression", "own", **ordered(6, **own), lowest=11)
    yield record("CombinedNonMaxSuppression", "more", **ordered(40, **shared), lowest=11)
    yield record(
        "CombinedNonMaxSuppression",
        "unclipped",
        **ordered(6, **shared),
        clip_boxes=False,
        lowest=11,
    )
    yield record(
        "CombinedNonMaxSuppression",
        "per_class",
        **ordered(40, **shared),
        pad_per_class=True,
        lowest=11,
    )


def _decoding():
    for merge in (False, True):
        yield record(
            "CTCGreedyDecoder",
            "merged" if merge else "",
            inputs=floats(9, 3, 4, scale=2),
            sequence_length=array_of([9, 5, 7]),
            merge_repeated=merge,
            lowest=11,
        )
    yield record(
        "CTCGreedyDecoder",
        "blank",
        inputs=floats(9, 2, 4, scale=2),
        sequence_length=array_of([9, 6]),
        blank_index=0,
        merge_repeated=True,
        lowest=11,
    )


RECORDS = [*_suppression(), *_by_overlaps(), *_combined(), *_decoding()]
