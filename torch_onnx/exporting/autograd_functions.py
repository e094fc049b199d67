"""Exports a `torch.autograd.Function` by its static `symbolic` method."""

from __future__ import annotations

import contextlib
import dataclasses
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping

import torch

from ... import registration
from ...registration import Registry, SymbolicFunction
from ...registration.construction.builder import GraphBuilder
from ..symbolic_functions.context import GraphContext, current
from ..symbolic_functions.registered import unwrap

_NAME = "opsetta::autograd_function"


@dataclasses.dataclass
class _Call:
    """A call of an autograd function.

    Attributes:
        function: the class, with its static method `symbolic`.
        args: its arguments; tensors are replaced by those of the operator.
        single: whether it returned one tensor instead of a tuple.
    """

    function: type[torch.autograd.Function]
    args: tuple[object, ...]
    single: bool = True

    def with_tensors(self, tensors: Iterable[object]) -> list[object]:
        """Return the arguments with other tensors."""
        replacements = iter(tensors)
        return [next(replacements) if isinstance(item, torch.Tensor) else item for item in self.args]


class AutogradFunctions:
    """The calls of autograd functions in one export."""

    def __init__(self) -> None:
        self._calls: dict[str, _Call] = {}
        self._thread = threading.get_ident()

    def register(self, registry: Registry) -> None:
        """Register their `symbolic` methods for the calls."""
        registry.put_first(_StaticSymbolic(_NAME, 1, self._emit))

    def _emit(self, g: registration.GraphContext, tensors: list[object], key: str) -> object:
        call = self._calls[key]
        context = GraphContext(g, g.opset)
        token = current.set(context)
        try:
            values = [context.wrap(tensor) for tensor in tensors]
            symbolic: Callable[..., object] = getattr(call.function, "symbolic")  # noqa: B009
            results = unwrap(symbolic(context, *call.with_tensors(values)))
        finally:
            current.reset(token)
        return results if isinstance(results, list) else [results]

    @contextlib.contextmanager
    def record_calls(self) -> Iterator[None]:
        """Replace calls of functions with a `symbolic` method by an operator; run inside `boundary`."""
        apply = vars(torch.autograd.Function)["apply"]
        torch.autograd.Function.apply = classmethod(self._apply)  # type: ignore[method-assign, assignment]
        _recording.append(self)
        try:
            yield
        finally:
            _recording.remove(self)
            torch.autograd.Function.apply = apply  # type: ignore[method-assign]

    def _apply(self, function: type[torch.autograd.Function], /, *args: object, **kwargs: object) -> object:
        # Other threads may run models of their own while this one exports.
        exports = threading.get_ident() == self._thread
        # Static `symbolic` methods take positional arguments only.
        if not exports or kwargs or not hasattr(function, "symbolic"):
            return _APPLY.__get__(None, function)(*args, **kwargs)
        key = str(len(self._calls))
        self._calls[key] = _Call(function, args)
        results = _operator([item for item in args if isinstance(item, torch.Tensor)], key)
        return results[0] if self._calls[key].single else tuple(results)

    def run(self, tensors: list[torch.Tensor], key: str) -> list[torch.Tensor]:
        """Return the result of the call's forward."""
        call = self._calls[key]
        results = _APPLY.__get__(None, call.function)(*call.with_tensors(tensors))
        call.single = isinstance(results, torch.Tensor)
        # The result of an operator may not be one of its arguments.
        return [item.clone() for item in ([results] if call.single else results)]


class _StaticSymbolic(SymbolicFunction):
    def __call__(self, g: GraphBuilder, arguments: Mapping[str, object]) -> object:
        return self.function(g, **arguments)


# A class method, which is written in C from torch 2.14 on and then has no `__func__`.
_APPLY = vars(torch.autograd.Function)["apply"]
_recording: list[AutogradFunctions] = []


@torch.library.custom_op(_NAME, mutates_args=())
def _operator(tensors: list[torch.Tensor], key: str) -> list[torch.Tensor]:
    return _recording[-1].run(tensors, key)


@_operator.register_fake
def _shapes(tensors: list[torch.Tensor], key: str) -> list[torch.Tensor]:
    return _recording[-1].run(tensors, key)
