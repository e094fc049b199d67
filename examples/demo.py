"""Exports real models at several opsets from one capture each, and shows how far each is from eager PyTorch.

Random weights, small sizes, real depth; nothing is downloaded. Run it with `make demo`.
"""

import pathlib
import tempfile
import time

import torch
import transformers
from rich.console import Console
from rich.table import Table

import opsetta

OPSETS = (9, 12, 17, 20, 23)


def resnet():
    config = transformers.ResNetConfig(
        depths=[2, 2, 2, 2], hidden_sizes=[64, 128, 256, 512], layer_type="basic", embedding_size=64
    )
    return transformers.ResNetForImageClassification(config), {"pixel_values": torch.randn(1, 3, 64, 64)}


def bert():
    config = transformers.BertConfig(
        hidden_size=128, num_hidden_layers=4, num_attention_heads=4, intermediate_size=512, vocab_size=1000
    )
    tokens = torch.randint(0, 1000, (2, 16))
    return transformers.BertModel(config), {"input_ids": tokens, "attention_mask": torch.ones_like(tokens)}


def llama():
    config = transformers.LlamaConfig(
        hidden_size=128,
        num_hidden_layers=4,
        num_attention_heads=8,
        num_key_value_heads=2,
        intermediate_size=256,
        vocab_size=1000,
        use_cache=False,
    )
    return transformers.LlamaForCausalLM(config), {"input_ids": torch.randint(0, 1000, (1, 16))}


MODELS = {"ResNet-18": resnet, "BERT, 4 layers": bert, "Llama, 4 layers": llama}


def export_at_all(name: str, folder: pathlib.Path, table: Table, status) -> None:
    torch.manual_seed(0)
    model, kwargs = MODELS[name]()
    model.eval()
    program = None
    for opset in OPSETS:
        status.update(f"{name} at opset {opset}")
        begin = time.perf_counter()
        if program is None:
            program = opsetta.export(model, (), kwargs, opset=opset)
        else:
            program = program.lower(opset=opset)
        seconds = time.perf_counter() - begin
        path = folder / f"model-{opset}.onnx"
        program.save(path)
        report = program.verify()
        table.add_row(
            name if opset == OPSETS[0] else "",
            str(program.model.graph.opset_imports[""]),
            str(program.model.graph.num_nodes()),
            f"{path.stat().st_size / 1e6:.1f} MB",
            f"{report.max_absolute_error:.1e}",
            f"{seconds:.2f} s",
        )
    table.add_section()


def main() -> None:
    torch.set_num_threads(1)
    console = Console()
    table = Table(title="one capture per model; the first row of each includes it")
    for column in ("model", "opset", "nodes", "file", "largest error", "time"):
        table.add_column(column, justify="left" if column == "model" else "right")
    with tempfile.TemporaryDirectory() as folder, console.status("starting") as status:
        for name in MODELS:
            export_at_all(name, pathlib.Path(folder), table, status)
    console.print(table)
    console.print("every file agrees with eager PyTorch in onnxruntime")


if __name__ == "__main__":
    main()
