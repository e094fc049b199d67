"""A model of transformers in a folder, with an adapter in its weights if there is one."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Iterator

import onnx_ir as ir

from ...registration import UsageError
from .caches.cache_settings import DYNAMIC_FULL, CacheSettings
from .folder import copy_files, folder_at, task_of_modules
from .graphs import ExampleCall, GraphFile, TaskModel
from .libraries.adapter_inputs import matrix_modules, read_matrices, set_defaults, with_matrices
from .libraries.adapters import Adapter, is_adapter, read_adapter
from .model_folders import Loaded, load, read_config
from .quantized.method import method_of
from .tasks.selection import task_named, task_of, task_of_sentences

_WHOLE_CACHE = CacheSettings()


class TransformersFolder:
    """The model of a folder and its task.

    Attributes:
        folder: with config.json and the weights; that of the base model for an adapter.
        adapter: which is merged into the weights.
        config: of the model, with the sizes of the adapter.
        is_quantized: whether the checkpoint has integers as weights.
        record: of the task.
        entries: of JSON files, which the adapter changes.
        cache: the form of the cache of a decoder.
    """

    def __init__(
        self,
        folder: pathlib.Path,
        task: str | None,
        base_model: str | os.PathLike[str] | None,
        cache: CacheSettings = _WHOLE_CACHE,
        *,
        merges_adapter: bool = True,
    ) -> None:
        """Read the configuration, and choose the task.

        Args:
            folder: of the model or of an adapter.
            task: the name of the task; by default that of the adapter, of the modules of
                sentence-transformers or of the architecture.
            base_model: the folder of the base model of an adapter.
            cache: the form of the cache of a decoder.
            merges_adapter: whether an adapter is added to the weights, instead of the inputs.

        Raises:
            ModelFileError: a file cannot be read.
            UsageError: the model has no such task, or there is a base model without an adapter.
            OpsettaError: a package is not installed.
        """
        self.adapter: Adapter | None = None
        self.folder = folder
        self.cache = cache
        if is_adapter(folder):
            self.adapter = read_adapter(folder, base_model)
            self.folder = self.adapter.base
        elif base_model is not None:
            raise UsageError(f"'{folder}' contains no adapter, so it has no base model: leave it out")
        elif not merges_adapter:
            raise UsageError(f"'{folder}' contains no adapter: leave out adapter='inputs'")
        self.merges_adapter = merges_adapter
        self.config = read_config(folder_at(self.folder))
        self.is_quantized = method_of(self.folder) is not None
        if self.is_quantized and self.adapter is not None:
            raise UsageError(
                f"the weights of the base model '{self.folder}' are quantized, so the adapter cannot be "
                "merged into them: pass --base-model with the original weights"
            )
        # The task of an adapter is stated in its own file, and may differ from that of its base model.
        name = task or (self.adapter.task if self.adapter is not None else None)
        module_task = task_of_modules(self.folder)
        if name is not None:
            self.record = task_named(name, self.config)
        # sentence-transformers makes vectors of models that generate.
        elif module_task is not None:
            self.record = task_of_sentences(module_task)
        else:
            self.record = task_of(self.config)
        self.entries: dict[str, dict[str, object]] = {}
        if self.adapter is not None:
            changes = self.adapter.complete_config(self.config, self.record)
            self.entries = {"config.json": changes} if changes else {}
        if cache.implementation != DYNAMIC_FULL and self.record.name != "text-generation":
            raise UsageError(
                f"cache_implementation is for text-generation, not for {self.record.name}: leave it out"
            )

    @property
    def task(self) -> str:
        """The name of the task."""
        return self.record.name

    def load_calls(self, dtype: str) -> Iterator[tuple[Loaded, list[tuple[GraphFile, ExampleCall]]]]:
        """The model with its files.

        Args:
            dtype: of weights and activations, as torch calls it.

        Raises:
            UsageError: the type of the model has no such task.
            ModelFileError, CaptureError: the weights cannot be read.
        """
        if self.adapter is not None:
            loaded = self.adapter.load(self.config, self.record, dtype, merges=self.merges_adapter)
        else:
            loaded = load(self.folder, self.config, self.record, dtype)
        calls = self.record.example_calls(TaskModel(loaded.model, self.config, self.folder, self.cache))
        if not self.merges_adapter:
            modules = matrix_modules(loaded.model)
            calls = [with_matrices(file, example, modules) for file, example in calls]
        yield loaded, calls

    def set_defaults(self, model: ir.Model) -> None:
        """Give the inputs for an adapter the values of the folder's adapter.

        Raises:
            UsageError, ModelFileError: as for `read_matrices`.
        """
        if self.adapter is not None and not self.merges_adapter:
            set_defaults(model, read_matrices(self.adapter.folder))

    def copy_files(self, target: pathlib.Path) -> list[str]:
        """Copy the files of tokenizers, processors and configurations; those of an adapter come last.

        Returns:
            Their paths in the folder, in order.

        Raises:
            ModelFileError: one cannot be read or written.
        """
        copied = copy_files(self.folder, target)
        if self.adapter is not None and not self.folder.samefile(self.adapter.folder):
            copied = sorted({*copied, *copy_files(self.adapter.folder, target)})
        return copied
