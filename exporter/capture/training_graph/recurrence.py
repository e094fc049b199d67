"""Recurrent layers with derivatives over a sequence of any length: scans forward and backward.

Autograd runs torch's recurrent layers step by step, which fixes the sequence length. Here the steps are
`torch.ops.higher_order.scan`, which has one body for all of them. The formulas are those of `torch.nn.LSTM`,
`torch.nn.GRU` and `torch.nn.RNN`; the derivatives are written by hand, so that the gradient of a weight is
one matrix product over all steps instead of a sum of products.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor

Tensors: TypeAlias = Sequence[Tensor]
Step: TypeAlias = Callable[..., list[Tensor]]
"""Maps carried tensors, a slice of each sequence and constants to carried tensors and results to stack."""
Direction: TypeAlias = Callable[[Tensor, Tensors, Tensors, Tensors], tuple[Tensor, ...]]
"""Maps inputs, first states, weights and biases to the states of all steps and the last states."""


class _Context(Protocol):
    """What torch passes to the methods of an `autograd.Function`."""

    saved_tensors: tuple[Tensor, ...]

    def save_for_backward(self, *tensors: Tensor) -> None:
        """Keep tensors for the backward pass."""


def _scan(step: Step, carried: Tensors, sequences: Tensors, constants: Tensors) -> list[Tensor]:
    """The last carried tensors, and the stacked results of all steps."""
    return list(torch.ops.higher_order.scan(step, list(carried), list(sequences), tuple(constants)))


def _backward_scan(step: Step, carried: Tensors, sequences: Tensors, constants: Tensors) -> list[Tensor]:
    """A scan from the last step to the first."""
    results = _scan(step, carried, [sequence.flip(0) for sequence in sequences], constants)
    count = len(carried)
    return [*results[:count], *(result.flip(0) for result in results[count:])]


def _earlier(first: Tensor, states: Tensor) -> Tensor:
    """The state before each step."""
    return torch.cat([first.unsqueeze(0), states[:-1]])


def _weight_gradient(outputs: Tensor, inputs: Tensor) -> Tensor:
    """The gradient of the weight of a linear layer that runs in each step."""
    return outputs.flatten(0, 1).t() @ inputs.flatten(0, 1)


class _Lstm(torch.autograd.Function):
    """The steps of an LSTM: gates `[time, batch, 4 * hidden]` to states `[time, batch, size]`."""

    @staticmethod
    def forward(
        ctx: _Context,
        inputs: Tensor,
        first_h: Tensor,
        first_c: Tensor,
        weight: Tensor,
        *projection: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """The states of all steps, and the last cell state."""

        def step(h: Tensor, c: Tensor, gate: Tensor, weight: Tensor, *projection: Tensor) -> list[Tensor]:
            i, f, g, o = (gate + h @ weight.t()).chunk(4, 1)
            i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
            c = f * c + i * g
            h = o * c.tanh()
            if projection:
                h = h @ projection[0].t()
            # A scan refuses results that share memory with what it carries.
            return [h, c, h.clone(), c.clone(), torch.cat([i, f, g, o], 1)]

        constants = [weight, *projection]
        _, last_c, states, cells, gates = _scan(step, [first_h, first_c], [inputs], constants)
        ctx.save_for_backward(first_h, first_c, states, cells, gates, weight, *projection)
        return states, last_c

    @staticmethod
    def backward(ctx: _Context, of_states: Tensor, of_last_c: Tensor) -> tuple[Tensor | None, ...]:
        """The gradients of the gates, the first states and the weights."""
        first_h, first_c, states, cells, gates, weight, *projection = ctx.saved_tensors

        def step(
            dh: Tensor,
            dc: Tensor,
            of_state: Tensor,
            gate: Tensor,
            c: Tensor,
            earlier_c: Tensor,
            weight: Tensor,
            *projection: Tensor,
        ) -> list[Tensor]:
            i, f, g, o = gate.chunk(4, 1)
            dh = dh + of_state
            of_output = dh @ projection[0] if projection else dh
            c = c.tanh()
            dc = dc + of_output * o * (1.0 - c * c)
            of_gates = torch.cat(
                [
                    dc * g * i * (1.0 - i),
                    dc * earlier_c * f * (1.0 - f),
                    dc * i * (1.0 - g * g),
                    of_output * c * o * (1.0 - o),
                ],
                1,
            )
            return [of_gates @ weight, dc * f, of_gates, dh]

        sequences = [of_states, gates, cells, _earlier(first_c, cells)]
        start = [torch.zeros_like(first_h), of_last_c.clone()]
        of_h, of_c, of_gates, of_all_states = _backward_scan(step, start, sequences, [weight, *projection])
        of_weight = _weight_gradient(of_gates, _earlier(first_h, states))
        if not projection:
            return of_gates, of_h, of_c, of_weight
        outputs = gates.chunk(4, 2)[3] * cells.tanh()
        return of_gates, of_h, of_c, of_weight, _weight_gradient(of_all_states, outputs)


class _Gru(torch.autograd.Function):
    """The steps of a GRU: gates `[time, batch, 3 * hidden]` to states `[time, batch, hidden]`."""

    @staticmethod
    def forward(
        ctx: _Context,
        inputs: Tensor,
        first_h: Tensor,
        weight: Tensor,
        *bias: Tensor,
    ) -> Tensor:
        """The states of all steps."""

        def step(h: Tensor, gate: Tensor, weight: Tensor, *bias: Tensor) -> list[Tensor]:
            of_input, of_state = gate.chunk(3, 1), F.linear(h, weight, *bias).chunk(3, 1)
            r = (of_input[0] + of_state[0]).sigmoid()
            z = (of_input[1] + of_state[1]).sigmoid()
            n = (of_input[2] + of_state[2] * r).tanh()
            h = (h - n) * z + n
            # A scan refuses results that share memory with what it carries.
            return [h, h.clone(), torch.cat([r, z, n, of_state[2]], 1)]

        _, states, gates = _scan(step, [first_h], [inputs], [weight, *bias])
        ctx.save_for_backward(first_h, states, gates, weight, *bias)
        return states

    @staticmethod
    def backward(ctx: _Context, of_states: Tensor) -> tuple[Tensor | None, ...]:
        """The gradients of the gates, the first state, the weight and the bias."""
        first_h, states, gates, weight, *bias = ctx.saved_tensors

        def step(dh: Tensor, of_state: Tensor, gate: Tensor, earlier: Tensor, weight: Tensor) -> list[Tensor]:
            r, z, n, of_hidden = gate.chunk(4, 1)
            dh = dh + of_state
            dn = dh * (1.0 - z) * (1.0 - n * n)
            dr = dn * of_hidden * r * (1.0 - r)
            dz = dh * (earlier - n) * z * (1.0 - z)
            of_product = torch.cat([dr, dz, dn * r], 1)
            return [dh * z + of_product @ weight, torch.cat([dr, dz, dn], 1), of_product]

        earlier = _earlier(first_h, states)
        start = [torch.zeros_like(first_h)]
        of_h, of_inputs, of_products = _backward_scan(step, start, [of_states, gates, earlier], [weight])
        of_bias = [of_products.sum((0, 1))] if bias else []
        return of_inputs, of_h, _weight_gradient(of_products, earlier), *of_bias


class _Rnn(torch.autograd.Function):
    """The steps of an Elman network: inputs `[time, batch, hidden]` to states of this shape."""

    @staticmethod
    def forward(
        ctx: _Context,
        inputs: Tensor,
        first_h: Tensor,
        weight: Tensor,
        is_relu: bool,
    ) -> Tensor:
        """The states of all steps."""

        def step(h: Tensor, gate: Tensor, weight: Tensor) -> list[Tensor]:
            total = gate + h @ weight.t()
            h = total.relu() if is_relu else total.tanh()
            return [h, h.clone()]

        _, states = _scan(step, [first_h], [inputs], [weight])
        slopes = (states > 0).to(states.dtype) if is_relu else 1.0 - states * states
        ctx.save_for_backward(first_h, weight, states, slopes)
        return states

    @staticmethod
    def backward(ctx: _Context, of_states: Tensor) -> tuple[Tensor | None, ...]:
        """The gradients of the inputs, the first state and the weight."""
        first_h, weight, states, slopes = ctx.saved_tensors

        def step(dh: Tensor, of_state: Tensor, slope: Tensor, weight: Tensor) -> list[Tensor]:
            of_total = (dh + of_state) * slope
            return [of_total @ weight, of_total]

        start = [torch.zeros_like(first_h)]
        of_h, of_inputs = _backward_scan(step, start, [of_states, slopes], [weight])
        return of_inputs, of_h, _weight_gradient(of_inputs, _earlier(first_h, states)), None


_lstm_steps: Callable[..., tuple[Tensor, Tensor]] = _Lstm.apply
_gru_steps: Callable[..., Tensor] = _Gru.apply
_rnn_steps: Callable[..., Tensor] = _Rnn.apply


def _lstm_direction(x: Tensor, first: Tensors, weights: Tensors, biases: Tensors) -> tuple[Tensor, ...]:
    """The states of one direction of an LSTM, then the last state and the last cell state."""
    inputs = F.linear(x, weights[0], biases[0] + biases[1] if biases else None)
    states, last_c = _lstm_steps(inputs, *first, *weights[1:])
    return states, states[-1], last_c


def _gru_direction(x: Tensor, first: Tensors, weights: Tensors, biases: Tensors) -> tuple[Tensor, ...]:
    """The states of one direction of a GRU, then the last one."""
    inputs = F.linear(x, weights[0], biases[0] if biases else None)
    states = _gru_steps(inputs, *first, weights[1], *biases[1:])
    return states, states[-1]


def _rnn_direction(
    is_relu: bool, x: Tensor, first: Tensors, weights: Tensors, biases: Tensors
) -> tuple[Tensor, ...]:
    """The states of one direction of an Elman network, then the last one."""
    inputs = F.linear(x, weights[0], biases[0] + biases[1] if biases else None)
    states = _rnn_steps(inputs, *first, weights[1], is_relu)
    return states, states[-1]


def _run_layers(
    direction: Direction,
    input: Tensor,
    hx: Tensor | Tensors,
    params: Tensors,
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[Tensor, ...]:
    """The result of ATen's recurrent operators: the states of the last layer, then the last states of all.

    Args:
        direction: runs one direction of a layer.
    """
    # The state of an LSTM is two tensors, that of other layers is one.
    first_states = [hx] if isinstance(hx, Tensor) else hx
    directions = 2 if bidirectional else 1
    per_direction = len(params) // (num_layers * directions)
    x = input.transpose(0, 1) if batch_first else input
    last: list[list[Tensor]] = [[] for _ in first_states]
    for layer in range(num_layers):
        outputs = []
        for side in range(directions):
            number = layer * directions + side
            parameters = params[number * per_direction : (number + 1) * per_direction]
            # A projection comes after the biases.
            weights, biases = (
                (*parameters[:2], *parameters[2 + 2 * has_biases :]),
                parameters[2 : 2 + 2 * has_biases],
            )
            first = [state[number] for state in first_states]
            states, *final = direction(x.flip(0) if side else x, first, weights, biases)
            outputs.append(states.flip(0) if side else states)
            for index, state in enumerate(final):
                last[index].append(state)
        x = torch.cat(outputs, 2) if bidirectional else outputs[0]
        if dropout and train and layer < num_layers - 1:
            x = F.dropout(x, dropout)
    return x.transpose(0, 1) if batch_first else x, *map(torch.stack, last)


_ATEN = torch.ops.aten
_DIRECTIONS: dict[object, Direction] = {
    _ATEN.lstm.input: _lstm_direction,
    _ATEN.gru.input: _gru_direction,
    _ATEN.rnn_tanh.input: functools.partial(_rnn_direction, False),
    _ATEN.rnn_relu.input: functools.partial(_rnn_direction, True),
}


def differentiable_layer(target: object, arguments: Sequence[object]) -> Callable[..., object] | None:
    """A recurrent operator as scans with derivatives; None for other operators and fixed sequence lengths."""
    direction = _DIRECTIONS.get(target)
    if direction is None or not isinstance(arguments[0], Tensor):
        return None
    batch_first = bool(arguments[8])
    # The steps of a fixed length are captured one by one, which runs faster than a scan.
    length: int | torch.SymInt = arguments[0].shape[1 if batch_first else 0]
    return functools.partial(_run_layers, direction) if isinstance(length, torch.SymInt) else None
