"""Packed sequences against eager PyTorch: recurrent layers over them, and what else is done with them."""

import functools
import itertools
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

import opsetta

from ..opsets import is_full_run
from .records import HIGHEST, floats, integers, lowered_from

OPSETS = (7, 9, 11, 14, 22, HIGHEST)
FEW = (7, 9, 10, 13, HIGHEST) if is_full_run() else (7, 10, HIGHEST)
INPUT, HIDDEN = 4, 6
LENGTHS = ((2, 4, 1), (1,), (3, 3), (5, 1, 6, 2))
"""Of the sequences of a batch; the first one is the example."""
SPARE = (1, 0, 0, 2)
"""How much longer than the longest sequence the padded tensor is."""
KINDS: dict[str, Any] = {
    "lstm": torch.nn.LSTM,
    "gru": torch.nn.GRU,
    "rnn_tanh": torch.nn.RNN,
    "rnn_relu": lambda *sizes, **options: torch.nn.RNN(*sizes, nonlinearity="relu", **options),
}
SHAPES: dict[str, dict[str, Any]] = {
    "plain": {},
    "without-bias": {"bias": False, "bidirectional": True},
    "everything": {"num_layers": 2, "bidirectional": True, "batch_first": True},
}
PROJECTED = {name: {**options, "proj_size": 2} for name, options in SHAPES.items()}


class Layer(torch.nn.Module):
    """Packs, runs one layer, and pads again.

    Args:
        enforce_sorted, padding_value: as torch.nn.utils.rnn has them.
        total: whether the result is as long as the input, and not as its longest sequence.
    """

    def __init__(
        self,
        kind: str,
        options: dict[str, Any],
        enforce_sorted: bool,
        total: bool = False,
        padding_value: float = 0.0,
    ):
        super().__init__()
        self.layer = KINDS[kind](INPUT, HIDDEN, **options)
        self.first = bool(options.get("batch_first"))
        self.enforce_sorted, self.total, self.padding_value = enforce_sorted, total, padding_value
        with torch.no_grad():
            for seed, parameter in enumerate(self.parameters()):
                parameter.copy_(floats(*parameter.shape, seed=seed, scale=0.4))

    def forward(self, x: torch.Tensor, lengths: torch.Tensor, state: Any = None) -> Any:
        packed = pack_padded_sequence(x, lengths, self.first, self.enforce_sorted)
        output, final = self.layer(packed, state)
        total = x.shape[int(self.first)] if self.total else None
        return *pad_packed_sequence(output, self.first, self.padding_value, total), final


def _inputs(
    lengths: tuple[int, ...],
    spare: int = 0,
    *,
    first: bool = False,
    enforce_sorted: bool = False,
    dtype: torch.dtype = torch.float32,
) -> tuple[torch.Tensor, torch.Tensor]:
    x = floats(max(lengths) + spare, len(lengths), INPUT, seed=sum(lengths), dtype=dtype)
    ordered = sorted(lengths, reverse=True) if enforce_sorted else lengths
    return x.transpose(0, 1).contiguous() if first else x, torch.tensor(ordered)


def _state(kind: str, options: dict[str, Any], batch: int) -> Any:
    count = options.get("num_layers", 1) * (1 + options.get("bidirectional", False))
    h = floats(count, batch, options.get("proj_size") or HIDDEN, seed=60)
    return (h, floats(count, batch, HIDDEN, seed=61)) if kind == "lstm" else h


def _check(kind: str, options: dict[str, Any], opsets: tuple[int, ...], given: bool, **called: Any) -> None:
    """One capture with free sizes, lowered to each opset and run with every batch of lengths."""
    first, enforce_sorted = bool(options.get("batch_first")), called["enforce_sorted"]
    axes: tuple[Any, ...] = ({first: "length", not first: "batch"}, {0: "batch"})
    calls = []
    for lengths, spare in zip(LENGTHS, SPARE, strict=True):
        inputs: tuple[Any, ...] = _inputs(lengths, spare, first=first, enforce_sorted=enforce_sorted)
        calls.append((*inputs, _state(kind, options, len(lengths))) if given else inputs)
    if given:
        axes += (({1: "batch"}, {1: "batch"}) if kind == "lstm" else {1: "batch"},)
    module = Layer(kind, options, **called).eval()
    program = opsetta.export(module, calls[0], opset=max(opsets), dynamic_shapes=axes)
    for opset in opsets:
        lowered = program.lower(opset=opset)
        for call in calls:
            lowered.verify(call)


