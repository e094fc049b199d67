"""`PackedLSTM`: `torch.nn.LSTM` with packed weights."""

from __future__ import annotations

import operator
from typing import Any, TypeGuard

import torch
from torch.nn.utils.rnn import PackedSequence

from ....registration import UsageError
from ...torch_boundary import onednn
from .packed_layers import PackedLayer
from .packed_operators import packed_lstm_layer

States = tuple[torch.Tensor, torch.Tensor]
_LSTM_ARGUMENTS = 9


class PackedLSTM(torch.nn.Module):
    """`torch.nn.LSTM` with packed weights.

    Attributes:
        directions: for each layer and direction, the packed weights of the input and of the state.
    """

    def __init__(self, layer: torch.nn.LSTM):
        super().__init__()
        self.train(False)
        self.input_size, self.hidden_size, self.num_layers = (
            layer.input_size,
            layer.hidden_size,
            layer.num_layers,
        )
        self.bias, self.batch_first, self.bidirectional = layer.bias, layer.batch_first, layer.bidirectional
        self.dropout, self.proj_size = layer.dropout, layer.proj_size
        self.directions = torch.nn.ModuleList(
            self._pack_direction(layer, index, reverse)
            for index in range(layer.num_layers)
            for reverse in (False, True)[: 1 + layer.bidirectional]
        )

    def _pack_direction(self, layer: torch.nn.LSTM, index: int, reverse: bool) -> torch.nn.ModuleList:
        suffix = f"_l{index}{'_reverse' if reverse else ''}"
        weights = [getattr(layer, f"{name}{suffix}").detach() for name in ("weight_ih", "weight_hh")]
        if layer.bias:
            biases = [getattr(layer, f"{name}{suffix}").detach() for name in ("bias_ih", "bias_hh")]
        else:
            biases = [weights[0].new_zeros(4 * layer.hidden_size) for _ in weights]
        packed = onednn.pack_lstm(weights[0], weights[1], layer.hidden_size, reverse)
        return torch.nn.ModuleList(map(PackedLayer, packed, biases))

    def flatten_parameters(self) -> None:
        """Do nothing: packed weights are always contiguous."""

    def forward(
        self, x: torch.Tensor | PackedSequence, hx: States | None = None
    ) -> tuple[torch.Tensor | PackedSequence, States]:
        """Apply the layer; arguments and results are those of `torch.nn.LSTM`.

        oneDNN has no sequences of different lengths: for a `PackedSequence` the weights are unpacked.
        """
        if isinstance(x, PackedSequence):
            sequences: tuple[PackedSequence, States] = self._plain_layer()(x, hx)
            return sequences
        single = x.dim() == 2
        steps = x.unsqueeze(1) if single else x.transpose(0, 1) if self.batch_first else x
        states = self._initial_states(steps, hx, single)
        last: list[States] = []
        count = 1 + self.bidirectional
        for index in range(self.num_layers):
            results = []
            for direction in range(count):
                number = index * count + direction
                result, h, c = self._run(number, steps, states[0][number], states[1][number])
                results.append(result)
                last.append((h, c))
            steps = torch.cat(results, -1) if self.bidirectional else results[0]
        h, c = (torch.stack(parts) for parts in zip(*last, strict=True))
        if single:
            return steps.squeeze(1), (h.squeeze(1), c.squeeze(1))
        return steps.transpose(0, 1) if self.batch_first else steps, (h, c)

    def _initial_states(self, steps: torch.Tensor, hx: States | None, single: bool) -> States:
        size = (len(self.directions), steps.shape[1], self.hidden_size)
        if hx is None:
            zeros = steps.new_zeros(size)
            return zeros, zeros
        h, c = (state.unsqueeze(1) for state in hx) if single else hx
        if h.shape != size or c.shape != size:
            shapes = " and ".join(str(list(state.shape)) for state in (h, c))
            raise UsageError(f"the states of the LSTM have the shape {list(size)}, not {shapes}")
        return h, c

    def _run(
        self, number: int, x: torch.Tensor, h: torch.Tensor, c: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        input_layer, state_layer = _parts_of(self.directions[number])
        weights = (input_layer.packed, state_layer.packed, input_layer.bias, state_layer.bias)
        reverse = self.bidirectional and number % 2 == 1
        layouts = input_layer.layout, state_layer.layout
        result: tuple[torch.Tensor, torch.Tensor, torch.Tensor] = packed_lstm_layer(
            x, *weights, h, c, reverse, *layouts
        )
        return result

    def _plain_layer(self) -> torch.nn.LSTM:
        """An LSTM with plain copies of the weights."""
        layer = torch.nn.LSTM(
            self.input_size,
            self.hidden_size,
            self.num_layers,
            batch_first=self.batch_first,
            bidirectional=self.bidirectional,
            device="meta",
        )
        for number, parts in enumerate(self.directions):
            index, reverse = divmod(number, 2) if self.bidirectional else (number, 0)
            suffix = f"_l{index}{'_reverse' if reverse else ''}"
            for name, part in zip(("ih", "hh"), _parts_of(parts), strict=True):
                # oneDNN's weight is [1, 1, in, gates, hidden].
                plain = part.weight[0, 0].permute(1, 2, 0).flatten(0, 1).contiguous()
                setattr(layer, f"weight_{name}{suffix}", torch.nn.Parameter(plain, requires_grad=False))
                setattr(layer, f"bias_{name}{suffix}", part.bias)
        return layer.train(False)


def _parts_of(direction: torch.nn.Module) -> tuple[PackedLayer, PackedLayer]:
    """The packed weights of the input and of the state."""
    assert isinstance(direction, torch.nn.ModuleList)
    input_layer, state_layer = direction
    assert isinstance(input_layer, PackedLayer)
    assert isinstance(state_layer, PackedLayer)
    return input_layer, state_layer


class PackedLSTMCall(PackedLSTM):
    """The same as a replacement of the operator `aten::lstm`, with its results."""

    def forward(self, x: torch.Tensor, h: torch.Tensor, c: torch.Tensor) -> tuple[torch.Tensor, ...]:  # type: ignore[override]
        """Apply the layer; the states are those of the operator."""
        result, states = super().forward(x, (h, c))
        assert isinstance(result, torch.Tensor)
        return result, *states


def has_hooks(layer: torch.nn.Module) -> bool:
    """Whether a layer has hooks, which its replacement would lose."""
    return any(
        hooks
        for name, hooks in vars(layer).items()
        if name.endswith("_hooks") and not name.startswith("_state")
    )


def is_packable_lstm(layer: torch.nn.Module) -> TypeGuard[torch.nn.LSTM]:
    """Whether a layer is an LSTM of FLOAT weights on the CPU, without projection."""
    if type(layer) is not torch.nn.LSTM or layer.proj_size or has_hooks(layer):
        return False
    weights = list(layer.parameters())
    is_plain = all(weight.dtype == torch.float32 and weight.device.type == "cpu" for weight in weights)
    return is_plain and onednn.packs_lstm()


def lstm_of_call(module: torch.fx.GraphModule, node: torch.fx.Node) -> torch.nn.LSTM | None:
    """Make the LSTM that a call of `aten::lstm` computes; None for others, and for computed weights."""
    if node.target != torch.ops.aten.lstm.input or len(node.args) != _LSTM_ARGUMENTS:
        return None
    arguments: tuple[Any, ...] = node.args
    _, _, parameters, has_biases, num_layers, _, train, bidirectional, batch_first = arguments
    if train or any(parameter.op != "get_attr" for parameter in parameters):
        return None
    weights = [operator.attrgetter(str(parameter.target))(module).detach() for parameter in parameters]
    names = ["weight_ih", "weight_hh", "bias_ih", "bias_hh"][: 4 if has_biases else 2]
    count = (1 + bool(bidirectional)) * num_layers
    # With a projection, each direction has one weight more.
    if len(weights) != len(names) * count:
        return None
    layer = torch.nn.LSTM(
        weights[0].shape[1],
        weights[1].shape[1],
        num_layers,
        bias=has_biases,
        batch_first=batch_first,
        bidirectional=bidirectional,
        device="meta",
    )
    for position, weight in enumerate(weights):
        number, name = divmod(position, len(names))
        index, reverse = divmod(number, 2) if bidirectional else (number, 0)
        suffix = f"_l{index}{'_reverse' if reverse else ''}"
        setattr(layer, f"{names[name]}{suffix}", torch.nn.Parameter(weight, requires_grad=False))
    return layer.train(False) if is_packable_lstm(layer) else None
