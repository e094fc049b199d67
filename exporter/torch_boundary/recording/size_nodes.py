"""Maps each symbolic number of a recording to a graph node."""

from __future__ import annotations

import functools
from typing import Any

import torch
import torch.fx
from torch.fx.experimental import proxy_tensor
from torch.fx.experimental.proxy_tensor import PythonKeyTracer
from torch.utils._thunk import Thunk

from ..operators.overloads import OpOverload
from .layouts.layout import TensorLayout, layout_of

_ATEN = torch.ops.aten


class SizeNodes(proxy_tensor._SymNodeDict):
    """Maps symbolic numbers to nodes, which are made at the first read; torch's `symnode_tracker`.

    One number may be a size of several tensors, a stride, and the result of arithmetic. As in torch.export,
    its node reads the first such size or result; a stride, element count or offset only if there is neither.

    Args:
        tracer: torch's tracer.
    """

    def __init__(self, tracer: PythonKeyTracer):
        super().__init__()
        self._tracer = tracer
        self._of_layouts: dict[object, Thunk[torch.fx.Proxy]] = {}
        self._tracked: dict[int, TensorLayout] = {}

    def get(self, key: Any, default: Any = None) -> Any:
        """Return the thunk that creates the node of a number at the first read; `default` if it has none."""
        thunk = self.sym_node_dict.get(key.node)
        return self._of_layouts.get(key.node, default) if thunk is None else thunk

    def track(self, tensor: torch.Tensor, proxy: torch.fx.Proxy) -> None:
        """Map the symbolic sizes of a tensor to nodes that read them."""
        layout = layout_of(tensor)
        if layout is not None:
            if id(layout) in self._tracked:
                return
            # The reference keeps the layout alive, so that no other object gets its `id`.
            self._tracked[id(layout)] = layout
        for axis, size in enumerate(tensor.shape):
            if isinstance(size, torch.SymInt) and size not in self:
                thunk = self._make_thunk(size, _ATEN.sym_size.int, proxy, axis)
                proxy_tensor.set_proxy_slot(size, self._tracer, thunk)
        # Kept apart, because a size or result that is recorded later takes precedence.
        for axis, stride in enumerate(tensor.stride()):
            if isinstance(stride, torch.SymInt) and stride not in self:
                self._of_layouts.setdefault(
                    stride.node, self._make_thunk(stride, _ATEN.sym_stride.int, proxy, axis)
                )
        derived_numbers = (
            (tensor.numel(), _ATEN.sym_numel.default),
            (tensor.storage_offset(), _ATEN.sym_storage_offset.default),
        )
        for number, target in derived_numbers:
            if isinstance(number, torch.SymInt) and number not in self:
                self._of_layouts.setdefault(number.node, self._make_thunk(number, target, proxy))

    def _make_thunk(
        self, number: torch.SymInt, target: OpOverload, proxy: torch.fx.Proxy, *axis: int
    ) -> Thunk[torch.fx.Proxy]:
        return Thunk(functools.partial(self._create_node, number, target, (proxy, *axis)))

    def _create_node(
        self, number: torch.SymInt, target: OpOverload, args: tuple[torch.fx.Proxy | int, ...]
    ) -> torch.fx.Proxy:
        node_proxy = self._tracer.create_proxy("call_function", target, args, {})
        return proxy_tensor.set_meta(node_proxy, number)
