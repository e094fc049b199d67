"""`StreamingSession`: runs a model segment by segment, with the weights of a few segments in memory."""

from __future__ import annotations

import collections
import concurrent.futures
import dataclasses
import itertools
import pathlib
import tempfile
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from ....registration import TRAINING, PlanError, UsageError
from ....registration.warning import warn
from ...running.input_sizes import shape_of
from ...running.model_inputs import Feed, ModelInputs, inputs_of_message
from ...running.runner import Runner
from ...running.sessions.session import OpenSession, RuntimeValue, as_python, open_session, session_options
from ..memory_amounts import memory_amount
from .budget import DEFAULT_LOOKAHEAD, activation_bytes, cut
from .mapped_weights import MappedWeight, ResidentWeights, packed_array
from .open_model import open_model
from .segment_models import GraphParts, Segment, SegmentModel, build_segments
from .streamed_state import StreamedState, state_as_weights
from .structure import Structure
from .system_memory import trim


@dataclasses.dataclass(frozen=True)
class Event:
    """An event of a run.

    Attributes:
        kind: `"load"` when reading a segment's weights begins, `"loaded"` when they are in memory, `"run"`
            and `"ran"` before and after its computation, `"release"` when its weights are released.
        segment: the number of the segment.
        seconds: the time since the run began.
    """

    kind: str
    segment: int
    seconds: float


