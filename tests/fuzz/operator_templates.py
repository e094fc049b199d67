"""Operators as texts with letters for what a random program fills in.

{x} is any tensor, {f} one of floats, {i} of integers, {l} of INT64, {m} of booleans, {p} of floats with three
dimensions or more, {q} of floats with four; {d} is a dimension, {k} a small count, {s} a number, {n} a whole
number, {b} a truth value, {t} an element type.
"""

from __future__ import annotations

_UNARY = (
    "abs neg exp log sqrt rsqrt sin cos tanh sigmoid erf floor ceil round trunc frac sign reciprocal log1p "
    "expm1 square exp2 log2 log10 atan asin sinh isnan isinf isfinite signbit logical_not nan_to_num"
).split()
_ACTIVATIONS = (
    "relu gelu silu softplus hardtanh leaky_relu elu hardsigmoid hardswish mish softsign logsigmoid selu "
    "celu relu6 tanhshrink softshrink hardshrink"
).split()
_COMPARISONS = ("<", "<=", ">", ">=", "==", "!=")

MAKES: dict[str, list[str]] = {
    "unary": [f"torch.{name}({{f}})" for name in _UNARY],
    "activation": [f"F.{name}({{f}})" for name in _ACTIVATIONS],
    "unary of any": [
        "torch.abs({x})", "torch.neg({x})", "torch.sign({x})", "torch.square({x})", "torch.sin({x})",
        "torch.exp({x})", "~{m}", "~{i}", "{x}.clone()", "torch.clamp({x}, -2, 3)",
        "torch.clamp({x}, min={n})", "torch.clamp({f}, max={s})", "{x} * 1", "torch.relu({x})",
        "torch.logical_not({x})",
    ],
    "binary": [
        "{x} + {x}", "{x} - {x}", "{x} * {x}", "{x} / {x}", "{f} + {f}", "{f} * {f}", "{x} + {s}",
        "{s} - {x}", "{x} * {s}", "{x} / {s}", "{s} / {f}", "torch.add({x}, {x}, alpha={n})", "{x} * {n}",
        "{f} ** 2", "{f} ** {s}", "{x} ** {k}", "torch.pow({f}, {f})", "torch.rsub({f}, {x})",
    ],
    "division": [
        "{f} // {s}", "{i} // {n}", "{f} % {s}", "{i} % {n}", "torch.fmod({f}, {s})",
        "torch.fmod({i}, {n})", "torch.remainder({f}, {f})", "torch.fmod({f}, {f})",
        "torch.div({i}, {n}, rounding_mode='trunc')", "torch.div({x}, {n}, rounding_mode='floor')",
        "torch.div({f}, {f}, rounding_mode='trunc')",
    ],
    "extremes": [
        "torch.maximum({x}, {x})", "torch.minimum({x}, {x})", "torch.fmax({f}, {f})",
        "torch.fmin({f}, {f})", "torch.clamp({f}, {f}, {f})", "torch.copysign({f}, {f})",
        "torch.atan2({f}, {f})", "torch.hypot({f}, {f})", "torch.xlogy({f}, {f})",
        "torch.heaviside({f}, {f})", "torch.lerp({f}, {f}, 0.25)", "torch.addcmul({f}, {f}, {f})",
        "torch.logaddexp({f}, {f})",
    ],
    "comparison": [
        *(f"{{x}} {sign} {{x}}" for sign in _COMPARISONS),
        *(f"{{x}} {sign} {{s}}" for sign in _COMPARISONS), "torch.isclose({f}, {f})", "{m} & {m}",
        "{m} | {m}", "{m} ^ {m}", "torch.logical_and({x}, {x})", "torch.logical_xor({x}, {x})", "{i} & {i}",
        "{i} | {n}", "{i} ^ {i}", "{i} << {k}", "{i} >> {k}",
    ],
    "choice": [
        "torch.where({m}, {x}, {x})", "torch.where({f} > 0, {x}, {s})", "torch.where({x} == {x}, {x}, 0)",
        "{x}.masked_fill({m}, {n})", "torch.where({m}, {f}, float('-inf'))",
    ],
    "conversion": [
        "{x}.to(torch.{t})", "{f}.to(torch.{t})", "{x}.float()", "{x}.half()", "{x}.double()", "{x}.long()",
        "{x}.bool()", "{x}.to({x}.dtype)",
    ],
    "reduction": [
        "{x}.sum()", "{x}.sum({d}, keepdim={b})", "{f}.mean()", "{f}.mean({d}, keepdim={b})",
        "{x}.amax({d})", "{x}.amin({d}, keepdim={b})", "{x}.max({d})[0]", "{x}.min({d}, keepdim={b})[1]",
        "{x}.argmax({d})", "{x}.argmin()", "{x}.prod({d}, keepdim={b})", "{x}.prod()", "{x}.any({d})",
        "{x}.all({d}, keepdim={b})", "{x}.all()", "{f}.std({d})", "{f}.var({d}, unbiased={b}, keepdim={b})",
        "{f}.norm(dim={d})", "torch.logsumexp({f}, {d})", "{x}.count_nonzero({d})", "{f}.nansum({d})",
        "{f}.nanmean({d})", "{x}.sum({d}, dtype=torch.{t})", "{x}.max()", "{x}.min()", "{f}.mean((0, -1))",
        "{x}.sum((0, -1))", "torch.aminmax({f})[0]", "torch.linalg.vector_norm({f}, 3, {d})",
        "{f}.norm(p=1)",
    ],
    "order": [
        "{x}.median()", "{x}.median({d})[0]", "{f}.nanmedian()", "{f}.nanmedian({d}, {b})[0]",
        "{x}.sort({d}, descending={b}, stable=True)[0]", "{x}.sort({d}, stable=True)[1]",
        "{x}.topk({k}, {d})[0]", "{x}.topk({k}, {d}, largest={b})[0]", "{x}.kthvalue({k}, {d})[0]",
        "{x}.argsort({d}, stable=True)", "torch.msort({x})", "torch.quantile({f}, 0.25, {d})",
        "torch.unique({x})", "torch.searchsorted({f}.flatten().sort()[0], {f})",
        "torch.bucketize({f}, torch.tensor([-1.0, 0.5, 2.0]))",
    ],
    "running": [
        "{x}.cumsum({d})", "{x}.cumprod({d})", "{x}.cummax({d})[0]", "{x}.cummin({d})[1]",
        "{f}.logcumsumexp({d})", "F.softmax({f}, {d})", "F.log_softmax({f}, {d})",
        "F.normalize({f}, dim={d})", "torch.diff({x}, dim={d})", "F.softmin({f}, {d})", "F.glu({f}, {d})",
    ],
    "joining": [
        "torch.cat([{x}, {x}], {d})", "torch.stack([{x}, {x}], {d})", "torch.flip({x}, [{d}])",
        "torch.roll({x}, {n}, {d})", "{x}.repeat(2, 1)", "torch.tile({x}, (2,))",
        "torch.repeat_interleave({x}, 2, {d})", "torch.cat([{x}, {x}[:1]])", "torch.hstack([{x}, {x}])",
        "torch.rot90({x})", "torch.meshgrid({x}, {x}, indexing='ij')[0]",
    ],
    "indexing": [
        "{x}[[0, -1]]", "{x}[..., [1, 0]]", "{x}[torch.tensor([1, 0, 1])]",
        "torch.index_select({x}, {d}, torch.tensor([1, 0]))",
        "torch.gather({x}, {d}, torch.zeros_like({x}, dtype=torch.int64))",
        "torch.take({x}, torch.tensor([0, 2, -1]))", "{x}[{m}]", "{x}[{f} > 0]", "torch.nonzero({x})",
        "torch.gather({x}, {d}, {x}.argsort({d}, stable=True))",
        "torch.take_along_dim({x}, {i}.long().clamp(0, 1), {d})",
        "torch.index_fill({x}, {d}, torch.tensor([0]), {n})",
        "torch.scatter({x}, {d}, torch.zeros_like({x}, dtype=torch.int64)[:1], {n})",
        "torch.index_add({x}, 0, torch.tensor([0, 0]), {x}[:2])",
        "torch.index_put({x}, (torch.tensor([1, 0]),), {x}[:2])", "F.one_hot({x}.long().clamp(0, 4), 5)",
        "torch.masked_select({x}, {m})",
        "torch.scatter_add({f}, 0, torch.zeros_like({f}, dtype=torch.int64), {f})",
    ],
    "triangle": [
        "torch.triu({x})", "torch.tril({x}, {n})", "torch.diag({x})", "torch.diagonal({x}).clone()",
        "torch.trace({f})",
    ],
    "products": [
        "{f} @ {f}", "{f} @ {f}.mT", "{x} @ {x}.mT", "torch.einsum('...ij,...kj->...ik', {f}, {f})",
        "torch.einsum('ij,ij->i', {x}, {x})", "torch.outer({f}.flatten()[:4], {f}.flatten()[:3])",
        "F.linear({f}, torch.linspace(-1, 1, 12).reshape(3, 4))", "torch.kron({f}, {f}[:1])",
        "torch.cdist({f}, {f})", "torch.tensordot({f}, {f}, 1)", "torch.baddbmm({f}, {f}, {f})",
        "torch.addmm({f}, {f}, {f})", "torch.mv({f}, {f})", "torch.einsum('ij->j', {x})",
        "torch.linalg.cross({f}, {f}, dim={d})", "torch.dot({f}, {f})",
    ],
    "creation": [
        "torch.zeros_like({x})", "torch.full_like({x}, {n})", "torch.arange({x}.shape[0]) * {n}",
        "torch.ones({x}.shape[-1])", "torch.linspace(0, 1, {x}.shape[-1])", "{x}.new_full(({k}, 2), {n})",
        "torch.eye({x}.shape[-1])",
    ],
    "pooling": [
        "F.max_pool2d({p}, 2)", "F.max_pool2d({p}, 3, 2, 1)", "F.avg_pool2d({p}, 2)",
        "F.avg_pool2d({p}, 3, 2, 1, count_include_pad={b})", "F.avg_pool2d({p}, 2, ceil_mode=True)",
        "F.max_pool2d({p}, 2, ceil_mode=True)", "F.adaptive_avg_pool2d({p}, ({k}, 2))",
        "F.adaptive_avg_pool2d({p}, (5, {k}))", "F.adaptive_max_pool2d({p}, ({k}, 3))",
        "F.lp_pool2d({q}, 2, 2)", "F.max_pool1d({p}, 2)", "F.avg_pool1d({p}, 2, 1, 1)",
        "F.adaptive_avg_pool1d({p}, 2)", "F.adaptive_avg_pool3d({q}, ({k}, 3, 2))",
        "F.adaptive_max_pool3d({q}, ({k}, 1, 2))", "F.avg_pool3d({q}, (1, 2, 2))",
    ],
    "interpolation": [
        "F.interpolate({q}, scale_factor=2)", "F.interpolate({q}, size=(3, 4))",
        "F.interpolate({q}, size=(4, 7), mode='bilinear')",
        "F.interpolate({q}, scale_factor=0.5, mode='bilinear')",
        "F.interpolate({q}, size=(3, 9), mode='bilinear', align_corners=True)",
        "F.interpolate({q}, size=(4, 3), mode='area')", "F.interpolate({q}, size=(5, 8), mode='bicubic')",
        "F.interpolate({q}, size=(3, 3), mode='nearest-exact')",
        "F.interpolate({q}, size=(4, 3), mode='bilinear', antialias=True)",
        "F.pixel_shuffle({p}.repeat_interleave(4, -3), 2)", "F.pixel_unshuffle({p}, 2)",
    ],
    "convolution": [
        "F.conv2d({q}, torch.linspace(-1, 1, 54).reshape(2, 3, 3, 3), padding={k})",
        "F.conv2d({q}, torch.linspace(-1, 1, 8).reshape(1, 2, 2, 2), stride={k})",
        "F.conv1d({p}, torch.linspace(-1, 1, 18).reshape(2, 3, 3), padding=1)",
        "F.conv_transpose2d({q}, torch.linspace(-1, 1, 24).reshape(3, 2, 2, 2), stride=2)",
        "F.conv1d({p}, torch.ones(3, 1, 2), groups=3)", "F.unfold({q}, 2)",
    ],
    "normalization": [
        "F.layer_norm({f}, {f}.shape[-1:])", "F.layer_norm({f}, (4,), torch.linspace(0, 1, 4))",
        "F.group_norm({p}, 1)", "F.instance_norm({p})",
        "F.batch_norm({f}, torch.zeros(3), torch.full((3,), 2.0))", "F.rms_norm({f}, (4,))",
        "F.layer_norm({f}, (0,))", "F.layer_norm(F.layer_norm({f}, {f}.shape[-1:]), {f}.shape[-1:])",
    ],
    "padding": [
        "F.pad({x}, (1, 2), value={n})", "F.pad({f}, (1, 1), mode='reflect')",
        "F.pad({p}, (2, 1), mode='replicate')", "F.pad({x}, (-1, 1))",
        "F.pad({p}, (1, 1), mode='circular')", "F.pad({q}, (1, 0, 2, 1), mode='reflect')",
    ],
}  # fmt: skip
"""Texts of new tensors, by subject."""

