"""Adapters of peft, such as LoRA, which are merged into the weights of their base model."""

from __future__ import annotations

import dataclasses
import os
import pathlib
from collections.abc import Mapping
from typing import TYPE_CHECKING

import onnx_ir as ir

from ....registration import UsageError
from ..folder import CONFIG, folder_at, read_json
from ..model_folders import Loaded, missing_weights, need_transformers, translate_errors
from ..packages import need_package
from ..tasks.record import Task
from ..tasks.selection import auto_class_of
from .adapter_inputs import ADAPTER, adapter_weights, check_matrices, matrix_modules, read_matrices

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedModel

_BASE_WEIGHTS = ("model*.safetensors", "pytorch_model*.bin")
_TASKS = {
    "CAUSAL_LM": "text-generation",
    "SEQ_CLS": "text-classification",
    "TOKEN_CLS": "token-classification",
    "QUESTION_ANS": "question-answering",
    "FEATURE_EXTRACTION": "feature-extraction",
}
"""The tasks of peft; the others have the task of their base model."""


@dataclasses.dataclass(frozen=True)
class Adapter:
    """An adapter, with the model that it changes.

    Attributes:
        folder: of the adapter.
        base: the folder of the base model.
        task: the name of its task; None for that of the base model.
        weights: its tensors, by their names in the base model, whose contents are not read.
    """

    folder: pathlib.Path
    base: pathlib.Path
    task: str | None
    weights: Mapping[str, ir.TensorProtocol]

    def complete_config(self, config: PretrainedConfig, task: Task) -> dict[str, object]:
        """Change the configuration of the base model to the sizes of the adapter's own weights.

        Adapters may bring a head with other classes, and embeddings for more tokens.

        Returns:
            What changed, as entries of config.json.
        """
        import torch

        auto = getattr(need_transformers(), auto_class_of(task, config))
        entries: dict[str, object] = {}
        with translate_errors(self.base, config.model_type, task.name), torch.device("meta"):
            model = auto.from_config(config)
        embeddings = model.get_input_embeddings()
        for name, parameter in model.named_parameters():
            tensor = self.weights.get(name)
            if tensor is None or tuple(tensor.shape.numpy()) == tuple(parameter.shape):
                continue
            rows = int(tensor.shape.numpy()[0])
            if embeddings is not None and parameter is embeddings.weight:
                config.get_text_config(decoder=True).vocab_size = entries["vocab_size"] = rows
            # A head has a row for each class.
            elif parameter.shape[0] == config.num_labels:
                config.num_labels = rows
                entries |= {"id2label": config.id2label, "label2id": config.label2id}
        return entries

    def load(self, config: PretrainedConfig, task: Task, dtype: str, *, merges: bool = True) -> Loaded:
        """The base model with the adapter in its weights, or beside them.

        Args:
            config: of the base model, with the sizes of the adapter.
            task: of the export.
            dtype: of weights and activations, as torch calls it.
            merges: whether its matrices are added to the weights.

        Raises:
            UsageError: the type of the model has no such task, or the adapter cannot be merged.
            ModelFileError, CaptureError: a file cannot be read.
        """
        import torch

        peft = need_package("peft", "adapters")
        auto = getattr(need_transformers(), auto_class_of(task, config))
        # Embeddings for more tokens are in the adapter: the base model has fewer.
        text_config = config.get_text_config(decoder=True)
        stored_config = type(config).from_pretrained(self.base, local_files_only=True)
        if config.num_labels is not None:
            stored_config.num_labels = config.num_labels
        with translate_errors(self.base, config.model_type, task.name):
            model, loading_info = auto.from_pretrained(
                self.base,
                config=stored_config,
                dtype=getattr(torch, dtype),
                local_files_only=True,
                output_loading_info=True,
            )
            missing = missing_weights(model, loading_info)
            if hasattr(text_config, "vocab_size"):
                stored_size = stored_config.get_text_config(decoder=True).vocab_size
                if text_config.vocab_size != stored_size:
                    model.resize_token_embeddings(text_config.vocab_size)
        with translate_errors(self.folder, config.model_type, task.name):
            adapted = peft.PeftModel.from_pretrained(model, str(self.folder), local_files_only=True)
            if not hasattr(adapted.base_model, "merge_and_unload"):
                name = getattr(adapted.active_peft_config.peft_type, "value", "")
                raise UsageError(
                    f"'{self.folder}' is an adapter of the type {name}, which cannot be merged into the "
                    "weights: export the model with opsetta.export"
                )
            if merges:
                changed: PreTrainedModel = adapted.merge_and_unload()
            else:
                changed = adapted.get_base_model()
                check_matrices(self.folder, read_matrices(self.folder), set(matrix_modules(changed)))
        # The base model of a classifier lacks the head, which the adapter has.
        return Loaded(changed.eval(), None, self.base, missing.difference(self.weights))


def is_adapter(folder: pathlib.Path) -> bool:
    """Whether a folder contains an adapter of peft."""
    return (folder / ADAPTER).is_file()


def read_adapter(folder: pathlib.Path, base_model: str | os.PathLike[str] | None) -> Adapter:
    """Read what an adapter changes, without its weights.

    Args:
        folder: of the adapter.
        base_model: the folder of the base model; by default the one that the adapter names.

    Raises:
        ModelFileError: a file is missing or cannot be read.
        UsageError: the base model is not on this machine.
        OpsettaError: peft is not installed.
    """
    need_package("peft", "adapters")
    settings = read_json(folder / ADAPTER)
    weights = adapter_weights(folder)
    has_base_weights = any(any(folder.glob(pattern)) for pattern in _BASE_WEIGHTS)
    base = folder
    if base_model is not None or not has_base_weights:
        base = _base_folder(folder, settings.get("base_model_name_or_path"), base_model)
    if is_adapter(base):
        # transformers would add this adapter too when it loads the base model.
        raise UsageError(
            f"the folder of the base model, '{base}', contains an adapter itself ({ADAPTER}): move the files "
            "of the adapter to a folder of their own, and pass --base-model"
        )
    return Adapter(folder, base, _TASKS.get(str(settings.get("task_type"))), weights)


def _base_folder(
    folder: pathlib.Path, name: object, base_model: str | os.PathLike[str] | None
) -> pathlib.Path:
    """The folder of the base model: the given one, the named one, or the one in the cache of the hub.

    Raises:
        ModelFileError: the given folder has no model.
        UsageError: there is none on this machine.
    """
    if base_model is not None:
        return folder_at(base_model)
    if isinstance(name, str) and (pathlib.Path(name) / CONFIG).is_file():
        return pathlib.Path(name)
    hub = need_package("huggingface_hub", "adapters")
    try:
        return pathlib.Path(hub.snapshot_download(str(name), local_files_only=True))
    # ValueError: the name is not one of the hub.
    except (OSError, ValueError) as error:
        raise UsageError(
            f"the base model of the adapter in '{folder}' is {name}, which is not on this machine: download "
            "it with hf download, and pass its folder with --base-model"
        ) from error
