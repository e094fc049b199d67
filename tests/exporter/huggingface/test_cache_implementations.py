"""Decoders whose cache keeps a window, or has a fixed number of positions: sizes and greedy tokens."""

import numpy as np
import onnx
import pytest
import torch
import transformers

import opsetta
from opsetta.exporter.command_line import cli

from ...models.generators import GENERATORS, VOCABULARY, write_folder, write_generator

LENGTH = 40


@pytest.fixture
def folder(tmp_path):
    """Makes a model with a window of 8 tokens, and its folder."""

    def write(name):
        architecture, make_config = GENERATORS[name]
        config = make_config()
        if getattr(config, "sliding_window", None):
            config.sliding_window = 8
        return write_folder(architecture, config, tmp_path / "model"), tmp_path / "model"

    return write


def check_tokens(model, exported, lengths=(5, 13)):
    """Compare 20 greedy tokens of two prompts, of which the first one has padding."""
    generator = opsetta.TextGenerator(exported)
    torch.manual_seed(1)
    for length in lengths:
        mask = torch.ones(2, length, dtype=torch.int64)
        mask[0, : length // 2] = 0
        tokens = torch.where(mask.bool(), torch.randint(3, VOCABULARY, mask.shape), 0)
        expected = model.generate(tokens, attention_mask=mask, max_new_tokens=20, do_sample=False)
        result = generator.generate(tokens, mask, max_new_tokens=20)
        np.testing.assert_array_equal(result, expected)


def shapes_of(path):
    """The sizes of inputs and outputs by name."""
    graph = onnx.load(path).graph
    return {
        value.name: [size.dim_param or size.dim_value for size in value.type.tensor_type.shape.dim]
        for value in [*graph.input, *graph.output]
    }


@pytest.mark.parametrize(
    ("name", "opset"),
    [
        ("mistral", 17),
        pytest.param("mistral", 7, marks=pytest.mark.sweep),
        pytest.param("mistral", 28, marks=pytest.mark.sweep),
        pytest.param("gemma2", 13, marks=pytest.mark.sweep),
        pytest.param("gemma3", 23, marks=pytest.mark.sweep),
        pytest.param("gpt-oss", 18, marks=pytest.mark.sweep),
    ],
)
def test_sliding_layers_keep_the_window(name, opset, folder, tmp_path):
    model, source = folder(name)
    written = opsetta.export_huggingface(
        source, tmp_path / "out", opset=opset, cache_implementation="dynamic"
    )
    shapes = shapes_of(written.graphs[0].path)
    assert shapes["past_key_values.0.key"] == ["batch_size", 2, "past_window_length", 8]
    check_tokens(model, tmp_path / "out")
    # What one step returns is what the next one reads: never more than the window less one.
    session = opsetta.load(written.graphs[0].path)
    past = {n: np.zeros((1, 2, 7, 8), np.float32) for n in shapes if n.startswith("past_key_values.")}
    ones = np.ones((1, 13), np.int64)
    feed = {"input_ids": ones[:, :6] * 5, "attention_mask": ones, "position_ids": ones[:, :6].cumsum(1) + 6}
    results = dict(zip(session.output_names, session.run({**feed, **past}), strict=True))
    assert results["present.0.key"].shape == (1, 2, 7, 8)


@pytest.mark.parametrize(
    ("name", "opset"),
    [
        ("qwen3", 24),
        pytest.param("gpt2", 7, marks=pytest.mark.sweep),
        pytest.param("mistral", 13, marks=pytest.mark.sweep),
        pytest.param("gemma3", 28, marks=pytest.mark.sweep),
    ],
)
def test_static_caches_of_any_call_give_the_tokens(name, opset, folder, tmp_path):
    model, source = folder(name)
    written = opsetta.export_huggingface(
        source, tmp_path / "out", opset=opset, cache_implementation="static", max_cache_len=LENGTH
    )
    operators = {node.op_type for node in onnx.load(written.graphs[0].path).graph.node}
    assert ("TensorScatter" in operators) == (opset >= 24)
    check_tokens(model, tmp_path / "out")
    with pytest.raises(opsetta.UsageError, match="need 44 positions, and the cache of the file has 40"):
        opsetta.TextGenerator(tmp_path / "out").generate([[5, 6, 7]], max_new_tokens=42)


def test_fixed_sizes_leave_no_dynamic_dimension(tmp_path):
    model = write_generator("llama", tmp_path / "model")
    arguments = ["--hf", tmp_path / "model", "-o", tmp_path / "out", "--opset", "13", "--verify"]
    arguments += ["--cache-implementation", "static", "--max-cache-len", LENGTH]
    arguments += ["--batch-size", "2", "--sequence-length", "4"]
    with pytest.raises(SystemExit) as caught:
        cli.main(["export", *map(str, arguments)])
    assert not caught.value.code
    shapes = shapes_of(tmp_path / "out" / "model.onnx")
    assert all(isinstance(size, int) and size > 0 for shape in shapes.values() for size in shape)
    assert shapes["cache_position"] == [4]
    assert shapes["past_key_values.0.key"] == shapes["present.0.key"] == [2, 2, LENGTH, 8]
    check_tokens(model, tmp_path / "out", (3, 5, 13))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"cache_implementation": "sliding"}, "must be one of dynamic_full, dynamic, static, not 'sliding'"),
        ({"cache_implementation": "static"}, "a static cache needs max_cache_len"),
        ({"max_cache_len": 8}, "max_cache_len is for static caches"),
        ({"cache_implementation": "static", "max_cache_len": 0}, "max_cache_len must be 1 or more, not 0"),
        (
            {"cache_implementation": "static", "max_cache_len": 4, "sequence_length": 4},
            "max_cache_len=4 has no room",
        ),
        (
            {"cache_implementation": "static", "max_cache_len": 8, "layout": "optimum"},
            "the layout optimum is not for caches of the type static",
        ),
        (
            {"cache_implementation": "static", "max_cache_len": 8, "task": "feature-extraction"},
            "for text-generation, not for feature-extraction",
        ),
    ],
)
def test_caches_that_do_not_fit_are_refused(arguments, message, tmp_path):
    transformers.LlamaConfig(architectures=["LlamaForCausalLM"]).save_pretrained(tmp_path)
    with pytest.raises(opsetta.UsageError, match=message):
        opsetta.export_huggingface(tmp_path, tmp_path / "out", **arguments)


