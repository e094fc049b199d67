"""Hugging Face folders: configurations, and the files that are copied to an exported model."""

from __future__ import annotations

import fnmatch
import functools
import os
import pathlib
import shutil
from typing import IO, Any

from ...registration import ModelFileError
from ...registration.json_text import parse_json
from ..files.output.publishing import publish
from ..files.small_files import read_small, reason_of

CONFIG = "config.json"
_COPIED = (
    CONFIG,
    "generation_config.json",
    "tokenizer*",
    "special_tokens_map.json",
    "added_tokens.json",
    "*vocab*.json",
    "vocab.*",
    "merges.txt",
    "bpe.codes",
    "dict.txt",
    "normalizer.json",
    "tekken.json",
    "*.model",
    "*.spm",
    "*.tiktoken",
    "*preprocessor_config.json",
    "processor_config.json",
    "chat_template*",
    "config_sentence_transformers.json",
    "sentence_*_config.json",
)
"""Files that tokenizers, processors, generation and sentence-transformers read."""
_MODULES = "modules.json"
"""The list of the modules of a sentence-transformers model: pooling, normalization, dense layers."""
_CONFIGURATIONS = (CONFIG, "model_index.json", "adapter_config.json")
"""The configurations of models, of pipelines of diffusers and of adapters of peft."""


_TRANSFORMERS = {"Transformer": "feature-extraction", "MLMTransformer": "fill-mask"}
"""The classes of modules that hold the model of the folder, and what they take it for."""


def folder_at(path: str | os.PathLike[str]) -> pathlib.Path:
    """The folder at a path.

    Raises:
        ModelFileError: there is no folder with a configuration.
    """
    folder = pathlib.Path(os.fsdecode(path))
    if not folder.is_dir():
        raise ModelFileError(
            f"there is no folder '{folder}'; download models of the hub first: hf download NAME --local-dir "
            "FOLDER"
        )
    if not any((folder / name).is_file() for name in _CONFIGURATIONS):
        raise ModelFileError(f"'{folder}' is not the folder of a Hugging Face model: it has no {CONFIG}")
    return folder


def is_timm(folder: pathlib.Path) -> bool:
    """Whether the configuration of a folder is one of timm.

    Raises:
        ModelFileError: it cannot be read.
    """
    config = read_json(folder / CONFIG)
    return "architecture" in config and "model_type" not in config


def task_of_modules(folder: pathlib.Path) -> str | None:
    """What sentence-transformers takes the model for; None if the folder is not one of its models.

    From sentence-transformers 6 on, `sentence_bert_config.json` names it; before, the class of the module.

    Raises:
        ModelFileError: a file cannot be read.
    """
    path = folder / _MODULES
    if not path.is_file():
        return None
    first_module = next(iter(_modules(path)), {"path": None})
    name = str(first_module.get("type", "Transformer")).rpartition(".")[2]
    # Modules after the first, such as pooling, work on its result; the model is the first one.
    if first_module["path"] != "" or name not in _TRANSFORMERS:
        return None
    for settings in sorted(folder.glob("sentence_*_config.json")):
        task = read_json(settings).get("transformer_task")
        if task is not None:
            return str(task)
    return _TRANSFORMERS[name]


def module_settings(folder: pathlib.Path) -> list[tuple[str, dict[str, Any]]] | None:
    """The classes and settings of the modules of a sentence-transformers model, after the model itself.

    None if the folder is not that of such a model.

    Raises:
        ModelFileError: a file cannot be read, or a module is outside of the folder.
    """
    path = folder / _MODULES
    if not path.is_file():
        return None
    _module_folders(path)
    return [
        (
            str(module.get("type", "")).rpartition(".")[2],
            # Normalization has no settings, and often no folder.
            read_json(folder / module["path"] / CONFIG),
        )
        for module in _modules(path)[1:]
    ]


def read_json(path: pathlib.Path) -> dict[str, Any]:
    """The object in a JSON file; an empty one if there is no file.

    Raises:
        ModelFileError: it cannot be read, or holds something else.
    """
    try:
        content = parse_json(read_small(path))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise ModelFileError(f"'{path}' cannot be read: {reason_of(error)}") from error
    if not isinstance(content, dict):
        raise ModelFileError(f"'{path}' does not contain a JSON object")
    return content


def copy_files(source: pathlib.Path, target: pathlib.Path) -> list[str]:
    """Copy the files of tokenizers, processors, configurations, and modules of sentence-transformers.

    Returns:
        Their paths in the folder, in order.

    Raises:
        ModelFileError: one cannot be read or written, or modules.json names a folder outside of `source`.
    """
    names = [
        path.name
        for path in source.iterdir()
        if path.is_file() and any(fnmatch.fnmatchcase(path.name, pattern) for pattern in _COPIED)
    ]
    names = sorted([*names, *_module_files(source)])
    if target.exists() and source.samefile(target):
        return names
    for name in names:
        copy_file(source / name, target / name)
    return names


def copy_file(source: pathlib.Path, target: pathlib.Path) -> None:
    """Copy a file, unless both are one and the same.

    Raises:
        ModelFileError: it cannot be read or written.
    """
    if target.exists() and source.samefile(target):
        return
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ModelFileError(f"the folder of '{target}' cannot be made: {error}") from error
    publish(target, functools.partial(_copy, source))


def _module_files(source: pathlib.Path) -> list[str]:
    """modules.json and the files of its modules, if the folder is that of a sentence-transformers model."""
    if not (source / _MODULES).is_file():
        return []
    names = [_MODULES]
    for folder in _module_folders(source / _MODULES):
        for path in sorted((source / folder).rglob("*")):
            if path.is_file():
                names.append(path.relative_to(source).as_posix())
    return names


def _module_folders(path: pathlib.Path) -> list[str]:
    """The folders of the modules besides the model itself, whose folder is the whole one."""
    folders = [module["path"] for module in _modules(path) if module["path"]]
    for folder in folders:
        # The paths come from a file that may be untrusted, and what they name is copied.
        pure = pathlib.PurePosixPath(folder)
        if pure.is_absolute() or ".." in pure.parts or "\\" in folder or pure.parts == ():
            raise ModelFileError(f"'{path}' names a folder outside of its own: {folders}")
    return list(dict.fromkeys(folders))


def _modules(path: pathlib.Path) -> list[dict[str, Any]]:
    """The modules that a modules.json lists.

    Raises:
        ModelFileError: it cannot be read, or is not a list of objects with a path.
    """
    try:
        modules = parse_json(read_small(path))
    except (OSError, ValueError) as error:
        raise ModelFileError(f"'{path}' cannot be read: {reason_of(error)}") from error
    if not isinstance(modules, list) or not all(
        isinstance(module, dict) and isinstance(module.get("path"), str) for module in modules
    ):
        raise ModelFileError(f"'{path}' is not a list of modules, each with a path")
    return modules


def _copy(path: pathlib.Path, file: IO[bytes], location: str | None) -> None:
    try:
        with open(path, "rb") as source:
            shutil.copyfileobj(source, file)
    except OSError as error:
        raise ModelFileError(f"'{path}' cannot be copied: {error}") from error
