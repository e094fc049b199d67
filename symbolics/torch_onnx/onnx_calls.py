"""`torch.onnx.ops`: an operator of any domain, and ONNX's Attention and RotaryEmbedding."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import onnx_ir as ir

from ...registration import GraphContext, Value, onnx_symbolic
from ...registration.functions.results import as_list
from ...registration.older_meanings import emit_older_meaning, has_meaning_of_target


@onnx_symbolic("onnx_symbolic::_symbolic")
def symbolic(
    g: GraphContext,
    inputs: list[Value | None],
    op_type: str,
    onnx_dtype: int,
    domain: str = "",
    version: int | None = None,
    **encoded: Any,
) -> Value:
    """`torch.onnx.ops.symbolic`: an operator with one result.

    Args:
        encoded: attributes and metadata as lists, and the shape that the captured graph knows too.
    """
    [result] = _emit(g, domain, version, op_type, inputs, encoded, [onnx_dtype])
    return result


@onnx_symbolic("onnx_symbolic::_symbolic_multi_out")
def symbolic_multi_out(
    g: GraphContext,
    inputs: list[Value | None],
    op_type: str,
    onnx_dtypes: list[int],
    domain: str = "",
    version: int | None = None,
    **encoded: Any,
) -> list[Value]:
    """`torch.onnx.ops.symbolic_multi_out`: an operator with a list of results."""
    return _emit(g, domain, version, op_type, inputs, encoded, onnx_dtypes)


def _attributes(encoded: Mapping[str, Any]) -> dict[str, Any]:
    """Attributes by name; a type is `i`, `f` or `s`, with another `s` for a list."""
    lists = {"i": encoded["attr_ints"], "f": encoded["attr_floats"], "s": encoded["attr_strs"]}
    attributes = {}
    for key, type_code, (start, end) in zip(
        encoded["attr_keys"], encoded["attr_types"], encoded["attr_pos"], strict=True
    ):
        items = list(lists[type_code[0]][start:end])
        attributes[key] = items if len(type_code) > 1 else items[0]
    return attributes


def _emit(
    g: GraphContext,
    domain: str,
    version: int | None,
    op_type: str,
    inputs: Sequence[Value | None],
    encoded: Mapping[str, Any],
    dtypes: Sequence[int],
) -> list[Value]:
    """Emit an operator; results of another domain get the element types that the model states.

    Args:
        version: the opset whose meaning an operator of ONNX has, or the version of another domain.
    """
    foreign = domain not in ("", "ai.onnx")
    if foreign:
        g.construction.opset_import(domain, version)
    name = f"{domain}::{op_type}" if foreign else op_type
    attributes = _attributes(encoded)
    # Softmax of version 11 flattens its input, also in a file of a higher opset.
    composed = None
    if not foreign and version is not None:
        composed = emit_older_meaning(g, version, op_type, list(inputs), attributes, len(dtypes))
    if composed is None:
        keeps = not foreign and version is not None and has_meaning_of_target(g, version, op_type)
        composed = (g.op_of_target if keeps else g.op)(name, *inputs, outputs=len(dtypes), **attributes)
    results = as_list(composed)
    if foreign:
        for result, dtype, expected in zip(results, dtypes, g.expected, strict=False):
            result.dtype, result.shape = ir.DataType(dtype), expected.shape
    node = results[0].producer()
    if node is not None:
        keys, values = encoded.get("metadata_props_keys"), encoded.get("metadata_props_values")
        node.metadata_props.update(zip(keys or (), values or (), strict=True))
    return results


@onnx_symbolic("onnx::Attention.opset23")
def attention(
    g: GraphContext,
    Q: Value,
    K: Value,
    V: Value,
    attn_mask: Value | None = None,
    past_key: Value | None = None,
    past_value: Value | None = None,
    is_causal: bool = False,
    kv_num_heads: int = 0,
    q_num_heads: int = 0,
    qk_matmul_output_mode: int = 0,
    scale: float | None = None,
    softcap: float = 0.0,
    softmax_precision: int | None = None,
) -> list[Value | None]:
    """`torch.onnx.ops.attention`: the results that the model uses, up to the last of them."""
    used = [index for index, value in enumerate(g.expected) if value.uses() or value.is_graph_output()]
    count = max(used, default=0) + 1
    heads = {"kv_num_heads": kv_num_heads, "q_num_heads": q_num_heads} if q_num_heads else {}
    results = as_list(
        g.op(
            "Attention",
            Q,
            K,
            V,
            outputs=count,
            attn_mask=attn_mask,
            past_key=past_key,
            past_value=past_value,
            is_causal=int(is_causal),
            qk_matmul_output_mode=qk_matmul_output_mode,
            scale=scale,
            softcap=softcap,
            softmax_precision=softmax_precision,
            **heads,
        )
    )
    # `torch.onnx.ops.attention` always returns four results.
    return [*results, *[None] * (4 - count)]


@onnx_symbolic("onnx::RotaryEmbedding.opset23")
def rotary_embedding(
    g: GraphContext,
    x: Value,
    cos_cache: Value,
    sin_cache: Value,
    position_ids: Value | None = None,
    interleaved: bool = False,
    num_heads: int = 0,
    rotary_embedding_dim: int = 0,
) -> Value:
    """`torch.onnx.ops.rotary_embedding`."""
    return g.op(
        "RotaryEmbedding",
        x,
        cos_cache,
        sin_cache,
        position_ids=position_ids,
        interleaved=int(interleaved),
        num_heads=num_heads or None,
        rotary_embedding_dim=rotary_embedding_dim,
    )
