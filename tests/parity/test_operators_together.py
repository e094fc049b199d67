"""Many operators in one graph: a fast run of symbolic functions that full runs prove case by case."""

import torch
import torch.ao.quantization.fx._decomposed  # Registers quantized_decomposed.
import torch.nn.functional as F

from .records import Record, check, floats, parametrized


def _complex(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.complex(floats(*shape, seed=seed), floats(*shape, seed=seed + 1))


def _integers(low: int, high: int, *shape: int) -> torch.Tensor:
    return torch.randint(low, high, shape, generator=torch.Generator().manual_seed(0))


_FUNCTIONS = (
    "exp exp2 expm1 log log2 log10 log1p sqrt rsqrt sinh cosh tanh sin cos tan acos asin acosh atanh asinh "
    "atan sigmoid reciprocal sgn neg isnan isinf isfinite"
)
_POWERS = (0, 3, -2, 0.5, -0.5, 1.5, 1 + 1j)


def complex_functions(x):
    functions = [getattr(torch, name) for name in _FUNCTIONS.split()]
    return (*(function(x) for function in functions), *(x**power for power in _POWERS), F.silu(x))


def complex_arithmetic(a, b):
    return (
        torch.sub(a, b, alpha=2j),
        1 - a,
        a != b,
        torch.isclose(a, b, equal_nan=True),
        torch.lerp(a, b, b),
        torch.where(a.real > 0, a, 1.5),
        a.prod(1, keepdim=True),
        a.prod(),
        *torch.std_mean(a),
        a.var(0),
        torch.logsumexp(a, 1),
        a.bool(),
    )


def complex_products(a, b):
    square = a @ b + 3 * torch.eye(2)
    return (
        torch.einsum("ij,jk->ik", a, b),
        torch.linalg.inv(square),
        torch.linalg.solve(square, a),
        torch.linalg.solve(square, a[:, 0]),
        torch.addbmm(square, a[None], b[None], beta=2, alpha=0.5j),
        torch.addmm(square, a, b, beta=0),
    )


def complex_shapes(a, scalar):
    return (
        a.view_as(a.mT),
        a.expand_as(a.real),
        scalar.cumsum(0),
        a.view(torch.float32),
        a.T,
        F.pad(a, [1, 2], value=2.5),
        a.roll(2),
        torch.ones_like(a),
        torch.full_like(a, 1 + 2j),
        torch.linalg.vector_norm(a),
        torch.fft.irfft2(a),
        torch.fft.rfft2(a.real),
        torch.fft.ifft2(a),
    )


def written_views(x, z):
    x, z = x.clone(), z.clone()
    torch.linalg.diagonal(x).fill_(1.0)
    x.permute(1, -2)[0].mul_(2)
    x.vsplit(2)[1].mul_(3)
    x.hsplit(2)[0].add_(1)
    x.narrow(1, -2, 2).neg_()
    z.real.mul_(2)
    z.imag.add_(1)
    return x, z


def elementwise(x, y):
    return (
        torch.logaddexp2(x, y),
        torch.addcdiv(x, x, y, value=2),
        torch.special.xlog1py(x, y.abs()),
        torch.heaviside(x, y),
        torch.copysign(x, -1.0),
        torch.logit(y.sigmoid(), 1e-2),
        torch.special.entr(y.abs()),
        torch.positive(x),
        (x * 100).round(decimals=-1),
        x // 0.25,
        x.abs() ** -0.5,
        F.softshrink(x, 0.2),
        F.threshold(x, 0.1, -1.0),
        torch.gcd(x.long(), y.long()),
    )


def special_functions(x):
    names = "i1 i1e bessel_j1 airy_ai erfcx log_ndtr"
    polynomials = torch.special.hermite_polynomial_h(x, 3), torch.special.hermite_polynomial_he(x, 4)
    return (
        *(getattr(torch.special, name)(x) for name in names.split()),
        torch.special.bessel_y0(x.abs()),
        torch.erf(x.double()),
        *polynomials,
    )


def products(x, y, z):
    return (
        torch.inner(x, y),
        torch.inner(x, z),
        torch.addmv(z[:2], x, z),
        torch.addbmm(x @ x.T, x[None], x.T[None], beta=2),
        torch.baddbmm((x @ x.T)[None], x[None], x.T[None], beta=0),
        torch.linalg.vecdot(x, x, dim=0),
        torch.ops.aten._trilinear(y[0].T, x @ y[0].T, x, [0], [1], [2], [2]),
        F.linear(x, z),
    )


def matrices(x, b):
    factor, lu = torch.linalg.cholesky(x), torch.linalg.lu_factor(x)
    return (
        torch.linalg.matrix_rank(x, atol=torch.tensor(0.5)),
        torch.linalg.matrix_power(x, -3),
        torch.linalg.matrix_exp(x * 0.1),
        torch.linalg.cond(x),
        *torch.linalg.lu(x),
        torch.linalg.lu_solve(*lu, b.T, left=False),
        *torch.lu_unpack(*lu),
        torch.cholesky_solve(b, factor),
        torch.triangular_solve(b, factor, upper=False)[0],
        torch.linalg.solve(x, b.T, left=False),
        *torch.slogdet(x),
        torch.inverse(x),
        torch.linalg.tensorsolve(x.reshape(3, 1, 3), b[:, :1]),
    )


def accumulation(x, index, source):
    reductions = ("sum", "prod", "mean", "amax")
    segments = torch.tensor([1, 0, 2])
    return (
        *(x.scatter_reduce(1, index, source, name, include_self=False) for name in reductions),
        x.index_reduce(1, index[0], source, "mean"),
        torch.segment_reduce(x, "mean", lengths=segments, initial=1.5),
        torch.segment_reduce(x, "max", lengths=segments),
    )


def order(x):
    return (
        *torch.unique(x, dim=0, return_inverse=True, return_counts=True),
        *torch.unique_consecutive(x, return_inverse=True, return_counts=True),
        *torch.mode(x, 0, keepdim=True),
        x.double().quantile(0.4, 1, interpolation="nearest"),
        x.double().nanquantile(0.4),
        torch.histc(x.float(), 4, -1, 1),
        torch.take(x, torch.tensor([0, -1])),
        x.trace(),
        torch.diagonal_scatter(x, x[0, :4]),
        torch.masked_select(x, x > 0),
        torch.nonzero_static(x > 0, size=4),
    )


def shapes(x):
    bits = (x * 2**20).int().view(torch.uint8)
    return (
        x.swapaxes(0, 1),
        x.tile((2,)),
        torch.dstack([x, x]),
        torch.column_stack([x, x[:, 0]]),
        *torch.atleast_2d([x[0], x]),
        *torch.tensor_split(x, torch.tensor([1, 2])),
        bits,
        bits.view(torch.int32),
        bits.view(torch.float32),
        x.repeat_interleave(2),
        F.pad(x[None], (1, 2), mode="circular"),
    )


def layers(x, weight):
    statistics = torch.zeros(4), torch.ones(4)
    return (
        *torch.native_group_norm(x, weight, weight, 2, 4, 9, 2, 1e-5),
        F.rms_norm(x, (9,)),
        F.instance_norm(x, *statistics, use_input_stats=False),
        F.batch_norm(x, *statistics),
        x[0, 0, :5] * torch.hamming_window(5) * torch.bartlett_window(5),
    )


def quantization(x):
    quantized = torch.ops.quantized_decomposed
    scale, zero_point = quantized.choose_qparams.tensor(x, -128, 127, 1e-5, torch.int8)
    steps = quantized.quantize_per_tensor.tensor(x, scale, zero_point, -128, 127, torch.int8)
    symmetric = quantized.choose_qparams_symmetric.tensor(x, -127, 127, 1e-5, torch.int8)
    by_token = quantized.choose_qparams_per_token_asymmetric(x, torch.int8)
    tokens = quantized.quantize_per_token(x, *by_token, -128, 127, torch.int8)
    by_magnitude = quantized.choose_qparams_per_token(x, torch.int8)
    parameters = torch.full((2, 2), 0.5), torch.ones(2, 2, dtype=torch.int64)
    groups = quantized.quantize_per_channel_group(x, *parameters, -8, 7, torch.int8, 4)
    return (
        steps,
        *symmetric,
        tokens,
        quantized.dequantize_per_token(tokens, *by_token, -128, 127, torch.int8, torch.float32),
        quantized.quantize_per_token(x, *by_magnitude, -128, 127, torch.int8),
        groups,
        quantized.dequantize_per_channel_group(groups, *parameters, -8, 7, torch.int8, 4, torch.float32),
    )


def _with_gradient(function):
    def call(x):
        return torch.func.grad(lambda y: (function(y) ** 2).sum())(x)

    return call


def gradients(x):
    functions = (
        lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True, count_include_pad=False),
        lambda x: F.adaptive_avg_pool2d(x, (3, 2)),
        lambda x: F.adaptive_max_pool2d(x, (3, 2)),
        lambda x: F.pad(x, (1, 2, 2, 1), mode="replicate"),
        lambda x: F.group_norm(x, 2, torch.ones(4)),
    )
    return tuple(_with_gradient(function)(x) for function in functions)


