"""Promotion against torch: `result_type` exhaustively, the operators' rules on random operands."""

from __future__ import annotations

import itertools
from typing import Any

import onnx_ir as ir
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from onnx_ir import tensor_adapters

from opsetta.passes import promote_types
from opsetta.passes.promotion.rules import RULES, Promotion
from opsetta.registration import NUMBER, dtypes
from opsetta.registration.arguments import arguments, replace_arguments
from opsetta.registration.promotion import Category, result_type

from ..passes.source_interpreter import Recorder, run

DTYPES = [
    torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64,
    torch.float16, torch.bfloat16, torch.float32, torch.float64,
]  # fmt: skip
NUMBERS = [True, 3, 2.5]


def _operand(item: Any) -> tuple[ir.DataType, Category]:
    if not isinstance(item, torch.Tensor):
        return dtypes.of_number(item), Category.NUMBER
    category = Category.DIMENSIONED if item.dim() else Category.ZERO_DIM
    return tensor_adapters.from_torch_dtype(item.dtype), category


def test_result_type_of_every_pair_is_torchs() -> None:
    operands = [torch.ones(shape, dtype=dtype) for dtype in DTYPES for shape in ((), (2,))] + NUMBERS
    for a, b in itertools.product(operands, repeat=2):
        expected = tensor_adapters.from_torch_dtype(torch.result_type(a, b))
        assert result_type([_operand(a), _operand(b)]) == expected, (a, b)


def test_result_type_of_unsigned_types_is_torchs() -> None:
    for a, b in itertools.product((torch.uint16, torch.uint32, torch.uint64, *DTYPES), repeat=2):
        found = result_type([_operand(torch.ones(1, dtype=a)), _operand(torch.ones(1, dtype=b))])
        try:
            expected = tensor_adapters.from_torch_dtype(torch.promote_types(a, b))
        except RuntimeError:
            expected = None
        assert found == expected, (a, b)


def _tensors(shapes: tuple[tuple[int, ...], ...] = ((), (2,), (2, 2))) -> st.SearchStrategy[torch.Tensor]:
    def make(dtype: torch.dtype, shape: tuple[int, ...], start: int) -> torch.Tensor:
        return (torch.arange(torch.Size(shape).numel()).reshape(shape) * 2 + start).to(dtype)

    return st.builds(make, st.sampled_from(DTYPES), st.sampled_from(shapes), st.integers(0, 3))


_OPERANDS = st.one_of(_tensors(), st.sampled_from([True, 2, 3, 1.5, 2.0]))
_UNARY = sorted(name for name, rule in RULES.items() if rule.operands == ("self",))
_PAIRS = sorted(
    name for name, rule in RULES.items() if len(rule.operands) == 2 and rule.operands[0] == "self"
)
_REQUIRED: dict[str, dict[str, Any]] = {
    "cumsum": {"dim": 0}, "cumprod": {"dim": 0}, "logcumsumexp": {"dim": 0}, "logsumexp": {"dim": [0]},
    "softmax": {"dim": 0}, "log_softmax": {"dim": 0}, "special_softmax": {"dim": 0},
    "special_log_softmax": {"dim": 0}, "special_logsumexp": {"dim": [0]}, "polygamma": {"n": 1},
    "special_polygamma": {"n": 1}, "mvlgamma": {"p": 1},
}  # fmt: skip


def _overload(name: str, given: dict[str, Any]) -> str | None:
    """The first overload that takes these arguments by name and by kind."""
    packet = getattr(torch.ops.aten, name)
    for overload in packet.overloads():
        formal = {a.name: str(a.type) for a in getattr(packet, overload)._schema.arguments}
        if "out" in overload or "complex" in overload or not given.keys() <= formal.keys():
            continue
        if all(_fits(item, formal[key]) for key, item in given.items()):
            arguments_ = getattr(packet, overload)._schema.arguments
            if {a.name for a in arguments_ if not a.has_default_value()} <= given.keys():
                return overload
    return None


def _fits(item: Any, kind: str) -> bool:
    if isinstance(item, list) and item and isinstance(item[0], torch.Tensor):
        return kind == "List[Tensor]"
    if isinstance(item, torch.Tensor):
        return kind in ("Tensor", "Optional[Tensor]")
    if isinstance(item, torch.dtype):
        return kind == "Optional[int]"
    if isinstance(item, (bool, int, float)):
        return kind in ("number", "Optional[number]", "Scalar", "Optional[Scalar]") or (
            isinstance(item, int) and kind in ("int", "SymInt", "Optional[int]")
        )
    return kind.startswith(("List[int]", "Optional[List[int]]", "Optional[str]", "str"))


