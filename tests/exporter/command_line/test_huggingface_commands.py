"""`opsetta export --hf`, `opsetta generate`, and the options that quantize weights."""

import json

import numpy as np
import onnx
import PIL.Image
import pytest
import torch
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers

from opsetta.exporter.command_line import cli

from ...models.generators import VOCABULARY, write_generator

IMAGE_TOKENS = {"image_token": "<image>", "image_boundary_token": "<fake_token_around_image>"}
FACTORY = """
import torch

def layers():
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 32)).eval()
    return model, (torch.ones(2, 64),)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("folder")
    write_generator("gpt2", made / "gpt2")
    words = Tokenizer(models.WordLevel({f"w{n}": n for n in range(VOCABULARY)}, unk_token="w0"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    words.save(str(made / "gpt2" / "tokenizer.json"))
    (made / "factory.py").write_text(FACTORY)
    return made


@pytest.fixture
def run(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)

    def call(*arguments):
        with pytest.raises(SystemExit) as caught:
            cli.main(list(arguments))
        return caught.value.code or 0, capsys.readouterr()

    return call


def test_a_folder_is_exported_and_generates(run, folder):
    code, printed = run(
        *"export --hf gpt2 --task text-generation --opset 18 -o out".split(),
        *"--verify --quantize int8 --block-size 16".split(),
    )
    assert code == 0
    lines = printed.out.splitlines()
    assert lines[0] == "out: text-generation"
    assert lines[1].startswith("model.onnx: opset 18, ")
    assert "agrees with eager PyTorch: largest absolute error" in lines[2]
    assert "weights quantized (DequantizeLinear with a scale per channel)" in lines[3]
    assert "relative error of weights: 0.00" in lines[4]
    assert "of the largest number at most" in lines[4]
    assert "relative error of outputs for the example: 0.0" in lines[5]
    assert lines[6] == "copied: config.json, generation_config.json, tokenizer.json"
    assert onnx.load(folder / "out" / "model.onnx").opset_import[0].version == 18
    code, printed = run(*"generate out --max-new-tokens 3".split(), "w5 w6")
    assert code == 0
    assert len(printed.out.split()) == 5
    code, sampled = run(*"generate out --max-new-tokens 3 --sample --top-k 1 --json".split(), "w5 w6")
    assert json.loads(sampled.out)["text"] == printed.out.strip()
    code, streamed = run(*"generate out --max-new-tokens 3 --stream".split(), "w5 w6")
    assert code == 0
    assert f"w5 w6 {streamed.out}" == printed.out
    line = "generate out --max-new-tokens 3 --num-beams 3 --num-return-sequences 2 --no-early-stopping"
    code, printed = run(*line.split(), "w5 w6")
    assert [len(line.split()) for line in printed.out.splitlines()] == [5, 5]


@pytest.mark.sweep
def write_idefics(folder):
    """A random model that reads images of any size, its processor and its tokenizer of words."""
    special = [*IMAGE_TOKENS.values(), "<end_of_utterance>"]
    names = [f"w{number}" for number in range(VOCABULARY - len(special))]
    words = {name: number for number, name in enumerate([*names, *special])}
    splitter = Tokenizer(models.WordLevel(words, unk_token="w0"))
    splitter.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    processor = transformers.Idefics2Processor(
        transformers.Idefics2ImageProcessorPil(size={"shortest_edge": 16, "longest_edge": 40}),
        transformers.PreTrainedTokenizerFast(
            tokenizer_object=splitter, pad_token="w0", extra_special_tokens=IMAGE_TOKENS
        ),
        image_seq_len=3,
    )
    layer = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 4}
    tokens = {"vocab_size": VOCABULARY, "pad_token_id": 0, "eos_token_id": 2, "head_dim": 8}
    resampler = {"n_latents": 3, "depth": 1, "n_heads": 4, "head_dim": 8}
    config = transformers.Idefics2Config(
        text_config=transformers.MistralConfig(**layer, **tokens, num_key_value_heads=2),
        vision_config={"model_type": "idefics2_vision", **layer, "image_size": 32, "patch_size": 8},
        perceiver_config={
            "num_key_value_heads": 2,
            "hidden_size": 32,
            **{f"resampler_{name}": size for name, size in resampler.items()},
        },
        image_token_id=words["<image>"],
    )
    torch.manual_seed(0)
    model = transformers.Idefics2ForConditionalGeneration(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(0, 0.2)
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
    return model, processor


@pytest.mark.sweep
def test_text_is_generated_about_images_of_two_sizes(run, tmp_path):
    model, processor = write_idefics(tmp_path / "idefics")
    random = np.random.default_rng(0)
    paths = [tmp_path / "wide.png", tmp_path / "high.png"]
    for path, size in zip(paths, ((9, 30, 3), (40, 21, 3)), strict=True):
        PIL.Image.fromarray(random.integers(0, 255, size, dtype=np.uint8)).save(path)
    out, prompt = str(tmp_path / "out"), "w3 <image> w4 <image> w5"
    code, printed = run("export", "--hf", str(tmp_path / "idefics"), "--opset", "13", "-o", out)
    assert code == 0, printed.err
    pictures = [argument for path in paths for argument in ("--image", str(path))]
    code, printed = run("generate", out, prompt, *pictures, "--max-new-tokens", "8")
    assert code == 0, printed.err
    images = [PIL.Image.open(path) for path in paths]
    inputs = processor(images=images, text=[prompt], return_tensors="pt")
    # Two sizes, of which none is that of the configuration.
    assert inputs["pixel_attention_mask"].any(-1).sum(-1).tolist() == [[16, 40]]
    expected = model.generate(**inputs, max_new_tokens=8, do_sample=False)[0, inputs.input_ids.shape[1] :]
    assert printed.out.strip() == processor.decode(expected)


def test_json_of_a_folder(run):
    code, printed = run(*"export --hf gpt2 -o json --target onnxruntime --quantize int4 --json".split())
    assert code == 0
    found = json.loads(printed.out)
    assert found["task"] == "text-generation"
    assert found["graphs"][0]["quantization"]["form"] == "MatMulNBits with a scale per block"
    assert found["graphs"][0]["quantization"]["output_error"]["maximum"] > 0


def test_a_factory_and_a_file_are_quantized(run, folder):
    code, printed = run(*"export factory.py:layers -o m.onnx --opset 21 --quantize int4 --asymmetric".split())
    assert code == 0
    assert "2 weights quantized (DequantizeLinear with a scale per block): 25.0 kB" in printed.out
    assert "relative error of outputs for the example" in printed.out
    assert any(node.op_type == "DequantizeLinear" for node in onnx.load(folder / "m.onnx").graph.node)
    run(*"export factory.py:layers -o float.onnx".split())
    line = "convert float.onnx -o c.onnx --opset 12 --quantize int8 --keep-lm-head --json"
    code, printed = run(*line.split())
    assert code == 0
    found = json.loads(printed.out)["quantization"]
    assert (found["weights"], found["form"]) == (1, "Cast and Mul with a scale per block")
    assert found["output_error"] is None


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("export -o x", "or a folder with --hf FOLDER"),
        ("export factory.py:layers -o x --task text-generation", "--task: only for a Hugging Face folder"),
        (
            "export a.py:b --hf gpt2 -o x --rtol 1 --dynamic x:0=n",
            "cannot be combined with FACTORY, --dynamic, --rtol",
        ),
        ("export --hf none -o x", "there is no folder 'none'"),
        ("export --hf gpt2 -o x --block-size 32", "need --quantize"),
        ("export --hf gpt2 -o x --quantize int4 --block-size 24", "power of two"),
        ("convert none.onnx -o x.onnx --quantize int3", "'int8', 'int4' or 'q4_0'"),
        ("generate gpt2 w5 --stream --json", "--stream cannot be combined with --json"),
        ("generate gpt2 w5 --system w6", "--system needs --chat"),
        ("generate gpt2 w5 --top-k 4", "--top-k is for sampling: pass --sample, too"),
        ("generate gpt2 w5 --sample --stream --num-return-sequences 2", "--stream prints one result"),
        ("generate gpt2 w5", "there is no file 'gpt2/model.onnx'"),
    ],
)
def test_wrong_usage_is_one_line(line, message, run):
    code, printed = run(*line.split())
    assert code not in (0, None)
    assert message in str(code) + printed.err
