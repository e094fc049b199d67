"""Loads models for the command line: from a factory, `PATH.py:function`, or a TorchScript file."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.util
import os
import pathlib
import sys
import types
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ...registration import OpsettaError

_OPTIONS = frozenset(
    "capture dynamic_axes dynamic_shapes input_names mutations output_names strict weights".split()
)


@dataclasses.dataclass(frozen=True)
class Example:
    """The result of a factory: a model, example arguments, and options of `export`."""

    model: Any
    args: tuple
    kwargs: dict[str, Any]
    options: dict[str, Any]


def load_example(reference: str, inputs: Sequence[str] = ()) -> Example:
    """Call the factory, or load the TorchScript file, that `reference` names.

    Args:
        reference: `PATH.py:function`, or the path of a file that `torch.jit.save` wrote. The function takes
            no arguments and returns `(model, args)`, `(model, args, kwargs)`, or a dict with these keys and
            options of `export`. The model may be such a path.
        inputs: descriptions of a TorchScript file's inputs, for `example_inputs`.

    Raises:
        OpsettaError: the file, the function, its result, or an input is invalid.
    """
    path, separator, name = reference.rpartition(":")
    if not reference.endswith(".py") and not path.endswith(".py"):
        return _example_of_file(reference, inputs)
    if not separator or not path or not name:
        raise OpsettaError(f"'{reference}' does not name a factory: write PATH.py:function")
    if inputs:
        raise OpsettaError(f"--input is for TorchScript files; the factory '{reference}' makes its arguments")
    factory = getattr(load_file(path), name, None)
    if not callable(factory):
        raise OpsettaError(f"'{path}' has no function '{name}'")
    with explained(f"the factory '{reference}'"):
        result = factory()
    return _example(reference, result)


def _example_of_file(path: str, inputs: Sequence[str]) -> Example:
    from ..capture import torchscript
    from .example_inputs import example_inputs

    model = torchscript.load(path)
    formal = model.forward.schema.arguments[1:]  # type: ignore[attr-defined]
    needed = sum(not argument.has_default_value() for argument in formal)
    if not needed <= len(inputs) <= len(formal):
        listed = ", ".join(f"{argument.name}: {argument.type}" for argument in formal)
        raise OpsettaError(
            f"'{path}' takes {len(formal)} inputs ({listed}), and there are {len(inputs)} --input: "
            "give each in order, such as --input 'float32[batch,3,224,224]'"
        )
    args, shapes = example_inputs(inputs)
    return Example(model, args, {}, {"dynamic_shapes": shapes} if any(shapes) else {})


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
    if folder not in sys.path:
        sys.path.insert(0, folder)
    # dataclasses look up their module in sys.modules.
    sys.modules.setdefault(file.stem, module)
    with explained(f"'{path}'"):
        specification.loader.exec_module(module)
    return module


@contextlib.contextmanager
def explained(what: str) -> Iterator[None]:
    """Turn any exception of the user's code into a one-line error.

    Raises:
        OpsettaError: `what` raised an exception.
    """
    try:
        yield
    except OpsettaError:
        raise
    except (Exception, SystemExit) as error:
        text = " ".join(str(error).split())
        raise OpsettaError(f"{what} raised {type(error).__name__}: {text}") from error


def _example(reference: str, result: Any) -> Example:
    if isinstance(result, Mapping):
        return _from_mapping(reference, dict(result))
    if not isinstance(result, tuple) or len(result) not in (2, 3):
        raise OpsettaError(
            f"the factory '{reference}' must return (model, args), (model, args, kwargs) or a dict, "
            f"not {type(result).__name__}"
        )
    return _checked(reference, result[0], result[1], result[2] if len(result) == 3 else {}, {})


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
    return _checked(reference, model, args, kwargs, result)


def _checked(reference: str, model: Any, args: Any, kwargs: Any, options: dict[str, Any]) -> Example:
    if isinstance(model, (str, os.PathLike)):
        from ..capture import torchscript

        model = torchscript.load(model)
    if not callable(model) and not hasattr(model, "graph_signature"):
        raise OpsettaError(f"the factory '{reference}' gave a {type(model).__name__} instead of a model")
    if not isinstance(kwargs, Mapping):
        raise OpsettaError(
            f"the factory '{reference}' gave a {type(kwargs).__name__} instead of a dict of kwargs"
        )
    positional = tuple(args) if isinstance(args, (tuple, list)) else (args,)
    return Example(model, positional, dict(kwargs), options)