def _settle(model: ir.Model, recorder: Recorder) -> None:
    """Make what is left to the lowering the cast that it becomes there, by `torch.result_type`."""
    for node in model.graph:
        if node.domain == "promotion":
            given = arguments(node)
            pair = [
                recorder.tensors[item] if isinstance(item, ir.Value) else item for item in given["operands"]
            ]
            dtype = tensor_adapters.from_torch_dtype(torch.result_type(pair[0], pair[-1]))
            node.domain, node.op_type, node.overload = "aten", "to", "dtype"
            replace_arguments(node, {"self": given["self"], "dtype": dtype})


def _check(name: str, given: dict[str, Any], known: bool = True) -> None:
    """Promote one call and compare it with eager; a call that eager torch refuses says nothing."""
    overload = _overload(name, given)
    if overload is None:
        return
    recorder = Recorder(shapes=known)
    counter = itertools.count()

    def enter(item: Any) -> Any:
        if isinstance(item, torch.Tensor):
            return recorder.input(item, f"x{next(counter)}")
        if isinstance(item, list) and item and isinstance(item[0], torch.Tensor):
            return [enter(member) for member in item]
        return tensor_adapters.from_torch_dtype(item) if isinstance(item, torch.dtype) else item

    try:
        result = recorder.call(name, overload, **{key: enter(item) for key, item in given.items()})
    except (RuntimeError, IndexError, NotImplementedError, ValueError):
        return
    result = result[0] if isinstance(result, list) else result
    model = recorder.model(result)
    node = result.producer()
    promote_types(model)
    rule = RULES[name]
    kept = arguments(node)
    operands = [kept[key] for key in rule.operands if key in kept]
    members = [member for item in operands for member in (item if isinstance(item, list) else [item])]
    types = {member.dtype for member in members if isinstance(member, ir.Value)}
    assert not known or len(types) <= 1, node
    if rule.promotion in (Promotion.CAST, Promotion.SUM):
        # A sum keeps its own, or it would widen integers to 64 bits.
        assert rule.promotion is Promotion.SUM or "dtype" not in kept
    assert not promote_types(model)
    _settle(model, recorder)
    found, expected = run(model, recorder.originals)[0], recorder.tensors[result]
    torch.testing.assert_close(found, expected, rtol=1e-2, atol=1e-2, equal_nan=True)


@pytest.mark.parametrize("name", _UNARY)
def test_unary_operator_promotes_as_torch_does(name: str) -> None:
    for dtype in DTYPES:
        _check(name, {"self": torch.ones(2, 2, dtype=dtype), **_REQUIRED.get(name, {})})


@pytest.mark.parametrize(
    "name", sorted(n for n, rule in RULES.items() if rule.promotion in (Promotion.CAST, Promotion.SUM))
)
def test_dtype_argument_casts_first(name: str) -> None:
    for dtype, wanted in itertools.product(DTYPES, (torch.float32, torch.float64, torch.int64)):
        _check(name, {"self": torch.ones(2, 2, dtype=dtype), **_REQUIRED.get(name, {}), "dtype": wanted})


@pytest.mark.parametrize("name", _PAIRS)
@given(a=_OPERANDS, b=_OPERANDS, known=st.booleans())
def test_pair_promotes_as_torch_does(name: str, a: Any, b: Any, known: bool) -> None:
    first, second = RULES[name].operands
    given = {first: a, second: b}
    if name == "where":
        given = {"condition": torch.tensor([True, False]), **given}
    _check(name, given, known)


@pytest.mark.parametrize("mode", ["trunc", "floor"])
@given(a=_OPERANDS, b=_OPERANDS)
def test_rounding_division_keeps_integers(mode: str, a: Any, b: Any) -> None:
    _check("div", {"self": a, "other": b, "rounding_mode": mode})


@given(a=_tensors(), low=_OPERANDS, high=_OPERANDS)
def test_clamp_promotes_with_its_bounds(a: torch.Tensor, low: Any, high: Any) -> None:
    _check("clamp", {"self": a, "min": low, "max": high})


@pytest.mark.parametrize("name", sorted(n for n, rule in RULES.items() if rule.operands == ("tensors",)))
@given(parts=st.lists(_tensors(((2, 2), (1,), ())), min_size=1, max_size=3))
def test_list_of_tensors_promotes_together(name: str, parts: list[torch.Tensor]) -> None:
    _check(name, {"tensors": parts})


