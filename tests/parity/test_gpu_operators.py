"""Operators that ATen has only for GPUs, captured without one, against the operators of every device."""

import dataclasses
from collections.abc import Callable
from typing import Any

import onnxruntime
import pytest
import torch
from torch import nn
from torch.nn import functional

import opsetta

from ..opsets import named
from .records import BASE, floats

ATEN: Any = torch.ops.aten
attention = functional.scaled_dot_product_attention


@dataclasses.dataclass(frozen=True, eq=False)
class Pair:
    """An operator of GPUs, and what computes the same on the CPU."""

    name: str
    on_gpu: Callable[..., Any]
    on_cpu: Callable[..., Any]
    inputs: tuple[Any, ...]
    dynamic: Any = None


QUERY, KEY, VALUE = (floats(2, 4, 5, 8, seed=seed) for seed in range(3))
SAME = QUERY, KEY, VALUE
LONGER = QUERY, floats(2, 4, 7, 8, seed=1), floats(2, 4, 7, 8, seed=2)
FEWER_HEADS = QUERY, floats(2, 2, 5, 8, seed=1), floats(2, 2, 5, 8, seed=2)
BIAS = floats(2, 4, 5, 7, seed=4)
LENGTHS = ({2: "length"}, {2: "keys"}, {2: "keys"})


def _first(function: Callable[..., Any], *before: Any, **options: Any) -> Callable[..., Any]:
    """The first result of an operator, with further arguments behind the tensors."""
    return lambda *tensors: function(*tensors, *before, **options)[0]


def _from_end(query: torch.Tensor, key: torch.Tensor, before: int | None = None) -> torch.Tensor:
    """The causal mask of FlashAttention, and a window of earlier keys."""
    length, keys = query.shape[2], key.shape[2]
    distance = torch.arange(keys)[None] - torch.arange(length)[:, None] - (keys - length)
    return (distance <= 0) & (distance >= -keys if before is None else distance >= -before)


