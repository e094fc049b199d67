"""Reading and writing by index against eager PyTorch: gather, index, scatter, where, triangles, searches."""

import torch
import torch.nn.functional as F

import opsetta

from .records import BASE, EVERYWHERE, HIGHEST, Record, floats, integers, parametrized
from .resized import Resized, check_sizes

X = floats(3, 4, 5)
I = integers(3, 4, 5)  # noqa: E741
B = X > 0
S = torch.tensor(3.5)
INDEXED = (9, 10, 11, 13, HIGHEST)
SUMMED = (16, 18, HIGHEST)
ROWS = torch.tensor([0, 2, 1])
SIGNED = torch.tensor([[0, -1], [2, -3]])


def _dynamic(name, function, inputs, dynamic, *others, opsets=INDEXED, **kwargs):
    return Resized(f"{name} dynamic", function, inputs, opsets, dynamic=dynamic, others=others, **kwargs)


def _put(x, indices, values, accumulate=False):
    return torch.ops.aten.index_put(x, indices, values, accumulate)


def _assign(x, i, v):
    """Assign at positions that are elements of a tensor."""
    x = x.clone()
    x[i[0]] = v
    x[:, i[1], 1:] = 2.0
    x[i[1], ..., 0] += 1
    x[i[2], i[:2], i[0]] = v[0, :2]
    x[None, i[0], x[0, :, 0] > 0] = 5.0
    return x


