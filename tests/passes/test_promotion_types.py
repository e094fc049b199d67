"""The element type that each promotion rule gives, against the one that eager torch gives."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import onnx_ir as ir
import pytest
import torch
from onnx_ir import tensor_adapters
from torch._subclasses import FakeTensorMode

from opsetta.exporter.torch_boundary.replacements.kernels.result_types import corrected_types
from opsetta.passes.promotion.rules import RULES, Promotion, Rule, output_dtype

DTYPES = (torch.int64, torch.float16, torch.float32, torch.int8, torch.bool)
NUMBERS = (True, 2, 1.5)
_INDEX = torch.tensor([0])
_MASK = torch.tensor([[True, False], [False, True]])
_OTHER_ARGUMENTS: dict[str, dict[str, Any]] = {
    "where": {"condition": _MASK},
    **{key: {"dim": 0} for key in ("cumsum", "cumprod", "logcumsumexp")},
    **{key: {"dim": 0} for key in ("softmax", "log_softmax", "special_softmax", "special_log_softmax")},
    **{key: {"dim": [0]} for key in ("logsumexp", "special_logsumexp")},
    **{key: {"n": 1} for key in ("polygamma", "special_polygamma")},
    **{key: {"p": 1} for key in ("mvlgamma", "special_multigammaln")},
    **{key: {"dim": 0, "index": _INDEX} for key in ("index_fill", "index_copy", "index_add")},
    **{key: {"indices": [_INDEX]} for key in ("index_put", "_unsafe_index_put")},
    **{key: {"mask": _MASK} for key in ("masked_fill", "masked_scatter")},
    **{key: {"dim": 0, "index": _INDEX[None]} for key in ("scatter", "scatter_add")},
    "scatter_reduce": {"dim": 0, "index": _INDEX[None], "reduce": "sum"},
    "select_scatter": {"dim": 0, "index": 0},
    "as_strided_scatter": {"size": [2, 2], "stride": [2, 1]},
    "put": {"index": _INDEX},
    "threshold": {"threshold": 1, "value": 2},
}
_VECTORS = {
    **dict.fromkeys(("outer", "ger"), ("self", "vec2")),
    "addr": ("vec1", "vec2"),
    "bucketize": ("boundaries",),
    "searchsorted": ("sorted_sequence",),
    "select_scatter": ("src",),
    "diagonal_scatter": ("src",),
    "put": ("source",),
}
_SHAPES = {
    **dict.fromkeys(("index_put", "_unsafe_index_put", "index_copy", "index_add"), (1, 2)),
    **dict.fromkeys(("scatter", "scatter_add", "scatter_reduce"), (1, 1)),
}
"""The shape of what an operator writes."""
Call = dict[str, Any]


def _operand_choices(name: str, argument: str, dtypes: tuple[torch.dtype, ...], numbers: bool) -> list[Any]:
    shape: tuple[int, ...] = (2,) if argument in _VECTORS.get(name, ()) else (2, 2)
    if argument in ("src", "source", "values"):
        shape = _SHAPES.get(name, shape)
    tensors = [torch.ones(shape_, dtype=dtype) for shape_ in (shape, ()) for dtype in dtypes]
    if argument == "tensors":
        return [[a, b] for a, b in itertools.product(tensors, repeat=2)]
    return tensors + list(NUMBERS if numbers else ())


def _calls(name: str, rule: Rule, dtypes: tuple[torch.dtype, ...], numbers: bool) -> Iterator[Call]:
    """Calls of an operator; of more than two operands, two at a time vary."""
    packet = getattr(torch.ops.aten, name)
    argument_sets = {
        tuple(n for n in rule.operands + rule.followers if any(a.name == n for a in schema.arguments))
        for schema in (getattr(packet, overload)._schema for overload in packet.overloads())
    }
    for argument_names in sorted(names for names in argument_sets if names):
        # What is written to is a tensor.
        is_written = {"self"} if rule.promotion is Promotion.SELF else set()
        choices = {
            n: _operand_choices(
                name, n, dtypes[:2] if n in rule.followers else dtypes, numbers and n not in is_written
            )
            for n in argument_names
        }
        base = {n: next((c for c in choices[n] if _is_float(c)), choices[n][-1]) for n in argument_names}
        for varied in itertools.combinations(argument_names, min(2, len(argument_names))):
            for items in itertools.product(*(choices[n] for n in varied)):
                yield {**_OTHER_ARGUMENTS.get(name, {}), **base, **dict(zip(varied, items, strict=True))}


def _is_float(item: Any) -> bool:
    return isinstance(item, torch.Tensor) and item.dtype == torch.float32


def _result_dtype(name: str, call: Call) -> torch.dtype | None:
    """The element type of the first result; None where torch refuses the call."""
    try:
        result = getattr(torch.ops.aten, name)(**call)
    except (RuntimeError, TypeError, ValueError, IndexError, NotImplementedError):
        return None
    first = result[0] if isinstance(result, (list, tuple)) else result
    return first.dtype


def _graph_value(item: Any) -> Any:
    if isinstance(item, list):
        return [_graph_value(member) for member in item]
    if not isinstance(item, torch.Tensor):
        return item
    dtype = tensor_adapters.from_torch_dtype(item.dtype)
    return ir.Value(type=ir.TensorType(dtype), shape=ir.Shape(item.shape))


def _description(call: Call) -> dict[str, str]:
    return {
        name: f"{item.dtype} {list(item.shape)}" if isinstance(item, torch.Tensor) else str(item)
        for name, item in call.items()
    }


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("promotion", list(Promotion), ids=lambda promotion: promotion.name)
def test_every_rule_gives_the_type_that_eager_gives(promotion: Promotion) -> None:
    wrong = []
    for name, rule in RULES.items():
        if rule.promotion is not promotion:
            continue
        compared = 0
        for call in _calls(name, rule, DTYPES, numbers=True):
            dtype = _result_dtype(name, call)
            if dtype is None:
                continue
            compared += 1
            ruled = output_dtype(name, {key: _graph_value(item) for key, item in call.items()})
            if ruled != tensor_adapters.from_torch_dtype(dtype):
                wrong.append((name, _description(call), ruled, dtype))
        assert compared >= 2, name
    assert not wrong, wrong[:10]


@pytest.mark.filterwarnings("ignore")
def test_fake_tensors_have_the_types_that_eager_gives(sweep: bool) -> None:
    dtypes = (torch.int8, torch.float16, torch.float32) if sweep else (torch.int8, torch.float32)
    mode = FakeTensorMode()
    wrong, compared = [], 0
    for name, rule in RULES.items():
        if rule.operands in (("self",), ("x",)) or rule.promotion in (
            Promotion.COMPARISON,
            Promotion.LOGICAL,
        ):
            continue
        for call in _calls(name, rule, dtypes, numbers=False):
            tensors = [
                item for item in torch.utils._pytree.tree_leaves(call) if isinstance(item, torch.Tensor)
            ]
            dtype = _result_dtype(name, call) if len({item.dtype for item in tensors}) > 1 else None
            if dtype is None:
                continue
            with corrected_types(), mode:
                fake_call = torch.utils._pytree.tree_map_only(torch.Tensor, mode.from_tensor, call)
                fake_dtype = _result_dtype(name, fake_call)
            compared += 1
            if fake_dtype not in (dtype, None):
                wrong.append((name, _description(call), fake_dtype, dtype))
    assert compared > 500
    assert not wrong, wrong[:10]
