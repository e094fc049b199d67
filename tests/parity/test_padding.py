"""Padding and conversions of element types against eager PyTorch."""

import torch
import torch.nn.functional as F

from .records import EVERYWHERE, HIGHEST, Record, floats, integers, parametrized
from .resized import Resized, check_sizes

X = floats(2, 3, 4)
I = integers(2, 3, 4)  # noqa: E741
B = X > 0


def _sized(name, function, inputs, dynamic, *others, opsets=EVERYWHERE, **kwargs):
    return Resized(f"{name} dynamic", function, inputs, opsets, dynamic=dynamic, others=others, **kwargs)


PADS = [
    Record(
        "pad of 16 bits",
        lambda x: (F.pad(x, (1, 2), value=3), F.pad(x, (-1, 1)), F.pad(x, (1, 2), mode="circular")),
        (I.to(torch.int16),),
        (9, 11, HIGHEST),
    ),
    Record(
        "pad",
        lambda x: (F.pad(x, (1, 2)), F.pad(x, (1, 0, 2, 3), value=1.5), F.pad(x, (0, 0, 0, 0, 1, 0))),
        (X,),
        (*EVERYWHERE, 11, 18),
    ),
    Record(
        "pad negative",
        lambda x: (F.pad(x, (-1, 2)), F.pad(x, (-1, -2, 1, -1), value=2.0), F.pad(x, (0, -1))),
        (X,),
        EVERYWHERE,
    ),
    Record(
        "pad int",
        lambda x, y: (F.pad(x, (1, 2), value=7), F.pad(y, (0, 1, 1, 0), value=-2)),
        (I, I.int()),
        (*EVERYWHERE, 11),
    ),
    Record(
        "pad bool", lambda x: (F.pad(x, (1, 2), value=1.0), F.pad(x, (0, 1, 1, 0))), (B,), (*EVERYWHERE, 11)
    ),
    Record("pad half", lambda x: F.pad(x, (1, 2)), (X.half(),), (*EVERYWHERE, 11)),
    Record(
        "pad modes",
        lambda x, y: (
            F.pad(x, (1, 2), mode="reflect"),
            F.pad(x, (2, 1), mode="replicate"),
            F.pad(x, (1, 3), mode="circular"),
            F.pad(y, (1, 2, 2, 1), mode="reflect"),
            F.pad(y, (1, 2, 0, 1), mode="replicate"),
            F.pad(y, (1, 2, 3, 1), mode="circular"),
        ),
        (X, floats(2, 3, 4, 5)),
        (*EVERYWHERE, 11, 19),
    ),
    Record(
        "pad what is cut",
        lambda x: (
            F.pad(x[0], (-4, 6), mode="replicate"),
            F.pad(x, (5, -4, 2, -1), mode="replicate"),
            F.pad(x[0], (-2, 3), mode="reflect"),
            F.pad(x, (3, -3, -2, 2), mode="reflect"),
        ),
        (floats(2, 2, 3, 4),),
        (7, 13, HIGHEST),
    ),
    Record(
        "padding layers",
        lambda x: (
            torch.nn.ReflectionPad2d((1, 0, 2, 1))(x),
            torch.nn.ReplicationPad2d(1)(x),
            torch.nn.ConstantPad2d((1, -1, 0, 2), 0.5)(x),
            torch.nn.ZeroPad2d(1)(x),
            torch.nn.ReflectionPad1d(1)(x[0]),
            torch.nn.ReplicationPad3d(1)(x[None]),
            torch.nn.CircularPad2d((1, 0, 1, 2))(x),
        ),
        (floats(2, 3, 4, 5),),
        (*EVERYWHERE, 11),
    ),
    _sized(
        "pad",
        lambda x: (F.pad(x, (0, 1, 1, 0)), F.pad(x, (-1, 1))),
        (X,),
        ({0: "b", 1: "s"},),
        (floats(3, 6, 4),),
        opsets=EVERYWHERE,
    ),
    _sized(
        "computed pad",
        lambda x: F.pad(x, (0, (4 - x.shape[2] % 4) % 4, 0, x.shape[1]), value=1.0),
        (floats(2, 3, 6),),
        ({1: "h", 2: "w"},),
        (floats(2, 2, 8),),
        (floats(2, 4, 5),),
        opsets=(9, 11, 13, HIGHEST),
    ),
]
CONVERSIONS = [
    Record(
        "to",
        lambda x, i, b: (
            x.to(torch.int64),
            x.bool(),
            i.float(),
            b.float(),
            b.long(),
            x.to(torch.float64),
            i.to(torch.int32),
            i.bool(),
        ),
        (X * 5, I, B),
        EVERYWHERE,
    ),
    Record(
        "to half",
        lambda x, i: (x.half(), i.half(), x.half().float(), x.half().long(), x.half().bool()),
        (X, I),
        EVERYWHERE,
    ),
    Record(
        "to bfloat16",
        lambda x: x.to(torch.bfloat16).float(),
        (X,),
        (9, 13, HIGHEST),
    ),
    Record(
        "to the same",
        lambda x, y: (x.to(x.dtype) + 1, x.type_as(y), x.to(y), x.to("cpu") * 2),
        (X, I),
        EVERYWHERE,
    ),
    Record(
        "copies",
        lambda x: (x.contiguous() + 1, x.clone() * 2, x.detach() - 1, torch.ops.aten.alias(x) + 2),
        (X,),
        EVERYWHERE,
    ),
    Record(
        "float to int",
        lambda x: (x.to(torch.int32), x.to(torch.int64), x.to(torch.uint8)),
        (torch.tensor([0.0, 1.9, 200.5]),),
        EVERYWHERE,
    ),
    Record("truncation", lambda x: x.to(torch.int32), (torch.tensor([-1.9, -0.5, 1.9]),), EVERYWHERE),
]


@parametrized([*PADS, *CONVERSIONS])
def test_padding_and_conversion_agree_with_eager(record: Record) -> None:
    check_sizes(record)
