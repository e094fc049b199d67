"""Folders whose weights are integers: GPTQ, AWQ and compressed-tensors."""

import functools
import json
import re

import numpy as np
import onnx
import onnx_ir as ir
import pytest
import safetensors.torch
import torch
import transformers

import opsetta
from opsetta.exporter.huggingface.quantized.formats import FORMATS, LayerSettings

from ...models.generators import GENERATORS, VOCABULARY
from ...models.packed_checkpoints import (
    awq,
    awq_gemv,
    bytes_of_integers,
    compressed,
    gptq,
    random_layer,
    write_packed,
)

GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 16}
AWQ = {"quant_method": "awq", "bits": 4, "group_size": 16, "version": "gemm"}
SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_attention_heads": 4,
    "num_hidden_layers": 1,
    "pad_token_id": 0,
}
# The first word of the second text is padding.
TOKENS = np.array([[9, 8, 7, 6], [0, 5, 6, 7]])


def compressed_config(format_name="pack-quantized", **group):
    weights = {"num_bits": 4, "type": "int", "group_size": 16}
    groups = {"group_0": {"targets": ["Linear"], "weights": weights, **group}}
    return {"quant_method": "compressed-tensors", "format": format_name, "config_groups": groups}


@pytest.mark.parametrize(
    ("method", "pack", "bits", "group", "options"),
    [
        (("gptq", "gptq"), gptq, 4, 16, {}),
        (("gptq", "gptq"), gptq, 4, 16, {"order": True}),
        (("gptq", "gptq"), gptq, 8, 48, {}),
        (("gptq", "gptq"), gptq, 3, 32, {"symmetric": True}),
        (("gptq", "gptq"), gptq, 3, 32, {}),
        # The last group has 16 columns.
        (("gptq", "gptq_v2"), functools.partial(gptq, less=0), 2, 32, {}),
        (("awq", "gemm"), awq, 4, 48, {}),
        (("awq", "gemv"), awq_gemv, 4, 16, {}),
        (("compressed-tensors", "pack-quantized"), compressed, 4, 16, {"symmetric": True}),
        (("compressed-tensors", "pack-quantized"), compressed, 5, 24, {"order": True}),
        (("compressed-tensors", "int-quantized"), bytes_of_integers, 8, 48, {}),
    ],
)
def test_layers_are_unpacked(method, pack, bits, group, options):
    layer = random_layer(24 if bits != 3 else 32, 96 if bits == 3 else 48, bits, group, **options)
    tensors = {name: ir.Tensor(tensor.numpy()) for name, tensor in pack(layer).items()}
    for columns in (None, layer.integers.shape[1]):
        matrix = FORMATS[method].read(tensors, LayerSettings((bits,), group), columns)
        np.testing.assert_array_equal(matrix.dequantize(), layer.weight)
        assert (matrix.zeros is None) == options.get("symmetric", False)


def llama(**others):
    torch.manual_seed(0)
    config = transformers.LlamaConfig(**{**SIZES, **others})
    return transformers.LlamaForCausalLM(config).eval()


def check_tokens(model, folder):
    """Compare 12 greedy tokens of a batch with those of the model."""
    mask = (TOKENS != 0).astype(np.int64)
    tokens = opsetta.TextGenerator(folder).generate(TOKENS, mask, max_new_tokens=12)
    expected = model.generate(
        torch.from_numpy(TOKENS), attention_mask=torch.from_numpy(mask), max_new_tokens=12, do_sample=False
    )
    np.testing.assert_array_equal(tokens, expected)


def stored_types(path):
    graph = onnx.load(path).graph
    operators = {node.op_type for node in graph.node}
    types = {onnx.TensorProto.DataType.Name(tensor.data_type) for tensor in graph.initializer}
    return operators, types


@pytest.mark.parametrize(
    ("method", "pack", "options", "opset", "target", "operator", "dtype"),
    [
        (GPTQ, gptq, {"order": True}, 21, None, "DequantizeLinear", "INT4"),
        (AWQ, awq, {}, 17, "onnxruntime", "MatMulNBits", "UINT8"),
        *(
            pytest.param(*case, marks=pytest.mark.sweep)
            for case in (
                (GPTQ, gptq, {}, 13, None, "DequantizeLinear", "INT8"),
                (GPTQ, gptq, {"order": True}, 7, None, "MatMul", "FLOAT"),
                (compressed_config(), compressed, {"symmetric": True}, 24, None, "DequantizeLinear", "INT4"),
            )
        ),
    ],
)
def test_weights_stay_integers(method, pack, options, opset, target, operator, dtype, tmp_path):
    model = llama()
    write_packed(model, tmp_path, method, pack, **options)
    written = opsetta.export_huggingface(tmp_path, tmp_path / "out", opset=opset, target=target)
    assert not written.weights_loaded
    operators, types = stored_types(written.graphs[0].path)
    assert operator in operators
    assert dtype in types
    check_tokens(model, tmp_path / "out")


@pytest.mark.sweep
def test_gpt2_and_half_precision(tmp_path):
    """The linear layers of GPT-2 are stored transposed, and its scales are those of the file."""
    torch.manual_seed(0)
    config = transformers.GPT2Config(vocab_size=VOCABULARY, n_embd=32, n_layer=1, n_head=4, pad_token_id=0)
    model = transformers.GPT2LMHeadModel(config).eval()
    write_packed(model, tmp_path, {**GPTQ, "bits": 8}, gptq, bits=8)
    [graph] = opsetta.export_huggingface(
        tmp_path, tmp_path / "out", opset=21, dtype="float16", verify=True
    ).graphs
    operators, types = stored_types(graph.path)
    assert "DequantizeLinear" in operators
    assert {"INT8", "FLOAT16"} <= types