def _variants() -> Iterator[Any]:
    """Every layer in every form; full runs take them all, the others one form of each."""
    layers = [(kind, name, options) for kind in KINDS for name, options in SHAPES.items()]
    layers += [("lstm", f"projected-{name}", options) for name, options in PROJECTED.items()]
    forms = list(itertools.product((True, False), (True, False), (True, False)))
    for place, (kind, name, options) in enumerate(layers):
        for index, (enforce_sorted, total, given) in enumerate(forms):
            words = ["sorted" if enforce_sorted else "unsorted"]
            words += ["total"] * total + ["state"] * given
            marks = [] if index == 3 * place % 8 else [pytest.mark.sweep]
            label = f"{kind}-{name}-{'-'.join(words)}"
            yield pytest.param(kind, options, enforce_sorted, total, given, id=label, marks=marks)


@pytest.mark.parametrize(("kind", "options", "enforce_sorted", "total", "given"), _variants())
def test_layers_agree_with_eager(
    kind: str, options: dict[str, Any], enforce_sorted: bool, total: bool, given: bool
) -> None:
    _check(kind, options, OPSETS, given, enforce_sorted=enforce_sorted, total=total, padding_value=0.5)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float64], ids=["half", "double"])
@pytest.mark.parametrize("kind", KINDS)
def test_layers_of_other_element_types_agree_with_eager(kind: str, dtype: torch.dtype) -> None:
    module = Layer(kind, SHAPES["everything"], enforce_sorted=False).to(dtype).eval()
    calls = [_inputs(lengths, 1, first=True, dtype=dtype) for lengths in LENGTHS[:3]]
    axes = ({0: "batch", 1: "length"}, {0: "batch"})
    program = opsetta.export(module, calls[0], opset=HIGHEST, dynamic_shapes=axes)
    for opset in FEW:
        lowered = program.lower(opset=opset)
        for call in calls:
            lowered.verify(call)


class _Model(torch.nn.Module):
    """Two layers and a projection, in inference."""

    def __init__(self) -> None:
        super().__init__()
        self.one = torch.nn.LSTM(INPUT, HIDDEN, bidirectional=True)
        self.two = torch.nn.GRU(2 * HIDDEN, 5)
        self.linear = torch.nn.Linear(2 * HIDDEN, 2 * HIDDEN)
        self.embedding = torch.nn.Embedding(9, INPUT, padding_idx=0)
        with torch.no_grad():
            for seed, parameter in enumerate(self.parameters()):
                parameter.copy_(floats(*parameter.shape, seed=seed, scale=0.4))

    def packed(self, x: torch.Tensor, lengths: torch.Tensor) -> PackedSequence:
        return pack_padded_sequence(x, lengths, enforce_sorted=False)


class Stacked(_Model):
    def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> Any:
        output, state = self.two(self.one(self.packed(x, lengths))[0])
        return pad_packed_sequence(output, batch_first=True)[0], state


class Residual(_Model):
    def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        output, _ = self.one(self.packed(x, lengths))
        return self.linear(pad_packed_sequence(output, total_length=x.shape[0])[0]) + x.sum(2, keepdim=True)


class Longer(_Model):
    def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        return pad_packed_sequence(self.one(self.packed(x, lengths))[0], total_length=12)[0]


class Narrow(_Model):
    """Lengths of another integer type."""

    def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> Any:
        output, _ = self.one(self.packed(x, lengths.to(torch.int32)))
        return pad_packed_sequence(output)


class Constant(_Model):
    def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> Any:
        output, state = self.one(pack_padded_sequence(x[:, :1], [2]))
        return pad_packed_sequence(output)[0], state


class WithoutLayer(_Model):
    def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> Any:
        return pad_packed_sequence(self.packed(x, lengths), padding_value=-1)


class Elementwise(_Model):
    def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> Any:
        output, _ = self.one(self.packed(x, lengths))
        output = PackedSequence(torch.relu(self.linear(output.data)), *output[1:])
        output, state = self.two(output)
        return pad_packed_sequence(output)[0], state


class Whole(_Model):
    def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> Any:
        output, _ = self.one(self.packed(x, lengths))
        return output.data, output.batch_sizes, output.unsorted_indices, output.batch_sizes.sum()


class SortedByHand(_Model):
    def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> Any:
        lengths, order = lengths.sort(0, descending=True)
        output, state = self.two(self.one(pack_padded_sequence(x[:, order], lengths))[0])
        back = order.argsort()
        return pad_packed_sequence(output)[0][:, back], state[:, back]


class LastElement(_Model):
    def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> Any:
        output, found = pad_packed_sequence(self.one(self.packed(x, lengths))[0])
        return output[found - 1, torch.arange(output.shape[1])], output.shape[0]


class Labels(_Model):
    """Packed integers, of two dimensions."""

    def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> Any:
        packed = pack_padded_sequence(x.argmax(2), lengths, enforce_sorted=False)
        return pad_packed_sequence(packed, batch_first=True, padding_value=7)[0], packed.data


MODELS: dict[type[_Model], int] = {
    **dict.fromkeys((Stacked, Residual, Longer, Narrow, Constant, WithoutLayer, LastElement), 7),
    **dict.fromkeys((Elementwise, Whole, SortedByHand, Labels), 9),
}
"""The lowest opset of each: below 9 nothing finds what is not padding."""


