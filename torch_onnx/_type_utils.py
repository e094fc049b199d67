"""Element types with the names of torch.onnx."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

from onnx_ir import DataType

from .errors import OnnxExporterError
from .symbolic_functions.torch_arrays import is_tensor_of_torch

if TYPE_CHECKING:
    import torch


class JitScalarType(enum.IntEnum):
    """The element types of torch, numbered as in `torch.onnx.JitScalarType`."""

    UINT8 = 0
    INT8 = 1
    INT16 = 2
    INT = 3
    INT64 = 4
    HALF = 5
    FLOAT = 6
    DOUBLE = 7
    COMPLEX32 = 8
    COMPLEX64 = 9
    COMPLEX128 = 10
    BOOL = 11
    QINT8 = 12
    QUINT8 = 13
    QINT32 = 14
    BFLOAT16 = 15
    FLOAT8E5M2 = 16
    FLOAT8E4M3FN = 17
    FLOAT8E5M2FNUZ = 18
    FLOAT8E4M3FNUZ = 19
    UNDEFINED = 20

    @classmethod
    def of(cls, dtype: DataType | None) -> JitScalarType:
        """The type for an ONNX element type; UNDEFINED if it is unknown."""
        return next(
            (scalar_type for scalar_type, onnx_type in _ONNX.items() if onnx_type == dtype), cls.UNDEFINED
        )

    @classmethod
    def from_name(cls, name: str | None) -> JitScalarType:
        """Return the type with a name, `Float` or C++'s `float`.

        Raises:
            OnnxExporterError: no type has this name.
        """
        for table in (_SCALAR_NAMES, _TORCH_NAMES):
            for scalar_type, type_name in table.items():
                if type_name == name:
                    return scalar_type
        raise OnnxExporterError(f"{name!r} is not the name of an element type")

    _from_name = from_name

    @classmethod
    def from_dtype(cls, dtype: object) -> JitScalarType:
        """The type of a `torch.dtype`.

        Raises:
            OnnxExporterError: it is not an element type.
        """
        for scalar_type in cls:
            if scalar_type in _DTYPES and str(dtype) == f"torch.{_DTYPES[scalar_type]}":
                return scalar_type
        raise OnnxExporterError(f"{dtype!r} is not a torch.dtype")

    @classmethod
    def from_onnx_type(cls, onnx_type: int | None) -> JitScalarType:
        """The type for a number of ONNX's `TensorProto.DataType`."""
        scalar_type = cls.of(DataType(int(onnx_type))) if onnx_type is not None else cls.UNDEFINED
        if scalar_type == cls.UNDEFINED:
            raise OnnxExporterError(f"{onnx_type!r} is not the number of an ONNX element type that torch has")
        return scalar_type

    @classmethod
    def from_value(cls, value: object, default: JitScalarType | None = None) -> JitScalarType:
        """The element type of a value or tensor; of its elements for a list.

        Raises:
            OnnxExporterError: it is unknown, and there is no default.
        """
        scalar_type = cls.UNDEFINED
        if is_tensor_of_torch(value):
            scalar_type = cls.from_dtype(value.dtype)
        else:
            scalar_type = cls.of(getattr(value, "element_type", None))
        if scalar_type != cls.UNDEFINED:
            return scalar_type
        if default is None:
            raise OnnxExporterError(f"the element type of {value!r} is unknown")
        return default

    def scalar_name(self) -> str:
        """The name in `type().scalarType()`: `Float`, `Long`."""
        return _SCALAR_NAMES[self]

    def torch_name(self) -> str:
        """The name in C++: `float`, `int64_t`."""
        return _TORCH_NAMES[self]

    def dtype(self) -> torch.dtype:
        """The `torch.dtype`."""
        import torch

        if self not in _DTYPES:
            raise OnnxExporterError(f"{self.name} has no torch.dtype")
        dtype: torch.dtype = getattr(torch, _DTYPES[self])
        return dtype

    def onnx_type(self) -> DataType:
        """The element type in ONNX, which `to_i=` takes."""
        if self not in _ONNX:
            raise OnnxExporterError(f"ONNX has no element type for {self.name}")
        return _ONNX[self]

    def onnx_compatible(self) -> bool:
        """Whether ONNX has the type."""
        return self in _ONNX


_SCALAR_NAMES = dict(
    zip(
        JitScalarType,
        "Byte Char Short Int Long Half Float Double ComplexHalf ComplexFloat ComplexDouble Bool QInt8 QUInt8 "
        "QInt32 BFloat16 Float8E5M2 Float8E4M3FN Float8E5M2FNUZ Float8E4M3FNUZ Undefined".split(),
        strict=True,
    )
)
_TORCH_NAMES = dict(
    zip(
        JitScalarType,
        "uint8_t int8_t int16_t int int64_t half float double complex32 complex64 complex128 bool qint8 "
        "quint8 qint32 bfloat16 float8_e5m2 float8_e4m3fn float8_e5m2fnuz float8_e4m3fnuz".split(),
        strict=False,
    )
)
_DTYPES = {
    **_TORCH_NAMES,
    JitScalarType.UINT8: "uint8",
    JitScalarType.INT8: "int8",
    JitScalarType.INT16: "int16",
    JitScalarType.INT: "int32",
    JitScalarType.INT64: "int64",
    JitScalarType.HALF: "float16",
    JitScalarType.FLOAT: "float32",
    JitScalarType.DOUBLE: "float64",
}
_SAME_NAME_IN_ONNX = (
    "UINT8 INT8 INT16 INT64 FLOAT DOUBLE COMPLEX64 COMPLEX128 BOOL BFLOAT16 FLOAT8E5M2 FLOAT8E4M3FN "
    "FLOAT8E5M2FNUZ FLOAT8E4M3FNUZ"
)
_ONNX = {JitScalarType[name]: DataType[name] for name in _SAME_NAME_IN_ONNX.split()} | {
    JitScalarType.INT: DataType.INT32,
    JitScalarType.HALF: DataType.FLOAT16,
    JitScalarType.QINT8: DataType.INT8,
    JitScalarType.QUINT8: DataType.UINT8,
    JitScalarType.QINT32: DataType.INT32,
}