@pytest.mark.sweep
def test_activations_of_awq_and_its_own_settings(tmp_path):
    """An activation may be divided by constants; older releases have a file of their own for the method."""
    torch.manual_seed(0)
    sizes = {name: SIZES[name] for name in SIZES if name != "intermediate_size"}
    model = transformers.FalconForCausalLM(transformers.FalconConfig(**sizes)).eval()
    write_packed(model, tmp_path, AWQ, awq)
    config = json.loads((tmp_path / "config.json").read_text())
    del config["quantization_config"]
    (tmp_path / "config.json").write_text(json.dumps(config))
    settings = {"zero_point": True, "q_group_size": 16, "w_bit": 4, "version": "GEMM"}
    (tmp_path / "quant_config.json").write_text(json.dumps(settings))
    tensors = safetensors.torch.load_file(tmp_path / "model.safetensors")
    scales = (torch.rand(128) + 0.5).half()
    tensors["transformer.h.0.mlp.act.scales"] = scales
    safetensors.torch.save_file(tensors, tmp_path / "model.safetensors")
    opsetta.export_huggingface(tmp_path, tmp_path / "out", opset=17)
    mlp = model.transformer.h[0].mlp
    mlp.act.register_forward_hook(lambda module, inputs, output: output / scales.float())
    check_tokens(model, tmp_path / "out")


def test_experts_that_transformers_joins_are_dequantized(tmp_path):
    _, config = GENERATORS["mixtral"]
    torch.manual_seed(0)
    model = transformers.MixtralForCausalLM(config()).eval()
    model.save_pretrained(tmp_path)
    plain = safetensors.torch.load_file(tmp_path / "model.safetensors")
    packed = dict(plain)
    for name in plain:
        if re.search(r"experts\.\d+\.w\d\.weight|_proj\.weight", name):
            layer = random_layer(*plain[name].shape, 4, 16, order=True)
            plain[name] = layer.weight
            del packed[name]
            packed |= {f"{name.removesuffix('weight')}{key}": item for key, item in gptq(layer).items()}
    expected = type(model).from_pretrained(None, config=model.config, state_dict=plain).eval()
    safetensors.torch.save_file(
        {name: tensor.contiguous() for name, tensor in packed.items()}, tmp_path / "model.safetensors"
    )
    entries = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**entries, "quantization_config": GPTQ}))
    assert opsetta.export_huggingface(tmp_path, tmp_path / "out", opset=17).weights_loaded
    check_tokens(expected, tmp_path / "out")


@pytest.mark.parametrize(
    ("method", "message"),
    [
        (
            {"quant_method": "bitsandbytes"},
            r"are quantized \(bitsandbytes\), and the supported methods are gptq",
        ),
        ({**AWQ, "version": "gemv_fast"}, r"are quantized \(awq gemv_fast\)"),
        (
            {"quant_method": "auto-round", "packing_format": "auto_round:llm"},
            r"\(auto-round auto_round:llm\)",
        ),
        (compressed_config("float-quantized"), r"\(compressed-tensors float-quantized\)"),
        (compressed_config(input_activations={"num_bits": 8}), "with quantized activations"),
        (compressed_config(weights={"type": "float"}), "with weights of the type float"),
        ({**compressed_config(), "kv_cache_scheme": {"num_bits": 8}}, "with a quantized cache"),
        ({**compressed_config(), "transform_config": {"config_groups": {}}}, "with transforms"),
        ({**compressed_config(), "sparsity_config": {"format": "sparse-24"}}, "with sparse weights"),
    ],
)
def test_methods_that_are_refused(method, message, tmp_path):
    transformers.LlamaConfig(**SIZES, quantization_config=method).save_pretrained(tmp_path)
    with pytest.raises(opsetta.UsageError, match=message):
        opsetta.export_huggingface(tmp_path, tmp_path / "out", task="text-generation")


def test_options_and_tensors_that_are_refused(tmp_path):
    packing = {"quant_method": "auto-round", "packing_format": "auto_round:auto_gptq", "bits": 4}
    write_packed(llama(), tmp_path, packing, gptq, skipped=("lm_head", "gate_proj", "up_proj", "down_proj"))
    for options in ({"layout": "transformers"}, {"weights": "reference"}):
        with pytest.raises(opsetta.UsageError, match="is not possible for quantized weights"):
            opsetta.export_huggingface(tmp_path, tmp_path / "out", **options)
    adapter = tmp_path / "adapter"
    adapter.mkdir()
    (adapter / "adapter_config.json").write_text('{"task_type": "CAUSAL_LM"}')
    safetensors.torch.save_file({"base_model.model.x": torch.ones(1)}, adapter / "adapter_model.safetensors")
    with pytest.raises(opsetta.UsageError, match="are quantized, so the adapter cannot be merged"):
        opsetta.export_huggingface(adapter, tmp_path / "out", base_model=tmp_path)
    tensors = safetensors.torch.load_file(tmp_path / "model.safetensors")
    name = "model.layers.0.self_attn.q_proj.qweight"
    changed = {name: torch.cat([tensors[name]] * 2)}
    safetensors.torch.save_file({**tensors, **changed}, tmp_path / "model.safetensors")
    with pytest.raises(opsetta.ModelFileError, match=r"contradict each other .*qweight \[8, 32\]"):
        opsetta.export_huggingface(tmp_path, tmp_path / "out")
