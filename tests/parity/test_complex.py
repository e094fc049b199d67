"""Complex numbers as real pairs against eager PyTorch: arithmetic, functions, shapes, products, models."""

import pytest
import torch

import opsetta

from .records import HIGHEST, Record, check, floats, parametrized

OPSETS = (7, 13, HIGHEST)
FROM_9 = (9, 18)
DYNAMIC = {0: "batch", 1: "length"}


def complexes(*shape: int, seed: int = 0, dtype: torch.dtype = torch.complex64) -> torch.Tensor:
    """Normally distributed complex numbers, the same ones every time."""
    return torch.complex(floats(*shape, seed=seed), floats(*shape, seed=seed + 100)).to(dtype)


Z, W, X = complexes(3, 4), complexes(3, 4, seed=1), floats(3, 4, seed=2)
EDGES = torch.tensor([0, 1, -1, 1j, -1j, 3 + 4j, -2 - 0.5j, 1e-3 + 1e-3j, 1e30 + 1e30j, 1e-30 + 0j])
POLES = torch.tensor([complex("inf"), complex("nan"), 0, complex(0, float("inf")), complex(1, float("nan"))])


def _unary(name: str, *values: torch.Tensor, opsets=OPSETS, **options) -> list[Record]:
    function = getattr(torch, name)
    return [Record(f"{name}-{i}", function, (value,), opsets, **options) for i, value in enumerate(values)]


_FUNCTIONS = (
    "exp exp2 expm1 sqrt rsqrt sin cos tan sinh cosh tanh sigmoid reciprocal log log2 log10 log1p sgn angle "
    "asin acos atan asinh acosh atanh square neg conj_physical"
)
FUNCTIONS = [record for name in _FUNCTIONS.split() for record in _unary(name, Z, opsets=FROM_9)]
FUNCTIONS += [
    *_unary("abs", Z, EDGES, POLES),
    *_unary("sqrt", EDGES[:8], -EDGES[:8], opsets=FROM_9),
    *_unary("log", EDGES[1:], opsets=FROM_9),
    *_unary("angle", EDGES, opsets=FROM_9),
    *_unary("sgn", EDGES, opsets=FROM_9),
    *_unary("isfinite", POLES, opsets=(13,)),
    *_unary("isnan", POLES, opsets=(9, 13)),
    *_unary("isinf", POLES, opsets=(13,)),
    *_unary("isreal", EDGES),
    *_unary("expm1", 1e-4 * Z, opsets=(9, 13), atol=1e-9),
    *_unary("log1p", 1e-4 * Z, opsets=(9, 13), atol=1e-9),
    *_unary("exp", Z[0, 0], complexes(0, 3), opsets=(9, 13)),
]

ARITHMETIC = [
    Record("add", lambda z, w: torch.add(z, w, alpha=2), (Z, W), OPSETS),
    Record("add-alpha", lambda z, w: torch.add(z, w, alpha=2j), (Z, W), OPSETS),
    Record("add-real", lambda z, x: (z + x, x + z, z - x, x - z), (Z, X[:1]), OPSETS),
    Record("add-numbers", lambda z: (z + 1, z - 2j, 3 - z, 1j + z), (Z,), OPSETS),
    Record("add-broadcast", lambda z, x: z + x, (complexes(4), floats(2, 3, 1)), OPSETS),
    Record("mul", lambda z, w: z * w, (Z, W), OPSETS),
    Record("mul-real", lambda z, x: (z * x, x * z), (Z, X), OPSETS),
    Record("mul-numbers", lambda z, x: (z * 2.0, z * (1 - 2j), x * 1j), (Z, X), OPSETS),
    Record("mul-integers", lambda z: z * torch.arange(4), (Z,), OPSETS),
    Record("mul-widens", lambda z, w: z * w, (Z, W.to(torch.complex128)), (9, 13)),
    Record("mul-double", lambda z, x: z * x, (Z, X.double()), (9, 13)),
    Record("mul-double-zero-dim", lambda z, x: z * x, (Z, X[0, 0].double()), (9, 13)),
    Record("div", lambda z, w: z / w, (Z, W), OPSETS),
    Record("div-large", lambda z, w: z / w, (Z, 1e30 * W), OPSETS, atol=1e-36),
    Record("div-numbers", lambda z, x: (z / 2, z / (1 + 1j), 1 / z, x / z, z / x), (Z, X), OPSETS),
    Record("pow-numbers", lambda z: (z**2, z**3, z**-1, z**0.5, z**0, z**1.5, z ** (1 + 1j)), (Z,), FROM_9),
    Record("pow", lambda z, w: (z**w, 2**z, z**w.real), (Z, W), FROM_9),
    Record("pow-of-zero", lambda z, w: (z**w, z**2.5), (torch.zeros(4) * 1j, W.abs()[0] * 1.0), (13,)),
    Record("eq", lambda z, w: (z == w, z != w, z == z, z == 1, z == 1j), (Z, W), OPSETS),
    Record("isclose", lambda z, w: (torch.isclose(z, w), torch.isclose(z, z + 1e-7)), (Z, W), (9, 13)),
    Record(
        "where", lambda z, w: (torch.where(z.real > 0, z, w), torch.where(z.imag > 0, z, 1j)), (Z, W), FROM_9
    ),
    Record("where-real", lambda z, x: torch.where(x > 0, z, x), (Z, X), FROM_9),
    Record("lerp", lambda z, w: torch.lerp(z, w, 0.25), (Z, W), (9, 13)),
    Record("addcmul", lambda z, w: torch.addcmul(z, z, w, value=2j), (Z, W), (9, 13)),
]

