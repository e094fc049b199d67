"""Measures the memory of plans: `python benchmarks/plans.py [--train] [--runs 5] [names]`.

Prints a table in Markdown. For inference: the bytes of the block with whole nodes in the order of the graph
and in that of the plan, with nodes in parts, and with tiles; the operations that tiles add; the processor
time of planning with parts and with tiles; and the time of the runtime in C with whole nodes, parts and
tiles, for which it needs a C compiler `cc`. With `--train`, for
SGD and Adam: the bytes of the block, and with the lowest memory limit the bytes, the ratio of both, the lower
bound, the operations that this adds, and the processor time of planning. The models have random weights.
"""

from __future__ import annotations

import argparse
import ctypes
import itertools
import math
import pathlib
import tempfile
import time
from collections.abc import Callable

import numpy as np
import torch
import transformers
from c_runtime import MODELS, Output, image_model, load_library, run_in_c
from torch import nn

import opsetta

Example = tuple[nn.Module, torch.Tensor]
MEBIBYTE = 2**20


def _block(before: int, after: int) -> nn.Sequential:
    layers = nn.Conv2d(before, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU()
    return nn.Sequential(*layers, nn.Conv2d(after, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU())


class UNet(nn.Module):
    """A U-Net for segmentation of images."""

    def __init__(self, widths: tuple[int, ...]) -> None:
        super().__init__()
        pairs = list(itertools.pairwise(widths))
        self.down = nn.ModuleList([_block(3, widths[0]), *(_block(*pair) for pair in pairs)])
        self.up = nn.ModuleList(nn.ConvTranspose2d(wide, narrow, 2, 2) for narrow, wide in pairs)
        self.join = nn.ModuleList(_block(2 * narrow, narrow) for narrow, _ in pairs)
        self.out = nn.Conv2d(widths[0], 2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The scores of each pixel."""
        skipped = []
        for block in self.down[:-1]:
            skipped.append(block(x))
            x = nn.functional.max_pool2d(skipped[-1], 2)
        x = self.down[-1](x)
        for up, join, skip in reversed(list(zip(self.up, self.join, skipped, strict=True))):
            x = join(torch.cat([up(x), skip], 1))
        return self.out(x)


def _mlp() -> nn.Module:
    layers = [[nn.Linear(256, 256), nn.LayerNorm(256), nn.GELU()] for _ in range(4)]
    return nn.Sequential(*(layer for group in layers for layer in group))


_BERT = {"hidden_size": 128, "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 512}
TRAINED: dict[str, Callable[[], Example]] = {
    "MLP, batch 256": lambda: (_mlp(), torch.randn(256, 256)),
    "ResNet-18, batch 4": lambda: (
        Output(
            transformers.ResNetModel(
                transformers.ResNetConfig(
                    hidden_sizes=[64, 128, 256, 512], depths=[2, 2, 2, 2], layer_type="basic"
                )
            ),
            "pixel_values",
        ),
        torch.randn(4, 3, 128, 128),
    ),
    "MobileNetV2, batch 4": lambda: (
        Output(transformers.MobileNetV2Model(transformers.MobileNetV2Config()), "pixel_values"),
        torch.randn(4, 3, 96, 96),
    ),
    "U-Net, batch 2": lambda: (UNet((16, 32, 64)), torch.randn(2, 3, 64, 64)),
    "BERT, 4 layers of 128": lambda: (
        Output(transformers.BertModel(transformers.BertConfig(vocab_size=1000, **_BERT)), "input_ids"),
        torch.arange(128).reshape(2, 64),
    ),
    "GPT-2, 4 layers of 128": lambda: (
        Output(
            transformers.GPT2Model(
                transformers.GPT2Config(vocab_size=1000, n_embd=128, n_layer=4, n_head=4, use_cache=False)
            ),
            "input_ids",
        ),
        torch.arange(128).reshape(2, 64),
    ),
}


def plan(model: opsetta.Program | opsetta.TrainingProgram, **options: object) -> tuple[opsetta.Plan, float]:
    """A plan, and the processor time that it took."""
    start = time.process_time()
    planned = model.plan(**options)
    return planned, time.process_time() - start


def measure_training(names: list[str]) -> None:
    """Print the table of training steps."""
    print("| model | optimizer | peak, MiB | at the limit | ratio | lower bound | extra work | planning, s |")
    print("|---|---|---|---|---|---|---|---|")
    ratios = []
    for name in names or TRAINED:
        for optimizer in ("sgd", "adam"):
            torch.manual_seed(0)
            model, x = TRAINED[name]()
            target = torch.randn_like(model.eval()(x))
            step = opsetta.export_training(
                model.train(), (x,), target, loss=nn.MSELoss(), optimizer=optimizer, opset=17
            )
            whole, _ = plan(step, mode="train")
            small, seconds = plan(step, mode="train", memory_limit="lowest")
            ratios.append(small.peak / whole.peak)
            sizes = [size / MEBIBYTE for size in (whole.peak, small.peak, small.lower_bound)]
            print(
                f"| {name} | {optimizer} | {sizes[0]:.2f} | {sizes[1]:.2f} | {ratios[-1]:.2f} | "
                f"{sizes[2]:.2f} | {small.extra_work:.0%} | {seconds:.1f} |",
                flush=True,
            )
    print(f"\nGeometric mean of the ratios: {math.exp(sum(map(math.log, ratios)) / len(ratios)):.2f}")


def _efficient_net() -> nn.Module:
    """EfficientNet-B0; the defaults of transformers are B7."""
    config = transformers.EfficientNetConfig(
        width_coefficient=1.0, depth_coefficient=1.0, hidden_dim=1280, image_size=224
    )
    return transformers.EfficientNetModel(config)


INFERENCE: dict[str, Callable[[], tuple[nn.Module, tuple[torch.Tensor, ...]]]] = {
    **MODELS,
    "EfficientNet-B0": lambda: image_model(_efficient_net()),
    "ConvNeXt-T": lambda: image_model(transformers.ConvNextModel(transformers.ConvNextConfig())),
    "SegFormer-B0": lambda: image_model(transformers.SegformerModel(transformers.SegformerConfig())),
    "GPT-2, 64 tokens": lambda: (
        Output(transformers.GPT2Model(transformers.GPT2Config(use_cache=False)), "input_ids"),
        (torch.arange(64)[None],),
    ),
    "U-Net, 128 x 128": lambda: (UNet((32, 64, 128)), (torch.randn(1, 3, 128, 128),)),
}


def measure_inference(names: list[str], runs: int) -> None:
    """Print the table of inference."""
    print(
        "| model | graph order, MiB | plan order | parts | tiles | extra work | planning, s | with tiles, s "
        "| C, ms | parts, ms | tiles, ms |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    ratios = []
    library: ctypes.CDLL | None = None
    for name in names or INFERENCE:
        torch.manual_seed(0)
        model, inputs = INFERENCE[name]()
        program = opsetta.export(model.eval(), inputs, opset=17)
        kept, _ = plan(program, split=False, reorder=False)
        whole, _ = plan(program, split=False)
        parts, seconds = plan(program)
        tiles, tile_seconds = plan(program, tile=True)
        times, results = [], []
        for planned in (whole, parts, tiles):
            with tempfile.TemporaryDirectory() as folder:
                planned.build(folder)
                library = library or load_library(pathlib.Path(folder))
                feed = [tensor.numpy() for tensor in inputs]
                milliseconds, result = run_in_c(library, pathlib.Path(folder), feed, runs)
                times.append(milliseconds)
                results.append(result)
        for result in results[1:]:
            # Parts round in another way, which deep models with random weights enlarge.
            assert np.abs(result - results[0]).max() <= 1e-3 * np.abs(results[0]).max()
        sizes = [size / MEBIBYTE for size in (kept.peak, whole.peak, parts.peak, tiles.peak)]
        ratios.append((parts.peak / kept.peak, tiles.peak / kept.peak))
        print(
            f"| {name} | {' | '.join(f'{size:.2f}' for size in sizes)} | {tiles.extra_work:.0%} "
            f"| {seconds:.1f} | {tile_seconds:.1f} | {' | '.join(f'{time:.1f}' for time in times)} |",
            flush=True,
        )
    means = [math.exp(sum(map(math.log, column)) / len(ratios)) for column in zip(*ratios, strict=True)]
    print(f"\nGeometric means of the ratios to the graph order: {means[0]:.2f} parts, {means[1]:.2f} tiles")


def main() -> None:
    """Measure all models, or those named."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--train", action="store_true")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    if options.train:
        measure_training(options.names)
    else:
        measure_inference(options.names, options.runs)


if __name__ == "__main__":
    main()
