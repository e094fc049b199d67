"""The rules of `real_pairs`: how each ATen operator works on complex numbers stored as pairs, [..., 2]."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir
from onnx_ir import DataType, Value

from ...registration.arguments import replace_arguments
from ..promotion.rules import RULES as PROMOTION
from ..promotion.rules import Promotion
from .pair_products import apply_to_block_matrix, bilinear, contract_tensors, solve_block_system
from .pair_shapes import (
    double_strides,
    match_shape,
    pad_tensor,
    permute_dims,
    reduce_dims,
    roll_elements,
    shift_frequencies,
    transpose_matrix,
    with_last_size,
    with_shifted_dims,
)
from .pairs import PART_OF, Arguments, Pairs, Rule, part_by_part, to_complex_dialect

HALF_SPECTRUM = frozenset("fft_irfft fft_irfft2 fft_irfftn fft_hfft fft_hfft2 fft_hfftn".split())
"""Operators from complex numbers (or real ones, which stay real) to real numbers."""


def rewrite(pairs: Pairs, node: ir.Node, arguments: Arguments) -> None:
    """Rewrite a node with complex inputs or outputs."""
    pairs.build.before(node)
    if any(isinstance(value.type, ir.SequenceType) for value in (*node.inputs, *node.outputs) if value) and (
        node.op_type not in RULES
    ):
        return
    if _drops_imaginary(pairs, node, arguments):
        replace_arguments(node, arguments | {"self": pairs.apply("real", arguments["self"])})
        return
    arguments = _promote_operands(pairs, node, arguments)
    # `view_copy` and similar operators compute the same as the view.
    node.op_type = node.op_type.removesuffix("_copy")
    rule = RULES.get(node.op_type, to_complex_dialect)
    rule(pairs, node, arguments)


def _drops_imaginary(pairs: Pairs, node: ir.Node, arguments: Arguments) -> bool:
    """Whether a `dtype` argument converts complex operands to real numbers before the operator."""
    rule = PROMOTION.get(node.op_type)
    # A norm of complex numbers is real already, so a real `dtype` drops nothing.
    casts = (
        rule is not None and rule.promotion in (Promotion.CAST, Promotion.SUM) and "norm" not in node.op_type
    )
    dtype = arguments.get("dtype")
    return casts and dtype is not None and dtype not in PART_OF and arguments["self"] in pairs


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


def _promote_operands(pairs: Pairs, node: ir.Node, arguments: Arguments) -> Arguments:
    """The arguments, with the complex operands converted to pairs of one width."""
    names = [name for name in _operands(node.op_type) if name in arguments]
    if not names:
        return arguments
    part = _common_part(pairs, node, [arguments[name] for name in names])
    if arguments.get("dtype") in PART_OF:
        del arguments["dtype"]
    return arguments | {name: pairs.to_pair(arguments[name], part) for name in names}


def _common_part(pairs: Pairs, node: ir.Node, items: Sequence[object]) -> DataType:
    """The element type of the parts: that of the result, or of the operands if the result is real."""
    result_dtype = next((value.dtype for value in node.outputs if value in pairs), None)
    if result_dtype is not None:
        return result_dtype
    values = [
        v for item in items for v in (item if isinstance(item, list) else [item]) if isinstance(v, Value)
    ]
    # As in ATen's promotion, a zero-dim tensor decides only if no other tensor does.
    dimensioned = [v for v in values if v.shape is not None and len(v.shape) > (v in pairs)]
    floats = [v.dtype for v in dimensioned or values if v in pairs or v.dtype == DataType.DOUBLE]
    return DataType.DOUBLE if DataType.DOUBLE in floats else DataType.FLOAT


def _keep_operator(pairs: Pairs, node: ir.Node, arguments: Arguments) -> None:
    """Apply the operator to the pair unchanged."""
    replace_arguments(node, arguments)


def _alias(pairs: Pairs, node: ir.Node, arguments: Arguments) -> None:
    pairs.replace_operator(node, "aten::alias", {"self": arguments["self"]})


def _apply_to_property(name: str, *operands: str) -> Rule:
    """Apply the operator to a real property of its operands, such as the modulus (see `Pairs.apply`)."""

    def rule(pairs: Pairs, node: ir.Node, arguments: Arguments) -> None:
        if isinstance(arguments.get("dtype"), DataType) and arguments["dtype"] in PART_OF:
            arguments["dtype"] = PART_OF[arguments["dtype"]]
        changed = {key: pairs.apply(name, arguments[key]) for key in operands if key in arguments}
        replace_arguments(node, arguments | changed)

    return rule


def _create_tensor(pairs: Pairs, node: ir.Node, arguments: Arguments) -> None:
    """Create a tensor; create a complex one part by part."""
    filled = next(
        (name for name in ("fill_value", "s", "value") if isinstance(arguments.get(name), complex)), None
    )
    if filled is not None:
        part_by_part("self", filled)(pairs, node, arguments)
        return
    output = node.outputs[0]
    arguments = arguments | {"dtype": output.dtype}
    if "self" in arguments:
        arguments["self"] = pairs.apply("real", arguments["self"])
    # `ones_like(complex, dtype=float)` is real.
    if output not in pairs:
        replace_arguments(node, arguments)
        return
    pairs.replace_operator(node, "complex::from_real", {"self": pairs.emit_operator(node, arguments)})


def _convert_dtype(pairs: Pairs, node: ir.Node, arguments: Arguments) -> None:
    """Convert the element type (`to` and similar operators); conversion to real drops imaginary parts."""
    self, output = arguments["self"], node.outputs[0]
    if output in pairs and output.dtype is not None:
        is_unchanged = self in pairs and self.dtype == output.dtype
        pair = self if is_unchanged else pairs.to_pair(self, output.dtype)
        pairs.replace_operator(node, "aten::alias", {"self": pair})
        return
    if self not in pairs or output.dtype is None:
        to_complex_dialect(pairs, node, arguments)
        return
    real = pairs.apply("is_nonzero" if output.dtype == DataType.BOOL else "real", self)
    pairs.replace_operator(node, "aten::to", {"self": real, "dtype": output.dtype}, "dtype")


_RULES_BY_NAMES: tuple[tuple[str, Rule], ...] = (
    ("view_as_real view_as_complex resolve_conj resolve_neg positive", _alias),
    (
        "alias detach lift_fresh clone contiguous cpu cuda dropout feature_dropout alpha_dropout index "
        "_unsafe_index index_put _unsafe_index_put copy",
        _keep_operator,
    ),
    ("view_as reshape_as expand_as", match_shape),
    (
        "select narrow index_select select_scatter slice_scatter unsqueeze squeeze cumsum sym_size size "
        "unflatten",
        with_shifted_dims("dim"),
    ),
    (
        "slice unbind split split_with_sizes chunk tensor_split unsafe_split unsafe_chunk "
        "unsafe_split_with_sizes cat concat concatenate stack",
        with_shifted_dims(dim=0),
    ),
    ("diff", with_shifted_dims(dim=-1)),
    ("transpose swapdims", with_shifted_dims("dim0", "dim1")),
    ("swapaxes", with_shifted_dims("axis0", "axis1")),
    ("movedim moveaxis", with_shifted_dims("source", "destination")),
    ("flip", with_shifted_dims("dims")),
    ("rot90", with_shifted_dims(dims=[0, 1])),
    ("flatten", with_shifted_dims(start_dim=0, end_dim=-1)),
    ("permute", permute_dims),
    ("t numpy_T T mT mH matrix_H adjoint", transpose_matrix),
    ("roll", roll_elements),
    ("fft_fftshift fft_ifftshift", shift_frequencies),
    ("view expand broadcast_to _unsafe_view", with_last_size("size", 2)),
    ("reshape", with_last_size("shape", 2)),
    ("repeat", with_last_size("repeats", 1)),
    ("tile", with_last_size("dims", 1)),
    ("as_strided", double_strides),
    ("sum mean nansum", reduce_dims),
    ("pad constant_pad_nd", pad_tensor),
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
    ("einsum", contract_tensors),
    ("linalg_inv", apply_to_block_matrix("A")),
    ("linalg_solve", solve_block_system),
    ("matrix_exp linalg_matrix_exp inverse matrix_power linalg_matrix_power", apply_to_block_matrix("self")),
    ("numel sym_numel", _apply_to_property("real", "self")),
    ("norm linalg_vector_norm", _apply_to_property("abs", "self")),
    (
        "any all logical_not count_nonzero nonzero argwhere nonzero_numpy nonzero_static",
        _apply_to_property("is_nonzero", "self"),
    ),
    ("logical_and logical_or logical_xor", _apply_to_property("is_nonzero", "self", "other")),
    (
        "zeros ones empty full zeros_like ones_like empty_like full_like new_zeros new_ones new_empty "
        "new_full eye scalar_tensor arange empty_strided new_empty_strided empty_permuted",
        _create_tensor,
    ),
    ("to type_as _to_copy", _convert_dtype),
)
RULES: dict[str, Rule] = {name: rule for names, rule in _RULES_BY_NAMES for name in names.split()}
