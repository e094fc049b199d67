"""The graph node that stands for each tensor of a recording."""

from __future__ import annotations

from typing import Any

import torch
import torch.fx
from torch.fx.experimental.proxy_tensor import _ProxyTensor
from torch.utils.weak import TensorWeakRef


class TensorNodes:
    """Maps tensors, by identity, to nodes; torch's tracer uses it as its `tensor_tracker`.

    A tensor that `keep` maps stays alive, so that no other gets its identity. Others are referred to weakly:
    the functions that create tensors return a copy of a tensor to which there is another reference.
    """

    def __init__(self, tracer: Any):
        self._tracer = tracer
        self._kept: dict[int, tuple[torch.Tensor, torch.fx.Node]] = {}
        self._earlier: dict[int, list[torch.fx.Node]] = {}
        self._others: dict[int, tuple[TensorWeakRef, torch.fx.Node, Any]] = {}

    def keep(self, tensor: torch.Tensor, node: torch.fx.Node) -> None:
        """Let a node stand for a tensor."""
        key = id(tensor)
        self._others.pop(key, None)
        earlier = self._kept.get(key)
        if earlier is not None:
            self._earlier.setdefault(key, []).append(earlier[1])
        self._kept[key] = (tensor, node)

    def nodes_of(self, tensor: torch.Tensor) -> list[torch.fx.Node]:
        """The nodes that have stood for a kept tensor, which operators in place changed."""
        kept = self._kept.get(id(tensor))
        return [] if kept is None else [*self._earlier.get(id(tensor), ()), kept[1]]

    def node_of(self, tensor: torch.Tensor) -> torch.fx.Node | None:
        """The node that stands for a tensor; None if there is none, or for a constant with a known value."""
        key = id(tensor)
        kept = self._kept.get(key)
        if kept is not None:
            return kept[1]
        found = self._others.get(key)
        if found is None or found[0]() is not tensor or found[2] is not None:
            return None
        self.keep(tensor, found[1])
        return found[1]

    def constant_of(self, tensor: torch.Tensor) -> torch.fx.Node | None:
        """The node that stands for a constant with a known value; None for other tensors."""
        found = None if id(tensor) in self._kept else self._others.get(id(tensor))
        return None if found is None or found[0]() is not tensor or found[2] is None else found[1]

    def get(self, tensor: torch.Tensor, default: Any = None) -> Any:
        """The tensor's proxy, as torch's tracer keeps it."""
        key = id(tensor)
        kept = self._kept.get(key)
        if kept is not None:
            return self._proxy(kept[1], None)
        found = self._others.get(key)
        return default if found is None or found[0]() is not tensor else self._proxy(found[1], found[2])

    def _proxy(self, node: torch.fx.Node, constant: Any) -> _ProxyTensor:
        return _ProxyTensor(torch.fx.Proxy(node, self._tracer), constant)

    def __setitem__(self, tensor: torch.Tensor, proxy: _ProxyTensor) -> None:
        key = id(tensor)
        if key in self._kept and proxy.constant is None:
            self.keep(tensor, proxy.proxy.node)
            return
        self._kept.pop(key, None)
        self._others[key] = (TensorWeakRef(tensor), proxy.proxy.node, proxy.constant)

    def __contains__(self, tensor: torch.Tensor) -> bool:
        return self.get(tensor) is not None
