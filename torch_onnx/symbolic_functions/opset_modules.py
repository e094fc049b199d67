"""`symbolic_opset7` to `symbolic_opset20`: modules whose functions call opsetta's symbolic functions."""

from __future__ import annotations

import functools
import re
import types
from collections.abc import Callable

import numpy as np

from ...registration import UnsupportedError
from ...registration.functions.dispatch import SymbolicParameter
from .. import symbolic_helper
from .._type_utils import JitScalarType
from . import argument_helpers as helper
from . import emitting_helpers as emitting
from .context import GraphContext
from .values import Value

_CAST = re.compile(r"_cast_(\w+)")


class SymbolicFunctions(types.ModuleType):
    """A module of the symbolic functions of `aten` at the target opset."""

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        if name in ("symbolic_helper", "sym_help"):
            return symbolic_helper
        return _OVERRIDES.get(name) or function_of(f"aten::{name}")


@functools.cache
def function_of(operator: str) -> Callable[..., object]:
    """Make a function that calls the built-in symbolic function of an operator, even if replaced."""
    name = operator.partition("::")[2]

    def symbolic(g: GraphContext, *arguments: object, **named: object) -> object:
        inner = g.inner
        cast = _CAST.fullmatch(name)
        if cast is not None:
            dtype = JitScalarType.from_name(cast[1]).onnx_type()
            return g.wrap(inner.cast(inner.constant(_argument(g, arguments[0], None)), dtype))
        function = inner.registry.lookup(operator, "", inner.opset, custom=False)
        if function is None:
            raise UnsupportedError(
                f"{operator} has no symbolic function at opset {inner.opset}",
                first_opset=inner.registry.first_opset(operator),
            )
        by_name = dict(zip(function.parameters, arguments, strict=False)) | named
        by_name = {key: _argument(g, item, function.parameters.get(key)) for key, item in by_name.items()}
        dtype_number = by_name.get("dtype")
        if isinstance(dtype_number, int):
            by_name["dtype"] = JitScalarType(dtype_number).onnx_type()
        return g.wrap(function(inner, by_name))

    symbolic.__name__ = symbolic.__qualname__ = name
    return symbolic


def _argument(g: GraphContext, item: object, parameter: SymbolicParameter | None) -> object:
    """Convert an argument for a function of opsetta; a zero-dim constant becomes a Python number."""
    value = Value(g.inner, item)
    constant = value.constant()
    if parameter is not None and parameter.number and isinstance(constant, np.ndarray) and not constant.shape:
        return constant.item()
    return value.wrapped


def _select(g: GraphContext, self: Value, dim: object, index: object) -> object:
    """Emit Gather as torch.onnx does: a list of one index keeps the dimension, a single index does not."""
    axis, constant_index = helper._maybe_get_const(dim, "i"), helper._maybe_get_scalar(index)
    if isinstance(constant_index, Value):
        return g.wrap(g.inner.op("Gather", self.wrapped, constant_index.wrapped, axis=axis))
    position = helper.to_int(constant_index)
    if position >= 0:
        return g.wrap(g.inner.op("Gather", self.wrapped, g.inner.constant(position), axis=axis))
    # -1 ends at the end of the axis: the Slice end 0 would give an empty slice.
    end = position + 1 or np.iinfo(np.int64).max
    sliced = g.inner.op("Slice", self.wrapped, starts=[position], ends=[end], axes=[axis])
    return g.wrap(g.inner.op("Squeeze", sliced, axes=[axis]))


def _squeeze(g: GraphContext, self: Value, dim: object = None) -> object:
    if helper._is_none(dim):
        return g.wrap(g.inner.op("Squeeze", self.wrapped))
    axis = helper.to_int(helper._get_const(dim, "i", "dim"))
    size = helper._get_tensor_dim_size(self, axis)
    return self if size not in (1, None) else emitting._squeeze_helper(g, self, [axis])


def _unsqueeze(g: GraphContext, self: Value, dim: object) -> object:
    return emitting._unsqueeze_helper(g, self, [helper._get_const(dim, "i", "dim")])


# Functions that files call on values of unknown rank, or with arguments that only torch.onnx takes.
_OVERRIDES: dict[str, Callable[..., object]] = {
    "select": _select,
    "squeeze": _squeeze,
    "unsqueeze": _unsqueeze,
    "reshape": emitting._reshape_helper,
    "view": emitting._reshape_helper,
    "_reshape_from_tensor": emitting._reshape_helper,
    "_slice": emitting._slice_helper,
}