_SQUARE = floats(3, 3, scale=0.5) @ floats(3, 3, scale=0.5).T + torch.eye(3)
RECORDS = [
    Record(function.__name__, function, inputs, (18,), also_highest=False)
    for function, inputs in (
        (complex_functions, (_complex(2, 3),)),
        (complex_arithmetic, (_complex(2, 3), _complex(2, 3, seed=2))),
        (complex_products, (_complex(2, 3), _complex(3, 2, seed=2))),
        (complex_shapes, (_complex(2, 3), torch.tensor(1.5 - 2j))),
        (written_views, (floats(4, 4), _complex(3))),
        (elementwise, (floats(5, scale=9), floats(5, seed=1, scale=9))),
        (special_functions, (floats(9, scale=3),)),
        (products, (floats(2, 3), floats(4, 5, 3), floats(3, seed=1))),
        (matrices, (_SQUARE, floats(3, 2))),
        (accumulation, (floats(3, 5), _integers(0, 5, 3, 4), floats(3, 4, seed=1))),
        (order, (_integers(-3, 4, 4, 5),)),
        (shapes, (floats(3, 4),)),
        (layers, (floats(2, 4, 9), floats(4))),
        (quantization, (floats(2, 8),)),
        (gradients, (floats(1, 4, 7, 8),)),
    )
]


@parametrized(RECORDS)
def test_agrees_with_eager(record):
    check(record)
