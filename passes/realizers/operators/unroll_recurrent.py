"""Unrolls LSTM, GRU and RNN into the operators of each step, which share the weights.

1. The length of the sequence is known: dimension 0 of X (dimension 1 with `layout=1`).
2. Every step reads the same weights: one initializer per direction, however many nodes read the weight.
3. All directions, peepholes, missing biases and states, `linear_before_reset`, `clip`, and the activations
   with the default values of their parameters. Other attributes are refused by name: `input_forget`,
   `activation_alpha`, `activation_beta`, and so is `sequence_lens`, unless it is constant and all sequences
   are whole.
4. For a target only the operators that it lacks are unrolled, and a node that cannot be unrolled stays.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection

import numpy as np
import onnx_ir as ir

from ....registration import GraphContext, GraphError
from ....registration.arguments import graphs_of
from ...onnx_graph.simplification.unused_nodes import RemoveUnused
from ..rewriting import Rewriter, attribute, constant_of, is_onnx, title

_GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
_ACTIVATIONS = {"LSTM": ["Sigmoid", "Tanh", "Tanh"], "GRU": ["Sigmoid", "Tanh"], "RNN": ["Tanh"]}
_ACTIVATION_NAMES = {
    name.lower(): name
    for name in ("Elu", "HardSigmoid", "LeakyRelu", "Relu", "Sigmoid", "Softplus", "Softsign", "Tanh")
}
"""The activations whose parameters have the same defaults as the operators of these names."""
OPERATORS_OF_STEPS = frozenset(
    ("Add", "Concat", "Gather", "Gemm", "Mul", "Sigmoid", "Split", "Sub", "Tanh", "Unsqueeze")
)
"""What the steps of a node with the usual activations, constant weights and a known batch consist of."""
_NODES_OF_STEP = {"LSTM": 20, "GRU": 24, "RNN": 6}
"""An upper bound for the number of nodes of one step."""
_REFUSED = ("activation_alpha", "activation_beta")
_WEIGHTS = dict[tuple[ir.Value, int, int, int], ir.Value]


@dataclasses.dataclass(frozen=True)
class _UnrolledCell:
    """One direction of a recurrent operator.

    Attributes:
        weight, bias: of the product with the input, [gates * hidden, inputs] and [gates * hidden].
        recurrences: weight and bias of the products with the state: one for all gates, or, for a GRU that
            resets first, one for two gates and one for the candidate.
        peepholes: those of the input, output and forget gates, or empty.
        functions: the names of the activations.
        clip: the bound of what the activations read; None for none.
    """

    op_type: str
    hidden: int
    weight: ir.Value
    bias: ir.Value
    recurrences: tuple[tuple[ir.Value, ir.Value], ...]
    peepholes: tuple[ir.Value, ...]
    functions: list[str]
    clip: float | None

    def activate(self, g: GraphContext, number: int, value: ir.Value) -> ir.Value:
        """Apply an activation to a value, which `clip` bounds."""
        if self.clip is not None:
            value = g.op("Clip", value, min=-self.clip, max=self.clip)
        result: ir.Value = g.op(self.functions[number], value)
        return result


class UnrollRecurrent(ir.passes.InPlacePass):
    """Unrolls the recurrent operators of the main graph and its sub-graphs."""

    def __init__(
        self,
        op_types: Collection[str] = tuple(_GATES),
        keeps_refused: bool = False,
        is_chosen: Callable[[ir.Node], bool] = lambda _: True,
    ):
        """Make the pass.

        Args:
            op_types: some of LSTM, GRU and RNN.
            is_chosen: whether a node of these operators is unrolled.
            keeps_refused: whether a node that cannot be unrolled stays, instead of raising an error.
        """
        super().__init__()
        self._op_types = op_types
        self._keeps_refused = keeps_refused
        self._is_chosen = is_chosen

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Rewrite the model and report whether anything changed.

        Raises:
            GraphError: the length of a sequence is unknown, or an attribute is not supported, and such nodes
                do not stay.
        """
        nodes = [
            node
            for graph in graphs_of(model.graph)
            for node in graph
            if is_onnx(node, *self._op_types) and self._is_chosen(node)
        ]
        if not nodes:
            return ir.passes.PassResult(model, False)
        rewriter, weights, modified = Rewriter(model), _WEIGHTS(), False
        for node in nodes:
            try:
                _Unrolling(rewriter, weights, node).unroll()
            except GraphError:
                if not self._keeps_refused:
                    raise
            else:
                modified = True
        RemoveUnused()(model)
        return ir.passes.PassResult(model, modified)


