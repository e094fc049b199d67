"""The graph node that stands for each symbolic number of a recording."""

from __future__ import annotations

import functools
from typing import Any

import torch
import torch.fx
from torch.fx.experimental import proxy_tensor
from torch.utils._thunk import Thunk

from ..fake_tensors import layout_of

_ATEN = torch.ops.aten


class SizeNodes(proxy_tensor._SymNodeDict):
    """Maps symbolic numbers to nodes, which are made when they are read; torch's tracer uses it.

    One number may be a size of several tensors, a stride, and the result of arithmetic. As with torch.export,
    the first size or result stands for it; a stride, number of elements or offset does only if it is neither.

    Args:
        tracer: torch's tracer.
    """

    def __init__(self, tracer: Any):
        super().__init__()
        self._tracer = tracer
        self._of_layouts: dict[Any, Any] = {}
        self._tracked: dict[int, Any] = {}

    def get(self, key: Any, default: Any = None) -> Any:
        """What makes the number's node."""
        found = self.sym_node_dict.get(key.node)
        return self._of_layouts.get(key.node, default) if found is None else found

    def track(self, tensor: torch.Tensor, proxy: torch.fx.Proxy) -> None:
        """Let nodes stand for the symbolic sizes of a tensor."""
        layout = layout_of(tensor)
        if layout is not None:
            if id(layout) in self._tracked:
                return
            # Kept, so that its identity stays its own.
            self._tracked[id(layout)] = layout
        for axis, size in enumerate(tensor.shape):
            if isinstance(size, torch.SymInt) and size not in self:
                made = self._reader(size, _ATEN.sym_size.int, proxy, axis)
                proxy_tensor.set_proxy_slot(size, self._tracer, made)
        for axis, stride in enumerate(tensor.stride()):
            if isinstance(stride, torch.SymInt) and stride not in self:
                self._of_layouts.setdefault(
                    stride.node, self._reader(stride, _ATEN.sym_stride.int, proxy, axis)
                )
        others = (
            (tensor.numel(), _ATEN.sym_numel.default),
            (tensor.storage_offset(), _ATEN.sym_storage_offset.default),
        )
        for number, target in others:
            if isinstance(number, torch.SymInt) and number not in self:
                self._of_layouts.setdefault(number.node, self._reader(number, target, proxy))

    def _reader(self, number: Any, target: Any, proxy: torch.fx.Proxy, *axis: int) -> Any:
        return Thunk(functools.partial(self._read, number, target, (proxy, *axis)))

    def _read(self, number: Any, target: Any, args: tuple[Any, ...]) -> torch.fx.Proxy:
        made = self._tracer.create_proxy("call_function", target, args, {})
        return proxy_tensor.set_meta(made, number)