class StreamingSession:
    """A model that runs with the weights of `lookahead + 1` segments in memory.

    A thread reads weights while earlier segments run. They are released after their segment has run.

    Attributes:
        budget: the bytes for weights and activations, or None.
        segments: the segments of the model in the order of execution.
        activations: the bytes of activations whose sizes are known before a run.
        events: the events of the last run.
    """

    def __init__(
        self,
        model: object,
        *,
        budget: int | str | None = None,
        lookahead: int | None = None,
        threads: int | None = None,
        verify: str = "full",
        trusted: bool = False,
        state: Mapping[str, Any] | None = None,
    ):
        """Open a model.

        Args:
            model: a folder that `opsetta stream` or `save_streaming` wrote; the path of an ONNX file; a
                `Program` or an `OnnxModel`. Weights that are not in external data are written to a temporary
                folder first: make the folder beforehand if memory is short.
            budget: bytes for weights and activations, as a number or a text such as `"200MB"`. Segments that
                are too large for it are cut further.
            lookahead: the number of segments to read ahead of the running one. By default as many as the
                budget allows, or 1 without a budget.
            threads: the number of threads that compute; by default onnxruntime's choice.
            verify: for a folder, `"full"` compares the SHA-256 of every weight first, `"size"` only sizes.
            trusted: whether to lift the bounds on the size of the graph; see `opsetta.load`.
            state: for a training graph in memory, an array for each input that is state. The state is then
                streamed too: runs read it from a temporary file, and write the new state there.

        Raises:
            UsageError: an argument has an unknown value or a wrong type.
            ModelFileError: a file cannot be read, or is not what was saved.
            PlanError: the budget is too small; the message has the smallest possible budget.
            InferenceError: onnxruntime is not installed, or refuses the model.
        """
        self.budget = None if budget is None else memory_amount(budget)
        self._requested_lookahead = _count("lookahead", lookahead, 0)
        threads = _count("threads", threads, 1)
        stateful = state_as_weights(model, state)
        self._small_state, self._next_small_state = stateful.small, stateful.next_small
        with tempfile.TemporaryDirectory(prefix="opsetta-") as staging:
            opened = open_model(stateful.model, pathlib.Path(staging), verify, trusted)
        if state is None and any(entry.key == TRAINING for entry in opened.parts.proto.metadata_props):
            # Only initializers are streamed; the caller holds the inputs of a step in memory.
            warn(
                "parameters and state of a training graph are inputs, and are not streamed without state=",
                UserWarning,
            )
        self._state = StreamedState(opened.weights, stateful.streamed)
        structure = Structure(
            opened.parts, {name: w.size for name, w in opened.weights.items()}, self._state.updates
        )
        self._parts = opened.parts
        self._weights = opened.weights
        self._lifetimes = structure.lifetimes
        self._cut = cut(structure.sequential, self._activations, self.budget, self._requested_lookahead)
        self.activations = self._cut.activations
        models = [
            SegmentModel(opened.parts, structure.nodes[begin:end], structure.read_from(end))
            for begin, end in itertools.pairwise(self._cut.boundaries)
        ]
        segments, messages = build_segments(models, self._cut.sizes)
        self.segments: tuple[Segment, ...] = tuple(segments)
        self._sessions = [_open(message, threads) for message in messages]
        self._constants = {
            name: _constant(opened.parts, name) for part in segments for name in part.constants.values()
        }
        self._last_reader = {name: part.index for part in segments for name in part.values.values()}
        self._inputs = inputs_of_message(opened.parts.proto, omitted=self._small_state)
        declared = inputs_of_message(opened.parts.proto).declared
        # Without metadata, because its conditions on sizes concern only the caller's inputs.
        self._state_inputs = ModelInputs([declared[name] for name in self._small_state], {})
        outputs = [info.name for info in opened.parts.proto.graph.output]
        self._kept = [name for name in outputs if name not in self._state.updates]
        self._outputs = [name for name in self._kept if name not in self._next_small_state]
        self._resident = ResidentWeights(self._weights)
        self._lock = threading.Lock()
        self._closed = False
        self._reader = concurrent.futures.ThreadPoolExecutor(1, "opsetta-weights")
        self.events: tuple[Event, ...] = ()
        trim()

    @property
    def lookahead(self) -> int:
        """The number of segments to read ahead, as computed before the sizes of inputs are known."""
        return self._lookahead(self._cut.activations)

    @property
    def largest_segment(self) -> int:
        """Bytes of the weights of the largest segment."""
        return self._cut.largest

    @property
    def weight_bytes(self) -> int:
        """Bytes of all streamed weights."""
        return sum(weight.size for weight in self._weights.values())

    @property
    def input_names(self) -> list[str]:
        """Names of the inputs, in order."""
        return list(self._inputs.names)

    @property
    def output_names(self) -> list[str]:
        """Names of the outputs, in order."""
        return list(self._outputs)

    def run(self, *inputs: Any) -> list[Any]:
        """Run the model.

        Args:
            inputs: arrays in the order of the inputs, or one mapping of arrays by name: numpy arrays, torch
                tensors, numbers, nested lists, or onnxruntime values.

        Returns:
            numpy arrays in the order of the outputs; lists and dicts for sequences and maps.

        Raises:
            UsageError: the arrays do not fit the inputs, or the session is closed.
            DimensionError: the model is not valid for a size.
            PlanError: with inputs of these sizes, the budget is too small.
            InferenceError: onnxruntime cannot run the model.
            ModelFileError: a file of weights cannot be read.
        """
        if self._closed:
            raise UsageError("the session is closed")
        # A stored runner would keep the session and its weights alive in a reference cycle.
        runner = Runner(self._inputs, self._outputs, self._run_segments)
        by_name = len(inputs) == 1 and isinstance(inputs[0], Mapping)
        return runner.arrays(inputs[0] if by_name else self._inputs.bind(inputs, {}))

    def _run_segments(self, feed: Feed) -> list[RuntimeValue]:
        """Run all segments in order; read as many ahead as the budget allows for inputs of these sizes."""
        activations = self._activations(self._cut.boundaries, self._sizes_of_dimensions(feed))
        ahead = self._lookahead(activations)
        if ahead < 0:
            least = (
                self._cut.least_budget(self._requested_lookahead or 0) - self._cut.activations + activations
            )
            raise PlanError(
                f"a budget of {self.budget} bytes is too small for inputs of these sizes: they need "
                f"{least} bytes, {activations} of them for activations"
            )
        with self._lock:
            self._state.begin()
            run = _Run(self, {**feed, **self._state_inputs.feed(self._small_state)}, ahead)
            results = dict(zip(self._kept, run.outputs(), strict=True))
            self._small_state |= {old: as_python(results[new]) for new, old in self._next_small_state.items()}
            self._state.advance()
            return [results[name] for name in self._outputs]

    @property
    def state(self) -> dict[str, np.ndarray]:
        """Copies of the current state, by input name."""
        streamed = {name: self._weights[name].array() for name in self._state.updates.values()}
        return {**streamed, **{name: array.copy() for name, array in self._small_state.items()}}

    def close(self) -> None:
        """End the thread that reads weights. The session cannot run afterwards."""
        self._closed = True
        self._reader.shutdown()

    def __enter__(self) -> StreamingSession:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return (
            f"StreamingSession(segments={len(self.segments)}, sessions={len(self._sessions)}, "
            f"lookahead={self.lookahead}, largest_segment={self.largest_segment}, "
            f"activations={self.activations})"
        )

    def _lookahead(self, activations: int) -> int:
        most = len(self.segments) - 1
        if self.budget is None:
            return min(
                most, DEFAULT_LOOKAHEAD if self._requested_lookahead is None else self._requested_lookahead
            )
        fitting = self._cut.lookahead(self.budget, activations)
        if self._requested_lookahead is None:
            return fitting
        return min(most, self._requested_lookahead) if fitting >= min(most, self._requested_lookahead) else -1

    def _sizes_of_dimensions(self, feed: Feed) -> dict[str, int]:
        """Return the sizes of the inputs' named dimensions, by onnxruntime's names."""
        sizes: dict[str, int] = {}
        for name, value in feed.items():
            declared, shape = self._parts.types.get(name), shape_of(value)
            if declared is not None and declared.dims is not None and shape is not None:
                pairs = zip(declared.dims, shape, strict=True)
                sizes |= {dim: size for dim, size in pairs if isinstance(dim, str)}
        return sizes

    def _activations(self, boundaries: Sequence[int], dimensions: Mapping[str, int] | None = None) -> int:
        sizes = {}
        for name in self._lifetimes:
            value_type = self._parts.types.get(name)
            size = None if value_type is None else value_type.nbytes(dimensions or {})
            if size is not None:
                sizes[name] = size
        return activation_bytes(boundaries, self._lifetimes, sizes)


