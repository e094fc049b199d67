"""Runs a model and its captured graph at other sizes on fake tensors, without data."""

from __future__ import annotations

import contextlib
import functools
import operator
from collections.abc import Callable, Collection, Container, Iterable, Mapping
from typing import Any

import torch

from ...torch_boundary import probe
from ...torch_boundary.containers import pytree
from ...torch_boundary.fake_tensors import FakeTensorMode
from ...torch_boundary.operators.overloads import HigherOrderOperator, OpOverload, schema_of
from ..direct.decisions import AnsweringEnvironment
from ..direct.program import CapturedProgram
from ..weights import Identity, identity
from .graph_trace import GraphTrace, Kernels
from .graph_walk import OtherCalls, infers_sizes, walk
from .operator_trace import Recorder, Run, Trace

_SAME_VALUE = frozenset(
    {"aten::lift_fresh", "aten::lift_fresh_copy", "aten::detach", "aten::detach_", "aten::alias"}
)
_OF_STORAGE = frozenset({"aten::as_strided", "aten::set_", "aten::resize_", "aten::resize_as_"})


class Tracer:
    """Runs a model and its captured graph on fake tensors of any sizes.

    Args:
        model: the user's model.
        program: the result of torch.export or of direct capture.
        structure: the tree structure of its call `(args, kwargs)`.
        captured: the contexts under which the model was captured.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        program: CapturedProgram,
        structure: Any,
        captured: Callable[[], contextlib.AbstractContextManager[Any]],
    ):
        self._model = model
        self._module_state = _ModuleState(model.modules())
        self._program = program
        self._structure = structure
        self._captured = captured
        targets = [node.target for node in program.graph.nodes]
        # Outside torch.export, TorchDynamo would compile the functions that such operators take.
        self._is_opaque = any(isinstance(target, HigherOrderOperator) for target in targets)
        decisions = getattr(program, "decisions", None)
        self._environment = AnsweringEnvironment({} if decisions is None else decisions.answers)
        self._mode = FakeTensorMode(
            shape_env=self._environment, static_shapes=True, allow_non_fake_inputs=True
        )
        self._origins: dict[int, Any] = {}
        operators = [target for target in targets if isinstance(target, OpOverload)]
        mutates = any(
            schema_of(operator).is_mutable and schema_of(operator).name not in _SAME_VALUE
            for operator in operators
        )
        # Whether a reshape copies depends on sizes, and is irrelevant if nothing is written to.
        self._same_value = _SAME_VALUE if mutates else _SAME_VALUE | {"aten::clone"}
        # Kernels are keyed by the visible properties of tensors. They are not reused if an operator depends
        # on storages or changes the shape of its argument.
        reaches_storage = any(
            schema_of(operator).name in _OF_STORAGE
            or (torch.Tag.inplace_view in operator.tags and schema_of(operator).name not in _SAME_VALUE)
            for operator in operators
        )
        self._kernels: Kernels | None = None if reaches_storage else {}
        self._infers_sizes = infers_sizes(program.graph)
        self._graph = GraphTrace(program.graph_module, self._kernels)
        self._run = None if reaches_storage else _quick_run(self._mode)
        # Whether the calls of the model may be compared with the graph's nodes; the graph need not run then.
        self._is_comparable = self._run is not None
        # Such a call returns its argument, unseen, if it is contiguous, and a clone of it otherwise.
        self._same_in_calls = self._same_value | ({"aten::contiguous"} if not mutates else set())

    def run(
        self, leaves: Callable[[], list[Any]], size_of: Callable[[Any], int | None]
    ) -> tuple[Trace, Trace]:
        """The traces of the model and of the graph; the latter is empty if the model raises.

        Args:
            leaves: makes the leaves of the call; called while new tensors are fake.
            size_of: returns the size of a symbolic size in this run, or None.
        """
        if self._is_opaque:
            model = Trace()
            model.error = NotImplementedError("functions given to operators are not run on fake tensors")
            return model, Trace()
        same = self._same_calls(leaves, size_of) if self._is_comparable else None
        if same is not None:
            return same
        model = self._attempt(self._run_model, leaves)
        if model.error is not None:
            return model, Trace()
        return model, self._attempt(functools.partial(self._run_graph, size_of), leaves)

    def _same_calls(
        self, leaves: Callable[[], list[Any]], size_of: Callable[[Any], int | None]
    ) -> tuple[Trace, Trace] | None:
        """The traces of a model and its graph that call the same operators and succeed; None for others."""
        from ...torch_boundary.recording.observation import observed

        graph: list[Trace] = []

        def run(recorder: Recorder, state: dict[str, torch.Tensor], given: list[Any]) -> None:
            if self._infers_sizes and any(
                0 in leaf.shape for leaf in given if isinstance(leaf, torch.Tensor)
            ):
                raise OtherCalls("the model is likely to fail, and has to run for the reason")
            with observed(recorder.call):
                recorder.trace.results = self._called(recorder, state, given)
            inputs = self._inputs(state, given)
            graph.append(walk(self._program.graph_module, inputs, recorder, self._same_in_calls, size_of))

        model = self._attempt(run, leaves, self._same_in_calls)
        if model.error is None:
            return model, graph[0]
        # What differs or fails here will do so at most sizes.
        self._is_comparable = False
        return None

    def _attempt(
        self,
        run: Callable[..., Any],
        leaves: Callable[[], list[Any]],
        same_value: Container[str] | None = None,
    ) -> Trace:
        trace = Trace()
        with torch.no_grad(), self._captured():
            with self._mode:
                given = leaves()
            inputs = {
                id(leaf): ("input", i) for i, leaf in enumerate(given) if isinstance(leaf, torch.Tensor)
            }
            state = self._fakes
            self._environment.restart()
            recorder = Recorder(trace, self._origins | inputs, same_value or self._same_value, run=self._run)
            try:
                with self._mode:
                    run(recorder, state, given)
            except Exception as error:
                trace.error = error
        return trace

    @functools.cached_property
    def _fakes(self) -> dict[str, torch.Tensor]:
        """A fake tensor for each parameter and buffer; tensors that share memory share a fake tensor."""
        made: dict[Identity, torch.Tensor] = {}
        state = self._state()
        keys = {name: identity(name, tensor) for name, tensor in state.items()}
        fake_of = _fake_weights(self._mode, state)
        for name, key in keys.items():
            if key not in made:
                made[key] = fake_of(state[name])
            self._origins[id(made[key])] = ("state", *key)
        return {name: made[key] for name, key in keys.items()}

    def _state(self) -> dict[str, torch.Tensor]:
        named = dict(self._model.named_parameters(remove_duplicate=False))
        return named | dict(self._model.named_buffers(remove_duplicate=False))

    def _run_model(self, recorder: Recorder, state: dict[str, torch.Tensor], leaves: list[Any]) -> None:
        with recorder:
            recorder.trace.results = self._called(recorder, state, leaves)

    def _called(self, recorder: Recorder, state: dict[str, torch.Tensor], leaves: list[Any]) -> list[Any]:
        """What the model returns."""
        try:
            # Building a cache of keys and values runs operators, which the graph contains too.
            args, kwargs = pytree.tree_unflatten(leaves, self._structure)
            # The state has a fake tensor for each name, the same one for tied weights.
            results = torch.func.functional_call(self._model, state, args, kwargs, tie_weights=False)
        finally:
            self._module_state.restore()
        return [recorder.origin(leaf) for leaf in pytree.tree_leaves(results)]

    def _run_graph(
        self,
        size_of: Callable[[Any], int | None],
        recorder: Recorder,
        state: dict[str, torch.Tensor],
        leaves: list[Any],
    ) -> None:
        self._graph.trace(self._inputs(state, leaves), recorder, size_of)

    def _inputs(self, state: Mapping[str, torch.Tensor], leaves: list[Any]) -> list[Any]:
        """The values of the graph's placeholders."""
        held = {**self._program.constants, **self._program.state_dict, **state}
        users = iter(leaves)
        return [
            next(users) if specification.target is None else held[specification.target]
            for specification in self._program.graph_signature.input_specs
        ]