class _Unrolling:
    """The unrolling of one node."""

    def __init__(self, rewriter: Rewriter, weights: _WEIGHTS, node: ir.Node):
        self._rewriter = rewriter
        self._weights = weights
        self._node = node
        self._inputs = [*node.inputs, *[None] * (8 - len(node.inputs))]
        self._batch_first = bool(attribute(node, "layout", 0))
        direction = attribute(node, "direction", "forward")
        self._directions = 2 if direction == "bidirectional" else 1
        self._reversed = [direction == "reverse"] if self._directions == 1 else [False, True]
        self._hidden = self._hidden_size()
        self._dtype = self._inputs[0].dtype if self._inputs[0] is not None else None

    def unroll(self) -> None:
        """Replace the node by its steps."""
        node = self._node
        self._check()
        length = self._length()
        # Refuse before anything is built: a long sequence makes millions of nodes.
        self._rewriter.count(length * self._directions * _NODES_OF_STEP[node.op_type], node)
        per_direction = [self._run(number, length) for number in range(self._directions)]
        with self._rewriter.before(node) as g:
            results = self._results(g, per_direction)
        self._rewriter.replace(node, results)

    def _check(self) -> None:
        node = self._node
        for name in _REFUSED:
            if attribute(node, name):
                raise GraphError(
                    f"{title(node)} has the attribute '{name}', which unroll-recurrent does not support"
                )
        if attribute(node, "input_forget", 0):
            raise GraphError(
                f"{title(node)} has the attribute 'input_forget', which unroll-recurrent does not support"
            )
        lengths = None if self._inputs[4] is None else constant_of(self._inputs[4])
        has_whole_sequences = lengths is not None and (lengths.numpy() == self._length()).all()
        if self._inputs[4] is not None and not has_whole_sequences:
            raise GraphError(
                f"{title(node)} has sequence_lens: sequences of different lengths cannot be unrolled"
            )
        if self._dtype is None:
            raise GraphError(f"the element type of X of {title(node)} is unknown")

    def _length(self) -> int:
        x = self._inputs[0]
        size = None if x is None or x.shape is None else x.shape[1 if self._batch_first else 0]
        if not isinstance(size, int):
            description = "unknown" if size is None or size.value is None else f"'{size.value}'"
            raise GraphError(
                f"the sequence length of {title(self._node)} is {description}: give the input a fixed size"
            )
        if size == 0:
            raise GraphError(f"the sequence of {title(self._node)} is empty")
        return size

    def _hidden_size(self) -> int:
        recurrence = self._inputs[2]
        size = attribute(self._node, "hidden_size")
        if size is None and recurrence is not None and recurrence.shape is not None:
            size = recurrence.shape[2]
        if not isinstance(size, int):
            raise GraphError(f"the hidden size of {title(self._node)} is unknown")
        return size

    def _run(self, number: int, length: int) -> tuple[list[ir.Value], list[ir.Value]]:
        """Emit the steps of a direction; the states of each step in the order of time, and the last ones."""
        name = self._node.name or self._node.outputs[0].name or self._node.op_type
        direction = "reverse" if self._reversed[number] else "forward"
        with self._rewriter.before(self._node) as g:
            cell = self._cell(g, number)
            states = [
                self._initial(g, input_index, number)
                for input_index in (5, 6)[: 1 + (cell.op_type == "LSTM")]
            ]
        steps: list[ir.Value | None] = [None] * length
        x = self._inputs[0]
        times = range(length - 1, -1, -1) if self._reversed[number] else range(length)
        for time in times:
            with self._rewriter.before(self._node, f"{name}/{direction}_{time}") as g:
                step = g.op("Gather", x, time, axis=1 if self._batch_first else 0)
                states = _STEPS[cell.op_type](g, cell, step, *states)
                steps[time] = states[0]
        return [state for state in steps if state is not None], states

    def _cell(self, g: GraphContext, number: int) -> _UnrolledCell:
        size = self._hidden
        gates = _GATES[self._node.op_type]
        resets_first = self._node.op_type == "GRU" and not attribute(self._node, "linear_before_reset", 0)
        ranges = [(0, 2), (2, 3)] if resets_first else [(0, gates)]
        recurrences = [
            (
                self._part(g, 2, number, size * start, size * end),
                self._bias(g, number, size * (gates + start), size * (gates + end)),
            )
            for start, end in ranges
        ]
        count = 3 if self._node.op_type == "LSTM" and self._inputs[7] is not None else 0
        return _UnrolledCell(
            self._node.op_type,
            size,
            self._part(g, 1, number, 0, gates * size),
            self._bias(g, number, 0, gates * size),
            tuple(recurrences),
            tuple(self._part(g, 7, number, size * gate, size * (gate + 1)) for gate in range(count)),
            self._functions(number),
            attribute(self._node, "clip"),
        )

    def _bias(self, g: GraphContext, number: int, start: int, end: int) -> ir.Value:
        if self._inputs[3] is None:
            return g.constant(np.zeros(end - start, self._numpy()))
        return self._part(g, 3, number, start, end)

    def _part(self, g: GraphContext, input_index: int, number: int, start: int, end: int) -> ir.Value:
        """The rows of a weight from start to end, of one direction."""
        value = self._inputs[input_index]
        if value is None:
            raise GraphError(f"{title(self._node)} lacks input {input_index}, which it needs")
        tensor = constant_of(value)
        if tensor is None:
            matrix = g.op("Gather", value, number, axis=0)
            whole = value.shape is not None and (start, end) == (0, value.shape[1])
            return matrix if whole else g.op("Slice", matrix, starts=[start], ends=[end], axes=[0])
        # Layers that share a weight share its slices too.
        key = (value, number, start, end)
        if key not in self._weights:
            stem = f"{value.name}_{number}_{start}"
            self._weights[key] = self._rewriter.initializer(stem, _rows(tensor, number, start, end))
        return self._weights[key]

    def _initial(self, g: GraphContext, input_index: int, number: int) -> ir.Value:
        """The state [batch, hidden] before the first step."""
        value = self._inputs[input_index]
        if value is not None:
            return g.op("Gather", value, number, axis=1 if self._batch_first else 0)
        x = self._inputs[0]
        assert x is not None
        batch = g.size(x, 0 if self._batch_first else 1)
        if isinstance(batch, int):
            return g.constant(np.zeros((batch, self._hidden), self._numpy()))
        # The batch size is unknown, so the zeros are expanded to it at run time.
        zero = g.constant(np.zeros((1, 1), self._numpy()))
        return g.op("Expand", zero, g.stack([batch, self._hidden]))

    def _numpy(self) -> np.dtype:
        assert self._dtype is not None
        return self._dtype.numpy()

    def _functions(self, number: int) -> list[str]:
        defaults = _ACTIVATIONS[self._node.op_type]
        activations = attribute(self._node, "activations") or defaults * self._directions
        if len(activations) != len(defaults) * self._directions:
            raise GraphError(f"{title(self._node)} has {len(activations)} activations")
        texts = [name.decode() if isinstance(name, bytes) else name for name in activations]
        names = [_ACTIVATION_NAMES.get(text.lower()) for text in texts]
        for text, name in zip(texts, names, strict=True):
            if name is None:
                raise GraphError(
                    f"{title(self._node)} has the activation '{text}', which unroll-recurrent does not "
                    "support"
                )
        return [name for name in names if name is not None][
            len(defaults) * number : len(defaults) * (number + 1)
        ]

    def _results(
        self, g: GraphContext, per_direction: list[tuple[list[ir.Value], list[ir.Value]]]
    ) -> list[ir.Value | None]:
        """The values of the node's outputs; None for those that nothing reads."""
        results: list[ir.Value | None] = []
        for output_index, output in enumerate(self._node.outputs):
            if not (output.uses() or output.is_graph_output()):
                results.append(None)
            elif output_index == 0:
                # [time, directions, batch, hidden], or [batch, time, directions, hidden]
                along = 1 if self._batch_first else 0
                steps = [
                    _concatenate(g, [g.op("Unsqueeze", step, axes=[along]) for step in step_states], along)
                    for step_states, _ in per_direction
                ]
                axis = 2 if self._batch_first else 1
                results.append(_concatenate(g, [g.op("Unsqueeze", s, axes=[axis]) for s in steps], axis))
            else:
                axis = 1 if self._batch_first else 0
                last = [
                    g.op("Unsqueeze", states[output_index - 1], axes=[axis]) for _, states in per_direction
                ]
                results.append(_concatenate(g, last, axis))
        return results


