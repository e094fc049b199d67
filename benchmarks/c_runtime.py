"""Compares the runtime in C with onnxruntime, at one thread: `python benchmarks/c_runtime.py [--runs 5]`.

Prints a table in Markdown with the median processor times in milliseconds, and the largest difference of the
results. Runs of both alternate, so that other processes slow down both. The models have random weights. Needs
a C compiler `cc` and transformers.
"""

from __future__ import annotations

import argparse
import ctypes
import itertools
import os
import pathlib
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator

import numpy as np
import onnxruntime
import torch
import transformers
from torch import nn

import opsetta

FLAGS = ["-O3", "-march=native", "-ffp-contract=fast", "-shared", "-fPIC"]
WIDE = "-mprefer-vector-width=512"


class Tagger(nn.Module):
    """Two bidirectional LSTM layers over 64 words."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(5000, 128)
        self.layers = nn.LSTM(128, 256, 2, batch_first=True, bidirectional=True)
        self.tags = nn.Linear(512, 20)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        """The scores of each word's tags."""
        return self.tags(self.layers(self.words(words))[0])


class Output(nn.Module):
    """A model of transformers whose only result is its last hidden state."""

    def __init__(self, model: nn.Module, argument: str) -> None:
        super().__init__()
        self.model, self.argument = model, argument

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The last hidden state."""
        return self.model(**{self.argument: x}).last_hidden_state


def image_model(model: nn.Module) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """A model of transformers and an image."""
    image = torch.randn(1, 3, 224, 224)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            # The statistics of this image; with the initial ones activations vanish, and denormals are slow.
            module.momentum = None
    with torch.no_grad():
        model.train()(image)
    return Output(model, "pixel_values"), (image,)


MODELS: dict[str, Callable[[], tuple[nn.Module, tuple[torch.Tensor, ...]]]] = {
    "ResNet-50": lambda: image_model(transformers.ResNetModel(transformers.ResNetConfig())),
    "MobileNetV2": lambda: image_model(transformers.MobileNetV2Model(transformers.MobileNetV2Config())),
    "ViT-B/16": lambda: image_model(transformers.ViTModel(transformers.ViTConfig())),
    "BERT-base, 128 tokens": lambda: (
        Output(transformers.BertModel(transformers.BertConfig()), "input_ids"),
        (torch.arange(128)[None],),
    ),
    "LSTM tagger, 64 words": lambda: (Tagger(), (torch.arange(64)[None],)),
}


class Tensor(ctypes.Structure):
    """`opsetta_tensor` of `opsetta_runtime.h`."""

    _fields_ = [
        ("type", ctypes.c_uint32),
        ("rank", ctypes.c_uint32),
        ("shape", ctypes.c_int64 * 8),
        ("count", ctypes.c_int64),
        ("bytes", ctypes.c_size_t),
        ("memory", ctypes.c_uint32),
        ("data", ctypes.c_void_p),
    ]


def load_library(folder: pathlib.Path) -> ctypes.CDLL:
    """Compile the runtime as a library."""
    sources = [str(path) for path in folder.glob("*.c") if path.name != "main.c"]
    wide = subprocess.run(["cc", WIDE, "-E", "-x", "c", os.devnull], capture_output=True, check=False)
    flags = [*FLAGS, WIDE] if wide.returncode == 0 else FLAGS
    library = folder / "runtime.so"
    subprocess.run(["cc", "-std=c99", *flags, "-o", str(library), *sources, "-lm"], check=True)
    return ctypes.CDLL(str(library))


def aligned(size: int) -> np.ndarray:
    """Bytes at a multiple of 64."""
    block = np.zeros(size + 64, np.uint8)
    start = -block.ctypes.data % 64
    return block[start : start + size]


def run_in_c(
    library: ctypes.CDLL, folder: pathlib.Path, feed: list[np.ndarray], runs: int
) -> tuple[float, np.ndarray]:
    """The median time of a run in milliseconds, and the first output."""
    times, results = zip(*itertools.islice(runs_in_c(library, folder, feed), runs), strict=True)
    return statistics.median(times), results[-1]


def runs_in_c(
    library: ctypes.CDLL, folder: pathlib.Path, feed: list[np.ndarray]
) -> Iterator[tuple[float, np.ndarray]]:
    """The times of runs in milliseconds, and the first output of each.

    Args:
        library: the runtime, which is the same in all folders.
    """
    files = []
    for name in ("model.plan", "model.weights"):
        content = np.fromfile(folder / name, np.uint8)
        files.append(aligned(content.size))
        files[-1][:] = content
    model = ctypes.create_string_buffer(1024)
    plan, weights = files
    opened = library.opsetta_open(
        model,
        ctypes.c_void_p(plan.ctypes.data),
        ctypes.c_size_t(plan.size),
        ctypes.c_void_p(weights.ctypes.data),
        ctypes.c_size_t(weights.size),
    )
    assert opened == 0
    arena = aligned(int.from_bytes(plan[32:40].tobytes(), "little"))
    address, tensor = ctypes.c_void_p(arena.ctypes.data), Tensor()
    while True:
        for index, array in enumerate(feed):
            assert library.opsetta_input(model, address, index, ctypes.byref(tensor)) == 0
            ctypes.memmove(tensor.data, np.ascontiguousarray(array).ctypes.data, tensor.bytes)
        start = time.process_time()
        assert library.opsetta_run(model, address) == 0
        milliseconds = (time.process_time() - start) * 1e3
        assert library.opsetta_output(model, address, 0, ctypes.byref(tensor)) == 0
        result = np.frombuffer(ctypes.string_at(tensor.data, tensor.bytes), np.float32)
        yield milliseconds, result.reshape(tensor.shape[: tensor.rank])


def runs_in_onnxruntime(path: pathlib.Path, feed: list[np.ndarray]) -> Iterator[tuple[float, np.ndarray]]:
    """The same with onnxruntime."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    inputs = {item.name: array for item, array in zip(session.get_inputs(), feed, strict=True)}
    while True:
        start = time.process_time()
        result = session.run(None, inputs)[0]
        yield (time.process_time() - start) * 1e3, result


def main() -> None:
    """Measure all models, or those named."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--opset", type=int, default=17)
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    print("| model | onnxruntime, ms | runtime in C, ms | ratio | largest difference |")
    print("|---|---|---|---|---|")
    for name in options.names or MODELS:
        torch.manual_seed(0)
        model, inputs = MODELS[name]()
        with tempfile.TemporaryDirectory() as temporary:
            folder = pathlib.Path(temporary)
            program = opsetta.export(model.eval(), inputs, opset=options.opset)
            program.save(folder / "model.onnx")
            program.plan().build(folder / "app")
            feed = [tensor.numpy() for tensor in inputs]
            pairs = zip(
                runs_in_onnxruntime(folder / "model.onnx", feed),
                runs_in_c(load_library(folder / "app"), folder / "app", feed),
                strict=True,
            )
            references, runs = zip(*itertools.islice(pairs, options.runs), strict=True)
        reference, median = (statistics.median(item[0] for item in times) for times in (references, runs))
        difference = float(np.abs(runs[-1][1] - references[-1][1]).max())
        print(
            f"| {name} | {reference:.1f} | {median:.1f} | {median / reference:.2f} | {difference:.1e} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
