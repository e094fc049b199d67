"""Packs weights for the kernels of torch's oneDNN, and converts packed weights to bytes and back."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import itertools
import os
import platform
import re
import sys
from collections.abc import Iterator, Sequence

import torch

from ...registration import PrepackUnavailable
from .probe import PREPACKING, missing

ALIGNMENT = 64
"""oneDNN aligns memory to this many bytes, and so does torch."""
_LIBRARY = "libtorch_cpu.so"
_SYMBOLS = (
    "aoti_torch_create_tensor_from_blob_v2",
    "aoti_torch_device_type_cpu",
    "aoti_torch_dtype_bfloat16",
    "aoti_torch_dtype_float16",
    "aoti_torch_dtype_float32",
    "aoti_torch_dtype_int8",
    "aoti_torch_layout__mkldnn",
)
GROUPS_BYTES = 4
"""The size in bytes of the number of groups, which torch appends to oneDNN's descriptor."""


@functools.cache
def library() -> ctypes.CDLL:
    """Load torch's library, whose C interface makes a tensor from packed bytes.

    Raises:
        PrepackUnavailable: this platform or torch lacks what is needed; the message names it.
    """
    if not sys.platform.startswith("linux"):
        raise PrepackUnavailable(f"packing weights with oneDNN needs Linux, not {platform.system()}")
    if not torch.backends.mkldnn.is_available():
        raise PrepackUnavailable(f"torch {torch.__version__} was built without oneDNN")
    lacking = list(missing(PREPACKING))
    path = os.path.join(os.path.dirname(torch.__file__), "lib", _LIBRARY)
    try:
        torch_library = ctypes.CDLL(path)
        lacking += [name for name in _SYMBOLS if not hasattr(torch_library, name)]
    except OSError:
        lacking.append(path)
    if lacking:
        raise PrepackUnavailable(f"torch {torch.__version__} lacks {', '.join(lacking)}")
    for name in _SYMBOLS[1:]:
        # These are functions that return the codes of torch's enumerations.
        getattr(torch_library, name).restype = ctypes.c_int32
    sizes = ctypes.POINTER(ctypes.c_int64)
    create = torch_library.aoti_torch_create_tensor_from_blob_v2
    create.restype = ctypes.c_int32
    create.argtypes = [
        *(ctypes.c_void_p, ctypes.c_int64, sizes, sizes, ctypes.c_int64, ctypes.c_int32, ctypes.c_int32),
        *(ctypes.c_int32, ctypes.POINTER(ctypes.c_void_p), ctypes.c_int32, ctypes.c_char_p, ctypes.c_int64),
    ]
    return torch_library


def version() -> str:
    """The version and source revision of torch's oneDNN."""
    match = re.search(r"MKL-DNN (v[\d.]+) \(Git Hash (\w+)\)", torch.__config__.show())
    return " ".join(match.groups()) if match else "unknown"


@contextlib.contextmanager
def _translate_packing_errors(weight: torch.Tensor) -> Iterator[None]:
    """Translate the errors of packing a weight within the context.

    Raises:
        PrepackUnavailable: there is no oneDNN, or it cannot pack such a weight on this processor.
    """
    # Raises an error that names what is missing; torch's error would only name an unknown operator.
    library()
    try:
        yield
    except RuntimeError as error:
        dtype = str(weight.dtype).removeprefix("torch.")
        raise PrepackUnavailable(
            f"oneDNN cannot pack {dtype} weights on this processor: {error}; "
            "float32 weights can be packed on each"
        ) from error


def pack_linear(weight: torch.Tensor, batch: int | None) -> torch.Tensor:
    """Pack the weight of a linear layer, [out, in]."""
    with _translate_packing_errors(weight):
        result: torch.Tensor = torch.ops.mkldnn._reorder_linear_weight(weight, batch)
    return result