def _concatenate(g: GraphContext, values: list[ir.Value], axis: int) -> ir.Value:
    return values[0] if len(values) == 1 else g.op("Concat", *values, axis=axis)


def _rows(tensor: ir.TensorProtocol, number: int, start: int, end: int) -> ir.TensorProtocol:
    """The rows of a direction, read when they are needed."""
    shape = ir.Shape([end - start, *tensor.shape.numpy()[2:]])
    return ir.LazyTensor(
        lambda: ir.Tensor(np.ascontiguousarray(tensor.numpy()[number, start:end]), dtype=tensor.dtype),
        dtype=tensor.dtype,
        shape=shape,
    )


def _gates(g: GraphContext, cell: _UnrolledCell, value: ir.Value, count: int) -> list[ir.Value]:
    result: list[ir.Value] = g.op("Split", value, axis=1, split=[cell.hidden] * count, outputs=count)
    return result


def _product(g: GraphContext, x: ir.Value, weight: ir.Value, bias: ir.Value) -> ir.Value:
    return g.op("Gemm", x, weight, bias, transB=1)


def _sum(g: GraphContext, cell: _UnrolledCell, x: ir.Value, h: ir.Value) -> ir.Value:
    return g.op("Add", _product(g, x, cell.weight, cell.bias), _product(g, h, *cell.recurrences[0]))


