"""Checks sparse tensors, and converts sparse constants to dense ones."""

from __future__ import annotations

import math

import numpy as np
import onnx
from onnx import numpy_helper

from .....registration import ModelFileError
from ..external_data.files import ExternalFiles
from .tensor_contents import check_tensor

_MAXIMUM_ELEMENTS = 2**22
"""A few bytes of a file can state any shape."""


def check_sparse(tensor: onnx.SparseTensorProto, files: ExternalFiles, title: str) -> None:
    """Check that a sparse tensor has as many indices as values.

    Raises:
        ModelFileError: it has not, or it has external data.
    """
    check_tensor(tensor.values, files, title)
    check_tensor(tensor.indices, files, f"the indices of {title}")
    if min(tensor.dims, default=0) < 0:
        raise ModelFileError(f"{title} has a negative size, {min(tensor.dims)}")
    if onnx.TensorProto.EXTERNAL in (tensor.values.data_location, tensor.indices.data_location):
        raise ModelFileError(f"{title} has external data, which is not supported for sparse tensors")
    count = list(tensor.values.dims)
    indices = list(tensor.indices.dims)
    if len(count) != 1 or indices not in (count, [*count, len(tensor.dims)]):
        raise ModelFileError(f"{title} has values of shape {count}, but indices of shape {indices}")


def dense_tensor(tensor: onnx.SparseTensorProto, files: ExternalFiles, title: str) -> onnx.TensorProto:
    """The tensor with its zeros.

    Raises:
        ModelFileError: it is invalid, or has more than four million elements.
    """
    check_sparse(tensor, files, title)
    shape = list(tensor.dims)
    if math.prod(shape) > _MAXIMUM_ELEMENTS:
        raise ModelFileError(f"{title} is a sparse tensor of more than {_MAXIMUM_ELEMENTS} elements")
    values, indices = numpy_helper.to_array(tensor.values), numpy_helper.to_array(tensor.indices)
    dense = np.zeros(shape, values.dtype)
    try:
        # NumPy would count a negative index from the end.
        if indices.size and indices.min() < 0:
            raise IndexError
        positions = tuple(indices.T) if indices.ndim == 2 else np.unravel_index(indices, shape)
        dense[positions] = values
    except (IndexError, ValueError):
        raise ModelFileError(f"{title} has indices outside of its shape {shape}") from None
    return numpy_helper.from_array(dense)
