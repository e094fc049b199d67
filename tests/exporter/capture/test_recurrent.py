"""Capture of recurrent operators by their shapes: what it gives, and that it leaves torch as it was."""

from typing import Any

import pytest
import torch
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

import opsetta
from opsetta.exporter.capture.capture_options import CaptureOptions
from opsetta.exporter.capture.pytorch.capture_model import capture
from opsetta.exporter.torch_boundary.replacements.kernels.recurrent import use_recurrent_kernels

OPERATORS = [
    getattr(getattr(torch.ops.aten, name), overload)
    for name in ("lstm", "gru", "rnn_tanh", "rnn_relu")
    for overload in ("input", "data")
]


class Packed(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gru = torch.nn.GRU(4, 6)

    def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> Any:
        output, state = self.gru(pack_padded_sequence(x, lengths, enforce_sorted=False))
        return pad_packed_sequence(output)[0], state


def _captured(model: torch.nn.Module, *args: Any, **options: Any) -> Any:
    return capture(model.eval(), args, {}, CaptureOptions(**options))


def _tables() -> list[Any]:
    """All that a capture could change of torch."""
    base = torch.nn.RNNBase
    return [
        *(dict(operator.py_kernels) for operator in OPERATORS),
        dict(torch._decomp.decomposition_table),
        {name: vars(base)[name] for name in vars(base)},
        torch.nn.RNNBase.get_expected_hidden_size,
        len(torch.overrides._get_current_function_mode_stack()),
    ]


def test_the_program_holds_operators_of_aten_alone() -> None:
    found = _captured(Packed(), torch.ones(5, 3, 4), torch.tensor([2, 5, 1]))
    targets = [str(node.target) for node in found.exported.graph.nodes if node.op == "call_function"]
    assert "aten.gru.data" in targets
    assert not any("opsetta" in target for target in targets)


def test_sub_graphs_hold_operators_of_aten_alone() -> None:
    class Branching(Packed):
        def forward(self, x: torch.Tensor, state: torch.Tensor, flag: torch.Tensor) -> torch.Tensor:
            def run(y: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
                return torch.gru(y, h, list(self.gru.parameters()), True, 1, 0.0, False, False, False)[0]

            return torch.cond(flag, run, lambda y, h: run(-y, h), (x, state))

    axes = ({0: "length"}, None, None)
    arguments = torch.ones(5, 3, 4), torch.ones(1, 3, 6), torch.tensor(True)
    found = _captured(Branching(), *arguments, dynamic_shapes=axes)
    modules = [m for m in found.exported.graph_module.modules() if isinstance(m, torch.fx.GraphModule)]
    targets = [str(node.target) for module in modules for node in module.graph.nodes]
    assert targets.count("aten.gru.input") == 2
    assert not any("opsetta" in target for target in targets)


@pytest.mark.parametrize("broken", [False, True], ids=["captured", "failed"])
def test_torch_is_left_as_it_was(broken: bool) -> None:
    class Broken(Packed):
        def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> Any:
            super().forward(x, lengths)
            raise ValueError("no")

    before = _tables()
    arguments = torch.ones(5, 3, 4), torch.tensor([2, 5, 1])
    if broken:
        with pytest.raises(opsetta.OpsettaError, match="no"):
            _captured(Broken(), *arguments)
    else:
        _captured(Packed(), *arguments)
    assert _tables() == before


def test_torch_export_specialises_as_before_afterwards() -> None:
    module, axes = torch.nn.GRU(4, 6), ({0: torch.export.Dim("length")},)
    _captured(module, torch.ones(5, 3, 4), dynamic_shapes=({0: "length"},))
    with pytest.raises(Exception, match="length"), torch.no_grad():
        torch.export.export(module, (torch.ones(5, 3, 4),), dynamic_shapes=axes)


def test_real_tensors_are_computed_while_a_capture_runs() -> None:
    module, x, lengths = Packed().eval(), torch.randn(5, 3, 4), torch.tensor([2, 5, 1])
    expected = module(x, lengths)
    with use_recurrent_kernels():
        torch.testing.assert_close(module(x, lengths), expected)


def test_shapes_of_packed_sequences_keep_the_batch() -> None:
    axes = ({0: "length", 1: "batch"}, {0: "batch"})
    found = _captured(Packed(), torch.ones(5, 3, 4), torch.tensor([2, 5, 1]), dynamic_shapes=axes)
    padded, state = found.source.graph.outputs
    assert [str(size) for size in padded.shape][1:] == ["batch", "6"]
    assert [str(size) for size in state.shape] == ["1", "batch", "6"]


def test_a_total_length_is_taken_where_the_length_is_bounded() -> None:
    class Total(Packed):
        def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
            output, _ = self.gru(pack_padded_sequence(x, lengths, enforce_sorted=False))
            return pad_packed_sequence(output, total_length=8)[0]

    arguments = torch.ones(5, 3, 4), torch.tensor([2, 5, 1])
    bounded = ({0: torch.export.Dim("length", max=8)}, None)
    assert _captured(Total(), *arguments, dynamic_shapes=bounded).source.graph.outputs[0].shape[0] == 8
    with pytest.raises(opsetta.CaptureError, match="pad_packed_sequence"):
        _captured(Total(), *arguments, dynamic_shapes=({0: "length"}, None))


def test_strict_capture_refuses_packing() -> None:
    with pytest.raises(opsetta.CaptureError, match="pack_padded_sequence"):
        _captured(Packed(), torch.ones(5, 3, 4), torch.tensor([2, 5, 1]), capture="strict")


def test_operators_are_redirected_however_they_are_called() -> None:
    class Direct(Packed):
        def forward(self, x: torch.Tensor, state: torch.Tensor) -> Any:
            weights = list(self.gru.parameters())
            options = (weights, True, 1, 0.0, False, False, False)
            return torch.gru(x, state, *options), torch.ops.aten.gru.input(x, state, *options)

    axes = ({0: "length", 1: "batch"}, {1: "batch"})
    found = _captured(Direct(), torch.ones(5, 3, 4), torch.ones(1, 3, 6), dynamic_shapes=axes)
    assert all(str(value.shape[-2]) == "batch" for value in found.source.graph.outputs)


def test_the_data_of_a_packed_sequence_may_be_worked_on() -> None:
    class Doubled(Packed):
        def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
            packed = pack_padded_sequence(x, lengths, enforce_sorted=False)
            doubled = PackedSequence(packed.data * 2, *packed[1:])
            return pad_packed_sequence(self.gru(doubled)[0])[0]

    found = _captured(Doubled(), torch.ones(5, 3, 4), torch.tensor([2, 5, 1]))
    assert "_pack_padded_sequence" in [node.op_type for node in found.source.graph]
