"""Shapes against eager PyTorch: reshape, permute, squeeze, expand, join, split, slice."""

import torch
import torch.nn.functional as F

from .records import BASE, EVERYWHERE, HIGHEST, Record, floats, integers, parametrized
from .resized import Resized, check_sizes

X = floats(2, 3, 4)
I = integers(2, 3, 4)  # noqa: E741
B = X > 0
S = torch.tensor(3.5)
NARROW = (torch.uint8, torch.int8, torch.int16, torch.int32)
EMPTY = torch.zeros(0, 3, 4)
COMPUTED = (7, 9, 10, 11, 13, HIGHEST)
SLICED = (9, 10, 11, 13, HIGHEST)


def _sized(name, function, inputs, dynamic, *others, opsets=SLICED, **kwargs):
    return Resized(f"{name} dynamic", function, inputs, opsets, dynamic=dynamic, others=others, **kwargs)


RESHAPES = [
    Record(
        "reshape of nothing to what is left",
        lambda x, y: x.reshape(y.shape[0], -1) * 1,
        (torch.zeros(3, 0), floats(2, 4)),
        COMPUTED,
        dynamic=(None, {0: "n"}),
    ),
    Record("view", lambda x: (x.view(6, 4), x.view(-1), x.view(2, -1, 2), x.view(2, 3, 4)), (X,), EVERYWHERE),
    Record("view of scalar", lambda x: (x.view(1, 1), x.reshape(-1), x.reshape(())), (S,), EVERYWHERE),
    Record("view to scalar", lambda x: x[:1, 0, 0].reshape(()), (X,), EVERYWHERE),
    Record(
        "view of empty",
        lambda x: (x.view(0, 12), x.view(3, 0, 4), x.view(-1, 3)),
        (EMPTY,),
        (*EVERYWHERE, 14),
    ),
    Record(
        "triangles of narrow integers",
        lambda x: [f(x.to(t), 1) for f in (torch.triu, torch.tril) for t in NARROW],
        (I[0].abs(),),
        (*EVERYWHERE, 14),
    ),
    Record("view types", lambda a, b: (a.view(6, 4), b.view(4, 6)), (I.to(torch.uint8), B), EVERYWHERE),
    Record(
        "view bits",
        lambda x, h, i: (
            x.view(torch.int32),
            x.view(torch.int16),
            h.view(torch.float32),
            i.view(torch.float32),
        ),
        (X, X.half(), I.view(4, 6) * 10**9),
        (*EVERYWHERE, 26),
    ),
    Record("view_as", lambda x, y: (x.view_as(y), x.reshape_as(y)), (X, floats(4, 6)), EVERYWHERE),
    Record(
        "flatten",
        lambda x: (x.flatten(), x.flatten(1), x.flatten(0, 1), x.flatten(-2, -1), x.flatten(1, 1)),
        (X,),
        EVERYWHERE,
    ),
    Record("flatten of scalar", lambda x: x.flatten(), (S,), EVERYWHERE),
    Record(
        "unflatten",
        lambda x: (x.unflatten(2, (2, 2)), x.unflatten(-1, (-1, 2)), x.unflatten(0, (1, 2))),
        (X,),
        BASE,
    ),
    _sized(
        "view",
        lambda x: (x.view(x.shape[0], -1), x.view(-1, 4), x.view(x.shape[0], 12), x.view(x.shape[0] * 3, 4)),
        (X,),
        ({0: "b"},),
        (floats(5, 3, 4),),
        (floats(1, 3, 4),),
        opsets=EVERYWHERE,
    ),
    _sized(
        "view of heads",
        lambda x: x.view(x.shape[0], x.shape[1], 2, 4).transpose(1, 2).reshape(x.shape[0] * 2, x.shape[1], 4),
        (floats(2, 3, 8),),
        ({0: "b", 1: "s"},),
        (floats(4, 5, 8),),
        (floats(1, 1, 8),),
        opsets=(*EVERYWHERE, 14),
    ),
    _sized(
        "view of heads empty",
        lambda x: x.view(x.shape[0], x.shape[1], 2, 4).transpose(1, 2).reshape(x.shape[0] * 2, x.shape[1], 4),
        (floats(2, 3, 8),),
        ({0: "b", 1: "s"},),
        (floats(3, 0, 8),),
        (floats(0, 5, 8),),
        opsets=(14, HIGHEST),
    ),
    _sized(
        "merge and split",
        lambda x: (
            x.flatten(0, 1),
            x.flatten(1),
            x.flatten(),
            x.unflatten(2, (2, 2)),
            x.flatten(0, 1).view(x.shape),
        ),
        (X,),
        ({0: "b", 1: "s"},),
        (floats(5, 2, 4),),
        opsets=EVERYWHERE,
    ),
    _sized(
        "computed sizes",
        lambda x: (
            x.view(x.shape[0] // 2, 2, x.shape[1], 4),
            x.new_zeros((x.shape[0] + 1) // 2, -(-x.shape[1] // 2)),
            x.new_ones(x.shape[0] % 3 + 1, max(x.shape[1], 4), min(x.shape[0], 3), 2**2),
        ),
        (floats(4, 3, 4),),
        ({0: torch.export.Dim("h", max=16) * 2, 1: "s"},),
        (floats(6, 5, 4),),
        (floats(2, 7, 4),),
    ),
    Record(
        "permute", lambda x: (x.permute(2, 0, 1), x.permute(0, -1, 1), x.permute(0, 1, 2)), (X,), EVERYWHERE
    ),
    Record(
        "transpose",
        lambda x: (
            x.transpose(0, -1),
            x.swapaxes(1, 2),
            x.swapdims(0, 1),
            x.mT,
            x[0].t(),
            x[0, 0].t(),
            x[0].T,
        ),
        (X,),
        EVERYWHERE,
    ),
    Record("transpose of scalar", lambda x: (x.transpose(0, -1), x.t(), x.permute(())), (S,), EVERYWHERE),
    Record(
        "movedim", lambda x: (x.movedim(0, -1), x.movedim((0, 1), (1, 0)), x.moveaxis(2, 0)), (X,), EVERYWHERE
    ),
    Record(
        "unsqueeze",
        lambda x: (x.unsqueeze(0), x.unsqueeze(-1), x.unsqueeze(-4), x[0, 0, 0].unsqueeze(-1)),
        (X,),
        EVERYWHERE,
    ),
    Record(
        "squeeze",
        lambda x: (
            x.squeeze(),
            x.squeeze(0),
            x.squeeze(-1),
            x.squeeze(1),
            x.squeeze((0, 1, 3)),
            x[0, 0, 0, 0].squeeze(0),
        ),
        (floats(1, 3, 1, 1),),
        EVERYWHERE,
    ),
    _sized(
        "squeeze",
        lambda x: (x.squeeze(-1), x.squeeze(0), x.squeeze((1, 2))),
        (floats(2, 3, 1),),
        ({0: "b"},),
        (floats(4, 3, 1),),
    ),
]
EXPANSIONS = [
    Record(
        "expand",
        lambda x, y, z: (
            x.expand(2, 3, 5),
            x.expand(-1, -1, 5),
            y.expand(4, 3),
            z.expand(2, 2),
            x.expand(2, 3, 1),
        ),
        (floats(2, 3, 1), floats(3), S),
        EVERYWHERE,
    ),
    Record(
        "expand types",
        lambda a, b, c: (a.expand(2, 3), b.expand(2, 3), c.expand(2, 3)),
        (torch.tensor([[True], [False]]), torch.tensor([[1], [2]], dtype=torch.int32), floats(2, 1).half()),
        EVERYWHERE,
    ),
    Record("expand to empty", lambda x: x.expand(0, 3, 1), (floats(1, 3, 1),), EVERYWHERE),
    Record("expand_as", lambda x, y: (x.expand_as(y), x[:1].expand_as(y)), (floats(2, 1, 1), X), EVERYWHERE),
    Record(
        "broadcast",
        lambda x, y: (x.broadcast_to(2, 3, 4), *torch.broadcast_tensors(x, y)),
        (floats(3, 1), floats(2, 1, 4)),
        EVERYWHERE,
    ),
    _sized(
        "expand",
        lambda x, m: (
            m[:, None, None, :].expand(m.shape[0], 1, x.shape[1], m.shape[1]),
            x.expand(-1, x.shape[1], 4),
            x[:, :, :1].expand_as(x),
            m[:1].expand(x.shape[0], -1),
        ),
        (X, floats(2, 3)),
        ({0: "b", 1: "s"}, {0: "b", 1: "s"}),
        (floats(4, 5, 4), floats(4, 5)),
        opsets=EVERYWHERE,
    ),
    Record(
        "repeat",
        lambda x: (
            x.repeat(2, 1, 3),
            x.repeat(2, 1, 1, 1),
            x.repeat(1, 1, 1),
            x.tile(2),
            x.tile(2, 1, 1, 2),
            x.repeat(0, 1, 1),
        ),
        (X,),
        EVERYWHERE,
    ),
    Record("repeat types", lambda a, b: (a.repeat(2, 2, 1), b.repeat(2, 2, 1)), (I, B), EVERYWHERE),
    Record(
        "repeat_interleave", lambda x: (x.repeat_interleave(2, 1), x.repeat_interleave(3)), (X,), EVERYWHERE
    ),
    _sized(
        "repeat",
        lambda x, y: (x.repeat(y.shape[0], 1, 1), x.repeat_interleave(2, 1), y.repeat(1, x.shape[0])),
        (X, floats(2, 2)),
        ({0: "b", 1: "s"}, {0: "c"}),
        (floats(1, 5, 4), floats(3, 2)),
    ),
    Record(
        "at least",
        lambda s, v, m: (torch.atleast_1d(s), torch.atleast_2d(s, v), torch.atleast_3d(s, v, m)),
        (S, floats(3), floats(2, 3)),
        EVERYWHERE,
    ),
    Record(
        "pixel_shuffle",
        lambda x: (F.pixel_shuffle(x, 2), F.pixel_shuffle(x[0], 2)),
        (floats(2, 8, 3, 4),),
        (7, 9, 11, 13, HIGHEST),
    ),
    Record(
        "pixel_unshuffle",
        lambda x: (F.pixel_unshuffle(x, 2), F.pixel_unshuffle(x[0], 2)),
        (floats(2, 3, 4, 6),),
        (7, 9, 13, HIGHEST),
    ),
    _sized(
        "pixel_shuffle",
        lambda x: F.pixel_shuffle(x, 2),
        (floats(2, 8, 3, 4),),
        ({0: "b", 2: "h", 3: "w"},),
        (floats(3, 8, 5, 2),),
        opsets=(7, 9, 11, HIGHEST),
    ),
    *(
        Record(
            f"pixel_shuffle of {tensor.dtype}",
            lambda x: (F.pixel_shuffle(x, 2), F.pixel_unshuffle(x, 2), F.pixel_shuffle(x[0], 2)),
            (tensor,),
            (9, 11, HIGHEST),
        )
        for tensor in (integers(2, 8, 4, 6), integers(2, 8, 4, 6) > 0)
    ),
    Record(
        "pixel_shuffle of nothing",
        lambda x: F.pixel_shuffle(x, 2),
        (integers(0, 8, 4, 6),),
        (9, 11, HIGHEST),
    ),
    Record("pixel_shuffle batches", lambda x: F.pixel_shuffle(x, 2), (floats(2, 3, 8, 3, 4),), (9, 11)),
]
JOINS = [
    Record(
        "cat",
        lambda x, y: (torch.cat([x, y], -1), torch.cat([x, x]), torch.concat([x], 1)),
        (X, floats(2, 3, 2)),
        EVERYWHERE,
    ),
    Record(
        "cat of empty",
        lambda x, y, z: (torch.cat([y, x], 1), torch.cat([z, x]), torch.cat([y, y])),
        (X, torch.zeros(0), EMPTY),
        EVERYWHERE,
    ),
    Record(
        "cat types",
        lambda x, y: (torch.cat([x, x]), torch.cat([y, y]), torch.cat([x, y])),
        (I, B),
        EVERYWHERE,
    ),
    Record(
        "stack",
        lambda x: (torch.stack([x, x], -1), torch.stack([x, x, x]), torch.stack([x[0, 0, 0], x[0, 0, 1]])),
        (X,),
        EVERYWHERE,
    ),
    Record(
        "stacks",
        lambda x, v: (
            torch.hstack([x, x]),
            torch.hstack([v, v]),
            torch.vstack([v, v]),
            torch.dstack([v, v]),
            torch.column_stack([v, v]),
        ),
        (X, floats(3)),
        EVERYWHERE,
    ),
    _sized(
        "cat",
        lambda x, y: (torch.cat([x, y], 1), torch.stack([x, x], 1)),
        (X, floats(2, 2, 4)),
        ({0: "b", 1: "s"}, {0: "b", 1: "t"}),
        (floats(3, 0, 4), floats(3, 5, 4)),
        opsets=EVERYWHERE,
    ),
]
PARTS = [
    Record(
        "split",
        lambda x: (*x.split(2, 1), *x.split([1, 0, 3], -1), *x.split(5), *torch.split_with_sizes(x, [1, 1])),
        (X,),
        (*EVERYWHERE, 18),
    ),
    Record(
        "chunk",
        lambda x: (*x.chunk(2, 2), *x.chunk(3, -1), *x.chunk(5), *x.chunk(1)),
        (X,),
        (*EVERYWHERE, 18),
    ),
    Record("split types", lambda a, b: (*a.split(2, 1), *b.chunk(2)), (I, B), EVERYWHERE),
    Record("split of empty", lambda x: (*x.split(2), *x.chunk(2), *x.split([0, 0])), (EMPTY,), EVERYWHERE),
    Record(
        "tensor_split",
        lambda x: (*x.tensor_split(3, 2), *x.tensor_split((1, 2), -1), *x.tensor_split(5, 1)),
        (X,),
        EVERYWHERE,
    ),
    Record("unbind", lambda x: (*x.unbind(), *x.unbind(-1), *x[:, :1].unbind(1)), (X,), (*EVERYWHERE, 18)),
    _sized(
        "split",
        lambda x: (*x.chunk(2, 2), *x.split(2, 2), *x.unbind(2)),
        (X,),
        ({0: "b"},),
        (floats(3, 3, 4),),
        opsets=(*EVERYWHERE, 18),
    ),
    _sized(
        "computed split",
        lambda x: x.split([x.shape[1] - 2, 2], 1),
        (floats(2, 5),),
        ({1: "s"},),
        (floats(2, 2),),
        (floats(2, 9),),
    ),
    Record(
        "slice",
        lambda x: (x[:, 1:], x[..., -2:], x[:, :-1, 1:3], x[:, 5:], x[:, 2:1], x[..., :100], x[:, -100:2]),
        (X,),
        (*EVERYWHERE, 10),
    ),
    Record(
        "slice steps",
        lambda x: (x[..., ::2], x[:, 1::2], x[..., -3:-1:2], x[..., 3::5]),
        (X,),
        (*EVERYWHERE, 10),
    ),
    Record(
        "slice types",
        lambda *x: [a[:, 1:] for a in x],
        (I, B, I.int(), I.to(torch.uint8), X.double()),
        (*EVERYWHERE, 10),
    ),
    Record("slice half", lambda x: (x[:, 1:], x[:, ::2], x[:, 1]), (X.half(),), (*EVERYWHERE, 10)),
    _sized(
        "slice",
        lambda x: (x[:, 1:], x[:, :-1], x[:, -2:], x[:, 1:-1], x[:1], x[:, -1], x[:, :2], x[:, 0]),
        (floats(3, 4),),
        ({0: "b", 1: torch.export.Dim("s", min=4)},),
        (floats(5, 7),),
        opsets=EVERYWHERE,
    ),
    _sized(
        "computed slice",
        lambda x, y: (
            x[:, : y.shape[0]],
            x[:, y.shape[0] :],
            x[:, -y.shape[0] :],
            x[:, y.shape[0] - 1 : y.shape[0] + 1],
            x[:, : -y.shape[0]],
            x[y.shape[0] - 1],
            x.narrow(1, y.shape[0] - 1, 2),
        ),
        (floats(12, 12), floats(3)),
        ({}, {0: torch.export.Dim("s", min=1, max=10)}),
        (floats(12, 12), floats(1)),
        (floats(12, 12), floats(10)),
    ),
    _sized(
        "computed slice of computed",
        lambda x, y: (x[:, : y.shape[0]] * y, x[:, ::2], x[:, 1 : y.shape[0] : 2], x[:, -y.shape[0] : :]),
        (floats(2, 9), floats(5)),
        ({0: "b", 1: torch.export.Dim("m", min=9, max=100)}, {0: torch.export.Dim("s", min=4, max=8)}),
        (floats(3, 20), floats(8)),
        (floats(1, 9), floats(7)),
    ),
    Record("select", lambda x: (x[0], x.select(-1, -1), x[:, -2, 1], x.select(1, 2)), (X,), EVERYWHERE),
    Record("narrow", lambda x: (x.narrow(2, 1, 2), x.narrow(-1, -3, 2), x.narrow(1, 0, 3)), (X,), EVERYWHERE),
    Record(
        "roll",
        lambda x: (
            x.roll(1, 0),
            x.roll((-1, 2), (1, -1)),
            x.roll(5),
            x.roll(3, 1),
            x.roll(-7, 2),
            x[0, 0, 0].roll(0),
        ),
        (X,),
        EVERYWHERE,
    ),
    _sized(
        "roll",
        lambda x: (x.roll((-2, 3), (1, 2)), x.roll(1, 0)),
        (floats(2, 6, 6),),
        ({0: "b", 1: torch.export.Dim("h", min=3), 2: torch.export.Dim("w", min=3)},),
        (floats(3, 5, 7),),
    ),
    Record(
        "flip", lambda x: (x.flip(0), x.flip(1, -1), x.flip(()), x[0, 0, 0].flip(0)), (X,), (*EVERYWHERE, 10)
    ),
    *(
        Record(
            f"rot90 {k} {dims}",
            lambda x, k=k, d=dims: torch.rot90(x, k, d),
            (X,),
            (*EVERYWHERE, 10),
            dynamic=({0: "a", 2: "b"},),
        )
        for k, dims in ((1, (0, 1)), (2, (1, -1)), (3, (2, 0)), (-1, (-1, -2)), (4, (0, 2)), (-6, (0, 1)))
    ),
    _sized("flip", lambda x: x.flip(1, 2), (X,), ({1: "s"},), (floats(2, 6, 4),)),
    Record(
        "unfold",
        lambda x: (x.unfold(1, 2, 1), x.unfold(-1, 2, 2), x.unfold(0, 2, 5), x[0, 0, 0].unfold(0, 1, 1)),
        (X,),
        EVERYWHERE,
    ),
    _sized(
        "unfold",
        lambda x: x.unfold(1, 3, 2),
        (floats(2, 9),),
        ({1: torch.export.Dim("s", min=5)},),
        (floats(2, 12),),
        (floats(2, 5),),
    ),
]


def _rows(x: torch.Tensor) -> torch.Tensor:
    """The rows whose first element is positive, of which there may be none."""
    return x[x[:, 0] > 0]


NO_ROWS = [
    Resized(
        name,
        function,
        (floats(6, 16),),
        opsets,
        dynamic=({0: "b", 1: "8*n"},),
        others=((floats(5, 24),), (-torch.ones(3, 16),)),
    )
    # Below 14, onnxruntime infers a size beside one that it copies, and then takes no rows.
    for name, function, opsets in (
        ("rows, split", lambda x: _rows(x).view(_rows(x).shape[0], x.shape[1] // 8, 8), (14, HIGHEST)),
        (
            "rows, moved",
            lambda x: _rows(x).view(x.shape[1] // 8, _rows(x).shape[0], 8) * 2,
            (7, 9, 14, HIGHEST),
        ),
        ("rows, joined", lambda x: _rows(x).view(-1, 8) * 2, (7, 9, 14, HIGHEST)),
    )
]


@parametrized([*RESHAPES, *EXPANSIONS, *JOINS, *PARTS, *NO_ROWS])
def test_shape_agrees_with_eager(record: Record) -> None:
    check_sizes(record)
