"""Replaces the fused kernels of torch's transformer layers by separate operators.

`nn.TransformerEncoderLayer` and `nn.MultiheadAttention` call them in evaluation mode. The semantics are those
of ATen's native/transformers (attention.cpp, transformer.cpp) on the CPU. An encoder removes padding by
making a nested tensor; here the padding stays, with a mask, and becomes 0 when the encoder pads again.
"""

from __future__ import annotations

from collections.abc import Sequence

from onnx_ir import DataType, Value

from .....registration import CaptureError
from ..interpreter import Interpreter
from ..library import script
from ..objects import Item, Nested, TensorItem
from ..script_graph import ScriptNode

_MERGED, _PADDING = 2, 1


class _FusedKernel:
    """Emits the operators of one kernel."""

    def __init__(self, machine: Interpreter, node: ScriptNode):
        self._build = machine.build
        self._stem = machine.stem(node)

    def __call__(self, name: str, overload: str = "default", /, **arguments: object) -> Value:
        return self._build.tensor_operator(name, overload, arguments, self._stem)

    def linear(self, x: TensorItem, weight: TensorItem, bias: TensorItem | None) -> Value:
        return self("linear", input=x, weight=weight, bias=bias)

    def normalize(
        self, x: TensorItem, embed_dim: int, weight: TensorItem, bias: TensorItem | None, eps: float
    ) -> Value:
        return self("layer_norm", input=x, normalized_shape=[embed_dim], weight=weight, bias=bias, eps=eps)

    def add(self, x: TensorItem, y: TensorItem) -> Value:
        return self("add", "Tensor", self=x, other=y)

    def is_masked(self, mask: TensorItem, mask_type: int | None) -> Value:
        """The mask of positions without attention, with the rank of the scores; nonzero means true."""
        as_bool = self("to", "dtype", self=mask, dtype=DataType.BOOL)
        if mask_type == _PADDING:
            return self("unsqueeze", self=self("unsqueeze", self=as_bool, dim=1), dim=2)
        return as_bool

    def attention(
        self,
        inputs: Sequence[TensorItem],
        sizes: tuple[int, int],
        weights: Sequence[TensorItem],
        mask: TensorItem | None,
        mask_type: int | None,
    ) -> tuple[Value, Value]:
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
            # The projections of query, key and value are stored as one matrix.
            rows = self("slice", "Tensor", self=weight, **bounds)
            projected = self.linear(x, rows, self("slice", "Tensor", self=bias, **bounds))
            split = self("unflatten", "int", self=projected, dim=-1, sizes=[heads, embed_dim // heads])
            parts.append(self("transpose", "int", self=split, dim0=1, dim1=2))
        query, key, value = parts
        # ATen's kernel scales the query before the product, so the order of roundings is the same.
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


def _dense(
    machine: Interpreter,
    node: ScriptNode,
    item: TensorItem | Nested,
    mask: TensorItem | None,
    mask_type: int | None,
) -> tuple[TensorItem, TensorItem | None, int | None]:
    """A tensor and its mask; for a nested tensor the removed positions are masked."""
    if not isinstance(item, Nested):
        return item, mask, mask_type
    if mask is not None:
        raise CaptureError("a nested tensor together with a mask is not supported")
    return item.padded, item.padding, _PADDING


@script("aten::_native_multi_head_attention")
def native_multi_head_attention(
    machine: Interpreter,
    node: ScriptNode,
    query: TensorItem | Nested,
    key: TensorItem,
    value: TensorItem,
    embed_dim: int,
    num_head: int,
    qkv_weight: TensorItem,
    qkv_bias: TensorItem,
    proj_weight: TensorItem,
    proj_bias: TensorItem,
    mask: TensorItem | None = None,
    need_weights: bool = True,
    average_attn_weights: bool = True,
    mask_type: int | None = None,
) -> list[Item]:
    """Attention over a batch of sequences; returns the weights averaged over heads on request."""
    kernel = _FusedKernel(machine, node)
    weights = [qkv_weight, qkv_bias, proj_weight, proj_bias]
    sizes = (embed_dim, num_head)
    if isinstance(query, Nested):
        if need_weights or len({id(query), id(key), id(value)}) > 1:
            raise CaptureError("the attention weights of a nested tensor are not supported")
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
    node: ScriptNode,
    src: TensorItem | Nested,
    embed_dim: int,
    num_heads: int,
    qkv_weight: TensorItem,
    qkv_bias: TensorItem,
    proj_weight: TensorItem,
    proj_bias: TensorItem,
    use_gelu: bool,
    norm_first: bool,
    eps: float,
    norm_weight_1: TensorItem,
    norm_bias_1: TensorItem,
    norm_weight_2: TensorItem,
    norm_bias_2: TensorItem,
    ffn_weight_1: TensorItem,
    ffn_bias_1: TensorItem,
    ffn_weight_2: TensorItem,
    ffn_bias_2: TensorItem,
    mask: TensorItem | None = None,
    mask_type: int | None = None,
) -> Item:
    """Attention and a feed-forward network, each with a residual connection and a normalization."""
    kernel = _FusedKernel(machine, node)
    dense, mask, mask_type = _dense(machine, node, src, mask, mask_type)
    weights = [qkv_weight, qkv_bias, proj_weight, proj_bias]

    def first(x: TensorItem) -> Value:
        return kernel.normalize(x, embed_dim, norm_weight_1, norm_bias_1, eps)

    def second(x: TensorItem) -> Value:
        return kernel.normalize(x, embed_dim, norm_weight_2, norm_bias_2, eps)

    def attend(x: TensorItem) -> Value:
        return kernel.attention([x, x, x], (embed_dim, num_heads), weights, mask, mask_type)[0]

    def feed_forward(x: TensorItem) -> Value:
        hidden = kernel.linear(x, ffn_weight_1, ffn_bias_1)
        hidden = kernel("gelu" if use_gelu else "relu", self=hidden)
        return kernel.linear(hidden, ffn_weight_2, ffn_bias_2)

    # The same layers in another order; see `norm_first` of `nn.TransformerEncoderLayer`.
    if norm_first:
        x = kernel.add(dense, attend(first(dense)))
        x = kernel.add(x, feed_forward(second(x)))
    else:
        x = first(kernel.add(dense, attend(dense)))
        x = second(kernel.add(x, feed_forward(x)))
    return src.like(x) if isinstance(src, Nested) else x


def _front(kernel: _FusedKernel, mask: Value) -> Item:
    """A mask that is true at the first positions of each sequence; another mask gives their number."""
    counts = kernel("sum", "dim_IntList", self=mask, dim=[1], keepdim=True)
    positions = kernel("cumsum", self=kernel("ones_like", self=mask, dtype=DataType.INT64), dim=1)
    return kernel("le", "Tensor", self=positions, other=counts)


def _origin(mask: Value) -> Value:
    """The operand of a mask's negation; the encoder negates its mask twice."""
    node = mask.producer()
    return node.inputs[0] if node is not None and node.op_type == "logical_not" else mask  # type: ignore[return-value]


@script("aten::_nested_tensor_from_mask_left_aligned")
def is_left_aligned(machine: Interpreter, node: ScriptNode, t: Value, mask: Value) -> bool:
    """Whether all padding is at the end, which decides how `nn.TransformerEncoder` handles it.

    Attention is masked in both cases; only the contents of the padding afterwards differ. Return True here;
    `nested_tensor_from_mask` decides with the computed alignment.
    """
    if "torch/nn/modules/transformer.py" not in machine.build.line:
        raise CaptureError("it is supported only within nn.TransformerEncoder")
    kernel = _FusedKernel(machine, node)
    equal = kernel("eq", "Tensor", self=_front(kernel, mask), other=mask)
    machine.alignments[_origin(mask)] = kernel("all", self=equal)
    return True


@script("aten::_nested_tensor_from_mask")
def nested_tensor_from_mask(
    machine: Interpreter, node: ScriptNode, t: Value, mask: Value, mask_check: bool = True
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
    machine: Interpreter, node: ScriptNode, nested: Item, padding: float, output_size: Item = None
) -> Item:
    """The sequences at full length, with the padding value at the removed positions."""
    if not isinstance(nested, Nested) or output_size is None:
        raise CaptureError("the tensor must be nested, and the size to pad to given")
    kernel = _FusedKernel(machine, node)
    left_out = kernel("unsqueeze", self=nested.left_out, dim=-1)
    return kernel("masked_fill", "Scalar", self=nested.padded, mask=left_out, value=padding)