MAKING = [
    Record("complex", lambda x: torch.complex(x, x.flip(0)), (X,), OPSETS),
    Record("complex-broadcast", torch.complex, (floats(3, 1), floats(1, 4)), OPSETS),
    Record("polar", torch.polar, (X.abs(), X), OPSETS),
    Record("view_as_complex", lambda x: torch.view_as_complex(x.reshape(3, 2, 2)), (X,), OPSETS),
    Record("view_as_real", lambda z: torch.view_as_real(z) + 1, (Z,), OPSETS),
    Record(
        "view as another type",
        lambda z, x: ((z * 2).view(torch.float32), x.view(torch.complex64) * 2, z.view(torch.int32)),
        (Z, X),
        OPSETS,
    ),
    Record("parts", lambda z: (z.real + 1, z.imag, z.conj(), z.mH), (Z,), OPSETS),
    Record("casts", lambda z, x: (x.cfloat(), x.cdouble(), z.to(torch.complex128), z.bool()), (Z, X), OPSETS),
    Record("to-real", lambda z: (z.to(torch.float64), z.int()), (Z,), OPSETS),
    Record("type_as", lambda z, x: x.type_as(z), (Z, X), OPSETS),
    Record(
        "created",
        lambda z: (
            torch.zeros_like(z),
            torch.ones_like(z),
            z.new_zeros(2),
            torch.full((2,), 1 - 2j),
            torch.full_like(z, 3),
            torch.eye(2, dtype=torch.complex64) @ z[:2],
        ),
        (Z,),
        FROM_9,
    ),
    Record("constants", lambda x: x * torch.tensor([1 + 1j, 2, 3j, 4]), (X,), OPSETS),
]

SHAPES = [
    Record(
        "reshape", lambda z: (z.reshape(-1), z.view(2, -1), z.flatten(), z[None].squeeze(0)), (Z,), OPSETS
    ),
    Record("permute", lambda z: (z.T, z.permute(1, 0), z.transpose(-1, 0), z.movedim(0, -1)), (Z,), OPSETS),
    Record("slices", lambda z: (z[1:], z[:, ::2], z[..., -1], z[0], z.narrow(-1, 1, 2)), (Z,), OPSETS),
    Record("indices", lambda z: (z[[0, 2]], z[:, [1, 1]], z[[0, 1], [1, 2]], z[..., None, :]), (Z,), FROM_9),
    Record("mask", lambda z: z[z.real > 0], (Z,), FROM_9),
    Record("cat", lambda z, w: (torch.cat([z, w], -1), torch.stack([z, w], -1)), (Z, W), OPSETS),
    Record("cat-real", lambda z, x: torch.cat([z, x]), (Z, X), OPSETS),
    Record("split", lambda z: (*z.split(2, -1), *z.chunk(2, 1), *z.unbind(-1)), (Z,), OPSETS),
    Record("expand", lambda z: (z.expand(2, 3, 4), z.repeat(2, 1), z[:, :1].expand_as(z)), (Z,), (9, 13)),
    Record("flip", lambda z: (z.flip(-1), z.roll(1, -1), z.roll(3)), (Z,), FROM_9),
    Record("triangles", lambda z: (z.tril(), z.triu(1), z.diagonal(), z.diag_embed()), (Z,), FROM_9),
    Record(
        "pad",
        lambda z: (torch.nn.functional.pad(z, (1, 2)), torch.nn.functional.pad(z, (1, 1), value=2.0)),
        (Z,),
    ),
    Record("pad-reflect", lambda z: torch.nn.functional.pad(z[None], (2, 1), mode="reflect"), (Z,)),
    Record("gather", lambda z: z.gather(1, torch.tensor([[0, 1], [2, 3], [1, 1]])), (Z,), FROM_9),
    Record("unfold", lambda z: z.unfold(-1, 2, 1), (Z,), FROM_9),
    Record("masked_fill", lambda z: z.masked_fill(z.real > 0, 1 - 2j), (Z,), FROM_9),
    Record(
        "zero-dim",
        lambda z: (z[0, 0].flatten(), z[0, 0].sum(0), z[0, 0].cumsum(0), z[0, 0] * 2),
        (Z,),
        FROM_9,
    ),
    Record("normalize", torch.nn.functional.normalize, (Z,), FROM_9),
]

