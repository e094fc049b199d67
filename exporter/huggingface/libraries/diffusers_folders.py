"""Folders of diffusers: a pipeline with several models, or one of its models."""

from __future__ import annotations

import pathlib
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ....registration import ModelFileError, UsageError
from ....registration.warning import warn
from ..folder import CONFIG, copy_file, read_json
from ..model_folders import Loaded, load_lazily, missing_weights, need_transformers, translate_errors
from ..packages import need_package
from ..quantized.loading import LoadingInfo
from .diffusers_models import DIFFUSERS_CLASSES, TEXT_ENCODERS, Calls, calls_of

if TYPE_CHECKING:
    from transformers import PreTrainedModel

PIPELINE = "model_index.json"
"""The list of the models of a pipeline."""
_TASKS = ("text-to-image", "image-to-image", "inpainting")
"""What pipelines do; the files are the same for all."""
_NOT_NEEDED = frozenset({"safety_checker", "image_encoder"})
"""Models of pipelines without which they make the same images."""


def is_diffusers(folder: pathlib.Path) -> bool:
    """Whether a folder is that of a pipeline of diffusers, or of one of its models.

    Raises:
        ModelFileError: a configuration cannot be read.
    """
    return (folder / PIPELINE).is_file() or "_diffusers_version" in read_json(folder / CONFIG)


class DiffusersFolder:
    """The models of a folder of diffusers.

    Attributes:
        folder: of the pipeline or of the model.
        task: the name of the class of the pipeline or of the model.
        entries: no entries of JSON files are changed.
    """

    def __init__(self, folder: pathlib.Path, task: str | None) -> None:
        """Read which models there are.

        Args:
            folder: of the pipeline or of the model.
            task: which the user requests.

        Raises:
            ModelFileError: a file cannot be read.
            UsageError: a model is not supported.
            OpsettaError: diffusers is not installed.
        """
        need_package("diffusers", "folders of diffusers")
        if task is not None and task not in _TASKS:
            raise UsageError(
                f"a folder of diffusers has no task {task}: leave it out, or pass one of {', '.join(_TASKS)}"
            )
        self.folder = folder
        self.entries: dict[str, dict[str, object]] = {}
        index = read_json(folder / PIPELINE)
        self.task = str(index.get("_class_name") or read_json(folder / CONFIG).get("_class_name", ""))
        self._classes = _classes_of(folder, index) if index else {"": self.task}
        if "" in self._classes:
            _check_class(self.task, folder)

    def load_calls(self, dtype: str) -> Iterator[tuple[Loaded, Calls]]:
        """The models, each with its files.

        Args:
            dtype: of weights and activations, as torch calls it.

        Raises:
            ModelFileError, UsageError, CaptureError: a model cannot be loaded.
        """
        for name, class_name in self._classes.items():
            folder = self.folder / name
            with translate_errors(folder, class_name, self.task):
                loaded = _load(folder, class_name, dtype)
            yield loaded, calls_of(loaded.model, name, class_name)

    def copy_files(self, target: pathlib.Path) -> list[str]:
        """Copy the configurations of models, and the folders of tokenizers, processors and schedulers.

        Returns:
            Their paths in the folder, in order.

        Raises:
            ModelFileError: one cannot be read or written.
        """
        sources: dict[str, pathlib.Path] = {}
        if (self.folder / PIPELINE).is_file():
            sources[PIPELINE] = self.folder / PIPELINE
        for name in read_json(self.folder / PIPELINE):
            folder = self.folder / name
            # A model has a configuration of this name; a tokenizer, a processor or a scheduler has another.
            if folder.is_dir() and not (folder / CONFIG).is_file():
                sources |= {
                    path.relative_to(self.folder).as_posix(): path
                    for path in folder.rglob("*")
                    if path.is_file()
                }
        for name, class_name in self._classes.items():
            config = self.folder / name / CONFIG
            is_autoencoder = class_name.startswith("Autoencoder")
            # optimum reads a configuration beside each file.
            for part in ("vae_encoder", "vae_decoder") if is_autoencoder else (name,):
                sources[pathlib.PurePosixPath(part, CONFIG).as_posix()] = config
        for path, source in sources.items():
            copy_file(source, target / path)
        return sorted(sources)


def _classes_of(folder: pathlib.Path, index: dict[str, object]) -> dict[str, str]:
    """The classes of the models of a pipeline by their names, in order.

    Raises:
        ModelFileError: model_index.json has another form.
        UsageError: a model has a class that is not supported.
    """
    classes: dict[str, str] = {}
    left_out = []
    for name, entry in index.items():
        if name.startswith("_") or not isinstance(entry, list) or len(entry) != 2 or entry[1] is None:
            continue
        # The names are those of folders, and the file may be untrusted.
        if not re.fullmatch(r"\w+", name):
            raise ModelFileError(f"'{folder / PIPELINE}' names a folder outside of its own: {name!r}")
        # Schedulers, tokenizers and processors have configurations of other names.
        if not (folder / name / CONFIG).is_file():
            continue
        if name in _NOT_NEEDED:
            left_out.append(name)
            continue
        _check_class(str(entry[1]), folder / name)
        classes[name] = str(entry[1])
    if left_out:
        warn(f"these models of '{folder}' are not exported: {', '.join(left_out)}")
    if not classes:
        raise ModelFileError(f"'{folder / PIPELINE}' lists no model")
    return classes


def _check_class(class_name: str, folder: pathlib.Path) -> None:
    """Refuse a class that is not supported.

    Raises:
        UsageError: the message names those that are.
    """
    if class_name not in DIFFUSERS_CLASSES and class_name not in TEXT_ENCODERS:
        raise UsageError(
            f"'{folder}' contains a model of the class {class_name}, which is not supported for diffusers; "
            f"supported are {', '.join([*DIFFUSERS_CLASSES, *TEXT_ENCODERS])}. Load it with its "
            "from_pretrained, and export it with opsetta.export"
        )


def _load(folder: pathlib.Path, class_name: str, dtype: str) -> Loaded:
    import torch

    is_text_encoder = class_name in TEXT_ENCODERS
    library = need_transformers() if is_text_encoder else need_package("diffusers", "folders of diffusers")
    model_class = getattr(library, class_name)
    config = (
        model_class.config_class.from_pretrained(folder)
        if is_text_encoder
        else model_class.load_config(folder, local_files_only=True)
    )
    if dtype == "float16" and not is_text_encoder and config.get("force_upcast"):
        # Activations of the autoencoder of Stable Diffusion XL are larger than the largest float16.
        dtype = "float32"
    torch_dtype = getattr(torch, dtype)

    def build() -> PreTrainedModel:
        model: PreTrainedModel = (model_class if is_text_encoder else model_class.from_config)(config)
        # The method of diffusers warns of modules that stay in float32, also where there are none.
        torch.nn.Module.to(model, torch_dtype)
        return model

    def load_weights() -> tuple[PreTrainedModel, LoadingInfo]:
        model, loading_info = model_class.from_pretrained(
            folder, torch_dtype=torch_dtype, local_files_only=True, output_loading_info=True
        )
        return model, loading_info

    if getattr(model_class, "_keep_in_fp32_modules", None) and torch_dtype != torch.float32:
        model, loading_info = load_weights()
        return Loaded(model.eval(), None, folder, missing_weights(model, loading_info))
    return load_lazily(folder, build, load_weights)
