"""Quantization against eager PyTorch: the integers are the same ones, ties and saturation included.

QuantizeLinear divides by the scale where torch multiplies by its reciprocal, so ties are asked of scales that
are powers of two. Elsewhere numbers within one rounding of a tie may come out one step apart.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
import torch
import torch.ao.quantization.fx._decomposed  # Registers the operators.
from torch.ao.quantization import FusedMovingAvgObsFakeQuantize, MovingAveragePerChannelMinMaxObserver

import opsetta

from .records import HIGHEST, Record, check, floats, integers, parametrized

Q = torch.ops.quantized_decomposed
OPSETS = (7, 9, 10, 11, 12, 13, 19, 21, 23, 25, HIGHEST)
FEW = (9, 10, 13, 21, HIGHEST)

EDGES = torch.tensor([0.25, 0.75, 1.25, -0.25, -0.75, 1e6, -1e6, 3e38, -3e38, torch.inf, -torch.inf, -0.0])
X = torch.cat([floats(108, scale=5), EDGES]).reshape(2, 3, 20)
WEIGHT = floats(4, 3, 2, seed=3)
SCALES = torch.tensor([0.5, 0.25, 0.037])
ZEROS = torch.zeros(3, dtype=torch.int64)
SHIFTS = torch.tensor([1, -2, 5])
WIDE = integers(2, 3, 20, low=-128, high=128, dtype=torch.int8)
RANGES = (
    (torch.int8, -128, 127, 3),
    (torch.int8, -127, 127, 0),
    (torch.uint8, 0, 255, 128),
    (torch.uint8, 0, 127, 64),
    (torch.int8, -8, 7, 1),
    (torch.uint8, 0, 15, 7),
    (torch.int16, -32768, 32767, -5),
    (torch.uint16, 0, 65535, 30000),
    (torch.int32, -(2**20), 2**20, 0),
    (torch.int8, -128, 127, 300),
)


def exact(
    name: str, function: Callable[..., Any], inputs: tuple, opsets: tuple = OPSETS, **rest: Any
) -> Record:
    return Record(name, function, inputs, opsets, rtol=0.0, atol=0.0, **rest)


def there_and_back(dtype: torch.dtype, low: int, high: int, zero_point: int) -> Callable[..., Any]:
    def function(x: torch.Tensor) -> list[torch.Tensor]:
        found = []
        for scale in (0.5, 0.037):
            whole = Q.quantize_per_tensor(x, scale, zero_point, low, high, dtype)
            found += [whole, Q.dequantize_per_tensor(whole, scale, zero_point, low, high, dtype)]
        return found

    return function


PER_TENSOR = [
    exact(f"per tensor {dtype} {low} {zero}", there_and_back(dtype, low, high, zero), (X,))
    for dtype, low, high, zero in RANGES
]
PER_TENSOR += [
    exact(
        "half floats",
        lambda x, y: (
            Q.quantize_per_tensor(x, 0.5, 3, -128, 127, torch.int8),
            Q.dequantize_per_tensor(y, 0.037, 3, -128, 127, torch.int8, out_dtype=torch.float16),
            Q.dequantize_per_channel(y, SCALES, SHIFTS, 1, -128, 127, torch.int8, out_dtype=torch.float16),
        ),
        (X.half(), WIDE),
        FEW,
    ),
    exact(
        "tensor overloads",
        lambda x, s, z: (
            Q.quantize_per_tensor.tensor(x, s, z, -128, 127, torch.int8),
            Q.quantize_per_tensor.tensor(x, torch.tensor([0.25]), torch.tensor([3]), -128, 127, torch.int8),
            Q.quantize_per_tensor.tensor2(x, s, z, torch.tensor(-100), torch.tensor([100]), torch.int8),
            Q.quantize_per_tensor.tensor2(x, s, z, z - 90, z + 90, torch.int8),
        ),
        (X, torch.tensor([0.5]), torch.tensor([4])),
    ),
    exact(
        "dequantize tensor overloads",
        lambda q, s, z: (
            Q.dequantize_per_tensor.tensor(q, s, z, -128, 127, torch.int8),
            Q.dequantize_per_tensor.tensor(q, torch.tensor(0.25), torch.tensor(3), -128, 127, torch.int8),
            Q.dequantize_per_tensor.tensor2(q, s, z, z, z, torch.int8),
        ),
        (WIDE, torch.tensor(0.37), torch.tensor(200)),
    ),
    exact(
        "int32 with zero points",
        lambda q: (
            Q.dequantize_per_tensor(q, 0.37, 0, -(2**31), 2**31 - 1, torch.int32),
            Q.dequantize_per_tensor(q, 0.37, 7, -(2**31), 2**31 - 1, torch.int32),
            Q.dequantize_per_channel(q, SCALES, SHIFTS, 1, -(2**31), 2**31 - 1, torch.int32),
        ),
        (integers(2, 3, 4, low=-(2**30), high=2**30, dtype=torch.int32),),
    ),
    exact(
        "convert element type",
        lambda x: Q.convert_element_type.no_fuse(x, torch.int32),
        (X[..., :10],),
        (7, HIGHEST),
    ),
    exact(
        "dynamic sizes",
        there_and_back(torch.int8, -128, 127, 3),
        (X,),
        FEW,
        dynamic=({0: torch.export.Dim("batch"), 2: torch.export.Dim("length")},),
    ),
]

FLOAT8 = [
    exact(
        f"{dtype}",
        lambda x, dtype=dtype, limit=limit: (
            Q.quantize_per_tensor(x, 0.037, 0, -limit, limit, dtype).float(),
            Q.dequantize_per_tensor(
                Q.quantize_per_tensor(x, 0.5, 0, -limit, limit, dtype), 0.5, 0, -limit, limit, dtype
            ),
        ),
        (X,),
        (19, 21, 23, HIGHEST),
        refused={9: "the types begin at 19", 18: "the types begin at 19"},
    )
    for dtype, limit in ((torch.float8_e4m3fn, 448), (torch.float8_e5m2, 57344))
]


def _channels(x: torch.Tensor, q: torch.Tensor) -> list[torch.Tensor]:
    found = []
    for zero_points, low, high in ((ZEROS, -128, 127), (SHIFTS, -127, 127), (SHIFTS, -8, 7)):
        whole = Q.quantize_per_channel(x, SCALES, zero_points, 1, low, high, torch.int8)
        found += [whole, Q.dequantize_per_channel(whole, SCALES, zero_points, 1, low, high, torch.int8)]
    found.append(Q.dequantize_per_channel(q, SCALES, None, 1, -128, 127, torch.int8))
    found.append(Q.dequantize_per_channel(q, SCALES, SHIFTS.to(torch.int8), 1, -128, 127, torch.int8))
    found.append(Q.quantize_per_channel(x, SCALES[:2], SHIFTS[:2], 0, -128, 127, torch.int8))
    return found


WEIGHT_SCALES = floats(4, seed=4).abs() / 8 + 0.01
WEIGHT_ZEROS = integers(4, low=-2, high=3)


def _weights(x: torch.Tensor) -> list[torch.Tensor]:
    """Constants: what a model's weights become."""
    found = []
    for axis, size, high in ((0, 4, 127), (1, 3, 127), (1, 3, 7)):
        scales, zero_points, bounds = WEIGHT_SCALES[:size], WEIGHT_ZEROS[:size], (-high - 1, high)
        whole = Q.quantize_per_channel(WEIGHT, scales, zero_points, axis, *bounds, torch.int8)
        read = Q.dequantize_per_channel(whole, scales, zero_points, axis, *bounds, torch.int8)
        found += [read + x, whole]
    return found


