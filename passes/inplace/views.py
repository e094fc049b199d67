"""View operators: the argument that a view aliases, and the operators that recompute it or write it back.

Source: the alias annotations in ATen's native_functions.yaml. A `ViewStep` describes one view: `make` gives
the same view of another base, `write` gives the base with the view's contents replaced.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import onnx_ir as ir
from onnx_ir import DataType, Value

from ...registration import ALIAS, GraphError
from ...registration.arguments import qualified_name
from ..source_builder import Size, SourceBuilder, sizes_of, where

Make = Callable[[SourceBuilder, "ViewStep", Value], Value]
Write = Callable[[SourceBuilder, "ViewStep", Value, Value], Value]


class ViewRule(NamedTuple):
    """The functions that recompute a view and write it back.

    Attributes:
        write: returns the new base; takes the builder, the step, the old base and the new view.
        make: returns the view of another base.
        source: the name of the aliased argument.
        same_object: whether it returns the argument object itself, so that `unsqueeze_` on one changes both.
        undecided: whether it may return a copy instead of a view.
    """

    write: Write
    make: Make
    source: str = "self"
    same_object: bool = False
    undecided: bool = False

    @property
    def is_identity(self) -> bool:
        """Whether the view equals its argument."""
        return self.make is _return_base


@dataclasses.dataclass(slots=True)
class ViewStep:
    """One view operator between a base and its view.

    Attributes:
        rule: how the view is computed and written back.
        name, overload, arguments: those of the source node, the aliased argument included.
        outputs, index: all outputs of the node, and the index of the view among them.
        description: the node, for messages.
    """

    rule: ViewRule
    name: str
    overload: str
    arguments: dict[str, Any]
    outputs: Sequence[Value]
    index: int
    description: str

    @classmethod
    def of(cls, node: ir.Node, rule: ViewRule, arguments: dict[str, Any], index: int = 0) -> ViewStep:
        """The view step of a node of the source graph."""
        return cls(rule, qualified_name(node), node.overload, arguments, node.outputs, index, where(node))

    @property
    def output(self) -> Value:
        """The view in the source graph."""
        return self.outputs[self.index]

    def make(self, build: SourceBuilder, base: Value) -> Value:
        """Compute this view of another base."""
        return self.rule.make(build, self, base)

    def write(self, build: SourceBuilder, base: Value, new: Value) -> Value:
        """Return the base with the contents of this view replaced by `new`."""
        return self.rule.write(build, self, base, new)

    def reads(self) -> Iterator[Value]:
        """Return the values besides the base that computing or writing this view reads."""
        for key, argument in self.arguments.items():
            if key != self.rule.source:
                for member in argument if isinstance(argument, list) else [argument]:
                    if isinstance(member, Value):
                        yield member
        if self.rule is _PART:
            yield from (part for part in self.outputs if sizes_of(part) is None)

    def emit(
        self, build: SourceBuilder, name: str, arguments: dict[str, Any], overload: str = "default"
    ) -> Value:
        """Emit a node that makes this view; the base may have another element type."""
        base, output = arguments[self.rule.source if name == self.name else "self"], self.output
        dtype = output.dtype if base.dtype is None else base.dtype
        return build.emit(name, arguments, overload, dtype=dtype, shape=output.shape)


def _repeat_view(build: SourceBuilder, step: ViewStep, base: Value) -> Value:
    return step.emit(build, step.name, {**step.arguments, step.rule.source: base}, step.overload)


def _return_base(build: SourceBuilder, step: ViewStep, base: Value) -> Value:
    return base


def _replace_base(build: SourceBuilder, step: ViewStep, base: Value, new: Value) -> Value:
    return new


def _apply_operator_again(build: SourceBuilder, step: ViewStep, base: Value, new: Value) -> Value:
    return build.emit(step.name, {**step.arguments, step.rule.source: new}, step.overload, like=base)


def _scatter_write(name: str, *argument_names: str) -> Write:
    """Make a rule that writes back with an operator on the base, the view and the view's arguments."""

    def write(build: SourceBuilder, step: ViewStep, base: Value, new: Value) -> Value:
        arguments = {key: step.arguments[key] for key in argument_names if key in step.arguments}
        return build.emit(f"aten::{name}", {"self": base, "src": new, **arguments}, like=base)

    return write


def _linalg_diagonal(build: SourceBuilder, step: ViewStep, base: Value, new: Value) -> Value:
    arguments = step.arguments
    diagonal_arguments = {
        "offset": arguments.get("offset", 0),
        "dim1": arguments.get("dim1", -2),
        "dim2": arguments.get("dim2", -1),
    }
    return build.emit("aten::diagonal_scatter", {"self": base, "src": new, **diagonal_arguments}, like=base)


