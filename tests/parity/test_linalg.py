"""Matrix products against eager PyTorch: ranks, integer types, factors, einsum below and from opset 12."""

import pytest
import torch

import opsetta

from .records import BASE, EVERYWHERE, HIGHEST, Record, check, floats, integers, parametrized

INTEGER_MATMUL = dict.fromkeys((7, 8), "MatMul takes integers from 9")
EINSUM = (7, 9, 11, 12, HIGHEST)


def _linear(bias: bool = True) -> torch.nn.Module:
    module = torch.nn.Linear(4, 5, bias=bias)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(floats(*parameter.shape, seed=9))
    return module


def _record(name: str, function, *inputs: torch.Tensor, opsets=EVERYWHERE, **options) -> Record:
    return Record(name, function, inputs, opsets, **options)


LINEAR = [
    _record("linear-rank2", _linear(), floats(3, 4)),
    _record("linear-rank2-without-bias", _linear(bias=False), floats(3, 4)),
    _record("linear-rank1", _linear(), floats(4)),
    _record("linear-rank3", _linear(), floats(2, 3, 4)),
    _record("linear-rank4-without-bias", _linear(bias=False), floats(2, 3, 2, 4)),
    _record("linear-rank2-dynamic", _linear(), floats(3, 4), dynamic=({0: "batch"},)),
    _record("linear-rank3-dynamic", _linear(), floats(2, 3, 4), dynamic=({0: "batch", 1: "length"},)),
    _record("bilinear", torch.nn.Bilinear(3, 4, 5).eval(), floats(2, 3), floats(2, 4)),
    _record(
        "bilinear-rank3", torch.nn.Bilinear(3, 4, 5, bias=False).eval(), floats(2, 6, 3), floats(2, 6, 4)
    ),
    _record("linear-half", _linear().half(), floats(3, 4, dtype=torch.float16)),
    _record("linear-double", _linear().double(), floats(2, 3, 4, dtype=torch.float64)),
    _record(
        "linear-integers",
        torch.nn.functional.linear,
        integers(3, 4),
        integers(5, 4, seed=1),
        integers(5, seed=2),
        opsets=BASE,
        refused=INTEGER_MATMUL,
    ),
]

_MATMUL_SHAPES = [
    ((4,), (4,)),
    ((3, 4), (4,)),
    ((4,), (4, 5)),
    ((2, 3, 4), (4,)),
    ((4,), (2, 4, 5)),
    ((2, 3, 4), (4, 5)),
    ((2, 1, 3, 4), (5, 4, 6)),
    ((3, 0), (0, 4)),
]
MATMUL = [
    _record(f"matmul-{len(a)}x{len(b)}-{sum(a)}", torch.matmul, floats(*a), floats(*b, seed=1))
    for a, b in _MATMUL_SHAPES
]
MATMUL += [
    _record(
        "matmul-dynamic",
        torch.matmul,
        floats(2, 3, 4),
        floats(2, 4, 5, seed=1),
        dynamic=({0: "batch", 1: "rows"}, {0: "batch"}),
    ),
    _record("matmul-int32", torch.matmul, *(integers(3, 3, dtype=torch.int32, seed=s) for s in (0, 1))),
    _record(
        "matmul-int64",
        torch.matmul,
        integers(3, 3),
        integers(3, 3, seed=1),
        opsets=BASE,
        refused=INTEGER_MATMUL,
    ),
    _record(
        "matmul-uint8-wraps",
        torch.matmul,
        integers(3, 40, low=0, high=255, dtype=torch.uint8),
        integers(40, 2, low=0, high=255, seed=1, dtype=torch.uint8),
    ),
    _record("mm", torch.mm, floats(3, 4), floats(4, 5, seed=1)),
    _record("bmm", torch.bmm, floats(2, 3, 4), floats(2, 4, 5, seed=1)),
    _record("mv", torch.mv, floats(3, 4), floats(4, seed=1)),
    _record("dot", torch.dot, floats(4), floats(4, seed=1)),
    _record("vdot", torch.vdot, floats(4), floats(4, seed=1)),
    _record("outer", torch.outer, floats(4), floats(3, seed=1)),
    _record("inner-rank1", torch.inner, floats(3, 4), floats(4, seed=1)),
    _record("inner-rank2", torch.inner, floats(2, 3, 4), floats(5, 4, seed=1)),
    _record("inner-rank3", torch.inner, floats(2, 3, 4), floats(5, 6, 4, seed=1)),
    _record("inner-scalar", torch.inner, floats(3), torch.tensor(2.5)),
    _record(
        "linalg_vecdot", lambda x, y: torch.linalg.vecdot(x, y, dim=0), floats(3, 4), floats(3, 4, seed=1)
    ),
    _record(
        "linalg_multi_dot",
        lambda a, b, c: torch.linalg.multi_dot([a, b, c]),
        floats(3, 4),
        floats(4, 5, seed=1),
        floats(5, 2, seed=2),
    ),
]