PER_CHANNEL = [
    exact("per channel", _channels, (X, WIDE)),
    exact("weights", _weights, (torch.zeros(()),)),
    exact(
        "scales as inputs",
        lambda x, q, s, z: (
            Q.quantize_per_channel(x, s, z, 1, -128, 127, torch.int8),
            Q.dequantize_per_channel(q, s, z, 1, -128, 127, torch.int8),
        ),
        (X, WIDE, SCALES, SHIFTS),
    ),
    exact(
        "fake quant per channel",
        lambda x: Q.fake_quant_per_channel(x, SCALES, SHIFTS, 1, -128, 127),
        (X,),
        FEW,
    ),
]

COLUMNS = floats(4, 6, seed=5, scale=3)
GROUP_SCALES = floats(4, 2, seed=6).abs() + 0.1
GROUP_SHIFTS = integers(4, 2, low=-3, high=4, dtype=torch.int32)


def _groups(x: torch.Tensor, q: torch.Tensor) -> list[torch.Tensor]:
    bounds = (-8, 7, torch.int8)
    return [
        Q.quantize_per_channel_group(x, GROUP_SCALES, GROUP_SHIFTS, *bounds, 3),
        Q.quantize_per_channel_group(x, GROUP_SCALES[:, :1], ZEROS.new_zeros(4, 1), *bounds, 128),
        Q.dequantize_per_channel_group(q, GROUP_SCALES, GROUP_SHIFTS, *bounds, 3, torch.float32),
        Q.dequantize_per_channel_group(q, GROUP_SCALES, None, *bounds, 3, torch.float16),
        Q.dequantize_per_channel_group(q, GROUP_SCALES.reshape(-1), None, *bounds, 3, torch.float32),
    ]