def _lstm(g: GraphContext, cell: _UnrolledCell, x: ir.Value, h: ir.Value, c: ir.Value) -> list[ir.Value]:
    # ONNX stores the gates in the order i, o, f, c.
    i, o, forget, candidate = _gates(g, cell, _sum(g, cell, x, h), 4)
    if cell.peepholes:
        i = g.op("Add", i, g.op("Mul", cell.peepholes[0], c))
        forget = g.op("Add", forget, g.op("Mul", cell.peepholes[2], c))
    kept_state = g.op("Mul", cell.activate(g, 0, forget), c)
    new_state = g.op("Add", kept_state, g.op("Mul", cell.activate(g, 0, i), cell.activate(g, 1, candidate)))
    if cell.peepholes:
        o = g.op("Add", o, g.op("Mul", cell.peepholes[1], new_state))
    # onnxruntime and OpenVINO bound the gates, and not the state, although the schema says "the input of
    # activations".
    return [g.op("Mul", cell.activate(g, 0, o), g.op(cell.functions[2], new_state)), new_state]


def _gru(g: GraphContext, cell: _UnrolledCell, x: ir.Value, h: ir.Value) -> list[ir.Value]:
    # ONNX stores the gates in the order z, r, h.
    z, r, candidate = _gates(g, cell, _product(g, x, cell.weight, cell.bias), 3)
    state_product = _product(g, h, *cell.recurrences[0])
    resets_first = len(cell.recurrences) > 1
    old_z, old_r, *old_candidate = _gates(g, cell, state_product, 2 if resets_first else 3)
    z = cell.activate(g, 0, g.op("Add", z, old_z))
    r = cell.activate(g, 0, g.op("Add", r, old_r))
    # `linear_before_reset` = 0 resets the state before its product, 1 resets the product.
    if resets_first:
        recurrent = _product(g, g.op("Mul", r, h), *cell.recurrences[1])
    else:
        recurrent = g.op("Mul", r, old_candidate[0])
    candidate = cell.activate(g, 1, g.op("Add", candidate, recurrent))
    update = g.op("Mul", g.op("Sub", g.constant(1, x.dtype), z), candidate)
    return [g.op("Add", update, g.op("Mul", z, h))]


def _rnn(g: GraphContext, cell: _UnrolledCell, x: ir.Value, h: ir.Value) -> list[ir.Value]:
    return [cell.activate(g, 0, _sum(g, cell, x, h))]


_STEPS: dict[str, Callable[..., list[ir.Value]]] = {"LSTM": _lstm, "GRU": _gru, "RNN": _rnn}
