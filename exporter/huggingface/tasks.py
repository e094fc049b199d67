"""The tasks of models, and the task of a configuration."""

from __future__ import annotations

import dataclasses
import difflib
import importlib
import inspect
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from ...registration import UsageError
from . import decoders, encoder_decoders, encoders
from .graphs import BATCH, PAST, SEQUENCE, SOURCE, TOTAL, ExampleCall, GraphFile, TaskModel

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedModel


@dataclasses.dataclass(frozen=True)
class Task:
    """A task, such as text generation, with all that an export needs to know of it.

    Attributes:
        name: as pipelines of transformers call it.
        auto_class: the class of transformers that builds the model from its configuration.
        mapping: the table in transformers from model types to architectures with this task.
        build: makes an example call for each of the files, and refuses models that it does not support.
        files: the files of the task, with their inputs, dynamic axes and outputs.
        needs_text: whether models that read or write something besides text are refused. For the other tasks
            this holds for models whose main input is text.
        encoder_class, encoder_mapping: as `auto_class` and `mapping`, for the encoders of encoder-decoders.
        sentence_transformers_name: what sentence-transformers calls the task.
    """

    name: str
    auto_class: str
    mapping: str
    build: Callable[[TaskModel], list[ExampleCall]]
    files: tuple[GraphFile, ...]
    needs_text: bool = False
    encoder_class: str | None = None
    encoder_mapping: str | None = None
    sentence_transformers_name: str | None = None

    def example_calls(self, source: TaskModel) -> list[tuple[GraphFile, ExampleCall]]:
        """The files of a model, each with the example call that it is exported from.

        Raises:
            UsageError: the task does not support the model.
        """
        if self.needs_text or source.model.main_input_name == "input_ids":
            check_reads_text(source.model, self.name)
        return list(zip(self.files, self.build(source), strict=True))


_TEXT = {"input_ids": {0: BATCH, 1: SEQUENCE}, "attention_mask": {0: BATCH, 1: SEQUENCE}}
_TEXT_OR_IMAGE = {**_TEXT, "token_type_ids": {0: BATCH, 1: SEQUENCE}, "pixel_values": {0: BATCH}}
_PAST = {0: BATCH, 2: PAST}
_SELF_CACHE = ("present.{layer}.decoder.key", "present.{layer}.decoder.value")
_CROSS_CACHE = ("present.{layer}.encoder.key", "present.{layer}.encoder.value")
_DECODER_OUTPUTS = ("logits", *_SELF_CACHE, *_CROSS_CACHE)
_LOGITS_FILE = GraphFile("model.onnx", _TEXT_OR_IMAGE, ("logits",))


def _encoder_decoder_files(
    encoder_inputs: dict[str, dict[int, str]], encoded: dict[int, str], cross_cache: dict[int, str]
) -> tuple[GraphFile, ...]:
    """The three files of an encoder-decoder.

    Args:
        encoder_inputs: the inputs of the encoder, with their dynamic axes.
        encoded: the dynamic axes of the encoder's result, and of its mask in the decoders.
        cross_cache: the dynamic axes of the keys and values of cross-attention.
    """
    tokens, mask = {0: BATCH, 1: SEQUENCE}, {"encoder_attention_mask": encoded}
    past = {"past_key_values.{layer}.decoder.key": _PAST, "past_key_values.{layer}.decoder.value": _PAST}
    past |= dict.fromkeys(
        ("past_key_values.{layer}.encoder.key", "past_key_values.{layer}.encoder.value"), cross_cache
    )
    return (
        GraphFile("encoder_model.onnx", encoder_inputs, ("last_hidden_state",)),
        GraphFile(
            "decoder_model.onnx",
            {"input_ids": tokens, **mask, "encoder_hidden_states": encoded},
            _DECODER_OUTPUTS,
        ),
        GraphFile(
            "decoder_with_past_model.onnx",
            # Later steps process one token per sequence.
            {"input_ids": {0: BATCH}, **mask, **past},
            ("logits", *_SELF_CACHE),
        ),
    )


