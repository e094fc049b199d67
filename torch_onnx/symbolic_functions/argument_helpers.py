"""The functions of `symbolic_helper` that parse arguments and inspect values."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NoReturn, SupportsFloat, SupportsInt, TypeGuard, TypeVar

from ...registration import ArgumentError
from ...registration.promotion import promote
from .._type_utils import JitScalarType
from ..errors import OnnxExporterError, SymbolicValueError
from .context import GraphContext
from .torch_arrays import is_tensor_of_torch
from .values import ListType, Node, TensorType, Value

if TYPE_CHECKING:
    import torch

_FLOATS = {JitScalarType.FLOAT, JitScalarType.DOUBLE, JitScalarType.HALF, JitScalarType.BFLOAT16}
_COMPLEX = {JitScalarType.COMPLEX32, JitScalarType.COMPLEX64, JitScalarType.COMPLEX128}
Result = TypeVar("Result")
_READERS: dict[str, Callable[[object], object]] = {
    "i": lambda item: to_int(item),
    "f": lambda item: to_float(item),
    "b": bool,
    "s": str,
    "t": lambda item: item,
    "is": lambda items: [to_int(item) for item in to_list(items)],
    "fs": lambda items: [to_float(item) for item in to_list(items)],
}


def to_int(item: object) -> int:
    """Convert a number, or a tensor of one element, to an int.

    Raises:
        SymbolicValueError: it is none.
    """
    if not isinstance(item, SupportsInt):
        raise SymbolicValueError(f"an integer is needed, not {item!r}")
    return int(item)


def to_float(item: object) -> float:
    """Convert a number, or a tensor of one element, to a float; raises as `to_int`."""
    if not isinstance(item, SupportsFloat):
        raise SymbolicValueError(f"a number is needed, not {item!r}")
    return float(item)


def to_list(items: object) -> Sequence[object]:
    """Return a list or tuple unchanged, and anything else as the only member of a list."""
    return items if isinstance(items, (list, tuple)) else [items]


def parse_args(*arg_descriptors: str) -> Callable[[Callable[..., Result]], Callable[..., Result]]:
    """Decorate a symbolic function so that its arguments are Python numbers.

    Args:
        arg_descriptors: one for each argument: `v` a value, `i` int, `f` float, `b` bool, `s` str,
            `is` and `fs` lists of them, `t` a torch tensor, `none` anything.
    """

    def decorator(fn: Callable[..., Result]) -> Callable[..., Result]:
        # The first parameter is the context.
        names = list(inspect.signature(fn).parameters)[1:]

        @functools.wraps(fn)
        def wrapper(g: GraphContext, *args: object, **kwargs: object) -> Result:
            if len(args) > len(arg_descriptors):
                raise ArgumentError(
                    f"{fn.__name__} is called with {len(args)} arguments, but parse_args describes "
                    f"{len(arg_descriptors)}"
                )
            # A function with *args has arguments without a name.
            padded = [*names, *[None] * (len(args) - len(names))]
            read = [
                _parse_arg(argument, descriptor, name, fn.__name__)
                for argument, descriptor, name in zip(args, arg_descriptors, padded, strict=False)
            ]
            return fn(g, *read, **kwargs)

        wrapper._arg_descriptors = arg_descriptors  # type: ignore[attr-defined]
        return wrapper

    return decorator


def quantized_args(
    *arg_q_descriptors: bool, **options: object
) -> Callable[[Callable[..., Result]], Callable[..., Result]]:
    """Return the function unchanged, because no value here is quantized."""
    return lambda fn: fn


def _parse_arg(value: object, desc: str, arg_name: str | None = None, node_name: str | None = None) -> object:
    """Convert an argument to a Python value of the described type; None stays None.

    Raises:
        SymbolicValueError: it is not constant.
    """
    if desc in ("none", "v") or not isinstance(value, Value):
        return value
    if desc not in _READERS:
        raise OnnxExporterError(
            f"'{desc}' is not a descriptor; the descriptors are v, none, {', '.join(_READERS)}"
        )
    if value.wrapped is None:
        return None
    constant = value.constant()
    if constant is None and desc in ("is", "fs") and value.is_packed():
        constant = [_constant_of_list(item, arg_name) for item in value.node().inputs()]
    if constant is None:
        where = f" '{arg_name}' of {node_name}" if arg_name else ""
        raise SymbolicValueError(
            f"argument{where} must be constant, but {value.node().kind()} computes it", value
        )
    if desc == "t":
        return value.node()["value"]
    if hasattr(constant, "tolist"):
        constant = constant.tolist()
    # torch.onnx takes a tensor of one element for a number.
    if desc in ("i", "f", "b") and isinstance(constant, list) and len(constant) == 1:
        constant = constant[0]
    return _READERS[desc](constant)


def _constant_of_list(item: Value, arg_name: str | None) -> object:
    constant = item.constant()
    if constant is None:
        raise SymbolicValueError(f"list '{arg_name}' must be constant, but has computed members", item)
    return constant


def _maybe_get_const(value: object, descriptor: str) -> object:
    """Convert a constant as `_parse_arg` does; return anything else unchanged."""
    return (
        _parse_arg(value, descriptor)
        if _is_value(value) and (value.node().kind() == "onnx::Constant")
        else value
    )


def _maybe_get_scalar(value: object) -> object:
    """Convert a zero-dim constant to a torch tensor; return anything else unchanged."""
    tensor = _maybe_get_const(value, "t")
    return tensor if is_tensor_of_torch(tensor) and not tensor.shape else value


def _get_const(value: object, desc: str, arg_name: str) -> object:
    """Convert a constant as `_parse_arg` does.

    Raises:
        SymbolicValueError: it is computed.
    """
    if not _is_constant(value):
        raise SymbolicValueError(f"argument '{arg_name}' must be constant, but is computed", value)
    return _parse_arg(value, desc, arg_name)


def _node_get(node: Node, key: str) -> object:
    return node[key]


def _scalar(x: object) -> object:
    """Return the number in a zero-dim torch tensor, else None."""
    return x.item() if is_tensor_of_torch(x) and not x.shape else None


def _if_scalar_type_as(self: Value | torch.Tensor, tensor: object) -> Value | torch.Tensor:
    """Cast a torch tensor to the element type of a value; return a value unchanged."""
    scalar_type = JitScalarType.from_value(tensor, JitScalarType.UNDEFINED)
    return (
        self
        if isinstance(self, Value) or scalar_type == JitScalarType.UNDEFINED
        else self.to(scalar_type.dtype())
    )


def _unpack_list(list_value: Value) -> list[Value]:
    """Return the elements of a list.

    Raises:
        SymbolicValueError: it is not a list.
    """
    if not _is_packed_list(list_value):
        raise SymbolicValueError(f"a list is needed, not {list_value.node().kind()}", list_value)
    return list_value.node().inputs()


def _is_packed_list(list_value: object) -> TypeGuard[Value]:
    return _is_value(list_value) and list_value.is_packed()


def _is_none(x: object) -> bool:
    return x is None or (isinstance(x, Value) and x.wrapped is None)


def _is_value(x: object) -> TypeGuard[Value]:
    return isinstance(x, Value)


def _is_constant(value: object) -> bool:
    return not isinstance(value, Value) or value.node().kind() in ("onnx::Constant", "prim::Constant")


def _is_tensor(x: Value) -> bool:
    return x.type().kind() == "TensorType"


def _as_list_type(jit_type: TensorType) -> ListType | None:
    return jit_type if isinstance(jit_type, ListType) else None


def _is_list(x: Value) -> bool:
    return isinstance(x.type(), ListType)


_is_tensor_list = _is_list


def _is_scalar_list(x: Value) -> bool:
    return False


def _is_tuple_construct(x: Value) -> bool:
    return False


def is_complex_value(x: Value) -> bool:
    """Whether the elements are complex numbers."""
    return JitScalarType.from_value(x, JitScalarType.UNDEFINED) in _COMPLEX


def _is_fp(value: object) -> bool:
    return JitScalarType.from_value(value, JitScalarType.UNDEFINED) in _FLOATS


def _is_bool(value: object) -> bool:
    return JitScalarType.from_value(value, JitScalarType.UNDEFINED) == JitScalarType.BOOL


def _get_tensor_rank(x: Value) -> int | None:
    return x.type().dim() if _is_tensor(x) else None


def _get_tensor_sizes(x: Value, allow_nonstatic: bool = True) -> Sequence[int | None] | None:
    """Return the sizes, None for each dynamic one; None if the rank is unknown."""
    if not _is_tensor(x):
        return None
    return x.type().varyingSizes() if allow_nonstatic else x.type().sizes()


def _get_tensor_dim_size(x: Value, dim: int) -> int | None:
    sizes = _get_tensor_sizes(x)
    return sizes[dim] if sizes else None


def _get_dim_for_cross(x: Value, dim: int | None) -> int | None:
    if dim == -1:
        rank = _get_tensor_rank(x)
        return dim + rank if rank is not None else dim
    if dim is None:
        sizes = _get_tensor_sizes(x) or []
        return next((index for index, size in enumerate(sizes) if size == 3), None)
    return dim


def _try_get_scalar_type(*args: object) -> JitScalarType | None:
    """Return the first known element type, else None."""
    scalar_types = (JitScalarType.from_value(argument, JitScalarType.UNDEFINED) for argument in args)
    return next((scalar_type for scalar_type in scalar_types if scalar_type != JitScalarType.UNDEFINED), None)


def _type_promote_from_values(*args: object) -> JitScalarType:
    """Return the type to which torch promotes tensors of these element types."""
    scalar_types = [scalar_type for scalar_type in map(_try_get_scalar_type, args) if scalar_type is not None]
    if not scalar_types or len(scalar_types) < len(args):
        return JitScalarType.UNDEFINED
    joint = scalar_types[0].onnx_type()
    for scalar_type in scalar_types[1:]:
        promoted = promote(joint, scalar_type.onnx_type())
        if promoted is None:
            return JitScalarType.UNDEFINED
        joint = promoted
    return JitScalarType.of(joint)


def args_have_same_dtype(args: Sequence[object]) -> bool:
    """Whether all have one element type."""
    return len({JitScalarType.from_value(argument) for argument in args}) == 1


def check_training_mode(op_train_mode: int, op_name: str) -> None:
    """Do nothing: the capture sets the mode of the export, training or evaluation."""


def _unimplemented(op: str, msg: str, value: object = None) -> NoReturn:
    _onnx_unsupported(f"{op}, {msg}", value)


def _onnx_unsupported(op_name: str, value: object = None) -> NoReturn:
    """Raise an error: an operator is not supported.

    Raises:
        SymbolicValueError: always.
    """
    raise SymbolicValueError(f"{op_name} cannot be expressed", value)


def _onnx_opset_unsupported(
    op_name: str, current_opset: int, supported_opset: int, value: object = None
) -> NoReturn:
    _onnx_opset_unsupported_detailed(op_name, current_opset, supported_opset, "", value)


def _onnx_opset_unsupported_detailed(
    op_name: str, current_opset: int, supported_opset: int, reason: str, value: object = None
) -> NoReturn:
    """Raise an error: an operator is not supported at an opset; the error names an opset that supports it.

    Raises:
        SymbolicValueError: always.
    """
    error = SymbolicValueError(
        f"{op_name} cannot be expressed at opset {current_opset}" + (f": {reason}" if reason else ""), value
    )
    error.first_opset = supported_opset
    raise error


def _block_list_in_opset(name: str) -> Callable[..., NoReturn]:
    """Make a symbolic function that raises an error."""

    def symbolic_fn(*args: object, **kwargs: object) -> NoReturn:
        raise OnnxExporterError(f"{name} is not implemented at this opset")

    return symbolic_fn