def _narrow(build: SourceBuilder, step: ViewStep, base: Value, new: Value) -> Value:
    dim, start, length = (step.arguments[key] for key in ("dim", "start", "length"))
    # A computed start may be negative, which slice_scatter would clamp.
    if isinstance(start, Value):
        start = build.wrap_position(start, build.size(base, dim))
    elif start < 0:
        start = build.add(build.size(base, dim), start)
    return _slice_scatter(build, base, new, dim, start, build.add(start, length))


def _slice_scatter(build: SourceBuilder, base: Value, new: Value, dim: int, start: Size, end: Size) -> Value:
    arguments = {"self": base, "src": new, "dim": dim, "start": start, "end": end, "step": 1}
    return build.emit("aten::slice_scatter", arguments, like=base)


def _undo_reshape(build: SourceBuilder, step: ViewStep, base: Value, new: Value) -> Value:
    return build.reshape(new, base)


def _undo_squeeze(build: SourceBuilder, step: ViewStep, base: Value, new: Value) -> Value:
    """Undo squeeze: unsqueeze the dimension if it is known, else reshape to the shape of the base."""
    dim = step.arguments.get("dim")
    if isinstance(dim, int) and base.shape is not None and len(base.shape):
        size = base.shape[dim]
        # `squeeze(dim)` of a size other than 1 changes nothing.
        if isinstance(size, int):
            return new if size != 1 else build.emit("aten::unsqueeze", {"self": new, "dim": dim}, like=base)
    return build.reshape(new, base)


def _undo_unsqueeze(build: SourceBuilder, step: ViewStep, base: Value, new: Value) -> Value:
    return build.emit("aten::squeeze", {"self": new, "dim": step.arguments["dim"]}, "dim", like=base)


def _undo_permute(build: SourceBuilder, step: ViewStep, base: Value, new: Value) -> Value:
    dims = step.arguments["dims"]
    positive_dims = [dim % len(dims) for dim in dims]
    inverse = sorted(range(len(dims)), key=positive_dims.__getitem__)
    return build.emit("aten::permute", {"self": new, "dims": inverse}, like=base)


def _undo_movedim(build: SourceBuilder, step: ViewStep, base: Value, new: Value) -> Value:
    source, destination = step.arguments["source"], step.arguments["destination"]
    arguments = {"self": new, "source": destination, "destination": source}
    return build.emit(step.name, arguments, step.overload, like=base)


def _undo_expand(build: SourceBuilder, step: ViewStep, base: Value, new: Value) -> Value:
    """Undo an expand that repeats no element; as in torch, others cannot be written."""
    old, repeated = sizes_of(base), sizes_of(new)
    # Writing no elements changes nothing.
    if repeated is not None and 0 in repeated:
        return base
    if old is not None and repeated is not None:
        padded = [1] * (len(repeated) - len(old)) + old
        if padded == repeated:
            return build.reshape(new, base)
    raise GraphError(
        f"{step.description}: its elements share memory, so it cannot be written to (PyTorch raises an "
        "error, too); write to a clone()"
    )


def _refuse_write(build: SourceBuilder, step: ViewStep, base: Value, new: Value) -> Value:
    raise GraphError(f"{step.description}: writes to this view are not supported; write to a clone()")


def _refuse_recompute(build: SourceBuilder, step: ViewStep, base: Value) -> Value:
    raise GraphError(
        f"{step.description}: this view is read after a write to its base, which is not supported; read "
        "it before, or use a clone()"
    )


def _split_dim(step: ViewStep, base: Value) -> int:
    name = step.name.partition("::")[2]
    if name == "hsplit":
        if base.shape is None:
            raise GraphError(
                f"{step.description}: a write to a part of a split tensor needs the rank of the tensor, "
                "which is unknown"
            )
        return 1 if len(base.shape) > 1 else 0
    return int({"vsplit": 0, "dsplit": 2}.get(name, step.arguments.get("dim", 0)))


def _part(build: SourceBuilder, step: ViewStep, base: Value) -> tuple[int, Size, Size]:
    """Return the dimension, start and end of one part of a split."""
    dim = _split_dim(step, base)
    start: Size = 0
    # The last part of a split may be smaller, so the start is the sum of the sizes before it.
    for earlier in step.outputs[: step.index]:
        start = build.add(start, build.size(earlier, dim))
    return dim, start, build.add(start, build.size(step.output, dim))


def _make_part(build: SourceBuilder, step: ViewStep, base: Value) -> Value:
    dim, start, end = _part(build, step, base)
    arguments = {"self": base, "dim": dim, "start": start, "end": end, "step": 1}
    return step.emit(build, "aten::slice", arguments, "Tensor")


def _write_part(build: SourceBuilder, step: ViewStep, base: Value, new: Value) -> Value:
    return _slice_scatter(build, base, new, *_part(build, step, base))


