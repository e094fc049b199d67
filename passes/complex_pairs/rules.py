"""The rules of `real_pairs`: how each ATen operator works on complex numbers stored as pairs, [..., 2]."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx_ir as ir
from onnx_ir import DataType, Value

from ...registration.arguments import replace_arguments
from ..promotion.rules import RULES as PROMOTION
from ..promotion.rules import Kind
from .pairs import PART_OF, Arguments, Pairs, Rule, part_by_part, to_complex_dialect
from .products import bilinear, contracted, embedded, solved
from .shapes import (
    dimensions,
    fftshifted,
    in_shape_of,
    padded,
    permuted,
    reduced,
    rolled,
    sizes,
    strided,
    transposed,
)

HALF_SPECTRUM = frozenset("fft_irfft fft_irfft2 fft_irfftn fft_hfft fft_hfft2 fft_hfftn".split())
"""Operators from complex numbers (or real ones, which stay real) to real numbers."""


def rewrite(pairs: Pairs, node: ir.Node, given: Arguments) -> None:
    """Rewrite a node with complex inputs or outputs."""
    pairs.build.before(node)
    if any(isinstance(value.type, ir.SequenceType) for value in (*node.inputs, *node.outputs) if value) and (
        node.op_type not in RULES
    ):
        return
    if _drops_imaginary(pairs, node, given):
        replace_arguments(node, given | {"self": pairs.of_pair("real", given["self"])})
        return
    given = _promoted(pairs, node, given)
    node.op_type = node.op_type.removesuffix("_copy")
    rule = RULES.get(node.op_type, to_complex_dialect)
    rule(pairs, node, given)


def _drops_imaginary(pairs: Pairs, node: ir.Node, given: Arguments) -> bool:
    """Whether a `dtype` argument converts complex operands to real numbers before the operator."""
    promotion = PROMOTION.get(node.op_type)
    casts = promotion is not None and promotion.kind in (Kind.CAST, Kind.SUM) and "norm" not in node.op_type
    wanted = given.get("dtype")
    return casts and wanted is not None and wanted not in PART_OF and given["self"] in pairs


_OPERANDS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("stft", "istft"), ("self", "window")),
    **dict.fromkeys(("full", "full_like", "new_full", "dist"), ()),
}
"""Arguments that become pairs, if they differ from the arguments that promotion considers."""


def _operands(name: str) -> tuple[str, ...]:
    if name in _OPERANDS:
        return _OPERANDS[name]
    if name in PROMOTION:
        return (*PROMOTION[name].operands, *PROMOTION[name].followers)
    takes_complex = name.startswith("fft_") and not name.startswith(("fft_rfft", "fft_ihfft"))
    return ("self",) if takes_complex else ()


def _promoted(pairs: Pairs, node: ir.Node, given: Arguments) -> Arguments:
    """The arguments, with the complex operands converted to pairs of one width."""
    names = [name for name in _operands(node.op_type) if name in given]
    if not names:
        return given
    part = _common_part(pairs, node, [given[name] for name in names])
    if given.get("dtype") in PART_OF:
        del given["dtype"]
    return given | {name: pairs.pair(given[name], part) for name in names}


def _common_part(pairs: Pairs, node: ir.Node, items: Sequence[Any]) -> DataType:
    """The element type of the parts: that of the result, or of the operands if the result is real."""
    known = next((value.dtype for value in node.outputs if value in pairs), None)
    if known is not None:
        return known
    values = [
        v for item in items for v in (item if isinstance(item, list) else [item]) if isinstance(v, Value)
    ]
    dimensioned = [v for v in values if v.shape is not None and len(v.shape) > (v in pairs)]
    floats = [v.dtype for v in dimensioned or values if v in pairs or v.dtype == DataType.DOUBLE]
    return DataType.DOUBLE if DataType.DOUBLE in floats else DataType.FLOAT


def _itself(pairs: Pairs, node: ir.Node, given: Arguments) -> None:
    """Apply the operator to the pair unchanged."""
    replace_arguments(node, given)


def _alias(pairs: Pairs, node: ir.Node, given: Arguments) -> None:
    pairs.become(node, "aten::alias", {"self": given["self"]})


def _apply_to_property(name: str, *operands: str) -> Rule:
    """Apply the operator to a real property of its operands, such as the modulus (see `of_pair`)."""

    def rule(pairs: Pairs, node: ir.Node, given: Arguments) -> None:
        if isinstance(given.get("dtype"), DataType) and given["dtype"] in PART_OF:
            given["dtype"] = PART_OF[given["dtype"]]
        changed = {key: pairs.of_pair(name, given[key]) for key in operands if key in given}
        replace_arguments(node, given | changed)

    return rule


def _created(pairs: Pairs, node: ir.Node, given: Arguments) -> None:
    """Create a tensor; create a complex one part by part."""
    filled = next(
        (name for name in ("fill_value", "s", "value") if isinstance(given.get(name), complex)), None
    )
    if filled is not None:
        part_by_part("self", filled)(pairs, node, given)
        return
    output = node.outputs[0]
    given = given | {"dtype": output.dtype}
    if "self" in given:
        given["self"] = pairs.of_pair("real", given["self"])
    if output not in pairs:
        replace_arguments(node, given)
        return
    pairs.become(node, "complex::from_real", {"self": pairs.again(node, given)})


def _converted(pairs: Pairs, node: ir.Node, given: Arguments) -> None:
    """Convert the element type (`to` and similar operators); conversion to real drops imaginary parts."""
    self, output = given["self"], node.outputs[0]
    if output in pairs and output.dtype is not None:
        if self in pairs and self.dtype == output.dtype:
            _alias(pairs, node, given)
        else:
            pairs.become(node, "aten::alias", {"self": pairs.pair(self, output.dtype)})
        return
    if self not in pairs or output.dtype is None:
        to_complex_dialect(pairs, node, given)
        return
    real = pairs.of_pair("is_nonzero" if output.dtype == DataType.BOOL else "real", self)
    pairs.become(node, "aten::to", {"self": real, "dtype": output.dtype}, "dtype")


_RULES_BY_NAMES: tuple[tuple[str, Rule], ...] = (
    ("view_as_real view_as_complex resolve_conj resolve_neg positive", _alias),
    (
        "alias detach lift_fresh clone contiguous cpu cuda dropout feature_dropout alpha_dropout index "
        "_unsafe_index index_put _unsafe_index_put copy",
        _itself,
    ),
    ("view_as reshape_as expand_as", in_shape_of),
    (
        "select narrow index_select select_scatter slice_scatter unsqueeze squeeze cumsum sym_size size "
        "unflatten",
        dimensions("dim"),
    ),
    (
        "slice unbind split split_with_sizes chunk tensor_split unsafe_split unsafe_chunk "
        "unsafe_split_with_sizes cat concat concatenate stack",
        dimensions(dim=0),
    ),
    ("diff", dimensions(dim=-1)),
    ("transpose swapdims", dimensions("dim0", "dim1")),
    ("swapaxes", dimensions("axis0", "axis1")),
    ("movedim moveaxis", dimensions("source", "destination")),
    ("flip", dimensions("dims")),
    ("rot90", dimensions(dims=[0, 1])),
    ("flatten", dimensions(start_dim=0, end_dim=-1)),
    ("permute", permuted),
    ("t numpy_T T mT mH matrix_H adjoint", transposed),
    ("roll", rolled),
    ("fft_fftshift fft_ifftshift", fftshifted),
    ("view expand broadcast_to _unsafe_view", sizes("size", 2)),
    ("reshape", sizes("shape", 2)),
    ("repeat", sizes("repeats", 1)),
    ("tile", sizes("dims", 1)),
    ("as_strided", strided),
    ("sum mean nansum", reduced),
    ("pad constant_pad_nd", padded),
    (
        "diagonal linalg_diagonal diag diag_embed diagflat tril triu trace unfold gather take "
        "take_along_dim ravel repeat_interleave pixel_shuffle pixel_unshuffle channel_shuffle im2col col2im "
        "reflection_pad1d reflection_pad2d reflection_pad3d replication_pad1d replication_pad2d "
        "replication_pad3d masked_select masked_fill masked_scatter index_fill fill scatter scatter_add "
        "diagonal_scatter as_strided_scatter put index_add index_copy",
        part_by_part("self", "A", "src", "value", "source"),
    ),
    ("matmul linalg_matmul kron inner cross linalg_cross", bilinear("self", "other")),
    ("dot", bilinear("self", "tensor")),
    ("vdot", bilinear("self", "other", conjugate=True)),
    ("mm bmm", bilinear("self", "mat2")),
    ("mv", bilinear("self", "vec")),
    ("outer ger", bilinear("self", "vec2")),
    (
        "linear conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d convolution",
        bilinear("input", "weight", "bias"),
    ),
    ("einsum", contracted),
    ("linalg_inv", embedded("A")),
    ("linalg_solve", solved),
    ("matrix_exp linalg_matrix_exp inverse matrix_power linalg_matrix_power", embedded("self")),
    ("norm linalg_vector_norm", _apply_to_property("abs", "self")),
    (
        "any all logical_not count_nonzero nonzero argwhere nonzero_numpy nonzero_static",
        _apply_to_property("is_nonzero", "self"),
    ),
    ("logical_and logical_or logical_xor", _apply_to_property("is_nonzero", "self", "other")),
    (
        "zeros ones empty full zeros_like ones_like empty_like full_like new_zeros new_ones new_empty "
        "new_full eye scalar_tensor arange empty_strided new_empty_strided empty_permuted",
        _created,
    ),
    ("to type_as _to_copy", _converted),
)
RULES: dict[str, Rule] = {name: rule for names, rule in _RULES_BY_NAMES for name in names.split()}
