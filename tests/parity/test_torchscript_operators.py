"""Operators that TorchScript graphs hold and torch.export opens: through scripts and traces, against them."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import opsetta

from ..opsets import HIGHEST, named
from .records import floats, integers

OPSETS = (9, 13, HIGHEST)
SORTED = (9, 10, 11, 28)


@dataclasses.dataclass(frozen=True, eq=False)
class Scripted:
    """One program and the calls that it is compared for.

    Attributes:
        program: makes the script or trace.
        calls: arguments, of which the first are the example's.
        dynamic: what `dynamic_shapes` is given.
    """

    name: str
    program: Callable[[], Any]
    calls: tuple[tuple[Any, ...], ...]
    opsets: tuple[int, ...] = OPSETS
    dynamic: Any = None


@functools.lru_cache(maxsize=2)
def captured(record: Scripted) -> opsetta.Program:
    return opsetta.export(record.program(), record.calls[0], opset=13, dynamic_shapes=record.dynamic)


def parametrized(records: list[Scripted]) -> Any:
    return pytest.mark.parametrize("record", [pytest.param(record, id=record.name) for record in records])


def check(record: Scripted) -> None:
    for opset in record.opsets:
        with named(opset):
            lowered = captured(record).lower(opset=opset)
            for call in record.calls:
                lowered.verify(call)


def scripted(function: Callable[..., Any]) -> Callable[[], Any]:
    return lambda: torch.jit.script(function)


def sort_descending(x: Tensor) -> tuple[Tensor, Tensor]:
    return torch.sort(x, dim=0, descending=True)


def sort_ascending(x: Tensor) -> tuple[Tensor, Tensor]:
    return torch.sort(x, dim=0)


def argsort_stable(x: Tensor) -> Tensor:
    return torch.argsort(x, dim=-1, stable=True)


def largest_half(x: Tensor) -> tuple[Tensor, Tensor]:
    return torch.topk(x, (x.size(0) + 1) // 2, dim=0)


def smallest_half(x: Tensor) -> Tensor:
    return torch.topk(x, x.size(0) // 2, dim=0, largest=False)[0]


def median_of_rows(x: Tensor) -> Tensor:
    return torch.median(x, dim=0)[0]


def _rows(dtype: torch.dtype, *counts: int) -> tuple[tuple[Tensor], ...]:
    """Tensors of `counts` rows, with equal elements."""
    calls = []
    for seed, rows in enumerate(counts):
        drawn = integers(rows, 3, low=-3 if dtype.is_signed else 0, high=4, seed=seed)
        calls.append((drawn.to(dtype),))
    return tuple(calls)


def _wide(*counts: int) -> tuple[tuple[Tensor], ...]:
    return tuple((call[0].T.contiguous(),) for call in _rows(torch.float32, *counts))


def _distinct(*counts: int) -> tuple[tuple[Tensor], ...]:
    return tuple((floats(rows, 3, seed=seed),) for seed, rows in enumerate(counts))


_N = {"x": {0: "n"}}
_EXTREMES = torch.tensor(
    [[1.0, float("nan")], [float("inf"), -1.0], [float("nan"), float("-inf")], [1.0, -0.0]]
)

SORTS = [
    *(
        Scripted(
            f"{f.__name__}-{str(t).removeprefix('torch.')}", scripted(f), _rows(t, 4, 1, 9, 0), SORTED, _N
        )
        for f in (sort_descending, sort_ascending)
        for t in (torch.float32, torch.float64, torch.float16, torch.int64, torch.int32, torch.uint8)
    ),
    Scripted("argsort-stable", scripted(argsort_stable), _wide(3, 6, 1), SORTED, {"x": {1: "n"}}),
    Scripted("largest-half", scripted(largest_half), _distinct(5, 1, 8, 2), SORTED, _N),
    Scripted("smallest-half", scripted(smallest_half), _distinct(5, 1, 8, 2), SORTED, _N),
    Scripted("median-of-rows", scripted(median_of_rows), _distinct(5, 1, 8, 2), SORTED, _N),
    # onnxruntime's TopK, which sorts from 10 on, has no order for NaN.
    Scripted("nan-descending", scripted(sort_descending), ((_EXTREMES,),), (9,), _N),
    Scripted("nan-ascending", scripted(sort_ascending), ((_EXTREMES,),), (9,), _N),
    Scripted(
        "wide-integers",
        scripted(sort_ascending),
        ((torch.tensor([[2**62 + 1], [2**62], [-(2**63)]]),),),
        SORTED,
    ),
]


@parametrized(SORTS)
def test_sorting_of_a_dynamic_dimension(record: Scripted) -> None:
    check(record)


class Encoder(nn.Module):
    """torch's transformer encoder with its own options."""

    def __init__(self, *, nested: bool = True, **options: Any):
        super().__init__()
        torch.manual_seed(0)
        layer = nn.TransformerEncoderLayer(8, 2, 12, batch_first=True, **options)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=nested)
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.add_(0.1 * torch.randn_like(parameter))

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        return self.encoder(x, src_key_padding_mask=mask)