_TASKS = (
    Task(
        "text-generation",
        "AutoModelForCausalLM",
        "MODEL_FOR_CAUSAL_LM_MAPPING_NAMES",
        decoders.text_generation,
        (
            GraphFile(
                "model.onnx",
                {
                    "input_ids": {0: BATCH, 1: SEQUENCE},
                    "attention_mask": {0: BATCH, 1: TOTAL},
                    "position_ids": {0: BATCH, 1: SEQUENCE},
                    "past_key_values.{layer}.key": _PAST,
                    "past_key_values.{layer}.value": _PAST,
                    "past_key_values.{layer}.conv_state": {0: BATCH},
                    "past_key_values.{layer}.recurrent_state": {0: BATCH},
                },
                (
                    "logits",
                    "present.{layer}.key",
                    "present.{layer}.value",
                    "present.{layer}.conv_state",
                    "present.{layer}.recurrent_state",
                ),
            ),
        ),
        needs_text=True,
        sentence_transformers_name="text-generation",
    ),
    Task(
        "automatic-speech-recognition",
        "AutoModelForSpeechSeq2Seq",
        "MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING_NAMES",
        encoder_decoders.speech_recognition,
        # The length of a spectrogram is fixed, and so is the length of the encoder's result.
        _encoder_decoder_files({"input_features": {0: BATCH}}, {0: BATCH}, {0: BATCH}),
    ),
    Task(
        "text2text-generation",
        "AutoModelForSeq2SeqLM",
        "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES",
        encoder_decoders.text_to_text,
        _encoder_decoder_files(
            {"input_ids": {0: BATCH, 1: SOURCE}, "attention_mask": {0: BATCH, 1: SOURCE}},
            {0: BATCH, 1: SOURCE},
            {0: BATCH, 2: SOURCE},
        ),
        needs_text=True,
    ),
    Task(
        "text-classification",
        "AutoModelForSequenceClassification",
        "MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES",
        encoders.logits,
        (_LOGITS_FILE,),
        sentence_transformers_name="sequence-classification",
    ),
    Task(
        "image-classification",
        "AutoModelForImageClassification",
        "MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES",
        encoders.logits,
        (_LOGITS_FILE,),
    ),
    Task(
        "feature-extraction",
        "AutoModel",
        "MODEL_MAPPING_NAMES",
        encoders.features,
        (GraphFile("model.onnx", _TEXT_OR_IMAGE, ("last_hidden_state",)),),
        encoder_class="AutoModelForTextEncoding",
        encoder_mapping="MODEL_FOR_TEXT_ENCODING_MAPPING_NAMES",
        sentence_transformers_name="feature-extraction",
    ),
)
TASKS = {task.name: task for task in _TASKS}
"""The tasks by name. The default task of an architecture is the first one whose table has it."""
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


def auto_class_of(task: Task, config: PretrainedConfig) -> str:
    """The class of transformers that builds the model for a task.

    The features of an encoder-decoder are those of its encoder, if transformers has a class for it.
    """
    if task.encoder_class is not None:
        encoder = _architectures(task.encoder_mapping).get(config.model_type)
        is_encoder = encoder in (getattr(config, "architectures", None) or [])
        if encoder is not None and (is_encoder or getattr(config, "is_encoder_decoder", False)):
            return task.encoder_class
    return task.auto_class


def task_of_sentences(name: str) -> Task:
    """The task for a model of sentence-transformers.

    Raises:
        UsageError: its modules need the results of another task.
    """
    for task in TASKS.values():
        if task.sentence_transformers_name == name:
            return task
    raise UsageError(
        f"the modules of the folder need a model for {name}, which is not supported: pass one of "
        f"{', '.join(TASKS)}"
    )


def check_reads_text(model: PreTrainedModel, task: str) -> None:
    """Refuse a model that reads or writes something besides text.

    The tables of transformers list models that describe images or make sounds as generators of text, and
    models of scanned pages as classifiers of text.

    Raises:
        UsageError: it does; the message names it.
    """
    # The class attribute `input_modalities` is inherited: the text model of Gemma 3 has that of images.
    parameters = inspect.signature(type(model).forward).parameters
    modalities = {modality for name, modality in _INPUTS_BESIDE_TEXT.items() if name in parameters}
    if isinstance(getattr(model.config, "type_vocab_sizes", None), list):
        modalities.add("table")  # TAPAS numbers the rows and columns of a table in its `token_type_ids`.
    outputs = getattr(type(model), "output_modalities", None) or ()
    modalities.update([outputs] if isinstance(outputs, str) else outputs)
    modalities.discard("text")
    if modalities:
        raise UsageError(
            f"{type(model).__name__} is a model of {', '.join([*sorted(modalities), 'text'])}, which {task} "
            "does not support: export it with opsetta.export, or its text model by itself"
        )


def task_of(config: PretrainedConfig) -> Task:
    """The task of the architecture that a configuration names.

    Raises:
        UsageError: it names none, or one without a task that is supported.
    """
    architectures = list(getattr(config, "architectures", None) or [])
    for architecture in architectures:
        for mapping in ("mapping", "encoder_mapping"):
            for task in TASKS.values():
                names = _architectures(getattr(task, mapping)).values()
                if any(architecture in ([name] if isinstance(name, str) else name) for name in names):
                    return task
    architecture_text = f"the architecture {architectures[0]}" if architectures else "no architecture"
    raise UsageError(
        f"config.json names {architecture_text}, which has no default task: pass one of {', '.join(TASKS)}"
    )


def _architectures(mapping: str | None) -> dict[str, str | Iterable[str]]:
    """The architectures of each model type in a table of transformers; none without a table."""
    tables = importlib.import_module("transformers.models.auto.modeling_auto")
    return {} if mapping is None else dict(getattr(tables, mapping))
