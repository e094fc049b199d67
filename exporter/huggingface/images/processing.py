"""Inputs for images, by the processor of a folder."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from ....registration import ModelFileError, UsageError
from ..encoder_decoders import PATCHES
from ..image_text import PROMPT_IMAGES
from ..model_folders import need_transformers
from ..packages import need_package

_INPUTS = ("input_ids", "attention_mask", *PROMPT_IMAGES, PATCHES)
"""The inputs of generation that processors make; others are computed from these."""


def process_images(
    folder: pathlib.Path, images: Sequence[str | os.PathLike[str]], prompt: str | None, *, chat: bool
) -> dict[str, np.ndarray]:
    """The inputs of generation that the processor of a folder makes of images and a text.

    Args:
        folder: of the exported model.
        images: the paths of the images, in the order of their places in the text.
        prompt: the text; None for a model that reads images alone.
        chat: apply the chat template to a message with the images and the text.

    Raises:
        ModelFileError: an image cannot be read, or the folder has no processor.
        UsageError: the processor refuses the text, or the folder has no chat template.
        OpsettaError: a package is not installed.
    """
    import jinja2

    image_module = need_package("PIL.Image", "images")
    try:
        opened = [image_module.open(path).convert("RGB") for path in images]
    except OSError as error:
        raise ModelFileError(f"an image cannot be read: {error}") from error
    try:
        processor = need_transformers().AutoProcessor.from_pretrained(folder, local_files_only=True)
    except (OSError, ValueError, ImportError) as error:
        raise ModelFileError(
            f"the processor of '{folder}' cannot be read: {' '.join(str(error).split())}"
        ) from error
    arguments: dict[str, Any] = {"images": opened, "return_tensors": "pt"}
    try:
        if chat:
            content = [*({"type": "image"} for _ in opened), {"type": "text", "text": prompt}]
            messages = [{"role": "user", "content": content}]
            prompt = processor.apply_chat_template(messages, add_generation_prompt=True)
            arguments["add_special_tokens"] = False  # The template has them.
        if prompt is not None:
            arguments["text"] = [prompt]
        features = processor(**arguments)
    # What processors raise if the text has another number of places for images, or no template.
    except (ValueError, IndexError, jinja2.TemplateError) as error:
        raise UsageError(
            f"the processor of '{folder}' refuses the text and the images: {' '.join(str(error).split())}"
        ) from error
    return {name: features[name].numpy() for name in _INPUTS if name in features}
