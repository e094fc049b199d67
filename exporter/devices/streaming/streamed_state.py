"""Streams the state of a training graph (parameters and moments), which each run reads and updates.

Each run reads the old values from one part of a file, and writes the new values to the other part. The parts
are swapped after a successful run, so a run that fails leaves the state unchanged.
"""

from __future__ import annotations

import dataclasses
import mmap
import os
import tempfile
from collections.abc import Mapping

import numpy as np
import onnx_ir as ir

from ....registration import ModelFileError, UsageError
from ...running.comparisons.verification import as_array
from ...running.sessions.session import RuntimeValue, as_python
from ..plan.states import states_of
from .folder import graph_of
from .mapped_weights import PAGE, MappedWeight
from .preparation import is_streamed


@dataclasses.dataclass
class StatefulModel:
    """A model whose large state is weights.

    Attributes:
        model: the model, or the caller's if it has no state.
        streamed: by output, the weight whose next value it is.
        small: the state that is too small to be streamed, by input.
        next_small: by output, the input whose next value it is.
    """

    model: object
    streamed: dict[str, str] = dataclasses.field(default_factory=dict)
    small: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)
    next_small: dict[str, str] = dataclasses.field(default_factory=dict)


def state_as_weights(model: object, state: Mapping[str, object] | None) -> StatefulModel:
    """Return a copy of a training graph in which inputs with large state are weights.

    Args:
        state: an array for each input that is state, read again when it is written to the file; None to
            leave the model unchanged.

    Raises:
        UsageError: the model is a file; an array is missing, unknown, or has another element type or shape.
    """
    if state is None:
        return StatefulModel(model)
    if isinstance(model, (str, bytes, os.PathLike)):
        raise UsageError("state needs a model in memory: open the file with opsetta.load")
    source = graph_of(model)
    updates = states_of(source, "train", None)
    if set(state) != set(updates):
        missing, unknown = sorted(set(updates) - set(state)), sorted(set(state) - set(updates))
        raise UsageError(
            f"state: no input has the name '{unknown[0]}'" if unknown else f"state: '{missing[0]}' is missing"
        )
    copy = source.clone()
    stateful = StatefulModel(copy)
    for value in [value for value in copy.graph.inputs if value.name in state]:
        name = value.name or ""
        tensor = _lazy_tensor(state, name)
        shape = None if value.shape is None else list(value.shape)
        if tensor.dtype != value.dtype or (shape is not None and list(tensor.shape) != shape):
            raise UsageError(
                f"state: '{name}' is {tensor.dtype.name}{list(tensor.shape)}, but the model has "
                f"{value.dtype.name if value.dtype else 'another type'}{shape}"
            )
        # A weight that only a Transpose reads is stored transposed, unlike its next value.
        is_transposed = [use.node.op_type for use in value.uses()] == ["Transpose"]
        if is_streamed(tensor) and not is_transposed:
            copy.graph.inputs.remove(value)
            value.const_value, value.shape = tensor, tensor.shape
            copy.graph.register_initializer(value)
            stateful.streamed[updates[name]] = name
        else:
            stateful.small[name] = as_array(state[name])
            stateful.next_small[updates[name]] = name
    return stateful


def _lazy_tensor(state: Mapping[str, object], name: str) -> ir.LazyTensor:
    """Return a state value as a tensor that is loaded when needed, because it may lie in a file."""
    tensor = ir.tensor(as_array(state[name]))

    def load() -> ir.TensorProtocol:
        return ir.tensor(as_array(state[name]), name=name)

    return ir.LazyTensor(load, dtype=tensor.dtype, shape=ir.Shape(tensor.shape.numpy()), name=name)


class StreamedState:
    """The values of weights that each run computes anew, in a temporary file.

    Attributes:
        updates: by output, the weight whose next value it is.
    """

    def __init__(self, weights: dict[str, MappedWeight], updates: Mapping[str, str]):
        """Reserve the file.

        Args:
            weights: all weights by name; those of the state are replaced after each run.
            updates: by output, the weight whose next value it is.

        Raises:
            ModelFileError: the disk does not have enough space.
        """
        self.updates = updates
        self._weights = weights
        self._written: dict[str, MappedWeight] = {}
        begins, end = {}, 0
        for name in updates.values():
            begins[name] = end
            end += -(-weights[name].nbytes // PAGE) * PAGE
        self._next: list[dict[str, MappedWeight]] = [{}, {}]
        if not end:
            return
        try:
            with tempfile.TemporaryFile(prefix="opsetta-") as file:
                # Space is reserved now, because a full disk would end the process at a later write.
                if hasattr(os, "posix_fallocate"):
                    os.posix_fallocate(file.fileno(), 0, 2 * end)
                else:
                    file.truncate(2 * end)
                mapped = np.frombuffer(mmap.mmap(file.fileno(), 2 * end), np.uint8)
        except OSError as error:
            raise ModelFileError(f"the state cannot be written: {error.strerror}") from error
        for number, part in enumerate(self._next):
            for name, begin in begins.items():
                first, weight = begin + number * end, weights[name]
                part[name] = MappedWeight(name, weight.type, mapped[first : first + weight.nbytes])

    def write(self, output: str, value: RuntimeValue) -> None:
        """Store the next value of a weight; the current run still reads the old value."""
        weight = self._next[0][self.updates[output]]
        weight.write(np.ascontiguousarray(as_python(value)).reshape(-1).view(np.uint8))
        weight.release()
        self._written[weight.name] = weight

    def advance(self) -> None:
        """Make the next run read the values that this run wrote."""
        self._weights.update(self._written)
        self._next.reverse()

    def begin(self) -> None:
        """Discard the values that a failed run wrote."""
        self._written.clear()
