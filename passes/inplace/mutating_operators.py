"""Maps ATen's in-place operators and `out=` overloads to functional operators.

Only irregular names are listed. The other names follow a rule: `relu_` becomes `relu` with the same overload,
and `Tensor_out` becomes `Tensor`. A test compares the tables with torch's schemas.

The rule does not apply to operators of other libraries. The capture reads their schemas: the node of such an
operator returns its results and then the new values of the arguments that it writes to, and `copy_` nodes
after it write these values.
"""

from __future__ import annotations

from typing import Any

import onnx_ir as ir

from ...registration import GraphError
from ..source_builder import where

METADATA = frozenset("unsqueeze_ squeeze_ transpose_ t_ swapaxes_ swapdims_".split())
"""Operators that change the metadata of a tensor object, not its storage."""
RESIZES = ("resize_", "default")
"""The operator that changes the size of a tensor, and keeps its first elements in memory."""
CONTIGUOUS = frozenset("empty zeros ones full arange new_empty new_zeros new_ones new_full".split())
"""Operators whose results have their elements in memory in the order of their indices."""
IDLE = frozenset(("detach_", "requires_grad_"))
"""Operators without effect when there are no gradients."""
COPIES = {("copy_", "default"): "src", ("copy_", ""): "src", ("fill_", "Tensor"): "value"}
"""Operators that overwrite the whole destination with one argument, cast and broadcast."""
ATTRIBUTE = ("copy_", "attribute")
"""The operator for an attribute that a script replaces; its shape and element type may change."""
REFUSED = frozenset(
    "set_ resize_as_ resize_as_sparse_ as_strided_ rename_ copy_sparse_to_sparse_ sparse_resize_ "
    "sparse_resize_and_clear_ rrelu_with_noise_ fill_diagonal_ geqrf_".split()
)
_REFUSED_PREFIXES = ("_foreach_", "_fused_", "_amp_", "_sobol_", "_no_grad_", "_fill_mem_eff_")

_TWINS = {
    ("float_power_", "Tensor"): ("float_power", "Tensor_Tensor"),
    ("float_power_", "Scalar"): ("float_power", "Tensor_Scalar"),
    ("pow_", "Tensor"): ("pow", "Tensor_Tensor"),
    ("pow_", "Scalar"): ("pow", "Tensor_Scalar"),
    ("ldexp_", "default"): ("ldexp", "Tensor"),
    ("floor_divide_", "Tensor"): ("floor_divide", "default"),
    ("transpose_", "default"): ("transpose", "int"),
    ("bernoulli_", "float"): ("bernoulli", "p"),
    ("normal_", "default"): ("normal_functional", "default"),
    ("zero_", "default"): ("zeros_like", "default"),
    ("fill_", "Scalar"): ("full_like", "default"),
    ("_index_put_impl_", "default"): ("index_put", "default"),
    ("__ior__", "Tensor"): ("bitwise_or", "Tensor"),
    ("__ior__", "Scalar"): ("bitwise_or", "Scalar"),
    ("__iand__", "Tensor"): ("bitwise_and", "Tensor"),
    ("__iand__", "Scalar"): ("bitwise_and", "Scalar"),
    ("__ixor__", "Tensor"): ("bitwise_xor", "Tensor"),
    ("__ixor__", "Scalar"): ("bitwise_xor", "Scalar"),
    ("__ilshift__", "Tensor"): ("__lshift__", "Tensor"),
    ("__ilshift__", "Scalar"): ("__lshift__", "Scalar"),
    ("__irshift__", "Tensor"): ("__rshift__", "Tensor"),
    ("__irshift__", "Scalar"): ("__rshift__", "Scalar"),
}
_DUNDER = frozenset(name for name, _ in _TWINS if name.startswith("__"))
_RENAMED: dict[str, dict[str, str]] = {
    name: {"self": "input"}
    for name in ("dropout", "alpha_dropout", "feature_dropout", "feature_alpha_dropout")
}
_RENAMED["full_like"] = {"value": "fill_value"}
_DROPPED = {"index_put": ("unsafe",)}

