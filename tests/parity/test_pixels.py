"""Channels and pixels that trade places against eager PyTorch, where the number of channels is not known."""

import torch
import torch.nn.functional as F

from .records import BASE, Record, floats, integers, parametrized
from .resized import Resized, check_sizes

FREE = ({axis: f"size{axis}" for axis in range(4)},)
IMAGE = (floats(2, 8, 4, 6),)
OTHERS = ((floats(1, 4, 2, 10),), (floats(3, 12, 6, 2),))


def _parts(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return (
        *torch.vsplit(x[:, 0], [1, 2]),
        *torch.hsplit(x, 2),
        *torch.dsplit(x, 2),
        *torch.hsplit(x[0, 0, 0], 2),
    )


def _viewed(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    rows, columns = x.shape[0] * x.shape[1], x.shape[2] * x.shape[3]
    return torch.view_copy(x, (rows, columns)), torch.view_copy(x, (-1, 2)), torch.view_copy(x, torch.float32)


def _unknown() -> list[Record]:
    functions = {
        "pixel_shuffle": lambda x: (F.pixel_shuffle(x, 2), F.pixel_shuffle(x[0], 2)),
        "pixel_unshuffle": lambda x: (F.pixel_unshuffle(x, 2), F.pixel_unshuffle(x[0], 2)),
        "channel_shuffle": lambda x: (F.channel_shuffle(x, 2), F.channel_shuffle(x, 4)),
        "splits by parts": _parts,
        "view_copy": _viewed,
    }
    return [
        Resized(name, function, IMAGE, BASE, dynamic=FREE, others=OTHERS)
        for name, function in functions.items()
    ]


KNOWN = [
    Record("channel_shuffle", lambda x: F.channel_shuffle(x, 4), IMAGE, (7, *BASE)),
    Record("channel_shuffle of integers", lambda x: F.channel_shuffle(x, 2), (integers(1, 4, 3),)),
    Record("splits", lambda x: (*torch.hsplit(x, 2), *torch.dsplit(x, [1, 3])), IMAGE),
]


@parametrized([*_unknown(), *KNOWN])
def test_agrees_with_eager(record: Record) -> None:
    check_sizes(record)