def pack_convolution(
    weight: torch.Tensor,
    padding: Sequence[int],
    stride: Sequence[int],
    dilation: Sequence[int],
    groups: int,
    input_size: Sequence[int] | None,
) -> torch.Tensor:
    """Pack the weight of a convolution of two or three dimensions, [out, in / groups, …]."""
    size = None if input_size is None else list(input_size)
    planar = weight.dim() == 4
    with _translate_packing_errors(weight):
        operators = torch.ops.aten
        pack = operators.mkldnn_reorder_conv2d_weight if planar else operators.mkldnn_reorder_conv3d_weight
        result: torch.Tensor = pack(
            weight.to_mkldnn(), list(padding), list(stride), list(dilation), groups, size
        )
    return result


def pack_quantized_linear(weight: torch.Tensor) -> torch.Tensor:
    """Pack the INT8 weight of a linear layer, [out, in]; the packed tensor has the shape [in, out].

    Raises:
        PrepackUnavailable: oneDNN computes wrong products of 8-bit integers on this processor.
    """
    with _translate_packing_errors(weight):
        if not has_exact_integer_products():
            raise PrepackUnavailable(NO_EXACT_INTEGERS)
        result: torch.Tensor = torch.ops.onednn.qlinear_prepack(weight, None)
    return result


def pack_lstm(
    input_weight: torch.Tensor, state_weight: torch.Tensor, hidden_size: int, reverse: bool
) -> Sequence[torch.Tensor]:
    """Pack the weights of one direction of an LSTM's layer, [4 * hidden, in] and [4 * hidden, hidden]."""
    with _translate_packing_errors(input_weight):
        result: Sequence[torch.Tensor] = torch.ops.mkldnn._reorder_mkldnn_rnn_layer_weight(
            input_weight, state_weight, hidden_size, reverse, True, False, None
        )
    return result


def descriptor_blob(packed: torch.Tensor) -> tuple[bytes, int]:
    """Return oneDNN's descriptor of a packed tensor as bytes, and the number of groups."""
    blob = bytes(torch.ops.mkldnn._get_mkldnn_serialized_md(packed).tolist())
    return blob[:-GROUPS_BYTES], int.from_bytes(blob[-GROUPS_BYTES:], sys.byteorder)


def packed_bytes(packed: torch.Tensor) -> torch.Tensor:
    """A copy of the bytes of a packed tensor, in aligned memory."""
    size = torch.ops.mkldnn._nbytes(packed)
    # The buffer has no owner: it is valid while the packed tensor lives.
    content = (ctypes.c_uint8 * size).from_address(torch.ops.mkldnn.data_ptr(packed))
    return torch.frombuffer(content, dtype=torch.uint8).clone()


def tensor_of(
    content: torch.Tensor, shape: Sequence[int], dtype: str, blob: bytes, groups: int
) -> torch.Tensor:
    """Make a packed tensor that uses the memory of `content`; the caller must keep `content` alive.

    Args:
        blob: a descriptor made by the same version of oneDNN; any other may crash the process.
    """
    torch_library = library()
    strides = [1] * len(shape)
    for axis in range(len(shape) - 2, -1, -1):
        strides[axis] = strides[axis + 1] * shape[axis + 1]
    array = ctypes.c_int64 * len(shape)
    handle = ctypes.c_void_p()
    metadata = blob + groups.to_bytes(GROUPS_BYTES, sys.byteorder)
    status = torch_library.aoti_torch_create_tensor_from_blob_v2(
        content.data_ptr(),
        len(shape),
        array(*shape),
        array(*strides),
        0,
        getattr(torch_library, f"aoti_torch_dtype_{dtype}")(),
        torch_library.aoti_torch_device_type_cpu(),
        0,
        ctypes.byref(handle),
        torch_library.aoti_torch_layout__mkldnn(),
        metadata,
        len(metadata),
    )
    if status:
        raise PrepackUnavailable(f"torch could not make a packed tensor (status {status})")
    # torch accepts a handle of its C interface only in a capsule.
    capsule = ctypes.pythonapi.PyCapsule_New
    capsule.restype, capsule.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    return torch._C._aoti.alloc_tensor_by_stealing_from_void_ptr(capsule(handle.value, None, None))