def _turned(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of heads before lengths, for tensors with lengths before heads."""
    return lambda *tensors: function(*(tensor.transpose(1, 2) for tensor in tensors)).transpose(1, 2)


TURNED = tuple(tensor.transpose(1, 2) for tensor in LONGER)
FLASH = ATEN._scaled_dot_product_flash_attention
EFFICIENT = ATEN._scaled_dot_product_efficient_attention
CUDNN = ATEN._scaled_dot_product_cudnn_attention
CAUSAL = lambda q, k, v: attention(q, k, v, is_causal=True)  # noqa: E731
CAUSAL_FROM_END = lambda q, k, v: attention(q, k, v, _from_end(q, k))  # noqa: E731
TOP_LEFT = torch.full((5, 7), -torch.inf).triu(1)

ATTENTION = [
    Pair("flash", _first(FLASH), attention, SAME),
    Pair("flash-scale", _first(FLASH, scale=0.5), lambda *t: attention(*t, scale=0.5), LONGER),
    Pair("flash-causal", _first(FLASH, 0.0, True), CAUSAL, SAME, ({2: "n"},) * 3),
    Pair("flash-causal-from-end", _first(FLASH, 0.0, True), CAUSAL_FROM_END, LONGER, LENGTHS),
    Pair("flash-fewer-heads", _first(FLASH), lambda *t: attention(*t, enable_gqa=True), FEWER_HEADS),
    Pair("efficient", _first(EFFICIENT, None, False), attention, LONGER),
    Pair(
        "efficient-bias",
        lambda *t: EFFICIENT(*t, False)[0],
        lambda q, k, v, bias: attention(q, k, v, bias),
        (*LONGER, BIAS),
    ),
    Pair(
        "efficient-bias-causal",
        lambda *t: EFFICIENT(*t, False, 0.0, True)[0],
        lambda q, k, v, bias: attention(q, k, v, bias + TOP_LEFT),
        (*LONGER, BIAS),
    ),
    Pair("efficient-causal", _first(EFFICIENT, None, False, 0.0, True), CAUSAL, LONGER, LENGTHS),
    Pair("cudnn", _first(CUDNN, None, False), attention, SAME),
    Pair(
        "cudnn-causal",
        _first(CUDNN, None, False, 0.0, True, scale=0.3),
        lambda *t: attention(*t, is_causal=True, scale=0.3),
        SAME,
    ),
    Pair(
        "overrideable",
        _first(ATEN._scaled_dot_product_fused_attention_overrideable),
        attention,
        SAME,
    ),
    Pair(
        "flash-forward",
        _first(ATEN._flash_attention_forward, None, None, 5, 7, 0.0, False, False),
        _turned(attention),
        TURNED,
    ),
    Pair(
        "flash-forward-window",
        _first(ATEN._flash_attention_forward, None, None, 5, 7, 0.0, True, False, window_size_left=2),
        _turned(lambda q, k, v: attention(q, k, v, _from_end(q, k, 2))),
        TURNED,
    ),
    Pair(
        "efficient-forward-from-end",
        _first(ATEN._efficient_attention_forward, None, None, None, None, None, 0.0, 2),
        _turned(CAUSAL_FROM_END),
        TURNED,
    ),
]

IMAGE, KERNEL, OUT = floats(2, 4, 7, 6), floats(6, 2, 3, 3, seed=1), floats(6, seed=2)
SPOTS = floats(2, 3, 4, 2, seed=5)
CONVOLUTION = ([1, 1], [2, 1], [1, 1], 2, False, False, True)
convolution = functional.conv2d


def _convolve(image: torch.Tensor, kernel: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    return convolution(image, kernel, bias, (2, 1), (1, 1), (1, 1), 2)


def _depthwise(image: torch.Tensor, kernel: torch.Tensor) -> torch.Tensor:
    return convolution(image, kernel, None, (1, 1), (1, 1), (1, 1), 4)


TRANSPOSED = floats(4, 3, 3, 3, seed=1)

IMAGES = [
    Pair("convolution", lambda *t: ATEN.cudnn_convolution(*t, *CONVOLUTION), _convolve, (IMAGE, KERNEL)),
    Pair(
        "miopen-convolution",
        lambda *t: ATEN.miopen_convolution(*t, *CONVOLUTION[:-1]),
        _convolve,
        (IMAGE, KERNEL, OUT),
    ),
    Pair(
        "convolution-relu",
        lambda *t: ATEN.cudnn_convolution_relu(*t, [2, 1], [1, 1], [1, 1], 2),
        lambda *t: _convolve(*t).relu(),
        (IMAGE, KERNEL, OUT),
    ),
    Pair(
        "convolution-add-relu",
        lambda *t: ATEN.cudnn_convolution_add_relu(*t, 0.5, None, [2, 1], [1, 1], [1, 1], 2),
        lambda image, kernel, z: (_convolve(image, kernel) + 0.5 * z).relu(),
        (IMAGE, KERNEL, floats(2, 6, 4, 6, seed=3)),
    ),
    Pair(
        "convolution-transpose",
        lambda *t: ATEN.cudnn_convolution_transpose(
            *t, [1, 1], [1, 0], [2, 2], [1, 1], 2, False, False, True
        ),
        lambda *t: functional.conv_transpose2d(*t, None, 2, 1, (1, 0), 2),
        (IMAGE, TRANSPOSED),
    ),
    Pair(
        "depthwise",
        lambda *t: ATEN._conv_depthwise2d(*t, [3, 3], None, [1, 1], [1, 1], [1, 1]),
        _depthwise,
        (IMAGE, floats(8, 1, 3, 3, seed=1)),
    ),
    Pair(
        "batch-norm",
        lambda *t: ATEN.cudnn_batch_norm(*t, False, 0.1, 1e-5)[0],
        lambda x, *t: functional.batch_norm(x, *t[2:], *t[:2]),
        (IMAGE, floats(4), floats(4, seed=1), floats(4, seed=2), floats(4, seed=3).abs()),
    ),
    Pair(
        "batch-norm-of-batches",
        lambda *t: ATEN.miopen_batch_norm(*t, None, None, True, 0.1, 1e-5)[0],
        lambda x, *t: functional.batch_norm(x, None, None, *t, training=True),
        (IMAGE, floats(4), floats(4, seed=1)),
    ),
    Pair(
        "grid-sampler",
        ATEN.cudnn_grid_sampler,
        lambda *t: functional.grid_sample(*t, align_corners=True),
        (IMAGE, SPOTS),
    ),
    Pair(
        "affine-grid",
        lambda theta: ATEN.cudnn_affine_grid_generator(theta, 2, 1, 3, 4),
        lambda theta: functional.affine_grid(theta, (2, 1, 3, 4), align_corners=True),
        (floats(2, 2, 3),),
    ),
]

STEPS = floats(3, 2, 4)
STATES = floats(2, 2, 5, seed=7), floats(2, 2, 5, seed=8)


def _layer_pair(mode: int, cls: type[nn.RNNBase], name: str, **options: Any) -> Pair:
    """A layer of two directions by its number in cuDNN, against its module."""
    layer = cls(4, 5, bidirectional=True, **options).eval()
    settings = (mode, 5, 0, 1, layer.batch_first, 0.0, False, True, [], None)
    count = len(layer._flat_weights) // 2

    def on_gpu(x: torch.Tensor, *states: torch.Tensor) -> list[torch.Tensor]:
        weights = list(layer.parameters())
        cell_state = states[1] if len(states) > 1 else None
        results = ATEN._cudnn_rnn(x, weights, count, None, states[0], cell_state, *settings)
        return list(results[: 1 + len(states)])

    def on_cpu(x: torch.Tensor, *states: torch.Tensor) -> list[torch.Tensor]:
        output, ends = layer(x, states if len(states) > 1 else states[0])
        return [output, *(ends if len(states) > 1 else [ends])]

    x = STEPS.transpose(0, 1) if layer.batch_first else STEPS
    return Pair(name, on_gpu, on_cpu, (x, *STATES[: 2 if mode == 2 else 1]))


def _cell_pair(name: str, cell: nn.RNNCellBase, inputs: int) -> Pair:
    operator = getattr(ATEN, f"_thnn_fused_{name}_cell")

    def on_gpu(x: torch.Tensor, *states: torch.Tensor) -> Any:
        gates = x @ cell.weight_ih.t(), states[0] @ cell.weight_hh.t()
        return operator(*gates, states[-1], cell.bias_ih, cell.bias_hh)[:inputs]

    def on_cpu(x: torch.Tensor, *states: torch.Tensor) -> Any:
        result = cell(x, states if inputs > 1 else states[0])
        return tuple(result) if inputs > 1 else (result,)

    return Pair(f"{name}-cell", on_gpu, on_cpu, (STEPS[0], *(state[0] for state in STATES[:inputs])))


torch.manual_seed(0)
RECURRENT = [
    _layer_pair(2, nn.LSTM, "lstm"),
    _layer_pair(2, nn.LSTM, "lstm-without-biases", bias=False, batch_first=True),
    _layer_pair(3, nn.GRU, "gru"),
    _layer_pair(1, nn.RNN, "rnn-tanh"),
    _layer_pair(0, nn.RNN, "rnn-relu", nonlinearity="relu"),
    _cell_pair("lstm", nn.LSTMCell(4, 5), 2),
    _cell_pair("gru", nn.GRUCell(4, 5), 1),
]
PAIRS = [*ATTENTION, *IMAGES, *RECURRENT]


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair.name)
def test_computes_what_the_operator_of_every_device_does(pair: Pair) -> None:
    dynamic = None if pair.dynamic is None else (pair.dynamic,)
    program = opsetta.export(lambda *t: pair.on_gpu(*t), pair.inputs, dynamic_shapes=dynamic)
    with torch.no_grad():
        expected = pair.on_cpu(*pair.inputs)
    for opset in BASE:
        with named(opset):
            results = program.lower(opset=opset)(*pair.inputs)
            torch.testing.assert_close(results, expected, rtol=1e-4, atol=1e-5)


ENDS = torch.tensor([0, 2, 5], dtype=torch.int32)


@pytest.mark.parametrize(
    ("function", "inputs", "message"),
    [
        (lambda *t: FLASH(*t)[1], SAME, "and the model uses"),
        (
            lambda q, k, v, ends: ATEN._flash_attention_forward(q, k, v, ends, ends, 3, 3, 0.0, False, False)[
                0
            ],
            (*(floats(5, 4, 8, seed=seed) for seed in range(3)), ENDS),
            "its argument cum_seq_q is not supported",
        ),
        (
            lambda q, k, v, bias: EFFICIENT(q, k, v, bias, True)[1],
            (*LONGER, BIAS),
            "and the model uses",
        ),
    ],
    ids=["sums-of-exponentials", "several-lengths", "sums-beside-a-bias"],
)
def test_refuses_what_only_the_kernels_have(
    function: Callable[..., Any], inputs: tuple[Any, ...], message: str
) -> None:
    with pytest.raises(opsetta.UnsupportedOperatorsError, match=message):
        opsetta.export(function, inputs)


@pytest.mark.filterwarnings("ignore:the model is exported in training mode")
@pytest.mark.parametrize("name", ["cudnn_batch_norm", "miopen_batch_norm"])
def test_updates_running_statistics_in_training(name: str) -> None:
    norm = nn.BatchNorm2d(4, momentum=0.3)

    class OnGpu(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = norm

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            state = norm.weight, norm.bias, norm.running_mean, norm.running_var
            return getattr(ATEN, name)(x, *state, True, norm.momentum, norm.eps)[0]

    program = opsetta.export(OnGpu().train(), (IMAGE,), opset=13, mutations="outputs")
    session = onnxruntime.InferenceSession(
        program.model_proto.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    results = session.run(None, {"x": IMAGE.numpy()})
    expected = norm(IMAGE), norm.running_mean, norm.running_var
    for result, tensor in zip(results, expected, strict=True):
        torch.testing.assert_close(torch.from_numpy(result), tensor.detach(), rtol=1e-4, atol=1e-5)
