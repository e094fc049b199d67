"""Latency, session creation and node counts of opsetta's files beside torch.onnx's, in one run.

Writes each model at each opset with every level of optimization and with both exporters of torch.onnx (its
newer one at 18 or the opset above, its TorchScript exporter up to 20), and runs the files in turn in
onnxruntime, with graph optimizations on and off. Prints medians; ratios are against the best of torch.onnx's
files. Needs onnxscript for torch.onnx.

    python benchmarks/latency.py [--models bert,vit] [--opsets 17,23] [--threads 1,2] [--runs 20]
    python benchmarks/latency.py --full-size --opsets 18
    python benchmarks/latency.py --count --markdown [--dynamic]
"""

import argparse
import contextlib
import io
import logging
import math
import os
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator

import numpy as np
import onnx
import onnxruntime
import torch
import transformers as hf
from rich.console import Console
from rich.table import Table

import opsetta
from opsetta.tests.trained_weights import FirstTensor, spread_weights

LEVELS = ("full",)
Case = tuple[torch.nn.Module, dict[str, torch.Tensor]]
_TEXT = {"vocab_size": 1000, "num_hidden_layers": 4, "hidden_size": 256, "intermediate_size": 1024}
_HEADS = {"num_attention_heads": 4}
_VISION = {"num_hidden_layers": 4, "hidden_size": 192, "intermediate_size": 768, "num_attention_heads": 3}