def _quick_run(mode: FakeTensorMode) -> Run | None:
    """Calls operators, or makes results like those of an earlier call; None where torch lacks the names."""
    if not probe.has(probe.DIRECT_CAPTURE):
        return None
    from ...torch_boundary.recording.known_results import KnownResults

    return KnownResults(mode).run


def _fake_weights(mode: FakeTensorMode, state: Mapping[str, torch.Tensor]) -> Callable[[Any], torch.Tensor]:
    """Makes a fake tensor for a parameter or buffer."""
    if not probe.has(probe.DIRECT_CAPTURE):
        return mode.from_tensor
    from ...torch_boundary.recording.fake_weights import FakeWeights

    return FakeWeights(state.values(), mode)


class _ModuleState:
    """The attributes of modules and the members of their dicts, such as hooks, which a run may change."""

    def __init__(self, modules: Iterable[torch.nn.Module]):
        attributes = [vars(module) for module in modules]
        dicts = [item for held in attributes for item in held.values() if isinstance(item, dict)]
        # Most dicts are empty: a module has about ten for its hooks.
        self._empty = [held for held in dicts if not held]
        self._filled = [(held, dict(held)) for held in (*attributes, *dicts) if held]

    def restore(self) -> None:
        """Restore what has changed."""
        for held in self._empty:
            if held:
                held.clear()
        for held, before in self._filled:
            if not _are_identical(held, before) or not _are_identical(held.values(), before.values()):
                held.clear()
                held.update(before)


def _are_identical(items: Collection[Any], others: Collection[Any]) -> bool:
    """Whether two collections have the same objects in the same order."""
    return len(items) == len(others) and all(map(operator.is_, items, others))
