"""Layouts of exported folders: names, types and settings for the libraries that read them."""

import json

import numpy as np
import onnx
import onnx_ir as ir
import pytest
import torch
import transformers

import opsetta
from opsetta.exporter.huggingface.layouts.merged_decoders import merge_decoders
from opsetta.exporter.huggingface.layouts.table import LAYOUTS
from opsetta.exporter.onnx_model import OnnxModel

from ...models.generators import write_folder, write_generator

LAYER = {"hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 1, "intermediate_size": 64}
SPECIAL = {"pad_token_id": 0, "eos_token_id": 2, "bos_token_id": 1}


def element_types(path):
    graph = onnx.load(path).graph
    return {value.name: value.type.tensor_type.elem_type for value in [*graph.input, *graph.output]}


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    folder = tmp_path_factory.mktemp("llama")
    config = transformers.LlamaConfig(vocab_size=50, num_key_value_heads=2, **LAYER, **SPECIAL)
    write_folder("LlamaForCausalLM", config, folder)
    return folder


FIRST = """<ir_version: 9, opset_import: ["" : 13]>
first (float[n, 2] hidden, float[n, 2] mask) =>
    (float[n, 2] logits, float[n, 2, m, 2] key)
<float[2, 2] weight = {1, 2, 3, 4}, float[2, 2] own = {1, 1, 1, 1}, int64[4] shape = {-1, 2, 1, 2}>
{
    product = MatMul(hidden, weight)
    sum = Add(product, mask)
    logits = MatMul(sum, own)
    twice = Concat<axis = 1>(hidden, hidden)
    key = Reshape(twice, shape)
}"""
LATER = """<ir_version: 9, opset_import: ["" : 13]>
later (float[n, 2] mask, float[n, 2, 5, 2] past) => (float[n, 2] logits)
<float[2, 2] weight = {1, 2, 3, 4}, float[2, 2] own = {2, 2, 2, 2}>
{
    sum = ReduceSum<keepdims = 0>(past)
    product = MatMul(mask, weight)
    scaled = MatMul(product, own)
    logits = Mul(scaled, sum)
}"""
CACHE = {"key": "present.0.encoder.key", "past": "past_key_values.0.encoder.key"}


def decoder(text):
    """A decoder with the names of a cache, which the text format does not allow."""
    model = ir.from_proto(onnx.parser.parse_model(text))
    for value in [*model.graph.inputs, *model.graph.outputs]:
        value.name = CACHE.get(value.name, value.name)
    return model


def test_decoders_share_equal_weights():
    models = [decoder(FIRST), decoder(LATER)]
    merged = OnnxModel(merge_decoders(*models))
    onnx.checker.check_model(merged.model_proto, full_check=True)
    assert list(merged.model.graph.initializers) == ["weight", "own", "later_steps/own"]
    assert merged.input_names == ["hidden", "mask", "past_key_values.0.encoder.key", "use_cache_branch"]
    hidden, mask, past = np.ones((1, 2)), np.full((1, 2), 2.0), np.ones((1, 2, 5, 2))
    empty = past[:, :, :0]
    for uses_cache, cache, key_shape in ((False, empty, (1, 2, 1, 2)), (True, past, (0, 2, 1, 2))):
        arrays = [array.astype(np.float32) for array in (hidden, mask, cache)]
        [model, feed] = [models[1], arrays[1:]] if uses_cache else [models[0], arrays[:2]]
        expected = OnnxModel(model)(*feed)
        logits, keys = merged(*arrays, np.array([uses_cache]))
        assert np.array_equal(logits, expected if uses_cache else expected[0])
        assert keys.shape == key_shape


@pytest.mark.sweep
def test_one_file_has_both_decoders(tmp_path):
    write_generator("bart", tmp_path / "bart")
    options = {"opset": 13, "verify": True}
    separate = opsetta.export_huggingface(tmp_path / "bart", tmp_path / "separate", **options)
    merged = opsetta.export_huggingface(
        tmp_path / "bart", tmp_path / "merged", layout="optimum", quantize="int8", **options
    )
    assert [graph.path.name for graph in merged.graphs] == ["encoder_model.onnx", "decoder_model_merged.onnx"]
    assert merged.graphs[1].inputs[-1] == "use_cache_branch"
    assert merged.graphs[1].outputs == separate.graphs[1].outputs
    assert merged.graphs[1].quantization is not None
    onnx.checker.check_model(onnx.load(merged.graphs[1].path), full_check=True)
    # The weights of cross-attention are in both decoders, those of its keys and values in the first one.
    assert merged.graphs[1].weight_bytes < 0.5 * sum(graph.weight_bytes for graph in separate.graphs[1:])


@pytest.mark.sweep
@pytest.mark.parametrize("name", ["t5", "whisper"])
def test_merged_decoders_generate_the_same_tokens(name, tmp_path):
    write_generator(name, tmp_path / name)
    generator = torch.Generator().manual_seed(3)
    if name == "whisper":
        inputs = {"input_features": torch.randn(2, 20, 100, generator=generator).numpy()}
    else:
        mask = torch.ones(2, 7, dtype=torch.int64)
        mask[0, -3:] = 0
        tokens = torch.randint(3, 90, (2, 7), generator=generator)
        inputs = {"input_ids": tokens.numpy(), "attention_mask": mask.numpy()}
    results = []
    for layout in (None, "optimum"):
        opsetta.export_huggingface(tmp_path / name, tmp_path / str(layout), layout=layout, opset=17)
        results.append(opsetta.TextGenerator(tmp_path / str(layout)).generate(**inputs, max_new_tokens=8))
    assert np.array_equal(*results)


@pytest.mark.sweep
def test_transformers_js_has_a_file_of_each_type(llama, tmp_path):
    written = opsetta.export_huggingface(
        llama, tmp_path, layout="transformers.js", opset=17, external_data=True
    )
    suffixes = ("", "_fp16", "_quantized", "_q4", "_q4f16")
    names = [f"model{suffix}.onnx" for suffix in suffixes]
    assert [graph.path.relative_to(tmp_path).as_posix() for graph in written.graphs] == [
        f"onnx/{name}" for name in names
    ]
    assert {path.name for path in (tmp_path / "onnx").iterdir()} == {
        *names,
        *(f"{name}_data" for name in names),
    }
    types = element_types(tmp_path / "onnx" / "model_q4f16.onnx")
    assert types["logits"] == onnx.TensorProto.FLOAT
    assert types["present.0.key"] == types["past_key_values.0.key"] == onnx.TensorProto.FLOAT16
    settings = json.loads((tmp_path / "config.json").read_text())
    assert settings["model_type"] == "llama"
    assert settings["transformers.js_config"] == {
        "use_external_data_format": dict.fromkeys(names, 1),
        "kv_cache_dtype": {"fp16": "float16", "q4f16": "float16"},
    }


def test_a_model_without_products_has_all_files(tmp_path):
    config = transformers.ResNetConfig(embedding_size=8, hidden_sizes=[8], depths=[1], layer_type="basic")
    write_folder("ResNetModel", config, tmp_path / "folder")
    written = opsetta.export_huggingface(tmp_path / "folder", tmp_path / "out", layout="transformers.js")
    assert [graph.quantization for graph in written.graphs] == [None] * 5
    half = onnx.load(written.graphs[1].path)
    assert element_types(written.graphs[1].path)["pixel_values"] == onnx.TensorProto.FLOAT
    assert onnx.TensorProto.FLOAT16 in {tensor.data_type for tensor in half.graph.initializer}


def test_genai_reads_the_names_and_sizes(llama, tmp_path):
    written = opsetta.export_huggingface(llama, tmp_path, layout="genai")
    assert written.copied == ["config.json", "genai_config.json", "generation_config.json"]
    model = json.loads((tmp_path / "genai_config.json").read_text())["model"]
    decoder = model["decoder"]
    assert (decoder["num_key_value_heads"], decoder["head_size"], decoder["num_hidden_layers"]) == (2, 8, 1)
    assert (model["eos_token_id"], model["pad_token_id"], model["bos_token_id"]) == ([2], 0, 1)
    names = [name.replace("%d", "0") for name in decoder["inputs"].values()]
    assert names == written.graphs[0].inputs
    assert [name.replace("%d", "0") for name in decoder["outputs"].values()] == written.graphs[0].outputs


def test_sentence_transformers_keeps_the_modules(tmp_path):
    config = transformers.BertConfig(vocab_size=50, **LAYER)
    write_folder("BertModel", config, tmp_path / "bert")
    modules = [{"path": "", "type": "sentence_transformers.models.Transformer"}]
    (tmp_path / "bert" / "modules.json").write_text(json.dumps(modules))
    written = opsetta.export_huggingface(tmp_path / "bert", tmp_path / "out", layout="sentence-transformers")
    assert written.graphs[0].path == tmp_path / "out" / "onnx" / "model.onnx"
    assert written.task == "feature-extraction"
    assert written.copied == ["config.json", "modules.json"]


@pytest.mark.sweep
def test_transformers_loads_its_own_layout(llama, tmp_path):
    exporters = pytest.importorskip("transformers.exporters", reason="this release has no exporters")
    written = opsetta.export_huggingface(llama, tmp_path, layout="transformers", opset=13)
    assert [graph.opset for graph in written.graphs] == [13, 13]
    loaded = exporters.ExportedModel.from_pretrained(tmp_path)
    assert sorted(loaded.components) == ["decode", "prefill"]
    assert {graph.path for graph in written.graphs} == {tmp_path / "decode.onnx", tmp_path / "prefill.onnx"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"layout": "optimun"}, "did you mean 'optimum'"),
        ({"layout": "genai", "task": "feature-extraction"}, "is for text-generation, not for feature"),
        ({"layout": "transformers.js", "dtype": "fp16"}, "leave out dtype and quantize"),
        ({"layout": "optimum", "weights": "reference"}, "copy the weights"),
        ({"layout": "transformers", "verify": True}, "verify is not possible"),
        ({"layout": "transformers", "quantize": "int8"}, "quantize is not possible"),
    ],
)
def test_what_a_layout_does_not_support_is_refused(options, message, llama, tmp_path):
    with pytest.raises(opsetta.UsageError, match=message):
        opsetta.export_huggingface(llama, tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


@pytest.mark.sweep
def test_genai_refuses_other_caches(tmp_path):
    write_generator("mamba", tmp_path / "mamba")
    with pytest.raises(opsetta.UsageError, match="the cache has past_key_values.0.conv_state"):
        opsetta.export_huggingface(tmp_path / "mamba", tmp_path / "out", layout="genai")
    assert not (tmp_path / "out").exists()


@pytest.mark.sweep
def test_states_are_clamped_in_float16(tmp_path):
    """BART clamps its states in float16 if some are infinite."""
    config = transformers.BartConfig(
        vocab_size=50,
        d_model=16,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=16,
        decoder_ffn_dim=16,
        max_position_embeddings=32,
        **SPECIAL,
    )
    write_folder("BartForConditionalGeneration", config, tmp_path / "bart")
    written = opsetta.export_huggingface(tmp_path / "bart", tmp_path / "out", dtype="float16", verify=True)
    assert written.graphs[0].report.max_absolute_error < 0.01
    operators = {node.op_type for node in onnx.load(written.graphs[0].path).graph.node}
    assert "Clip" in operators or {"Min", "Max"} <= operators
    assert torch.isfinite(torch.ones(1, dtype=torch.float16)).all()


def test_names_of_layouts():
    assert list(LAYOUTS) == ["optimum", "transformers", "transformers.js", "genai", "sentence-transformers"]
