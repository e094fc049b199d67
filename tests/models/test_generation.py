"""Greedy tokens of exported folders on onnxruntime against `generate` of transformers."""

from __future__ import annotations

import pathlib
from typing import Any

import numpy as np
import onnx
import pytest
import torch

import opsetta

from .generators import GENERATORS, VOCABULARY, write_generator

OPSETS = (13, 17, 21, 23)
QUICK = {("gemma3", 13), ("t5", 21)}
NEW = 20


def cases() -> list:
    """Every model and opset; a few of them in quick runs."""
    return [
        pytest.param(
            name, opset, id=f"{name}-{opset}", marks=[] if (name, opset) in QUICK else [pytest.mark.sweep]
        )
        for name in GENERATORS
        for opset in OPSETS
    ]


def inputs_of(model: Any) -> list[dict[str, torch.Tensor]]:
    """Batches of three prompts: the first two are padded, on the side that the model reads.

    A decoder also gets prompts of one token, and of more tokens than a window or two chunks have.
    """
    torch.manual_seed(1)
    if model.main_input_name == "input_features":
        return [{"input_features": torch.randn(3, 20, 100)}]
    batches = []
    for length in (7,) if model.config.is_encoder_decoder else (1, 7, 40):
        mask = torch.ones(3, length, dtype=torch.int64)
        mask[0, : length // 2], mask[1, : length // 4] = 0, 0
        mask = mask.flip(1) if model.config.is_encoder_decoder else mask
        tokens = torch.randint(3, VOCABULARY, mask.shape)
        batches.append({"input_ids": torch.where(mask.bool(), tokens, 0), "attention_mask": mask})
    return batches


@pytest.mark.filterwarnings("ignore:.*(generation|cache|Whisper|attention mask)")
@pytest.mark.parametrize(("name", "opset"), cases())
def test_greedy_tokens_are_those_of_transformers(name: str, opset: int, tmp_path: pathlib.Path) -> None:
    model: Any = write_generator(name, tmp_path / "folder")
    written = opsetta.export_huggingface(tmp_path / "folder", tmp_path / "onnx", opset=opset)
    for graph in written.graphs:
        loaded = onnx.load(graph.path)
        assert [each.version for each in loaded.opset_import if each.domain == ""] == [opset]
        onnx.checker.check_model(loaded, full_check=True)
    generator = opsetta.TextGenerator(tmp_path / "onnx")
    for inputs in inputs_of(model):
        expected = model.generate(**inputs, max_new_tokens=NEW, do_sample=False).numpy()
        arrays = {key: value.numpy() for key, value in inputs.items()}
        tokens = generator.generate(**arrays, max_new_tokens=NEW)
        # transformers leaves out how the results of Whisper begin.
        np.testing.assert_array_equal(tokens[:, 1:] if name == "whisper" else tokens, expected)
