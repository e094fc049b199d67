"""Records of single operators: inputs, weights, arguments, and Caffe2's results."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import torch

from . import detection_reference as detection
from . import reference as ref

_RANDOM = np.random.default_rng(7)


def real(*shape: int) -> np.ndarray:
    return _RANDOM.standard_normal(shape).astype(np.float32)


def positive(*shape: int) -> np.ndarray:
    return np.abs(real(*shape)) + np.float32(0.1)


def _diagonal(rows: int, columns: int) -> np.ndarray:
    result = np.zeros((rows, columns), np.float32)
    np.fill_diagonal(result, 0.5, wrap=True)
    return result


@dataclasses.dataclass
class Record:
    """One operator.

    Attributes:
        kind: the operator.
        inputs: the arrays of its inputs, in order; those of `weights` come from the init_net.
        expected: what it gives, an array for each output.
        arguments: its arguments.
        weights: positions of inputs that are weights.
        lowest: the lowest opset that can express it.
        highest: the highest opset for which onnxruntime has the kernels.
        needs_rank: whether it is refused where no shape is known.
        needs_sizes: whether it is refused where sizes are unknown.
    """

    kind: str
    inputs: list[np.ndarray]
    expected: list[np.ndarray]
    arguments: dict[str, Any] = dataclasses.field(default_factory=dict)
    weights: tuple[int, ...] = ()
    lowest: int = 7
    highest: int = 24
    needs_rank: bool = False
    needs_sizes: bool = False
    name: str = ""


def record(
    kind: str,
    inputs: Any,
    expected: Any,
    weights: tuple[int, ...] = (),
    lowest: int = 7,
    highest: int = 24,
    needs_rank: bool = False,
    needs_sizes: bool = False,
    **arguments: Any,
) -> Record:
    inputs = inputs if isinstance(inputs, list) else [inputs]
    expected = expected(*inputs) if callable(expected) else expected
    expected = expected if isinstance(expected, list) else [expected]
    # `weights` names inputs that are weights, so an argument of that name ends with an underscore.
    arguments = {key.rstrip("_"): value for key, value in arguments.items()}
    name = "-".join([kind, *[f"{key}={value}" for key, value in arguments.items()]])[:80]
    return Record(kind, inputs, expected, arguments, weights, lowest, highest, needs_rank, needs_sizes, name)


X = real(2, 4, 6, 5)
ROWS = real(3, 7)
W33, BIAS = real(6, 4, 3, 3), real(6)
_T = torch.from_numpy


def _elementwise() -> list[Record]:
    x, p, unit = X, positive(2, 3), np.tanh(real(2, 3))
    found = [
        record(kind, x, function(x))
        for kind, function in {
            "Abs": np.abs,
            "Ceil": np.ceil,
            "Cos": np.cos,
            "Cube": lambda v: v**3,
            "Exp": np.exp,
            "Floor": np.floor,
            "Negative": np.negative,
            "Sigmoid": lambda v: 1 / (1 + np.exp(-v)),
            "Sin": np.sin,
            "Softplus": lambda v: np.log1p(np.exp(v)),
            "Softsign": lambda v: v / (1 + np.abs(v)),
            "Sqr": np.square,
            "Swish": lambda v: v / (1 + np.exp(-v)),
            "Tanh": np.tanh,
            "Relu": lambda v: np.maximum(v, 0),
            "Copy": lambda v: v,
            "StopGradient": lambda v: v,
            "Sign": np.sign,
            "Tan": np.tan,
        }.items()
    ]
    found += [record(kind, p, f(p)) for kind, f in {"Log": np.log, "Sqrt": np.sqrt}.items()]
    found += [record("Rsqrt", p, 1 / np.sqrt(p)), record("Reciprocal", p, 1 / p)]
    found += [record(k, unit, f(unit)) for k, f in {"Asin": np.arcsin, "Acos": np.arccos}.items()]
    found += [record("Atan", x, np.arctan(x)), record("Erf", x, torch.erf(_T(x)).numpy())]
    found += [
        record("Sinh", unit, np.sinh(unit)),
        record("Cosh", unit, np.cosh(unit)),
        record("Scale", x, x * np.float32(2.5), scale=2.5),
        record("Pow", p, p**2.5, exponent=2.5),
        record("Pow", [p, real(3)], np.power, broadcast=1),
        record("Clip", x, np.clip(x, -0.5, 1.0), min=-0.5, max=1.0),
        record("Clip", x, np.maximum(x, 0.25), min=0.25),
        record("Clip", x, np.full_like(x, -1.0), min=0.5, max=-1.0),
        record("Cast", x, x.astype(np.int32), to=2),
        record("Cast", x, x.astype(np.float64), to="double"),
        record("Cast", x, x != 0, to=5),
        record("FloatToHalf", x, x.astype(np.float16)),
        record("HalfToFloat", x.astype(np.float16), x.astype(np.float16).astype(np.float32)),
        record("Not", x > 0, x <= 0),
        record("Where", [x > 0, x, -2 * x], np.where(x > 0, x, -2 * x)),
        record(
            "Where",
            [np.array([True, False]), x, -x],
            np.stack([x[0], -x[1]]),
            needs_rank=True,
            broadcast_on_rows=1,
        ),
        record("Conditional", [np.array([False, True]), x, -x], np.stack([-x[0], x[1]]), needs_rank=True),
        record("Max", [x, -x, x * 0], np.maximum(np.maximum(x, -x), 0)),
        record("Min", [x, -x], np.minimum(x, -x)),
        record("Mean", [x, x + 1, x + 2], x + 1),
        record("Sum", [x, x, -3 * x], -x),
        record("Sum", [x], x),
    ]
    return found


def _binary() -> list[Record]:
    channel, last, middle = real(4), real(5), real(4, 6)
    one, flat = real(1, 1), real(1)
    low, high = real(4, 1), real(1, 6)
    return [
        record("Add", [X, X], X + X),
        record("Add", [X, last], X + last),
        record("Add", [last, X], X + last),
        record("Mul", [X, channel], X * ref.legacy_broadcast(X, channel, 1), broadcast=1, axis=1),
        record("Add", [X, channel], X + ref.legacy_broadcast(X, channel, 1), (1,), broadcast=1, axis=1),
        record("Sub", [X, last], X - last, broadcast=1),
        record("Div", [X, middle], X / ref.legacy_broadcast(X, middle, 1), broadcast=1, axis=1),
        record("Mul", [X, real(2)], lambda a, b: a * b.reshape(2, 1, 1, 1), broadcast=1, axis=0),
        record("Add", [X, channel], X + ref.legacy_broadcast(X, channel, 1), broadcast=1, axis_str="C"),
        record("Add", [X, real(6)], lambda a, b: a + b.reshape(6, 1), broadcast=1, axis_str="H"),
        record("Mul", [X, one], X * one[0, 0], broadcast=1),
        record("Mul", [X, flat], X * flat[0], broadcast=1, axis=2),
        record("Mul", [X, np.array(3, np.float32)], np.multiply, broadcast=1),
        record("Add", [X, low], X + ref.legacy_broadcast(X, low, 1), broadcast=1, axis=1),
        record("Add", [X, high], X + ref.legacy_broadcast(X, high, 1), broadcast=1, axis=1),
        record("EQ", [np.array([1, 2, 3]), np.array([1, 0, 3])], np.array([True, False, True])),
        record("NE", [np.array([1, 2, 3]), np.array([1, 0, 3])], np.array([False, True, False])),
        record("GT", [X, channel], ref.legacy_broadcast(X, channel, 1) < X, broadcast=1, axis=1),
        record("LT", [X, last], last > X, broadcast=1),
        record("GE", [X, X], np.ones_like(X, dtype=bool)),
        record("LE", [X, -X], X <= -X),
        record("And", [X > 0, X > 1], X > 1),
        record("Or", [X > 0, X > 1], X > 0),
        record("Xor", [X > 0, X > 1], (X > 0) & (X <= 1)),
    ]


def _activations() -> list[Record]:
    slope, wide = positive(4), real(2, 3, 4)
    normal = torch.nn.functional
    return [
        record("LeakyRelu", X, np.where(X > 0, X, X * np.float32(0.01))),
        record("LeakyRelu", X, np.where(X > 0, X, X * np.float32(0.3)), alpha=0.3),
        record("Elu", X, np.where(X > 0, X, np.float32(0.5) * np.expm1(X)), alpha=0.5),
        record("Selu", X, normal.selu(_T(X)).numpy()),
        record("ReluN", X, np.clip(X, 0, 1.5), n=1.5),
        record("ThresholdedRelu", X, np.where(X > 0.5, X, 0), alpha=0.5),
        record("HardSigmoid", X, np.clip(X * np.float32(0.2) + np.float32(0.5), 0, 1)),
        record("Gelu", X, normal.gelu(_T(X)).numpy()),
        record("Gelu", X, normal.gelu(_T(X), approximate="tanh").numpy(), fast_gelu=1),
        record("PRelu", [X, slope], np.where(X > 0, X, X * slope.reshape(4, 1, 1)), (1,)),
        record("PRelu", [X, slope[:1]], np.where(X > 0, X, X * slope[0]), (1,)),
        record(
            "PRelu",
            [ref.to_nhwc(X), slope],
            ref.to_nhwc(np.where(X > 0, X, X * slope.reshape(4, 1, 1))),
            (1,),
            order="NHWC",
        ),
        record("Softmax", ROWS, ref.softmax(ROWS)),
        record("Softmax", X, ref.softmax(X)),
        record("Softmax", wide, ref.softmax(wide, 2), axis=2),
        record("LogSoftmax", X, np.log(ref.softmax(X))),
        record("Dropout", X, X, is_test=1, ratio=0.9),
    ]


def _convolutions() -> list[Record]:
    grouped, weight1, weight3 = real(8, 2, 3, 3), real(6, 4, 3), real(3, 2, 2, 3, 2)
    line, cube = real(2, 4, 9), real(1, 2, 5, 6, 4)
    up, adjusted = real(4, 3, 3, 2), real(4, 2, 2, 2)
    point = real(6, 4, 1, 1)
    last = ref.to_nhwc
    conv = ref.conv
    nets = [
        record("Conv", [X, W33, BIAS], conv(X, W33, BIAS), (1, 2), kernel=3),
        record("ConvRelu", [X, W33, BIAS], np.maximum(conv(X, W33, BIAS), 0), (1, 2), kernel=3),
        record(
            "Conv",
            [X, W33],
            conv(X, W33, None, [2, 1], [1, 0, 2, 1]),
            (1,),
            kernel_h=3,
            kernel_w=3,
            stride_h=2,
            stride_w=1,
            pad_t=1,
            pad_l=0,
            pad_b=2,
            pad_r=1,
        ),
        record(
            "Conv",
            [X, W33, BIAS],
            conv(X, W33, BIAS, None, [2] * 4, [2, 2]),
            (1, 2),
            kernels=[3, 3],
            pads=[2] * 4,
            dilation=2,
        ),
        record("Conv", [X, grouped], conv(X, grouped, None, group=2), (1,), kernel=3, group=2),
        record(
            "Conv",
            [X, W33, BIAS],
            conv(X, W33, BIAS, [2, 2], legacy=ref.SAME),
            (1, 2),
            kernel=3,
            stride=2,
            legacy_pad=2,
        ),
        record(
            "Conv",
            [X, W33, BIAS],
            conv(X, W33, BIAS, [2, 2], legacy=ref.VALID),
            (1, 2),
            kernel=3,
            stride=2,
            legacy_pad=1,
        ),
        record(
            "Conv",
            [X, point],
            conv(X, point, None, [4, 3], legacy=ref.SAME),
            (1,),
            needs_sizes=True,
            kernel=1,
            strides=[4, 3],
            legacy_pad=2,
        ),
        record(
            "Conv",
            [X, W33],
            conv(X, W33, None, [2, 2], [1] * 4, legacy=3),
            (1,),
            needs_sizes=True,
            kernel=3,
            stride=2,
            pad=1,
            legacy_pad=3,
        ),
        record(
            "Conv",
            [last(X), last(W33), BIAS],
            last(conv(X, W33, BIAS, None, [1] * 4)),
            (1, 2),
            kernel=3,
            pad=1,
            order="NHWC",
        ),
        record(
            "Conv",
            [last(X), last(grouped)],
            last(conv(X, grouped, group=2)),
            (1,),
            kernel=3,
            group=2,
            order="NHWC",
        ),
        record("Conv", [X, W33, BIAS], conv(X, W33, BIAS), kernel=3),
        record(
            "Conv1D",
            [line, weight1],
            conv(line, weight1, None, [2], [1, 1]),
            (1,),
            kernels=[3],
            strides=[2],
            pads=[1, 1],
        ),
        record("Conv3D", [cube, weight3], conv(cube, weight3), (1,), kernels=[2, 3, 2]),
        record(
            "Conv",
            [last(cube), last(weight3)],
            last(conv(cube, weight3)),
            (1,),
            kernels=[2, 3, 2],
            order="NHWC",
        ),
        record(
            "ConvTranspose",
            [X, up],
            torch.conv_transpose2d(_T(X), _T(up), stride=(2, 3), padding=1).numpy(),
            (1,),
            kernels=[3, 2],
            strides=[2, 3],
            pad=1,
        ),
        record(
            "ConvTranspose",
            [X, adjusted, BIAS[:2]],
            torch.conv_transpose2d(_T(X), _T(adjusted), _T(BIAS[:2]), stride=2, output_padding=1).numpy(),
            (1, 2),
            kernel=2,
            stride=2,
            adj=1,
        ),
        record(
            "ConvTranspose",
            [last(X), last(up)],
            last(torch.conv_transpose2d(_T(X), _T(up), stride=2).numpy()),
            (1,),
            kernels=[3, 2],
            stride=2,
            order="NHWC",
        ),
    ]
    return nets


def _pooling() -> list[Record]:
    odd, line, cube = real(2, 3, 7, 8), real(2, 3, 9), real(1, 2, 5, 6, 4)
    last, pool = ref.to_nhwc, ref.pool
    found = []
    for kind, mode in (("MaxPool", "max"), ("AveragePool", "average")):
        found += [
            record(kind, odd, pool(odd, mode, [2, 2], [2, 2]), kernel=2, stride=2),
            record(kind, odd, pool(odd, mode, [3, 3], [2, 2], [1] * 4), kernel=3, stride=2, pad=1),
            record(
                kind,
                odd,
                pool(odd, mode, [3, 2], [2, 1], [1, 0, 0, 1]),
                kernels=[3, 2],
                strides=[2, 1],
                pads=[1, 0, 0, 1],
            ),
            record(kind, odd, pool(odd, mode, [3, 3], [2, 2], None, 3), kernel=3, stride=2, legacy_pad=3),
            record(kind, odd, pool(odd, mode, [2, 2], [2, 2], None, 3), kernel=2, stride=2, legacy_pad=3),
            record(
                kind,
                odd,
                pool(odd, mode, [3, 3], [2, 2], [1] * 4, 3),
                kernel=3,
                stride=2,
                pad=1,
                legacy_pad=3,
            ),
            record(
                kind, odd, pool(odd, mode, [3, 3], [2, 2], None, ref.SAME), kernel=3, stride=2, legacy_pad=2
            ),
            record(
                kind, odd, pool(odd, mode, [3, 3], [2, 2], None, ref.VALID), kernel=3, stride=2, legacy_pad=1
            ),
            record(kind, odd, pool(odd, mode, [7, 8]), global_pooling=1),
            record(kind, last(odd), last(pool(odd, mode, [7, 8])), global_pooling=1, order="NHWC"),
            record(
                kind,
                last(odd),
                last(pool(odd, mode, [3, 3], [2, 2], None, 3)),
                kernel=3,
                stride=2,
                legacy_pad=3,
                order="NHWC",
            ),
            record(f"{kind}1D", line, pool(line, mode, [3], [2]), kernels=[3], strides=[2]),
            record(
                f"{kind}3D", cube, pool(cube, mode, [2, 2, 2], [2, 2, 2]), kernels=[2] * 3, strides=[2] * 3
            ),
        ]
    counted = [
        record(
            "AveragePool",
            odd,
            pool(odd, "average", [3, 3], [2, 2], [1] * 4, 0, True),
            kernel=3,
            stride=2,
            pad=1,
            count_include_pad=1,
        ),
        record(
            "AveragePool",
            odd,
            pool(odd, "average", [3, 3], [2, 2], [1] * 4, 3, True),
            kernel=3,
            stride=2,
            pad=1,
            legacy_pad=3,
            count_include_pad=1,
        ),
    ]
    return found + counted


def _normalization() -> list[Record]:
    scale, bias, mean, var = real(4), real(4), real(4), positive(4)
    column = (4, 1, 1)
    normal = (X - mean.reshape(column)) / np.sqrt(var.reshape(column) + np.float32(1e-3))
    batch = normal * scale.reshape(column) + bias.reshape(column)
    functions = torch.nn.functional
    instance = functions.instance_norm(_T(X), weight=_T(scale), bias=_T(bias), eps=1e-4).numpy()
    group = functions.group_norm(_T(X), 2, _T(scale), _T(bias)).numpy()
    layer = functions.layer_norm(_T(X), X.shape[2:]).numpy()
    rows = X.reshape(2, -1)
    affine = functions.layer_norm(_T(ROWS), (7,), _T(ROWS[0]), _T(ROWS[1]), 1e-2).numpy()
    moments = [rows.mean(1, keepdims=True), np.sqrt(rows.var(1, keepdims=True) + np.float32(1e-5))]
    last = ref.to_nhwc
    weights = (1, 2, 3, 4)
    return [
        record("SpatialBN", [X, scale, bias, mean, var], batch, weights, is_test=1, epsilon=1e-3),
        record(
            "SpatialBN",
            [last(X), scale, bias, mean, var],
            last(batch),
            weights,
            is_test=1,
            epsilon=1e-3,
            order="NHWC",
        ),
        record("InstanceNorm", [X, scale, bias], instance, (1, 2), epsilon=1e-4),
        record("InstanceNorm", [last(X), scale, bias], last(instance), (1, 2), epsilon=1e-4, order="NHWC"),
        record("GroupNorm", [X, scale, bias], group, (1, 2), group=2),
        record("LayerNorm", X, layer, needs_rank=False, axis=2),
        record("LayerNorm", X, [functions.layer_norm(_T(X), X.shape[1:]).numpy(), *moments]),
        record("LayerNorm", [ROWS, ROWS[0], ROWS[1]], affine, (1, 2), epsilon=1e-2, elementwise_affine=1),
        record("LRN", X, ref.lrn(X, 3, 0.1, 0.75, 2.0), size=3, alpha=0.1, beta=0.75, bias=2.0),
        record(
            "LRN", last(X), last(ref.lrn(X, 3, 0.1, 0.75, 1.0)), size=3, alpha=0.1, beta=0.75, order="NHWC"
        ),
        record("AffineChannel", [X, scale, bias], X * scale.reshape(column) + bias.reshape(column), (1, 2)),
        record("AffineChannel", [last(X), scale, bias], last(X) * scale + bias, (1, 2), order="NHWC"),
        record("Normalize", ROWS, ROWS / np.linalg.norm(ROWS, axis=-1, keepdims=True), needs_rank=True),
    ]


def _products() -> list[Record]:
    w, wt, b = real(3, 120), real(120, 3), real(3)
    deep, batch, other = real(3, 5), real(2, 3, 4, 5), real(2, 3, 4, 6)
    return [
        record("FC", [X, w, b], ref.fc(X, w, b), (1, 2)),
        record("FC", [X, w.reshape(3, 4, 6, 5), b], ref.fc(X, w, b), (1, 2)),
        record("FC", [ROWS, w[:, :7].copy(), b], ref.fc(ROWS, w[:, :7], b)),
        record("FC", [X, deep, b], ref.fc(X, deep, b, 3), (1, 2), axis=3),
        record("FC", [X, deep.reshape(1, 3, 5), b], ref.fc(X, deep, b, 3), (1, 2), axis=3, axis_w=2),
        record("FC", [ROWS, real(2, 21), b[:2]], lambda *given: ref.fc(*given, axis=0), (1, 2), axis=0),
        record("FbFCPacked", [X, wt.T.copy(), b], ref.fc(X, wt.T.copy(), b), (1, 2)),
        record("FbGemmPack", wt, wt.astype(np.float16).astype(np.float32)),
        record("FCTransposed", [X, wt, b], ref.fc(X, wt.T.copy(), b), (1, 2)),
        record("MatMul", [ROWS, real(7, 2)], np.matmul),
        record("MatMul", [ROWS, ROWS], ROWS @ ROWS.T, trans_b=1),
        record("MatMul", [ROWS, ROWS], ROWS.T @ ROWS, trans_a=1),
        record("MatMul", [X, real(30, 2)], lambda a, b: a.reshape(8, 30) @ b, axis_a=2),
        record("BatchMatMul", [batch, other], np.swapaxes(batch, 2, 3) @ other, needs_rank=True, trans_a=1),
        record("BatchMatMul", [batch, batch], batch @ np.swapaxes(batch, 2, 3), needs_rank=True, trans_b=1),
        record("BatchMatMul", [batch, real(5, 2)], np.matmul, broadcast=1),
    ]


def _shapes() -> list[Record]:
    old = np.array(X.shape)
    parts = np.split(X, [1, 3], axis=1)
    last = ref.to_nhwc
    indices = np.array([[1, 0], [1, 1]])
    return [
        record("Reshape", X, [X.reshape(2, 4, 30), old], shape=[0, 4, -1]),
        record("Reshape", X, X.reshape(2, -1), shape=[0, -1]),
        record("Reshape", [X, np.array([4, -1])], [X.reshape(4, -1), old], (1,)),
        record("Flatten", X, X.reshape(2, -1)),
        record("Flatten", X, X.reshape(48, 5), axis=3),
        record("FlattenToVec", X, X.reshape(-1)),
        record("ResizeLike", [X, X.reshape(8, 30)], X.reshape(8, 30)),
        record("Squeeze", X[:, :1, :, :1], X[:, 0, :, 0], dims=[3, 1]),
        record("ExpandDims", ROWS, ROWS[None, :, None], dims=[0, 2]),
        record("Transpose", X, X.transpose(3, 1, 0, 2), axes=[3, 1, 0, 2]),
        record("Transpose", X, X.T),
        record("NHWC2NCHW", last(X), X),
        record("NCHW2NHWC", X, last(X)),
        record("ChannelShuffle", X, ref.channel_shuffle(X, 2), needs_rank=True, group=2),
        record("ChannelShuffle", last(X), last(ref.channel_shuffle(X, 2)), group=2, order="NHWC"),
        record("Concat", [X, X[:, :1]], [np.concatenate([X, X[:, :1]], 1), np.array([4, 1], np.int32)]),
        record("Concat", [X, X], [np.concatenate([X, X], 2), np.array([6, 6], np.int32)], axis=2),
        record("Concat", [X, X], [np.concatenate([X, X], 3), np.array([5, 5], np.int32)], order="NHWC"),
        record("Concat", [X, X], [np.stack([X, X], 1), np.array([1, 1], np.int32)], axis=1, add_axis=1),
        record("Concat", [X, X], np.concatenate([X, X], 3), needs_rank=True, axis=-1),
        record("DepthConcat", [X, X], np.concatenate([X, X], 1)),
        record("Split", X, parts, axis=1, split=[1, 2, 1]),
        record("Split", [X, np.array([1, 2, 1], np.int32)], parts, (1,), axis=1),
        record("Split", X, np.split(X, 2, 2), needs_sizes=True, axis=2),
        record("Split", X, [X[0], X[1]], axis=0, add_axis=1, split=[1, 1]),
        record("DepthSplit", X, np.split(X, 2, 1), needs_sizes=True),
        record("Slice", X, X[:, 1:3], starts=[0, 1], ends=[-1, 3]),
        record("Slice", X, X[:, :, 1:-2], starts=[0, 0, 1], ends=[-1, -1, -3]),
        record("Slice", X, X[:, :, :, -2:], starts=[0, 0, 0, -3], ends=[-1, -1, -1, -1]),
        record("Slice", [X, np.array([0, 1]), np.array([2, -2])], X[:, 1:-1], (1, 2)),
        record("Slice", [X, np.array([0, 1]), np.array([-1, -2])], X[:, 1:-1], lowest=10, needs_sizes=True),
        record("Gather", [X, indices], X[indices], lowest=7),
        record("Gather", [X, np.array([-1, 0])], X[[-1, 0]]),
        record("Gather", [X, np.array([0, 3, 2], np.int32)], X[:, [0, 3, 2]], (1,), axis=1),
        record("BatchGather", [X, np.array([0, 3, 2])], X[:, [0, 3, 2]]),
        record("Tile", X, np.tile(X, (1, 3, 1, 1)), needs_rank=True, tiles=3, axis=1),
        record("Tile", [X, np.array([2], np.int32)], np.tile(X, (1, 1, 2, 1)), needs_rank=True, axis=2),
        record("Shape", X, old),
        record("Shape", X, old[[1, 3]], axes=[1, 3]),
        record("Size", X, np.array(X.size)),
        record("DiagonalFill", ROWS, _diagonal(*ROWS.shape), needs_rank=True, value=0.5),
        record(
            "DiagonalFill",
            [np.array([5, 2])],
            _diagonal(5, 2),
            needs_sizes=True,
            input_as_shape=1,
            value=0.5,
        ),
        record("ConstantFill", X, np.full(X.shape, 0.5, np.float32), value=0.5),
        record("ConstantFill", X, np.full((*X.shape, 2), 3, np.int64), value=3, extra_shape=[2]),
        record(
            "ConstantFill", [np.array([2, 3])], np.ones((2, 3), np.int32), input_as_shape=1, dtype=2, value=1
        ),
    ]


def _reductions() -> list[Record]:
    order = np.argsort(-ROWS, axis=1, kind="stable")[:, :3]
    found = [
        record(kind, X, function(X, (1, 3), True), axes=[1, 3])
        for kind, function in {
            "ReduceSum": lambda v, a, k: v.sum(a, keepdims=k),
            "ReduceMean": lambda v, a, k: v.mean(a, keepdims=k),
            "ReduceMax": lambda v, a, k: v.max(a, keepdims=k),
            "ReduceMin": lambda v, a, k: v.min(a, keepdims=k),
            "ReduceL1": lambda v, a, k: np.abs(v).sum(a, keepdims=k),
            "ReduceL2": lambda v, a, k: np.sqrt((v * v).sum(a, keepdims=k)),
        }.items()
    ]
    return [
        *found,
        record("ReduceMean", X, X.mean(), keepdims=0),
        record("ReduceSum", X, X.sum(3), needs_rank=True, axes=[-1], keepdims=0),
        record("ArgMax", X, X.argmax(1, keepdims=True), axis=1),
        record("ArgMin", X, X.argmin(3), needs_rank=True, keepdims=0),
        record("TopK", ROWS, [np.take_along_axis(ROWS, order, 1), order], needs_rank=True, k=3),
    ]


def _images() -> list[Record]:
    last = ref.to_nhwc
    regions = np.array([[0, 0, 0, 3, 4], [1, 1, 1, 4, 3]], np.float32)
    return [
        record("ResizeNearest", X, ref.resize_nearest(X, 2, 3), width_scale=3.0, height_scale=2.0),
        record(
            "ResizeNearest", X, ref.resize_nearest(X, 1.5, 0.6), lowest=10, width_scale=0.6, height_scale=1.5
        ),
        record(
            "ResizeNearest",
            last(X),
            last(ref.resize_nearest(X, 2, 2)),
            width_scale=2.0,
            height_scale=2.0,
            order="NHWC",
        ),
        record("ResizeNearest", [X, np.array([2, 3], np.float32)], ref.resize_nearest(X, 2, 3), (1,)),
        record("UpsampleBilinear", X, ref.upsample_bilinear(X, 2, 2), width_scale=2.0, height_scale=2.0),
        record(
            "PadImage",
            X,
            np.pad(X, [(0, 0), (0, 0), (1, 2), (3, 0)], constant_values=0.5),
            pad_t=1,
            pad_l=3,
            pad_b=2,
            pad_r=0,
            value=0.5,
        ),
        record("PadImage", X, np.pad(X, [(0, 0), (0, 0), (2, 2), (2, 2)], "reflect"), pad=2, mode="reflect"),
        record(
            "PadImage",
            last(X),
            last(np.pad(X, [(0, 0), (0, 0), (1, 1), (1, 1)], "edge")),
            pad=1,
            mode="edge",
            order="NHWC",
        ),
        record(
            "RoIAlign",
            [X, regions],
            _roi_align(X, regions, 2, 3, 0.5, 2),
            lowest=10,
            highest=21,
            needs_sizes=True,
            pooled_h=2,
            pooled_w=3,
            spatial_scale=0.5,
            sampling_ratio=2,
        ),
        record(
            "RoIAlign",
            [X[:1], regions[:, 1:].copy()],
            _roi_align(X, regions * [0, 1, 1, 1, 1], 2, 2, 1.0, 2),
            lowest=10,
            highest=21,
            needs_sizes=True,
            pooled_h=2,
            pooled_w=2,
            sampling_ratio=2,
        ),
    ]


def _roi_align(
    x: np.ndarray, rois: np.ndarray, rows: int, columns: int, scale: float, ratio: int
) -> np.ndarray:
    """Averages of bilinear samples, `ratio` by `ratio` for each bin; regions are at least 1 by 1."""
    result = np.zeros((len(rois), x.shape[1], rows, columns), np.float32)
    for n, (batch, *corners) in enumerate(rois):
        left, top, right, bottom = (corner * scale for corner in corners)
        height, width = max(bottom - top, 1.0) / rows, max(right - left, 1.0) / columns
        for i in range(rows):
            for j in range(columns):
                total = np.zeros(x.shape[1], np.float64)
                for a in range(ratio):
                    for b in range(ratio):
                        y = top + (i + (a + 0.5) / ratio) * height
                        z = left + (j + (b + 0.5) / ratio) * width
                        total += _sample(x[int(batch)], y, z)
                result[n, :, i, j] = total / ratio**2
    return result


def _sample(image: np.ndarray, y: float, x: float) -> np.ndarray:
    _, height, width = image.shape
    if y < -1 or y > height or x < -1 or x > width:
        return np.zeros(len(image))
    y, x = min(max(y, 0), height - 1), min(max(x, 0), width - 1)
    top, left = math.floor(y), math.floor(x)
    bottom, right = min(top + 1, height - 1), min(left + 1, width - 1)
    dy, dx = y - top, x - left
    upper = image[:, top, left] * (1 - dx) + image[:, top, right] * dx
    lower = image[:, bottom, left] * (1 - dx) + image[:, bottom, right] * dx
    return upper * (1 - dy) + lower * dy


def _features() -> list[Record]:
    x, p, w, b = X, positive(3, 7), real(7), real(7)
    with_nan = np.where(ROWS > 0, ROWS, np.float32(np.nan))
    integers = np.arange(-6, 6, dtype=np.int64).reshape(3, 4)
    powers = np.float32([0, 0.5, 1, 2, -1, 0, 3])
    shifted = np.maximum(p + b, np.float32(1e-6))
    box_cox = np.where(powers == 0, np.log(shifted), (shifted**powers - 1) / np.where(powers == 0, 1, powers))
    unit = np.float32([[0.2, 0.7], [1.5, -0.5]])
    clipped = np.clip(unit, np.float32(0.1), np.float32(0.9))
    limits = np.float32([-0.5, 0.25, 1.0])
    flat = x.reshape(2, -1)
    gamma, beta = real(4, 6, 5), real(4, 6, 5)
    reciprocal = 1 / np.sqrt(np.mean(flat**2, -1) + np.float32(0.01))
    normalized = (flat * reciprocal[:, None]).reshape(x.shape) * gamma + beta
    return [
        record("Log1p", p, np.log1p(p)),
        record("Logit", unit, np.log(clipped / (1 - clipped)), eps=0.1),
        record("Mod", integers, np.fmod(integers, 4), divisor=4),
        record("Mod", integers, np.mod(integers, 4), divisor=4, sign_follow_divisor=1),
        record("ReplaceNaN", with_nan, np.nan_to_num(with_nan, nan=-2.0), value=-2.0),
        record(
            "Bucketize",
            np.append(ROWS[0], limits),
            np.searchsorted(limits, np.append(ROWS[0], limits)).astype(np.int32),
            needs_rank=True,
            boundaries=[-0.5, 0.25, 1.0],
        ),
        record("BatchBoxCox", [p, powers, b], box_cox.astype(np.float32), weights=(1, 2)),
        record("ElementwiseLinear", [ROWS, w, b], ROWS * w + b, weights=(1, 2)),
        record("ElementwiseLinear", [x, real(5), real(5)], lambda v, a, c: v * a + c, axis=3),
        record("DotProduct", [x, 2 * x], (2 * x * x).reshape(2, -1).sum(-1)),
        record("DotProduct", [w, b], w * b),
        record("LpNorm", w, np.sum(w**2, keepdims=True)),
        record("LpNorm", w, np.mean(np.abs(w), keepdims=True), p=1, average=1),
        record("RMSNorm", [x, gamma, beta], [normalized, reciprocal], weights=(1, 2), eps=0.01),
        record("ReduceFrontSum", x, x.sum(0)),
        record("ReduceFrontMean", x, x.mean((0, 1)), num_reduce_dim=2),
        record("ReduceBackSum", x, x.sum((2, 3)), num_reduce_dim=2, needs_rank=True),
        record("ReduceBackMean", x, x.mean(3), needs_rank=True),
    ]


def _segments() -> list[Record]:
    lengths, indices = np.int32([2, 0, 3]), np.int32([4, 0, 1, 1, 2])
    table, weights = real(5, 4), real(5)
    rows = table[indices]

    def reduced(values: np.ndarray, function: Any) -> np.ndarray:
        parts = np.split(values, np.cumsum(lengths)[:-1])
        zero = np.zeros(values.shape[1:], np.float32)
        return np.stack([function(part, 0) if len(part) else zero for part in parts])

    codes = np.random.default_rng(1).integers(0, 256, (5, 4)).astype(np.uint8)
    scales = np.stack([positive(5), real(5)], 1)
    dense = codes * scales[:, :1] + scales[:, 1:]
    fused = np.concatenate([codes, scales.view(np.uint8).reshape(5, 8)], 1)
    half = scales.astype(np.float16)
    nibbles = np.stack([codes & 15, codes >> 4], -1).reshape(5, 8) * half[:, :1].astype(np.float32)
    nibbles = (nibbles + half[:, 1:].astype(np.float32)).astype(np.float32)
    fused4 = np.concatenate([codes, half.view(np.uint8).reshape(5, 4)], 1)
    ranges = np.int32([[[0, 1], [2, 2]], [[4, 1], [0, 0]]])
    segments = [indices, lengths]
    by_column = weights[:, None]
    sums = {"needs_rank": True}
    return [
        *[
            record(f"Lengths{name}", [rows, lengths], reduced(rows, function), **sums)
            for name, function in (("Sum", np.sum), ("Mean", np.mean), ("Max", np.max))
        ],
        record("SparseLengthsSum", [table, *segments], reduced(rows, np.sum), weights=(0,)),
        record("SparseLengthsMean", [table, *segments], reduced(rows, np.mean), weights=(0,)),
        record("SparseLengthsMax", [table, *segments], reduced(rows, np.max), weights=(0,)),
        record(
            "SparseLengthsWeightedSum",
            [table, weights, *segments],
            reduced(rows * by_column, np.sum),
            weights=(0,),
        ),
        *[
            record(f"SparseLengths{name}Fused{bits}BitRowwise", [data, *segments], wanted, weights=(0,))
            for bits, data, floats in ((8, fused, dense), (4, fused4, nibbles))
            for name, wanted in (
                ("Sum", reduced(floats[indices], np.sum)),
                ("Mean", reduced(floats[indices], np.mean)),
            )
        ],
        *[
            record(
                f"SparseLengthsWeightedSumFused{bits}BitRowwise",
                [data, weights, *segments],
                reduced(floats[indices] * by_column, np.sum),
                weights=(0,),
            )
            for bits, data, floats in ((8, fused, dense), (4, fused4, nibbles))
        ],
        record(
            "SparseLengthsSum8BitsRowwise",
            [codes, *segments, scales],
            reduced(dense[indices], np.sum),
            weights=(0, 3),
        ),
        record(
            "SparseLabelSplit",
            [np.int32([2, 0, 3]), np.int64([1, 0, 1, 1, 0]), np.float32([1, 2, 3, 4, 5])],
            [
                np.float32([2, 5]),
                np.float32([1, 3, 4]),
                np.int32([0, 2]),
                np.int32([0, 2, 2]),
                np.int32([0, 0, 1, 2, 1]),
            ],
            num_labels=2,
        ),
        record("LengthsToRanges", lengths, np.int32([[0, 2], [2, 0], [2, 3]])),
        record("LengthsRangeFill", lengths, np.int32([0, 1, 0, 1, 2])),
        record("LengthsToSegmentIds", lengths, np.int32([0, 0, 2, 2, 2])),
        record("GatherRanges", [weights, ranges], [weights[[0, 2, 3, 4]], np.int32([3, 1])]),
        record(
            "SparseToDense",
            [np.int32([2, 0, 2]), rows[:3], real(4, 1)],
            np.stack([rows[1], 0 * rows[0], rows[0] + rows[2], 0 * rows[0]]),
            needs_rank=True,
        ),
        record(
            "SparseToDense",
            [np.int32([1, 0]), rows[:2]],
            rows[[1, 0]],
            needs_rank=True,
        ),
        record(
            "BatchSparseToDense",
            [np.int32([2, 0, 1]), np.int64([1, 0, 2]), np.float32([5, 6, 7])],
            np.float32([[6, 5, -1], [-1, -1, -1], [-1, -1, 7]]),
            dense_last_dim=3,
            default_value=-1.0,
        ),
        record(
            "SparseToDenseMask",
            [np.int64([5, 9, 3, 7]), np.float32([1, 2, 3, 4]), np.array(-1, np.float32), np.int32([2, 2])],
            [np.float32([[-1, 1], [3, -1]]), np.bool_([[False, True], [True, False]])],
            mask=[3, 5],
            return_presence_mask=1,
            needs_rank=True,
        ),
        record(
            "FillExamplesWithIndicator",
            [rows[:2], np.bool_([True, False, True])],
            np.stack([rows[0], 0 * rows[0], rows[1]]),
            needs_rank=True,
        ),
    ]


def _detection() -> list[Record]:
    random = np.random.default_rng(3)
    scores = random.random((2, 3, 4, 5)).astype(np.float32)
    deltas = (random.standard_normal((2, 12, 4, 5)) * 0.3).astype(np.float32)
    im_info = np.float32([[60, 75, 1.5], [50, 70, 1.0]])
    anchors = np.float32([[-8, -8, 23, 23], [-20, -4, 35, 19], [-2, -2, 5, 5]])
    proposals = detection.generate_proposals(scores, deltas, im_info, anchors, 1 / 16, 40, 9, 0.5, 8.0)
    corners = random.random((6, 2)) * 30
    boxes = np.concatenate([corners, corners + 5 + random.random((6, 2)) * 30], 1)
    rois = np.concatenate([[[0], [0], [1], [0], [1], [1]], boxes], 1).astype(np.float32)
    changes = (random.standard_normal((6, 12)) * 0.4).astype(np.float32)
    weights = (10.0, 10.0, 5.0, 5.0)
    class_scores = random.random((6, 3)).astype(np.float32)
    class_boxes = np.tile(boxes, (1, 3)).astype(np.float32) + random.random((6, 12)).astype(np.float32)
    parts = [np.concatenate([rois[:, :1], boxes * size], 1).astype(np.float32) for size in (1, 4, 12)]
    part_scores = [random.random(6).astype(np.float32) for _ in parts]
    return [
        record(
            "GenerateProposals",
            [scores, deltas, im_info, anchors],
            proposals,
            spatial_scale=1 / 16,
            pre_nms_topN=40,
            post_nms_topN=9,
            nms_thresh=0.5,
            min_size=8.0,
            correct_transform_coords=1,
            weights=(3,),
            lowest=11,
        ),
        *[
            record(
                "BBoxTransform",
                [given, changes, infos],
                detection.bbox_transform(given, changes, infos, weights, scaled),
                apply_scale=int(scaled),
                needs_sizes=True,
                weights_=list(weights),
            )
            for given, infos, scaled in ((rois, im_info, True), (rois[:, 1:].copy(), im_info[:1], False))
        ],
        record(
            "BoxWithNMSLimit",
            [class_scores, class_boxes, np.float32([6])],
            detection.box_with_nms_limit(class_scores, class_boxes, 0.2, 0.5, 5),
            score_thresh=0.2,
            nms=0.5,
            detections_per_im=5,
            lowest=10,
            needs_sizes=True,
        ),
        record(
            "BoxWithNMSLimit",
            [class_scores, class_boxes],
            detection.box_with_nms_limit(class_scores, class_boxes, 0.05, 0.3, 100)[:3],
            lowest=10,
        ),
        record(
            "CollectAndDistributeFpnRpnProposals",
            [*parts, *part_scores],
            detection.collect_and_distribute(parts, part_scores, 12, 2, 4),
            rpn_min_level=2,
            rpn_max_level=4,
            roi_min_level=2,
            roi_max_level=4,
            rpn_post_nms_topN=12,
        ),
    ]


RECORDS = [
    *_elementwise(),
    *_binary(),
    *_activations(),
    *_convolutions(),
    *_pooling(),
    *_normalization(),
    *_products(),
    *_shapes(),
    *_reductions(),
    *_images(),
    *_features(),
    *_segments(),
    *_detection(),
]