def _with_factors(beta: float, alpha: float) -> list[Record]:
    def named(name: str, function, *shapes: tuple[int, ...]) -> Record:
        inputs = [floats(*shape, seed=seed) for seed, shape in enumerate(shapes)]
        return _record(f"{name}-{beta}-{alpha}", lambda *a: function(*a, beta=beta, alpha=alpha), *inputs)

    return [
        named("addmm", torch.addmm, (5,), (3, 4), (4, 5)),
        named("addmm-full", torch.addmm, (3, 5), (3, 4), (4, 5)),
        named("baddbmm", torch.baddbmm, (2, 3, 5), (2, 3, 4), (2, 4, 5)),
        named("addbmm", torch.addbmm, (3, 5), (2, 3, 4), (2, 4, 5)),
        named("addmv", torch.addmv, (3,), (3, 4), (4,)),
        named("addr", torch.addr, (3, 4), (3,), (4,)),
    ]


FACTORS = [record for factors in ((1, 1), (0.5, 2.0), (0, 3.0)) for record in _with_factors(*factors)]
FACTORS += [
    _record(
        "addmm-integers",
        lambda c, a, b: torch.addmm(c, a, b, beta=3, alpha=2),
        integers(5),
        integers(3, 4, seed=1),
        integers(4, 5, seed=2),
        opsets=BASE,
        refused=INTEGER_MATMUL,
    ),
    *(
        _record(
            f"{name}-integers-by-fractions",
            lambda a, b, c, function=function: function(a, b, c, beta=1.6, alpha=2.9),
            *(integers(*shape, seed=seed) for seed, shape in enumerate(shapes)),
            opsets=BASE,
        )
        for name, function, *shapes in (
            ("addmv", torch.addmv, (3,), (3, 4), (4,)),
            ("addbmm", torch.addbmm, (3, 5), (2, 3, 4), (2, 4, 5)),
            ("baddbmm", torch.baddbmm, (2, 3, 5), (2, 3, 4), (2, 4, 5)),
        )
    ),
    _record(
        "addmm-of-nothing",
        lambda c, a, b: (torch.addmm(c, a, b, beta=0.2, alpha=0.6), torch.addmm(c[0], a, b, beta=3)),
        floats(3, 5),
        torch.zeros(3, 0),
        torch.zeros(0, 5),
    ),
    _record(
        "addmm-beta-zero-hides-nan",
        lambda c, a, b: torch.addmm(c, a, b, beta=0),
        torch.full((5,), float("nan")),
        floats(3, 4),
        floats(4, 5, seed=1),
    ),
]

_EQUATIONS = {
    "ij,jk->ik": [(3, 4), (4, 5)],
    "bij,bjk": [(2, 3, 4), (2, 4, 5)],
    "bhqd,bhkd->bhqk": [(2, 3, 4, 5), (2, 3, 6, 5)],
    "bqhd,bkhd->bhqk": [(2, 4, 3, 5), (2, 6, 3, 5)],
    "i,j->ij": [(3,), (4,)],
    "ij->ji": [(3, 4)],
    "ij->": [(3, 4)],
    "...ij,...jk->...ik": [(2, 1, 3, 4), (6, 4, 5)],
    "b i j , b j k -> b i k": [(2, 3, 4), (2, 4, 5)],
    "abc,cd,de->abe": [(2, 3, 4), (4, 5), (5, 6)],
    "abcd,cdef->efab": [(2, 3, 4, 5), (4, 5, 6, 7)],
    "abc,abc->": [(2, 3, 4), (2, 3, 4)],
    "ab,ab->ab": [(3, 4), (3, 4)],
    "ij,kj->ik": [(3, 1), (4, 5)],
    "Ab,bc->Ac": [(3, 4), (4, 5)],
}


