"""Capture with torch.export: from a model and example arguments to a source graph."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
import torch._dynamo
import torch.utils._pytree as pytree

from ...registration import CaptureError
from . import associative_scan, hashing, linear_algebra, recurrent, sequence_losses, transformer_modules
from . import dynamic_shapes as shapes
from .exported_program import import_exported_program
from .quiet import quiet
from .source import Capture
from .structure import register_structures


def capture(
    model: Callable[..., Any] | torch.export.ExportedProgram,
    args: tuple,
    kwargs: Mapping[str, Any],
    *,
    dynamic_shapes: Any = None,
    dynamic_axes: Mapping[str, Any] | None = None,
    input_names: Sequence[str] | None = None,
    strict: bool = False,
    source_lines: bool = False,
) -> Capture:
    """Capture a model as a source graph, in the state (training or not) that it is in.

    Args:
        model: a module, a function of tensors, or an `ExportedProgram`.
        args, kwargs: example arguments; their values do not matter, types and static sizes do.
        dynamic_shapes: as torch.export takes them; a string may stand for a `Dim` of that name.
        dynamic_axes: torch.onnx's older form, by input name.
        strict: trace through TorchDynamo instead of plain Python.
        source_lines: keep the user's source line on every node.

    Raises:
        CaptureError: torch.export refused the model or the arguments; its own words are in the message.
    """
    if isinstance(model, torch.export.ExportedProgram):
        if dynamic_shapes is not None or dynamic_axes is not None:
            raise CaptureError("an ExportedProgram has its dynamic shapes already: leave dynamic_shapes out")
        found = import_exported_program(model, source_lines=source_lines)
        if model.example_inputs is not None:
            example_args, example_kwargs = model.example_inputs
            found.example = (tuple(example_args), dict(example_kwargs))
        return found
    if not callable(model):
        raise CaptureError(
            f"a model is an nn.Module, a callable, or an ExportedProgram, not {type(model).__name__}"
        )
    register_structures(args, dict(kwargs))
    if not isinstance(model, torch.nn.Module):
        model = _FunctionModule(model)
    leaves = shapes.resolve(model, args, kwargs, dynamic_shapes, dynamic_axes, input_names)
    with _result_registered(model):
        program = _export(model, args, kwargs, leaves, strict)
    found = import_exported_program(
        program, dimension_names=leaves.dimension_names(), source_lines=source_lines
    )
    found.interface.parameter_names = shapes.parameter_names(model)
    found.example = (args, dict(kwargs))
    return found


def _export(
    model: torch.nn.Module,
    args: tuple,
    kwargs: Mapping[str, Any],
    leaves: shapes.Leaves,
    strict: bool,
) -> torch.export.ExportedProgram:
    """torch.export over the example, enlarged where a dynamic dimension would be specialised."""
    structure = pytree.tree_flatten((args, dict(kwargs)))[1]
    specification = _specification(model, args, kwargs, leaves) if any(leaves.wanted) else None
    failures: list[Exception] = []
    for values in shapes.enlargements(leaves):
        grown_args, grown_kwargs = pytree.tree_unflatten(values, structure)
        try:
            with (
                torch.no_grad(),
                quiet(),
                _unmarked(values),
                recurrent.by_shapes(strict),
                linear_algebra.by_shapes(),
                hashing.by_shapes(),
                sequence_losses.by_shapes(),
                transformer_modules.captured(),
                associative_scan.as_operator(strict=strict),
                # What is dynamic is what the caller says, whatever torch has traced before.
                torch._dynamo.config.patch(automatic_dynamic_shapes=False),
            ):
                program = torch.export.export(
                    model, grown_args, grown_kwargs, dynamic_shapes=specification, strict=strict
                )
            recurrent.restore_operators(program)
            captured = _placeholders(program)
            refusal = shapes.specialised(leaves, captured) or shapes.rounded(captured)
            if refusal is None:
                return program
            failures.append(CaptureError(refusal))
        except Exception as error:
            failures.append(error)
            if not any(leaves.wanted):
                break
    raise CaptureError(_explain(failures[0])) from failures[0]


def _placeholders(program: torch.export.ExportedProgram) -> list[Any]:
    """What stands for each leaf of the call in a captured graph."""
    names = program.graph_signature.user_inputs
    values = {node.name: node.meta.get("val") for node in program.graph.nodes if node.op == "placeholder"}
    return [values.get(name) if isinstance(name, str) else name for name in names]


@contextlib.contextmanager
def _unmarked(values: Sequence[Any]) -> Iterator[None]:
    """Take off what torch notes on example tensors; it would read it in the next capture."""
    held = [(value, dict(vars(value))) for value in values if isinstance(value, torch.Tensor)]
    try:
        yield
    finally:
        for value, attributes in held:
            vars(value).clear()
            vars(value).update(attributes)


def _explain(error: Exception) -> str:
    text = str(error).strip() or type(error).__name__
    text = text.split("\nThe error above occurred when calling torch.export.export")[0].strip()
    return f"torch.export could not capture the model: {type(error).__name__}: {text}"


def _specification(
    model: torch.nn.Module, args: tuple, kwargs: Mapping[str, Any], leaves: shapes.Leaves
) -> dict[str, Any]:
    """The dynamic shapes as torch.export takes them: by parameter name, nested like the arguments."""
    dims = iter(shapes.torch_dims(leaves))
    bound = shapes.bind(model, args, kwargs)
    by_name = {name: _nested(bound[name], dims) for name in shapes.call_order(bound, kwargs)}
    return {name: by_name[name] for name in bound}


def _nested(value: Any, dims: Iterator[dict[int, Any] | None]) -> Any:
    members = shapes.children(value)
    if members is None:
        return next(dims)
    inner = [_nested(member, dims) for member in members]
    if isinstance(value, dict):
        return dict(zip(value, inner, strict=True))
    return tuple(inner) if isinstance(value, tuple) else inner


class _FunctionModule(torch.nn.Module):
    """A plain function as a module; its signature stays visible to torch.export."""

    def __init__(self, function: Callable[..., Any]):
        super().__init__()
        try:
            inspect.signature(function)
        except ValueError:
            # A builtin shows none; its arguments are positional.
            self.forward = lambda *args: function(*args)
        else:
            self.forward = function


@contextlib.contextmanager
def _result_registered(model: torch.nn.Module) -> Iterator[None]:
    """Make the structure of the model's result known while it is traced; the hook goes away again."""

    def register_result(module: torch.nn.Module, inputs: Any, result: Any) -> None:
        register_structures(result)

    handle = model.register_forward_hook(register_result)
    try:
        yield
    finally:
        handle.remove()
