"""Rules of `real_pairs` for operators that change the shape or order: adjust dimensions and sizes."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir
from onnx_ir import Value

from ...registration import GraphError
from ...registration.arguments import replace_arguments
from ..source_builder import sizes_of, where
from .pairs import Arguments, Pairs, Rule, part_by_part


def match_shape(pairs: Pairs, node: ir.Node, arguments: Arguments) -> None:
    """Reshape or expand a tensor to the shape of another one; only one of them may be complex."""
    self, shape_source = arguments["self"], arguments["other"]
    if (self in pairs) == (shape_source in pairs):
        replace_arguments(node, arguments)
    elif self in pairs:
        replace_arguments(node, arguments | {"other": pairs.to_pair(shape_source, self.dtype)})
    else:
        replace_arguments(node, arguments | {"other": pairs.apply("real", shape_source)})


def _shift_dims(dim: object) -> Any:
    """Shift negative dimensions by one, because a pair has one more last dimension."""
    if isinstance(dim, list):
        return [_shift_dims(member) for member in dim]
    # Non-negative dimensions count from the front and do not change.
    return dim - 1 if isinstance(dim, int) and dim < 0 else dim


def with_shifted_dims(*names: str, **defaults: object) -> Rule:
    """Apply the operator to pairs, with shifted dimension arguments."""

    def rule(pairs: Pairs, node: ir.Node, arguments: Arguments) -> None:
        arguments = defaults | arguments
        self = arguments.get("self")
        if (
            isinstance(self, Value)
            and self in pairs
            and pairs.rank(self, node) == 0
            and node.op_type not in ("unsqueeze", "stack")
        ):
            _on_one_element(pairs, node, arguments)
            return
        changed = {name: _shift_dims(arguments[name]) for name in (*names, *defaults) if name in arguments}
        replace_arguments(node, arguments | changed)

    return rule


def _on_one_element(pairs: Pairs, node: ir.Node, arguments: Arguments) -> None:
    """Reshape a zero-dim tensor to [1], because ATen accepts dimension 0 for it."""
    self = arguments["self"]
    one_element = pairs.build.emit(
        "aten::reshape", {"self": self, "shape": [1, 2]}, dtype=self.dtype, shape=ir.Shape([1, 2])
    )
    with_last_size = sizes_of(node.outputs[0])
    if len(node.outputs) != 1 or with_last_size is None:
        raise GraphError(f"{where(node)}: zero-dimensional complex tensors are not supported")
    shifted_dims = {
        name: _shift_dims(arguments[name]) for name in arguments if "dim" in name and name != "keepdim"
    }
    result = pairs.build.emit(
        f"aten::{node.op_type}",
        arguments | {"self": one_element} | shifted_dims,
        node.overload,
        dtype=self.dtype,
    )
    pairs.replace_operator(node, "aten::reshape", {"self": result, "shape": with_last_size})


def reduce_dims(pairs: Pairs, node: ir.Node, arguments: Arguments) -> None:
    """A sum over the given dimensions, or over all of them."""
    rank = pairs.rank(arguments["self"], node)
    dims = arguments.get("dim")
    dims = [dims] if isinstance(dims, int) else dims
    if rank == 0:
        pairs.replace_operator(node, "aten::alias", {"self": arguments["self"]})
        return
    # Without `dim` a sum would add real and imaginary parts together.
    listed = {"dim": _shift_dims(dims or list(range(rank))), "keepdim": arguments.get("keepdim", False)}
    name = node.op_type
    pairs.replace_operator(
        node,
        f"aten::{name}",
        {"self": arguments["self"], **listed},
        "dim_IntList" if name != "mean" else "dim",
    )


def with_last_size(name: str, last: int) -> Rule:
    """Apply the operator to pairs, with a size of 2 appended."""

    def rule(pairs: Pairs, node: ir.Node, arguments: Arguments) -> None:
        if node.overload == "dtype":
            _reinterpret_bits(pairs, node, arguments["self"])
            return
        listed = arguments[name] if isinstance(arguments[name], list) else [arguments[name]]
        replace_arguments(node, arguments | {name: [*listed, last]})

    return rule


def _reinterpret_bits(pairs: Pairs, node: ir.Node, self: Value) -> None:
    """`view` as another type, from or to a complex one: the parts are neighbours in the last dimension."""
    output = node.outputs[0]
    dtype = output.dtype
    if self in pairs:
        flat = {"self": self, "start_dim": -2, "end_dim": -1}
        self = pairs.build.emit("aten::flatten", flat, "using_ints", dtype=self.dtype)
    if output not in pairs:
        pairs.replace_operator(node, "aten::view", {"self": self, "dtype": dtype}, "dtype")
        return
    parts = pairs.build.emit("aten::view", {"self": self, "dtype": dtype}, "dtype", dtype=dtype)
    pairs.replace_operator(node, "aten::unflatten", {"self": parts, "dim": -1, "sizes": [-1, 2]}, "int")


def permute_dims(pairs: Pairs, node: ir.Node, arguments: Arguments) -> None:
    """Apply `permute`; the last dimension of the pair stays last."""
    dims = _shift_dims(arguments["dims"])
    replace_arguments(node, arguments | {"dims": [*dims, -1]})


def double_strides(pairs: Pairs, node: ir.Node, arguments: Arguments) -> None:
    """Double the strides, because a complex number has two real elements."""
    build = pairs.build
    strides = [build.add(stride, stride) for stride in arguments["stride"]]
    offset = arguments.get("storage_offset") or 0
    changed = {
        "size": [*arguments["size"], 2],
        "stride": [*strides, 1],
        "storage_offset": build.add(offset, offset),
    }
    replace_arguments(node, arguments | changed)


def transpose_matrix(pairs: Pairs, node: ir.Node, arguments: Arguments) -> None:
    """Exchange the last two dimensions, or reverse all for `T`; conjugate for `H`."""
    self = arguments["self"]
    rank = pairs.rank(self, node)
    if rank < 2:
        result = self
    elif node.op_type in ("numpy_T", "T"):
        result = pairs.build.emit(
            "aten::permute", {"self": self, "dims": [*range(rank)[::-1], rank]}, dtype=self.dtype
        )
    else:
        result = pairs.build.emit(
            "aten::transpose", {"self": self, "dim0": -3, "dim1": -2}, "int", dtype=self.dtype
        )
    result.shape = node.outputs[0].shape
    conjugate = node.op_type in ("mH", "matrix_H", "adjoint")
    pairs.replace_operator(node, "complex::conj" if conjugate else "aten::alias", {"self": result})


def pad_tensor(pairs: Pairs, node: ir.Node, arguments: Arguments) -> None:
    """Pad with zeros directly, with other values or modes each part."""
    zeros = arguments.get("value") in (None, 0) and arguments.get("mode", "constant") == "constant"
    if zeros:
        # Pads are listed from the last dimension to the first, so the pair's dimension comes first.
        replace_arguments(node, arguments | {"pad": [0, 0, *arguments["pad"]]})
    else:
        part_by_part("self", "value")(pairs, node, arguments)


def roll_elements(pairs: Pairs, node: ir.Node, arguments: Arguments) -> None:
    """Apply `roll`; without dimensions, roll the elements of each part in row-major order."""
    (with_shifted_dims("dims") if arguments.get("dims") else part_by_part("self"))(pairs, node, arguments)


def shift_frequencies(pairs: Pairs, node: ir.Node, arguments: Arguments) -> None:
    """Apply `fftshift`; without dimensions, to all except the last dimension of the pair."""
    dims = arguments.get("dim")
    dims = list(range(pairs.rank(arguments["self"], node))) if dims is None else dims
    replace_arguments(node, {"self": arguments["self"], "dim": _shift_dims(dims)})
