"""Models that run once per input: features and classes of texts and images."""

from __future__ import annotations

import inspect
import pathlib
from typing import Any

from ...registration import UsageError
from .folder import read_json
from .graphs import BATCH, EXAMPLE_BATCH, EXAMPLE_SOURCE, SEQUENCE, Graph, example_tokens

_DEFAULT_SIZE = 224


def features(model: Any, config: Any, folder: pathlib.Path) -> list[Graph]:
    """The graph of the last hidden state.

    Raises:
        UsageError: the model reads neither text nor images, or has a decoder beside its encoder.
    """
    if getattr(model.config, "is_encoder_decoder", False):
        raise UsageError(
            f"feature-extraction needs an encoder, but models of type '{config.model_type}' have a decoder"
        )
    return _graphs(model, config, folder, "last_hidden_state")


def classification(model: Any, config: Any, folder: pathlib.Path) -> list[Graph]:
    """The graph of the logits of classes.

    Raises:
        UsageError: the model reads neither text nor images.
    """
    return _graphs(model, config, folder, "logits")


def _graphs(model: Any, config: Any, folder: pathlib.Path, result: str) -> list[Graph]:
    parameters = inspect.signature(type(model).forward).parameters
    fixed = {"use_cache": False} if "use_cache" in parameters else {}
    if model.main_input_name == "pixel_values":
        inputs, shapes = {"pixel_values": _image(model, config, folder)}, {"pixel_values": {0: BATCH}}
    elif model.main_input_name == "input_ids":
        inputs = _text(config, folder, "token_type_ids" in parameters)
        shapes = {name: {0: BATCH, 1: SEQUENCE} for name in inputs}
    else:
        raise UsageError(
            f"models with the input {model.main_input_name} are not supported for this task: export the "
            "model with opsetta.export"
        )

    def call(model: Any, inputs: dict[str, Any]) -> Any:
        results = type(model).forward(model, **inputs, **fixed)
        if result not in results:
            raise UsageError(
                f"{type(model).__name__} returns {', '.join(results)}, not {result}: export the model with "
                "opsetta.export"
            )
        return results[result]

    return [Graph("model.onnx", call, inputs, shapes, [*inputs], [result])]


def _text(config: Any, folder: pathlib.Path, takes_types: bool) -> dict[str, Any]:
    import torch

    mask = torch.ones(EXAMPLE_BATCH, EXAMPLE_SOURCE, dtype=torch.int64)
    mask[0, -2:] = 0
    inputs = {"input_ids": example_tokens(config, EXAMPLE_SOURCE), "attention_mask": mask}
    input_names = read_json(folder / "tokenizer_config.json").get("model_input_names")
    uses_types = (
        getattr(config, "type_vocab_size", 0) > 1 if input_names is None else "token_type_ids" in input_names
    )
    if takes_types and uses_types:
        inputs["token_type_ids"] = torch.zeros_like(mask)
    return inputs


def _image(model: Any, config: Any, folder: pathlib.Path) -> Any:
    """Make an image with the size of the model's or its processor's configuration."""
    import torch

    size = getattr(config, "image_size", None)
    if size is None:
        processor = read_json(folder / "preprocessor_config.json")
        processor_size = processor.get("crop_size") or processor.get("size") or _DEFAULT_SIZE
        size = processor_size
        if isinstance(processor_size, dict):
            edge = processor_size.get("shortest_edge", _DEFAULT_SIZE)
            size = (processor_size.get("height", edge), processor_size.get("width", edge))
    height, width = map(int, (size, size) if isinstance(size, int) else size)
    channels = getattr(config, "num_channels", 3)
    generator = torch.Generator().manual_seed(0)
    return torch.randn(EXAMPLE_BATCH, channels, height, width, generator=generator).to(model.dtype)
