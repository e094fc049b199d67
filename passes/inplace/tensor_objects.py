"""The tensors of a source graph during the in-place pass, and the location of each."""

from __future__ import annotations

import onnx_ir as ir
from onnx_ir import Value

from .aliases import Aliases, is_list
from .locations import Location, Whole
from .storages import BlockScope, Memory


class TensorObject:
    """A tensor object; several values may refer to it, as in `y = x.relu_()`, where `y` is `x`.

    Attributes:
        location: the location of the tensor in memory.
        home: the scope that created the tensor.
        crossed: whether values outside of a branch or loop may refer to the same tensor.
    """

    __slots__ = ("crossed", "home", "location")

    def __init__(self, location: Location, home: BlockScope, crossed: bool = False):
        self.location = location
        self.home = home
        self.crossed = crossed


class Tensors(Memory):
    """The memory, and the tensor of each value of the source graph."""

    def __init__(self, graph: ir.Graph, aliases: Aliases):
        super().__init__(graph, aliases)
        self.tensors: dict[Value, TensorObject] = {}

    def tensor(self, value: Value) -> TensorObject:
        """Return the tensor of a value of the source graph; make one with a new storage if there is none."""
        tensor = self.tensors.get(value)
        if tensor is None:
            storage = self.storage(value)
            tensor = self.tensors[value] = TensorObject(Whole(storage), storage.home)
        return tensor

    def load(self, value: Value) -> Value:
        """Return the current value of the tensor of a source value."""
        tensor = self.tensors.get(value)
        if tensor is None:
            if is_list(value) or not self.aliases.is_tracked(value):
                return value
            tensor = self.tensor(value)
        return tensor.location.load(self)