REDUCTIONS = [
    Record(
        "sum", lambda z: (z.sum(), z.sum(-1), z.sum((0, 1), keepdim=True), z.mean(0), z.mean()), (Z,), OPSETS
    ),
    Record("sum-of-real", lambda x: x.sum(dtype=torch.complex64), (X,), OPSETS),
    Record("cumsum", lambda z: z.cumsum(-1), (Z,), FROM_9),
    Record("prod", lambda z: (z.prod(), z.prod(-1), z.prod(0, keepdim=True)), (Z,), FROM_9),
    Record("cumprod", lambda z: z.cumprod(-1), (Z,), (9, 13)),
    Record("var", lambda z: (z.var(), z.std(-1), *torch.var_mean(z, 0)), (Z,), FROM_9),
    Record("norm", lambda z: (torch.linalg.vector_norm(z), z.norm(dim=-1), z.norm(p=1)), (Z,), FROM_9),
    Record(
        "any",
        lambda z: (z.any(), z.all(-1), z.logical_not(), torch.logical_and(z, z)),
        (EDGES[None],),
        FROM_9,
    ),
    Record("count_nonzero", lambda z: (z.count_nonzero(), z.nonzero()), (EDGES,), (9, 13)),
    Record(
        "sum-to-real", lambda z: (z.sum(0, dtype=torch.float32), z.mean(dtype=torch.float64)), (Z,), (9, 13)
    ),
    Record("logsumexp", lambda z: (z.logsumexp(-1), z.logsumexp((0, 1), keepdim=True)), (Z,), (9, 13)),
]

PRODUCTS = [
    Record("matmul", lambda z, w: (z @ w.T, z @ w[0], z[0] @ w.mT), (Z, W), OPSETS),
    Record("bmm", torch.bmm, (complexes(2, 3, 4), complexes(2, 4, 5)), OPSETS),
    Record("addmm", lambda z, w: torch.addmm(z[:, :3], z, w.T, beta=2, alpha=1j), (Z, W), OPSETS),
    Record("addbmm", torch.addbmm, (complexes(3, 5), complexes(2, 3, 4), complexes(2, 4, 5)), (9, 13)),
    Record("linear", torch.nn.functional.linear, (Z, complexes(5, 4), complexes(5)), OPSETS),
    Record("einsum", lambda z, w: torch.einsum("ij,kj->ik", z, w), (Z, W), (9, 13)),
    Record("einsum-of-one", lambda z: torch.einsum("ij->j", z), (Z,), (9, 13)),
    Record(
        "vdot", lambda z, w: (torch.vdot(z[0], w[0]), torch.dot(z[0], w[0]), torch.outer(z[0], w[0])), (Z, W)
    ),
    Record("vecdot", torch.linalg.vecdot, (Z, W), (9, 13)),
    Record(
        "conv1d", torch.nn.functional.conv1d, (complexes(1, 2, 9), complexes(3, 2, 3), complexes(3)), (9, 13)
    ),
    Record("inverse", lambda z: (torch.linalg.inv(z), torch.matrix_exp(z)), (complexes(2, 3, 3),), (9, 13)),
    Record("solve", torch.linalg.solve, (complexes(2, 3, 3), complexes(2, 3, 4)), (9, 13)),
    Record("solve-vectors", torch.linalg.solve, (complexes(2, 3, 3), complexes(2, 3)), (9, 13)),
    Record("matrix_power", lambda z: torch.linalg.matrix_power(z, -2), (complexes(3, 3),), (9, 13)),
    Record("cross", torch.linalg.cross, (complexes(2, 3), complexes(2, 3, seed=4)), (9, 13)),
]

WRITES = [
    Record("view_as_real-written", lambda z, x: _written(z.clone(), x), (Z, X), FROM_9),
]