def _make_unbound(build: SourceBuilder, step: ViewStep, base: Value) -> Value:
    arguments = {"self": base, "dim": step.arguments.get("dim", 0), "index": step.index}
    return step.emit(build, "aten::select", arguments, "int")


def _write_unbound(build: SourceBuilder, step: ViewStep, base: Value, new: Value) -> Value:
    arguments = {"self": base, "src": new, "dim": step.arguments.get("dim", 0), "index": step.index}
    return build.emit("aten::select_scatter", arguments, like=base)


def _make_other_type(build: SourceBuilder, step: ViewStep, base: Value) -> Value:
    """Compute the view of another base if the types differ, as for a real view of complex numbers."""
    return build.emit(step.name, {**step.arguments, step.rule.source: base}, step.overload, like=step.output)


def _inverse_view_write(name: str) -> Write:
    """Make a rule that writes back with a view of the new contents."""
    return lambda build, step, base, new: build.emit(f"aten::{name}", {"self": new}, like=base)


def _write_complex_part(build: SourceBuilder, step: ViewStep, base: Value, new: Value) -> Value:
    """Replace the real or imaginary part of complex numbers; `real` of a real tensor is that tensor."""
    # `real` of a real tensor is the tensor itself.
    if base.dtype == step.output.dtype:
        return new
    part = "imag" if step.name == "aten::real" else "real"
    other_part = build.emit(f"aten::{part}", {"self": base}, like=step.output)
    return build.emit("aten::complex", {step.name.removeprefix("aten::"): new, part: other_part}, like=base)


_IDENTITY = ViewRule(_replace_base, _return_base)
_SELF = ViewRule(_replace_base, _return_base, same_object=True)
_RESHAPED = ViewRule(_undo_reshape, _repeat_view)
_SELF_INVERSE = ViewRule(_apply_operator_again, _repeat_view)
_EXPANDED = ViewRule(_undo_expand, _repeat_view)
_PART = ViewRule(_write_part, _make_part)
_OPAQUE = ViewRule(_refuse_write, _refuse_recompute)
_UNDECIDED = ViewRule(_refuse_write, _refuse_recompute, undecided=True)

VIEWS: dict[str, ViewRule] = {
    "diagonal": ViewRule(_scatter_write("diagonal_scatter", "offset", "dim1", "dim2"), _repeat_view),
    "linalg_diagonal": ViewRule(_linalg_diagonal, _repeat_view, source="A"),
    "narrow": ViewRule(_narrow, _repeat_view),
    "permute": ViewRule(_undo_permute, _repeat_view),
    "select": ViewRule(_scatter_write("select_scatter", "dim", "index"), _repeat_view),
    "slice": ViewRule(_scatter_write("slice_scatter", "dim", "start", "end", "step"), _repeat_view),
    "squeeze": ViewRule(_undo_squeeze, _repeat_view),
    "unbind": ViewRule(_write_unbound, _make_unbound),
    "unfold": ViewRule(_refuse_write, _repeat_view),
    "unsqueeze": ViewRule(_undo_unsqueeze, _repeat_view),
    "view_as_complex": ViewRule(_inverse_view_write("view_as_real"), _make_other_type),
    "view_as_real": ViewRule(_inverse_view_write("view_as_complex"), _make_other_type),
}
VIEWS |= dict.fromkeys(("movedim", "moveaxis"), ViewRule(_undo_movedim, _repeat_view))
VIEWS |= dict.fromkeys(("expand", "expand_as", "broadcast_to"), _EXPANDED)
VIEWS |= dict.fromkeys(
    "transpose swapaxes swapdims t numpy_T mT mH matrix_H adjoint conj _conj _neg_view".split(), _SELF_INVERSE
)
VIEWS |= dict.fromkeys(("real", "imag"), ViewRule(_write_complex_part, _make_other_type))
VIEWS |= dict.fromkeys(
    "view view_as reshape reshape_as flatten unflatten ravel _reshape_alias atleast_1d atleast_2d "
    "atleast_3d".split(),
    _RESHAPED,
)
VIEWS |= dict.fromkeys("split split_with_sizes chunk tensor_split hsplit vsplit dsplit".split(), _PART)
VIEWS |= dict.fromkeys("alias detach lift_fresh data _fw_primal".split(), _IDENTITY)
VIEWS |= dict.fromkeys(
    "contiguous positive resolve_conj resolve_neg cpu cuda pin_memory to_dense".split(), _SELF
)
VIEWS |= dict.fromkeys(
    "as_strided conj_physical slice_inverse sum_to_size _values _indices values indices".split(), _OPAQUE
)
VIEWS |= dict.fromkeys(("broadcast_tensors", "meshgrid"), _OPAQUE._replace(source="tensors"))