VIEWS: dict[str, list[str]] = {
    "shape": [
        "{x}.reshape(-1)", "{x}.flatten()", "{x}.unsqueeze({d})", "{x}.squeeze({d})", "{x}.squeeze()",
        "{x}.transpose(0, {d})", "{x}.mT", "{x}.movedim(0, {d})", "{x}.view(-1)",
        "{x}.reshape({x}.shape[0], -1)", "{x}.view({x}.shape[0], -1)", "{x}.expand(2, *{x}.shape)",
        "{x}.unflatten(-1, (2, -1))", "{x}.reshape(2, -1)", "{x}.broadcast_to(3, 4)",
        "{x}.expand(3, -1, 4)", "{x}.permute(*reversed(range({x}.dim())))",
    ],
    "part": [
        "{x}[0]", "{x}[-1]", "{x}[..., 0]", "{x}[..., 1:]", "{x}[:, ::2]", "{x}[1:]", "{x}[:-1]",
        "{x}[..., None]", "{x}[:, 1]", "{x}[..., -2:]", "{x}.select({d}, 0)", "{x}.narrow({d}, 1, 2)",
        "{x}.chunk(2, {d})[0]", "{x}.split(2, {d})[-1]", "{x}.unbind({d})[-1]", "{x}.diagonal()",
        "{x}.unfold({d}, 2, 1)", "{x}[{x}.shape[0] // 2 :]", "{x}[:0]", "{x}[None, ..., 1]",
        "torch.tensor_split({x}, 3, {d})[0]",
    ],
}  # fmt: skip
"""Texts of what may share the memory of a tensor."""

