"""Replaces a loop by LSTM, GRU or RNN, if its iterations compute the cell of the operator.

Every result of an iteration must be a result of the operator. A loop with a mask, a projection or clipped
cells stays a loop; so does one with an element type other than FLOAT, for which onnxruntime has no kernel.
"""

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
from ..list_values import UnwrittenList
from ..loop_variables import WRITES, origin
from .cells import RecurrentCell, find_cell
from .expressions import Weights
from .iteration import InitialValue, read_iteration

_WITH_ALPHA = frozenset({"Affine", "Elu", "HardSigmoid", "LeakyRelu"})
_WITH_BETA = frozenset({"Affine", "HardSigmoid"})
_DEFAULT_ACTIVATIONS = {"LSTM": ["Sigmoid", "Tanh", "Tanh"], "GRU": ["Sigmoid", "Tanh"], "RNN": ["Tanh"]}
_REVERSING_OPERATORS = frozenset({"Slice", "Gather"})
_FROM_TENSOR = {"TensorListFromTensor": "tensor", "TensorArrayScatterV3": "value"}


def recurrent_layer(
    g: GraphContext,
    body: ir.Graph,
    initial_values: Sequence[InitialValue],
    carried: Sequence[int],
    scanned: Sequence[int],
    trip_count: Size,
) -> dict[int, Value] | None:
    """The final values of the changed variables of a counting loop; None if it is not a recurrent layer.

    Args:
        initial_values: its variables before the loop.
        carried: the indices of the variables that are carried from one iteration to the next.
        scanned: the indices of the lists to which iteration i writes element i.
        trip_count: the number of iterations.
    """
    written_elements = {position: _written_element(body, position) for position in (*carried, *scanned)}
    overwritten_lists = [position for position in carried if written_elements[position] is not None]
    states = [position for position in carried if written_elements[position] is None]
    # RNN and GRU have one state, LSTM two.
    iteration = read_iteration(g, body, initial_values) if len(states) in (1, 2) else None
    if iteration is None or iteration.sequence is None:
        return None
    cell = find_cell(iteration.algebra, states, iteration.results)
    sequence = initial_values[iteration.sequence].value
    if cell is None or sequence.dtype != DataType.FLOAT or isinstance(sequence, UnwrittenList):
        return None
    hidden = iteration.results[cell.states[0]]
    elements = [written_elements[position] for position in (*overwritten_lists, *scanned)]
    # The operator returns the hidden state of each step, and nothing else of it.
    if any(item is None or iteration.terms.get(item) is not hidden for item in elements):
        return None
    if not all(_is_single(body, position, initial_values[position].value) for position in overwritten_lists):
        return None
    initial = [drop_zero_state(g, initial_values[position].value) for position in cell.states]
    if not all(state is None or _fits(state, sequence) for state in initial):
        return None
    x, backwards = sequence, None
    if sequence.shape is None or not is_dimension(trip_count, sequence.shape[0]):
        # The loop may run fewer times than the sequence has steps.
        x = part(g, sequence, 0, compute(g, "max", trip_count, 0))
    # With direction "reverse" the operator returns all steps in the original order, but the loop in reverse.
    elif not is_used(g, *scanned):
        backwards = _original_sequence(g, iteration.sequence, sequence)
    results = _emit_operator(g, cell, x if backwards is None else backwards, initial, backwards is not None)
    final_values = {
        position: g.op("Squeeze", value, axes=[0])
        for position, value in zip(cell.states, results[1:], strict=True)
        if is_used(g, position)
    }
    final_values |= {
        position: g.op("Squeeze", results[0], axes=[1]) for position in scanned if is_used(g, position)
    }
    return final_values | dict.fromkeys(overwritten_lists, results[1])


def _written_element(body: ir.Graph, position: int) -> Value | None:
    """The element that an iteration writes to a list; None for other variables."""
    node = origin(body.outputs[position]).producer()
    names = WRITES.get(node.op_type) if node is not None else None
    if node is None or names is None or origin(arguments(node)[names[0]]) is not body.inputs[position]:
        return None
    result: Value | None = arguments(node)["item" if node.op_type == "TensorListSetItem" else "value"]
    return result