@pytest.mark.parametrize("name", ["lerp", "addcmul", "addcdiv"])
@given(a=_tensors(), b=_tensors(), c=_tensors())
def test_ternary_promotes_as_torch_does(name: str, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> None:
    rule = RULES[name]
    names = (*rule.operands, *rule.followers)[:3]
    _check(name, dict(zip(names, (a, b, c), strict=True)))


def _pair(a: torch.dtype, b: torch.dtype, shape: tuple[int, ...] = (2,)) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.ones(2, 2, dtype=a), torch.full(shape, 2).to(b)


_MASK = torch.tensor([[True, False], [False, True]])
_INDEX = torch.tensor([0])
_WRITTEN: dict[str, tuple[str, tuple[int, ...], dict[str, Any]]] = {
    "copy": ("src", (2,), {}),
    "select_scatter": ("src", (2,), {"dim": 0, "index": 0}),
    "slice_scatter": ("src", (2, 2), {}),
    "diagonal_scatter": ("src", (2,), {}),
    "as_strided_scatter": ("src", (2,), {"size": [2], "stride": [1]}),
    "masked_fill": ("value", (), {"mask": _MASK}),
    "index_fill": ("value", (), {"dim": 0, "index": _INDEX}),
    "fill": ("value", (), {}),
    "index_put": ("values", (1, 2), {"indices": [_INDEX]}),
    "_unsafe_index_put": ("values", (1, 2), {"indices": [_INDEX]}),
    "index_copy": ("source", (1, 2), {"dim": 0, "index": _INDEX}),
    "index_add": ("source", (1, 2), {"dim": 0, "index": _INDEX}),
    "put": ("source", (1,), {"index": _INDEX}),
    "masked_scatter": ("source", (2, 2), {"mask": _MASK}),
    "scatter": ("src", (1, 1), {"dim": 0, "index": _INDEX[None]}),
    "scatter_add": ("src", (1, 1), {"dim": 0, "index": _INDEX[None]}),
    "soft_margin_loss": ("target", (2, 2), {}),
    "scatter_reduce": ("src", (1, 1), {"dim": 0, "index": _INDEX[None], "reduce": "sum"}),
}


def test_every_writing_operator_is_checked() -> None:
    numbers_alone = {"threshold"}
    assert _WRITTEN.keys() | numbers_alone == {
        name for name, rule in RULES.items() if rule.promotion is Promotion.SELF
    }


@pytest.mark.parametrize("name", sorted(_WRITTEN))
def test_what_is_written_takes_the_type_of_its_destination(name: str) -> None:
    key, shape, rest = _WRITTEN[name]
    for a, b in itertools.product(DTYPES, repeat=2):
        destination, source = _pair(a, b, shape)
        _check(name, {"self": destination, key: source, **rest})


@pytest.mark.parametrize("name", ["isin", "logical_not", "clip", "clamp_min", "clamp_max"])
def test_remaining_operators_promote_as_torch_does(name: str) -> None:
    for a, b in itertools.product(DTYPES, repeat=2):
        first, second = _pair(a, b, ())
        given = {"isin": {"elements": first, "test_elements": second[None]}, "logical_not": {"self": first}}
        bound = "max" if name == "clamp_max" else "min"
        _check(name, given.get(name, {"self": first, bound: second}))


@given(a=_tensors(), number=st.sampled_from([2, 3]), swap=st.booleans())
def test_symbolic_number_is_cast_to_what_is_computed_in(a: torch.Tensor, number: int, swap: bool) -> None:
    recorder = Recorder()
    x = recorder.input(a, "x")
    n = recorder.input(number, "n")
    made = recorder.call("mul", "Scalar", self=x, other=n)
    model = recorder.model(made)
    promote_types(model)
    other = arguments(made.producer())["other"]
    assert other.dtype == arguments(made.producer())["self"].dtype
    assert NUMBER in n.metadata_props
    found = run_as_tensor(model, recorder)
    torch.testing.assert_close(found, recorder.tensors[made])


def run_as_tensor(model: ir.Model, recorder: Recorder) -> torch.Tensor:
    """The result, with symbolic numbers as zero-dim tensors, which is what the inserted casts take."""
    for node in model.graph:
        if node.op_type == "mul":
            node.overload = "Tensor"
    inputs = {
        name: item if isinstance(item, torch.Tensor) else torch.tensor(item)
        for name, item in recorder.originals.items()
    }
    return run(model, inputs)[0]