class _Run:
    """One run of a session."""

    def __init__(self, session: StreamingSession, values: Feed, ahead: int):
        self._session = session
        self._values = values
        self._ahead = ahead
        self._written: set[str] = set()
        self._begin = time.perf_counter()
        self._events: list[Event] = []
        self._loads: collections.deque[concurrent.futures.Future[None]] = collections.deque()

    def outputs(self) -> list[RuntimeValue]:
        """Run all segments and return the outputs; release the weights also after an error."""
        session, segments = self._session, self._session.segments
        done = 0
        try:
            for segment in segments:
                while len(self._loads) + done < min(segment.index + self._ahead + 1, len(segments)):
                    self._load(segments[len(self._loads) + done])
                self._loads[0].result()
                self._compute(segment)
                self._release(segment)
                # Otherwise results of different sizes would leave more and more gaps in the heap.
                trim()
                self._loads.popleft()
                done += 1
        finally:
            # Waits for reads in progress, so that no weight enters memory after its release.
            for segment, load in zip(segments[done:], self._loads, strict=False):
                load.cancel()
                concurrent.futures.wait([load])
                self._release(segment)
            session.events = tuple(self._events)
        for name in session._state.updates:
            if name not in self._written:
                session._state.write(name, self._output(name))
        return [self._output(name) for name in session._kept]

    def _load(self, segment: Segment) -> None:
        self._note("load", segment)
        entered = self._session._resident.enter(segment.weights.values())
        self._loads.append(self._session._reader.submit(self._populate, segment, entered))

    def _populate(self, segment: Segment, weights: Iterable[MappedWeight]) -> None:
        for weight in weights:
            weight.populate()
        self._note("loaded", segment)

    def _release(self, segment: Segment) -> None:
        self._session._resident.leave(segment.weights.values())
        self._note("release", segment)

    def _compute(self, segment: Segment) -> None:
        session = self._session
        feed = {name: self._values[real] for name, real in segment.values.items()}
        feed |= {name: session._weights[real].value for name, real in segment.weights.items()}
        feed |= {name: session._constants[real] for name, real in segment.constants.items()}
        runner = session._sessions[segment.session]
        self._note("run", segment)
        results = runner.run(feed)
        self._note("ran", segment)
        self._values.update(zip(segment.outputs, results, strict=True))
        for real in segment.outputs:
            if real in session._state.updates:
                session._state.write(real, self._values[real])
                self._written.add(real)
        # Values that no later segment reads are freed at once.
        for real in {*segment.values.values(), *segment.outputs}:
            if session._last_reader.get(real, -1) <= segment.index and real not in session._kept:
                self._values.pop(real, None)

    def _output(self, name: str) -> RuntimeValue:
        """Return an output, which may also be an input, a weight or a constant."""
        session = self._session
        if name in self._values:
            return self._values[name]
        if name in session._weights:
            return session._weights[name].value
        return _constant(session._parts, name)

    def _note(self, event: str, segment: Segment) -> None:
        self._events.append(Event(event, segment.index, time.perf_counter() - self._begin))


