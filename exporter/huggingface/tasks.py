"""The tasks of models, and the task of a configuration."""

from __future__ import annotations

import dataclasses
import difflib
import importlib
import inspect
from typing import Any

from ...registration import UsageError


@dataclasses.dataclass(frozen=True)
class Task:
    """A task, such as text generation.

    Attributes:
        name: as pipelines of transformers call it.
        auto_class: the class of transformers that builds the model from its configuration.
        mapping: the table in transformers from model types to architectures with this task.
    """

    name: str
    auto_class: str
    mapping: str


TASKS = {
    task.name: task
    for task in (
        Task("text-generation", "AutoModelForCausalLM", "MODEL_FOR_CAUSAL_LM_MAPPING_NAMES"),
        Task(
            "automatic-speech-recognition",
            "AutoModelForSpeechSeq2Seq",
            "MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING_NAMES",
        ),
        Task("text2text-generation", "AutoModelForSeq2SeqLM", "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES"),
        Task(
            "text-classification",
            "AutoModelForSequenceClassification",
            "MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES",
        ),
        Task(
            "image-classification",
            "AutoModelForImageClassification",
            "MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES",
        ),
        Task("feature-extraction", "AutoModel", "MODEL_MAPPING_NAMES"),
    )
}
"""The tasks by name; the first one that has an architecture is its task."""
_ENCODERS = "MODEL_FOR_TEXT_ENCODING_MAPPING_NAMES"
"""The table in transformers of encoders by themselves, such as T5EncoderModel."""


_OF_SENTENCES = {
    "feature-extraction": "feature-extraction",
    "sequence-classification": "text-classification",
    "text-generation": "text-generation",
}
"""The tasks that sentence-transformers has for its models, and their names here."""
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


def task_named(name: str) -> Task:
    """A task by its name.

    Raises:
        UsageError: there is none of this name.
    """
    if name not in TASKS:
        close = difflib.get_close_matches(str(name), TASKS, 1)
        hint = f" (did you mean '{close[0]}'?)" if close else ""
        raise UsageError(f"there is no task '{name}'{hint}; there are {', '.join(TASKS)}")
    return TASKS[name]


def auto_class_of(task: Task, config: Any) -> str:
    """The class of transformers that builds the model for a task.

    The features of an encoder-decoder are those of its encoder, if transformers has a class for it.
    """
    if task.name == "feature-extraction":
        tables = importlib.import_module("transformers.models.auto.modeling_auto")
        encoder = getattr(tables, _ENCODERS).get(config.model_type)
        is_encoder = encoder in (getattr(config, "architectures", None) or [])
        if encoder is not None and (is_encoder or getattr(config, "is_encoder_decoder", False)):
            return "AutoModelForTextEncoding"
    return task.auto_class


def task_of_sentences(name: str) -> Task:
    """The task for a model of sentence-transformers.

    Raises:
        UsageError: its modules need the results of another task.
    """
    if name not in _OF_SENTENCES:
        raise UsageError(
            f"the modules of the folder need a model for {name}, which is not supported: pass one of "
            f"{', '.join(TASKS)}"
        )
    return TASKS[_OF_SENTENCES[name]]


def check_reads_text(model: Any, task: str) -> None:
    """Refuse a model that reads or writes something besides text.

    The tables of transformers list models that describe images or make sounds as generators of text, and
    models of scanned pages as classifiers of text.

    Raises:
        UsageError: it does; the message names it.
    """
    # The class attribute `input_modalities` is inherited: the text model of Gemma 3 has that of images.
    parameters = inspect.signature(type(model).forward).parameters
    read = {modality for name, modality in _INPUTS_BESIDE_TEXT.items() if name in parameters}
    if isinstance(getattr(model.config, "type_vocab_sizes", None), list):
        read.add("table")  # TAPAS numbers the rows and columns of a table in its `token_type_ids`.
    modalities = sorted((read | _modalities(getattr(type(model), "output_modalities", "text"))) - {"text"})
    if modalities:
        raise UsageError(
            f"{type(model).__name__} is a model of {', '.join([*modalities, 'text'])}, which {task} does not "
            "support: export it with opsetta.export, or its text model by itself"
        )


def _modalities(listed: Any) -> set[str]:
    return {listed} if isinstance(listed, str) else set(listed or ())


def task_of(config: Any) -> Task:
    """The task of the architecture that a configuration names.

    Raises:
        UsageError: it names none, or one without a task that is supported.
    """
    architectures = list(getattr(config, "architectures", None) or [])
    tables = importlib.import_module("transformers.models.auto.modeling_auto")
    for architecture in architectures:
        for task in TASKS.values():
            names = getattr(tables, task.mapping).values()
            if any(architecture in ([name] if isinstance(name, str) else name) for name in names):
                return task
        if architecture in getattr(tables, _ENCODERS).values():
            return TASKS["feature-extraction"]
    architecture_text = f"the architecture {architectures[0]}" if architectures else "no architecture"
    raise UsageError(
        f"config.json names {architecture_text}, which has no default task: pass one of {', '.join(TASKS)}"
    )
