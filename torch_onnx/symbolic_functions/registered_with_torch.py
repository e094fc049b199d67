"""The symbolic functions that a user registered with torch.onnx itself."""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator, Mapping

from ...registration import default_registry
from .. import symbolic_helper
from .opset_modules import SymbolicFunctions
from .registered import TorchSymbolicFunction

_OPSETS = range(7, 21)
open_blocks: list[object] = []
"""The active `replaced` blocks, in which the functions of torch.onnx are registered with opsetta."""


def modules_of_torch() -> Iterator[tuple[str, types.ModuleType]]:
    """The names of torch.onnx's modules for symbolic functions, each with our module."""
    yield "symbolic_helper", symbolic_helper
    for opset in _OPSETS:
        name = f"symbolic_opset{opset}"
        yield name, SymbolicFunctions(f"torch.onnx.{name}", f"The functions of `torch.onnx.{name}`.")


def functions_of_torch(*, uses_our_helpers: bool) -> Iterator[TorchSymbolicFunction]:
    """The functions registered with torch.onnx, except for operators that we support.

    Args:
        uses_our_helpers: give the functions our helpers under the global names that their modules bound to
            those of torch.onnx; `replaced` instead replaces them in the modules.
    """
    from ...exporter.torch_boundary.onnx_exporter import registered_functions

    functions = [] if open_blocks and uses_our_helpers else registered_functions()
    helpers = _our_helpers() if functions and uses_our_helpers else {}
    for name, opset, function in functions:
        is_ours = default_registry.first_opset(name) is not None
        if name.startswith(("aten::", "prim::")) or not is_ours:
            yield TorchSymbolicFunction(name, opset, _adapt(function, helpers))


def _adapt(
    function: Callable[..., object], helpers: Mapping[int, tuple[object, object]]
) -> Callable[..., object]:
    """A function with our `parse_args`, and with other globals if there are helpers."""
    inner = getattr(function, "__wrapped__", None)
    descriptors = getattr(inner, "_arg_descriptors", None)
    if inner is None or descriptors is None:
        return _rebind(function, {}, helpers) if helpers else function
    return symbolic_helper.parse_args(*descriptors)(_rebind(inner, {}, helpers) if helpers else inner)


def apply_our_parse_args(function: Callable[..., object]) -> Callable[..., object]:
    """Apply our `parse_args` to a function that was decorated with torch's."""
    return _adapt(function, {})


def _our_helpers() -> dict[int, tuple[object, object]]:
    """Torch's modules and functions with ours, by the id of torch's.

    Not cached, because `replaced` changes the modules.
    """
    from ...exporter.torch_boundary.onnx_exporter import modules_of_symbolic_functions

    helpers: dict[int, tuple[object, object]] = {}
    for name, our_module in modules_of_torch():
        for original in modules_of_symbolic_functions(name):
            helpers[id(original)] = original, our_module
            for key, item in vars(original).items():
                if isinstance(item, types.FunctionType) and hasattr(our_module, key):
                    helpers[id(item)] = item, getattr(our_module, key)
    return helpers


def _rebind(
    function: Callable[..., object],
    spaces: dict[int, dict[str, object]],
    helpers: Mapping[int, tuple[object, object]],
) -> Callable[..., object]:
    """A copy of a Python function, and of those in its module, with other globals.

    Args:
        spaces: the new globals by the id of those that they replace.
    """
    if not isinstance(function, types.FunctionType):
        return function
    space = spaces.get(id(function.__globals__))
    if space is None:
        space = spaces[id(function.__globals__)] = dict(function.__globals__)
        for name, item in function.__globals__.items():
            if id(item) in helpers:
                _, space[name] = helpers[id(item)]
            elif isinstance(item, types.FunctionType) and item.__globals__ is function.__globals__:
                space[name] = _rebind(item, spaces, helpers)
    copy = types.FunctionType(
        function.__code__, space, function.__name__, function.__defaults__, function.__closure__
    )
    copy.__kwdefaults__ = function.__kwdefaults__
    vars(copy).update(vars(function))
    return copy
