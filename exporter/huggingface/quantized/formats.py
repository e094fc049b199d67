"""The tensors of a quantized layer in GPTQ, AWQ and compressed-tensors, read as a `QuantizedMatrix`.

The formats are those that AutoGPTQ and GPTQModel (`pack` of their linear layers), AutoAWQ (`WQLinear_GEMM`,
`WQLinear_GEMV`) and compressed-tensors (`pack_to_int32`) write.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping

import numpy as np
import onnx_ir as ir

from ....registration import ModelFileError
from .matrix import QuantizedMatrix, lazy_tensor, matrix_in_groups
from .packed_integers import WORD, add_one, unpack_awq, unpack_rows, with_sign

Tensors = Mapping[str, ir.TensorProtocol]
"""The tensors of a layer by their own names."""


@dataclasses.dataclass(frozen=True)
class LayerSettings:
    """What a configuration says about the quantized layers.

    Attributes:
        bits: the sizes of the integers.
        group_size: the number of inputs with a common scale; -1 for all.
    """

    bits: tuple[int, ...]
    group_size: int = -1


@dataclasses.dataclass(frozen=True)
class LayerFormat:
    """How the weight of a layer is stored.

    Attributes:
        weight: the name of the tensor with the integers, which only quantized layers have.
        parameters: the names of the tensors with scales, zero points and groups.
        read: makes the matrix of the tensors of a layer. The third argument is the number of its inputs, or
            None if no layer of the model is known for it.
    """

    weight: str
    parameters: tuple[str, ...]
    read: Callable[[Tensors, LayerSettings, int | None], QuantizedMatrix]


def read_gptq(tensors: Tensors, settings: LayerSettings, columns: int | None) -> QuantizedMatrix:
    """GPTQ's first format, whose zero points are stored less 1."""
    return _read_gptq(tensors, settings, columns, 1)


def read_gptq_v2(tensors: Tensors, settings: LayerSettings, columns: int | None) -> QuantizedMatrix:
    """GPTQ's second format, whose zero points are stored as they are."""
    return _read_gptq(tensors, settings, columns, 0)


def _read_gptq(
    tensors: Tensors, settings: LayerSettings, columns: int | None, offset: int
) -> QuantizedMatrix:
    """Integers `[inputs, outputs]`, packed along the inputs; zero points, packed along the outputs."""
    packed, packed_zeros, scales = (tensors[name] for name in ("qweight", "qzeros", "scales"))
    # Checkpoints of old releases lack the group of each input.
    index = tensors.get("g_idx")
    words, rows = _sizes(packed, 2)
    columns = columns or (None if index is None else int(index.size))
    bits = _bits(words, columns, settings)
    columns = columns or words * WORD // bits
    groups = _sizes(scales, 2)[0]
    shapes = {"qweight": (_words(columns, bits), rows), "qzeros": (groups, _words(rows, bits))}
    _check_shapes(tensors, {**shapes, "scales": (groups, rows)})

    def codes() -> np.ndarray:
        return with_sign(unpack_rows(packed.numpy().T, bits, columns), bits)

    def zeros() -> np.ndarray:
        stored = packed_zeros.numpy()
        if offset and WORD % bits == 0:
            return with_sign(unpack_rows(add_one(stored, bits), bits, rows), bits)
        integers = unpack_rows(stored, bits, rows) + np.uint8(offset)
        return with_sign(integers & np.uint8((1 << bits) - 1), bits)

    numbers = _column_groups(index, columns, groups, settings)
    if numbers is None:
        raise _contradiction(tensors)
    return matrix_in_groups(codes, (rows, columns), scales, zeros, bits, numbers)


def read_awq_gemm(tensors: Tensors, settings: LayerSettings, columns: int | None) -> QuantizedMatrix:
    """Integers `[inputs, outputs]` and zero points, both packed along the outputs in the order of AWQ."""
    packed, packed_zeros, scales = (tensors[name] for name in ("qweight", "qzeros", "scales"))
    stored_columns, _ = _sizes(packed, 2)
    groups, rows = _sizes(scales, 2)
    [bits] = settings.bits
    words = _words(rows, bits)
    shapes = {"qweight": (columns or stored_columns, words), "qzeros": (groups, words)}
    _check_shapes(tensors, shapes)
    return matrix_in_groups(
        lambda: with_sign(unpack_awq(packed.numpy(), bits, rows).T, bits),
        (rows, stored_columns),
        scales,
        lambda: with_sign(unpack_awq(packed_zeros.numpy(), bits, rows), bits),
        bits,
        _groups_in_order(stored_columns, groups, settings),
    )


