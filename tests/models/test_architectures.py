"""Real architectures in onnxruntime against eager PyTorch, at every opset, static and dynamic."""

from __future__ import annotations

import functools

import onnx
import pytest
import torch

import opsetta

from .zoo import ARCHITECTURES, BY_NAME, DECODERS


@functools.lru_cache(maxsize=2)
def program(name: str, dynamic: bool) -> tuple[opsetta.Program, torch.nn.Module]:
    architecture = BY_NAME[name]
    model = architecture.build()
    shapes = architecture.dynamic_shapes if dynamic else None
    return opsetta.export(model, (), architecture.inputs(2, 7), opset=18, dynamic_shapes=shapes), model


def cases() -> list:
    found = []
    for architecture in ARCHITECTURES:
        for dynamic in architecture.forms:
            group = f"{architecture.name}-{'dynamic' if dynamic else 'static'}"
            found += [
                pytest.param(
                    architecture.name,
                    dynamic,
                    opset,
                    id=f"{group}-{opset}",
                    marks=pytest.mark.xdist_group(group),
                )
                for opset in architecture.opsets
            ]
    return found


@pytest.mark.parametrize(("name", "dynamic", "opset"), cases())
def test_architecture_agrees_with_eager(name: str, dynamic: bool, opset: int) -> None:
    source, _ = program(name, dynamic)
    lowered = source.lower(opset=opset)
    assert lowered.model.opset_imports[""] == opset
    onnx.checker.check_model(lowered.model_proto, full_check=True)
    lowered.verify()
    if dynamic:
        torch.manual_seed(1)
        for batch, length in BY_NAME[name].sizes:
            lowered.verify((), BY_NAME[name].inputs(batch, length))


@functools.lru_cache(maxsize=2)
def decoder_program(name: str) -> tuple[opsetta.Program, torch.nn.Module]:
    decoder = next(decoder for decoder in DECODERS if decoder.name == name)
    model = decoder.build()
    inputs = decoder.inputs(model, 2, 3)
    return opsetta.export(model, (), inputs, opset=18, dynamic_shapes=decoder.dynamic_shapes(inputs)), model


@pytest.mark.parametrize(
    ("name", "opset"),
    [
        pytest.param(d.name, opset, id=f"{d.name}-{opset}", marks=pytest.mark.xdist_group(f"{d.name}-cache"))
        for d in DECODERS
        for opset in d.opsets
    ],
)
def test_generation_step_with_cache_agrees_with_eager(name: str, opset: int) -> None:
    source, model = decoder_program(name)
    decoder = next(decoder for decoder in DECODERS if decoder.name == name)
    lowered = source.lower(opset=opset)
    onnx.checker.check_model(lowered.model_proto, full_check=True)
    lowered.verify()
    torch.manual_seed(1)
    for batch, past in ((1, 1), (3, 6)):
        lowered.verify((), decoder.inputs(model, batch, past))
