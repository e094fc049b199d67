"""The tasks of models, and the task of a configuration."""

from __future__ import annotations

import dataclasses
import difflib
import importlib
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
    said = f"the architecture {architectures[0]}" if architectures else "no architecture"
    raise UsageError(f"config.json names {said}, which has no default task: pass one of {', '.join(TASKS)}")