def linear(x: torch.Tensor, packed: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    """`torch.nn.functional.linear` with a packed weight."""
    result: torch.Tensor = torch.ops.mkldnn._linear_pointwise(x, packed, bias, "none", [], "")
    return result


def quantized_linear(
    x: torch.Tensor,
    x_scale: torch.Tensor,
    x_zero_point: torch.Tensor,
    packed: torch.Tensor,
    scale: torch.Tensor,
    bias: torch.Tensor | None,
) -> torch.Tensor:
    """A linear layer of dequantized 8-bit integers with a packed INT8 weight; the result is FLOAT.

    Args:
        x: UINT8 or INT8; its scale and zero point are tensors of one element.
        scale: the scale of each output; the weight has no zero point.

    Raises:
        PrepackUnavailable: oneDNN computes wrong products of 8-bit integers on this processor.
    """
    if not has_exact_integer_products():
        raise PrepackUnavailable(NO_EXACT_INTEGERS)
    return _multiply_integers(x, x_scale, x_zero_point, packed, scale, bias)


def _multiply_integers(
    x: torch.Tensor,
    x_scale: torch.Tensor,
    x_zero_point: torch.Tensor,
    packed: torch.Tensor,
    scale: torch.Tensor,
    bias: torch.Tensor | None,
) -> torch.Tensor:
    zero_points = torch.zeros(scale.shape, dtype=torch.int64)
    operands = (x, x_scale, x_zero_point, packed, scale, zero_points, bias)
    result: torch.Tensor = torch.ops.onednn.qlinear_pointwise.tensor(
        *operands, 1.0, 0, torch.float32, "none", [], ""
    )
    # torch returns a matrix for an input without elements.
    return result.reshape(*x.shape[:-1], *scale.shape)


@functools.cache
def has_exact_integer_products() -> bool:
    """Whether oneDNN's products of 8-bit integers are exact here.

    Without instructions for four products at a time (VNNI, AMX), the sum of two products of 8-bit integers
    is limited to 16 bits, and large ones are wrong.
    """
    library()
    weight = torch.full((16, 64), 127, dtype=torch.int8)
    packed, one = torch.ops.onednn.qlinear_prepack(weight, None), torch.ones(1)
    for rows, number, zero_point in itertools.product((1, 32), (255, 127, -128), (0, 1)):
        x = torch.full((rows, 64), number, dtype=torch.uint8 if number == 255 else torch.int8)
        sums = _multiply_integers(x, one, torch.tensor(zero_point), packed, torch.ones(16), None)
        if not bool((sums == 64 * 127 * (number - zero_point)).all()):
            return False
    return True


NO_EXACT_INTEGERS = (
    "oneDNN's products of 8-bit integers are wrong on this processor, or with this ONEDNN_MAX_CPU_ISA, "
    "because it has no VNNI; float32 weights can be packed"
)
"""The message for INT8 weights that cannot be used here."""


def lstm_layer(
    x: torch.Tensor,
    weights: Sequence[torch.Tensor],
    h: torch.Tensor,
    c: torch.Tensor,
    reverse: bool,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """One direction of an LSTM's layer: the results [time, batch, hidden], and the last states.

    Args:
        x: [time, batch, in], contiguous, and not empty.
        weights: the packed weights of `pack_lstm`, and the two biases.
    """
    lstm_mode, hidden_size, layers = 2, h.shape[-1], 1
    # The flags: with biases, but one direction, time first, for inference.
    flags = (True, False, False, False)
    result, last_h, last_c, _ = torch.ops.aten.mkldnn_rnn_layer(
        x, *weights, h, c, reverse, [], lstm_mode, hidden_size, layers, *flags
    )
    return result, last_h, last_c


@functools.cache
def packs_lstm() -> bool:
    """Whether oneDNN packs weights of LSTMs for this processor; it computes with plain ones for old ones."""
    weights = pack_lstm(torch.zeros(128, 32), torch.zeros(128, 32), 32, False)
    return all(weight.is_mkldnn for weight in weights)


def convolution(
    x: torch.Tensor,
    packed: torch.Tensor,
    bias: torch.Tensor | None,
    padding: Sequence[int],
    stride: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> torch.Tensor:
    """`torch.nn.functional.conv2d` or `conv3d` with a packed weight."""
    result: torch.Tensor = torch.ops.mkldnn._convolution_pointwise(
        x, packed, bias, list(padding), list(stride), list(dilation), groups, "none", [], ""
    )
    return result
