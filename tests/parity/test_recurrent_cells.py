"""Recurrent cells against eager PyTorch, and recurrent operators where next to no shape is known."""

from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
import torch
from onnx_ir import tensor_adapters

import opsetta.symbolics  # noqa: F401
from opsetta.exporter.lowering import source_dialect as lowering
from opsetta.exporter.running.sessions.session import Session
from opsetta.registration import UnsupportedOperatorsError, default_registry
from opsetta.registration.arguments import source_node

from .records import HIGHEST, Record, check, floats, parametrized

OPSETS = (7, 9, 13, 18, HIGHEST)
FEW = (7, 13, HIGHEST)
BATCH, INPUT, HIDDEN = 3, 4, 6
KINDS = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}
"""The number of gates of each cell."""
MODULES: dict[str, Any] = {
    "lstm": torch.nn.LSTMCell,
    "gru": torch.nn.GRUCell,
    "rnn_tanh": torch.nn.RNNCell,
    "rnn_relu": lambda *sizes, **options: torch.nn.RNNCell(*sizes, nonlinearity="relu", **options),
}
TYPES = {"float": torch.float32, "half": torch.float16, "double": torch.float64}


def _module(kind: str, dtype: torch.dtype, **options: Any) -> torch.nn.Module:
    module = MODULES[kind](INPUT, HIDDEN, **options)
    with torch.no_grad():
        for seed, parameter in enumerate(module.parameters()):
            parameter.copy_(floats(*parameter.shape, seed=seed, scale=0.4))
    return module.to(dtype)


def _state(kind: str, *shape: int, dtype: torch.dtype = torch.float32) -> Any:
    h = floats(*shape, HIDDEN, seed=60, dtype=dtype)
    return (h, floats(*shape, HIDDEN, seed=61, dtype=dtype)) if kind == "lstm" else h


def _modules(kind: str, label: str, dtype: torch.dtype) -> list[Record]:
    module = _module(kind, dtype)
    x, state = floats(BATCH, INPUT, seed=50, dtype=dtype), _state(kind, BATCH, dtype=dtype)
    axes = ({0: "batch"}, ({0: "batch"}, {0: "batch"}) if kind == "lstm" else {0: "batch"})
    return [
        Record(f"{kind}-{label}", module, (x, state), OPSETS, dynamic=axes),
        Record(f"{kind}-{label}-default-state", module, (x,), FEW),
        Record(f"{kind}-{label}-without-bias", _module(kind, dtype, bias=False), (x, state), FEW),
        Record(f"{kind}-{label}-unbatched", module, (x[0], _state(kind, dtype=dtype)), FEW),
    ]


def _called(kind: str) -> Record:
    """A call of torch's function whose weights are inputs."""
    gates = KINDS[kind]
    weights = floats(gates * HIDDEN, INPUT, seed=1), floats(gates * HIDDEN, HIDDEN, seed=2)
    biases = floats(gates * HIDDEN, seed=3), floats(gates * HIDDEN, seed=4)
    cell = getattr(torch, f"{kind}_cell")
    inputs = floats(BATCH, INPUT, seed=50), _state(kind, BATCH), *weights, *biases
    return Record(f"{kind}-weights-given", lambda *items: cell(*items), inputs, FEW)


RECORDS = [
    *(r for kind in KINDS for label, dtype in TYPES.items() for r in _modules(kind, label, dtype)),
    *(_called(kind) for kind in KINDS),
]


@parametrized(RECORDS)
def test_cells_agree_with_eager(record: Record) -> None:
    check(record)