def _equation(equation: str, *shapes: tuple[int, ...], **options) -> Record:
    inputs = [floats(*shape, seed=seed) for seed, shape in enumerate(shapes)]
    name = f"einsum-{equation.replace(' ', '')}{'-dynamic' if 'dynamic' in options else ''}"
    options = {"opsets": EINSUM, **options}
    return _record(name, lambda *tensors: torch.einsum(equation, *tensors), *inputs, **options)


EQUATIONS = [_equation(equation, *shapes) for equation, shapes in _EQUATIONS.items()]
EQUATIONS += [
    _equation("ij,kj->ik", (3, 0), (2, 0)),
    _equation("...ij,...kj->...ik", (0, 3, 4), (0, 2, 4)),
]
EQUATIONS += [
    _equation(
        "bqhd,bkhd->bhqk",
        (2, 4, 3, 5),
        (2, 6, 3, 5),
        dynamic=({0: "batch", 1: "queries"}, {0: "batch", 1: "keys"}),
    ),
    _equation("ii->i", (3, 3)),
    _equation("ii", (3, 3)),
    _equation("iji,ik->jk", (3, 2, 3), (3, 4)),
    _equation("aabb->ba", (2, 2, 3, 3)),
    _equation("bii->bi", (2, 3, 3), dynamic=({0: "b", 1: "i", 2: "i"},)),
    _equation("abc,cd->abd", (2, 3, 4), (4, 5), dynamic=({0: "a", 1: "b"}, None)),
    _equation("abc,acd->dab", (2, 3, 4), (2, 4, 5), dynamic=({0: "a", 1: "b"}, {0: "a"})),
]


def _relative(lengths: tuple[int, int], rows: int) -> Record:
    """Products with rows of a table, selected by distances, of which some count from the end."""
    table = floats(rows, 4, seed=1)

    def multiply(query: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
        distance = torch.arange(keys.shape[0]) - torch.arange(query.shape[2])[:, None]
        return torch.einsum("bhld,lrd->bhlr", query, table[distance.clamp(-3, 2)])

    return _record(
        f"einsum-relative-{rows}",
        multiply,
        floats(2, 3, lengths[0], 4),
        floats(lengths[1]),
        opsets=EINSUM,
        dynamic=({0: "batch", 2: "queries"}, {0: "keys"}),
    )


EQUATIONS += [_relative((5, 7), 6), _relative((7, 5), 9)]

BYTES, SHORTS = (torch.arange(start, start + 12).reshape(3, 4) for start in (200, 100))
EQUATIONS += [
    _record(
        f"einsum-{x.dtype}",
        lambda x: (
            torch.einsum("ij,kj->ik", x, x),
            torch.einsum("ij->ji", x),
            torch.einsum("ij->i", x),
            torch.einsum("ij,ij->", x, x),
        ),
        x,
        opsets=(7, *EINSUM),
    )
    for x in (BYTES.byte(), SHORTS.to(torch.int8), SHORTS.to(torch.int16), SHORTS.int())
]


@parametrized(LINEAR + MATMUL + FACTORS + EQUATIONS)
def test_agrees_with_eager(record: Record) -> None:
    check(record)


@pytest.mark.parametrize("opset", [7, 13, HIGHEST])
def test_linear_of_rank_two_is_one_gemm(opset: int) -> None:
    program = opsetta.export(_linear().eval(), (floats(3, 4),), opset=opset)
    assert [node.op_type for node in program.model_proto.graph.node] == ["Gemm"]
