"""Recurrent layers against eager PyTorch: layers, directions, states, element types, free sizes."""

import contextlib
import functools
from collections.abc import Iterator
from typing import Any

import onnx_ir as ir
import pytest
import torch

import opsetta
from opsetta.registration import GraphContext, UnsupportedError, default_registry

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
def test_recurrent_layers_agree_with_eager(record: Record, opset: int) -> None:
    check(record, opset)


def _shapes(input, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first):
    """What torch.export needs to know of a recurrent operator: the shapes of its results."""
    states = hx if isinstance(hx, (list, tuple)) else [hx]
    width = states[0].shape[2] * (1 + bidirectional)
    output = input.new_empty(*input.shape[:2], width)
    return (output, *(torch.empty_like(state) for state in states))


@contextlib.contextmanager
def _free_length(kind: str) -> Iterator[None]:
    """torch.export runs the recurrence step by step, which fixes the length; here it does not."""
    operator = getattr(torch.ops.aten, kind).input
    key = torch._C.DispatchKey.CompositeImplicitAutograd
    held = operator.py_kernels[key]
    operator.py_kernels[key] = _shapes
    operator._dispatch_cache.clear()
    try:
        yield
    finally:
        operator.py_kernels[key] = held
        operator._dispatch_cache.clear()


@functools.lru_cache(maxsize=2)
def _free_program(kind: str, name: str) -> opsetta.Program:
    return opsetta.export(_free_export(kind, LENGTHS[kind, name]), opset=HIGHEST)


def _free_export(
    kind: str, options: dict[str, Any], dtype: torch.dtype = torch.float32
) -> torch.export.ExportedProgram:
    first = bool(options.get("batch_first"))
    length, batch = torch.export.Dim("length"), torch.export.Dim("batch")
    states = ({1: batch}, {1: batch}) if kind == "lstm" else {1: batch}
    with _free_length(kind), torch.no_grad():
        return torch.export.export(
            _module(kind, dtype, **options),
            (_sequence(options, dtype), _state(kind, options, dtype)),
            dynamic_shapes=({first: length, not first: batch}, states),
        )


@pytest.mark.parametrize("opset", OPSETS)
@pytest.mark.parametrize(("kind", "name"), LENGTHS)
def test_recurrent_layers_take_any_length_and_batch(kind: str, name: str, opset: int) -> None:
    options = LENGTHS[kind, name]
    lowered = _free_program(kind, name).lower(opset=opset)
    for length, batch in ((LENGTH, BATCH), (1, 1), (9, 2)):
        shape = (batch, length, INPUT) if options.get("batch_first") else (length, batch, INPUT)
        lowered.verify((floats(*shape, seed=70), _state(kind, options, batch=batch)))


@pytest.mark.parametrize("kind", KINDS)
def test_a_free_length_of_doubles_is_refused(kind: str) -> None:
    exported = _free_export(kind, {}, torch.float64)
    with pytest.raises(opsetta.UnsupportedOperatorsError, match=f"aten::{kind}.input.*not static"):
        opsetta.export(exported, opset=14)


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


@pytest.mark.parametrize("kind", KINDS)
def test_a_packed_sequence_is_refused(kind: str) -> None:
    symbolic = default_registry.lookup(f"aten::{kind}", "data", 9)
    assert symbolic is not None
    graph = ir.Graph([], [], nodes=[], opset_imports={"": 9})
    context = GraphContext(graph, 9, default_registry)
    data = ir.Value(name="data", type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape([5, INPUT]))
    state = [data, data] if kind == "lstm" else data
    names = ("has_biases", "num_layers", "dropout", "train", "bidirectional")
    options = dict(zip(names, (True, 1, 0.0, False, False), strict=True))
    with pytest.raises(UnsupportedError, match="a packed sequence has no form"):
        symbolic(context, {"data": data, "batch_sizes": data, "hx": state, "params": [data] * 4, **options})
