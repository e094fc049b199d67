"""Recurrent layers against eager PyTorch: layers, directions, states, element types, free sizes."""

import functools
from typing import Any

import pytest
import torch

import opsetta

from .records import HIGHEST, Record, check, floats, parametrized

OPSETS = (7, 9, 14, 22, HIGHEST)
FEW = (7, 14, HIGHEST)
LENGTH, BATCH, INPUT, HIDDEN = 5, 3, 4, 6
KINDS: dict[str, Any] = {
    "lstm": torch.nn.LSTM,
    "gru": torch.nn.GRU,
    "rnn_tanh": torch.nn.RNN,
    "rnn_relu": lambda *sizes, **options: torch.nn.RNN(*sizes, nonlinearity="relu", **options),
}
SHAPES: dict[str, dict[str, Any]] = {
    "plain": {},
    "without-bias": {"bias": False},
    "layers": {"num_layers": 3},
    "bidirectional": {"bidirectional": True},
    "batch-first": {"batch_first": True},
    "everything": {"num_layers": 2, "bidirectional": True, "batch_first": True, "dropout": 0.5},
    "everything-without-bias": {"num_layers": 2, "bidirectional": True, "bias": False},
}
PROJECTED: dict[str, dict[str, Any]] = {
    "projected": {},
    "projected-everything": SHAPES["everything"],
    "projected-without-bias": {"bias": False, "bidirectional": True},
}
TYPES = {"half": torch.float16, "double": torch.float64}


def _module(kind: str, dtype: torch.dtype = torch.float32, **options: Any) -> torch.nn.Module:
    """A module in inference whose parameters are the same ones every time."""
    module = KINDS[kind](INPUT, HIDDEN, **options)
    with torch.no_grad():
        for seed, parameter in enumerate(module.parameters()):
            parameter.copy_(floats(*parameter.shape, seed=seed, scale=0.4))
    return module.to(dtype).eval()


def _sequence(options: dict[str, Any], dtype: torch.dtype = torch.float32, length: int = LENGTH):
    shape = (BATCH, length, INPUT) if options.get("batch_first") else (length, BATCH, INPUT)
    return floats(*shape, seed=50, dtype=dtype)


def _state(kind: str, options: dict[str, Any], dtype: torch.dtype = torch.float32, batch: int = BATCH) -> Any:
    count = options.get("num_layers", 1) * (1 + options.get("bidirectional", False))
    h = floats(count, batch, options.get("proj_size") or HIDDEN, seed=60, dtype=dtype)
    return (h, floats(count, batch, HIDDEN, seed=61, dtype=dtype)) if kind == "lstm" else h


def _records(kind: str, name: str, **options: Any) -> list[Record]:
    x, state, module = _sequence(options), _state(kind, options), _module(kind, **options)
    free = {1 - bool(options.get("batch_first")): "batch"}
    states = ({1: "batch"}, {1: "batch"}) if kind == "lstm" else {1: "batch"}
    records = [
        Record(f"{kind}-{name}", module, (x,), FEW),
        Record(f"{kind}-{name}-state-dynamic", module, (x, state), OPSETS, dynamic=(free, states)),
    ]
    if "everything" in name:
        # Below 9 there is no constant of a computed size, such as the zeros that torch starts from.
        records.append(Record(f"{kind}-{name}-dynamic", module, (x,), OPSETS, dynamic=(free,)))
        records.append(Record(f"{kind}-{name}-state", module, (x, state), FEW))
    return records


def _typed(kind: str, name: str, options: dict[str, Any]) -> list[Record]:
    records = []
    for label, dtype in TYPES.items():
        x, state = _sequence(options, dtype), _state(kind, options, dtype)
        module = _module(kind, dtype, **options)
        records.append(Record(f"{kind}-{name}-{label}", module, (x, state), FEW))
    return records


RECORDS = [
    *(record for kind in KINDS for name, given in SHAPES.items() for record in _records(kind, name, **given)),
    *(r for name, given in PROJECTED.items() for r in _records("lstm", name, proj_size=2, **given)),
    *(
        r
        for kind in KINDS
        for name in ("without-bias", "everything")
        for r in _typed(kind, name, SHAPES[name])
    ),
    *_typed("lstm", "projected", {"proj_size": 2}),
    *(
        Record(f"{kind}-unbatched", _module(kind, bidirectional=True), (floats(LENGTH, INPUT),), FEW)
        for kind in KINDS
    ),
]


LENGTHS = {
    **{(kind, name): SHAPES[name] for kind in KINDS for name in ("plain", "everything")},
    ("lstm", "projected"): {"proj_size": 2},
    ("lstm", "projected-everything"): {"proj_size": 2, **SHAPES["everything"]},
}


LAYER = _module("lstm")
STATES = [
    Record(
        "lstm-zero-hidden-state",
        lambda x, c: LAYER(x, (torch.zeros(1, BATCH, HIDDEN), c)),
        (_sequence({}), _state("lstm", {})[1]),
        FEW,
    ),
    Record(
        "lstm-expanded-state",
        lambda x, h: LAYER(x, (h.expand(1, x.shape[1], -1), torch.ones(1, x.shape[1], HIDDEN))),
        (_sequence({}), floats(HIDDEN, seed=3)),
        (9, 14, HIGHEST),
        dynamic=({1: "batch"}, None),
    ),
]


