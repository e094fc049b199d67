"""Linear attention, the operator that the capture writes for the gated delta rule of transformers."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import opsetta
from opsetta.exporter.torch_boundary.replacements.models.linear_attention import (
    compute_gated_delta_rule,
    compute_lightning_attention,
    compute_mamba2_scan,
    compute_mlstm,
)

from ..opsets import HIGHEST

HEADS, KEY_SIZE, VALUE_SIZE = 3, 4, 5
OPSETS = (7, 9, 13, 18, 27, HIGHEST)
# One token, a part of a chunk, one chunk of 32, one more token, and several chunks.
LENGTHS = (1, 7, 32, 33, 100)


class Attention(nn.Module):
    """The operator with some of its arguments."""

    def __init__(self, has_decay: bool = True, has_rate: bool = True):
        super().__init__()
        self.has_decay = has_decay
        self.has_rate = has_rate

    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, state: Tensor, decay: Tensor, beta: Tensor
    ) -> tuple[Tensor, Tensor]:
        output, state = torch.ops.opsetta.linear_attention(
            query, key, value, state, decay if self.has_decay else None, beta if self.has_rate else None
        )
        return output, state


def make_inputs(length: int, batch: int = 2, strength: float = 2.0) -> tuple[Tensor, ...]:
    """Normalized keys, and decays of up to exp(-strength) for each token."""
    query, key = (functional.normalize(torch.randn(batch, length, HEADS, KEY_SIZE), dim=-1) for _ in range(2))
    return (
        query,
        key,
        torch.randn(batch, length, HEADS, VALUE_SIZE),
        torch.randn(batch, HEADS, KEY_SIZE, VALUE_SIZE),
        -strength * torch.rand(batch, length, HEADS),
        torch.rand(batch, length, HEADS),
    )


def export_attention(
    model: nn.Module, opset: int = 13, registry: opsetta.Registry | None = None
) -> opsetta.Program:
    tokens, state = {0: "batch", 1: "length"}, {0: "batch"}
    dynamic = (tokens, tokens, tokens, state, tokens, tokens)
    return opsetta.export(
        model.eval(), make_inputs(70), opset=opset, dynamic_shapes=dynamic, registry=registry
    )


@pytest.mark.parametrize("opset", OPSETS)
def test_any_length_agrees(opset: int) -> None:
    torch.manual_seed(0)
    program = export_attention(Attention(), opset)
    for length in LENGTHS:
        program.verify(make_inputs(length, batch=1))


@pytest.mark.filterwarnings("ignore:.*unused")
@pytest.mark.parametrize(("has_decay", "has_rate"), [(False, False), (True, False), (False, True)])
def test_rules_without_decay_or_rate(has_decay: bool, has_rate: bool) -> None:
    torch.manual_seed(0)
    program = export_attention(Attention(has_decay, has_rate))
    for length in LENGTHS:
        program.verify(make_inputs(length))


@pytest.mark.filterwarnings("ignore:.*unused")
@pytest.mark.parametrize(
    ("has_decay", "has_rate"), [(False, False), (True, False), (False, True), (True, True)]
)
def test_operator_of_onnx_agrees(has_decay: bool, has_rate: bool) -> None:
    """onnxruntime has no kernel of LinearAttention, and runs its function."""
    overlay = opsetta.default_registry.fork()

    @opsetta.onnx_symbolic("opsetta::linear_attention", opset=27, registry=overlay)
    def write_operator(g: opsetta.GraphContext, **tensors: opsetta.Value | None) -> object:
        return g.call_outputs("composed::linear_attention_operator", **tensors)

    torch.manual_seed(0)
    program = export_attention(Attention(has_decay, has_rate), HIGHEST, overlay)
    assert "LinearAttention" in {node.op_type for node in program.model.graph}
    for length in LENGTHS:
        program.verify(make_inputs(length))


def test_strong_and_total_decays_agree() -> None:
    """Sums of logarithms over a chunk are far from 0, and -inf is a decay of 0."""
    torch.manual_seed(0)
    program = export_attention(Attention())
    inputs = make_inputs(64, strength=40.0)
    program.verify(inputs)
    inputs[4][:, 5] = -torch.inf
    program.verify(inputs)


def test_repeated_keys_agree() -> None:
    """The powers of the triangular system have elements of up to 3e8 here."""
    torch.manual_seed(0)
    query, key, value, state, decay, beta = make_inputs(64)
    inputs = (query, key[:, :1].expand_as(key), value, state, torch.zeros_like(decay), torch.ones_like(beta))
    export_attention(Attention()).verify(inputs)


def test_gated_delta_rule_equals_transformers() -> None:
    """With fewer heads of keys than of values, and a state."""
    module = pytest.importorskip("transformers.models.qwen3_next.modeling_qwen3_next")
    torch.manual_seed(0)
    _, _, value, state, decay, beta = make_inputs(9)
    query, key = torch.randn(2, 2, 9, 1, KEY_SIZE)
    arguments = (query, key, value, decay, beta, state, True, True)
    expected = module.torch_recurrent_gated_delta_rule(*arguments)
    for result, reference in zip(compute_gated_delta_rule(*arguments), expected, strict=True):
        torch.testing.assert_close(result, reference)


def test_mamba2_equals_transformers() -> None:
    """With fewer groups than heads, and a state; also less than a chunk."""
    module = pytest.importorskip("transformers.models.mamba2.modeling_mamba2")
    torch.manual_seed(0)
    for length in (1, 9, 40):
        state_size, heads = 5, 4
        tokens, dt = torch.randn(2, length, heads, VALUE_SIZE), torch.randn(2, length, heads)
        key, query = torch.randn(2, 2, length, 2, state_size)
        options = {"D": torch.randn(heads), "dt_bias": torch.randn(heads), "dt_limit": (0.1, 0.9)}
        options |= {"initial_states": torch.randn(2, heads, VALUE_SIZE, state_size), "dt_softplus": True}
        arguments = (tokens, dt, -torch.rand(heads), key, query)
        expected = module.mamba2_chunk_scan(*arguments, chunk_size=16, return_final_states=True, **options)
        results = compute_mamba2_scan(*arguments, return_final_states=True, **options)
        for result, reference in zip(results, expected, strict=True):
            torch.testing.assert_close(result, reference)


@pytest.mark.parametrize("has_state", [True, False])
def test_mlstm_equals_transformers(has_state: bool) -> None:
    """With gates whose exponentials are beyond the range of float32."""
    module = pytest.importorskip("transformers.models.xlstm.modeling_xlstm")
    torch.manual_seed(0)
    for length in (1, 9, 40):
        query, key = torch.randn(2, 2, 3, length, KEY_SIZE)
        gates = 50 * torch.randn(2, 2, 3, length)
        arguments = (query, key, torch.randn(2, 3, length, VALUE_SIZE), *gates)
        names, sizes = ("c_initial", "n_initial", "m_initial"), ((KEY_SIZE, VALUE_SIZE), (KEY_SIZE,), (1,))
        states = {name: torch.randn(2, 3, *size) for name, size in zip(names, sizes, strict=True)}
        options = states if has_state else {}
        expected = module.mlstm_recurrent_sequence_native(*arguments, return_last_states=True, **options)
        torch.testing.assert_close(compute_mlstm(*arguments, **options), expected)


@pytest.mark.parametrize("has_cache", [True, False])
def test_lightning_attention_of_transformers(has_cache: bool) -> None:
    """In blocks, then token by token from the state in the cache."""
    module = pytest.importorskip("transformers.models.minimax.modeling_minimax")
    sizes = {"hidden_size": 12, "num_attention_heads": HEADS, "head_dim": KEY_SIZE, "num_hidden_layers": 2}
    config = module.MiniMaxConfig(**sizes, block_size=8, layer_types=["linear_attention", "full_attention"])
    layer = module.MiniMaxLightningAttention(config, 0).eval()
    tokens, mask = torch.randn(2, 19, 12), torch.ones(2, 19)
    mask[0, :3] = 0
    caches = [module.MiniMaxCache() if has_cache else None for _ in range(2)]
    with torch.no_grad():
        for part in (slice(13), slice(13, 19)):
            expected = layer(tokens[:, part], None, mask[:, part], caches[0])
            results = compute_lightning_attention(layer, tokens[:, part], mask[:, part], caches[1])
            for result, reference in zip(results, expected, strict=True):
                torch.testing.assert_close(result, reference)
