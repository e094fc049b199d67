"""Scaled dot-product attention against eager PyTorch: masks, causality, grouped queries, free sizes."""

import math

import pytest
import torch

import opsetta

from .records import HIGHEST, Record, check, floats, parametrized

OPSETS = (9, 10, 13, 18, 22, 23, 24, HIGHEST)
PLAIN = (7, 8, *OPSETS)
MASKED = dict.fromkeys((7, 8), "masks need Where, which begins at 9")
GROUPED = {7: "repeating heads needs Expand, which begins at 8"}
B, H, E = 2, 4, 8
attention = torch.nn.functional.scaled_dot_product_attention


def _tensors(length: int, keys: int, heads: int = H, features: int = E, dtype: torch.dtype = torch.float32):
    query = floats(B, H, length, E, dtype=dtype)
    key = floats(B, heads, keys, E, seed=1, dtype=dtype)
    return query, key, floats(B, heads, keys, features, seed=2, dtype=dtype)


def _free(mask: tuple[int, ...] | None = None, length: int = 0, keys: int = 0) -> tuple:
    shapes: tuple = ({0: "batch", 2: "length"}, {0: "batch", 2: "keys"}, {0: "batch", 2: "keys"})
    if mask is None:
        return shapes
    free = {0: "batch"} if len(mask) == 4 and mask[0] == B else {}
    free |= {len(mask) - 2: "length"} if mask[-2] == length else {}
    return *shapes, free | ({len(mask) - 1: "keys"} if mask[-1] == keys else {})


def _record(name: str, tensors: tuple, opsets=OPSETS, refused=MASKED, dynamic=None, **options) -> Record:
    return Record(name, lambda *t: attention(*t, **options), tensors, opsets, refused, dynamic=dynamic)


def _sizes(name: str, length: int, keys: int, heads: int = H, features: int = E) -> list[Record]:
    tensors = _tensors(length, keys, heads, features)
    options = {"enable_gqa": True} if heads != H else {}
    refused = GROUPED if options else {}
    opsets = tuple(opset for opset in PLAIN if opset not in refused)
    return [
        _record(f"plain-{name}", tensors, opsets, refused, **options),
        _record(f"plain-{name}-dynamic", tensors, opsets, refused, _free(), **options),
        _record(f"scale-{name}", tensors, opsets, refused, scale=0.3, **options),
        _record(f"causal-{name}", tensors, is_causal=True, refused={7: MASKED[7]}, **options),
        _record(f"causal-{name}-dynamic", tensors, dynamic=_free(), is_causal=True, **options),
    ]


def _masks(name: str, length: int, keys: int, heads: int = H) -> list[Record]:
    tensors = _tensors(length, keys, heads)
    options = {"enable_gqa": True} if heads != H else {}
    shapes = [
        (length, keys),
        (B, 1, length, keys),
        (1, keys),
        (B, 1, 1, keys),
        (length, 1),
        (H, length, keys),
    ]
    result = []
    for shape in shapes:
        mask = floats(*shape, seed=3)
        label = f"{name}-{'x'.join(map(str, shape))}"
        free = _free(shape, length, keys)
        result += [
            _record(f"float-mask-{label}", (*tensors, mask), **options),
            _record(f"bool-mask-{label}", (*tensors, mask > -0.8), **options),
            _record(f"float-mask-{label}-dynamic", (*tensors, mask), dynamic=free, **options),
            _record(f"bool-mask-{label}-dynamic", (*tensors, mask > -0.8), dynamic=free, **options),
        ]
    return result


EMPTY_ROW = torch.ones(5, 6, dtype=torch.bool)
EMPTY_ROW[1] = False
RECORDS = [
    *_sizes("5-5", 5, 5),
    *_sizes("3-7", 3, 7, features=6),
    *_sizes("7-3", 7, 3),
    *_sizes("grouped", 5, 6, heads=2),
    *_sizes("one-head", 2, 7, heads=1),
    *_masks("5-6", 5, 6),
    *_masks("grouped", 3, 4, heads=2),
    _record("bool-mask-empty-row", (*_tensors(5, 6), EMPTY_ROW)),
    _record("float-mask-empty-row", (*_tensors(5, 6), torch.where(EMPTY_ROW, 0.0, -math.inf))),
    _record("half-mask", (*_tensors(5, 6, dtype=torch.float16), EMPTY_ROW)),
    _record("double-causal", _tensors(5, 6, dtype=torch.float64), is_causal=True),
    _record("negative-scale", _tensors(5, 6), PLAIN, {}, scale=-0.4),
    _record("rank3-causal", tuple(tensor[0] for tensor in _tensors(5, 5)), is_causal=True),
    _record("rank2", tuple(tensor[0, 0] for tensor in _tensors(5, 5)), PLAIN, {}),
    _record("causal-long", _tensors(90, 90), is_causal=True),
]


@parametrized(RECORDS)
def test_agrees_with_eager(record: Record) -> None:
    check(record)


@pytest.mark.parametrize(("opset", "expected"), [(22, False), (23, True), (24, True), (HIGHEST, False)])
def test_attention_is_one_node_where_onnxruntime_has_a_kernel(opset: int, expected: bool) -> None:
    program = opsetta.export(lambda q, k, v: attention(q, k, v, is_causal=True), _tensors(5, 5), opset=opset)
    assert ([node.op_type for node in program.model_proto.graph.node] == ["Attention"]) == expected
