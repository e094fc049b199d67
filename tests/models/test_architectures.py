"""Real architectures in onnxruntime against eager PyTorch, at every opset where their graphs change."""

from __future__ import annotations

import onnx
import pytest
import torch

import opsetta

from ..opsets import changes, named
from .zoo import BY_NAME, DECODERS, cases

FORMS = {False: "static", True: "dynamic"}


LIKE_OTHERS = ("resnet50", "vit", "distilbert", "roberta", "mistral", "qwen2", "qwen3-moe", "segformer")
"""Architectures with the operators of another one, such as Qwen 2, which is Llama with biases."""


QUICK_DECODERS = ("llama", "jamba", "t5", "whisper")
"""A plain cache, states of convolutions and recurrences, and caches beside those of an encoder."""


def _is_quick(name: str, dynamic: bool) -> bool:
    """Static forms of most, and architectures that are like others, are left to full runs."""
    return name not in LIKE_OTHERS if dynamic else name == "bert"


@pytest.mark.parametrize(("name", "dynamic"), cases(_is_quick))
def test_architecture_agrees_with_eager(name: str, dynamic: bool) -> None:
    architecture = BY_NAME[name]
    model = architecture.build()
    shapes = architecture.dynamic_shapes if dynamic else None
    source = opsetta.export(model, (), architecture.inputs(2, 7), opset=18, dynamic_shapes=shapes)
    for opset, lowered in changes(source, architecture.opsets, list(BY_NAME).index(name)):
        with named(opset):
            assert lowered.model.opset_imports[""] == opset
            onnx.checker.check_model(lowered.model_proto, full_check=True)
            if not dynamic or opset == architecture.opsets[0]:
                lowered.verify()
            torch.manual_seed(1)
            for batch, length in architecture.sizes if dynamic else ():
                lowered.verify((), architecture.inputs(batch, length))


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(
            decoder.name,
            marks=[pytest.mark.sweep]
            if decoder.name in (*LIKE_OTHERS, "mixtral", "gpt2", "gpt-oss", "deepseek-v3")
            else [],
        )
        for decoder in DECODERS
    ],
)
def test_generation_step_with_cache_agrees_with_eager(name: str) -> None:
    turn, decoder = next((turn, decoder) for turn, decoder in enumerate(DECODERS) if decoder.name == name)
    model = decoder.build()
    inputs = decoder.inputs(model, 2, 3)
    shapes = decoder.dynamic_shapes(inputs)
    # The mask is for the past and the new positions together.
    source = opsetta.export(model, (), inputs, opset=18, dynamic_shapes=shapes, narrow=True)
    for opset, lowered in changes(source, decoder.opsets, turn):
        with named(opset):
            onnx.checker.check_model(lowered.model_proto, full_check=True)
            lowered.verify()
            torch.manual_seed(1)
            for batch, past in ((1, 1), (3, 6)):
                lowered.verify((), decoder.inputs(model, batch, past))
