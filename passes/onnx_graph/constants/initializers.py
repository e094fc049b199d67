"""The constants that an ONNX pass may fold or replace, and new ones."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable
from typing import Any

import numpy as np
import onnx_ir as ir

from ....registration import Names
from ....registration.inference.tensor_sizes import element_count

_SMALL = 4096
_FREE_WORK, _WORK_PER_ELEMENT = 2**26, 64
Blocks = Callable[..., Iterable[np.ndarray]]
"""Computes the contents of a tensor in pieces, in the order of the file."""


class _InBlocks(ir.LazyTensor):
    """A tensor that is written in pieces, so that it is never whole in memory."""

    def __init__(self, blocks: Callable[[], Iterable[np.ndarray]], *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.blocks = blocks

    def tofile(self, file: Any) -> None:
        """Write the contents to a binary file object."""
        for block in self.blocks():
            file.write(np.ascontiguousarray(block).reshape(-1).view(np.uint8).data)


def rename_tensor(tensor: ir.TensorProtocol, name: str) -> ir.TensorProtocol:
    """A copy of the tensor object under another name, because another model may share the original."""
    if tensor.name == name:
        return tensor
    if tensor.dtype == ir.DataType.STRING:
        return ir.StringTensor(tensor.numpy(), shape=ir.Shape(tensor.shape.numpy()), name=name)
    renamed = getattr(tensor, "renamed", None)
    if renamed is not None:
        # A tensor in a file stays one.
        renamed_tensor: ir.TensorProtocol = renamed(name)
        return renamed_tensor
    return ir.LazyTensor(lambda: tensor, dtype=tensor.dtype, shape=ir.Shape(tensor.shape.numpy()), name=name)


class Initializers:
    """The initializers of a model's main graph.

    Attributes:
        graph: the main graph, whose initializers its sub-graphs see too.
        fixed: those that must keep their names and contents, such as weights that stay in another file.
        named: those whose names identify their contents, such as the parameters of a PyTorch model; an
            initializer derived from one gets another name.
        derived: those that were derived from others.
        transposed: the transposed matrices among them, each with the matrix that it was derived from.
        computed: those that passes created from contents; they are no weights.
    """

    def __init__(self, model: ir.Model, fixed: Collection[ir.Value] = (), named: Collection[ir.Value] = ()):
        self.graph = model.graph
        self.fixed = fixed
        self.named = named
        self.derived: set[ir.Value] = set()
        self.transposed: dict[ir.Value, ir.Value] = {}
        self.computed: set[ir.Value] = set()
        self._work: dict[ir.Value, int] = {}
        self._work_left: int | None = None
        self._arrays: dict[ir.TensorProtocol, np.ndarray | None] = {}
        self._names: Names | None = None
        self._by_contents: dict[tuple[ir.DataType, tuple[int, ...], bytes], ir.Value] = {}

    def is_constant(self, value: ir.Value | None) -> bool:
        """Whether a value is an initializer that a pass may fold; callers must not be able to replace it."""
        return (
            value is not None
            and value.const_value is not None
            and self.graph.initializers.data.get(value.name or "") is value
            and not value.is_graph_input()
            and value not in self.fixed
        )

    def small_array(self, value: ir.Value | None) -> np.ndarray | None:
        """The contents of a constant of at most 4096 elements, which are read once; None for other values."""
        tensor = None if value is None or not self.is_constant(value) else value.const_value
        if tensor is None:
            return None
        if tensor not in self._arrays:
            self._arrays[tensor] = None if element_count(tensor) > _SMALL else tensor.numpy()
        return self._arrays[tensor]

    def integers(self, node: ir.Node, name: str, position: int) -> list[int] | None:
        """The integers of an argument that is an attribute or a small constant; None for other values.

        Args:
            position: the index of the input, in opsets in which the argument is one.
        """
        if name in node.attributes:
            return list(node.attributes[name].as_ints())
        array = self.small_array(node.inputs[position]) if position < len(node.inputs) else None
        return None if array is None else array.reshape(-1).tolist()

    def reserve_work(self, elements: int) -> bool:
        """Whether so many more elements may be read and written to compute initializers.

        The bound is in proportion to the elements of the initializers. It stands for time: to compute 64
        elements from each element of a weight takes less than a second for a megabyte of weights.
        """
        if self._work_left is None:
            tensors = [value.const_value for value in self.graph.initializers.data.values()]
            stored = sum(element_count(tensor) for tensor in tensors if tensor is not None)
            self._work_left = _FREE_WORK + _WORK_PER_ELEMENT * stored
        if elements > self._work_left:
            return False
        self._work_left -= elements
        return True

    def work_of(self, value: ir.Value) -> int:
        """The elements that are read and written to compute an initializer; 0 if it is stored."""
        return self._work.get(value, 0)

    def unique(self, stem: str) -> str:
        """A name that no value and no node of any graph has."""
        if self._names is None:
            self._names = Names.of(self.graph)
        return self._names.unique(stem)

    def make(self, array: np.ndarray, stem: str) -> ir.Value:
        """An initializer with contents; the same one for equal contents."""
        # numpy.ascontiguousarray turns zero-dimensional arrays into one-dimensional ones.
        tensor = ir.Tensor(np.ascontiguousarray(array) if array.ndim else array)
        key = tensor.dtype, array.shape, array.tobytes()
        computed = self._by_contents.get(key)
        # A pass may have removed the earlier one as unused.
        if computed is None or not self.is_constant(computed):
            computed = self._by_contents[key] = self._add_initializer(tensor, self.unique(stem))
            self.computed.add(computed)
        return computed

    def derive(
        self,
        sources: list[ir.Value],
        compute: Callable[..., np.ndarray],
        dtype: ir.DataType,
        shape: tuple[int, ...],
        readers: int = 1,
        suffix: str = "derived",
        blocks: Blocks | None = None,
        work: int | None = None,
    ) -> ir.Value:
        """An initializer whose contents are computed from others each time that they are read.

        It takes the name of the first source if that source gets no other readers and is not in `named`;
        otherwise that name with the suffix, `fc.weight_transposed`.

        Args:
            readers: how many uses the first source has on behalf of the new one.
            suffix: the operation on the first source.
            blocks: computes the same contents in pieces.
            work: elements that this reads and writes; by default those of the sources and of the result.
        """
        tensors = [source.const_value for source in sources]
        assert all(tensor is not None for tensor in tensors)
        first = sources[0]
        name = first.name or "constant"
        is_last = len(first.uses()) <= readers and not first.is_graph_output()
        # A value that was derived earlier may have taken the name of the first source.
        is_last = is_last and self.graph.initializers.get(name) is first
        if first in self.named:
            name = self.unique(f"{name}_{suffix}")
        elif is_last:
            del self.graph.initializers[name]
        else:
            name = self.unique(name)

        def contents() -> ir.Tensor[np.ndarray]:
            array = compute(*(tensor.numpy() for tensor in tensors if tensor is not None))
            # numpy.ascontiguousarray would make one dimension of none.
            return ir.Tensor(np.asarray(array, dtype.numpy(), order="C"), name=name)

        tensor_arguments: dict[str, Any] = {"dtype": dtype, "shape": ir.Shape(shape), "name": name}
        if blocks is None:
            # Passes read small constants often, and each may be computed from large ones.
            tensor = ir.LazyTensor(contents, cache=math.prod(shape) <= _SMALL, **tensor_arguments)
        else:
            in_order = blocks
            tensor = _InBlocks(
                lambda: in_order(
                    *(source_tensor.numpy() for source_tensor in tensors if source_tensor is not None)
                ),
                contents,
                **tensor_arguments,
            )
        derived = self._add_initializer(tensor, name)
        self.derived.add(derived)
        if work is None:
            inner = sum(element_count(tensor) for tensor in tensors if tensor is not None)
            work = math.prod(shape) + inner + sum(map(self.work_of, sources))
        self._work[derived] = work
        return derived

    def restore(self, copy: ir.Value) -> ir.Value:
        """Restore the matrix from which a transposed one was derived, and remove the transposed one.

        The caller lets the readers of the copy read the matrix.
        """
        matrix = self.transposed.pop(copy)
        initializers = self.graph.initializers
        self.derived.discard(copy)
        del initializers[str(copy.name)]
        name = matrix.name or "constant"
        if initializers.get(name) is not matrix:
            matrix.name = self.unique(name) if name in initializers else name
            initializers.add(matrix)
        return matrix

    def _add_initializer(self, tensor: ir.TensorProtocol, name: str) -> ir.Value:
        shape = ir.Shape(tensor.shape.numpy())
        tensor.name = name
        value = ir.Value(name=name, type=ir.TensorType(tensor.dtype), shape=shape, const_value=tensor)
        self.graph.initializers.add(value)
        return value