def _written(z: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    torch.view_as_real(z)[..., 0] = x
    z.imag.mul_(2.0)
    z.real += x
    z[1:] = 2j
    pairs = torch.stack([x, x], -1)
    torch.view_as_complex(pairs).mul_(z)
    return z, z.real, pairs


DYNAMIC_SIZES = [
    Record(
        "dynamic",
        lambda z, x: (
            z * x,
            z.flatten(),
            z.sum(),
            z @ z.mT,
            torch.cat([z, z], -1),
            z.abs(),
            z.exp(),
            z[:, 1:],
        ),
        (Z, X),
        (9, 13, HIGHEST),
        dynamic=(DYNAMIC, DYNAMIC),
    ),
]


@parametrized(
    [*FUNCTIONS, *ARITHMETIC, *MAKING, *SHAPES, *REDUCTIONS, *PRODUCTS, *WRITES, *DYNAMIC_SIZES],
)
def test_agrees_with_eager(record: Record) -> None:
    check(record)


class _Rotary(torch.nn.Module):
    """Rotary embedding as in Llama's original code."""

    def __init__(self, width: int = 8, length: int = 16):
        super().__init__()
        frequencies = 1.0 / 10000.0 ** (torch.arange(0, width, 2).float() / width)
        angles = torch.outer(torch.arange(length).float(), frequencies)
        self.register_buffer("freqs_cis", torch.polar(torch.ones_like(angles), angles))

    def forward(self, query: torch.Tensor, key: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Turn pairs of features, [batch, length, head, feature], by angles that grow with their place."""
        turned = []
        for states in (query, key):
            pairs = torch.view_as_complex(states.float().reshape(*states.shape[:-1], -1, 2))
            factors = self.freqs_cis[: pairs.shape[1]].view(1, pairs.shape[1], 1, pairs.shape[-1])
            turned.append(torch.view_as_real(pairs * factors).flatten(3).type_as(states))
        return turned[0], turned[1]


@pytest.mark.parametrize("opset", OPSETS)
def test_rotary_embedding_agrees_at_other_lengths(opset: int) -> None:
    shapes = ({0: "batch", 1: "length"}, {0: "batch", 1: "length"}) if opset > 8 else None
    program = opsetta.export(
        _Rotary().eval(), (floats(2, 5, 4, 8), floats(2, 5, 4, 8, seed=1)), opset=opset, dynamic_shapes=shapes
    )
    program.verify()
    if shapes is not None:
        program.verify((floats(3, 9, 4, 8), floats(3, 9, 4, 8, seed=1)))


class _Weighted(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(complexes(4, 4))
        self.register_buffer("state", complexes(4))

    def forward(self, z: torch.Tensor) -> dict[str, torch.Tensor]:
        """A product with the weight, added to the state."""
        self.state.add_(z.sum(0))
        return {"product": z @ self.weight, "modulus": z.abs()}


def test_complex_inputs_outputs_and_weights_are_real_pairs() -> None:
    program = opsetta.export(_Weighted().eval(), (Z,), opset=13, mutations="outputs")
    shapes = [list(value.shape) for value in (*program.model.graph.inputs, *program.model.graph.outputs)]
    assert shapes == [[3, 4, 2], [3, 4, 2], [3, 4], [4, 2]]
    plain = program.lower(13, optimize="none")
    assert list(plain.model.graph.initializers["weight"].shape) == [4, 4, 2]
    result = program(Z)
    assert result["product"].dtype == torch.complex64
    program.verify()
    assert program.locate_mismatch() is None


def test_complex_mismatch_is_located() -> None:
    program = opsetta.export(_Weighted().eval(), (Z,), opset=13, mutations="outputs")
    mismatch = program.locate_mismatch(rtol=-1.0, atol=0.0)
    assert mismatch is not None


def test_complex_operators_without_a_rule_are_refused_together() -> None:
    def function(z: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.linalg.eigvals(z @ z.mT), torch.linalg.svdvals(z)

    class Model(torch.nn.Module):
        def forward(self, z: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            """Two operators of linear algebra."""
            return function(z)

    with pytest.raises(opsetta.UnsupportedOperatorsError) as error:
        opsetta.export(Model().eval(), (Z,), opset=18)
    assert "complex::linalg_eigvals" in str(error.value)
    assert "complex::linalg_svdvals" in str(error.value)


def test_complex_values_pass_through_branches() -> None:
    class Model(torch.nn.Module):
        def forward(self, z: torch.Tensor) -> torch.Tensor:
            """One of two complex results."""
            return torch.cond(z.real.sum() > 0, lambda z: z * 1j, lambda z: z.conj() + 1, (z,))

    program = opsetta.export(Model().eval(), (Z,), opset=13)
    program.verify()
    program.verify((-Z,))