@parametrized([*RECORDS, *STATES])
def test_recurrent_layers_agree_with_eager(record: Record) -> None:
    check(record)


def _axes(kind: str, options: dict[str, Any]) -> tuple[Any, ...]:
    """`dynamic_shapes` of a module called with an initial state: the length and the batch are free."""
    first = bool(options.get("batch_first"))
    states = ({1: "batch"}, {1: "batch"}) if kind == "lstm" else {1: "batch"}
    return {first: "length", not first: "batch"}, states


@functools.lru_cache(maxsize=2)
def _free_program(kind: str, name: str, dtype: torch.dtype) -> opsetta.Program:
    options = LENGTHS[kind, name]
    inputs = _sequence(options, dtype), _state(kind, options, dtype)
    module = _module(kind, dtype, **options)
    return opsetta.export(module, inputs, opset=HIGHEST, dynamic_shapes=_axes(kind, options))


def _check_any_size(kind: str, name: str, dtype: torch.dtype, opset: int) -> None:
    options = LENGTHS[kind, name]
    lowered = _free_program(kind, name, dtype).lower(opset=opset)
    for length, batch in ((LENGTH, BATCH), (1, 1), (9, 2)):
        shape = (batch, length, INPUT) if options.get("batch_first") else (length, batch, INPUT)
        lowered.verify((floats(*shape, seed=70, dtype=dtype), _state(kind, options, dtype, batch)))


@pytest.mark.parametrize("opset", OPSETS)
@pytest.mark.parametrize(("kind", "name"), LENGTHS)
def test_recurrent_layers_take_any_length_and_batch(kind: str, name: str, opset: int) -> None:
    _check_any_size(kind, name, torch.float32, opset)


@pytest.mark.parametrize("dtype", TYPES.values(), ids=TYPES)
@pytest.mark.parametrize("opset", FEW)
@pytest.mark.parametrize(("kind", "name"), [key for key in LENGTHS if "everything" in key[1]])
def test_any_length_in_other_element_types(kind: str, name: str, opset: int, dtype: torch.dtype) -> None:
    _check_any_size(kind, name, dtype, opset)


@pytest.mark.parametrize("opset", FEW)
@pytest.mark.parametrize("kind", KINDS)
def test_an_unbatched_sequence_takes_any_length(kind: str, opset: int) -> None:
    module = _module(kind, bidirectional=True, batch_first=True)
    program = opsetta.export(module, (floats(LENGTH, INPUT),), opset=opset, dynamic_shapes=({0: "length"},))
    for length in (1, LENGTH, 8):
        program.verify((floats(length, INPUT, seed=length),))


def test_lengths_below_the_example_and_of_one_work_from_an_example_of_one() -> None:
    axes = ({0: "length", 1: "batch"},)
    program = opsetta.export(_module("gru"), (floats(1, 1, INPUT),), opset=13, dynamic_shapes=axes)
    for length, batch in ((1, 1), (4, 1), (1, 3), (6, 2)):
        program.verify((floats(length, batch, INPUT),))


def test_strict_capture_takes_any_length() -> None:
    axes = ({0: "length", 1: "batch"},)
    module = _module("lstm", bidirectional=True)
    program = opsetta.export(module, (_sequence({}),), opset=13, dynamic_shapes=axes, strict=True)
    program.verify((floats(7, 2, INPUT),))


def test_an_exported_program_keeps_the_length_that_it_has() -> None:
    with torch.no_grad():
        exported = torch.export.export(_module("rnn_tanh"), (_sequence({}),))
    program = opsetta.export(exported, opset=13)
    program.verify()
    assert list(program.model.graph.inputs[0].shape) == [LENGTH, BATCH, INPUT]


def _lowered_operators(module: torch.nn.Module, *inputs: Any) -> list[str]:
    return [node.op_type for node in opsetta.export(module, inputs, opset=9).model.graph]


@pytest.mark.parametrize(("kind", "operator"), {"lstm": "LSTM", "gru": "GRU", "rnn_tanh": "RNN"}.items())
def test_a_layer_is_one_operator(kind: str, operator: str) -> None:
    module = _module(kind, num_layers=2, bidirectional=True)
    assert _lowered_operators(module, _sequence({})).count(operator) == 2


def test_a_state_of_zeros_is_left_out() -> None:
    program = opsetta.export(_module("lstm"), (_sequence({}),), opset=9, dynamic_shapes=({1: "batch"},))
    layer = next(node for node in program.model.graph if node.op_type == "LSTM")
    assert layer.inputs[5:] in ((), (None, None))
    assert all(node.op_type != "ConstantOfShape" for node in program.model.graph)


@pytest.mark.filterwarnings("ignore:the model is in training mode")
@pytest.mark.parametrize("kind", KINDS)
def test_dropout_between_layers_in_training_is_refused(kind: str) -> None:
    module = _module(kind, num_layers=2, dropout=0.5).train()
    with pytest.raises(opsetta.UnsupportedOperatorsError, match=f"aten::{kind}.input.*dropout"):
        opsetta.export(module, (_sequence({}),), opset=14)


def test_training_without_dropout_is_taken() -> None:
    module = _module("lstm", num_layers=2).train()
    with pytest.warns(UserWarning, match="training mode"):
        opsetta.export(module, (_sequence({}),), opset=14).verify()
