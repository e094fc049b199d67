"""Accuracy of calibrated int8 files beside onnxruntime's own tool, on models trained for handwritten digits.

Four small networks of the usual families (ResNet, MobileNet V3, ViT, BERT) are trained on scikit-learn's
digits, exported at each opset, and quantized by `opsetta quantize`'s function and by onnxruntime's
`quant_pre_process` and `quantize_static`, with the same samples and options. The accuracy is that on samples
which neither training nor calibration has seen. Needs scikit-learn.

    python benchmarks/int8_accuracy.py [--opsets 13 17] [--formats qdq qoperator] [--epochs 30]
        [--models resnet ...] [--seeds 0 1 2 ...] [--calibration-sets 1] [--reduce-range] [--json]
    python benchmarks/int8_accuracy.py --rows FILE.json ...

Beside the accuracy stand the relative error of the scores and the share of labels that are those of the float
file. Each seed trains another model, and calibration sets are other choices of the samples for calibration.
With several of them, a Markdown table follows: the means for each model, opset and format. `--rows` prints it
of the outputs of several runs with `--json`.
"""

import argparse
import copy
import itertools
import json
import logging
import pathlib
import tempfile
from collections.abc import Callable, Iterator

import numpy as np
import onnxruntime
import torch
from onnxruntime import quantization
from onnxruntime.quantization.shape_inference import quant_pre_process
from torch import Tensor, nn

import opsetta

CLASSES, CALIBRATION = 10, 200
TOOLS = ("opsetta", "onnxruntime")
FORMATS = {"qdq": quantization.QuantFormat.QDQ, "qoperator": quantization.QuantFormat.QOperator}


class SqueezeExcitation(nn.Module):
    """Scales of channels from their means."""

    def __init__(self, channels: int):
        super().__init__()
        self.reduce, self.expand = (
            nn.Conv2d(channels, channels // 4, 1),
            nn.Conv2d(channels // 4, channels, 1),
        )

    def forward(self, x: Tensor) -> Tensor:
        scale = self.expand(torch.relu(self.reduce(x.mean((2, 3), keepdim=True))))
        return x * nn.functional.hardsigmoid(scale)


class InvertedResidual(nn.Module):
    """A block of MobileNet V3: expanded, filtered by channel, excited and projected."""

    def __init__(self, channels: int, expanded: int):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(channels, expanded, 1, bias=False),
            nn.BatchNorm2d(expanded),
            nn.Hardswish(),
            nn.Conv2d(expanded, expanded, 3, padding=1, groups=expanded, bias=False),
            nn.BatchNorm2d(expanded),
            nn.Hardswish(),
            SqueezeExcitation(expanded),
            nn.Conv2d(expanded, channels, 1, bias=False),
            nn.BatchNorm2d(channels),
        )

    def forward(self, x: Tensor) -> Tensor:
        return x + self.layers(x)


class Logits(nn.Module):
    """A model of transformers that returns its logits alone.

    Args:
        as_tokens: whether the pixels are given as a row of tokens, their brightness.
    """

    def __init__(self, model: nn.Module, as_tokens: bool = False):
        super().__init__()
        self.model, self.as_tokens = model, as_tokens

    def forward(self, images: Tensor) -> Tensor:
        if self.as_tokens:
            return self.model(input_ids=(images.flatten(1) * 16).long()).logits
        return self.model(pixel_values=images).logits


def resnet() -> nn.Module:
    from transformers import ResNetConfig, ResNetForImageClassification

    configuration = ResNetConfig(
        num_channels=1,
        embedding_size=16,
        hidden_sizes=[16, 32],
        depths=[2, 2],
        layer_type="basic",
        num_labels=CLASSES,
    )
    return Logits(ResNetForImageClassification(configuration))


def mobilenet() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1, bias=False),
        nn.BatchNorm2d(16),
        nn.Hardswish(),
        InvertedResidual(16, 64),
        InvertedResidual(16, 64),
        nn.AvgPool2d(2),
        InvertedResidual(16, 72),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(16, 64),
        nn.Hardswish(),
        nn.Linear(64, CLASSES),
    )


