"""Runs a model and its captured graph at other sizes on fake tensors, without data."""

from __future__ import annotations

import collections
import contextlib
import functools
import itertools
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
import torch.fx

from .....passes.faults import raise_fault
from .....registration import CaptureError
from ....torch_boundary import probe
from ....torch_boundary.containers import pytree
from ....torch_boundary.fake_tensors import FakeTensorMode
from ....torch_boundary.operators.overloads import (
    MEMORY_REPLACING,
    Args,
    HigherOrderOperator,
    Kwargs,
    OpOverload,
    Run,
    kernel_run,
    schema_of,
)
from ....torch_boundary.process.process_state import close_vmaps, pause_garbage_collection
from ....torch_boundary.recording.layouts.layout import forget_layout
from ....torch_boundary.recording.quick_calls import quick_run
from ....torch_boundary.replacements.functions import data_attribute
from ....torch_boundary.state.module_tree import modules_of, replace_tensors, scripted_tensors
from ....torch_boundary.state.mutable_values import is_same_dict
from ....torch_boundary.static_lookups import ClassSet
from ....torch_boundary.symbolic_numbers import Size
from ...fx_import.captured_program import CapturedProgram, RecordedProgram
from ...weights import Identity, identity
from .graph_trace import GraphTrace, Kernels, PromisedSizes, shapes_of
from .graph_walk import EndsRun, GraphWalk, infers_sizes
from .operator_trace import COPY, OperatorRecorder, Trace, constant_of, flatten_values
from .recorded_answers import AnsweringEnvironment
from .written_values import WrittenValues

_SAME_VALUE = frozenset(
    {"aten::lift_fresh", "aten::lift_fresh_copy", "aten::detach", "aten::detach_", "aten::alias"}
)
_COPIES_OF_ALL = frozenset({"aten::clone", "aten::contiguous"})
"""Operators that copy their argument; a run sees `contiguous` only where it copies."""
_MOST_ITERATIONS = 4
"""How often a loop over a dynamic size runs in a trial; 0, 1 and 2 are the sizes that differ."""
_MOST_DIFFERENCES = 8
"""A model that calls other operators than its graph at this many sizes in a row likely always does."""
_RUN_DIRECTLY = ("range_loop", "flat_apply")
"""Operators that run their function themselves, so that TorchDynamo need not compile it.

Masks of transformers call `flat_apply`.
"""
_OF_STORAGE = MEMORY_REPLACING | {"aten::as_strided"}


class NotRun(NotImplementedError):
    """A model that is not run at other sizes."""


class LoopTooLong(NotRun):
    """A model with a loop that would run too often in a trial."""