READS = [
    Record(
        "take_along_dim beyond the end",
        lambda x, i: x.take_along_dim(i, 1),
        (X[0], torch.tensor([[0, 3, 5, 9, -1]])),
        (7, 9, 11, HIGHEST),
    ),
    Record(
        "trace dynamic",
        lambda x: (x.trace(), x[:, :3].long().trace()),
        (X[0],),
        INDEXED,
        dynamic=({0: "n"},),
    ),
    Record(
        "nonzero of types without a kernel",
        lambda x, y: (x.nonzero(), torch.where(x), y.nonzero()),
        (I[0].to(torch.int16), floats(2, 3, dtype=torch.float64).round()),
        INDEXED,
    ),
    _dynamic(
        "elements that are repeated",
        lambda x, i: (
            x[:1].expand(len(i), -1, -1)[i[:, None], torch.arange(x.shape[1])],
            x[:, :1].expand(-1, 5, -1)[:, torch.tensor([[0], [4]]), i],
            x[:1, :, :1].expand(len(i), -1, 3)[i, i - 1],
            x[:1].expand(len(i), -1, -1)[i, :, i % 2],
        ),
        (X, ROWS),
        ({1: "n", 2: "m"}, {0: "k"}),
        (floats(3, 7, 6), torch.tensor([1, 0])),
    ),
    _dynamic(
        "dimensions of size 1",
        lambda x, i: (
            x[:, None][i, i * 0],
            x[:, None][i[:, None], torch.tensor([[[0]], [[-1]]])],
            x[None][i * 0 - 1, i, :1],
        ),
        (X, ROWS),
        ({1: "n", 2: "m"}, {0: "k"}),
        (floats(3, 7, 6), torch.tensor([1, 0])),
    ),
    Record(
        "embedding",
        lambda i, w: F.embedding(i, w, padding_idx=1),
        (integers(2, 3, low=0, high=7), floats(7, 4)),
        EVERYWHERE,
    ),
    _dynamic(
        "embedding",
        F.embedding,
        (integers(2, 3, low=0, high=7), floats(7, 4)),
        ({0: "b", 1: "s"}, None),
        (integers(4, 6, low=0, high=7), floats(7, 4)),
    ),
    Record(
        "index_select",
        lambda x, i, s: (x.index_select(1, i), x.index_select(-1, s), x[0, 0, 0].index_select(0, s * 0)),
        (X, ROWS, torch.tensor(1)),
        EVERYWHERE,
    ),
    Record("take", lambda x, i: x.take(i), (X, torch.tensor([[0, 59], [-1, 7]])), INDEXED),
    Record(
        "gather",
        lambda x, i, j: (x.gather(2, i), x.gather(-3, j), x.gather(1, i[:, :2, :1])),
        (X, integers(3, 4, 2, low=0, high=4), integers(2, 4, 5, low=0, high=3)),
        (7, *INDEXED),
    ),
    Record(
        "gather types",
        lambda x, y, i: (x.gather(2, i), y.gather(2, i)),
        (I, B, integers(3, 4, 2, low=0, high=4)),
        INDEXED,
    ),
    Record(
        "gather of scalar",
        lambda x, i: (x.gather(0, i), x.gather(0, i.reshape(1))),
        (S, torch.tensor(0)),
        INDEXED,
    ),
    Record("gather of vector", lambda x, i: x.gather(0, i), (X[0, 0], ROWS), (7, *INDEXED)),
    Record(
        "gather of nothing",
        lambda x, i: (x.gather(1, i), x[0, 0].gather(0, i[:, :, 0]), x.gather(-1, i[0, :, 0])),
        (X, torch.zeros(3, 0, 5, dtype=torch.int64)),
        INDEXED,
    ),
    _dynamic(
        "gather",
        lambda x, i: (x.gather(1, i), x.t().gather(0, i.t())),
        (floats(3, 6), integers(3, 4, low=0, high=6)),
        ({0: "b"}, {0: "b", 1: "s"}),
        (floats(5, 6), integers(5, 3, low=0, high=6)),
    ),
    _dynamic(
        "gather in rows",
        lambda x, i: x.gather(1, i[..., None].expand(-1, -1, 5)),
        (X, integers(3, 2, low=0, high=4)),
        ({0: "b", 1: "s"}, {0: "b", 1: "k"}),
        (floats(2, 7, 5), integers(2, 3, low=0, high=7)),
    ),
    Record(
        "take_along_dim",
        lambda x, i: (x.take_along_dim(i, 1), x.take_along_dim(i.abs().reshape(-1))),
        (X, integers(1, 2, 5, low=-4, high=4)),
        INDEXED,
    ),
    Record(
        "index",
        lambda x, i, s: (
            x[i],
            x[:, s],
            x[..., s],
            x[i, :, None],
            x[s[0]],
            torch.ops.aten.index(x, [None, s[0, 1]]),
        ),
        (X, ROWS, SIGNED),
        INDEXED,
    ),
    Record(
        "index by several",
        lambda x, i, s: (
            x[i, i],
            x[:, i, i],
            x[i, :, i],
            x[s, i[:2]],
            x[i, i, i],
            x[s, :, s],
            x[s, 1],
            x[i[:, None], i],
        ),
        (X, ROWS, SIGNED),
        INDEXED,
    ),
    Record(
        "index by mask",
        lambda x, b, m, r: (x[b], x[m], x[:, r], x[r[:3]], x[m, 1:3], x[:, r, -1]),
        (X, B, B[..., 0], torch.tensor([True, False, True, True])),
        INDEXED,
    ),
    Record("index types", lambda x, y, i: (x[i], y[i], x.int()[:, i]), (I, B, ROWS.int()), INDEXED),
    _dynamic(
        "index",
        lambda x, m: (x[torch.arange(x.shape[0]), m], x[:, m], x[m[:, None], m]),
        (floats(3, 3, 5), ROWS),
        ({0: "b", 1: "b"}, {0: "b"}),
        (floats(4, 4, 5), torch.tensor([0, -1, 3, 2])),
    ),
    _dynamic(
        "index of a mask",
        lambda m, q: m[
            torch.arange(m.shape[0])[:, None, None, None],
            torch.arange(q.shape[0])[None, None, :, None],
            torch.arange(m.shape[2]),
        ],
        (B[:, :, :4], floats(4)),
        ({0: "b", 1: torch.export.Dim("q"), 2: "k"}, {0: torch.export.Dim("q")}),
        (floats(2, 6, 3) > 0, floats(6)),
    ),
    _dynamic(
        "index by signed",
        lambda x, s: (x[s], x[:, s], x[s, s]),
        (X, SIGNED),
        ({0: "b", 1: "s"}, None),
        (floats(5, 6, 5), SIGNED),
    ),
    Record(
        "diagonal",
        lambda x: (
            x.diagonal(),
            x.diagonal(1, 1, 2),
            x.diagonal(-2, 0, -1),
            x.diagonal(0, 2, 0),
            x.diagonal(9),
        ),
        (X,),
        EVERYWHERE,
    ),
    _dynamic(
        "diagonal",
        lambda x: (x.diagonal(0, 1, 2), x.diagonal(1, 1, 2)),
        (X,),
        ({0: "b", 1: "s"},),
        (floats(2, 3, 5),),
    ),
]
WRITES = [
    Record(
        "scatter of longer sources into a scalar",
        lambda x, s: torch.scatter_add(x, 0, torch.tensor(0), s),
        (S, torch.arange(4.0)),
        SUMMED,
    ),
    Record(
        "write to the diagonal of nothing",
        lambda x: (x * 1).diagonal_scatter(torch.zeros(0)),
        (torch.zeros(3, 0),),
        INDEXED,
        dynamic=({0: "n"},),
    ),
    Record(
        "index_put",
        lambda x, i, v: (
            _put(x, (i,), v),
            _put(x, (None, i), v[0, :1]),
            _put(x, (i, i), v[0, :3]),
            _put(x, (i, i, i), v[0, 0, :1]),
        ),
        (X, ROWS, floats(3, 4, 5, seed=1)),
        INDEXED,
    ),
    Record(
        "index_put apart",
        lambda x, i, v: (_put(x, (i, None, i), v), _put(x, (None, i, i), v[:, :3])),
        (X, ROWS, floats(3, 4, seed=1)),
        INDEXED,
    ),
    Record(
        "index_put signed",
        lambda x, s, v: (_put(x, (s,), v), _put(x, (s, s + 1), v)),
        (X, torch.tensor([-1, 0]), S),
        INDEXED,
    ),
    Record(
        "index_put types", lambda x, b, i: (_put(x, (i,), x[:1]), _put(b, (i,), ~b)), (I, B, ROWS), INDEXED
    ),
    Record(
        "index_put mask",
        lambda x, b, m, v: (_put(x, (b,), v), _put(x, (m,), v), _put(x, (None, m[0]), v)),
        (X, B, B[..., 0], S),
        (7, *INDEXED),
    ),
    Record(
        "index_put mask of values",
        lambda x, m, v: _put(x, (m,), v),
        (X, torch.tensor([True, False, True]), floats(2, 4, 5)),
        INDEXED,
    ),
    Record(
        "index_put sums",
        lambda x, i, v: (_put(x, (i,), v, True), _put(x, (None, i, i), v[:, :3, 0], True)),
        (X, torch.tensor([0, 2, 0]), floats(3, 4, 5, seed=1)),
        (9, 15, *SUMMED),
    ),
    Record(
        "assign at computed positions", _assign, (X, torch.tensor([-1, 1, 0]), floats(4, 5)), (9, 13, HIGHEST)
    ),
    Record("index_put sums mask", lambda x, b, v: _put(x, (b,), v, True), (X, B, S), INDEXED),
    _dynamic(
        "index_put",
        lambda x, i, v: (_put(x, (i,), v), _put(x, (None, i), v[:1])),
        (X[:, :3], ROWS, floats(3, 3, 5)),
        ({0: "b", 1: "b"}, {0: "b"}, {0: "b", 1: "b"}),
        (floats(4, 4, 5), torch.tensor([0, 3, 2, 1]), floats(4, 4, 5)),
    ),
    Record(
        "scatter",
        lambda x, i, v: (x.scatter(1, i, v), x.scatter(-1, i, 2.5), x.scatter(0, i[:1, :2, :3], v)),
        (X, torch.argsort(floats(3, 4, 5), 1) % 3, X * 2),
        (9, 10, 11, 13, 16, 18, HIGHEST),
    ),
    Record(
        "scatter types",
        lambda x, y, i: (x.scatter(0, i, 7), y.scatter(0, i, True)),
        (I, B, torch.zeros(1, 4, 5, dtype=torch.int64)),
        INDEXED,
    ),
    Record(
        "scatter sums",
        lambda x, i, v: (
            x.scatter_add(1, i, v),
            torch.scatter(x, 1, i, v, reduce="add"),
            torch.scatter(x, 1, i, v, reduce="multiply"),
            x.index_add(1, i[0, :, 0], v),
            x.index_add(0, i[0, :3, 0], v, alpha=2),
        ),
        (X, integers(3, 4, 5, low=0, high=3), floats(3, 4, 5, seed=1)),
        (9, 15, *SUMMED),
    ),
    Record(
        "scatter extremes",
        lambda x, i, v: (
            x.scatter_reduce(1, i, v, "amax"),
            x.scatter_reduce(1, i, v, "amin", include_self=False),
            x.scatter_reduce(1, i, v, "sum", include_self=False),
        ),
        (X, integers(3, 4, 5, low=0, high=3), floats(3, 4, 5, seed=1)),
        (9, 17, 18, HIGHEST),
    ),
    Record(
        "scatter sums of half",
        lambda x, i, v: (
            x.scatter_add(1, i, v),
            torch.scatter(x, 1, i, v, reduce="multiply"),
            x.index_add(1, i[0, :, 0], v),
            x.index_put((i[:, 0, 0],), v, accumulate=True),
        ),
        (X.half(), integers(3, 4, 5, low=0, high=3), floats(3, 4, 5, seed=1).half()),
        (16, 18, HIGHEST),
        atol=1e-2,
    ),
    Record(
        "index copies",
        lambda x, i, v: (x.index_copy(0, i, v), x.index_copy(1, i[:2], v[:, :2]), x.index_fill(-1, i, 2.0)),
        (X, ROWS, floats(3, 4, 5, seed=1)),
        INDEXED,
    ),
    Record(
        "index copies of scalars",
        lambda x, i, v: (
            x.index_copy(0, i, v),
            x.index_copy(0, i[0], v[0]),
            x.index_fill(0, i, 2.0),
            x.index_fill(-1, i[0], v[0]),
            v.index_copy(0, i, x),
            v.index_fill(0, i[0], 3.0),
        ),
        (floats(1)[0], torch.tensor([0]), floats(1, seed=1)),
        INDEXED,
    ),
    Record(
        "index_add of scalars",
        lambda x, i, v: (x.index_add(0, i, v[0]), x.index_add(0, i[0], v[0], alpha=2)),
        (floats(1)[0], torch.tensor([0]), floats(1, seed=1)),
        (9, 15, *SUMMED),
    ),
    Record(
        "select_scatter",
        lambda x, v: (
            x.select_scatter(v[0], 0, 1),
            x.select_scatter(v[0], 0, -1),
            x.select_scatter(v[:, 0], 1, -2),
        ),
        (X, floats(3, 4, 5, seed=1)),
        EVERYWHERE,
    ),
    Record(
        "slice_scatter",
        lambda x, v: (
            x.slice_scatter(v[:, :2], 1, 1, 3),
            x.slice_scatter(v[..., :2], -1, -2),
            x.slice_scatter(v[..., :2], 2, 1, 5, 2),
            x.slice_scatter(v, 0),
            x.slice_scatter(v[:, :0], 1, 3, 2),
        ),
        (X, floats(3, 4, 5, seed=1)),
        EVERYWHERE,
    ),
    _dynamic(
        "slice_scatter",
        lambda x, v: (
            x.slice_scatter(v, 1, 0, v.shape[1]),
            x.slice_scatter(v, 1, -v.shape[1]),
            x.select_scatter(v[:, 0], 1, -1),
        ),
        (floats(3, 12), floats(3, 4)),
        ({0: "b"}, {0: "b", 1: torch.export.Dim("s", max=11)}),
        (floats(2, 12), floats(2, 7)),
        (floats(2, 12), floats(2, 1)),
    ),
    Record(
        "diagonal_scatter",
        lambda x, v: (
            x.diagonal_scatter(v, 0, 1, 2),
            x.diagonal_scatter(v[:, :3], -1, 1, 2),
            x.diagonal_scatter(v, 1, -2, -1),
        ),
        (X, floats(3, 4)),
        INDEXED,
    ),
]
CHOICES = [
    Record(
        "where of 16 bits",
        lambda x: (torch.where(x > 0, x, 2), torch.where(x > 0, x, -x), x.masked_fill(x > 1, 7)),
        (I.to(torch.int16),),
        (9, 13, HIGHEST),
    ),
    Record(
        "where",
        lambda b, x, y, s: (
            torch.where(b, x, y),
            torch.where(b, x, 0.0),
            torch.where(b, 1.0, y),
            torch.where(b[0], 1.0, 2.0),
            torch.where(b, s, x),
            torch.where(b[:, :1], x, y),
        ),
        (B, X, X * 2, S),
        (7, 9, 16, HIGHEST),
    ),
    Record(
        "where types",
        lambda b, x, y: (
            torch.where(b, x, 3),
            torch.where(b, y, b),
            torch.where(b, x.int(), x.int() + 1),
            torch.where(b, 1, 2),
            torch.where(b, x.to(torch.uint8), x.to(torch.uint8)),
        ),
        (B, I, ~B),
        (7, 9, 16, HIGHEST),
    ),
    Record(
        "where half",
        lambda b, x: (torch.where(b, x, 0.0), x.masked_fill(b, float("-inf"))),
        (B, X.half()),
        (9, 16, HIGHEST),
    ),
    Record("where positions", lambda b: torch.where(b), (B,), INDEXED),
    Record(
        "masked_fill",
        lambda x, b, s: (
            x.masked_fill(b, float("-inf")),
            x.masked_fill(b[0], torch.finfo(x.dtype).min),
            x.masked_fill(b[:, :1], s),
            x[0].masked_fill(b[0], 1),
        ),
        (X, B, S),
        (7, 9, 16, HIGHEST),
    ),
    Record(
        "masked_fill types",
        lambda x, b: (x.masked_fill(b, -1), b.masked_fill(~b, True), x.int().masked_fill(b, 3)),
        (I, B),
        (9, 16, HIGHEST),
    ),
    Record("masked_select", lambda x, b: (x.masked_select(b), x.masked_select(b[0])), (X, B), INDEXED),
    Record(
        "nonzero",
        lambda x, y, z: (x.nonzero(), y.nonzero(), torch.argwhere(x), z.nonzero()),
        (B, I, B[0, 0]),
        INDEXED,
    ),
    Record(
        "triangles",
        lambda x: (x.tril(), x.triu(1), x.tril(-2), x.triu(-1), x[0].tril(9)),
        (X,),
        (7, 9, 13, 14, HIGHEST),
    ),
    Record(
        "triangles of types",
        lambda x, b: (x.tril(), b.triu(1), x.int().triu(), x.double().tril()),
        (I, B),
        (9, 13, 14, HIGHEST),
    ),
    Record("triangles of half", lambda x: x.tril(), (X.half(),), (9, 13, 14, HIGHEST)),
    _dynamic(
        "triangles",
        lambda x: (x.tril(), x.triu(1), torch.full((x.shape[1], x.shape[1]), -1.0).triu(1)),
        (X,),
        ({1: "s"},),
        (floats(3, 7, 5),),
        opsets=(*INDEXED, 14),
    ),
    Record(
        "diff",
        lambda x, b: (
            x.diff(),
            x.diff(2, 1),
            x.diff(1, 0, prepend=x[:1]),
            x.diff(append=x[..., :1] * 2),
            b.diff(),
        ),
        (X, B),
        EVERYWHERE,
    ),
    _dynamic("diff", lambda x: x.diff(dim=1), (X,), ({1: torch.export.Dim("s", min=3)},), (floats(3, 6, 5),)),
    Record("one_hot", lambda i: F.one_hot(i, 7), (integers(3, 2, low=0, high=7),), (7, *BASE)),
    Record(
        "bucketize",
        lambda x, e: (torch.bucketize(x, e), torch.bucketize(x, e, right=True, out_int32=True)),
        (X, torch.tensor([-1.0, 0.0, 0.5, 0.5, 1.0])),
        BASE,
    ),
    Record("bucketize ints", lambda x, e: torch.bucketize(x, e), (I, torch.tensor([-3, 0, 4])), BASE),
    Record(
        "searchsorted",
        lambda s, x: (
            torch.searchsorted(s, x),
            torch.searchsorted(s, x, side="right"),
            torch.searchsorted(s[0, 0], 0.3),
        ),
        (X.sort(-1).values, floats(3, 4, 2)),
        BASE,
    ),
]