def read_awq_gemv(tensors: Tensors, settings: LayerSettings, columns: int | None) -> QuantizedMatrix:
    """Integers `[outputs, inputs]` and zero points, both packed along the inputs; scales are padded."""
    packed, packed_zeros, scales = (tensors[name] for name in ("qweight", "qzeros", "scales"))
    rows, words = _sizes(packed, 2)
    [bits] = settings.bits
    stored_columns = words * WORD // bits
    groups = math.ceil(stored_columns / (settings.group_size if settings.group_size > 0 else stored_columns))
    # Scales and zero points are padded, so that their kernels read whole vectors.
    is_padded = _sizes(scales, 2)[1] >= groups and _sizes(packed_zeros, 2)[1] >= _words(groups, bits)
    if not is_padded or stored_columns != (columns or stored_columns):
        raise _contradiction(tensors)
    own_scales = lazy_tensor(lambda: scales.numpy()[:, :groups].T, scales.dtype, (groups, rows))
    return matrix_in_groups(
        lambda: with_sign(unpack_rows(packed.numpy(), bits, stored_columns), bits),
        (rows, stored_columns),
        own_scales,
        lambda: with_sign(unpack_rows(packed_zeros.numpy(), bits, groups), bits).T,
        bits,
        _groups_in_order(stored_columns, groups, settings),
    )


def read_packed(tensors: Tensors, settings: LayerSettings, columns: int | None) -> QuantizedMatrix:
    """pack-quantized: integers `[outputs, inputs]`, packed by inputs, and zero points, packed by outputs."""
    packed = tensors["weight_packed"]
    shape = tensors["weight_shape"].numpy().tolist() if "weight_shape" in tensors else []
    rows, words = _sizes(packed, 2)
    stored_columns = int(shape[1]) if len(shape) == 2 else columns
    bits = _bits(words, stored_columns, settings)
    stored_columns = stored_columns or words * WORD // bits
    _check_shapes(tensors, {"weight_packed": (rows, _words(columns or stored_columns, bits))})
    return _read_compressed(
        tensors,
        lambda: with_sign(unpack_rows(packed.numpy(), bits, stored_columns), bits),
        (rows, stored_columns),
        bits,
        settings,
    )


def read_integers(tensors: Tensors, settings: LayerSettings, columns: int | None) -> QuantizedMatrix:
    """int-quantized: integers of 8 bits."""
    weight = tensors["weight"]
    rows, stored_columns = _sizes(weight, 2)
    if weight.dtype != ir.DataType.INT8 or stored_columns != (columns or stored_columns):
        raise _contradiction(tensors)
    return _read_compressed(tensors, weight.numpy, (rows, stored_columns), 8, settings)


