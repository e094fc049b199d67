"""Checks the arguments of `export`: keywords of torch.onnx, and the form of the example call."""

from __future__ import annotations

import difflib
import inspect
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from ..registration import UsageError

if TYPE_CHECKING:
    import torch

ExportableModel: TypeAlias = "Callable[..., object] | torch.export.ExportedProgram | str | os.PathLike[str]"
"""A module or a function, eager or TorchScript, what torch.export captured, or the path of TorchScript."""

_FILE = "export returns a program, which writes the file: opsetta.export(...).save(path)"
_ALWAYS = "opsetta always does this"
_OTHERWISE = {
    "f": _FILE,
    "opset_version": "it is called opset here",
    "external_data": "program.save(path, external_data=...) takes it",
    "verify": "program.verify() compares with eager PyTorch after the export",
    "report": "program.verify() returns a report, and `opsetta info` describes the file",
    "verbose": "progress=print shows the stages",
    "profile": "progress=print shows the stages",
    "training": "the model is exported in the mode it is in: call model.eval() or model.train() first",
    "do_constant_folding": _ALWAYS,
    "dynamo": "capture= chooses how the model is captured, such as 'torch.export' or 'trace'; TorchScript is "
    "captured as it is",
    "fallback": "a model that torch.export refuses may be given as TorchScript: torch.jit.script(model)",
    "custom_translation_table": "register symbolic functions with @opsetta.onnx_symbolic, or pass a "
    "registry with registry=",
    "custom_opsets": "the file always declares the domains of custom operators",
    "dump_exported_program": "program.save_source(path) saves the captured model",
    "artifacts_dir": "files are written by program.save and program.save_source only",
    "export_params": "weights are always written; program.save_source(path, weights='none') leaves them out",
    "keep_initializers_as_inputs": "weights are initializers and not inputs",
    "operator_export_type": "an operator that ONNX lacks needs a symbolic function: @opsetta.onnx_symbolic",
    "export_modules_as_functions": "nodes have their module's path as metadata: see docs/metadata.md",
    "autograd_inlining": "the forward of an autograd.Function is always exported as what it computes",
    "example_outputs": "they are not needed",
    "enable_onnx_checker": "every node is checked against its schema as it is made",
    "strip_doc_string": "source_lines=True keeps the source lines; by default they are left out",
    "use_external_data_format": "program.save(path, external_data=...) takes it",
}
"""torch.onnx's keywords, with the replacement in opsetta or the reason why there is none."""


def refuse_unknown(keywords: Mapping[str, object], function: Callable[..., object]) -> None:
    """Refuse unknown keywords; for those of torch.onnx the message names the replacement.

    Raises:
        UsageError: `keywords` is not empty.
    """
    if not keywords:
        return
    names = [name for name, parameter in inspect.signature(function).parameters.items()
             if parameter.kind is not inspect.Parameter.VAR_KEYWORD]  # fmt: skip
    reasons = []
    for name in keywords:
        close = difflib.get_close_matches(name, names, 1)
        reason = _OTHERWISE.get(name) or (f"did you mean '{close[0]}'?" if close else "")
        reasons.append(f"'{name}'" + (f" ({reason})" if reason else ""))
    raise UsageError(f"opsetta.export has no argument {', '.join(reasons)}")


def model_call(
    model: ExportableModel, args: object, kwargs: Mapping[str, object] | None
) -> tuple[tuple[object, ...], dict[str, object]]:
    """The example call as positional and keyword arguments of the model.

    A single value is one positional argument. As in torch.onnx, a dict at the end of `args` has keyword
    arguments, if its keys name parameters without another argument, or if the call does not fit the forward
    otherwise. object other dict is a positional argument.

    Raises:
        UsageError: `kwargs` is not a mapping from names.
    """
    if kwargs is not None and (
        not isinstance(kwargs, Mapping) or not all(isinstance(name, str) for name in kwargs)
    ):
        file = isinstance(kwargs, (str, os.PathLike)) or hasattr(kwargs, "write")
        raise UsageError(
            "the third argument, kwargs, must be a dict of the model's keyword arguments, not "
            f"{type(kwargs).__name__}" + (f"; {_FILE}" if file else "")
        )
    positional = tuple(args) if isinstance(args, (tuple, list)) else (args,)
    if kwargs or not positional or not isinstance(positional[-1], dict):
        return positional, dict(kwargs or {})
    return _trailing_keywords(model, positional[:-1], positional[-1])


def _trailing_keywords(
    model: ExportableModel, leading: tuple[object, ...], trailing: dict[str, object]
) -> tuple[tuple[object, ...], dict[str, object]]:
    signature = _signature(getattr(model, "forward", model))
    if signature is None:
        return (*leading, trailing), {}
    by_name = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    names = [name for name, parameter in signature.parameters.items() if parameter.kind in by_name]
    named = set(trailing) <= set(names[len(leading) :]) and _fits(signature, *leading, **trailing)
    if named or not _fits(signature, *leading, trailing):
        return leading, dict(trailing)
    return (*leading, trailing), {}


def _signature(function: Any) -> inspect.Signature | None:
    """The parameters of a forward, a function, or a TorchScript method; None if they are unknown."""
    schema = getattr(function, "schema", None)
    if schema is None:
        try:
            return inspect.signature(function)
        except (TypeError, ValueError):
            return None
    parameter_kind, required = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.empty
    return inspect.Signature(
        [
            inspect.Parameter(
                entry.name, parameter_kind, default=None if entry.has_default_value() else required
            )
            # The first one of a method is the module, whatever its name.
            for entry in schema.arguments[int(hasattr(function, "owner")) :]
        ]
    )


def _fits(signature: inspect.Signature, *args: object, **kwargs: object) -> bool:
    try:
        signature.bind(*args, **kwargs)
    except TypeError:
        return False
    return True
