"""Zoos in Python files: a registry `MODELS` of factories, or a factory in each public function."""

from __future__ import annotations

import inspect
import os
import pathlib
import sys
import threading
import traceback
import types
from collections.abc import Callable, Iterator, Mapping

from ....registration import OpsettaError
from ...captured_graph.code_lines import shown_file, shown_line
from ...factories import Example, example_of, load_file
from .listing import Entry, Zoo, digest_of

_REGISTRY = "MODELS"
Factory = Callable[..., object]


def list_models(path: str) -> Zoo:
    """List the models of a Python file. Runs the file, so call it in a separate process.

    Raises:
        OpsettaError: there is no such file, it fails, or it has no models.
    """
    modules_before, threads = set(sys.modules), _thread_count()
    module = load_file(path)
    factories = _factories(path, module)
    digest = _digest(path, modules_before)
    # A process with threads cannot be forked, so it must not import what starts them.
    starts_threads = _thread_count() > threads
    imports = () if starts_threads else tuple(_libraries(set(sys.modules) - modules_before))
    models = {name: Entry(tuple(_parameters(factory)), digest) for name, factory in factories.items()}
    return Zoo(path, True, models, imports)


def list_models_or_error(path: str) -> Zoo | str:
    """List the models as `list_models` does; return an error of the file as its message, with the line."""
    try:
        return list_models(path)
    except OpsettaError as error:
        trace = None if error.__cause__ is None else error.__cause__.__traceback__
        frames = traceback.extract_tb(trace)
        position = f" (at {shown_line(frames[-1].filename, frames[-1].lineno or 0)})" if frames else ""
        return f"{error}{position}" if not isinstance(error.__cause__, SyntaxError) else str(error)


def example_from(path: str, digest: str, name: str, sizes: Mapping[str, int]) -> Example:
    """Make a model of a zoo, and the arguments to call it with.

    Args:
        digest: that of the file when it was listed.

    Raises:
        OpsettaError: the file is another than was listed, or the factory fails.
    """
    modules_before = set(sys.modules)
    module = load_file(path)
    if _digest(path, modules_before) != digest:
        raise OpsettaError(f"'{path}' changed since the sweep began: start the sweep again")
    # Results of a sweep name no folder of the machine.
    return example_of(f"{shown_file(path)}:{name}", _factories(path, module)[name], **sizes)


def _factories(path: str, module: types.ModuleType) -> dict[str, Factory]:
    registry = getattr(module, _REGISTRY, None)
    if registry is None:
        factories = {name: item for name, item in vars(module).items() if _is_factory(name, item, module)}
        if not factories:
            raise OpsettaError(
                f"'{path}' has no models: it needs MODELS, a dict from names to factories, or a public "
                "function without required parameters for each model"
            )
        return factories
    if not isinstance(registry, Mapping) or not registry:
        raise OpsettaError(
            f"{_REGISTRY} in '{path}' must be a dict from names to factories, with at least one entry"
        )
    for name, factory in registry.items():
        if not isinstance(name, str) or not callable(factory) or list(_required_parameters(factory)):
            raise OpsettaError(
                f"{_REGISTRY}[{name!r}] in '{path}' is not a factory: each name has a function without "
                "required parameters, which returns (model, args), (model, args, kwargs) or a dict"
            )
    return dict(registry)


def _is_factory(name: str, item: object, module: types.ModuleType) -> bool:
    if not inspect.isfunction(item) or item.__module__ != module.__name__ or name.startswith("_"):
        return False
    return not list(_required_parameters(item))


def _required_parameters(factory: Factory) -> Iterator[str]:
    """The required parameters of a factory."""
    for parameter in inspect.signature(factory).parameters.values():
        is_variadic = parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        if parameter.default is parameter.empty and not is_variadic:
            yield parameter.name


def _parameters(factory: Factory) -> Iterator[str]:
    """The parameters that sizes can be given for."""
    for parameter in inspect.signature(factory).parameters.values():
        if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            yield parameter.name


def _digest(path: str, modules_before: set[str]) -> str:
    """The digest of a file, and of the files that it imported from its own folder.

    Args:
        modules_before: the modules that were imported before the file was run.
    """
    file = pathlib.Path(path).resolve()
    beside = {
        pathlib.Path(module_path).resolve()
        for name in set(sys.modules) - modules_before
        if name.partition(".")[0] != "opsetta" and (module_path := _module_path(name))
    }
    inside = [
        path_beside
        for path_beside in beside
        if file.parent in path_beside.parents and not _is_library(path_beside)
    ]
    return digest_of(
        [
            file,
            *sorted(path_beside for path_beside in inside if path_beside != file and path_beside.is_file()),
        ]
    )


def _libraries(names: set[str]) -> Iterator[str]:
    """The installed packages among modules."""
    for name in sorted(names):
        if "." not in name and _is_library(pathlib.Path(_module_path(name))):
            yield name


def _module_path(name: str) -> str:
    """The file of an imported module; empty if it has none."""
    return getattr(sys.modules.get(name), "__file__", None) or ""


def _is_library(file: pathlib.Path) -> bool:
    return "site-packages" in file.parts or "dist-packages" in file.parts


def _thread_count() -> int:
    """The number of threads of this process; only Python's threads if the system does not report it."""
    try:
        return len(os.listdir("/proc/self/task"))
    except OSError:
        return threading.active_count()
