"""Exports the base model of every type of transformers with `opsetta.export`, and compares at other sizes."""

from __future__ import annotations

import inspect
import time
import warnings
from typing import Any

import torch
import transformers
from transformers.models.auto.modeling_auto import MODEL_MAPPING_NAMES

from . import small_models
from .model_types import FAILED, NOT_BUILT, REFUSED, RIGHT, WRONG, line_of

BATCH, LENGTH = 2, 6
"""The sizes of the example."""
OTHER_SIZES = ((3, 9), (1, 4), (3, 17))
"""The batches and lengths at which the file is compared."""
_SAMPLES = 160
"""The samples of a sound, or the frames of a spectrogram, for each unit of length."""
_TEXTS = ("input_ids", "decoder_input_ids", "attention_mask")


def names_of_types() -> list[str]:
    """The model types with a base model, in the order of `sweep_base_model`."""
    return sorted(MODEL_MAPPING_NAMES)


def base_class(model_type: str) -> str:
    """The name of the class of a type's base model."""
    names = MODEL_MAPPING_NAMES[model_type]
    return names if isinstance(names, str) else names[0]


def sweep_base_model(opsets: tuple[int, ...], index: int) -> list[dict[str, Any]]:
    """The outcomes of the base model of a type, one for each opset."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    model_type = names_of_types()[index]
    row = {"task": "opsetta.export", "architecture": base_class(model_type)}
    try:
        model = small_models.small_model(base_class(model_type), small_models.small_config(model_type))
        example = example_inputs(model, BATCH, LENGTH)
        run(model, example)
    # What a class of transformers raises on sizes that do not fit together is its own.
    except Exception as error:
        return [row | {"outcome": NOT_BUILT, "detail": f"{type(error).__name__}: {line_of(error)}"}]
    return [row | _sweep_opset(model, example, opset) for opset in opsets]


def _sweep_opset(model: torch.nn.Module, example: dict[str, torch.Tensor], opset: int) -> dict[str, Any]:
    import opsetta

    begin = time.perf_counter()
    seconds = None
    try:
        program = opsetta.export(
            model, kwargs=example, dynamic_shapes=dynamic_axes(model, example), opset=opset
        )
        seconds = round(time.perf_counter() - begin, 1)
        outcome, detail = compare(model, program)
    except opsetta.OpsettaError as error:
        outcome, detail = REFUSED, f"{type(error).__name__}: {line_of(error)}"
    # Anything else is a fault, which the page shows.
    except Exception as error:
        outcome, detail = FAILED, f"{type(error).__name__}: {line_of(error)}"
    if seconds is None:
        seconds = round(time.perf_counter() - begin, 1)
    return {"opset": opset, "outcome": outcome, "detail": detail, "seconds": seconds}


def run(model: torch.nn.Module, inputs: dict[str, torch.Tensor]) -> list[torch.Tensor]:
    """The flat tensors that a model returns."""
    with torch.no_grad():
        leaves = torch.utils._pytree.tree_leaves(model(**inputs))
    return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]


def compare(model: torch.nn.Module, program: Any) -> tuple[str, str]:
    """Compare a program with the model at sizes other than the example's."""
    from opsetta import VerificationError

    compared = False
    for batch, length in OTHER_SIZES:
        inputs = example_inputs(model, batch, length)
        try:
            run(model, inputs)
        # A class of transformers refuses lengths with whatever error arises; the file may refuse them too.
        except Exception:
            continue
        try:
            program.verify(kwargs=inputs, rtol=1e-3, atol=1e-3)
        except VerificationError as error:
            return WRONG, f"batch {batch}, length {length}: {line_of(error)}"
        compared = True
    return (RIGHT, "") if compared else (FAILED, "eager PyTorch fails at the other sizes")


