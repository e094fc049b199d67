"""Losses of classes against eager PyTorch: ignored targets, weights, reductions, unknown counts."""

import torch
import torch.nn.functional as F

from .records import EVERYWHERE, Record, check, floats, integers, parametrized

FREE = {0: "n", 1: "c"}
LABELS = torch.tensor([[3, 0, -1, 1], [-1, 2, 2, 0], [1, 2, 0, 3], [0, 0, 2, -1]])


def _reductions(loss, *rest):
    return lambda x, target, *weight: tuple(
        loss(x, target, *weight, *rest, reduction=reduction) for reduction in ("none", "mean", "sum")
    )


def _likelihoods() -> list[Record]:
    image, classes = floats(2, 5, 3, 4), integers(2, 3, 4, low=0, high=5)
    weight = floats(5, seed=3).abs()

    def losses(x, target, weight):
        return tuple(
            F.nll_loss(x, target, given, ignore_index=ignored, reduction=reduction)
            for reduction in ("none", "mean", "sum")
            for given, ignored in ((None, -100), (weight, 2))
        )

    free = ({0: "n", 1: "c", 2: "h"}, {0: "n", 1: "h"}, {0: "c"})
    return [
        Record("nll_loss", losses, (image[:, :, 0, 0], classes[:, 0, 0], weight), EVERYWHERE),
        Record("nll_loss of images", losses, (image, classes, weight)),
        Record("nll_loss of volumes", losses, (image[..., None], classes[..., None], weight), (9,)),
        Record("nll_loss of one row", losses, (image[0, :, 0, 0], classes[0, 0, 0], weight)),
        Record("nll_loss of unknown classes", losses, (image, classes, weight), dynamic=free),
        Record(
            "nll_loss of nothing kept",
            lambda x, target: (F.nll_loss(x, target, ignore_index=1), F.nll_loss(x, target, reduction="sum")),
            (floats(3, 4), torch.ones(3, dtype=torch.int64)),
        ),
        Record("nll_loss of double", losses, (image.double(), classes, weight.double())),
        Record(
            "cross_entropy of unknown classes",
            lambda x, target: (
                F.cross_entropy(x, target),
                F.cross_entropy(x, target, label_smoothing=0.1),
                F.cross_entropy(x, target, ignore_index=0, reduction="none"),
                F.cross_entropy(x, x.softmax(1)),
            ),
            (image, classes),
            dynamic=free[:2],
        ),
    ]


def _margins_of_one_label() -> list[Record]:
    def losses(x, target, weight):
        return tuple(
            F.multi_margin_loss(x, target, p=p, margin=margin, weight=given, reduction=reduction)
            for p, margin, given in ((1, 1.0, None), (2, 0.5, weight), (2, -1.5, None), (1, 2, weight))
            for reduction in ("none", "mean", "sum")
        )

    scores, labels, weight = floats(6, 4), integers(6, low=0, high=4), floats(4, seed=3)
    return [
        Record("multi_margin_loss", losses, (scores, labels, weight), EVERYWHERE),
        Record("multi_margin_loss of one row", losses, (scores[0], labels[0], weight)),
        Record("multi_margin_loss of a list of one row", losses, (scores[0], labels[:1], weight)),
        Record("multi_margin_loss of one class", losses, (scores[0, 0], labels[0] * 0, weight[:1])),
        Record("multi_margin_loss of double", losses, (scores.double(), labels, weight.double())),
        Record(
            "multi_margin_loss of unknown classes",
            losses,
            (scores, labels, weight),
            dynamic=(FREE, {0: "n"}, {0: "c"}),
        ),
    ]


def _margins() -> list[Record]:
    of = _reductions(F.multilabel_margin_loss)
    scores = floats(4, 4)
    return [
        Record("multilabel_margin_loss", of, (scores, LABELS), EVERYWHERE),
        Record("multilabel_margin_loss of one row", of, (scores[0], LABELS[0])),
        Record(
            "multilabel_margin_loss of unknown classes", of, (scores[:3], LABELS[:3]), dynamic=(FREE,) * 2
        ),
        Record("multilabel_margin_loss of double", of, (scores.double(), LABELS)),
        Record("multilabel_margin_loss of one class", of, (scores[0, 0], LABELS[0, 1])),
    ]


@parametrized([*_likelihoods(), *_margins_of_one_label(), *_margins()])
def test_agrees_with_eager(record: Record) -> None:
    check(record)
