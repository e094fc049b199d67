"""Replaces a loop by LSTM, GRU or RNN, if its iterations compute the cell of the operator.

Every result of an iteration must be a result of the operator. A layer with a mask, a projection or clipped
cells, and element types other than FLOAT, for which onnxruntime has no kernel, stay a loop.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from ....registration import DataType, GraphContext, Value
from ....registration.arguments import arguments
from ...compositions.initial_states import drop_zero_state
from ...compositions.list_values import part
from ...compositions.outputs import is_used
from ...compositions.size_arithmetic import Size, compute
from .._common import is_dimension
from ..list_values import Unwritten
from ..loop_variables import WRITES, origin
from .cells import Cell, find_cell
from .expressions import Weights
from .iteration import Given, read_iteration

_WITH_ALPHA = frozenset({"Affine", "Elu", "HardSigmoid", "LeakyRelu"})
_WITH_BETA = frozenset({"Affine", "HardSigmoid"})
_DEFAULT_ACTIVATIONS = {"LSTM": ["Sigmoid", "Tanh", "Tanh"], "GRU": ["Sigmoid", "Tanh"], "RNN": ["Tanh"]}
_BACKWARDS = frozenset({"Slice", "Gather"})
_FROM_TENSOR = {"TensorListFromTensor": "tensor", "TensorArrayScatterV3": "value"}


def recurrent_layer(
    g: GraphContext,
    body: ir.Graph,
    given: Sequence[Given],
    changed: Sequence[int],
    scanned: Sequence[int],
    trips: Size,
) -> dict[int, Value] | None:
    """The final values of the changed variables of a counting loop; None if it is not a recurrent layer.

    Args:
        given: its variables before it.
        changed: the positions of those that are carried from one iteration to the next.
        scanned: the positions of the lists of which each iteration writes its own element.
        trips: the number of iterations.
    """
    items = {place: _written(body, place) for place in (*changed, *scanned)}
    last = [place for place in changed if items[place] is not None]
    states = [place for place in changed if items[place] is None]
    iteration = read_iteration(g, body, given) if len(states) in (1, 2) else None
    if iteration is None or iteration.sequence is None:
        return None
    cell = find_cell(iteration.algebra, states, iteration.results)
    sequence = given[iteration.sequence].value
    if cell is None or sequence.dtype != DataType.FLOAT or isinstance(sequence, Unwritten):
        return None
    hidden = iteration.results[cell.states[0]]
    written = [items[place] for place in (*last, *scanned)]
    if any(item is None or iteration.terms.get(item) is not hidden for item in written):
        return None
    if not all(_is_single(g, body, place, given[place].value) for place in last):
        return None
    initial = [drop_zero_state(g, given[place].value) for place in cell.states]
    if not all(state is None or _fits(state, sequence) for state in initial):
        return None
    x, backwards = sequence, None
    if sequence.shape is None or not is_dimension(trips, sequence.shape[0]):
        x = part(g, sequence, 0, compute(g, "max", trips, 0))
    elif not is_used(g, *scanned):
        backwards = _unreversed(g, iteration.sequence, sequence)
    results = _operator(g, cell, x if backwards is None else backwards, initial, backwards is not None)
    found = {
        place: g.op("Squeeze", value, axes=[0])
        for place, value in zip(cell.states, results[1:], strict=True)
        if is_used(g, place)
    }
    found |= {place: g.op("Squeeze", results[0], axes=[1]) for place in scanned if is_used(g, place)}
    return found | dict.fromkeys(last, results[1])


def _written(body: ir.Graph, place: int) -> Value | None:
    """The element that an iteration writes to a list; None for other variables."""
    node = origin(body.outputs[place]).producer()
    names = WRITES.get(node.op_type) if node is not None else None
    if node is None or names is None or origin(arguments(node)[names[0]]) is not body.inputs[place]:
        return None
    result: Value | None = arguments(node)["item" if node.op_type == "TensorListSetItem" else "value"]
    return result


def _is_single(g: GraphContext, body: ir.Graph, place: int, value: Value) -> bool:
    """Whether an iteration overwrites the only element of a list."""
    node = origin(body.outputs[place]).producer()
    assert node is not None
    index = arguments(node)[WRITES[node.op_type][1]]
    position = index.const_value
    return (
        isinstance(value, Unwritten)
        and value.count == 1
        and position is not None
        and position.size == 1
        and int(position.numpy().item()) == 0
    )


def _fits(state: Value, sequence: Value) -> bool:
    """Whether a state is a matrix that may have the batch size of the sequences."""
    if state.shape is None or len(state.shape) != 2 or state.dtype != DataType.FLOAT:
        return False
    batch = None if sequence.shape is None or len(sequence.shape) != 3 else sequence.shape[1]
    # TensorFlow would broadcast a state of one row.
    return state.shape[0] != 1 or batch == 1


def _unreversed(g: GraphContext, place: int, sequence: Value) -> Value | None:
    """The original of a sequence that was reversed along time for a loop; None if it was not."""
    assert g.node is not None
    source = g.node.inputs[place]
    for names in (_FROM_TENSOR, {"ReverseV2": "tensor"}):
        node = None if source is None else origin(source).producer()
        if node is None or node.op_type not in names:
            return None
        given = arguments(node)
        if node.op_type == "ReverseV2":
            axes = given["axis"].const_value
            if axes is None or axes.numpy().reshape(-1).tolist() != [0]:
                return None
        source = given[names[node.op_type]]
    made = sequence.producer()
    if made is None or made.op_type not in _BACKWARDS:
        return None
    original = made.inputs[0]
    return original if original is not None and original.shape == sequence.shape else None


def _operator(
    g: GraphContext, cell: Cell, x: Value, initial: Sequence[Value | None], backwards: bool
) -> list[Value]:
    """Y [length, 1, batch, units], Y_h and Y_c [1, batch, units]."""
    states = [None if state is None else g.op("Unsqueeze", state, axes=[0]) for state in initial]
    names = [name for name, _, _ in cell.activations]
    alphas = [alpha for name, alpha, _ in cell.activations if name in _WITH_ALPHA]
    betas = [beta for name, _, beta in cell.activations if name in _WITH_BETA]
    peepholes = None
    if any(gate.peephole is not None for gate in cell.gates):
        parts = [_vector(g, [gate.peephole] if gate.peephole else [], cell.units) for gate in cell.gates[:3]]
        peepholes = g.op("Unsqueeze", g.op("Concat", *parts, axis=0), axes=[0])
    options = {"P": peepholes} if peepholes is not None else {}
    results = g.op(
        cell.op_type,
        x,
        _matrices(g, [gate.input for gate in cell.gates]),
        _matrices(g, [gate.hidden for gate in cell.gates]),
        _biases(g, cell),
        **dict(zip(("initial_h", "initial_c"), states, strict=False)),
        **options,
        hidden_size=cell.units,
        direction="reverse" if backwards else None,
        activations=names if names != _DEFAULT_ACTIVATIONS[cell.op_type] else None,
        activation_alpha=alphas or None,
        activation_beta=betas or None,
        linear_before_reset=cell.linear_before_reset,
        outputs=1 + len(states),
    )
    length, batch = (None, None) if x.shape is None else x.shape[:2]
    results[0].shape = ir.Shape([length, 1, batch, cell.units])
    for state in results[1:]:
        state.shape = ir.Shape([1, batch, cell.units])
    result: list[Value] = results
    return result


def _matrices(g: GraphContext, parts: Sequence[Weights]) -> Value:
    """Stack the matrices of the gates, [rows, units], to [1, gates * units, rows]."""
    joined = [_block(g, part) for part in parts]
    whole = joined[0] if len(joined) == 1 else g.op("Concat", *joined, axis=1)
    return g.op("Unsqueeze", g.op("Transpose", whole, perm=[1, 0]), axes=[0])


def _biases(g: GraphContext, cell: Cell) -> Value | None:
    """The biases of all gates, those of the input first; None if no gate has one."""
    if not any(gate.input_biases or gate.hidden_biases for gate in cell.gates):
        return None
    vectors = [_vector(g, gate.input_biases, cell.units) for gate in cell.gates]
    vectors += [_vector(g, gate.hidden_biases, cell.units) for gate in cell.gates]
    return g.op("Unsqueeze", g.op("Concat", *vectors, axis=0), axes=[0])


def _vector(g: GraphContext, terms: Sequence[Weights | float], units: int) -> Value:
    """The sum of vectors and numbers."""
    number = sum(term for term in terms if isinstance(term, float))
    vectors = [_block(g, term) for term in terms if isinstance(term, Weights)]
    if not vectors:
        g.reserve(units)
        return g.constant(np.full(units, number, dtype=np.float32))
    total = vectors[0]
    for vector in vectors[1:]:
        total = g.op("Add", total, vector)
    return g.op("Add", total, number) if number else total


def _block(g: GraphContext, weights: Weights) -> Value:
    """Slice a block of a tensor."""
    value, sizes = weights.value, g.shape(weights.value) or ()
    cut = [axis for axis, ends in enumerate(weights.ranges) if ends != (0, sizes[axis])]
    if cut:
        begins, ends = zip(*(weights.ranges[axis] for axis in cut), strict=True)
        value = g.op("Slice", value, starts=list(begins), ends=list(ends), axes=cut)
    dropped = [axis for axis in range(len(sizes)) if axis not in weights.axes]
    return g.op("Squeeze", value, axes=dropped) if dropped else value