def _tokens(x: torch.Tensor) -> list[torch.Tensor]:
    bounds = (-128, 127, torch.int8)
    scales, zero_points = Q.choose_qparams_per_token_asymmetric(x, torch.int8)
    whole = Q.quantize_per_token(x, scales, zero_points, *bounds)
    read = Q.dequantize_per_token(whole, scales, zero_points, *bounds, torch.float32)
    even, zeros = Q.choose_qparams_per_token(x, torch.int8)
    symmetric = Q.quantize_per_token(x, even, zeros, *bounds)
    return [scales, zero_points, whole, read, symmetric, even.float()]


def _ranges(x: torch.Tensor) -> list[torch.Tensor]:
    found = []
    for choose in (Q.choose_qparams.tensor, Q.choose_qparams_symmetric.tensor):
        for low, high, dtype in ((0, 255, torch.uint8), (-128, 127, torch.int8), (-127, 127, torch.int8)):
            scale, zero = choose(x, low, high, 2.0**-12, dtype)
            whole = Q.quantize_per_tensor.tensor(x, scale, zero, low, high, dtype)
            found += [scale, zero, whole]
            found.append(Q.dequantize_per_tensor.tensor(whole, scale, zero, low, high, dtype))
    return found


DYNAMIC = [
    exact("groups", _groups, (COLUMNS, integers(4, 6, low=-8, high=8, dtype=torch.int8))),
    exact(
        "tokens",
        _tokens,
        (floats(2, 3, 8, seed=7, scale=4),),
    ),
    # onnxruntime leaves out the rounding to half floats between operators.
    Record("tokens half", _tokens, (floats(2, 8, seed=7, scale=4).half(),), FEW, rtol=2e-3, atol=0.0),
    exact("chosen", _ranges, (floats(4, 8, seed=8, scale=4),)),
    exact("chosen above 0", _ranges, (floats(4, 8, seed=8).abs() + 1,), FEW),
    exact("chosen of zeros", _ranges, (torch.zeros(3),), FEW),
]

FINITE = torch.cat([floats(111, scale=5), EDGES[:7], EDGES[11:], EDGES[:1]]).reshape(2, 3, 20)


def _fakes(x: torch.Tensor) -> list[torch.Tensor]:
    found = []
    for low, high, zero in ((-128, 127, 3), (0, 127, 64), (-8, 7, 0), (0, 15, 3), (-300, 300, 5)):
        for scale in (0.5, 0.037):
            found.append(torch.fake_quantize_per_tensor_affine(x, scale, zero, low, high))
        shifts = torch.full((3,), zero, dtype=torch.int32)
        found.append(torch.fake_quantize_per_channel_affine(x, SCALES, shifts, 1, low, high))
    return found


def _fakes_by_tensors(x: torch.Tensor, scale: torch.Tensor, zero_point: torch.Tensor) -> list[torch.Tensor]:
    learned = torch.tensor([1.2, -2.5, 300.0])
    return [
        torch.fake_quantize_per_tensor_affine(x, scale, zero_point, 0, 255),
        torch.fake_quantize_per_tensor_affine(x, torch.tensor(0.25), torch.tensor(3), 0, 255),
        torch.fake_quantize_per_channel_affine(x, SCALES, learned / 100, 1, -128, 127),
        torch._fake_quantize_learnable_per_tensor_affine(x, scale[None], learned[1:2], -128, 127),
        torch._fake_quantize_learnable_per_channel_affine(x, SCALES, learned, 1, -128, 127),
    ]