WRITES: dict[str, list[str]] = {
    "element": [
        "{x}[0] = {n}", "{x}[..., -1] = {n}", "{x}[1:] += {n}", "{x}[:, 1:] *= 2", "{x}[0] = {x}[-1] * 1",
        "{x}[..., ::2] = 0", "{x}[{x} > 1] = {n}", "{x}[torch.tensor([1, 0])] = {n}", "{f}[0] /= 2",
        "{x}[:, 0] = {x}[:, -1] + 1",
    ],
    "whole": [
        "{x}.add_({n})", "{x}.mul_({n})", "{f}.relu_()", "{x}.zero_()", "{x}.fill_({n})", "{x}.neg_()",
        "{f}.clamp_(-1, 1)", "{x}.copy_({x} * 2)", "{x}.masked_fill_({x} == 2, {n})", "{f}.exp_()",
        "{x}.sub_({x} * {n})",
    ],
    "view": [
        "{x}.select({d}, 0).add_({n})", "{x}.diagonal().fill_({n})", "{x}.mT[0] = {n}",
        "{x}.narrow({d}, 1, 1).mul_({n})", "{x}.unsqueeze(0)[:, 0].neg_()", "{x}.view(-1)[1:3] = {n}",
        "{x}.chunk(2, {d})[0].add_({n})", "{x}.index_fill_({d}, torch.tensor([0]), {n})",
        "{x}.scatter_({d}, torch.zeros_like({x}, dtype=torch.int64)[:1], {n})", "{x}.flatten()[0] = {n}",
    ],
}  # fmt: skip
"""Texts of writes into a tensor that is not an argument's."""