def dynamic_axes(model: torch.nn.Module, example: dict[str, torch.Tensor]) -> dict[str, dict[int, str]]:
    """The batch, and the lengths of texts and sounds."""
    axes = {name: {0: "batch"} for name in example}
    for name in example:
        has_fixed_size = name == "input_values" and hasattr(model.config, "num_mel_bins")
        if name in (*_TEXTS, "bbox", "input_values") and not has_fixed_size:
            axes[name][1] = "decoder_length" if name.startswith("decoder_") else "length"
        elif name == "input_features" and not _has_fixed_frames(model):
            axes[name][1] = "length"
    return axes


def _has_fixed_frames(model: torch.nn.Module) -> bool:
    config = getattr(model.config, "encoder_config", model.config)
    return hasattr(config, "max_source_positions") and hasattr(config, "num_mel_bins")


def example_inputs(model: torch.nn.Module, batch: int, length: int) -> dict[str, torch.Tensor]:
    """Inputs by the names of the forward's parameters."""
    generator = torch.Generator().manual_seed(batch * 100 + length)
    parameters = inspect.signature(model.forward).parameters
    inputs: dict[str, torch.Tensor] = {}
    main = model.main_input_name
    needed = {name for name, parameter in parameters.items() if parameter.default is parameter.empty}
    names = {main, *needed} & set(parameters)
    if "input_ids" in parameters:
        names |= {"input_ids", "attention_mask", "bbox"}
    parts = set(getattr(model.config, "sub_configs", {}))
    # Models that compare an image with a text need both; models that generate a text read it alone.
    if {"vision_config", "text_config"} <= parts and "past_key_values" not in parameters:
        names.add("pixel_values")
    if "decoder_input_ids" in parameters and getattr(model.config, "is_encoder_decoder", False):
        names |= {"decoder_input_ids"}
    vocabulary = min(getattr(model.config.get_text_config(decoder=True), "vocab_size", 99) or 99, 90)
    for name in parameters:
        if name not in names:
            continue
        if name in ("input_ids", "decoder_input_ids"):
            size = length if name == "input_ids" else length + 1
            inputs[name] = torch.randint(3, vocabulary, (batch, size), generator=generator)
        elif name == "attention_mask":
            if "input_ids" in names:
                inputs[name] = torch.ones(batch, length, dtype=torch.int64)
                inputs[name][0, -2:] = 0
        elif name == "bbox":
            corner = torch.randint(0, 30, (batch, length, 2), generator=generator)
            inputs[name] = torch.cat([corner, corner + 7], dim=-1)
        elif name in ("pixel_values", "images"):
            size = _image_shape(model)
            inputs[name] = torch.randn(batch, *size, generator=generator)
        elif name == "input_values":
            config = model.config
            if hasattr(config, "max_length") and hasattr(config, "num_mel_bins"):
                shape = (config.max_length, config.num_mel_bins)
            else:
                shape = (_SAMPLES * 4 + length * _SAMPLES,)
            inputs[name] = torch.randn(batch, *shape, generator=generator)
        elif name == "input_features":
            config = getattr(model.config, "encoder_config", model.config)
            if _has_fixed_frames(model):
                shape = (config.num_mel_bins, 2 * config.max_source_positions)
            else:
                bins = getattr(config, "feature_projection_input_dim", None) or config.num_mel_bins
                shape = (8 * length, bins)
            inputs[name] = torch.randn(batch, *shape, generator=generator)
        elif (
            parameters[name].default is inspect.Parameter.empty
            and parameters[name].kind is parameters[name].POSITIONAL_OR_KEYWORD
        ):
            raise small_models.NotSmallError(f"no example of the input {name}")
    return inputs


def _image_shape(model: torch.nn.Module) -> tuple[int, ...]:
    config = model.config
    for part in ("vision_config", "encoder", "backbone_config"):
        if getattr(getattr(config, part, None), "image_size", None) is not None:
            config = getattr(config, part)
            break
    size = getattr(config, "image_size", None) or getattr(config, "input_size", None) or 64
    height, width = (size, size) if isinstance(size, int) else size
    shape = [getattr(config, "num_channels", 3), height, width]
    frames = getattr(config, "num_frames", None) or getattr(config, "frames_per_clip", None)
    if frames is not None:
        shape.insert(0, frames)
    return tuple(shape)