@functools.lru_cache(maxsize=2)
def _program(model: type[_Model]) -> opsetta.Program:
    length = torch.export.Dim("length", max=12)
    axes = ({0: length, 1: "batch"}, {0: "batch"})
    return opsetta.export(model().eval(), _inputs(LENGTHS[0], 1), opset=HIGHEST, dynamic_shapes=axes)


@pytest.mark.parametrize("opset", FEW)
@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
def test_models_agree_with_eager(model: type[_Model], opset: int) -> None:
    lowered = lowered_from(_program(model), opset, MODELS[model])
    if lowered is None:
        return
    for lengths in LENGTHS:
        lowered.verify(_inputs(lengths, 1))


def test_lengths_may_be_computed() -> None:
    class Computed(_Model):
        def forward(self, tokens: torch.Tensor) -> Any:
            lengths = (tokens != 0).sum(1)
            embedded = self.embedding(tokens)
            output, state = self.one(pack_padded_sequence(embedded, lengths, True, enforce_sorted=False))
            return pad_packed_sequence(output, True)[0], state

    tokens = integers(3, 5, low=1, high=9)
    tokens[0, 2:] = tokens[2, 4:] = 0
    axes = ({0: "batch", 1: "length"},)
    program = opsetta.export(Computed().eval(), (tokens,), opset=9, dynamic_shapes=axes)
    program.verify()
    program.verify((tokens[:1, :4],))


def test_padding_is_not_read() -> None:
    """What stands behind the end of a sequence, NaN included, changes nothing."""
    module = Layer("lstm", {"bidirectional": True, "num_layers": 2}, enforce_sorted=False).eval()
    x, lengths = _inputs((2, 4, 1), 1)
    for place, length in enumerate(lengths.tolist()):
        x[length:, place] = float("nan")
    for opset in (9, HIGHEST):
        opsetta.export(module, (x, lengths), opset=opset).verify()


@pytest.mark.parametrize("enforce_sorted", [True, False], ids=["sorted", "unsorted"])
@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_traced_layers_agree_with_eager(kind: str, enforce_sorted: bool) -> None:
    module = Layer(kind, {"bidirectional": True, "num_layers": 2}, enforce_sorted).eval()
    calls = [_inputs(lengths, enforce_sorted=enforce_sorted) for lengths in LENGTHS]
    traced = torch.jit.trace(module, calls[0])
    axes = ({0: "length", 1: "batch"}, {0: "batch"})
    program = opsetta.export(traced, calls[0], opset=HIGHEST, dynamic_shapes=axes)
    for opset in FEW:
        lowered = program.lower(opset=opset)
        for call in calls:
            lowered.verify(call)


def _operators(model: torch.nn.Module, opset: int = 13) -> list[str]:
    axes = ({0: "length", 1: "batch"}, {0: "batch"})
    program = opsetta.export(model.eval(), _inputs(LENGTHS[0], 1), opset=opset, dynamic_shapes=axes)
    return [node.op_type for node in program.model.graph]


@pytest.mark.parametrize("enforce_sorted", [True, False], ids=["sorted", "unsorted"])
def test_a_layer_is_one_operator_with_lengths(enforce_sorted: bool) -> None:
    operators = _operators(Layer("lstm", {"bidirectional": True}, enforce_sorted))
    assert operators.count("LSTM") == 1
    assert not {"TopK", "NonZero", "ScatterElements", "CumSum"} & set(operators)


def test_stacked_layers_are_not_packed_in_between() -> None:
    operators = _operators(Stacked())
    assert (operators.count("LSTM"), operators.count("GRU"), operators.count("NonZero")) == (1, 1, 0)


def test_a_mismatch_is_located_in_packed_sequences() -> None:
    program = opsetta.export(Stacked().eval(), _inputs(LENGTHS[0], 1), opset=13)
    assert program.locate_mismatch() is None


class _Scripted(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.LSTM(3, 4, num_layers=2, bidirectional=True)

    def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        packed = pack_padded_sequence(x, lengths, enforce_sorted=False)
        output, (hidden, _) = self.layer(packed)
        return pad_packed_sequence(output)[0], hidden


@pytest.mark.parametrize("opset", [7, 9, 13, HIGHEST])
def test_a_scripted_packed_layer_agrees(opset: int) -> None:
    axes = {"x": {0: "length", 1: "batch"}, "lengths": {0: "batch"}}
    scripted = torch.jit.script(_Scripted().eval())
    program = opsetta.export(
        scripted, (floats(5, 2, 3), torch.tensor([3, 5])), opset=opset, dynamic_shapes=axes
    )
    program.verify()
    program.verify((floats(7, 3, 3, seed=1), torch.tensor([7, 1, 4])))
