"""Runs kernels on generated operands, to find operands that only the kernels refuse.

Shape functions check few element types, and no values: that of `index_select` accepts an index of floats, and
an index out of range. A refusal here is not yet an error: the caller then runs the program itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch

from ....passes.faults import raise_fault
from ...torch_boundary.containers import pytree
from .fake_values import UNKNOWN, Number, Tensor, UnrankedTensor

_MOST_ELEMENTS = 1 << 24
"""The number of elements of all operands, up to which a kernel runs."""
_LOOKUPS = frozenset(
    f"aten::{name}" for name in "embedding embedding_bag gather index index_select take".split()
)
"""Operators that read few elements of their first operand."""
_PRODUCTS = frozenset(
    f"aten::{name}"
    for name in (
        "linear matmul mm bmm addmm baddbmm addbmm addmv mv dot einsum tensordot bilinear cdist "
        "conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d _convolution convolution "
        "lstm gru rnn_tanh rnn_relu lstm_cell gru_cell rnn_tanh_cell rnn_relu_cell "
        "scaled_dot_product_attention"
    ).split()
)
"""Operators whose shape functions check everything except mixed element types, which kernels refuse first."""
_OF_MATRICES = tuple(
    f"aten::{name}"
    for name in (
        "linalg_ _linalg svd qr eig inverse cholesky lu det logdet slogdet matrix_ pinverse lstsq "
        "triangular_solve geqrf orgqr ormqr fft_ stft istft"
    ).split()
)
"""Name prefixes of operators that are slow for large matrices, or refuse some values."""


class KernelChecks:
    """Tries each operator once for each combination of element types and ranks."""

    def __init__(self) -> None:
        self._tried: set[tuple[object, ...]] = set()

    def refuses(self, name: str, operator: Callable[..., object], arguments: Mapping[str, object]) -> bool:
        """Whether the kernel of an operator refuses operands that its shape function accepts.

        Args:
            name: the qualified name, `aten::gather`; operators of other libraries are not run.
            operator: the overload.
            arguments: by name, with the known properties of values.
        """
        leaves, structure = pytree.tree_flatten(dict(arguments))
        if any(leaf is UNKNOWN or isinstance(leaf, UnrankedTensor) for leaf in leaves):
            return False
        tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
        if not name.startswith("aten::") or not tensors or not _is_affordable(name, tensors):
            return False
        # Kernels decide by these properties, so a second call like the first tells nothing new.
        key = operator, *map(_signature, leaves)
        if key in self._tried:
            return False
        self._tried.add(key)
        # Try 0 and 1: an integer may be an index, where 1 may be out of range, or a divisor, where 0 fails.
        stored = tensors[0] if name in _LOOKUPS else None
        return all(
            _fails(operator, [_stand_in(leaf, integer, leaf is stored) for leaf in leaves], structure)
            for integer in (0, 1)
        )


def _is_affordable(name: str, tensors: list[Tensor]) -> bool:
    if name in _PRODUCTS:
        return len({tensor.dtype for tensor in tensors}) > 1
    if name.startswith(_OF_MATRICES):
        return False
    # A lookup reads few elements of its table, whose pages stay untouched.
    counted = tensors[1:] if name in _LOOKUPS else tensors
    return sum(tensor.any.numel() for tensor in counted) <= _MOST_ELEMENTS


def _signature(leaf: object) -> object:
    """The properties that decide whether a kernel accepts an operand."""
    if isinstance(leaf, Tensor):
        return leaf.dtype, leaf.dim(), id(leaf.example)
    if isinstance(leaf, Number):
        return leaf.number_type
    return leaf if isinstance(leaf, (torch.dtype, str, bool)) else type(leaf)


def _fails(operator: Callable[..., object], leaves: list[object], structure: pytree.TreeSpec) -> bool:
    try:
        operator(**pytree.tree_unflatten(leaves, structure))
    except Exception as error:
        # A kernel may raise any exception.
        raise_fault(error, "when it tried the kernel of an operator")
        return True
    return False


def _stand_in(leaf: object, integer: int, is_stored: bool) -> object:
    """An operand of a kernel.

    Args:
        integer: the value of tensors of integers.
        is_stored: whether the tensor is large, and few of its elements are read: its memory stays untouched.
    """
    if isinstance(leaf, Number):
        return leaf.samples[0]
    if not isinstance(leaf, Tensor):
        return leaf
    sample = leaf.any
    if is_stored:
        return torch.zeros(tuple(sample.shape), dtype=sample.dtype)
    if leaf.example is not None and leaf.example.shape == sample.shape:
        return leaf.example.clone()
    is_fraction = sample.is_floating_point() or sample.is_complex()
    return torch.full(tuple(sample.shape), 1 if is_fraction else integer, dtype=sample.dtype)
