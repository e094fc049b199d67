"""Maps each tensor of a recording to a graph node."""

from __future__ import annotations

import torch
import torch.fx
from torch.fx.experimental.proxy_tensor import PythonKeyTracer, _ProxyTensor
from torch.utils.weak import TensorWeakRef


class TensorNodes:
    """Maps tensors, by identity, to nodes; torch's tracer uses it as its `tensor_tracker`.

    A tensor that `keep` maps stays alive, so that no other tensor gets its `id`. Tensors that torch's tracer
    maps are referred to weakly.
    """

    def __init__(self, tracer: PythonKeyTracer):
        self._tracer = tracer
        self._strong_entries: dict[int, tuple[torch.Tensor, torch.fx.Node]] = {}
        self._earlier_nodes: dict[int, list[torch.fx.Node]] = {}
        self._weak_entries: dict[int, tuple[TensorWeakRef, torch.fx.Node, torch.Tensor | None]] = {}

    def keep(self, tensor: torch.Tensor, node: torch.fx.Node) -> None:
        """Map a tensor to a node."""
        key = id(tensor)
        # The `id` may have belonged to another tensor, which no longer exists.
        self._weak_entries.pop(key, None)
        earlier = self._strong_entries.get(key)
        if earlier is not None:
            self._earlier_nodes.setdefault(key, []).append(earlier[1])
        self._strong_entries[key] = (tensor, node)

    def nodes_of(self, tensor: torch.Tensor) -> list[torch.fx.Node]:
        """Return all nodes of a kept tensor, oldest first; each in-place operator adds one."""
        entry = self._strong_entries.get(id(tensor))
        return [] if entry is None else [*self._earlier_nodes.get(id(tensor), ()), entry[1]]

    def node_of(self, tensor: torch.Tensor) -> torch.fx.Node | None:
        """Return the node of a tensor; None if it has none or is a constant with a known value."""
        key = id(tensor)
        entry = self._strong_entries.get(key)
        if entry is not None:
            return entry[1]
        weak_entry = self._weak_entries.get(key)
        # The `id` may belong to a new tensor, so the reference is compared too.
        if weak_entry is None or weak_entry[0]() is not tensor or weak_entry[2] is not None:
            return None
        self.keep(tensor, weak_entry[1])
        return weak_entry[1]

    def constant_of(self, tensor: torch.Tensor) -> torch.fx.Node | None:
        """Return the node of a constant with a known value; None for other tensors."""
        weak_entry = None if id(tensor) in self._strong_entries else self._weak_entries.get(id(tensor))
        return (
            None
            if weak_entry is None or weak_entry[0]() is not tensor or weak_entry[2] is None
            else weak_entry[1]
        )

    def get(self, tensor: torch.Tensor, default: _ProxyTensor | None = None) -> _ProxyTensor | None:
        """Return the tensor's proxy in the type that torch's tracer stores; `default` if it has none."""
        key = id(tensor)
        entry = self._strong_entries.get(key)
        if entry is not None:
            return self._proxy(entry[1], None)
        weak_entry = self._weak_entries.get(key)
        return (
            default
            if weak_entry is None or weak_entry[0]() is not tensor
            else self._proxy(weak_entry[1], weak_entry[2])
        )

    def _proxy(self, node: torch.fx.Node, constant: torch.Tensor | None) -> _ProxyTensor:
        return _ProxyTensor(torch.fx.Proxy(node, self._tracer), constant)

    def __setitem__(self, tensor: torch.Tensor, proxy: _ProxyTensor) -> None:
        key = id(tensor)
        if key in self._strong_entries and proxy.constant is None:
            self.keep(tensor, proxy.proxy.node)
            return
        self._strong_entries.pop(key, None)
        self._weak_entries[key] = (TensorWeakRef(tensor), proxy.proxy.node, proxy.constant)

    def __contains__(self, tensor: torch.Tensor) -> bool:
        return self.get(tensor) is not None