class Tracer:
    """Runs a model and its captured graph on fake tensors of any sizes.

    Args:
        model: the user's model.
        program: the result of torch.export or of direct capture.
        structure: the tree structure of its call `(args, kwargs)`.
        forget: removes the fake tensors that the model's code remembers outside of the model; returns whether
            there were any.

    The first run replaces the weights of the model by fake tensors; the caller restores them at the end. It
    holds the patches of torch under which the model takes the captured path during all runs.

    Attributes:
        number_of_operators: the number of operators of the graph.
        has_rows: whether a number in the graph depends on data, as the number of rows of `x[mask]`, or one
            that Python code reads from a tensor.
        infers_sizes: whether the graph has views that torch refuses for tensors without elements.
        mutates: whether an operator of the graph writes to a tensor.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        program: CapturedProgram,
        structure: pytree.TreeSpec,
        forget: Callable[[], bool] = lambda: False,
    ):
        self._model = model
        self._forget = forget
        self._remembers = True
        self._program = program
        self._structure = structure
        targets = [node.target for node in program.graph.nodes]
        # Outside torch.export, TorchDynamo would compile the functions that such operators take.
        self._is_opaque = any(
            isinstance(target, HigherOrderOperator) and target.name() not in _RUN_DIRECTLY
            for target in targets
        )
        self._loop_nodes = [node for node in program.graph.nodes if str(node.target) == "range_loop"]
        self._is_recorded = isinstance(program, RecordedProgram)
        self._environment = AnsweringEnvironment(getattr(program, "answers", {}))
        self._mode = FakeTensorMode(
            shape_env=self._environment, static_shapes=True, allow_non_fake_inputs=True
        )
        self._origins: dict[int, object] = {}
        # The fake tensors of buffers that hold one integer, and these buffers.
        self._numbers: list[tuple[Any, torch.Tensor]] = []
        operators = [target for target in targets if isinstance(target, OpOverload)]
        self.number_of_operators = len(operators)
        # A capture records a read of the attribute `data` as this operator.
        self._detaches = torch.ops.aten.detach.default in targets
        self.mutates = any(
            schema_of(operator).is_mutable and schema_of(operator).name not in _SAME_VALUE
            for operator in operators
        )
        self._written = WrittenValues(
            program.graph if self.mutates else torch.fx.Graph(), program.graph_signature.user_inputs
        )
        # Whether a reshape copies depends on sizes, and is irrelevant if nothing is written to, or if the
        # graph writes only to new tensors, and before they are copied.
        self._writes_before_copies = self.mutates and not self._written.copies
        self._writes_before_copies &= all(node.op == "call_function" for node in self._written.tensors)
        self._same_value = _SAME_VALUE
        if self._writes_before_copies or not self.mutates:
            self._same_value = _SAME_VALUE | {COPY}
        # Kernels are keyed by the visible properties of tensors. They are not reused if an operator depends
        # on storages or changes the shape of its argument.
        reaches_storage = bool(self._written.copies or self._loop_nodes) or any(
            schema_of(operator).name in _OF_STORAGE
            or (torch.Tag.inplace_view in operator.tags and schema_of(operator).name not in _SAME_VALUE)
            for operator in operators
        )
        self._has_kernels_of_rows = False
        self._kernels: Kernels | None = None if reaches_storage else {}
        self.infers_sizes = infers_sizes(program.graph)
        written = set(self._written.tensors)
        self._graph = GraphTrace(program.graph_module, self._kernels, self._written.copies, written)
        self._quick_run = None if reaches_storage else quick_run(self._mode)
        self._run: Run = self._call_operator
        # How many more differences in a row end the comparison of the model's calls with the graph's nodes.
        # Where they are equal, the graph need not run.
        is_comparable = self._quick_run is not None and not self._loop_nodes
        self._remaining_differences = _MOST_DIFFERENCES if is_comparable else 0
        gradients = getattr(program, "gradients", False)
        self.has_rows = not gradients and any(
            "unbacked_bindings" in node.meta
            and isinstance(node.target, OpOverload)
            and (
                torch.Tag.data_dependent_output not in node.target.tags
                or isinstance(node.meta["val"], torch.SymInt)
            )
            for node in program.graph.nodes
        )

    def run(
        self,
        leaves: Callable[[], list[object]],
        size_of: Callable[[Size], int | None],
        knows_rows: bool = False,
    ) -> tuple[Trace, Trace]:
        """The traces of the model and of the graph; the latter is empty if the model raises.

        Args:
            leaves: makes the leaves of the call; called while new tensors are fake.
            size_of: returns the size of a symbolic size in this run, or None.
            knows_rows: whether integers that depend on data, such as numbers of rows, are known and small.
        """
        run: Run = self._call_operator
        self._run = self._environment.with_known_rows(run) if knows_rows else run
        if knows_rows != self._has_kernels_of_rows:
            # Kernels have results of other sizes, and the fake weights remember their numbers of rows.
            self._mode.epoch += 1
            if self._kernels is not None:
                self._kernels.clear()
        self._has_kernels_of_rows = knows_rows
        if self._is_opaque or self.has_long_loop(size_of):
            model = Trace()
            model.error = (
                NotRun("functions given to operators are not run on fake tensors")
                if self._is_opaque
                else LoopTooLong("long loops are not run on fake tensors")
            )
            return model, Trace()
        sizes = PromisedSizes(size_of)
        traces = self._same_calls(leaves, sizes) if self._remaining_differences else None
        if traces is not None:
            return traces
        model = self._attempt(self._run_model, leaves)
        if model.error is not None:
            return model, Trace()
        return model, self._attempt(functools.partial(self._run_graph, sizes), leaves)

    def has_long_loop(self, size_of: Callable[[Size], int | None]) -> bool:
        """Whether the body of a loop over a dynamic size would run too often at given sizes."""
        counts = [node.args[4] for node in self._loop_nodes]
        lengths = [size_of(item.meta["val"]) if isinstance(item, torch.fx.Node) else item for item in counts]
        return any(length is not None and length > _MOST_ITERATIONS for length in lengths)

    def _call_operator(self, operator: OpOverload, args: Args, kwargs: Kwargs) -> Any:
        """Call an operator; the layouts of results say nothing of known numbers."""
        has_numbers = self._has_kernels_of_rows or bool(self._numbers)
        leaves = flatten_values(args) if has_numbers else args[:1]
        is_known = any(constant_of(leaf) is not None for leaf in leaves)
        run = kernel_run if is_known or self._quick_run is None else self._quick_run
        return run(operator, args, kwargs)

    def has_other_results(self, model: Trace, graph: Trace) -> bool:
        """Whether a run with loops over dynamic sizes fails, or gives results of other shapes than the model.

        Such a graph has other operators than the model, so these are not compared.
        """
        fails = model.error is not None or graph.error is not None
        is_run = bool(self._loop_nodes) and not isinstance(model.error, NotRun)
        return is_run and (fails or model.shapes != graph.shapes)

    def check_results(self, model: Trace, graph: Trace) -> None:
        """Compare the results of a graph that runs other operators than the model at the example's sizes.

        The graph may be right: torch.export decomposes operators, and direct capture records a loop as one
        operator, and the tensor of a list of numbers as an `arange`. The shapes of the results are the same
        in any case, unless one of the runs raised an exception, for example where it reads a value.

        Raises:
            CaptureError: a recording gives results of other shapes.
        """
        is_run = model.error is None and graph.error is None
        if self._is_recorded and is_run and model.shapes != graph.shapes:
            raise CaptureError(
                f"at the sizes of the example, the model gives results of shapes {model.shapes}, but the "
                f"capture recorded {graph.shapes}. Either its code does something else in each call, for "
                "example by a counter or a random number, or this is a fault of opsetta"
            )

    def _same_calls(
        self, leaves: Callable[[], list[object]], sizes: PromisedSizes
    ) -> tuple[Trace, Trace] | None:
        """The traces of a model and its graph that call the same operators; None for others.

        A model may raise an exception after such calls; then the sizes are not valid for it.
        """
        from ....torch_boundary.recording.observation import observe_operators

        walks: list[GraphWalk] = []

        def run(recorder: OperatorRecorder, call_leaves: list[object]) -> None:
            inputs = self._inputs(call_leaves)
            module, same_value = self._program.graph_module, _SAME_VALUE | _COPIES_OF_ALL
            walk = GraphWalk(module, inputs, self._run, same_value, sizes, self._graph.of_sizes)
            walks.append(walk)
            with contextlib.suppress(EndsRun):
                with observe_operators(walk.call):
                    results = self._call_model(call_leaves, walk.assign)
                walk.finish(results)

        model = self._attempt(run, leaves)
        walk = walks[0] if walks else None
        if walk is not None and walk.difference is None:
            self._remaining_differences = _MOST_DIFFERENCES
            return model, walk.trace if model.error is None else Trace()
        if walk is not None and walk.difference is not None:
            raise_fault(walk.difference, "when it compared the model with its graph at other sizes")
        self._remaining_differences -= 1
        return None

    def _attempt(self, run: Callable[..., object], leaves: Callable[[], list[object]]) -> Trace:
        trace = Trace()
        gradients = getattr(self._program, "gradients", False)
        with torch.set_grad_enabled(gradients), close_vmaps(), pause_garbage_collection():
            with self._mode:
                call_leaves = leaves()
            inputs = {
                id(leaf): ("input", i) for i, leaf in enumerate(call_leaves) if isinstance(leaf, torch.Tensor)
            }
            before = self._before
            for fake, number in self._numbers:
                # The run before may have written to it.
                fake.constant = number.clone()
            self._environment.restart()
            recorder = OperatorRecorder(
                trace,
                self._origins | inputs,
                self._same_value,
                run=self._run,
                writes_before_copies=self._writes_before_copies,
            )
            try:
                with self._mode:
                    run(recorder, call_leaves)
            except Exception as error:
                # A model may raise any exception at these sizes.
                raise_fault(error, "when it ran the model at other sizes than the example's")
                trace.error = error
            finally:
                before.restore()
                # The first run shows whether the model's code remembers tensors at all.
                self._remembers = self._remembers and self._forget()
        return trace

    @functools.cached_property
    def _before(self) -> _ModuleState:
        """The modules as they are before each run."""
        replace_tensors(self._model, self._fakes)
        return _ModuleState(modules_of(self._model))

    @functools.cached_property
    def _fakes(self) -> dict[str, torch.Tensor]:
        """A fake tensor for each parameter and buffer; tensors that share memory share a fake tensor.

        Modules of TorchScript run on their own tensors, which torch treats as fake ones.
        """
        state = self._state()
        keys = {name: identity(name, tensor) for name, tensor in state.items()}
        scripted = set(map(id, scripted_tensors(self._model)))
        fakes_by_identity: dict[Identity, torch.Tensor] = {
            keys[name]: tensor for name, tensor in state.items() if id(tensor) in scripted
        }
        fake_of = _fake_weights(self._mode, state, self._device_of_inputs())
        for name, key in keys.items():
            if key not in fakes_by_identity:
                fakes_by_identity[key] = fake_of(state[name])
            self._origins[id(fakes_by_identity[key])] = ("state", *key)
        # Codecs keep strides and kernel sizes in buffers, and read them to compute a padding.
        self._numbers = [
            (fakes_by_identity[keys[name]], tensor)
            for name, tensor in self._model.named_buffers()
            if tensor.ndim == 0 and tensor.dtype == torch.int64 and type(tensor) is torch.Tensor
            if tensor.device.type != "meta" and name in keys and id(tensor) not in scripted
        ]
        return {name: fakes_by_identity[key] for name, key in keys.items()}

    def _device_of_inputs(self) -> torch.device | None:
        """The device of the captured weights, if it is another than theirs: that of inputs without data."""
        placeholders = (node for node in self._program.graph.nodes if node.op == "placeholder")
        for node, specification in zip(placeholders, self._program.graph_signature.input_specs, strict=True):
            tensor = self._program.state_dict.get(specification.target or "")
            if tensor is None:
                continue
            device: torch.device = node.meta["val"].device
            if tensor.device != device:
                return device
        return None

    def _state(self) -> dict[str, torch.Tensor]:
        named = dict(self._model.named_parameters(remove_duplicate=False))
        return named | dict(self._model.named_buffers(remove_duplicate=False))

    def _run_model(self, recorder: OperatorRecorder, leaves: list[object]) -> None:
        with recorder:
            results = self._call_model(leaves, recorder.assign)
            recorder.trace.results = [recorder.origin(leaf) for leaf in results]
            recorder.trace.shapes = shapes_of(results)

    def _call_model(
        self, leaves: list[object], note: Callable[[torch.Tensor, torch.Tensor], None]
    ) -> list[object]:
        """The leaves of what the model returns.

        Args:
            note: is called with a tensor and the value that the model assigns to its `data`.
        """

        def assign(tensor: torch.Tensor, value: torch.Tensor) -> None:
            note(tensor, value)
            restored.callback(data_attribute.WRITE, tensor, data_attribute.READ(tensor))
            data_attribute.WRITE(tensor, value)
            forget_layout(tensor)

        seen = data_attribute.intercept(assign) if self._detaches else contextlib.nullcontext()
        with contextlib.ExitStack() as restored, seen, self._replacements():
            # Unflattening a cache of keys and values runs operators, and the graph contains them, too.
            args, kwargs = pytree.tree_unflatten(leaves, self._structure)
            return pytree.tree_leaves(self._model(*args, **kwargs))

    def _replacements(self) -> contextlib.AbstractContextManager[Any]:
        """The functions that the capture called in the place of those that take no symbolic sizes."""
        replaced_calls = getattr(self._program, "replaced_calls", ())
        if not any(replaced_calls):
            return contextlib.nullcontext()
        from ....torch_boundary.replacements.functions.dynamic_arguments import RepeatedReplacements

        return RepeatedReplacements(replaced_calls)

    def _run_graph(self, sizes: PromisedSizes, recorder: OperatorRecorder, leaves: list[object]) -> None:
        self._graph.trace(self._inputs(leaves), recorder, sizes)

    def _inputs(self, leaves: list[object]) -> list[object]:
        """The values of the graph's placeholders."""
        tensors = {**self._program.constants, **self._program.state_dict, **self._fakes}
        users = iter(leaves)
        return [
            next(users) if specification.target is None else tensors[specification.target]
            for specification in self._program.graph_signature.input_specs
        ]


