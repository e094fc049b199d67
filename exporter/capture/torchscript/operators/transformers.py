"""Replaces the fused kernels of torch's transformer layers by separate operators.

`nn.TransformerEncoderLayer` and `nn.MultiheadAttention` call them in evaluation mode. The semantics are those
of ATen's native/transformers (attention.cpp, transformer.cpp) on the CPU. An encoder removes padding by
making a nested tensor; here the padding stays, with a mask, and becomes 0 when the encoder pads again.
"""

from __future__ import annotations

from typing import Any

from onnx_ir import DataType, Value

from .....registration import CaptureError
from ..interpreter import Interpreter
from ..library import script
from ..objects import Nested

_MERGED, _PADDING = 2, 1


class _FusedKernel:
    """Emits the operators of one kernel."""

    def __init__(self, machine: Interpreter, node: Any):
        self._build = machine.build
        self._stem = machine.stem(node)

    def __call__(self, name: str, overload: str = "default", /, **arguments: Any) -> Any:
        return self._build.operator(f"aten::{name}", overload, arguments, ["Tensor"], self._stem)[0]

    def linear(self, x: Any, weight: Any, bias: Any) -> Any:
        return self("linear", input=x, weight=weight, bias=bias)

    def normalize(self, x: Any, embed_dim: int, weight: Any, bias: Any, eps: float) -> Any:
        return self("layer_norm", input=x, normalized_shape=[embed_dim], weight=weight, bias=bias, eps=eps)

    def add(self, x: Any, y: Any) -> Any:
        return self("add", "Tensor", self=x, other=y)

    def is_masked(self, mask: Any, mask_type: int | None) -> Any:
        """The mask of positions without attention, with the rank of the scores; nonzero means true."""
        mask = self("to", "dtype", self=mask, dtype=DataType.BOOL)
        if mask_type == _PADDING:
            mask = self("unsqueeze", self=self("unsqueeze", self=mask, dim=1), dim=2)
        return mask

    def attention(
        self, inputs: list[Any], sizes: tuple[int, int], weights: list[Any], mask: Any, mask_type: int | None
    ) -> tuple[Any, Any]:
        """The result and the weights of the heads, for query, key and value.

        Args:
            sizes: the size of the embedding, and the number of heads.
            weights: weight and bias of the input projection and of the output projection.
        """
        embed_dim, heads = sizes
        weight, bias, result_weight, result_bias = weights
        parts = []
        for index, x in enumerate(inputs):
            bounds = {"start": index * embed_dim, "end": (index + 1) * embed_dim, "dim": 0, "step": 1}
            rows = self("slice", "Tensor", self=weight, **bounds)
            projected = self.linear(x, rows, self("slice", "Tensor", self=bias, **bounds))
            split = self("unflatten", "int", self=projected, dim=-1, sizes=[heads, embed_dim // heads])
            parts.append(self("transpose", "int", self=split, dim0=1, dim1=2))
        query, key, value = parts
        scale = (embed_dim // heads) ** -0.5
        transposed = self("transpose", "int", self=key, dim0=-2, dim1=-1)
        scores = self("matmul", self=self("mul", "Tensor", self=query, other=scale), other=transposed)
        if mask is not None:
            scores = self(
                "masked_fill",
                "Scalar",
                self=scores,
                mask=self.is_masked(mask, mask_type),
                value=-float("inf"),
            )
        chosen = self("softmax", "int", self=scores, dim=-1)
        combined = self("transpose", "int", self=self("matmul", self=chosen, other=value), dim0=1, dim1=2)
        joined = self("flatten", "using_ints", self=combined, start_dim=2, end_dim=3)
        return self.linear(joined, result_weight, result_bias), chosen


def _dense(machine: Interpreter, node: Any, item: Any, mask: Any, mask_type: Any) -> tuple[Any, Any, Any]:
    """A tensor and its mask; for a nested tensor the removed positions are masked."""
    if not isinstance(item, Nested):
        return item, mask, mask_type
    if mask is not None:
        raise CaptureError(f"{machine.place(node)}: a nested tensor together with a mask is not supported")
    return item.padded, item.padding, _PADDING


@script("aten::_native_multi_head_attention")
def native_multi_head_attention(
    machine: Interpreter,
    node: Any,
    query: Any,
    key: Any,
    value: Any,
    embed_dim: int,
    num_head: int,
    qkv_weight: Any,
    qkv_bias: Any,
    proj_weight: Any,
    proj_bias: Any,
    mask: Any = None,
    need_weights: bool = True,
    average_attn_weights: bool = True,
    mask_type: int | None = None,
) -> list[Any]:
    """Attention over a batch of sequences; returns the weights averaged over heads on request."""
    kernel = _FusedKernel(machine, node)
    weights = [qkv_weight, qkv_bias, proj_weight, proj_bias]
    sizes = (embed_dim, num_head)
    if isinstance(query, Nested):
        if need_weights or not query is key is value:
            raise CaptureError(
                f"{machine.place(node)}: the attention weights of a nested tensor are not supported"
            )
        x, inner, inner_mask_type = _dense(machine, node, query, mask, mask_type)
        result, chosen = kernel.attention([x, x, x], sizes, weights, inner, inner_mask_type)
        return [query.like(result), chosen]
    result, chosen = kernel.attention([query, key, value], sizes, weights, mask, mask_type)
    if need_weights and average_attn_weights:
        chosen = kernel("mean", "dim", self=chosen, dim=[1])
    return [result, chosen]


@script("aten::_transformer_encoder_layer_fwd")
def transformer_encoder_layer(
    machine: Interpreter,
    node: Any,
    src: Any,
    embed_dim: int,
    num_heads: int,
    qkv_weight: Any,
    qkv_bias: Any,
    proj_weight: Any,
    proj_bias: Any,
    use_gelu: bool,
    norm_first: bool,
    eps: float,
    norm_weight_1: Any,
    norm_bias_1: Any,
    norm_weight_2: Any,
    norm_bias_2: Any,
    ffn_weight_1: Any,
    ffn_bias_1: Any,
    ffn_weight_2: Any,
    ffn_bias_2: Any,
    mask: Any = None,
    mask_type: int | None = None,
) -> Any:
    """Attention and a feed-forward network, each with a residual connection and a normalization."""
    kernel = _FusedKernel(machine, node)
    dense, mask, mask_type = _dense(machine, node, src, mask, mask_type)
    weights = [qkv_weight, qkv_bias, proj_weight, proj_bias]

    def first(x: Any) -> Any:
        return kernel.normalize(x, embed_dim, norm_weight_1, norm_bias_1, eps)

    def second(x: Any) -> Any:
        return kernel.normalize(x, embed_dim, norm_weight_2, norm_bias_2, eps)

    def attend(x: Any) -> Any:
        return kernel.attention([x, x, x], (embed_dim, num_heads), weights, mask, mask_type)[0]

    def feed_forward(x: Any) -> Any:
        hidden = kernel.linear(x, ffn_weight_1, ffn_bias_1)
        hidden = kernel("gelu" if use_gelu else "relu", self=hidden)
        return kernel.linear(hidden, ffn_weight_2, ffn_bias_2)

    if norm_first:
        x = kernel.add(dense, attend(first(dense)))
        x = kernel.add(x, feed_forward(second(x)))
    else:
        x = first(kernel.add(dense, attend(dense)))
        x = second(kernel.add(x, feed_forward(x)))
    return src.like(x) if isinstance(src, Nested) else x


def _front(kernel: _FusedKernel, mask: Value) -> Any:
    """A mask that is true at the first positions of each sequence; another mask gives their number."""
    counts = kernel("sum", "dim_IntList", self=mask, dim=[1], keepdim=True)
    positions = kernel("cumsum", self=kernel("ones_like", self=mask, dtype=DataType.INT64), dim=1)
    return kernel("le", "Tensor", self=positions, other=counts)


def _origin(mask: Value) -> Value:
    """The operand of a mask's negation; the encoder negates its mask twice."""
    node = mask.producer()
    return node.inputs[0] if node is not None and node.op_type == "logical_not" else mask  # type: ignore[return-value]


@script("aten::_nested_tensor_from_mask_left_aligned")
def is_left_aligned(machine: Interpreter, node: Any, t: Value, mask: Value) -> bool:
    """Whether all padding is at the end, which decides how `nn.TransformerEncoder` handles it.

    Attention is masked in both cases; only the contents of the padding afterwards differ. Return True here;
    `nested_tensor_from_mask` decides with the computed alignment.
    """
    if "torch/nn/modules/transformer.py" not in machine.build.line:
        raise CaptureError(f"{machine.place(node)}: it is supported only within nn.TransformerEncoder")
    kernel = _FusedKernel(machine, node)
    equal = kernel("eq", "Tensor", self=_front(kernel, mask), other=mask)
    machine.alignments[_origin(mask)] = kernel("all", self=equal)
    return True


@script("aten::_nested_tensor_from_mask")
def nested_tensor_from_mask(
    machine: Interpreter, node: Any, t: Value, mask: Value, mask_check: bool = True
) -> Nested:
    """The sequences without the masked positions at their ends."""
    kernel = _FusedKernel(machine, node)
    aligned = machine.alignments.get(_origin(mask))
    if aligned is None:
        padding = kernel("logical_not", self=_front(kernel, mask))
        return Nested(t, padding, padding)
    padding = kernel("logical_not", self=mask)
    return Nested(t, padding, kernel("logical_and", self=padding, other=aligned))


@script("aten::to_padded_tensor", "aten::nested_to_padded_tensor")
def to_padded_tensor(
    machine: Interpreter, node: Any, nested: Any, padding: float, output_size: Any = None
) -> Any:
    """The sequences at full length, with the padding value at the removed positions."""
    if not isinstance(nested, Nested) or output_size is None:
        raise CaptureError(f"{machine.place(node)}: the tensor must be nested, and the size to pad to given")
    kernel = _FusedKernel(machine, node)
    left_out = kernel("unsqueeze", self=nested.left_out, dim=-1)
    return kernel("masked_fill", "Scalar", self=nested.padded, mask=left_out, value=padding)
