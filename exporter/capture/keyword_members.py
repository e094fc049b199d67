"""Makes each member of a call's `**kwargs` a parameter of the model while it is captured.

Torch refuses dynamic shapes for such members, and cannot trace them.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from inspect import Parameter

import torch

from ..torch_boundary.process.process_state import replace_attribute
from .capture_options import CaptureOptions
from .sizes.requests.dynamic_shapes import bind


@contextlib.contextmanager
def as_parameters(
    model: Callable[..., object],
    args: tuple[object, ...],
    kwargs: Mapping[str, object],
    options: CaptureOptions,
) -> Iterator[CaptureOptions]:
    """Within the context, the signature of a module's forward names the members that the call has.

    Yields:
        The options; their dynamic shapes have entries for the members in place of one for `**kwargs`.
    """
    parameters = _parameters(model) if isinstance(model, torch.nn.Module) else []
    variadic = parameters.pop() if parameters and parameters[-1].kind is Parameter.VAR_KEYWORD else None
    members = kwargs.keys() - {parameter.name for parameter in parameters}
    if not isinstance(model, torch.nn.Module) or variadic is None or not members:
        yield options
        return
    # A trace takes no keyword-only parameters.
    last = parameters[-1].kind if parameters else Parameter.POSITIONAL_ONLY
    parameter_kind = max(last, Parameter.POSITIONAL_OR_KEYWORD)
    if parameter_kind is Parameter.VAR_POSITIONAL:
        parameter_kind = Parameter.KEYWORD_ONLY
    parameters += [Parameter(name, parameter_kind, default=None) for name in kwargs if name in members]
    bound = bind(model, args, kwargs)
    forward = model.forward

    @functools.wraps(forward)
    def call(*args: object, **kwargs: object) -> object:
        return forward(*args, **kwargs)

    # torch reads the signature, not the code, to name the inputs.
    call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    with replace_attribute(model, "forward", call):
        by_member = _by_member(options.dynamic_shapes, variadic.name, list(bound))
        yield dataclasses.replace(options, dynamic_shapes=by_member)


def _parameters(model: torch.nn.Module) -> list[Parameter]:
    """The parameters of the forward; none if it has no signature."""
    try:
        return list(inspect.signature(model.forward).parameters.values())
    except (TypeError, ValueError):
        return []


def _by_member(dynamic_shapes: object, name: str, parameters: list[str]) -> object:
    """Dynamic shapes in which the members of `**kwargs` have their entries beside those of the parameters."""
    if isinstance(dynamic_shapes, (list, tuple)) and len(dynamic_shapes) == len(parameters):
        dynamic_shapes = dict(zip(parameters, dynamic_shapes, strict=True))
    if not isinstance(dynamic_shapes, Mapping) or name not in dynamic_shapes:
        return dynamic_shapes
    members = dynamic_shapes[name]
    if members is not None and not isinstance(members, Mapping):
        return dynamic_shapes
    shapes_by_parameter = {key: entry for key, entry in dynamic_shapes.items() if key != name}
    return shapes_by_parameter | dict(members or {})
