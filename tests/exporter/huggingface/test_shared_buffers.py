"""The layout of onnxruntime-genai: one buffer for the past and the present cache."""

import json

import numpy as np
import onnx
import pytest
import torch
import transformers

import opsetta
from opsetta.exporter.huggingface.caches.shared_buffers import supports_shared_buffer
from opsetta.exporter.torch_boundary.replacements.models.key_value_caches import group_query_attention

from ...models.generators import GENERATORS, VOCABULARY, write_folder, write_generator

BUFFER = 40


def decode_in_buffer(path, tokens, count):
    """Greedy tokens with buffers of one length for the cache, as onnxruntime-genai passes them."""
    program = opsetta.load(path)
    empty = {
        value.name: np.zeros((len(tokens), value.shape[1], BUFFER, value.shape[3]), np.float32)
        for value in program.model.graph.inputs
        if value.name.startswith("past_key_values.")
    }
    cache, new = empty, tokens
    for _ in range(count):
        total = tokens.shape[1]
        positions = np.arange(total - new.shape[1], total)[None].repeat(len(tokens), 0)
        feed = {"input_ids": new, "attention_mask": np.ones_like(tokens), "position_ids": positions}
        results = dict(zip(program.output_names, program.run({**feed, **cache}), strict=True))
        cache = {name: results[name.replace("past_key_values", "present")] for name in cache}
        assert {value.shape for value in cache.values()} == {value.shape for value in empty.values()}
        new = results["logits"][:, -1].argmax(-1)[:, None]
        tokens = np.concatenate([tokens, new], axis=1)
    return tokens


@pytest.mark.parametrize(
    ("name", "opset", "options"),
    [
        ("llama", 13, {"verify": True}),
        pytest.param("mistral", 13, {"verify": True}, marks=pytest.mark.sweep),
        pytest.param("llama", 7, {}, marks=pytest.mark.sweep),
        pytest.param("qwen3", 28, {}, marks=pytest.mark.sweep),
        pytest.param("gemma2", 21, {"verify": True}, marks=pytest.mark.sweep),
        pytest.param("phi3", 17, {}, marks=pytest.mark.sweep),
        pytest.param("gpt-oss", 18, {"verify": True}, marks=pytest.mark.sweep),
    ],
)
def test_tokens_in_one_buffer_are_those_of_transformers(name, opset, options, tmp_path):
    model = write_generator(name, tmp_path / "model")
    written = opsetta.export_huggingface(
        tmp_path / "model", tmp_path / "out", opset=opset, layout="genai", **options
    )
    settings = json.loads((tmp_path / "out" / "genai_config.json").read_text())
    assert settings["search"]["past_present_share_buffer"]
    torch.manual_seed(1)
    tokens = torch.randint(3, VOCABULARY, (2, 13))
    ones = torch.ones_like(tokens)
    expected = model.generate(
        tokens, attention_mask=ones, max_new_tokens=20, do_sample=False, eos_token_id=None
    )
    result = decode_in_buffer(written.graphs[0].path, tokens.numpy(), 20)
    np.testing.assert_array_equal(result, expected)
    generator = opsetta.TextGenerator(tmp_path / "out")
    with pytest.raises(opsetta.UsageError, match="the layout genai take prompts of one length"):
        generator.generate([[0, 5], [5, 6]], [[0, 1], [1, 1]])


@pytest.mark.sweep
def test_attention_of_another_form_has_two_buffers(tmp_path):
    architecture, make_config = GENERATORS["llama"]
    config = make_config()
    config.head_dim = 12
    write_folder(architecture, config, tmp_path / "model")
    written = opsetta.export_huggingface(tmp_path / "model", tmp_path / "out", opset=17, layout="genai")
    assert all(node.op_type != "GroupQueryAttention" for node in onnx.load(written.graphs[0].path).graph.node)
    settings = json.loads((tmp_path / "out" / "genai_config.json").read_text())
    assert not settings["search"]["past_present_share_buffer"]


@pytest.mark.parametrize(
    ("name", "changes", "is_supported"),
    [
        ("gemma2", {}, True),
        # The kernel takes heads of multiples of 8.
        ("llama", {"head_dim": 12}, False),
        ("opt", {}, True),
        # There is no attention, and no cache of keys.
        ("mamba", {}, False),
    ],
)
def test_the_attention_of_a_model_tells_whether_it_is_supported(name, changes, is_supported):
    architecture, make_config = GENERATORS[name]
    config = make_config()
    for key, value in changes.items():
        setattr(config, key, value)
    model = getattr(transformers, architecture)(config).eval()
    implementation = model.config._attn_implementation
    assert supports_shared_buffer(model, torch.tensor([[3, 4, 5]])) == is_supported
    assert model.config._attn_implementation == implementation


@pytest.mark.parametrize("window", [-1, 3])
@pytest.mark.parametrize("sinks", [False, True])
@pytest.mark.parametrize("softcap", [0.0, 2.0])
def test_the_operator_computes_what_onnxruntime_does(window, sinks, softcap):
    class Attention(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.sinks = torch.nn.Parameter(torch.tensor([0.5, -1.0, 2.0, 0.0])) if sinks else None

        def forward(self, query, key, value, past_key, past_value, mask):
            arguments = (query, key, value, past_key, past_value, mask, self.sinks, 0.3, window, softcap)
            return group_query_attention(*arguments)

    torch.manual_seed(0)
    new, past = torch.randn(1, 2, 3, 8), torch.randn(1, 2, 5, 8)
    arguments = (torch.randn(1, 4, 3, 8), new, new * 2, past, past - 1, torch.ones(1, 8, dtype=torch.int64))
    opsetta.export(Attention().eval(), arguments, opset=13).verify()