def run_streaming(
    model: object,
    *inputs: object,
    budget: int | str | None = None,
    lookahead: int | None = None,
    threads: int | None = None,
    verify: str = "full",
    trusted: bool = False,
) -> list[Any]:
    """Run a model once with few of its weights in memory; use `StreamingSession` to run it repeatedly.

    Args:
        inputs: arrays in the order of the inputs, or one mapping of arrays by name.

    Returns:
        numpy arrays in the order of the outputs.

    Raises:
        UsageError: an argument has an unknown value or a wrong type, or the arrays do not fit the inputs.
        DimensionError: the model is not valid for a size.
        ModelFileError: a file cannot be read, or is not what was saved.
        PlanError: the budget is too small; the message has the least one.
        InferenceError: onnxruntime is not installed, or cannot run the model.
    """
    with StreamingSession(
        model, budget=budget, lookahead=lookahead, threads=threads, verify=verify, trusted=trusted
    ) as session:
        return session.run(*inputs)


def _count(name: str, value: object, least: int) -> int | None:
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < least):
        raise UsageError(f"{name} must be an integer of at least {least}, not {value!r}")
    return value


def _open(message: bytes, threads: int | None) -> OpenSession:
    """Open a session that keeps no memory and no busy threads between runs."""
    options = session_options()
    # The arena of each session would keep the memory of its segment after the run.
    options.enable_cpu_mem_arena = False
    options.enable_mem_pattern = False
    options.intra_op_num_threads = threads or 0
    options.inter_op_num_threads = 1
    # Spinning threads would take cores from the running segment.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.add_session_config_entry("session.inter_op.allow_spinning", "0")
    # Packed copies of weights would stay in memory beside the mapped ones.
    options.add_session_config_entry("session.disable_prepacking", "1")
    title = "a segment of the model"
    return OpenSession(open_session(message, title, options=options), title)


def _constant(parts: GraphParts, name: str) -> RuntimeValue:
    """Convert a small initializer to an onnxruntime value; strings to an array."""
    import onnxruntime

    tensor = ir.serde.TensorProtoTensor(parts.constants[name])
    if tensor.dtype == ir.DataType.STRING:
        return tensor.numpy().astype(str).astype(object)
    if tensor.dtype.bitwidth < 8:
        return onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(
            packed_array(np.frombuffer(tensor.tobytes(), np.uint8), tensor.shape.numpy()), int(tensor.dtype)
        )
    array = np.array(tensor.numpy(), order="C")
    return onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(
        # onnxruntime does not accept arrays of ml_dtypes types, such as bfloat16: pass the bits.
        array.view(f"u{array.dtype.itemsize}"),
        int(tensor.dtype),
    )
