"""Time and memory of exporting models whose weights stay in sparse .safetensors files.

Each model is built on the meta device, exported with `weights=` and saved with `weights="reference"`, in a
process of its own, whose largest resident memory counts, libraries and mapped pages included. Linux only
(reads /proc/self/status). The files take no room on file systems with sparse files.

    python benchmarks/stored_weights.py [--gigabytes 20] [--models stack llama] [--json]
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time

import torch
from resident_memory import Stack, status_bytes

WIDTH = 8192
_TYPES = {torch.float32: "F32", torch.bfloat16: "BF16"}


def stack(weight_bytes: int) -> tuple[torch.nn.Module, tuple]:
    with torch.device("meta"):
        model = Stack(weight_bytes, WIDTH)
    return model.eval(), (torch.randn(1, WIDTH),)


def llama(weight_bytes: int) -> tuple[torch.nn.Module, tuple]:
    """Llama 3 with 8 billion parameters in bfloat16."""
    import transformers

    configuration = transformers.LlamaConfig(
        vocab_size=128256,
        hidden_size=4096,
        intermediate_size=14336,
        num_hidden_layers=32,
        num_attention_heads=32,
        num_key_value_heads=8,
        max_position_embeddings=8192,
        tie_word_embeddings=False,
        use_cache=False,
    )
    with torch.device("meta"):
        model = transformers.LlamaForCausalLM(configuration).to(torch.bfloat16)
    return model.eval(), (torch.ones(1, 16, dtype=torch.int64),)


MODELS = {"stack": stack, "llama": llama}


def write_sparse(model: torch.nn.Module, path: str) -> int:
    """Write a .safetensors file of zeros without writing them, and return the bytes of the weights."""
    header, end = {}, 0
    for name, tensor in model.state_dict().items():
        begin, end = end, end + tensor.numel() * tensor.element_size()
        kind = _TYPES[tensor.dtype]
        header[name] = {"dtype": kind, "shape": list(tensor.shape), "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + end)
    return end


def peak_bytes() -> int:
    """The largest resident memory of this process so far."""
    return status_bytes("VmHWM")


def child(name: str, weight_bytes: int, folder: str) -> None:
    import opsetta

    model, args = MODELS[name](weight_bytes)
    size = write_sparse(model, os.path.join(folder, "model.safetensors"))
    before, start = peak_bytes(), time.perf_counter()
    program = opsetta.export(model, args, opset=18, weights=folder)
    exported = time.perf_counter()
    program.save(os.path.join(folder, "model.onnx"), weights="reference")
    result = {
        "model": name,
        "weight_bytes": size,
        "export_seconds": exported - start,
        "save_seconds": time.perf_counter() - exported,
        "peak_bytes": peak_bytes(),
        "peak_before_bytes": before,
        "written_bytes": sum(
            entry.stat().st_size for entry in os.scandir(folder) if entry.name.startswith("model.onnx")
        ),
    }
    print(json.dumps(result))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=20.0, help="of the stack")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    size = int(options.gigabytes * 1e9)
    if options.child:
        child(options.models[0], size, options.child)
        return
    results = []
    for name in options.models:
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, os.path.abspath(__file__), "--gigabytes", str(options.gigabytes)]
            command += ["--models", name, "--child", folder]
            output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            results.append(json.loads(output.splitlines()[-1]))
    if options.json:
        print(json.dumps(results))
        return
    for row in results:
        print(
            f"{row['model']}: weights {row['weight_bytes'] / 1e9:.1f} GB, "
            f"export {row['export_seconds']:.1f} s, save {row['save_seconds']:.1f} s, "
            f"peak {row['peak_bytes'] / 1e6:.0f} MB in total "
            f"({row['peak_before_bytes'] / 1e6:.0f} MB before), written {row['written_bytes'] / 1e6:.2f} MB"
        )


if __name__ == "__main__":
    main()
