"""The interface of `GraphContext` that dispatch, emission and the version ladder use."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, Protocol, overload

import numpy as np
from onnx_ir import DataType, Value

from .graph import Construction
from .implied_arguments import ImpliedArgument


class Lookup(Protocol):
    """The interface of `Registry` that these modules use."""

    def first_opset_where(self, name: str, after: int, accepts: Callable[[Any], bool]) -> int | None:
        """See `Registry.first_opset_where`."""

    def implied_argument(self, op_type: str, argument: str) -> ImpliedArgument | None:
        """See `Registry.implied_argument`."""

    def lookup(self, name: str, overload: str, opset: int) -> Any:
        """See `Registry.lookup`."""

    def rung(self, op_type: str, opset: int) -> Any:
        """See `Registry.rung`."""


class GraphBuilder(Protocol):
    """The graph under construction; `GraphContext` documents each member."""

    @property
    def opset(self) -> int: ...
    @property
    def registry(self) -> Lookup: ...
    @property
    def construction(self) -> Construction: ...

    @overload
    def op(self, op_type: str, /, *inputs: object, outputs: Literal[1] = 1, **arguments: Any) -> Value: ...
    @overload
    def op(self, op_type: str, /, *inputs: object, outputs: int, **arguments: Any) -> list[Value]: ...
    def constant(self, value: object, dtype: DataType | None = None) -> Value: ...
    def cast(self, value: Value, dtype: DataType) -> Value: ...
    def stack(self, items: Sequence[int | Value]) -> Value: ...
    def constant_value(self, value: Value) -> np.ndarray | None: ...
    def is_foldable(self, value: Value) -> bool: ...