class _Case:
    """A call of an ATen operator as a source graph whose shapes are unknown, and the same call in torch.

    Attributes:
        given: the arguments by schema name; tensors, and lists of tensors, become graph values.
    """

    def __init__(self, name: str, overload: str, given: dict[str, Any], weights: tuple[str, ...] = ()):
        self.name, self.overload, self.given, self.weights = name, overload, given, weights
        self.feed: dict[str, torch.Tensor] = {}
        self._initializers: list[ir.Value] = []

    def _value(self, stem: str, tensor: torch.Tensor, rank_known: bool) -> ir.Value:
        held = stem.split(".")[0] in self.weights
        value = ir.Value(name=stem, type=ir.TensorType(tensor_adapters.from_torch_dtype(tensor.dtype)))
        if held:
            value.const_value = tensor_adapters.TorchTensor(tensor, name=stem)
            value.shape = ir.Shape(tensor.shape)
            self._initializers.append(value)
        else:
            value.shape = ir.Shape([None] * tensor.dim()) if rank_known else None
            self.feed[stem] = tensor
        return value

    def check(self, opset: int, rank_known: bool) -> None:
        """Lower the graph, run it, and compare with torch."""
        values: list[ir.Value] = []

        def place(name: str, item: Any) -> Any:
            if isinstance(item, (list, tuple)):
                return [place(f"{name}.{i}", member) for i, member in enumerate(item)]
            if not isinstance(item, torch.Tensor):
                return item
            values.append(self._value(name, item, rank_known))
            return values[-1]

        placed = {name: place(name, item) for name, item in self.given.items()}
        packet = getattr(torch.ops.aten, self.name.removeprefix("aten::"))
        found = getattr(packet, self.overload)(*self.given.values())
        results = list(found) if isinstance(found, (list, tuple)) else [found]
        node = source_node(self.name, placed, overload=self.overload, num_outputs=len(results))
        for index, output in enumerate(node.outputs):
            output.name = f"result_{index}"
        inputs = [value for value in values if value.const_value is None]
        graph = ir.Graph(inputs, node.outputs, nodes=[node], initializers=self._initializers, name="main")
        lowered = lowering.lower(ir.Model(graph, ir_version=10), opset, default_registry)
        model = lowered.model
        for output, result in zip(model.graph.outputs, results, strict=True):
            output.type = ir.TensorType(tensor_adapters.from_torch_dtype(result.dtype))
        actual = Session(model).run({name: tensor.numpy() for name, tensor in self.feed.items()})
        for mine, expected in zip(actual, results, strict=True):
            np.testing.assert_allclose(np.asarray(mine.numpy()), expected.numpy(), rtol=1e-4, atol=1e-5)


def _layer(kind: str, dtype: torch.dtype, **options: Any) -> _Case:
    """A recurrent operator, of whose sizes only those of its weights are known."""
    layer: Any = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU}.get(kind, torch.nn.RNN)
    module = layer(INPUT, HIDDEN, 2, bidirectional=True, **options).to(dtype).requires_grad_(False)
    h = floats(4, BATCH, options.get("proj_size", HIDDEN), seed=60, dtype=dtype)
    given = {
        "input": floats(5, BATCH, INPUT, seed=50, dtype=dtype),
        "hx": [h, floats(4, BATCH, HIDDEN, seed=61, dtype=dtype)] if kind == "lstm" else h,
        "params": [parameter.detach() for parameter in module._flat_weights],
        "has_biases": True,
        "num_layers": 2,
        "dropout": 0.0,
        "train": False,
        "bidirectional": True,
        "batch_first": False,
    }
    return _Case(f"aten::{kind}", "input", given, ("params",))


@pytest.mark.parametrize("rank_known", [True, False], ids=["rank", "nothing"])
@pytest.mark.parametrize("opset", FEW)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float", "double"])
@pytest.mark.parametrize("kind", KINDS)
def test_layers_need_no_shapes(kind: str, dtype: torch.dtype, opset: int, rank_known: bool) -> None:
    _layer(kind, dtype).check(opset, rank_known)


@pytest.mark.parametrize("opset", FEW)
def test_projected_layers_need_no_shapes(opset: int) -> None:
    _layer("lstm", torch.float32, proj_size=2).check(opset, rank_known=False)


@pytest.mark.parametrize("rank_known", [True, False], ids=["rank", "nothing"])
@pytest.mark.parametrize("held", [True, False], ids=["weights", "inputs"])
@pytest.mark.parametrize("opset", FEW)
@pytest.mark.parametrize("kind", KINDS)
def test_cells_need_no_shapes(kind: str, opset: int, held: bool, rank_known: bool) -> None:
    rows = KINDS[kind] * HIDDEN
    names = ("w_ih", "w_hh", "b_ih", "b_hh")
    shapes = ((rows, INPUT), (rows, HIDDEN), (rows,), (rows,))
    weights = {n: floats(*shape, seed=i) for i, (n, shape) in enumerate(zip(names, shapes, strict=True))}
    state = _state(kind, BATCH)
    given = {"input": floats(BATCH, INPUT), "hx": list(state) if kind == "lstm" else state, **weights}
    _Case(f"aten::{kind}_cell", "default", given, names if held else ()).check(opset, rank_known)


def test_an_input_of_another_rank_is_refused() -> None:
    case = _layer("rnn_tanh", torch.float32)
    case.given["input"] = floats(5, INPUT)
    with pytest.raises(
        UnsupportedOperatorsError, match=r"aten::rnn_tanh.input.*must have 3 dimensions, not 2"
    ):
        case.check(13, rank_known=True)
