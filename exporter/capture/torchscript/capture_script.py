"""Capture of a TorchScript module, function or file as a source graph."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping

import torch

from ....registration import CaptureError, Names
from ....registration.warning import warn
from ...captured_graph.capture import Capture
from ...torch_boundary import probe, torchscript
from ...torch_boundary.capture_patches import apply_script_patches
from ...torch_boundary.process.silence import suppress_logs
from ..capture_options import CaptureOptions
from ..sizes.requests import dynamic_shapes as shapes
from ..tensor_kinds import check_arguments
from .example_run import check_example, is_suspect
from .objects import WrittenConstant
from .script_graph import Program, function_of
from .script_reader import ScriptCall, ScriptReader

_SCRIPTED = (torch.jit.ScriptModule, torch.jit.ScriptFunction)


def is_torchscript(model: object) -> bool:
    """Whether a model is TorchScript, or the path of a TorchScript file."""
    return isinstance(model, (*_SCRIPTED, str, os.PathLike))


def capture_torchscript(
    model: Program,
    args: tuple[object, ...],
    kwargs: Mapping[str, object],
    options: CaptureOptions,
    *,
    has_run: bool = False,
) -> Capture:
    """Capture a TorchScript model as a source graph.

    Sizes are static unless `dynamic_shapes` makes them dynamic. Numbers among the arguments become inputs,
    unless `dynamic_shapes` has None for them or the program needs their value at capture.

    Args:
        model: a `ScriptModule` (scripted, traced or loaded) or a `ScriptFunction`.
        args, kwargs: example arguments. The model runs on them once, and is restored, if that is quick or if
            shapes alone may hide an error.
        has_run: the model is known to run on the example.

    Raises:
        CaptureError: the model fails on the example, or a source graph cannot express the program.
    """
    probe.require(probe.TORCHSCRIPT)
    signature = _signature(model)
    bound = shapes.bind(signature, args, kwargs)
    check_arguments(bound)
    # An error of the model itself is reported as such, before one of the capture can hide it.
    if not has_run and is_suspect(model, args, kwargs):
        check_example(model, bound, args, kwargs)
        has_run = True
    leaves = shapes.resolve(signature, args, kwargs, options, numbers=True)
    by_parameter = options.dynamic_shapes if isinstance(options.dynamic_shapes, Mapping) else {}
    static = frozenset(
        name
        for name, requested in by_parameter.items()
        if requested is None and isinstance(bound.get(name), (bool, int, float))
    )
    call = ScriptCall(model, args, kwargs, signature, bound, leaves, static, options.source_lines)
    try:
        return _read_call(call, has_run, constant_numbers=False)
    except CaptureError as error:
        if not has_run:
            check_example(model, bound, args, kwargs)
        if not any(isinstance(leaf, (bool, int, float)) for leaf in leaves.values):
            raise
        # The program may need a number's value, for example as the rank of a tensor.
        try:
            result = _read_call(call, has_run, constant_numbers=True)
        except CaptureError:
            raise error from None
        warn(
            "the numbers among the arguments are constants in this export, because they cannot be "
            f"inputs: {error}",
        )
        return result


def _read_call(call: ScriptCall, has_run: bool, *, constant_numbers: bool) -> Capture:
    """Read a program; read it again without folding constant tensors if it writes to one."""

    def read_program(opaque: bool) -> Capture:
        reader = ScriptReader(
            call, constant_numbers=constant_numbers, opaque=opaque, check_kernels=not has_run
        )
        with suppress_logs(), apply_script_patches():
            capture = reader.run()
        # torch refused operands while only their shapes were known: the example may be wrong.
        if reader.has_refused and not has_run:
            check_example(call.program, call.bound, call.args, call.kwargs)
        return capture

    try:
        return read_program(False)
    except WrittenConstant:
        return read_program(True)


def _signature(model: Program) -> Callable[..., None]:
    """A function with the signature of the program.

    Raises:
        CaptureError: the module has no forward.
    """
    if isinstance(model, torch.jit.ScriptModule):
        handle = torchscript.handle_of(model)
        if torchscript.method(handle, "forward") is None:
            methods = ", ".join(torchscript.method_names(handle))
            raise CaptureError(
                f"the TorchScript module has no forward (it has {methods or 'no method'}): script a module "
                "that calls it instead, as for the overloaded forward of LSTM, GRU and RNN"
            )
    # The first argument of a method is the module.
    arguments = function_of(model).schema.arguments[1 if isinstance(model, torch.jit.ScriptModule) else 0 :]
    names, parameters = Names(), []
    for argument in arguments:
        default = argument.default_value if argument.has_default_value() else inspect.Parameter.empty
        parameter_kind = (
            inspect.Parameter.KEYWORD_ONLY if argument.kwarg_only else inspect.Parameter.POSITIONAL_OR_KEYWORD
        )
        # A trace may give two arguments the same name.
        parameters.append(inspect.Parameter(names.unique(argument.name), parameter_kind, default=default))

    def program(*args: object, **kwargs: object) -> None:
        """A function that has the program's signature."""

    program.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return program
