"""What models read: text, images, sounds, layouts."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from ....registration import UsageError
from ....registration.warning import warn

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_INPUTS_BESIDE_TEXT = {
    "bbox": "layout",
    "image": "image",
    "image_embeds": "image",
    "visual_embeds": "image",
    "visual_feats": "image",
    "xpath_tags_seq": "markup",
    "pixel_values": "image",
    "pixel_values_videos": "video",
    "image_patches": "image",
    "input_features": "audio",
    "input_values": "audio",
    "speech_input": "audio",
}

_MEDIA = {"image", "video", "audio"}


def check_reads_text(
    model: PreTrainedModel,
    task: str,
    *,
    takes_pages: bool,
    generates: bool = False,
    output_of_text: str | None = None,
) -> None:
    """Refuse a model that reads or writes something besides text.

    The tables of transformers list models that describe images or make sounds as generators of text, and
    models of scanned pages as classifiers of text.

    Args:
        model: to check.
        task: the name of the task.
        takes_pages: whether the task has inputs for the position of each token on a page or in its markup.
        generates: whether the task continues texts with a cache, which has images in front of texts in models
            whose images replace no tokens, such as GIT.
        output_of_text: that models return for texts without any image or sound, if the task is for them, too.

    Warns:
        UserWarning: the model reads images or sounds, too, for which the file has no inputs.

    Raises:
        UsageError: it does; the message names it.
    """
    # The class attribute `input_modalities` is inherited: the text model of Gemma 3 has that of images.
    parameters = inspect.signature(type(model).forward).parameters
    modalities = {modality for name, modality in _INPUTS_BESIDE_TEXT.items() if name in parameters}
    outputs = getattr(type(model), "output_modalities", None) or ()
    output_modalities = {outputs} if isinstance(outputs, str) else {*outputs}
    # Decoders read texts without images and sounds, and so do encoders in which the features of these replace
    # tokens. Models that compare texts with images have no hidden states of both.
    replaces_tokens = any(
        hasattr(part, f"get_{medium}_features") for part in model.modules() for medium in _MEDIA
    )
    if (
        output_of_text is not None
        and modalities
        and modalities <= _MEDIA
        and output_modalities <= {"text"}
        and (replaces_tokens or (not generates and "past_key_values" in parameters))
        and returns(model, output_of_text)
    ):
        warn(
            f"the file is for texts alone, although {type(model).__name__} is a model of "
            f"{', '.join([*sorted(modalities), 'text'])}"
        )
        return
    modalities = (modalities | output_modalities) - {"text"}
    is_page = modalities == {"markup"} or (modalities <= {"layout", "image"} and reads_pages(parameters))
    if modalities and not (takes_pages and is_page):
        raise UsageError(
            f"{type(model).__name__} is a model of {', '.join([*sorted(modalities), 'text'])}, which {task} "
            "does not support: export it with opsetta.export, or its text model by itself"
        )


def reads_pages(parameters: Collection[str]) -> bool:
    """Whether a forward takes the position of each token on a page; then images are those of pages.

    Args:
        parameters: the names of the parameters of the forward.
    """
    return "bbox" in parameters


def returns(model: PreTrainedModel, output: str) -> bool:
    """Whether the class that a model declares to return has an output."""
    annotation = inspect.signature(type(model).forward).return_annotation
    classes = typing.get_args(annotation) or (annotation,)
    return any(output in getattr(result, "__dataclass_fields__", ()) for result in classes)


def main_input(model: PreTrainedModel, part: PreTrainedModel) -> str:
    """The name of the main input of a part of a model, or of the model itself.

    Encoders of images inherit the name "input_ids", although their `forward` has no such parameter, and
    encoders of texts "pixel_values" from models of both.
    """
    parameters = list(inspect.signature(type(part).forward).parameters.values())[1:]
    main: str | Sequence[str] = model.main_input_name
    name = main if isinstance(main, str) else main[0]
    names = [item.name for item in parameters]
    required = [
        item.name
        for item in parameters
        if item.default is item.empty and item.kind is item.POSITIONAL_OR_KEYWORD
    ]
    return name if name in names or not names else [*required, *names][0]
