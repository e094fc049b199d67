"""Models that run once per input: features and classes of texts and images."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

from ...registration import UsageError
from .folder import read_json
from .graphs import EXAMPLE_BATCH, ExampleCall, Inputs, Pairs, TaskModel, example_text, random_tensor

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

_DEFAULT_SIZE = 224


def features(source: TaskModel) -> list[ExampleCall]:
    """The call that gives the last hidden state.

    Raises:
        UsageError: the model reads neither text nor images, or has a decoder beside its encoder.
    """
    if getattr(source.model.config, "is_encoder_decoder", False):
        raise UsageError(
            f"feature-extraction needs an encoder, but models of type '{source.config.model_type}' have a "
            "decoder"
        )
    return _example_call(source, "last_hidden_state")


def logits(source: TaskModel) -> list[ExampleCall]:
    """The call that gives the logits of classes.

    Raises:
        UsageError: the model reads neither text nor images.
    """
    return _example_call(source, "logits")


def _example_call(source: TaskModel, result_name: str) -> list[ExampleCall]:
    model = source.model
    parameters = inspect.signature(type(model).forward).parameters
    fixed = {"use_cache": False} if "use_cache" in parameters else {}
    if model.main_input_name == "pixel_values":
        inputs = {"pixel_values": _image(source)}
    elif model.main_input_name == "input_ids":
        inputs = _text(source, "token_type_ids" in parameters)
    else:
        raise UsageError(
            f"models with the input {model.main_input_name} are not supported for this task: export the "
            "model with opsetta.export"
        )

    def call(model: PreTrainedModel, inputs: Inputs, past: Pairs) -> torch.Tensor:
        results = type(model).forward(model, **inputs, **fixed)
        if result_name not in results:
            raise UsageError(
                f"{type(model).__name__} returns {', '.join(results)}, not {result_name}: export the model "
                "with opsetta.export"
            )
        result: torch.Tensor = results[result_name]
        return result

    return [ExampleCall(call, inputs)]


def _text(source: TaskModel, takes_types: bool) -> dict[str, torch.Tensor]:
    inputs = example_text(source.config)
    input_names = read_json(source.folder / "tokenizer_config.json").get("model_input_names")
    if input_names is None:
        uses_types = getattr(source.config, "type_vocab_size", 0) > 1
    else:
        uses_types = "token_type_ids" in input_names
    if takes_types and uses_types:
        inputs["token_type_ids"] = inputs["attention_mask"].new_zeros(inputs["attention_mask"].shape)
    return inputs


def _image(source: TaskModel) -> torch.Tensor:
    """Make an image with the size of the model's or its processor's configuration."""
    # Models of images and text, such as SigLIP, keep the sizes of images in a part of their configuration.
    config = getattr(source.config, "vision_config", source.config)
    size = getattr(config, "image_size", None)
    if size is None:
        processor = read_json(source.folder / "preprocessor_config.json")
        size = processor.get("crop_size") or processor.get("size") or _DEFAULT_SIZE
        if isinstance(size, dict):
            edge = size.get("shortest_edge", _DEFAULT_SIZE)
            size = (size.get("height", edge), size.get("width", edge))
    height, width = map(int, (size, size) if isinstance(size, int) else size)
    channels = getattr(config, "num_channels", 3)
    return random_tensor(EXAMPLE_BATCH, channels, height, width, dtype=source.model.dtype)