def _read_compressed(
    tensors: Tensors,
    codes: Callable[[], np.ndarray],
    shape: tuple[int, int],
    bits: int,
    settings: LayerSettings,
) -> QuantizedMatrix:
    """A layer of compressed-tensors, with a scale for the whole matrix, a row, a group or a block of rows."""
    rows, columns = shape
    scales, stored_zeros, index = (
        tensors.get(name) for name in ("weight_scale", "weight_zero_point", "weight_g_idx")
    )
    if scales is None:
        raise _contradiction(tensors)
    sizes = (*scales.shape.numpy(), 1, 1)[:2] if scales.size == 1 else tuple(scales.shape.numpy())
    scale_rows, groups = sizes if len(sizes) == 2 else (sizes[0], 1)
    if rows % scale_rows or columns < groups:
        raise _contradiction(tensors)
    if stored_zeros is not None:
        packed_rows = _words(rows, bits) if stored_zeros.dtype == ir.DataType.INT32 else scale_rows
        if stored_zeros.size != packed_rows * groups:
            raise _contradiction(tensors)

    def for_rows(parameter: np.ndarray) -> np.ndarray:
        by_group = parameter.reshape(scale_rows, groups).T
        result: np.ndarray = np.repeat(by_group, rows // scale_rows, axis=1)
        return result

    def zeros() -> np.ndarray:
        assert stored_zeros is not None
        if stored_zeros.dtype != ir.DataType.INT32:
            return for_rows(stored_zeros.numpy())
        return with_sign(unpack_rows(stored_zeros.numpy().reshape(-1, groups).T, bits, rows), bits)

    numbers = _column_groups(index, columns, groups, settings)
    if numbers is None:
        raise _contradiction(tensors)
    return matrix_in_groups(
        codes,
        shape,
        lazy_tensor(lambda: for_rows(scales.numpy()), scales.dtype, (groups, rows)),
        None if stored_zeros is None else zeros,
        bits,
        numbers,
    )


def _column_groups(
    index: ir.TensorProtocol | None, columns: int, groups: int, settings: LayerSettings
) -> np.ndarray | None:
    """The group of each column; None if the stored ones do not exist.

    Args:
        index: the stored groups, which order of activations may have mixed.
    """
    if index is None:
        return _groups_in_order(columns, groups, settings)
    numbers = index.numpy().reshape(-1).astype(np.int64)
    is_valid = len(numbers) == columns and numbers.min() >= 0 and numbers.max() < groups
    return numbers if is_valid else None


def _groups_in_order(columns: int, groups: int, settings: LayerSettings) -> np.ndarray:
    """The group of each column, where groups are consecutive columns; the last one may be smaller."""
    size = settings.group_size
    # Some layers have other groups than the configuration says, such as one for each row.
    if size <= 0 or math.ceil(columns / size) != groups:
        size = math.ceil(columns / groups)
    return np.arange(columns) // size


def _bits(words: int, columns: int | None, settings: LayerSettings) -> int:
    """The size of integers, by the number of words of a layer: some layers have others than the rest."""
    sizes = (*settings.bits, 2, 3, 4, 8) if columns else settings.bits
    return next((bits for bits in sizes if words == _words(columns or 0, bits)), settings.bits[0])


def _words(count: int, bits: int) -> int:
    return math.ceil(count * bits / WORD)


def _check_shapes(tensors: Tensors, shapes: Mapping[str, tuple[int, int]]) -> None:
    if any(tuple(tensors[name].shape.numpy()) != shape for name, shape in shapes.items()):
        raise _contradiction(tensors)


def _sizes(tensor: ir.TensorProtocol, rank: int) -> tuple[int, ...]:
    sizes = tuple(int(size) for size in tensor.shape.numpy())
    if len(sizes) != rank or 0 in sizes:
        raise ModelFileError(f"'{tensor.name}' has the shape {list(sizes)}, and a matrix is expected")
    return sizes


def _contradiction(tensors: Tensors) -> ModelFileError:
    shapes = ", ".join(f"{name} {list(tensor.shape.numpy())}" for name, tensor in tensors.items())
    return ModelFileError(f"the tensors of a quantized layer contradict each other or the model: {shapes}")


_AWQ = ("qzeros", "scales")
_GPTQ = (*_AWQ, "g_idx")
_COMPRESSED = ("weight_scale", "weight_zero_point", "weight_shape", "weight_g_idx")
FORMATS: dict[tuple[str, str], LayerFormat] = {
    ("gptq", "gptq"): LayerFormat("qweight", _GPTQ, read_gptq),
    ("gptq", "gptq_v2"): LayerFormat("qweight", _GPTQ, read_gptq_v2),
    ("awq", "gemm"): LayerFormat("qweight", _AWQ, read_awq_gemm),
    ("awq", "gemv"): LayerFormat("qweight", _AWQ, read_awq_gemv),
    ("compressed-tensors", "pack-quantized"): LayerFormat("weight_packed", _COMPRESSED, read_packed),
    ("compressed-tensors", "int-quantized"): LayerFormat("weight", _COMPRESSED, read_integers),
    ("compressed-tensors", "naive-quantized"): LayerFormat("weight", _COMPRESSED, read_integers),
}
"""The formats by the method and the format that a configuration names."""
