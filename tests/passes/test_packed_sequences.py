"""`fuse_packed_sequences` on graphs of a few nodes."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir
import torch

from opsetta.passes.sequences.packed_sequences import FusePackedSequences
from opsetta.registration.arguments import arguments, overloaded_name

from .source_interpreter import Recorder

LENGTHS = torch.tensor([2, 5, 1])


class _Packing(Recorder):
    """Records what torch.nn.utils.rnn calls."""

    def __init__(self, known: bool = True) -> None:
        super().__init__(shapes=known, dtypes=known)
        self.x = self.input(torch.randn(5, 3, 4))
        self.lengths = self.input(LENGTHS, "lengths")
        self.weights = [self.input(torch.randn(*s), f"w{i}") for i, s in enumerate([(18, 4), (18, 6)])]

    def pack(self, x: ir.Value, lengths: ir.Value, batch_first: bool = False) -> list[ir.Value]:
        return self.call("_pack_padded_sequence", input=x, lengths=lengths, batch_first=batch_first)

    def sort(self) -> tuple[ir.Value, ir.Value, ir.Value]:
        """The sorted lengths, their order, and its inverse."""
        lengths, order = self.call("sort", self=self.lengths, dim=-1, descending=True)
        places = self.call("arange", "start", start=0, end=3)
        blank = self.call("empty_like", self=order)
        return lengths, order, self.call("scatter", "src", self=blank, dim=0, index=order, src=places)

    def gru(self, data: ir.Value, sizes: ir.Value, hx: ir.Value) -> list[ir.Value]:
        given: dict[str, Any] = {"data": data, "batch_sizes": sizes, "hx": hx, "params": self.weights}
        flags = {"has_biases": False, "num_layers": 1, "dropout": 0.0, "train": False}
        return self.call("gru", "data", **given, **flags, bidirectional=False)

    def pad(self, data: ir.Value, sizes: ir.Value, total: Any = 5) -> list[ir.Value]:
        given = {"data": data, "batch_sizes": sizes, "batch_first": False, "padding_value": 0.0}
        return self.call("_pad_packed_sequence", **given, total_length=total)

    def select(self, value: ir.Value, dim: int, index: ir.Value) -> ir.Value:
        return self.call("index_select", self=value, dim=dim, index=index)

    def fused(self, *outputs: ir.Value) -> tuple[ir.Model, list[str]]:
        """The fused model, and its operators but those that are read by none."""
        model = self.model(*outputs)
        assert FusePackedSequences()(model).modified
        assert not FusePackedSequences()(model).modified
        ir.passes.common.RemoveUnusedNodesPass()(model)
        return model, [overloaded_name(node).partition(".")[0] for node in model.graph]


def test_a_layer_between_packing_and_padding_is_fused() -> None:
    recorder = _Packing()
    lengths, _, _ = recorder.sort()
    data, sizes = recorder.pack(recorder.x, lengths)
    zeros = recorder.call("zeros", size=[1, 3, 6])
    output, state = recorder.gru(data, sizes, zeros)
    padded, found = recorder.pad(output, sizes)
    model, operators = recorder.fused(padded, found, state)
    assert operators == ["aten::sort", "packed::gru", "packed::pad"]
    layer = model.graph[1]
    assert arguments(layer)["hx"] is None
    assert model.graph.outputs[1] is layer.inputs[1]


def test_sorting_is_undone() -> None:
    for known in (True, False):
        recorder = _Packing(known)
        lengths, order, back = recorder.sort()
        data, sizes = recorder.pack(recorder.select(recorder.x, 1, order), lengths)
        state = recorder.select(recorder.input(torch.randn(1, 3, 6), "state"), 1, order)
        output, state = recorder.gru(data, sizes, state)
        padded, found = recorder.pad(output, sizes)
        results = recorder.select(padded, 1, back), recorder.select(state, 1, back)
        again = recorder.call("index", "Tensor", self=found, indices=[back])
        model, operators = recorder.fused(*results, again)
        assert operators == ["packed::gru", "packed::pad"]
        assert model.graph.outputs[2] is recorder.lengths


def test_a_state_in_the_sorted_order_keeps_the_sort() -> None:
    recorder = _Packing()
    lengths, order, back = recorder.sort()
    data, sizes = recorder.pack(recorder.select(recorder.x, 1, order), lengths)
    output, _ = recorder.gru(data, sizes, recorder.input(torch.randn(1, 3, 6), "state"))
    model, operators = recorder.fused(recorder.select(recorder.pad(output, sizes)[0], 1, back))
    assert operators.count("aten::index_select") == 2
    assert operators.count("aten::sort") == 1
    layer = next(node for node in model.graph if node.op_type == "gru")
    assert arguments(layer)["lengths"] is lengths


def test_another_permutation_is_kept() -> None:
    recorder = _Packing()
    lengths, order, _ = recorder.sort()
    data, sizes = recorder.pack(recorder.select(recorder.x, 1, order), lengths)
    other = recorder.input(torch.tensor([1, 0, 2]), "other")
    _, operators = recorder.fused(recorder.select(recorder.pad(data, sizes)[0], 1, other))
    assert operators == ["aten::sort", "packed::pad", "aten::index_select", "aten::index_select"]


def test_the_number_of_steps_is_the_largest_length() -> None:
    recorder = _Packing()
    lengths, _, _ = recorder.sort()
    data, sizes = recorder.pack(recorder.x, lengths)
    steps = recorder.call("sym_size", "int", self=sizes, dim=0)
    padded, _ = recorder.pad(data, sizes, total=steps)
    model, operators = recorder.fused(padded, steps)
    assert sorted(operators) == ["aten::sort", "packed::longest", "packed::pad"]
    pad = next(node for node in model.graph if node.op_type == "pad")
    assert arguments(pad)["total_length"] is None


def test_data_that_is_read_otherwise_is_packed_again() -> None:
    recorder = _Packing()
    lengths, _, _ = recorder.sort()
    data, sizes = recorder.pack(recorder.x, lengths, batch_first=False)
    output, _ = recorder.gru(data, sizes, recorder.call("zeros", size=[1, 3, 6]))
    _, operators = recorder.fused(recorder.call("relu", self=output))
    assert operators == ["aten::sort", "packed::gru", "aten::_pack_padded_sequence", "aten::relu"]


def test_batch_sizes_of_other_lengths_are_left_alone() -> None:
    recorder = _Packing()
    lengths, _, _ = recorder.sort()
    data, _ = recorder.pack(recorder.x, lengths)
    other = recorder.input(torch.tensor([5, 2, 1]), "other")
    _, sizes = recorder.pack(recorder.x, other)
    padded, _ = recorder.pad(data, sizes)
    assert not FusePackedSequences()(recorder.model(padded)).modified


def test_batch_first_is_transposed() -> None:
    recorder = _Packing()
    lengths, _, _ = recorder.sort()
    x = recorder.call("transpose", "int", self=recorder.x, dim0=0, dim1=1)
    data, sizes = recorder.pack(x, lengths, batch_first=True)
    model, operators = recorder.fused(recorder.pad(data, sizes)[0])
    assert operators == ["aten::sort", "aten::transpose", "aten::transpose", "packed::pad"]
    pad = next(node for node in model.graph if node.op_type == "pad")
    assert list(pad.inputs[0].shape) == [5, 3, 4]
