"""Language models with linear attention or state spaces: generated tokens, and the time of each.

The models are the small ones of the tests. Each folder is exported for text-generation; 20 greedy tokens
after prompts of 1, 7, 70 and 600 tokens are compared with those of `generate` of transformers, for one text
and for two texts, the first of which is padded. The times are the medians of one token after a prompt of 70
tokens, in processor time on one thread: of onnxruntime, and of eager PyTorch.

    python -m opsetta.benchmarks.linear_attention_generation [NAME ...] [--opsets 13 28]
"""

from __future__ import annotations

import argparse
import copy
import inspect
import pathlib
import tempfile
import time
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx_ir as ir
import torch

import opsetta
from opsetta.benchmarks.linear_attention import print_row
from opsetta.exporter.running.runner import Runner
from opsetta.tests.models.generators import GENERATORS, VOCABULARY, write_folder
from opsetta.tests.models.recurrences import FAMILIES

LENGTHS = (1, 7, 70, 600)
NEW, TIMED = 20, 40


def main() -> None:
    """Print a row for each model and opset."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", default=list(FAMILIES))
    parser.add_argument("--opsets", type=int, nargs="+", default=[13, 28])
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    print_row(["model", "opset", "nodes", "different", "onnxruntime, ms", "eager, ms"])
    for name in options.names:
        with tempfile.TemporaryDirectory() as directory:
            folder = pathlib.Path(directory)
            architecture, make = GENERATORS.get(name, FAMILIES[name])
            config = make()
            # No token ends a text.
            config.update({"vocab_size": VOCABULARY, "pad_token_id": 0, "eos_token_id": None})
            config.update({"tie_word_embeddings": False})
            model = write_folder(architecture, config, folder / "model")
            eager = f"{1000 * np.median(list(eager_times(copy.deepcopy(model)))):.2f}"
            for opset in options.opsets:
                written = opsetta.export_huggingface(folder / "model", folder / str(opset), opset=opset)
                loaded = ir.load(written.graphs[0].path)
                nodes = sum(1 for _ in ir.traversal.RecursiveGraphIterator(loaded.graph))
                different = count_different(model, opsetta.TextGenerator(folder / str(opset)))
                median = 1000 * np.median(list(file_times(loaded)))
                print_row([name, str(opset), str(nodes), str(different), f"{median:.2f}", eager])


def count_different(model: Any, generator: opsetta.TextGenerator) -> int:
    """How many of the batches have other tokens than with transformers."""
    torch.manual_seed(1)
    different = 0
    for length in LENGTHS:
        tokens = torch.randint(3, VOCABULARY, (2, length))
        mask = torch.ones_like(tokens)
        mask[0, : length // 3] = 0
        # RWKV of transformers gives another result for a text in a batch of several texts.
        for rows in (slice(1, 2), slice(2))[: 1 if model.config.model_type == "rwkv" else 2]:
            inputs = {"input_ids": (tokens * mask)[rows], "attention_mask": mask[rows]}
            # RecurrentGemma keeps states in its modules, and a prompt of one token continues from them.
            fresh = copy.deepcopy(model)
            expected = fresh.generate(**inputs, max_new_tokens=NEW, do_sample=False).numpy()
            arrays = {name: tensor.numpy() for name, tensor in inputs.items()}
            different += not np.array_equal(expected, generator.generate(**arrays, max_new_tokens=NEW))
    return different


def eager_times(model: Any) -> Iterator[float]:
    """The seconds of each token in PyTorch."""
    parameters = inspect.signature(type(model).forward).parameters
    tokens = torch.randint(3, VOCABULARY, (1, 70))
    past: dict[str, object] = {}
    if model.config.model_type == "recurrent_gemma":
        # It returns no cache, but writes to the caller's.
        from transformers import DynamicCache

        past["past_key_values"] = DynamicCache(config=model.config)
    with torch.no_grad():
        for _ in range(TIMED):
            start = time.process_time()
            result = model(input_ids=tokens, use_cache=True, **past)
            yield time.process_time() - start
            # A cache that the model returns, or the one that it wrote to.
            past |= {name: result[name] for name in result if name in parameters}
            tokens = tokens[:, :1]


def file_times(model: ir.Model) -> Iterator[float]:
    """The seconds of each token in onnxruntime."""
    runner = Runner.of_model(model, threads=1)
    length, position = 70, 0
    cache: dict[str, Any] = {}
    for name, declared in runner.inputs.declared.items():
        if name.startswith("past_key_values."):
            assert declared.dtype is not None
            assert declared.shape is not None
            sizes = [
                size if isinstance(size, int) else int(not axis) for axis, size in enumerate(declared.shape)
            ]
            cache[name] = np.zeros(sizes, declared.dtype.numpy())
    for _ in range(TIMED):
        has_positions = any(name.endswith(".key") for name in cache)
        feed = {
            "input_ids": np.full((1, length), 5),
            "attention_mask": np.ones((1, position + length if has_positions else length), np.int64),
            "position_ids": np.arange(position, position + length)[None],
        }
        tokens = {name: value for name, value in feed.items() if name in runner.inputs.declared}
        start = time.process_time()
        results = dict(zip(runner.output_names, runner.run({**tokens, **cache}), strict=True))
        yield time.process_time() - start
        cache = {name: results["present." + name.removeprefix("past_key_values.")] for name in cache}
        position, length = position + length, 1


if __name__ == "__main__":
    main()