def _masks(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    aten, shifts = torch.ops.aten, SHIFTS.int()
    enabled, disabled = torch.tensor([1]), torch.tensor([0])
    by_tensors = aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams
    return (
        *aten.fake_quantize_per_tensor_affine_cachemask(x, 0.5, 3, -128, 127),
        *aten.fake_quantize_per_channel_affine_cachemask(x, SCALES, shifts, 1, -128, 127),
        *by_tensors(x, SCALES[0], shifts[0], enabled, -8, 7),
        *by_tensors(x, SCALES[0], shifts[0], disabled, -8, 7),
    )


FAKE = [
    exact("fake quantize", _fakes, (FINITE,)),
    exact("fake quantize half", _fakes, (FINITE.clamp(-1000, 1000).half(),), FEW),
    exact("fake quantize double", _fakes, (FINITE.double(),), FEW),
    exact(
        "fake quantize by tensors",
        _fakes_by_tensors,
        (FINITE, torch.tensor(0.5), torch.tensor(4, dtype=torch.int32)),
    ),
    exact("fake quantize masks", _masks, (FINITE,), FEW),
    exact(
        "fake quantized weight",
        lambda x: x + torch.fake_quantize_per_channel_affine(WEIGHT, SCALES, SHIFTS.int(), 1, -127, 127),
        (torch.zeros(()),),
    ),
]


@parametrized([*PER_TENSOR, *PER_CHANNEL, *FLOAT8, *DYNAMIC, *FAKE])
def test_quantization_agrees_with_eager(record: Record) -> None:
    check(record)


class Observed(torch.nn.Module):
    """What quantization-aware training leaves: a fake quantizer that has observed, its observer off."""

    def __init__(self, **options: Any):
        super().__init__()
        self.fake = FusedMovingAvgObsFakeQuantize(**options)
        self.fake(X.clamp(-9, 9))
        self.fake.disable_observer()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fake(x)


PER_CHANNEL_OBSERVER = {
    "observer": MovingAveragePerChannelMinMaxObserver,
    "quant_min": -128,
    "quant_max": 127,
    "dtype": torch.qint8,
    "qscheme": torch.per_channel_symmetric,
}


@pytest.mark.parametrize("options", [{}, PER_CHANNEL_OBSERVER], ids=["per tensor", "per channel"])
@pytest.mark.parametrize("opset", FEW)
def test_observed_fake_quantizer_agrees_with_eager(options: dict[str, Any], opset: int) -> None:
    model = Observed(**options).eval()
    x = floats(2, 3, 20, seed=9, scale=3)
    opsetta.export(model, (x,), opset=opset).verify((x,), rtol=0.0, atol=0.0)


def test_disabled_fake_quantizer_is_left_out() -> None:
    model = Observed().eval()
    model.fake.disable_fake_quant()
    program = opsetta.export(model, (X,), opset=13)
    assert [node.op_type for node in program.model.graph] == ["Identity"]


def test_observer_that_is_on_is_refused() -> None:
    model = Observed().eval()
    model.fake.enable_observer()
    with pytest.raises(opsetta.UnsupportedOperatorsError, match="disable_observer"):
        opsetta.export(model, (X,), opset=13)


def operators(program: opsetta.Program) -> list[str]:
    return [node.op_type for node in program.model.graph]


@pytest.mark.parametrize("opset", OPSETS)
def test_pairs_are_the_operators_where_the_opset_has_them(opset: int) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.fake_quantize_per_tensor_affine(x, 0.5, 3, 0, 255)

    program = opsetta.export(function, (X,), opset=opset)
    found = operators(program)
    assert (found == ["QuantizeLinear", "DequantizeLinear"]) == (10 <= opset < 28), found


@pytest.mark.parametrize(
    ("opset", "dtype"),
    [(10, ir.DataType.INT8), (13, ir.DataType.INT8), (20, ir.DataType.INT8), (21, ir.DataType.INT4)],
)
def test_weights_are_kept_as_integers(opset: int, dtype: ir.DataType) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return x + torch.fake_quantize_per_tensor_affine(WEIGHT, 0.25, 1, -8, 7)

    program = opsetta.export(function, (torch.zeros(()),), opset=opset)
    tensors = [value.const_value for value in program.model.graph.initializers.values()]
    [weight] = [tensor for tensor in tensors if tensor is not None and tensor.size == WEIGHT.numel()]
    assert weight.dtype == dtype
    expected = torch.round(WEIGHT / 0.25).add(1).clamp(-8, 7)
    np.testing.assert_array_equal(weight.numpy().astype(np.int64), expected.numpy())
    onnx.checker.check_model(program.model_proto, full_check=True)


def test_quantized_element_type_is_refused() -> None:
    with pytest.raises(opsetta.CaptureError, match="quint8"):
        opsetta.export(
            lambda x: torch.quantize_per_tensor(x, 0.1, 3, torch.quint8).dequantize(), (X,), opset=13
        )


@pytest.mark.parametrize("opset", [9, 13, HIGHEST])
@pytest.mark.parametrize("capture", ["direct", "torch.export"])
def test_fake_quantization_by_tensors_takes_any_size(opset: int, capture: str) -> None:
    def quantize(x: torch.Tensor, scales: torch.Tensor, zeros: torch.Tensor) -> tuple[torch.Tensor, ...]:
        by_channel = torch.fake_quantize_per_channel_affine(x, scales, zeros, 1, -128, 127)
        return by_channel, torch.fake_quantize_per_tensor_affine(x, scales[:1], zeros[:1], 0, 255)

    scales, zeros = torch.tensor([0.1, 0.02, 0.5]), torch.tensor([0, 3, -2], dtype=torch.int32)
    free = ({0: "batch", 2: "length"}, None, None)
    arguments = (torch.randn(2, 3, 4), scales, zeros)
    program = opsetta.export(quantize, arguments, opset=opset, capture=capture, dynamic_shapes=free)
    for shape in ((5, 3, 1), (1, 3, 7), (0, 3, 4)):
        program.verify((20 * torch.randn(shape), scales * 2, zeros.abs()))
