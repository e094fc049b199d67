"""The operators of ONNX that have a form for the runtime in C, and those of a model that have none."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import onnx_ir as ir
from onnx_ir.convenience import get_const_tensor

from .....registration import PlanError
from .....registration.schemas import operator_schema
from . import device_arithmetic, device_attention, device_copies, device_normalization, device_products

# Operators, their operands, and their attributes with the texts that one may have. The operands are a letter
# for each input and, after >, for each output:
#   f float32               r float32 or float64      n numbers                d numbers or float64
#   e numbers or bool       i int32 or int64          l int64                  o bool
#   m float32 or bool       q 8-bit integers          s int32 or 8-bit integers
#   b as s, or a constant of 4 bits                   c what Cast gives
#   h as c, or a constant of 4 or 16 bits             x any type
#   T U V the type of input 0, 1, 2                   - omitted
# Digits after a letter are the ranks that the operand may have. A ! means that its value must be known, a ?
# that it is optional, and a * that any number of such operands may follow.
_ROWS = (
    ("Abs Relu Sign", "n>T", ""),
    (
        "Acos Acosh Asin Asinh Atan Atanh Ceil Cos Cosh Erf Exp Floor HardSwish Log Mish Round Sigmoid "
        "Sin Sinh Softplus Softsign Tan Tanh",
        "f>f",
        "",
    ),
    ("Add Div Mul Pow Sub", "dT>T", ""),
    ("And Or Xor", "oo>o", ""),
    ("ArgMax ArgMin", "n>l", "axis keepdims select_last_index"),
    ("Attention", "f34f34f34m?--->f34", "is_causal kv_num_heads q_num_heads scale"),
    ("AveragePool", "f345>f345", "ceil_mode count_include_pad dilations kernel_shape pads strides"),
    ("BatchNormalization", "fffff>f", "epsilon momentum"),
    ("Cast", "h>c", "to saturate"),
    ("CastLike", "cx>c", "saturate"),
    ("Celu Elu LeakyRelu Swish ThresholdedRelu", "f>f", "alpha"),
    ("Clip", "nT?T?>T", ""),
    ("Concat", "x*>T", "axis"),
    ("ConstantOfShape", "x>n", "value"),
    ("Conv", "f345f345f?>f345", "dilations group kernel_shape pads strides"),
    ("ConvInteger", "q345q345q?q?>s", "dilations group kernel_shape pads strides"),
    (
        "ConvTranspose",
        "f345f345f?>f345",
        "dilations group kernel_shape output_padding output_shape pads strides",
    ),
    ("CumSum", "ni!>T", "exclusive reverse"),
    ("DepthToSpace", "x4>T4", "blocksize mode=DCR|CRD"),
    ("DequantizeLinear", "bfT?>f", "axis block_size"),
    ("Dropout", "xx?->T", "seed"),
    ("DynamicQuantizeLinear", "f>qfq", ""),
    ("Equal", "eT>o", ""),
    ("Expand", "xx>T", ""),
    ("Flatten", "x>T", "axis"),
    ("Gather", "xi>T", "axis"),
    ("GatherElements", "xi>T", "axis"),
    ("GatherND", "xl>T", "batch_dims"),
    ("Gelu", "f>f", "approximate=none|tanh"),
    ("Gemm", "f2f2f?>f2", "alpha beta transA transB"),
    ("GlobalAveragePool GlobalMaxPool", "f345>f345", ""),
    ("Greater GreaterOrEqual Less LessOrEqual", "nT>o", ""),
    ("GroupNormalization", "fff>f", "epsilon num_groups"),
    ("GRU", "f3f3f3f?-f?>f?f?f3?", "direction=forward|reverse|bidirectional hidden_size linear_before_reset"),
    ("HardSigmoid", "f>f", "alpha beta"),
    ("Identity", "x>T", ""),
    ("If", "o>x*", "then_branch else_branch"),
    ("InstanceNormalization", "fff>f", "epsilon"),
    ("IsInf IsNaN", "f>o", ""),
    ("LayerNormalization", "fff?>f", "axis epsilon stash_type"),
    ("LogSoftmax Softmax", "f>f", "axis"),
    ("Loop", "l?o?x*>x*", "body"),
    ("LSTM", "f3f3f3f?-f?f?->f?f?f?f3?", "direction=forward|reverse|bidirectional hidden_size input_forget"),
    ("MatMul", "ff>f", ""),
    ("MatMulInteger", "q2345678q2345678q?q?>s", ""),
    ("Max Min", "nT*>T", ""),
    ("MaxPool", "f345>f345l?", "ceil_mode dilations kernel_shape pads storage_order strides"),
    ("Mean", "ff*>f", ""),
    ("Mod", "nT>T", "fmod"),
    ("Neg", "d>T", ""),
    ("Not", "o>o", ""),
    ("OneHot", "ixx>V", "axis"),
    ("Pad", "xl!T?i!?>T", "mode=constant|edge|reflect|wrap"),
    ("PRelu", "ff>f", ""),
    ("QLinearConv", "q345fqq345fqfqs?>q", "dilations group kernel_shape pads strides"),
    ("QLinearMatMul", "q2345678fqq2345678fqfq>q", ""),
    ("QuantizeLinear", "ffq?>q", "axis saturate"),
    ("Range", "nTT>T", ""),
    ("Reciprocal Sqrt", "r>T", ""),
    (
        "ReduceL1 ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare",
        "ni!?>T",
        "axes keepdims noop_with_empty_axes",
    ),
    ("ReduceL2 ReduceLogSum ReduceLogSumExp", "fi!?>T", "axes keepdims noop_with_empty_axes"),
    ("Reshape", "xx>T", "allowzero"),
    (
        "Resize",
        "ff?f!?x?>f",
        "coordinate_transformation_mode=half_pixel|asymmetric|align_corners|pytorch_half_pixel "
        "cubic_coeff_a exclude_outside extrapolation_value mode=nearest|linear|cubic "
        "nearest_mode=round_prefer_floor|round_prefer_ceil|floor|ceil",
    ),
    ("RMSNormalization", "ff>f", "axis epsilon stash_type"),
    (
        "RNN",
        "f3f3f3f?-f?>f?f?f3?",
        "activations=Tanh|Relu direction=forward|reverse|bidirectional hidden_size",
    ),
    ("RotaryEmbedding", "f34ffl?>f34", "interleaved num_heads rotary_embedding_dim"),
    ("ScatterElements", "xiT>T", "axis reduction=none|add|mul|max|min"),
    ("ScatterND", "xlT>T", "reduction=none|add|mul|max|min"),
    ("Selu", "f>f", "alpha gamma"),
    ("Shape", "x>l", "start end"),
    ("Size", "x>l", ""),
    ("Slice", "xi!i!i!?i!?>T", ""),
    ("SpaceToDepth", "x4>T4", "blocksize mode=DCR|CRD"),
    ("Split", "xl?>x*", "axis num_outputs"),
    ("Squeeze", "xx?>T", ""),
    ("Sum", "fT*>T", ""),
    ("Tile", "xl>T", ""),
    ("TopK", "nx>Tl", "axis largest sorted"),
    ("Transpose", "x>T", "perm"),
    ("Trilu", "xl!?>T", "upper"),
    ("Unsqueeze", "xx>T", ""),
    ("Where", "oxU>U", ""),
)
_OPERAND = re.compile(r"([a-zA-Z-])(\d*)(!?)([?*]?)")
_INTEGERS = {ir.DataType.INT32, ir.DataType.INT64}
_BYTES = {ir.DataType.INT8, ir.DataType.UINT8}
_NUMBERS = {ir.DataType.FLOAT} | _INTEGERS | _BYTES
_TYPES: dict[str, set[ir.DataType]] = {
    "f": {ir.DataType.FLOAT},
    "m": {ir.DataType.FLOAT, ir.DataType.BOOL},
    "r": {ir.DataType.FLOAT, ir.DataType.DOUBLE},
    "n": _NUMBERS,
    "d": _NUMBERS | {ir.DataType.DOUBLE},
    "e": _NUMBERS | {ir.DataType.BOOL},
    "c": _NUMBERS | {ir.DataType.BOOL, ir.DataType.DOUBLE},
    "i": _INTEGERS,
    "l": {ir.DataType.INT64},
    "o": {ir.DataType.BOOL},
    "q": _BYTES,
    "s": _BYTES | {ir.DataType.INT32},
    "b": _BYTES | {ir.DataType.INT32, ir.DataType.INT4, ir.DataType.UINT4},
    "h": _NUMBERS | {ir.DataType.BOOL, ir.DataType.DOUBLE} | device_arithmetic.STORED_TYPES.keys(),
    "x": {
        dtype for dtype in ir.DataType if dtype.name not in ("UNDEFINED", "STRING") and dtype.bitwidth >= 8
    },
}
"""The element types of each letter of the table; T, U and V are those of the inputs 0, 1 and 2."""
_MOST_RANK = 8
_SINGLE_SCALES = {"QLinearMatMul": (1, 2, 6, 7), "MatMulInteger": (2,)}
"""Inputs with one element, which ONNX allows for each row, too."""
FORMS = {
    **device_arithmetic.FORMS,
    **device_attention.FORMS,
    **device_copies.FORMS,
    **device_normalization.FORMS,
    **device_products.FORMS,
}
"""How each operator besides If and Loop becomes nodes of the runtime."""


@dataclasses.dataclass(frozen=True)
class _Operand:
    letter: str
    ranks: frozenset[int]
    is_known: bool
    count: str
    """`?` for one that may be omitted, `*` for any number of them."""


@dataclasses.dataclass(frozen=True)
class OperatorRow:
    """A row of the table: operands, and the texts that each attribute may have (None for any value)."""

    inputs: tuple[_Operand, ...]
    outputs: tuple[_Operand, ...]
    attributes: Mapping[str, frozenset[str] | None]


@functools.cache
def operator_rows() -> Mapping[str, OperatorRow]:
    """The operators by name."""
    rows: dict[str, OperatorRow] = {}
    for names, operands, attributes in _ROWS:
        inputs, outputs = (
            tuple(
                _Operand(letter, frozenset(map(int, ranks)), bool(mark), count)
                for letter, ranks, mark, count in _OPERAND.findall(part)
            )
            for part in operands.split(">")
        )
        words = (word.partition("=") for word in attributes.split())
        texts = {name: frozenset(values.split("|")) if values else None for name, _, values in words}
        rows |= dict.fromkeys(names.split(), OperatorRow(inputs, outputs, texts))
    return rows


def check_nodes(nodes: Iterable[ir.Node], opset: int) -> None:
    """Refuse nodes that the runtime cannot run.

    Raises:
        PlanError: lists all operators without a kernel, and the others with the reasons.
    """
    missing: Counter[str] = Counter()
    reasons: Counter[tuple[str, str]] = Counter()
    for node in nodes:
        row = operator_rows().get(node.op_type)
        if node.domain not in ("", "ai.onnx") or row is None:
            missing[f"{node.domain}::{node.op_type}" if node.domain else node.op_type] += 1
        elif reason := _problem(node, row, opset):
            reasons[node.op_type, reason] += 1
    listed = [f"{name} ({count})" for name, count in missing.items()]
    listed += [f"{name} ({count}: {reason})" for (name, reason), count in reasons.items()]
    if listed:
        raise PlanError(f"the runtime in C has no kernels for {', '.join(sorted(listed))}")


def _problem(node: ir.Node, row: OperatorRow, opset: int) -> str | None:
    """Why a node of a known operator cannot run."""
    schema = operator_schema(node.op_type, opset)
    for name, attribute in node.attributes.items():
        is_default = (
            schema is not None
            and not attribute.is_ref()
            and name in schema.attributes
            and schema.attributes[name].is_default(attribute.value)
        )
        if is_default or name == "auto_pad":
            continue
        if name not in row.attributes or attribute.is_ref():
            return f"attribute '{name}'"
        texts = row.attributes[name]
        if texts is None:
            continue
        words = (
            attribute.as_strings() if attribute.type == ir.AttributeType.STRINGS else [attribute.as_string()]
        )
        if not texts.issuperset(words) or len(set(words)) != 1:
            return f"{name}={'/'.join(words)}"
    for side, operands, values in (("input", row.inputs, node.inputs), ("output", row.outputs, node.outputs)):
        if problem := _operand_problem(side, operands, values, node.inputs):
            return problem
    for index in _SINGLE_SCALES.get(node.op_type, ()):
        value = node.inputs[index] if index < len(node.inputs) else None
        if value is not None and (value.shape is None or any(size != 1 for size in value.shape)):
            return f"input {index} has several elements"
    return None


def _operand_problem(
    side: str,
    operands: Sequence[_Operand],
    values: Sequence[ir.Value | None],
    inputs: Sequence[ir.Value | None],
) -> str | None:
    for index, value in enumerate(values):
        operand = operands[-1] if index >= len(operands) and operands[-1].count == "*" else None
        operand = operands[index] if index < len(operands) else operand
        if value is None or (side == "output" and not value.name):
            if operand is not None and not operand.count and operand.letter != "-":
                return f"without {side} {index}"
            continue
        if operand is None or operand.letter == "-":
            return f"{side} {index}"
        is_stored = operand.letter in "bh" and value.dtype in device_arithmetic.STORED_TYPES
        is_known = operand.is_known or is_stored
        if is_known and get_const_tensor(value) is None:
            return "sizes or operands are computed, unless lower(dims=…) or convert --dim fixes them"
        reference = "TUV".find(operand.letter)
        source = inputs[reference] if reference >= 0 else None
        same_type = set() if source is None or source.dtype is None else {source.dtype}
        if value.dtype is None or value.dtype not in _TYPES.get(operand.letter, same_type):
            return f"{side} {index} is {'unknown' if value.dtype is None else value.dtype.name}"
        rank = len(value.shape) if value.shape is not None else 0
        if rank > _MOST_RANK or (operand.ranks and rank not in operand.ranks):
            return f"{side} {index} has {rank} dimensions"
    return None