def _is_single(body: ir.Graph, variable: int, value: Value) -> bool:
    """Whether an iteration overwrites the only element of a list."""
    node = origin(body.outputs[variable]).producer()
    assert node is not None
    index = arguments(node)[WRITES[node.op_type][1]]
    index_tensor = index.const_value
    return (
        isinstance(value, UnwrittenList)
        and value.count == 1
        and index_tensor is not None
        and index_tensor.size == 1
        and int(index_tensor.numpy().item()) == 0
    )


def _fits(state: Value, sequence: Value) -> bool:
    """Whether a state is a matrix that may have the batch size of the sequences."""
    if state.shape is None or len(state.shape) != 2 or state.dtype != DataType.FLOAT:
        return False
    batch = None if sequence.shape is None or len(sequence.shape) != 3 else sequence.shape[1]
    # TensorFlow broadcasts a state of one row against the batch, which the ONNX operators do not.
    return state.shape[0] != 1 or batch == 1


def _original_sequence(g: GraphContext, position: int, sequence: Value) -> Value | None:
    """The original of a sequence that a ReverseV2 before the loop reverses along time; None without one."""
    assert g.node is not None
    source = g.node.inputs[position]
    for names in (_FROM_TENSOR, {"ReverseV2": "tensor"}):
        node = None if source is None else origin(source).producer()
        if node is None or node.op_type not in names:
            return None
        node_arguments = arguments(node)
        if node.op_type == "ReverseV2":
            axes = node_arguments["axis"].const_value
            if axes is None or axes.numpy().reshape(-1).tolist() != [0]:
                return None
        source = node_arguments[names[node.op_type]]
    producer = sequence.producer()
    if producer is None or producer.op_type not in _REVERSING_OPERATORS:
        return None
    original = producer.inputs[0]
    return original if original is not None and original.shape == sequence.shape else None


def _emit_operator(
    g: GraphContext, cell: RecurrentCell, x: Value, initial: Sequence[Value | None], backwards: bool
) -> list[Value]:
    """Emit the operator; return Y [length, 1, batch, units], Y_h and Y_c [1, batch, units]."""
    states = [None if state is None else g.op("Unsqueeze", state, axes=[0]) for state in initial]
    names = [name for name, _, _ in cell.activations]
    alphas = [alpha for name, alpha, _ in cell.activations if name in _WITH_ALPHA]
    betas = [beta for name, _, beta in cell.activations if name in _WITH_BETA]
    peepholes = None
    if any(gate.peephole is not None for gate in cell.gates):
        # P has the vectors of the gates i, o and f.
        parts = [_vector(g, [gate.peephole] if gate.peephole else [], cell.units) for gate in cell.gates[:3]]
        peepholes = g.op("Unsqueeze", g.op("Concat", *parts, axis=0), axes=[0])
    optional_inputs = {"P": peepholes} if peepholes is not None else {}
    results = g.op(
        cell.op_type,
        x,
        _matrices(g, [gate.input for gate in cell.gates]),
        _matrices(g, [gate.hidden for gate in cell.gates]),
        _biases(g, cell),
        **dict(zip(("initial_h", "initial_c"), states, strict=False)),
        **optional_inputs,
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
    return results


def _matrices(g: GraphContext, parts: Sequence[Weights]) -> Value:
    """Stack the matrices of the gates, [rows, units], to [1, gates * units, rows]."""
    blocks = [_block(g, part) for part in parts]
    rows = blocks[0] if len(blocks) == 1 else g.op("Concat", *blocks, axis=1)
    return g.op("Unsqueeze", g.op("Transpose", rows, perm=[1, 0]), axes=[0])


def _biases(g: GraphContext, cell: RecurrentCell) -> Value | None:
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
    cut_axes = [axis for axis, ends in enumerate(weights.ranges) if ends != (0, sizes[axis])]
    if cut_axes:
        begins, ends = zip(*(weights.ranges[axis] for axis in cut_axes), strict=True)
        value = g.op("Slice", value, starts=list(begins), ends=list(ends), axes=cut_axes)
    dropped_axes = [axis for axis in range(len(sizes)) if axis not in weights.axes]
    return g.op("Squeeze", value, axes=dropped_axes) if dropped_axes else value