class Masked(Encoder):
    """The same with a mask of attention."""

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        return self.encoder(x, mask=mask)


class Attention(nn.Module):
    """torch's attention, with its weights or without."""

    def __init__(self, average: bool = True):
        super().__init__()
        torch.manual_seed(0)
        self.attention = nn.MultiheadAttention(8, 4, batch_first=True)
        self.average = average

    def forward(self, x: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        found, weights = self.attention(
            x, x, x, key_padding_mask=mask, need_weights=True, average_attn_weights=self.average
        )
        assert weights is not None
        return found, weights


def _padded(batch: int, length: int, padding: int) -> tuple[Tensor, Tensor]:
    mask = torch.zeros(batch, length, dtype=torch.bool)
    if padding:
        mask[-1, -padding:] = True
    return floats(batch, length, 8), mask


def _with_gaps(batch: int, length: int) -> tuple[Tensor, Tensor]:
    x, mask = _padded(batch, length, 1)
    mask[0, 0] = True
    return x, mask


def _causal(batch: int, length: int) -> tuple[Tensor, Tensor]:
    return floats(batch, length, 8), torch.ones(length, length).triu(1).bool()


_PADDED = (_padded(2, 5, 2), _padded(3, 7, 4), _padded(1, 1, 0), _padded(2, 4, 0))
_CAUSAL = (_causal(2, 5), _causal(1, 3), _causal(3, 1))
_BATCHED = {"x": {0: "batch", 1: "length"}, "mask": {0: "batch", 1: "length"}}
_SQUARE = {"x": {0: "batch", 1: "length"}, "mask": {0: "length", 1: "length"}}


def _script_of(module: Callable[[], nn.Module]) -> Callable[[], Any]:
    return lambda: torch.jit.script(module().eval())


def _frozen_trace_of(module: Callable[[], nn.Module], call: tuple) -> Callable[[], Any]:
    """A trace in which nothing asks for a gradient, where torch takes its fused kernels."""

    def make() -> Any:
        with torch.no_grad():
            return torch.jit.trace(module().eval().requires_grad_(False), call, check_trace=False)

    return make


def kernels(program: opsetta.Program) -> set[str]:
    return {node.op_type for node in program.source.graph if node.domain == "aten"}


TRANSFORMERS = [
    Scripted("nested", _script_of(Encoder), _PADDED, dynamic=_BATCHED),
    Scripted("nested-gelu", _script_of(lambda: Encoder(activation="gelu")), _PADDED, dynamic=_BATCHED),
    Scripted("not-left-aligned", _script_of(Encoder), (*_PADDED[:1], _with_gaps(2, 5)), dynamic=_BATCHED),
    Scripted("padded", _script_of(lambda: Encoder(nested=False)), _PADDED, dynamic=_BATCHED),
    Scripted(
        "norm-first", _script_of(lambda: Encoder(nested=False, norm_first=True)), _PADDED, dynamic=_BATCHED
    ),
    Scripted("nested-trace", _frozen_trace_of(Encoder, _PADDED[0]), _PADDED, dynamic=_BATCHED),
    Scripted("attention-mask", _script_of(Masked), _CAUSAL, dynamic=_SQUARE),
    Scripted("attention-mask-trace", _frozen_trace_of(Masked, _CAUSAL[0]), _CAUSAL, dynamic=_SQUARE),
    Scripted("attention", _script_of(Attention), _PADDED, dynamic=_BATCHED),
    Scripted("attention-of-heads", _script_of(lambda: Attention(False)), _PADDED, dynamic=_BATCHED),
    Scripted("attention-trace", _frozen_trace_of(Attention, _PADDED[0]), _PADDED, dynamic=_BATCHED),
    Scripted("static", _script_of(Encoder), _PADDED[:1]),
]


@parametrized(TRANSFORMERS)
def test_fused_transformer_kernels(record: Scripted) -> None:
    check(record)
    assert not {
        name for name in kernels(captured(record)) if name.startswith(("_native", "_transformer", "_nested"))
    }


def test_an_operator_on_a_nested_tensor_is_refused_by_name() -> None:
    @torch.jit.script
    def program(x: Tensor, mask: Tensor) -> Tensor:
        return torch.relu(torch._nested_tensor_from_mask(x, mask, False)).to_padded_tensor(0.0, x.size())

    with pytest.raises(opsetta.CaptureError, match="aten::relu.*nested"):
        opsetta.export(program, (floats(2, 3, 4), torch.ones(2, 3, dtype=torch.bool)))


def shape_as_tensor(x: Tensor) -> Tensor:
    return torch.reshape(x, (-1, x.size(0))) + torch._shape_as_tensor(x).sum()


def casts(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return torch._cast_Float(x), torch._cast_Int(x), torch._cast_Double(x)


def same_padding(x: Tensor, weight: Tensor) -> Tensor:
    return torch.conv2d(x, weight, padding="same") + torch.conv2d(x, weight, padding="same", dilation=[2, 2])


def general_convolution(x: Tensor, weight: Tensor) -> Tensor:
    return torch._convolution(
        x, weight, None, [2, 2], [1, 1], [1, 1], False, [0, 0], 1, False, False, False, False
    )


def broadcast(x: Tensor, y: Tensor) -> list[Tensor]:
    return torch.broadcast_tensors([x, y])


def grids(x: Tensor, y: Tensor) -> list[Tensor]:
    return torch.meshgrid([x, y], indexing="ij")


def product(x: Tensor, y: Tensor) -> Tensor:
    return torch.einsum("bij,bjk->bik", x, y)


def dropped_in_evaluation(x: Tensor) -> Tensor:
    return torch.dropout_(x.clone(), 0.5, False) + torch.feature_dropout(x, 0.5, False)


def resized(x: Tensor) -> Tensor:
    twice = torch.nn.functional.interpolate(x, scale_factor=2.0, mode="bilinear", align_corners=False)
    return torch.nn.functional.interpolate(twice, size=[6, 5], mode="nearest")


def padded_modes(x: Tensor) -> Tensor:
    y = torch.nn.functional.pad(x, [1, 2], mode="reflect")
    y = torch.nn.functional.pad(y, [1, 0, 0, 2], mode="replicate")
    return torch.nn.functional.pad(y, [1, 1, -1, 0], mode="constant", value=2.0)


def looked_up(weight: Tensor, tokens: Tensor) -> Tensor:
    return torch.embedding(weight, tokens, 0) + torch.nn.functional.embedding(tokens, weight, padding_idx=1)


def numbers_of_tensors(x: Tensor) -> Tensor:
    count = int(x.sum() > 0) + int(float(x.size(0)) / 2) + int(torch.tensor(3.7))
    return x * count + float(x.size(1))


def spaced(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return (
        torch.linspace(0.0, 2.0, x.size(0)),
        torch.linspace(-3, 5, x.size(1), dtype=torch.float64),
        torch.linspace(7.5, 0, x.size(1), dtype=torch.int64),
    )


def affine_grids(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    image = torch.eye(2, 3).expand(x.size(0), 2, 3) * 0.7 + 0.1
    volume = torch.eye(3, 4).expand(x.size(0), 3, 4) * 0.7 + 0.1
    return (
        torch.affine_grid_generator(image, x.shape, False),
        torch.affine_grid_generator(image, x.shape, True),
        torch.affine_grid_generator(volume, [x.size(0), 1, 2, x.size(2), x.size(3)], False),
    )


_IMAGE, _WEIGHT = floats(2, 3, 5, 6), floats(4, 3, 3, 3, seed=1)
_SQUARES = {"x": {0: "n", 1: "m"}}

OPERATORS = [
    Scripted(
        "_shape_as_tensor", scripted(shape_as_tensor), ((floats(3, 4),), (floats(2, 5),)), dynamic=_SQUARES
    ),
    Scripted("_cast", scripted(casts), ((floats(3, 4, scale=5.0),),)),
    Scripted("conv2d.padding", scripted(same_padding), ((_IMAGE, _WEIGHT),)),
    Scripted("_convolution", scripted(general_convolution), ((_IMAGE, _WEIGHT),)),
    Scripted(
        "broadcast_tensors",
        scripted(broadcast),
        ((floats(3, 1), floats(4)), (floats(5, 1), floats(2))),
        dynamic=[{0: "n"}, {0: "m"}],
    ),
    Scripted(
        "broadcast_tensors-ones",
        scripted(broadcast),
        tuple((floats(*a), floats(*b)) for a, b in (((1, 3), (5, 1)), ((5, 3), (1, 1)), ((0, 1), (1, 4)))),
        dynamic=[{0: "a", 1: "b"}, {0: "c", 1: "d"}],
    ),
    Scripted(
        "meshgrid",
        scripted(grids),
        ((floats(3), floats(4)), (floats(1), floats(2))),
        dynamic=[{0: "n"}, {0: "m"}],
    ),
    Scripted("einsum", scripted(product), ((floats(2, 3, 4), floats(2, 4, 5)),)),
    Scripted("dropout_", scripted(dropped_in_evaluation), ((_IMAGE,),)),
    Scripted("interpolate", scripted(resized), ((floats(1, 2, 3, 4),),)),
    Scripted("pad", scripted(padded_modes), ((floats(2, 3, 4),),)),
    Scripted(
        "embedding",
        scripted(looked_up),
        ((floats(6, 3), integers(2, 4, low=0, high=6)), (floats(6, 3), integers(3, 1, low=0, high=6))),
        dynamic=[None, {0: "n", 1: "m"}],
    ),
    Scripted(
        "linspace",
        scripted(spaced),
        tuple((floats(*shape),) for shape in ((3, 4), (6, 2), (1, 1), (2, 9))),
        opsets=(7, 9, 11, HIGHEST),
        dynamic=_SQUARES,
    ),
    Scripted(
        "affine_grid_generator",
        scripted(affine_grids),
        tuple((floats(*shape),) for shape in ((2, 3, 4, 5), (1, 3, 1, 2), (3, 3, 6, 1))),
        opsets=(7, 9, 11, HIGHEST),
        dynamic={"x": {0: "n", 2: "h", 3: "w"}},
    ),
    Scripted(
        "numbers",
        scripted(numbers_of_tensors),
        ((floats(3, 4),), (floats(6, 2) - 3,), (floats(1, 1) + 3,)),
        dynamic=_SQUARES,
    ),
]


@parametrized(OPERATORS)
def test_operators_of_torchscript(record: Scripted) -> None:
    check(record)


def test_two_arguments_of_a_trace_may_have_one_name() -> None:
    class Model(nn.Module):
        def forward(self, *given: Tensor) -> Tensor:
            def scale(x: Tensor) -> Tensor:
                return x * 2

            return scale(given[0]) - scale(given[1])

    call = (floats(2, 3), floats(2, 3, seed=1))
    trace = torch.jit.trace(Model().eval(), call)
    assert [argument.name for argument in trace.forward.schema.arguments].count("x") == 2
    opsetta.export(trace, call).verify()


def test_recurrent_layers_do_not_unroll_while_they_are_captured() -> None:
    lstm = nn.LSTM(3, 4, batch_first=True)

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm = lstm

        def forward(self, x: Tensor) -> Tensor:
            return self.lstm(x)[0]

    program = opsetta.export(
        torch.jit.script(Model().eval()), (floats(2, 5, 3),), opset=13, dynamic_shapes={"x": {0: "b", 1: "t"}}
    )
    assert [node.op_type for node in program.model.graph].count("LSTM") == 1
    program.verify((floats(3, 40, 3),))