_CASTS = frozenset(("to", "type_as"))
_NEVER_COPY = frozenset(
    "diagonal linalg_diagonal narrow permute select slice squeeze unbind unsqueeze movedim moveaxis expand "
    "expand_as broadcast_to transpose swapaxes swapdims t numpy_T mT view view_as unflatten split "
    "split_with_sizes chunk tensor_split hsplit vsplit dsplit alias detach".split()
)
"""Operators that are views even where the capture recorded none: a fake `narrow` with a tensor start
returns new memory.
"""
_MAY_COPY = frozenset("reshape reshape_as flatten ravel contiguous".split())
"""Operators that return a view if the strides of the argument allow it, else a copy."""
_COMBINATIONS = frozenset(("einsum", "cartesian_prod"))
"""Operators on several tensors whose result may be a view if there is only one."""
DROPOUTS = frozenset("dropout alpha_dropout feature_dropout feature_alpha_dropout".split())


def _cast_rule(node: ir.Node, arguments: dict[str, Any]) -> ViewRule | None:
    """`to` and `type_as` return their argument if nothing changes."""
    if arguments.get("copy"):
        return None
    before, after = arguments["self"].dtype, node.outputs[0].dtype
    requested_dtype = arguments.get("dtype")
    after = requested_dtype if after is None and isinstance(requested_dtype, DataType) else after
    # Equal types would return the argument itself, different ones a copy.
    if before is None or after is None:
        return _UNDECIDED
    return _SELF if before == after else None


def _flattens_nothing(arguments: dict[str, Any]) -> bool:
    """`flatten` returns its argument itself if there is a single dimension to flatten."""
    start, end, shape = arguments.get("start_dim", 0), arguments.get("end_dim", -1), arguments["self"].shape
    # `flatten` of a zero-dim tensor returns a new view of one dimension.
    if shape is None or not len(shape):
        return shape is None and start == end
    return bool(start % len(shape) == end % len(shape))


def view_rule(node: ir.Node, arguments: dict[str, Any]) -> ViewRule | None:
    """Return the rule of a node whose outputs alias one of its arguments, None for new tensors.

    Args:
        arguments: the arguments of the node.
    """
    aliasing, name = node.metadata_props.get(ALIAS), node.op_type
    if node.domain == "aten" and name in DROPOUTS:
        # On fake tensors torch copies, so the recorded aliasing does not tell.
        idle = arguments.get("train") is False or arguments.get("p") == 0
        return _SELF._replace(source="input") if idle else None
    if node.domain != "aten":
        return _OPAQUE if _shares_by_schema(node) else None
    if aliasing == "false" and name not in _NEVER_COPY:
        return None
    if name in _CASTS:
        return _cast_rule(node, arguments)
    if name == "flatten" and _flattens_nothing(arguments):
        return _SELF
    if name == "view" and node.overload == "dtype":
        return _SELF if arguments["self"].dtype == arguments["dtype"] else _OPAQUE
    if name in _COMBINATIONS:
        return _UNDECIDED._replace(source="tensors") if len(arguments["tensors"]) == 1 else None
    if name in _MAY_COPY and (aliasing == "unknown" or (aliasing is None and node.outputs[0].shape is None)):
        return _UNDECIDED
    return VIEWS.get(name)


def aliased_tensors(node: ir.Node, rule: ViewRule, arguments: dict[str, Any]) -> list[Value | None]:
    """Return the tensor that each output of a view operator aliases; one per output if it takes a list."""
    if node.domain != "aten":
        return list(_shared_tensors(node, arguments))
    source = arguments.get(rule.source, arguments.get("tensors"))
    return source if isinstance(source, list) else [source] * len(node.outputs)


def _shared_tensors(node: ir.Node, arguments: dict[str, Any]) -> Iterator[Value | None]:
    """For each result of another library's operator, the tensor with which it shares memory.

    The results that share memory with a list share it with its tensors in their order.
    """
    count: Counter[str] = Counter()
    for output in node.outputs:
        name = output.metadata_props.get(ALIAS, "")
        argument = arguments.get(name)
        items = argument if isinstance(argument, list) else [argument]
        # An argument may be a list with Nones, such as indices.
        tensors = [item for item in items if isinstance(item, Value)]
        yield tensors[min(count[name], len(tensors) - 1)] if tensors else None
        count[name] += 1


def may_be_view(node: ir.Node) -> bool:
    """Whether `view_rule` can return a rule."""
    name = node.op_type
    if node.domain != "aten":
        return _shares_by_schema(node)
    return name in VIEWS or name in _CASTS or name in DROPOUTS or name in _COMBINATIONS


def _shares_by_schema(node: ir.Node) -> bool:
    """Whether the schema of another library's operator says that a result shares memory with an argument."""
    return any(ALIAS in output.metadata_props for output in node.outputs)