@pytest.mark.parametrize(
    ("name", "sequence_length"),
    [
        ("lfm2", 8),
        *(pytest.param("lfm2", size, marks=pytest.mark.sweep) for size in (None, 1)),
        *(pytest.param(name, 8, marks=pytest.mark.sweep) for name in ("jamba", "minimax")),
    ],
)
def test_static_caches_with_states_give_the_tokens(name, sequence_length, folder, tmp_path):
    """Calls of a fixed length begin at its multiples, where the states are known."""
    model, source = folder(name)
    options = {} if sequence_length is None else {"sequence_length": sequence_length}
    opsetta.export_huggingface(
        source, tmp_path / "out", opset=13, cache_implementation="static", max_cache_len=44, **options
    )
    check_tokens(model, tmp_path / "out", (3, 16))
    if sequence_length == 8:
        with pytest.raises(opsetta.UsageError, match="need 41 positions, and the cache of the file has 40"):
            opsetta.TextGenerator(tmp_path / "out").generate([[5, 6, 7]], max_new_tokens=39)


@pytest.mark.sweep
def test_static_caches_without_positions_are_refused(tmp_path):
    write_generator("mamba2", tmp_path / "model")
    with pytest.raises(opsetta.UsageError, match=r"only states of a fixed size, such as 0\.conv_state"):
        opsetta.export_huggingface(
            tmp_path / "model", tmp_path / "out", cache_implementation="static", max_cache_len=8
        )


def test_a_window_that_only_the_cache_has_limits_what_is_read(tmp_path):
    """The masks of Moshi have no window: it reads a long prompt as a whole, and forgets with its cache."""
    sizes = {"hidden_size": 32, "num_attention_heads": 4, "ffn_dim": 32, "vocab_size": VOCABULARY}
    config = transformers.MoshiConfig(
        num_hidden_layers=2, sliding_window=8, pad_token_id=0, eos_token_id=None, **sizes
    )
    model = write_folder("MoshiForCausalLM", config, tmp_path / "model")
    opsetta.export_huggingface(tmp_path / "model", tmp_path / "out", task="text-generation", opset=13)
    check_tokens(model, tmp_path / "out")
    with pytest.raises(opsetta.UsageError, match="a static cache drops none: leave out"):
        opsetta.export_huggingface(
            tmp_path / "model",
            tmp_path / "static",
            task="text-generation",
            cache_implementation="static",
            max_cache_len=LENGTH,
        )