REPEATED = [
    _dynamic(
        f"part of a repeated dimension {name}",
        lambda x, part=part: part(x[None, None].expand(4, x.shape[1], -1, -1)),
        (X[0],),
        ({0: "n", 1: "m"},),
        (floats(2, 3),),
        opsets=(8, 13, HIGHEST),
    )
    for name, part in {
        "select": lambda x: x[-1] + 1,
        "slice": lambda x: x[1:3] + 1,
        "empty": lambda x: x[4:].sum(0),
    }.items()
]


@parametrized([*READS, *WRITES, *CHOICES, *REPEATED])
def test_indexing_agrees_with_eager(record: Record) -> None:
    check_sizes(record)


def test_a_part_of_a_repeated_dimension_is_a_smaller_expand() -> None:
    program = opsetta.export(
        lambda x: (x.expand(4, 3, -1)[1], x.expand(4, 3, -1)[1:]),
        (floats(1, 1, 5),),
        opset=13,
        dynamic_shapes=({2: "n"},),
    )
    assert {node.op_type for node in program.model.graph} <= {"Expand", "Squeeze", "Reshape"}


def test_an_index_of_positions_at_themselves_is_no_operator() -> None:
    """The mask of transformers' models for one text, if the batch is fixed."""

    def mask(x: torch.Tensor) -> torch.Tensor:
        positions = torch.arange(x.shape[1])[None]
        rows = positions[torch.arange(1)[:, None], positions]
        return x.masked_fill(positions[:, None] > rows[..., None], 0.0)

    program = opsetta.export(mask, (floats(1, 5, 5),), opset=13, dynamic_shapes=({1: "n", 2: "n"},))
    program.verify((floats(1, 3, 3),))
    assert [node.op_type for node in program.model.graph].count("Gather") == 1  # of the size
