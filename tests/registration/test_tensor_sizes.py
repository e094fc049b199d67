"""Counts of bytes from element types and numbers of elements."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from opsetta.registration.inference.tensor_sizes import byte_count, packed_bytes

TYPES = [dtype for dtype in ir.DataType if dtype not in (ir.DataType.UNDEFINED, ir.DataType.STRING)]


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape", [(), (0,), (1,), (3, 5), (2, 2)])
def test_bytes_are_those_of_onnx_ir(dtype: ir.DataType, shape: tuple[int, ...]) -> None:
    tensor = ir.Tensor(np.zeros(shape, dtype.numpy()), dtype=dtype)
    assert byte_count(tensor) == packed_bytes(dtype, tensor.size) == len(tensor.tobytes())


def test_large_counts_are_exact() -> None:
    # As a float, this count would lose its last bit.
    assert packed_bytes(ir.DataType.INT4, 2**60 + 1) == 2**59 + 1
    assert packed_bytes(ir.DataType.INT2, 2**60 + 1) == 2**58 + 1
