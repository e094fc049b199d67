"""Examples from the factories of Python files: a model, its arguments, and options of `export`."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.util
import os
import pathlib
import sys
import types
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ..registration import OpsettaError
from ..registration.printable import one_line
from .export_arguments import ExportableModel

if TYPE_CHECKING:
    import torch

_OPTIONS = frozenset(
    "capture dynamic_axes dynamic_shapes input_names mutations output_names strict weights".split()
)


@dataclasses.dataclass(frozen=True)
class Example:
    """The result of a factory: a model, example arguments, and options of `export`."""

    model: Callable[..., object] | torch.export.ExportedProgram
    args: tuple[object, ...]
    kwargs: dict[str, object]
    options: dict[str, Any]


def example_of(reference: str, factory: Callable[..., object], **sizes: int) -> Example:
    """Call a factory.

    Args:
        reference: the factory's name in errors.
        factory: returns `(model, args)`, `(model, args, kwargs)`, or a dict with these keys and options of
            `export`. The model may be the path of a file of `torch.jit.save` or `torch.export.save`.
        sizes: keyword arguments for the factory.

    Raises:
        OpsettaError: the factory raises an exception, or returns something else.
    """
    with report_failure(f"the factory '{reference}'"):
        result = factory(**sizes)
    return _example(reference, result)


def load_file(path: str) -> types.ModuleType:
    """Run a Python file as a module; it can import modules beside it.

    Raises:
        OpsettaError: the file does not exist, or it fails.
    """
    file = pathlib.Path(path)
    if not file.is_file():
        raise OpsettaError(f"there is no file '{path}'")
    specification = importlib.util.spec_from_file_location(file.stem, file.resolve())
    if specification is None or specification.loader is None:
        raise OpsettaError(f"'{path}' is not a Python file")
    module = importlib.util.module_from_spec(specification)
    folder = str(file.resolve().parent)
    # A script finds the modules beside it, and so must a file that is loaded like one.
    if folder not in sys.path:
        sys.path.insert(0, folder)
    # dataclasses look up their module in sys.modules.
    sys.modules.setdefault(file.stem, module)
    with report_failure(f"'{path}'"):
        specification.loader.exec_module(module)
    return module


@contextlib.contextmanager
def report_failure(subject: str) -> Iterator[None]:
    """Turn any exception of the user's code into a one-line error.

    Raises:
        OpsettaError: the code raised an exception.
    """
    try:
        yield
    except OpsettaError:
        raise
    except (Exception, SystemExit) as error:
        text = one_line(error)
        raise OpsettaError(f"{subject} raised {type(error).__name__}: {text}") from error


def _example(reference: str, result: object) -> Example:
    if isinstance(result, Mapping):
        return _from_mapping(reference, dict(result))
    if not isinstance(result, tuple) or len(result) not in (2, 3):
        raise OpsettaError(
            f"the factory '{reference}' must return (model, args), (model, args, kwargs) or a dict, "
            f"not {type(result).__name__}"
        )
    return _check_example(reference, result[0], result[1], result[2] if len(result) == 3 else {}, {})


def _from_mapping(reference: str, result: dict[str, Any]) -> Example:
    if "model" not in result:
        raise OpsettaError(f"the factory '{reference}' returned a dict without 'model'")
    model, args, kwargs = result.pop("model"), result.pop("args", ()), result.pop("kwargs", None) or {}
    unknown = sorted(str(key) for key in result if key not in _OPTIONS)
    if unknown:
        raise OpsettaError(
            f"the factory '{reference}' returned a dict with unknown keys: {', '.join(unknown)} "
            f"(known: model, args, kwargs, {', '.join(sorted(_OPTIONS))})"
        )
    return _check_example(reference, model, args, kwargs, result)


def _check_example(
    reference: str, model: ExportableModel, args: object, kwargs: object, options: dict[str, object]
) -> Example:
    if isinstance(model, (str, os.PathLike)):
        from .capture import torchscript

        model = torchscript.load(model)
    if not callable(model) and not hasattr(model, "graph_signature"):
        raise OpsettaError(f"the factory '{reference}' returned a {type(model).__name__} instead of a model")
    if not isinstance(kwargs, Mapping):
        raise OpsettaError(
            f"the factory '{reference}' returned a {type(kwargs).__name__} instead of a dict of kwargs"
        )
    positional = tuple(args) if isinstance(args, (tuple, list)) else (args,)
    return Example(model, positional, dict(kwargs), options)