def _fake_weights(
    mode: FakeTensorMode, state: Mapping[str, torch.Tensor], device: torch.device | None
) -> Callable[[torch.Tensor], torch.Tensor]:
    """Makes a fake tensor for a parameter or buffer."""
    if not probe.has(probe.DIRECT_CAPTURE):
        return mode.from_tensor
    from ....torch_boundary.recording.fake_weights import FakeWeights

    return FakeWeights(state.values(), mode, device)


_DICTS = ClassSet((dict, collections.OrderedDict))


class _ModuleState:
    """The attributes of modules and the members of their dicts, such as hooks, which a run may change."""

    def __init__(self, modules: Iterable[torch.nn.Module]):
        attributes = [vars(module) for module in modules]
        # Compare types by identity: `isinstance` may run code of another library's class, which may raise.
        values = list(itertools.chain.from_iterable(members.values() for members in attributes))
        dicts: list[dict[str, Any]] = list(_DICTS.only(values))
        # Most dicts are empty: a module has about ten for its hooks.
        self._empty = [members for members in dicts if not members]
        self._filled = [members for members in (*attributes, *dicts) if members]
        self._copies = [dict(members) for members in self._filled]

    def restore(self) -> None:
        """Restore what has changed."""
        for members in filter(None, self._empty):
            members.clear()
        # Most runs change nothing. Comparing all dicts at once shows this ten times faster than one by one.
        if _are_same_dicts(self._filled, self._copies):
            return
        for members, before in zip(self._filled, self._copies, strict=True):
            if not is_same_dict(members, before):
                members.clear()
                members.update(before)


def _are_same_dicts(now: Sequence[dict[str, Any]], before: Sequence[dict[str, Any]]) -> bool:
    """Whether dicts of Python itself have the keys and values of others, the same objects in order."""
    chain, values_of = itertools.chain.from_iterable, operator.methodcaller("values")
    return (
        all(map(operator.eq, map(len, now), map(len, before)))
        and all(map(operator.is_, chain(now), chain(before)))
        and all(map(operator.is_, chain(map(values_of, now)), chain(map(values_of, before))))
    )