_VALUES = ("values", "indices")
OUT_OVERLOADS: dict[tuple[str, str], tuple[str, tuple[str, ...]]] = {
    ("max", "dim_max"): ("dim", ("max", "max_values")),
    ("min", "dim_min"): ("dim", ("min", "min_indices")),
    ("max", "unary_out"): ("default", ("out",)),
    ("min", "unary_out"): ("default", ("out",)),
    ("xlogy", "OutTensor"): ("Tensor", ("out",)),
    ("xlogy", "OutScalar_Self"): ("Scalar_Self", ("out",)),
    ("xlogy", "OutScalar_Other"): ("Scalar_Other", ("out",)),
    ("frexp", "Tensor_out"): ("Tensor", ("mantissa", "exponent")),
    ("linalg_inv_ex", "inverse"): ("default", ("inverse", "info")),
    ("linalg_cholesky_ex", "L"): ("default", ("L", "info")),
    ("linalg_qr", "out"): ("default", ("Q", "R")),
    ("linalg_svd", "U"): ("default", ("U", "S", "Vh")),
    ("linalg_eigh", "eigvals"): ("default", ("eigvals", "eigvecs")),
    ("linalg_slogdet", "out"): ("default", ("sign", "logabsdet")),
    ("mode", "values"): ("default", _VALUES),
    ("topk", "values"): ("default", _VALUES),
    ("sort", "values"): ("default", _VALUES),
    ("sort", "values_stable"): ("stable", _VALUES),
    ("kthvalue", "values"): ("default", _VALUES),
    ("median", "dim_values"): ("dim", _VALUES),
    ("nanmedian", "dim_values"): ("dim", _VALUES),
    ("cummax", "out"): ("default", _VALUES),
    ("cummin", "out"): ("default", _VALUES),
    ("aminmax", "out"): ("default", ("min", "max")),
    ("adaptive_max_pool2d", "out"): ("default", ("out", "indices")),
    ("adaptive_max_pool3d", "out"): ("default", ("out", "indices")),
    ("max_pool2d_with_indices", "out"): ("default", ("out", "indices")),
    ("max_pool3d_with_indices", "out"): ("default", ("out", "indices")),
    ("native_batch_norm", "out"): ("default", ("out", "save_mean", "save_invstd")),
    ("div", "out_mode"): ("Tensor_mode", ("out",)),
    ("divide", "out_mode"): ("Tensor_mode", ("out",)),
    ("prod", "int_out"): ("dim_int", ("out",)),
    ("empty", "out"): ("memory_format", ("out",)),
    ("sum", "IntList_out"): ("dim_IntList", ("out",)),
    ("bernoulli", "float_out"): ("p", ("out",)),
    ("norm", "dtype_out"): ("ScalarOpt_dim_dtype", ("out",)),
    ("norm", "out"): ("ScalarOpt_dim", ("out",)),
    ("frobenius_norm", "out"): ("dim", ("out",)),
    ("arange", "start_out"): ("start_step", ("out",)),
    ("range", "out"): ("step", ("out",)),
    ("range", "out_"): ("default", ("out",)),
    ("all", "all_out"): ("default", ("out",)),
    ("any", "all_out"): ("default", ("out",)),
    ("mean", "dtype_out"): ("default", ("out",)),
    ("linalg_pinv", "out_rcond_tensor"): ("rcond_tensor", ("out",)),
    ("linalg_matrix_rank", "out_tol_tensor"): ("tol_tensor", ("out",)),
}
OUT_OVERLOADS |= {
    (name, "out"): ("Tensor", ("out",))
    for name in "add sub mul div subtract multiply divide true_divide ldexp copysign _add_relu".split()
}
OUT_OVERLOADS |= {(name, "out"): ("dim", ("out",)) for name in ("all", "any", "mean", "std", "var")}
OUT_OVERLOADS |= {(name, "out"): ("other", ("out",)) for name in ("max", "min")}

BATCH_NORMS: dict[str, str | None] = {
    "batch_norm": "training",
    "native_batch_norm": "training",
    "cudnn_batch_norm": "training",
    "miopen_batch_norm": "training",
    "_native_batch_norm_legit": "training",
    "_batch_norm_with_update": None,
    "instance_norm": "use_input_stats",
}
"""Operators that update `running_mean` and `running_var`, and the argument that enables the update."""


def is_inplace_name(name: str) -> bool:
    """Whether the name of an ATen operator says that it writes to its first argument: `relu_`, `__ior__`."""
    return name[-1] == "_" and (name[-2:] != "__" or name in _DUNDER)


def is_inplace(node: ir.Node) -> bool:
    """Whether the node is an operator of ATen that writes to its first argument."""
    return node.domain == "aten" and is_inplace_name(node.op_type)


def is_out_overload(node: ir.Node) -> bool:
    """Whether the node writes its results into arguments given with `out=`."""
    return node.domain == "aten" and (
        node.overload == "out"
        or node.overload[-4:] == "_out"
        or (node.op_type, node.overload) in OUT_OVERLOADS
    )


def functional_form(node: ir.Node, arguments: dict[str, Any]) -> tuple[str, str, dict[str, Any]]:
    """Return the name, overload and arguments of the functional form of an in-place operator.

    Raises:
        GraphError: there is no functional operator.
    """
    name, overload = node.op_type, node.overload or "default"
    if name in REFUSED or name.startswith(_REFUSED_PREFIXES):
        raise GraphError(f"{where(node)}: this in-place operator has no functional form")
    # `relu_` and `relu` share their overload names, apart from those listed in `_TWINS`.
    name, overload = _TWINS.get((name, overload), (name[:-1], node.overload))
    renamed = _RENAMED.get(name, {})
    dropped = _DROPPED.get(name, ())
    return (
        name,
        overload,
        {renamed.get(key, key): item for key, item in arguments.items() if key not in dropped},
    )


def functional_form_of_out(
    node: ir.Node, arguments: dict[str, Any]
) -> tuple[str, tuple[str, ...], dict[str, Any]]:
    """Return the functional overload of an `out=` overload, the names of written arguments, and the others.

    Raises:
        GraphError: the written arguments are unknown.
    """
    irregular = OUT_OVERLOADS.get((node.op_type, node.overload))
    if irregular is not None:
        overload, written = irregular
    else:
        overload = node.overload[:-3].rstrip("_") or "default"
        # Overloads with several results call their arguments out0, out1, …
        count = len(node.outputs)
        written = ("out",) if count == 1 and "out" in arguments else tuple(f"out{i}" for i in range(count))
    unknown = (node.op_type, node.overload) == ("normal", "out")  # It has no functional overload.
    if unknown or not node.outputs or not all(name in arguments for name in written):
        raise GraphError(f"{where(node)}: the arguments that this overload writes to are unknown")
    return overload, written, {key: item for key, item in arguments.items() if key not in written}
