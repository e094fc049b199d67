"""opsetta as a backend of the exporters of transformers."""

import subprocess
import sys

import onnx
import pytest
import torch
import transformers

import opsetta

exporters = pytest.importorskip("transformers.exporters", reason="this release has no exporters")

from transformers.exporters.utils import decompose_for_generation  # noqa: E402

import opsetta.huggingface as backend  # noqa: E402

TEXT = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "vocab_size": 50,
    "max_position_embeddings": 64,
}


def tokens(batch, length, padding=2, left=True):
    mask = torch.ones(batch, length, dtype=torch.int64)
    mask[0, slice(padding) if left else slice(length - padding, length)] = 0
    generator = torch.Generator().manual_seed(length)
    ids = torch.randint(3, 40, (batch, length), generator=generator)
    return {"input_ids": ids, "attention_mask": mask}


def export(model, inputs, opset, method="export"):
    config = backend.OpsettaConfig(opset_version=opset, dynamic=True)
    exporter = exporters.AutoHfExporter.from_config(config)
    assert isinstance(exporter, backend.OpsettaExporter)
    return getattr(exporter, method)(model, inputs, config)


def test_an_encoder_is_exported_saved_and_loaded(tmp_path):
    torch.manual_seed(0)
    model = transformers.BertModel(transformers.BertConfig(**TEXT)).eval()
    exported = export(model, tokens(2, 7, left=False), 11)
    assert exported.program.opset == 11
    assert exported.program.input_names == ["input_ids", "attention_mask"]
    assert exported.program.output_names == ["last_hidden_state", "pooler_output"]
    inputs = tokens(3, 9, left=False)
    with torch.no_grad():
        expected = model(**inputs)
    exported.save_pretrained(tmp_path)
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"model.onnx", "model.onnx.data", "config.json", "export.json"}
    saved = onnx.load(tmp_path / "model.onnx")
    assert [(entry.domain, entry.version) for entry in saved.opset_import] == [("", 11)]
    loaded = exporters.ExportedModel.from_pretrained(tmp_path)
    for runnable in (exported, loaded):
        result = runnable(**inputs)
        assert type(result) is type(expected)
        torch.testing.assert_close(result.last_hidden_state, expected.last_hidden_state, atol=1e-5, rtol=1e-4)
        torch.testing.assert_close(result.pooler_output, expected.pooler_output, atol=1e-5, rtol=1e-4)
    with pytest.raises(opsetta.UsageError, match="the graph needs attention_mask"):
        loaded(input_ids=inputs["input_ids"])
    assert loaded.device == torch.device("cpu")
    with pytest.raises(opsetta.UsageError, match="not on 'mps'"):
        loaded.to("mps")


@pytest.fixture(autouse=True)
def registered_caches():
    """The registrations of caches as they were, since other tests export caches in this process."""
    from opsetta.exporter.torch_boundary.containers import pytree
    from opsetta.exporter.torch_boundary.containers.caches import register_caches

    yield
    for cache_class in (transformers.DynamicCache, transformers.EncoderDecoderCache):
        if cache_class in pytree.SUPPORTED_NODES:
            pytree.deregister(cache_class)
    register_caches()


def check_order_of_cache(program):
    """Each layer's keys come before its values, and each output extends the input of its name."""
    names = program.output_names[1:]
    assert [name.rsplit("layers.", 1)[1] for name in names] == ["0.keys", "0.values", "1.keys", "1.values"]
    for value in program.model.graph.outputs[1:]:
        concatenation = value.producer()
        assert concatenation is not None
        past = str(concatenation.inputs[0].name)
        assert past.removeprefix("input.") == str(value.name).removeprefix("output.")


def test_a_decoder_is_exported_for_prompts_and_steps():
    # Other exports register caches with all keys before all values.
    opsetta.export(torch.nn.Linear(3, 3).eval(), (torch.ones(2, 3),), opset=13)
    torch.manual_seed(0)
    config = transformers.LlamaConfig(**TEXT, num_key_value_heads=1)
    model = transformers.LlamaForCausalLM(config).eval()
    exported = export(model, tokens(2, 7), 13, "export_for_generation")
    assert {name: part.program.opset for name, part in exported.components.items()} == {
        "prefill": 13,
        "decode": 13,
    }
    check_order_of_cache(exported.components["decode"].program)
    # transformers leaves out masks without padding, so the example has some.
    assert exported.components["decode"].program.input_names[:2] == ["input_ids", "attention_mask"]
    inputs = tokens(3, 9)
    mask = inputs["attention_mask"]
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    cache = transformers.DynamicCache(config=model.config)
    result = exported.runners["prefill"](**inputs, position_ids=positions, past_key_values=cache)
    with torch.no_grad():
        expected = model(**inputs, position_ids=positions)
    torch.testing.assert_close(result.logits[mask == 1], expected.logits[mask == 1], atol=1e-5, rtol=1e-4)
    for step in range(2):
        token = torch.full((3, 1), 5 + step)
        mask = torch.cat([mask, torch.ones(3, 1, dtype=torch.int64)], dim=1)
        positions = positions[:, -1:] + 1
        call = {"input_ids": token, "attention_mask": mask, "position_ids": positions}
        result = exported.runners["decode"](**call, past_key_values=result.past_key_values)
        with torch.no_grad():
            expected = model(**call, past_key_values=expected.past_key_values)
        torch.testing.assert_close(result.logits, expected.logits, atol=1e-5, rtol=1e-4)


def test_an_encoder_decoder_runs_at_other_sizes():
    """The results of the encoder are an input, in a class of transformers, and there are two caches."""
    torch.manual_seed(0)
    config = transformers.T5Config(
        vocab_size=50, d_model=16, d_kv=8, d_ff=32, num_layers=1, num_heads=2, decoder_start_token_id=0
    )
    model = transformers.T5ForConditionalGeneration(config).eval()
    exported = export(model, tokens(2, 7, left=False), 15, "export_for_generation")
    other_inputs = decompose_for_generation(model, tokens(3, 9, left=False))
    for name, (part, inputs) in other_inputs.items():
        result = exported.runners[name](**inputs)
        with torch.no_grad():
            expected = part(**inputs)
        torch.testing.assert_close(result.logits, expected.logits, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"opset_version": 5}, opsetta.OpsetError, "5"),
        ({"optimize": "much"}, opsetta.UsageError, "much"),
        ({"target": "no-such-target"}, opsetta.OpsettaError, "no-such-target"),
        ({"quantizer": object()}, opsetta.UsageError, "quantize_weights"),
    ],
)
def test_settings_are_checked(settings, error, message):
    with pytest.raises(error, match=message):
        backend.OpsettaConfig(**settings)


def test_settings_survive_a_dictionary():
    config = backend.OpsettaConfig(opset_version=12, target="rknn", dynamic=True)
    assert exporters.AutoExportConfig.from_dict(config.to_dict()) == config


def test_releases_of_transformers_without_exporters_are_refused():
    """In a process of its own: the module is imported once."""
    program = """
import sys
sys.modules["transformers.exporters"] = None
import opsetta
try:
    import opsetta.huggingface
except opsetta.OpsettaError as error:
    print(error)
"""
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "needs transformers with transformers.exporters.register_backend" in result.stdout
    assert "pip install -U transformers" in result.stdout
