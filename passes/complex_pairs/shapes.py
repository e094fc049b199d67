"""Rules of `real_pairs` for operators that change the shape or order: adjust dimensions and sizes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx_ir as ir
from onnx_ir import Value

from ...registration import GraphError
from ...registration.arguments import replace_arguments
from ..source_builder import static_sizes, where
from .pairs import Arguments, Pairs, Rule, part_by_part, to_complex_dialect


def in_shape_of(pairs: Pairs, node: ir.Node, given: Arguments) -> None:
    """Reshape or expand a tensor to the shape of another one; only one of them may be complex."""
    self, other = given["self"], given["other"]
    if (self in pairs) == (other in pairs):
        replace_arguments(node, given)
    elif self in pairs:
        part = self.dtype
        replace_arguments(node, given | {"other": pairs.pair(other, part)})
    else:
        replace_arguments(node, given | {"other": pairs.of_pair("real", other)})


def _shifted(dim: Any) -> Any:
    """Shift negative dimensions by one, because a pair has one more last dimension."""
    if isinstance(dim, list):
        return [_shifted(member) for member in dim]
    return dim - 1 if isinstance(dim, int) and dim < 0 else dim


def dimensions(*names: str, **defaults: Any) -> Rule:
    """Apply the operator to pairs, with shifted dimension arguments."""

    def rule(pairs: Pairs, node: ir.Node, given: Arguments) -> None:
        given = defaults | given
        self = given.get("self")
        if (
            isinstance(self, Value)
            and self in pairs
            and pairs.rank(self, node) == 0
            and node.op_type not in ("unsqueeze", "stack")
        ):
            _on_one_element(pairs, node, given, names)
            return
        changed = {name: _shifted(given[name]) for name in (*names, *defaults) if name in given}
        replace_arguments(node, given | changed)

    return rule


def _on_one_element(pairs: Pairs, node: ir.Node, given: Arguments, names: Sequence[str]) -> None:
    """Reshape a zero-dim tensor to [1], because ATen accepts dimension 0 for it."""
    self = given["self"]
    one = pairs.build.emit(
        "aten::reshape", {"self": self, "shape": [1, 2]}, dtype=self.dtype, shape=ir.Shape([1, 2])
    )
    sizes = static_sizes(node.outputs[0])
    if len(node.outputs) != 1 or sizes is None:
        raise GraphError(f"{where(node)}: zero-dimensional complex tensors are not supported")
    moved = {name: _shifted(given[name]) for name in given if "dim" in name and name != "keepdim"}
    result = pairs.build.emit(
        f"aten::{node.op_type}", given | {"self": one} | moved, node.overload, dtype=self.dtype
    )
    pairs.become(node, "aten::reshape", {"self": result, "shape": sizes})


def reduced(pairs: Pairs, node: ir.Node, given: Arguments) -> None:
    """A sum over the given dimensions, or over all of them."""
    rank = pairs.rank(given["self"], node)
    dims = given.get("dim")
    dims = [dims] if isinstance(dims, int) else dims
    if rank == 0:
        pairs.become(node, "aten::alias", {"self": given["self"]})
        return
    listed = {"dim": _shifted(dims or list(range(rank))), "keepdim": given.get("keepdim", False)}
    name = node.op_type
    pairs.become(
        node, f"aten::{name}", {"self": given["self"], **listed}, "dim_IntList" if name != "mean" else "dim"
    )


def sizes(name: str, last: int) -> Rule:
    """Apply the operator to pairs, with a size of 2 appended."""

    def rule(pairs: Pairs, node: ir.Node, given: Arguments) -> None:
        if node.overload == "dtype":
            to_complex_dialect(pairs, node, given)
            return
        listed = given[name] if isinstance(given[name], list) else [given[name]]
        replace_arguments(node, given | {name: [*listed, last]})

    return rule


def permuted(pairs: Pairs, node: ir.Node, given: Arguments) -> None:
    """Apply `permute`; the last dimension of the pair stays last."""
    dims = _shifted(given["dims"])
    replace_arguments(node, given | {"dims": [*dims, -1]})


def strided(pairs: Pairs, node: ir.Node, given: Arguments) -> None:
    """Double the strides, because a complex number has two real elements."""
    build = pairs.build
    strides = [build.add(stride, stride) for stride in given["stride"]]
    offset = given.get("storage_offset") or 0
    changed = {
        "size": [*given["size"], 2],
        "stride": [*strides, 1],
        "storage_offset": build.add(offset, offset),
    }
    replace_arguments(node, given | changed)


def transposed(pairs: Pairs, node: ir.Node, given: Arguments) -> None:
    """Exchange the last two dimensions, or reverse all for `T`; conjugate for `H`."""
    self = given["self"]
    rank = pairs.rank(self, node)
    if rank < 2:
        turned = self
    elif node.op_type in ("numpy_T", "T"):
        turned = pairs.build.emit(
            "aten::permute", {"self": self, "dims": [*range(rank)[::-1], rank]}, dtype=self.dtype
        )
    else:
        turned = pairs.build.emit(
            "aten::transpose", {"self": self, "dim0": -3, "dim1": -2}, "int", dtype=self.dtype
        )
    turned.shape = node.outputs[0].shape
    conjugate = node.op_type in ("mH", "matrix_H", "adjoint")
    pairs.become(node, "complex::conj" if conjugate else "aten::alias", {"self": turned})


def padded(pairs: Pairs, node: ir.Node, given: Arguments) -> None:
    """Pad with zeros directly, with other values or modes each part."""
    zeros = given.get("value") in (None, 0) and given.get("mode", "constant") == "constant"
    if zeros:
        replace_arguments(node, given | {"pad": [0, 0, *given["pad"]]})
    else:
        part_by_part("self", "value")(pairs, node, given)


def rolled(pairs: Pairs, node: ir.Node, given: Arguments) -> None:
    """Apply `roll`; without dimensions, roll the elements of each part in row-major order."""
    (dimensions("dims") if given.get("dims") else part_by_part("self"))(pairs, node, given)


def fftshifted(pairs: Pairs, node: ir.Node, given: Arguments) -> None:
    """Apply `fftshift`; without dimensions, to all except the last dimension of the pair."""
    dims = given.get("dim")
    dims = list(range(pairs.rank(given["self"], node))) if dims is None else dims
    replace_arguments(node, {"self": given["self"], "dim": _shifted(dims)})