def vit() -> nn.Module:
    from transformers import ViTConfig, ViTForImageClassification

    configuration = ViTConfig(
        hidden_size=48,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=96,
        image_size=8,
        patch_size=2,
        num_channels=1,
        num_labels=CLASSES,
    )
    return Logits(ViTForImageClassification(configuration))


def bert() -> nn.Module:
    from transformers import BertConfig, BertForSequenceClassification

    configuration = BertConfig(
        vocab_size=17,
        hidden_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=96,
        max_position_embeddings=64,
        num_labels=CLASSES,
        attn_implementation="eager",
    )
    return Logits(BertForSequenceClassification(configuration), as_tokens=True)


MODELS: dict[str, Callable[[], nn.Module]] = {
    "resnet": resnet,
    "mobilenet-v3": mobilenet,
    "vit": vit,
    "bert": bert,
}


def digits() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Images and labels: those to train with, and those to measure with."""
    from sklearn.datasets import load_digits

    data = load_digits()
    images = torch.tensor(data.images, dtype=torch.float32)[:, None] / 16
    labels = torch.tensor(data.target, dtype=torch.int64)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    images, labels = images[order], labels[order]
    return images[:1000], labels[:1000], images[1000:], labels[1000:]


def train(model: nn.Module, images: Tensor, labels: Tensor, epochs: int) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), 2e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 4e-3, total_steps=epochs * (len(images) // 50))
    model.train()
    for _ in range(epochs):
        for batch in torch.randperm(len(images)).split(50):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(images[batch]), labels[batch]).backward()
            optimizer.step()
            schedule.step()
    model.eval()


def scores(path: pathlib.Path, images: Tensor) -> np.ndarray:
    """What a file computes of images."""
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    return np.concatenate([session.run(None, {name: part.numpy()})[0] for part in images.split(50)])


def quantize_with_onnxruntime(
    source: pathlib.Path,
    path: pathlib.Path,
    samples: list[np.ndarray],
    quantized_format: str,
    reduce_range: bool,
) -> None:
    prepared = path.with_suffix(".prepared.onnx")
    quant_pre_process(source, prepared)
    name = onnxruntime.InferenceSession(prepared).get_inputs()[0].name
    remaining = iter(samples)

    class Reader(quantization.CalibrationDataReader):
        def get_next(self) -> dict[str, np.ndarray] | None:
            sample = next(remaining, None)
            return None if sample is None else {name: sample}

    quantization.quantize_static(
        prepared,
        path,
        Reader(),
        quant_format=FORMATS[quantized_format],
        per_channel=True,
        reduce_range=reduce_range,
        activation_type=quantization.QuantType.QInt8,
        weight_type=quantization.QuantType.QInt8,
    )


def measure(
    model: nn.Module, opsets: list[int], formats: list[str], seed: int, reduce_range: bool
) -> Iterator[dict]:
    """Measure the files of a trained model, calibrated with the samples that a seed chooses."""
    images, _, held_out, held_labels = digits()
    chosen = torch.randperm(len(images), generator=torch.Generator().manual_seed(seed))[:CALIBRATION]
    samples = [part.numpy() for part in images[chosen].split(10)]
    # opsetta measures errors with the first batch of each five, and calibrates with the others. It gets each
    # of these first ones twice, so that both tools calibrate with the same samples.
    with_measured = [
        batch for index, batch in enumerate(samples) for batch in [batch] * (2 if index % 4 == 0 else 1)
    ]
    with tempfile.TemporaryDirectory() as folder:
        for opset in opsets:
            plain = pathlib.Path(folder, f"float-{opset}.onnx")
            program = opsetta.export(
                copy.deepcopy(model), (images[:2],), opset=opset, dynamic_shapes=({0: "batch"},)
            )
            program.save(plain)
            for quantized_format in formats:
                ours, theirs = (pathlib.Path(folder, f"{part}-{opset}.onnx") for part in ("ours", "theirs"))
                opsetta.load(plain).quantize(
                    with_measured, form=quantized_format, per_channel=True, reduce_range=reduce_range
                ).save(ours)
                results = {"float": scores(plain, held_out), "opsetta": scores(ours, held_out)}
                try:
                    quantize_with_onnxruntime(plain, theirs, samples, quantized_format, reduce_range)
                    results["onnxruntime"] = scores(theirs, held_out)
                except RuntimeError:
                    # onnxruntime's quantizer drops values that Where reads.
                    pass
                expected = results["float"]
                yield {
                    "opset": opset,
                    "format": quantized_format,
                    "float": None,
                    "opsetta": None,
                    "onnxruntime": None,
                    **{
                        key: float((result.argmax(1) == held_labels.numpy()).mean())
                        for key, result in results.items()
                    },
                    "errors": {
                        key: float(np.linalg.norm(result - expected) / np.linalg.norm(expected))
                        for key, result in results.items()
                    },
                    "same_labels": {
                        key: float((result.argmax(1) == expected.argmax(1)).mean())
                        for key, result in results.items()
                    },
                }


def print_means(rows: list[dict]) -> None:
    """Print a table of the means over seeds and calibration sets, for each model, opset and format.

    The column of differences has the standard error of the mean difference of labels that are right.
    """
    header = ("", "opset", "format", "files", "float", *TOOLS, "difference", "error, opsetta", "onnxruntime")
    print("\n|", " | ".join(header), "|")
    print("|---" * len(header) + "|")
    groups: dict[tuple, list[dict]] = {}
    for row in rows:
        if row["onnxruntime"] is not None:
            groups.setdefault((row["model"], row["opset"], row["format"]), []).append(row)
    for (name, opset, quantized_format), group in groups.items():
        labels = [f"{np.mean([row[key] for row in group]):.2%}" for key in ("float", *TOOLS)]
        errors = [f"{np.mean([row['errors'][key] for row in group]):.2%}" for key in TOOLS]
        differences = [100 * (row["opsetta"] - row["onnxruntime"]) for row in group]
        spread = np.std(differences, ddof=1) / len(differences) ** 0.5 if len(differences) > 1 else np.nan
        difference = f"{np.mean(differences):+.2f} ± {spread:.2f}"
        cells = name, str(opset), quantized_format, str(len(group)), *labels, difference, *errors
        print("|", " | ".join(cells), "|")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--opsets", type=int, nargs="+", default=[13, 17])
    parser.add_argument("--formats", nargs="+", choices=list(FORMATS), default=list(FORMATS))
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--models", nargs="+", choices=list(MODELS), default=list(MODELS))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--calibration-sets", type=int, default=1, help="choices of samples for each seed")
    parser.add_argument("--reduce-range", action="store_true", help="weights of 7 bits, for x86 without VNNI")
    parser.add_argument("--json", action="store_true")
    parser.add_argument(
        "--rows", nargs="+", help="print the table of files that --json wrote, and do nothing else"
    )
    options = parser.parse_args()
    if options.rows:
        print_means([row for path in options.rows for row in json.loads(pathlib.Path(path).read_text())])
        return
    logging.disable(logging.WARNING)
    rows = []
    images, labels, _, _ = digits()
    for name, seed in itertools.product(options.models, options.seeds):
        torch.manual_seed(seed)
        model = MODELS[name]()
        train(model, images, labels, options.epochs)
        for calibration_set in range(options.calibration_sets):
            choice = seed + 1000 * calibration_set
            for row in measure(model, options.opsets, options.formats, choice, options.reduce_range):
                rows.append({"model": name, "seed": seed, "calibration_set": calibration_set, **row})
                if not options.json:
                    shares = "  ".join(
                        f"{key} fails"
                        if row[key] is None
                        else f"{key} {row[key]:.1%} (error {row['errors'][key]:.2%}, "
                        f"same labels {row['same_labels'][key]:.1%})"
                        for key in ("float", *TOOLS)
                    )
                    print(f"{name:13} opset {row['opset']}  {row['format']:9}  {shares}", flush=True)
    if options.json:
        print(json.dumps(rows, indent=2))
    elif len(options.seeds) * options.calibration_sets > 1:
        print_means(rows)


if __name__ == "__main__":
    main()
