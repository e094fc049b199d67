"""Properties of tensors, and tensors made from numbers, in a TorchScript program."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import onnx_ir as ir
import torch
from onnx_ir import Value, tensor_adapters

from .....registration import CaptureError
from .. import library
from ..builder import DTYPES
from ..fake_values import UNKNOWN, Fake, Size, Tensor
from ..interpreter import Interpreter, Results
from ..library import call_operator, script
from ..objects import Item, List, Nested, NumberItem, TensorItem, is_constant, is_number, number_kind
from ..script_graph import ScriptNode
from .scalars import compute, dtype_of, item, scalar_tensor


def _require_tensor(machine: Interpreter, item: Item) -> Tensor:
    fake = machine.fake(item)
    if not isinstance(fake, Tensor):
        name = item.name if isinstance(item, Value) else type(item).__name__
        raise CaptureError(f"the rank of '{name}' must be known at capture")
    return fake


@script("aten::resize_", "aten::resize_as_")
def resize(machine: Interpreter, node: ScriptNode, *operands: Item) -> Results:
    """Refuse to change the size of a tensor: a script may refer to it by other names."""
    raise CaptureError(
        f"{machine.place(node)} is not supported; make a new tensor, for example torch.zeros(...)"
    )


def size(machine: Interpreter, item: Item, dim: int) -> int | Value:
    """One size of a tensor: an int if it is known, else a symbolic one."""
    fake = machine.fake(item)
    known_size = fake.shape[dim] if isinstance(fake, Tensor) else UNKNOWN
    if isinstance(known_size, int):
        return known_size
    number_fake = (
        UNKNOWN if isinstance(known_size, type(UNKNOWN)) else machine.fakes.number_of_size(known_size)
    )
    result = machine.build.number("int", number_fake, "size")
    machine.build.append("aten::sym_size", {"self": item, "dim": dim}, [result], "int")
    return result


@script("aten::size", "prim::shape", "aten::sym_size")
def sizes(machine: Interpreter, node: ScriptNode, item: Item, dim: Item = None) -> Item:
    """All sizes of a tensor as a list, or one."""
    if dim is not None:
        if not isinstance(dim, int):
            raise CaptureError("the dimension must be constant")
        return size(machine, item, dim)
    rank = _require_tensor(machine, item).dim()
    return machine.list([size(machine, item, d) for d in range(rank)], "int")


@script("aten::_shape_as_tensor")
def shape_as_tensor(machine: Interpreter, node: ScriptNode, item: Item) -> TensorItem:
    """All sizes of a tensor as a tensor."""
    return tensor(machine, node, sizes(machine, node, item))


@script("aten::dim", "aten::ndimension")
def dim(machine: Interpreter, node: ScriptNode, item: Item) -> int:
    """The number of dimensions."""
    if isinstance(item, Nested):
        return 3
    return _require_tensor(machine, item).dim()


@script("aten::numel")
def numel(machine: Interpreter, node: ScriptNode, item: Item) -> int | Value:
    """The number of elements."""
    fake = machine.fake(item)
    number_fake: Fake = UNKNOWN
    if isinstance(fake, Tensor):
        count = math.prod(fake.shape)
        if isinstance(count, int):
            return count
        number_fake = machine.fakes.number_of_size(count)
    result = machine.build.number("int", number_fake, "numel")
    machine.build.append("aten::sym_numel", {"self": item}, [result], "default")
    return result


@script("prim::dtype")
def dtype(machine: Interpreter, node: ScriptNode, item: Item) -> int:
    """The element type, an int in TorchScript."""
    element_dtype = dtype_of(machine, item)
    if element_dtype is None:
        raise CaptureError("the element type must be known at capture")
    return library.code_of_dtype(element_dtype)


@script("prim::type")
def device_type(machine: Interpreter, node: ScriptNode, item: torch.device | str) -> str:
    """`device.type`."""
    return torch.device(item).type


_DTYPE_FACTS: dict[str, Callable[[torch.dtype], int]] = {
    "aten::is_floating_point": lambda d: d.is_floating_point,
    "aten::is_complex": lambda d: d.is_complex,
    "aten::is_signed": lambda d: d.is_signed,
    "aten::element_size": lambda d: d.itemsize,
}


@script(*_DTYPE_FACTS)
def dtype_fact(machine: Interpreter, node: ScriptNode, item: Item) -> int:
    """Properties of the element type."""
    element_dtype = dtype_of(machine, item)
    if element_dtype is None:
        raise CaptureError("the element type must be known at capture")
    return _DTYPE_FACTS[node.kind()](element_dtype)


_NEVER = (
    "prim::is_cuda prim::is_xpu prim::is_mps prim::is_mtia prim::is_xla prim::is_ipu prim::is_hpu "
    "prim::is_quantized prim::is_sparse prim::is_sparse_csr prim::is_mkldnn prim::is_meta prim::is_vulkan "
    "prim::is_maia prim::requires_grad aten::requires_grad aten::is_inference aten::is_grad_enabled "
    "aten::is_autocast_enabled aten::is_autocast_cpu_enabled aten::_get_tracing_state "
    "aten::is_nonzero_symbolic aten::has_torch_function"
)
_SETTLED: dict[str, Item] = {
    **dict.fromkeys(_NEVER.split(), False),
    "prim::is_cpu": True,
    "prim::device": torch.device("cpu"),
    "prim::layout": 0,
    "aten::get_device": -1,
}


@script(*_SETTLED)
def constant_property(machine: Interpreter, node: ScriptNode, *operands: Item) -> Item:
    """Properties that are always the same: a captured program runs on the CPU, dense, for inference."""
    return _SETTLED[node.kind()]


@script("prim::is_nested")
def is_nested(machine: Interpreter, node: ScriptNode, item: Item) -> bool:
    """Whether a tensor is nested."""
    return isinstance(item, Nested)


@script("aten::is_contiguous")
def is_contiguous(machine: Interpreter, node: ScriptNode, item: Item, *memory_format: Item) -> bool:
    """Whether the eager tensor is contiguous; assumed if unknown."""
    fake = machine.fake(item)
    return fake.any.is_contiguous() if isinstance(fake, Tensor) else True


@script("aten::stride")
def stride(machine: Interpreter, node: ScriptNode, item: Item, dim: int | None = None) -> Item:
    """The strides, if they are known."""
    fake = _require_tensor(machine, item)
    strides = fake.any.stride()
    if len(fake.samples) > 1:
        raise CaptureError("the strides of a tensor with dynamic sizes are not known")
    return strides[dim] if dim is not None else machine.list(strides, "int")


@script("prim::NumToTensor", "aten::scalar_tensor")
def number_to_tensor(machine: Interpreter, node: ScriptNode, number: NumberItem, *options: Item) -> Results:
    """A zero-dim tensor of a number, which traces use instead of the number."""
    if isinstance(number, complex) and not options:
        return torch.tensor(number, dtype=torch.complex128)
    if options:
        result = call_operator(machine, node, [number, *options])
    else:
        # Python floats are doubles, and this tensor only stands for the number.
        wide = torch.float64 if number_kind(number) == "float" else None
        result = scalar_tensor(machine, number, wide)
    machine.note_number(result, number)
    return result


@script("aten::tensor", "aten::as_tensor", "aten::_list_to_tensor")
def tensor(
    machine: Interpreter, node: ScriptNode, data: Item, dtype: int | None = None, *options: Item
) -> TensorItem:
    """`torch.tensor(data)` for numbers and nested lists of them."""
    requested_dtype = None if dtype is None else library.dtype_of_code(dtype)
    if node.kind() == "aten::_list_to_tensor":
        requested_dtype = torch.int32
    if isinstance(data, torch.Tensor) or (isinstance(data, Value) and not is_number(data)):
        if requested_dtype is None:
            return data
        arguments = {"self": data, "dtype": tensor_adapters.from_torch_dtype(requested_dtype)}
        return machine.build.tensor_operator("to", "dtype", arguments, machine.stem(node))
    if is_constant(data):
        return torch.tensor(_to_nested_list(data), dtype=requested_dtype)
    natural = _natural_dtype(data)
    result = _stack_numbers(machine, data, requested_dtype or natural, machine.stem(node))
    # A conversion may have changed the number.
    if is_number(data) and requested_dtype in (None, natural):
        machine.note_number(result, data)
    return result


def _to_nested_list(data: Item) -> object:
    return [_to_nested_list(member) for member in data.items or []] if isinstance(data, List) else data


def _natural_dtype(data: Item) -> torch.dtype:
    """The element type that `torch.tensor` chooses for numbers."""
    if isinstance(data, List):
        if data.items is None:
            kinds = {data.element_type}
        else:
            member_dtypes = [_natural_dtype(member) for member in data.items]
            return max(member_dtypes, key=[torch.bool, torch.int64, torch.float32, torch.float64].index)
    else:
        kinds = {number_kind(data)}
    natural = {"int": torch.int64, "bool": torch.bool, "float": torch.get_default_dtype()}
    return natural[kinds.pop()]


def _stack_numbers(machine: Interpreter, data: Item, dtype: torch.dtype, stem: str) -> TensorItem:
    if not isinstance(data, List):
        return scalar_tensor(machine, data, dtype)
    if data.items is None:
        assert data.value is not None
        value = machine.build.value(stem, machine.fakes.tensor([machine.fakes.size()], dtype))
        arguments = {"self": data.value, "dtype": tensor_adapters.from_torch_dtype(dtype)}
        machine.build.append("aten::to", arguments, [value], "dtype")
        return value
    members = [_stack_numbers(machine, member, dtype, stem) for member in data.items]
    return machine.build.tensor_operator("stack", "default", {"tensors": members}, stem)


@script("prim::tolist")
def tolist(machine: Interpreter, node: ScriptNode, tensor: TensorItem, rank: Item, torch_type: Item) -> Item:
    """`x.tolist()`: numbers of the elements of a tensor of known size, else a list of unknown length."""
    fake = _require_tensor(machine, tensor)
    if fake.dim() == 0:
        return item(machine, tensor)
    element = "bool" if fake.dtype == torch.bool else "float" if fake.dtype.is_floating_point else "int"
    count = fake.shape[0]
    if fake.dim() == 1 and not isinstance(count, int):
        value = Value(
            name=machine.build.names.unique("list"),
            type=ir.TensorType(DTYPES[element]),
            shape=ir.Shape([None]),
        )
        machine.build.append("aten::to", {"self": tensor, "dtype": DTYPES[element]}, [value], "dtype")
        return machine.list(None, element, value)
    if not isinstance(count, int):
        raise CaptureError("a nested list cannot be made of a tensor with a dynamic first size")
    members: list[Item] = []
    for index in range(count):
        arguments = {"self": tensor, "dim": 0, "index": index}
        part = machine.build.tensor_operator("select", "int", arguments, machine.stem(node))
        members.append(tolist(machine, node, part, rank, torch_type))
    return machine.list(members, element if fake.dim() == 1 else "List")


@script("aten::unbind", "aten::split", "aten::chunk", "aten::unsafe_split", "aten::unsafe_chunk")
def parts(machine: Interpreter, node: ScriptNode, tensor: Item, *options: Any) -> Results:
    """Split along a dimension; if its size is dynamic, a list of unknown length unless it is unpacked."""
    node_kind = node.kind()
    if isinstance(tensor, str):
        return machine.list(tensor.split(*options), "str")
    along = options[-1] if options else 0
    fake = machine.fake(tensor)
    by_sizes = len(options) == 2 and isinstance(options[0], List)
    length = fake.shape[along] if isinstance(fake, Tensor) and fake.dim() else UNKNOWN
    is_computed = bool(options) and isinstance(options[0], Value)
    if by_sizes or (isinstance(length, int) and not is_computed):
        return call_operator(machine, node, [tensor, *options])
    # The program says how many parts it expects, for example in `a, b = x.chunk(2)`.
    count = _unpack_count(node)
    if count is not None:
        _require_count(machine, node_kind, length, options, count)
        return _known_parts(machine, node, tensor, options, along, count)
    if not isinstance(fake, Tensor):
        raise CaptureError("the number of parts must be known at capture")
    if node_kind == "aten::unbind":
        shape = [s for d, s in enumerate(fake.shape) if d != along % fake.dim()]
        return _list_of_parts(machine, fake, shape, "list::from_tensor", {"self": tensor, "dim": along})
    width = options[0]
    if node_kind.endswith("chunk"):
        whole = compute(machine, "add", size(machine, tensor, along), compute(machine, "sub", width, 1))
        width = compute(machine, "floordiv", whole, width)
    shape = list(fake.shape)
    # The last part may be smaller than the others.
    shape[along] = machine.fakes.size()
    arguments = {"self": tensor, "split_size": width, "dim": along}
    return _list_of_parts(machine, fake, shape, "list::from_parts", arguments)


def _unpack_count(node: ScriptNode) -> int | None:
    """The number of values into which all readers unpack a list; None if they differ or do other things."""
    users = [use.user for use in node.output().uses()]
    counts = {len(list(user.outputs())) for user in users if user.kind() == "prim::ListUnpack"}
    return counts.pop() if len(counts) == 1 and all(u.kind() == "prim::ListUnpack" for u in users) else None


def _require_count(
    machine: Interpreter, node_kind: str, length: object, options: Sequence[Item], count: int
) -> None:
    """Require the sizes for which a split gives a number of parts."""
    reason = f"the model splits into {count} parts"
    if node_kind == "aten::unbind":
        machine.build.require(length, f"{{}} == {count}", reason)
    elif isinstance(options[0], int) and options[0] > 0:
        number = options[0]
        width = f"(({{0}} + {number - 1}) // {number})" if node_kind.endswith("chunk") else f"{number}"
        allowed = f"{{0}} > 0 and ({{0}} + {width} - 1) // {width} == {count}"
        # An empty tensor has as many chunks as requested, and one part when split by size.
        if node_kind.endswith("chunk") or count == 1:
            allowed = f"{{0}} == 0 or ({allowed})"
        machine.build.require(length, allowed, reason)


def _known_parts(
    machine: Interpreter, node: ScriptNode, tensor: Item, options: Sequence[Item], along: int, count: int
) -> List:
    tensor_fake = machine.fake(tensor)
    fakes: list[Fake] = [UNKNOWN] * count
    if isinstance(tensor_fake, Tensor):
        if node.kind() == "aten::unbind":
            shape = [s for d, s in enumerate(tensor_fake.shape) if d != along % tensor_fake.dim()]
            fakes = [machine.fakes.tensor(shape, tensor_fake.dtype) for _ in range(count)]
        else:
            dims = [along % tensor_fake.dim()]
            fakes = [machine.fakes.with_unknown_sizes(tensor_fake, dims) for _ in range(count)]
    schema = library.schema_of(node)
    names = [formal.name for formal in schema.arguments]
    arguments = dict(zip(names, [tensor, *options], strict=False))
    values = [machine.build.value(f"{machine.stem(node)}_{i}", fake) for i, fake in enumerate(fakes)]
    machine.build.append(schema.name, arguments, values, schema.overload_name or "default")
    return machine.list(values, "Tensor")


def _list_of_parts(
    machine: Interpreter, fake: Tensor, shape: list[Size], name: str, arguments: dict[str, Item]
) -> List:
    value = machine.build.list_value(machine.fakes.tensor(shape, fake.dtype), "Tensor")
    machine.build.append(name, arguments, [value])
    return machine.list(None, "Tensor", value)
