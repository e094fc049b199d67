"""Records a model: creates placeholders, runs it, and cleans up the graph as torch.export does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.fx
from torch.export.graph_signature import (
    ConstantArgument,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
    TensorArgument,
)

from ...torch_boundary.containers import pytree
from ...torch_boundary.recording.cleanup.dead_nodes import remove_dead_nodes
from ...torch_boundary.recording.cleanup.lift_constants import Constants
from ...torch_boundary.recording.cleanup.regions import name_operands, remove_regions
from ...torch_boundary.recording.fake_weights import (
    AssignedBuffers,
    replace_weights,
    replaced_state,
)
from ...torch_boundary.recording.recorded_sizes import FixedSizes
from ...torch_boundary.recording.recorder import GraphRecorder
from ...torch_boundary.state.module_tree import ModuleTree
from ..fx_import.captured_program import CallStructure, GraphSignature, RecordedProgram
from .decisions import Decisions
from .loops.dynamic_ranges import sequence_of
from .loops.iterations import Loops
from .loops.rolling import roll_loops
from .loops.sides import BranchesInLoop
from .loops.while_loops import WhileLoops
from .names import argument_names, assign_names, tensor_name
from .refusals import check_graph, check_recordable


def record(
    model: torch.nn.Module,
    args: tuple[object, ...],
    kwargs: Mapping[str, object],
    sizes: FixedSizes,
    decisions: Decisions,
    *,
    source_lines: bool = False,
    gradients: bool = False,
) -> RecordedProgram:
    """Run a model on fake tensors, and record its operators as torch.export does.

    The caller holds torch's patches, and restores the model, whose weights are replaced.

    Args:
        sizes: makes the fake tensors of the call.
        decisions: makes the decisions that depend on values.
        source_lines: keep the stack of each call.
        gradients: the model computes gradients; the caller has enabled autograd.

    Raises:
        Differentiates: the model computes gradients all the same.
        NotRecordable: the model is of a kind that only torch.export captures.
    """
    # Found before the run, which may add modules and tensors.
    tree = ModuleTree(model)
    check_recordable(tree, (args, dict(kwargs)))
    recording = _Recording(tree, args, kwargs, sizes, decisions, source_lines, gradients)
    with recording.recorder.running():
        return recording.run()


class _Recording:
    def __init__(
        self,
        tree: ModuleTree,
        args: tuple[object, ...],
        kwargs: Mapping[str, object],
        sizes: FixedSizes,
        decisions: Decisions,
        source_lines: bool,
        gradients: bool,
    ):
        self._tree = tree
        self._model = tree.model
        self._sizes = sizes
        self._decisions = decisions
        self._named = {**tree.parameters, **tree.buffers}
        self._leaves, self._structure = pytree.tree_flatten((args, dict(kwargs)))
        self._constants = Constants(tree)
        self._call = sizes.fake_call(args, kwargs)
        self._weights = replace_weights(tree, sizes.mode, sizes.device)
        self._gradients = gradients
        self.recorder = GraphRecorder(tree, sizes.mode, source_lines=source_lines, gradients=gradients)
        self._graph = self.recorder.graph
        environment: Any = sizes.mode.shape_env
        self._loops = environment.loops = Loops(self.recorder, environment, decisions.branching)
        environment.whiles = WhileLoops(self._loops)
        self.recorder.slices_of = sequence_of
        self.recorder.join_results = self._loops.join_results
        self._entries: list[InputSpec] = []

    def run(self) -> RecordedProgram:
        """Record the model."""
        for name, fake in self._weights.items():
            self._bind_weight(name, fake)
        leaves, structure = pytree.tree_flatten(self._call)
        names = argument_names(self._model, *self._call)
        for leaf, name in zip(leaves, names, strict=True):
            node = self._placeholder(leaf, name)
            arg: Any = TensorArgument(name=node.name)
            if not isinstance(leaf, (torch.Tensor, torch.SymInt)):
                arg = ConstantArgument(name=node.name, value=leaf)
            self._entries.append(InputSpec(kind=InputKind.USER_INPUT, arg=arg, target=None))
        assigned = AssignedBuffers(self._model)
        weights = [self._named[name] for name in self._weights]
        deciding = self._decisions.decide_for(self.recorder, weights, self._leaves)
        with assigned.record_assignments(), deciding:
            result = self.recorder.run(leaves, structure)
        unanswered = getattr(self._sizes.mode.shape_env, "unanswered", None)
        if unanswered is not None:
            # The model caught the error, and what it does then is not what it does in PyTorch.
            raise unanswered
        results, returned = pytree.tree_flatten(result)
        results = [self.recorder.node_of(leaf) for leaf in results]
        for name, value in assigned.values.items():
            if name in self._weights:
                self._write(name, self.recorder.node_of(value))
        self._graph.output(tuple(results))
        if self._decisions.branching is not None and self._decisions.branching.is_changed:
            raise BranchesInLoop
        roll_loops(self._loops, self._graph, self.recorder.root)
        return self._finish(returned, names)

    def _bind_weight(self, name: str, fake: torch.Tensor) -> None:
        is_parameter = name in self._tree.parameters
        input_kind = InputKind.PARAMETER if is_parameter else InputKind.BUFFER
        node = self._placeholder(fake, tensor_name(input_kind, name))
        self._entries.append(
            InputSpec(
                kind=input_kind,
                arg=TensorArgument(name=node.name),
                target=name,
                persistent=None if is_parameter else name not in self._tree.transient,
            )
        )

    def _placeholder(self, value: object, name: str) -> torch.fx.Node:
        # The node gets its name at the end: until then, names of operators are numbered apart from it.
        node = self._graph.create_node("placeholder", name, (), {}, f"arg{len(self._entries)}_1")
        self.recorder.bind(value, node)
        return node

    def _write(self, name: str, value: torch.fx.Node) -> None:
        """Write to a buffer that the model replaced."""
        position = next(i for i, entry in enumerate(self._entries) if entry.target == name)
        buffer = next(node for i, node in enumerate(self._graph.nodes) if i == position)
        node = self._graph.call_function(torch.ops.aten.copy_.default, (buffer, value))
        node.meta = value.meta

    def _ranges(self, graph: torch.fx.Graph, root: torch.nn.Module) -> dict[Any, Any]:
        """The range of each symbol. An error about sizes gets the stack of the call that fixed one."""
        try:
            return self._sizes.finish(graph, root)
        except Exception as error:
            environment = self._sizes.mode.shape_env
            stack = getattr(environment, "fixing", None) or []
            converts = getattr(environment, "is_fixed_by_conversion", True)
            frame_indices = [index for index, frame in enumerate(stack) if frame.filename == __file__]
            # The frames before are those of the caller of the export.
            vars(error).update(
                real_stack=stack[max(frame_indices, default=-1) + 1 :],
                is_fixed_by_condition=bool(stack) and not converts,
            )
            raise

    def _finish(self, structure: Any, arguments: Sequence[str]) -> RecordedProgram:
        graph, root = self._graph, self.recorder.root
        root.graph = graph  # type: ignore[assignment]
        remove_dead_nodes(graph)
        ranges = self._ranges(graph, root)
        signature = GraphSignature(self._entries, _output_entries(graph))
        self._constants.lift(graph, root, signature)
        graph, root = remove_regions(graph, root)
        check_graph(graph)
        assign_names(graph, self._entries, arguments)
        name_operands(root)
        state = dict(self._named)
        transient = {name: state.pop(name) for name in self._tree.transient if name in state}
        sides = [] if self._decisions.sides is None else self._decisions.sides.recorded
        return RecordedProgram(
            graph_module=root,
            graph_signature=signature,
            call_spec=CallStructure(self._structure, structure),
            state_dict=state,
            constants={**self._constants.lifted, **transient},
            range_constraints=ranges,
            specializations=self._decisions.fixed,
            answers=self._decisions.answers,
            recorded_sides=[side.answer for side in sides if side.answer is not None],
            assumed=[side.assumed for side in sides if side.answer is not None],
            gradients=self._gradients,
            replaced=replaced_state(self._tree, self._weights, self.recorder.assigned),
            replaced_calls=self.recorder.replaced_calls,
        )


def _output_entries(graph: torch.fx.Graph) -> list[OutputSpec]:
    """One entry for each leaf of the result."""
    [returned] = (node.args[0] for node in graph.nodes if node.op == "output")
    return [
        OutputSpec(
            kind=OutputKind.USER_OUTPUT,
            arg=TensorArgument(name=item.name)
            if isinstance(item, torch.fx.Node)
            else ConstantArgument(name="", value=item),
            target=None,
        )
        for item in returned
    ]
