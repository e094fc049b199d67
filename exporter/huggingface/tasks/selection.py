"""The task of a name or a configuration, and the class that builds its model."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from ....registration import UsageError
from .record import Task
from .table import TASKS

if TYPE_CHECKING:
    from transformers import PretrainedConfig

_SYNONYMS = {
    "audio-ctc": "automatic-speech-recognition",
    "causal-lm": "text-generation",
    "default": "feature-extraction",
    "image-feature-extraction": "feature-extraction",
    "masked-lm": "fill-mask",
    "pose-estimation": "keypoint-detection",
    "ner": "token-classification",
    "sentiment-analysis": "text-classification",
    "seq2seq-lm": "text2text-generation",
    "sequence-classification": "text-classification",
    "speech2seq-lm": "automatic-speech-recognition",
    "summarization": "text2text-generation",
    "text-to-speech": "text-to-audio",
    "translation": "text2text-generation",
    "vision2seq-lm": "image-to-text",
    "vqa": "visual-question-answering",
    "zero-shot-classification": "text-classification",
}
"""Other names of tasks, in optimum and in pipelines of transformers."""
_WITH_PAST = "-with-past"
"""What optimum appends to the tasks whose files have a cache; ours always have one."""
_NEXT_STEPS = {
    "pretraining": "pass feature-extraction",
    "table-question-answering": "export the model with opsetta.export",
}
"""Tasks of optimum and transformers that are not supported, and what to do instead."""


_QUESTIONS = ("visual-question-answering", "document-question-answering")
_GENERATES_ANSWERS = ("image-text-to-text", "image-to-text")
"""The tasks of models that generate text about images, of which the second one is for encoder-decoders."""
_GENERATES_FROM_SOUNDS = "audio-text-to-text"
_ENCODES_SOUNDS = ("automatic-speech-recognition", "text2text-generation")
"""The tasks of encoder-decoders whose tables list decoders that read sounds as embeddings, too."""
_ENCODES_IMAGES = ("blip",)
"""Types with an encoder of images, although their configuration does not say that they have an encoder."""


def task_named(name: str, config: PretrainedConfig) -> Task:
    """The record of a task for the models of a configuration.

    Raises:
        UsageError: there is no task of this name.
    """
    without_past = str(name).removesuffix(_WITH_PAST)
    task_name = _SYNONYMS.get(without_past, without_past)
    if task_name in _NEXT_STEPS:
        raise UsageError(f"the task {task_name} is not supported: {_NEXT_STEPS[task_name]}")
    outputs = [output for task in TASKS.get(task_name, ()) for output in task.files[-1].outputs]
    has_past = any("{layer}" in output for output in outputs)
    if not outputs or (without_past != name and not has_past):
        close = difflib.get_close_matches(str(name), [*TASKS, *_SYNONYMS], 1)
        hint = f" (did you mean '{close[0]}'?)" if close else ""
        raise UsageError(f"there is no task '{name}'{hint}; there are {', '.join(TASKS)}")
    answers_questions = task_name in _QUESTIONS and not _has_type(TASKS[task_name], config)
    if answers_questions or task_name in _GENERATES_ANSWERS:
        generating = [record for answers in _GENERATES_ANSWERS for record in TASKS[answers]]
        fitting = tuple(record for record in generating if _encodes_as(record, config))
        if _has_type(fitting, config):
            return _record_of(fitting, config)
    if task_name in _ENCODES_SOUNDS:
        decoders = tuple(record for record in TASKS[_GENERATES_FROM_SOUNDS] if _encodes_as(record, config))
        if _has_type(decoders, config):
            return _record_of(decoders, config)
    return _record_of(TASKS[task_name], config)


def _has_type(records: Iterable[Task], config: PretrainedConfig) -> bool:
    """Whether one of some records is for models of the type of a configuration."""
    return any(config.model_type in _architectures(record) for record in records)


def _encodes_as(record: Task, config: PretrainedConfig) -> bool:
    """Whether a record is for the kind of model that a configuration describes.

    That is an encoder-decoder, a decoder that reads sounds, or another model.
    """
    if record.name == _GENERATES_FROM_SOUNDS and not _has_type((record,), config):
        return False
    is_encoder_decoder = getattr(config, "is_encoder_decoder", False) or config.model_type in _ENCODES_IMAGES
    return record.encodes_inputs in (None, bool(is_encoder_decoder))


def _record_of(records: tuple[Task, ...], config: PretrainedConfig) -> Task:
    """The record whose class builds the architecture of a configuration, or else some model of its type."""
    for record in records:
        if _has_architecture(_architectures(record), config):
            return record
    for record in records:
        if config.model_type in _architectures(record):
            return record
    return records[0]


def auto_class_of(task: Task, config: PretrainedConfig) -> str:
    """The class of transformers that builds the model for a task.

    The features of an encoder-decoder are those of its encoder, if transformers has a class for it.
    """
    if task.encoder_class is not None:
        encoder = _table(task.encoder_mapping).get(config.model_type)
        is_encoder = encoder in (getattr(config, "architectures", None) or [])
        if encoder is not None and (is_encoder or getattr(config, "is_encoder_decoder", False)):
            return task.encoder_class
    return task.auto_class


def task_of_sentences(name: str) -> Task:
    """The task for a model of sentence-transformers.

    Raises:
        UsageError: its modules need the results of another task.
    """
    for records in TASKS.values():
        for task in records:
            if task.sentence_transformers_name == name:
                return task
    raise UsageError(
        f"the modules of the folder need a model for {name}, which is not supported: pass one of "
        f"{', '.join(TASKS)}"
    )


def task_of(config: PretrainedConfig) -> Task:
    """The task of the architecture that a configuration names.

    Raises:
        UsageError: it names none, or one without a task that is supported.
    """
    tasks = [task for records in TASKS.values() for task in records]
    for task in tasks:
        if _encodes_as(task, config) and _has_architecture(_architectures(task), config):
            return task
    for task in tasks:
        if _has_architecture(_table(task.encoder_mapping), config):
            return task
    architectures = list(getattr(config, "architectures", None) or [])
    architecture_text = f"the architecture {architectures[0]}" if architectures else "no architecture"
    raise UsageError(
        f"config.json names {architecture_text}, which has no default task: pass one of {', '.join(TASKS)}"
    )


def _has_architecture(table: Mapping[str, str | Iterable[str]], config: PretrainedConfig) -> bool:
    """Whether a table of transformers has an architecture that a configuration names."""
    architectures = set(getattr(config, "architectures", None) or [])
    return any(
        architectures.intersection([names] if isinstance(names, str) else names) for names in table.values()
    )


def _architectures(task: Task) -> Mapping[str, str | Iterable[str]]:
    """The architectures with a task, by the type of the model."""
    table = _table(task.mapping)
    if task.model_type is None:
        return table
    return {task.model_type: table.get(task.model_type, task.auto_class)}


def _table(name: str | None) -> Mapping[str, str | Iterable[str]]:
    """A table of transformers with the architectures of each model type; an empty one without a name."""
    tables = importlib.import_module("transformers.models.auto.modeling_auto")
    # Older releases lack the tables of newer tasks.
    return {} if name is None else dict(getattr(tables, name, {}))