class Recurrent(torch.nn.Module):
    """Two bidirectional LSTM layers, and a classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(1000, 128)
        self.lstm = torch.nn.LSTM(128, 128, num_layers=2, bidirectional=True, batch_first=True)
        self.classifier = torch.nn.Linear(256, 10)

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        return self.classifier(self.lstm(self.embedding(input_ids))[0][:, -1])


def _images(size: int) -> dict[str, torch.Tensor]:
    return {"pixel_values": torch.randn(1, 3, size, size)}


def _tokens(length: int = 64) -> dict[str, torch.Tensor]:
    return {"input_ids": torch.randint(3, 1000, (1, length))}


def _masked(length: int = 64) -> dict[str, torch.Tensor]:
    return {**_tokens(length), "attention_mask": torch.ones(1, length, dtype=torch.int64)}


def _efficientnet() -> torch.nn.Module:
    config = hf.EfficientNetConfig(width_coefficient=1.0, depth_coefficient=1.0, hidden_dim=1280)
    return hf.EfficientNetForImageClassification(config)


def _uncached(build: type, config: hf.PretrainedConfig) -> torch.nn.Module:
    config.use_cache = False
    return build(config)


MODELS: dict[str, Callable[[], Case]] = {
    "resnet50": lambda: (hf.ResNetForImageClassification(hf.ResNetConfig()), _images(128)),
    "mobilenetv2": lambda: (hf.MobileNetV2ForImageClassification(hf.MobileNetV2Config()), _images(128)),
    "efficientnet": lambda: (_efficientnet(), _images(128)),
    "convnext": lambda: (hf.ConvNextForImageClassification(hf.ConvNextConfig()), _images(128)),
    "vit": lambda: (hf.ViTForImageClassification(hf.ViTConfig(**_VISION)), _images(224)),
    "swin": lambda: (hf.SwinForImageClassification(hf.SwinConfig(depths=[2, 2, 2, 2])), _images(224)),
    "segformer": lambda: (hf.SegformerForSemanticSegmentation(hf.SegformerConfig()), _images(128)),
    "bert": lambda: (hf.BertForSequenceClassification(hf.BertConfig(**_TEXT, **_HEADS)), _masked()),
    "distilbert": lambda: (
        hf.DistilBertForSequenceClassification(
            hf.DistilBertConfig(vocab_size=1000, n_layers=4, dim=256, hidden_dim=1024, n_heads=4)
        ),
        _masked(),
    ),
    "gpt2": lambda: (
        _uncached(hf.GPT2LMHeadModel, hf.GPT2Config(vocab_size=1000, n_layer=4, n_embd=256, n_head=4)),
        _tokens(),
    ),
    "llama": lambda: (
        _uncached(hf.LlamaForCausalLM, hf.LlamaConfig(**_TEXT, **_HEADS, num_key_value_heads=2)),
        _tokens(),
    ),
    "t5-encoder": lambda: (
        hf.T5EncoderModel(hf.T5Config(vocab_size=1000, d_model=256, num_layers=4, d_ff=1024, num_heads=4)),
        _masked(),
    ),
    "clip-text": lambda: (
        hf.CLIPTextModel(hf.CLIPTextConfig(**_TEXT, **_HEADS, eos_token_id=2, bos_token_id=1)),
        _tokens(),
    ),
    "whisper-encoder": lambda: (
        hf.WhisperModel(hf.WhisperConfig(d_model=192, encoder_layers=4, encoder_attention_heads=3)).encoder,
        {"input_features": torch.randn(1, 80, 3000)},
    ),
    "lstm": lambda: (Recurrent(), _tokens()),
}
FULL_SIZE: dict[str, Callable[[], Case]] = {
    "resnet50-224": lambda: (hf.ResNetForImageClassification(hf.ResNetConfig()), _images(224)),
    "mobilenetv2-224": lambda: (hf.MobileNetV2ForImageClassification(hf.MobileNetV2Config()), _images(224)),
    "efficientnet-b0": lambda: (_efficientnet(), _images(224)),
    "vit-b16": lambda: (hf.ViTForImageClassification(hf.ViTConfig()), _images(224)),
    "swin-t": lambda: (hf.SwinForImageClassification(hf.SwinConfig()), _images(224)),
    "bert-base": lambda: (hf.BertForSequenceClassification(hf.BertConfig()), _masked(128)),
}


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        with contextlib.redirect_stderr(io.StringIO()):
            yield


def case(name: str) -> Case:
    """A model with weights like those of a trained one."""
    torch.manual_seed(0)
    model, inputs = {**MODELS, **FULL_SIZE}[name]()
    spread_weights(model, 0.02)
    return model.eval(), inputs


def _first(name: str) -> torch.nn.Module:
    """A new model each time: tracing changes some."""
    model, inputs = case(name)
    return FirstTensor(model, list(inputs)).eval()


def _axes(inputs: dict[str, torch.Tensor]) -> dict[str, dict[int, str]]:
    """The batch, and the length of texts."""
    text = {0: "batch", 1: "sequence"}
    return {name: {0: "batch"} if value.is_floating_point() else text for name, value in inputs.items()}


def write(
    name: str, opset: int, folder: str, levels: tuple[str, ...], dynamic: bool = False
) -> dict[str, str]:
    """The files of one model at an opset, by who wrote them."""
    inputs = case(name)[1]
    if dynamic:
        # Capture takes a size of 1 for a constant.
        inputs = {key: torch.cat([value, value]) for key, value in inputs.items()}
    args, files = tuple(inputs.values()), {}
    axes = {"dynamic_axes": _axes(inputs)} if dynamic else {}
    sizes = [dict.fromkeys(each, torch.export.Dim.DYNAMIC) for each in _axes(inputs).values()]
    shapes = {"dynamic_shapes": (tuple(sizes),)} if dynamic else {}

    def path(writer: str) -> str:
        return os.path.join(folder, f"{name}-{opset}-{'dynamic-' * dynamic}{writer}.onnx")

    common = {"input_names": list(inputs), "opset_version": opset}
    peers = {
        "dynamo": lambda where: torch.onnx.export(
            _first(name),
            args,
            where,
            dynamo=True,
            external_data=False,
            **{**common, **shapes, "opset_version": max(18, opset)},
        ),
        "torchscript": lambda where: torch.onnx.export(
            _first(name), args, where, dynamo=False, **common, **axes
        ),
    }
    for writer, export in peers.items():
        if not (writer == "torchscript" and opset > 20):
            try:
                if not os.path.exists(path(writer)):
                    with _silent():
                        export(path(writer))
                files[writer] = path(writer)
            except Exception as error:
                reason = str(error).partition("\n")[0][:100]
                print(f"{name} at {opset}: {writer} failed: {type(error).__name__}: {reason}")
    with _silent():
        program = opsetta.export(_first(name), args, opset=opset, input_names=list(inputs), **axes)
        for level in levels:
            program.lower(opset, optimize=level).save(path(level))
            files[level] = path(level)
    return files


def _session(path: str, optimized: bool, threads: int) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    levels = onnxruntime.GraphOptimizationLevel
    options.graph_optimization_level = levels.ORT_ENABLE_ALL if optimized else levels.ORT_DISABLE_ALL
    options.intra_op_num_threads, options.log_severity_level = threads, 3
    # Threads that wait in a loop would take the processors from the session that is measured.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def _seconds(action: Callable[[], object], clock: Callable[[], float]) -> float:
    start = clock()
    action()
    return clock() - start


def measure(
    files: dict[str, str], feed: dict[str, np.ndarray], threads: int, runs: int, best: bool
) -> dict[str, dict]:
    """Medians by writer: creation of a session, and latency with optimizations on and off.

    One thread is measured by the time that the process computes, which other processes hardly change.
    """
    clock = time.process_time if threads == 1 else time.perf_counter
    typical = min if best else statistics.median
    found: dict[str, dict] = {writer: {"nodes": nodes(path)} for writer, path in files.items()}
    creation: dict[str, list[float]] = {writer: [] for writer in files}
    for _ in range(max(3, runs // 5)):
        for writer, path in files.items():
            creation[writer].append(_seconds(lambda path=path: _session(path, True, threads), clock))
    for writer in files:
        found[writer]["create"] = typical(creation[writer])
    for key, optimized in (("on", True), ("off", False)):
        sessions = {writer: _session(path, optimized, threads) for writer, path in files.items()}
        times: dict[str, list[float]] = {writer: [] for writer in files}
        for turn in range(runs + 2):
            for writer, session in sessions.items():
                taken = _seconds(lambda session=session: session.run(None, feed), clock)
                if turn > 1:
                    times[writer].append(taken)
        for writer in files:
            found[writer][key] = typical(times[writer])
    return found


def nodes(path: str) -> int:
    """The nodes of a file; initializers count as nothing, however they are written."""

    def count(graph: onnx.GraphProto) -> int:
        inner = [a.g for node in graph.node for a in node.attribute if a.HasField("g")]
        return sum(node.op_type != "Constant" for node in graph.node) + sum(map(count, inner))

    model = onnx.load(path, load_external_data=False)
    local = {(f.domain, f.name): sum(n.op_type != "Constant" for n in f.node) for f in model.functions}
    return count(model.graph) + sum(local.get((n.domain, n.op_type), 1) - 1 for n in model.graph.node)


def _at(opset: int) -> tuple[str, ...]:
    """The exporters of torch.onnx that write files of an opset."""
    return ("dynamo",) * (opset >= 18) + ("torchscript",) * (opset <= 20)


def rows(name: str, opset: int, options: argparse.Namespace, folder: str) -> Iterator[dict]:
    """A row for each number of threads and each level."""
    files = write(name, opset, folder, options.levels, options.dynamic)
    feed = {key: value.numpy() for key, value in case(name)[1].items()}
    for threads in options.threads:
        if options.count:
            found = {writer: {"nodes": nodes(path)} for writer, path in files.items()}
        else:
            found = measure(files, feed, threads, options.runs, options.best)
        peers = [found[writer] for writer in found if writer not in options.levels]
        for level in options.levels:
            row = {"model": name, "opset": opset, "threads": threads, "level": level}
            for key, value in found[level].items():
                best = min((peer[key] for peer in peers), default=math.nan)
                row[key] = value
                row[f"{key} ratio"] = value / best
            # A file of a higher opset may have operators that this one has not.
            same = [found[writer] for writer in found if writer in _at(opset)]
            row["best nodes"] = min((peer["nodes"] for peer in same), default=0)
            row["nodes ratio"] = row["nodes"] / row["best nodes"] if same else math.nan
            yield row


def _integers(text: str) -> list[int]:
    return [int(number) for number in text.split(",")]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", help="names, with commas; by default the small ones")
    parser.add_argument("--full-size", action="store_true", help="six models in the size that people use")
    parser.add_argument("--opsets", type=_integers, help="by default 18; 13, 17, 18, 21 and 23 with --count")
    parser.add_argument("--levels", default=",".join(LEVELS))
    parser.add_argument("--threads", type=_integers, default=[1])
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument(
        "--best", action="store_true", help="minima for medians, on a machine with other work"
    )
    parser.add_argument("--count", action="store_true", help="count nodes, run nothing")
    parser.add_argument("--dynamic", action="store_true", help="let the batch vary, and the length of texts")
    parser.add_argument("--markdown", action="store_true", help="print the table as Markdown")
    parser.add_argument("--folder", help="where to keep the files; those of torch.onnx are used again")
    options = parser.parse_args()
    options.levels = tuple(options.levels.split(","))
    options.models = (
        options.models.split(",") if options.models else FULL_SIZE if options.full_size else MODELS
    )
    options.opsets = options.opsets or ([13, 17, 18, 21, 23] if options.count else [18])
    options.threads = [1] if options.count else options.threads
    return options


def _print(found: list[dict], options: argparse.Namespace, keys: list[str]) -> None:
    """The table, and the means."""
    heads = ["model", "opset", "threads", "level", "nodes", "best peer's"]
    lines = [
        [str(row[head]) for head in heads[:5]]
        + [str(row["best nodes"] or "none"), *(f"{row[f'{key} ratio']:.2f}" for key in keys[1:])]
        for row in found
    ]
    heads += [f"{key} ratio" for key in keys[1:]]
    if options.markdown:
        for line in (heads, ["---"] * len(heads), *lines):
            print(f"| {' | '.join(line)} |")
    else:
        table = Table(*heads)
        for line in lines:
            table.add_row(*line)
        Console(width=120).print(table)
    for level in options.levels:
        for threads in options.threads:
            own = [row for row in found if row["level"] == level and row["threads"] == threads]
            for key in keys:
                ratios = [row[f"{key} ratio"] for row in own if not math.isnan(row[f"{key} ratio"])]
                mean = math.exp(statistics.fmean(map(math.log, ratios))) if ratios else math.nan
                largest = max(ratios, default=math.nan)
                print(
                    f"{level}, {threads} threads: {key}: mean {mean:.3f} (geometric), largest {largest:.2f}"
                )


def main() -> None:
    options = _options()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or temporary
        found = [
            row
            for name in options.models
            for opset in options.opsets
            for row in rows(name, opset, options, folder)
        ]
    _print(found, options, ["nodes"] if options.count else ["nodes", "create", "on", "off"])


if __name__ == "__main__":
    main()
