"""Source pass: in-place operators and `out=` overloads become functional, through any chain of views.

Every storage has one current value at every point of the program (`storages`). A view stores its parent and
the `ViewStep` between them. A write to a view computes a new value of the view, and writes it back step by
step into the value of the storage. Other views of that storage are recomputed from the new value at their
next read.

Rules, over the nodes in execution order:

1. Only storages that some node writes to are tracked; a graph without writes is not changed.
2. A node reads the current value of each input tensor.
3. An in-place operator returns the written tensor.
4. Metadata operators such as `unsqueeze_` change the tensor object and all values that refer to it, but no
   other view.
5. An outer tensor that a branch or a loop body writes becomes an output of the branch or a carried value of
   the loop (`branch_writes`, `loop_writes`). The blocks of other nodes may not write to outer tensors.
6. A tensor in a list of unknown length, or read from one, may not be written afterwards.
7. Written inputs and initializers outlive the call, except lifted constants. `mutations` says how their new
   values are returned. A copy of one into itself does not count (`self_copies`).
"""

from __future__ import annotations

from typing import Any

import onnx_ir as ir
from onnx_ir import Value

from ...registration import INPLACE, KIND, MUTATES, NUMBER, GraphError, MutationError, OpsettaError
from ...registration.arguments import arguments, blocks, replace_arguments
from ...registration.warning import warn
from ..promotion.rules import output_dtype, rule_of
from ..source_builder import detach_node, shapes_differ, where
from . import mutating_operators as table
from .aliases import Aliases, is_branch, is_list, is_loop, shares_with_list, writes_anything, written_values
from .branch_writes import return_current, rewrite_branch
from .locations import Undecided, View, Whole
from .loop_writes import rewrite_loop
from .prune_blocks import prune
from .running_statistics import updated_statistics
from .self_copies import remove_self_copies
from .storages import BlockScope
from .tensor_objects import TensorObject, Tensors
from .views import ViewRule, ViewStep, aliased_tensors, may_be_view, view_rule

MUTATIONS = ("error", "outputs", "drop")


class _Functionalizer:
    """Rewrites one graph, node after node."""

    def __init__(self, graph: ir.Graph, aliases: Aliases):
        self._graph = graph
        self._aliases = aliases
        self._memory = Tensors(graph, aliases)
        self._build = self._memory.build
        self._removable: list[ir.Node] = []
        self._view_nodes: list[ir.Node] = []
        """View nodes; those without readers are removed at the end."""

    def run(self) -> None:
        """Rewrite every node, then the graph's outputs."""
        self._visit_graph(self._graph)
        # The outputs may need nodes that recompute views.
        self._build.after(self._graph[-1])
        outputs = self._graph.outputs
        for index, value in enumerate(outputs):
            outputs[index] = self._memory.load(value)

    def append_outputs(self) -> None:
        """Append the new value of every input and initializer that outlives the call."""
        for value in self._aliases.outliving:
            new = self._memory.tensor(value).location.load(self._memory)
            # One value cannot be two outputs, nor an input an output under another name.
            if new.is_graph_output() or new.is_graph_input() or new.is_initializer():
                new = self._build.emit("aten::alias", {"self": new}, like=new)
            new.metadata_props[MUTATES] = value.name or ""
            self._graph.outputs.append(new)

    def clean(self) -> None:
        """Remove in-place nodes without effect, and views without readers."""
        for node in reversed(self._removable):
            detach_node(node)
        prune(self._graph, {*self._build.inserted_nodes, *self._view_nodes})

    def _visit_graph(self, graph: ir.Graph) -> None:
        for node in list(graph):
            self._visit_node(node)

    def _visit_node(self, node: ir.Node) -> None:
        memory = self._memory
        self._build.before(node)
        memory.node = node
        if is_loop(node):
            # The loop's own inputs are refreshed later, when the carried values are known.
            rewrite_loop(memory, node, self._visit_graph)
            return
        if is_branch(node):
            self._refresh(node)
            rewrite_branch(memory, node, self._visit_graph)
            return
        written = written_values(node)
        is_view = may_be_view(node)
        node_arguments = arguments(node) if written or is_view else {}
        # The view and the write below work on the arguments before this refresh.
        inputs = self._refresh(node)
        if shares_with_list(node):
            self._mark_list_tensors(node, inputs)
        elif node_arguments and is_view:
            rule = view_rule(node, node_arguments)
            if rule is not None:
                self._record_view(node, rule, node_arguments)
        elif written:
            self._rewrite_write(node, written)
        for block in blocks(node):
            self._visit_block(node, block)

    def _refresh(self, node: ir.Node) -> list[Value]:
        """Replace a node's inputs by their current values; return the previous inputs."""
        inputs = [value for value in node.inputs if value is not None]
        for index, value in enumerate(node.inputs):
            if value is not None:
                current = self._memory.load(value)
                if current is not value:
                    node.replace_input_with(index, current)
        return inputs

    def _visit_block(self, node: ir.Node, block: ir.Graph) -> None:
        """Rewrite a block that receives all tensors as inputs."""
        scope = BlockScope(block, self._memory.scope, sealed=node)
        with self._memory.inside(scope):
            values = list(block.outputs)
            self._visit_graph(block)
            with self._build.at_end(block):
                return_current(self._memory, block, values)

    def _mark_list_tensors(self, node: ir.Node, inputs: list[Value]) -> None:
        """Mark the tensors in a list, so that later writes to them are refused."""
        memory = self._memory
        for value in inputs:
            if self._aliases.is_tracked(value) and not is_list(value):
                for storage in memory.tensor(value).location.storages:
                    storage.list_node = node
        for output in node.outputs:
            if self._aliases.is_tracked(output) and not is_list(output):
                memory.tensors[output] = TensorObject(
                    Whole(memory.storage(output, node)), memory.scope, crossed=True
                )

    def _record_view(self, node: ir.Node, rule: ViewRule, node_arguments: dict[str, Any]) -> None:
        memory, current = self._memory, arguments(node)
        for index, (output, source) in enumerate(
            zip(node.outputs, aliased_tensors(node, rule, node_arguments), strict=False)
        ):
            if source is None or not (self._aliases.is_tracked(source) or self._aliases.is_tracked(output)):
                continue
            tensor = memory.tensor(source)
            if rule.same_object:
                memory.tensors[output] = tensor
            elif rule.undecided:
                location = Undecided(memory, tensor.location, memory.storage(output), where(node))
                memory.tensors[output] = TensorObject(location, memory.scope)
            elif rule.is_identity:
                memory.tensors[output] = TensorObject(tensor.location, memory.scope)
            else:
                view = View(tensor.location, ViewStep.of(node, rule, current, index))
                memory.tensors[output] = TensorObject(view, memory.scope)
                # The node itself computes the view; it is recomputed only after a write.
                memory.cache_value(view, output)
            self._view_nodes.append(node)

    def _rewrite_write(self, node: ir.Node, written: list[Value]) -> None:
        name = node.op_type
        # Metadata operators write no memory, and statistics are checked when they are written.
        if name not in table.IDLE and name not in table.METADATA and name not in table.BATCH_NORMS:
            for value in written:
                for storage in self._memory.tensor(value).location.storages:
                    self._memory.check_writable(storage)
        if name in table.BATCH_NORMS:
            self._update_statistics(node, written)
        elif name in table.IDLE:
            for output in node.outputs:
                self._memory.tensors[output] = self._memory.tensor(written[0])
            self._removable.append(node)
        elif name in table.METADATA:
            self._reinterpret(node, written[0])
        elif (name, node.overload or "default") == table.RESIZES:
            self._resize(node, written[0])
        elif (name, node.overload) in table.COPIES:
            self._copy(node, written[0])
        elif (name, node.overload) == table.ATTRIBUTE:
            self._memory.set(self._memory.tensor(written[0]).location.storages[0], arguments(node)["src"])
            self._removable.append(node)
        elif table.is_inplace(node):
            self._write(node, written[0])
        else:
            self._write_out(node, written)

    def _reinterpret(self, node: ir.Node, value: Value) -> None:
        """`x.unsqueeze_(0)`: make the tensor object a view of its previous location."""
        name, overload, current = table.functional_form(node, arguments(node))
        node.op_type, node.overload = name, overload
        rule = view_rule(node, current)
        assert rule is not None, name
        tensor = self._memory.tensor(value)
        if tensor.crossed or tensor.home is not self._memory.scope:
            raise GraphError(
                f"{where(node)}: it changes the shape of a tensor that a branch or loop shares; write x = "
                f"x.{name}(...) without the underscore"
            )
        tensor.location = View(tensor.location, ViewStep.of(node, rule, current))
        self._memory.cache_value(tensor.location, node.outputs[0])
        self._memory.tensors[node.outputs[0]] = tensor
        self._view_nodes.append(node)

    def _resize(self, node: ir.Node, value: Value) -> None:
        """`x.resize_(sizes)`: the new value has the first elements of the old one, in the order of memory.

        Raises:
            GraphError: the order in memory is unknown, or other values refer to the memory.
        """
        tensor = self._memory.tensor(value)
        [storage, *_] = tensor.location.storages
        producer = storage.initial.producer()
        is_ordered = (
            producer is not None
            and producer.domain == "aten"
            and producer.op_type in table.CONTIGUOUS
            and all(arguments(maker).get("memory_format") is None for maker in (node, producer))
        )
        is_shared = storage.home is not self._memory.scope or any(
            other is not tensor and storage in other.location.storages
            for other in self._memory.tensors.values()
        )
        if not isinstance(tensor.location, Whole) or not is_ordered or is_shared:
            raise GraphError(
                f"{where(node)}: resize_ needs a tensor that torch.empty, zeros, ones or full made, "
                "without views, and outside of the branch or loop that resizes it; make a new tensor instead"
            )
        self._write(node, value)

    def _copy(self, node: ir.Node, value: Value) -> None:
        """Rewrite `copy_`: the new value of the tensor is the source, cast and broadcast."""
        current = arguments(node)
        source = current[table.COPIES[node.op_type, node.overload]]
        tensor = self._memory.tensor(value)
        self._build.after(node)
        first_inserted = len(self._build.inserted_nodes)
        tensor.location.store(self._memory, self._build.conform(source, tensor.location.load(self._memory)))
        for inserted in self._build.inserted_nodes[first_inserted:][-1:]:
            inserted.metadata_props[INPLACE] = "true"
        for output in node.outputs:
            self._memory.tensors[output] = tensor
        self._removable.append(node)

    def _write(self, node: ir.Node, value: Value) -> None:
        name, overload, current = table.functional_form(node, arguments(node))
        tensor = self._memory.tensor(value)
        old = tensor.location.load(self._memory)
        node.op_type, node.overload = name, overload
        replace_arguments(node, current)
        node.metadata_props[INPLACE] = "true"
        self._build.after(node)
        tensor.location.store(self._memory, self._result(node, 0, old))
        self._memory.tensors[node.outputs[0]] = tensor

    def _write_out(self, node: ir.Node, written: list[Value]) -> None:
        overload, _, current = table.functional_form_of_out(node, arguments(node))
        tensors = [self._memory.tensor(value) for value in written]
        old = [tensor.location.load(self._memory) for tensor in tensors]
        node.overload = overload
        replace_arguments(node, current)
        node.metadata_props[INPLACE] = "true"
        self._build.after(node)
        for index, tensor in enumerate(tensors):
            output = node.outputs[index]
            is_resizable = (
                isinstance(tensor.location, Whole) and tensor.location.storage.home is self._memory.scope
            )
            # torch resizes `out` to the result; a view or an outer tensor cannot follow that here.
            if not is_resizable and shapes_differ(output, old[index]):
                raise GraphError(
                    f"{where(node)}: it resizes a view, or a tensor from outside of the branch or loop; "
                    "resize a clone()"
                )
            tensor.location.store(self._memory, self._result(node, index, old[index]))
            self._memory.tensors[output] = tensor

    def _result(self, node: ir.Node, index: int, old: Value) -> Value:
        """Cast the result of a functional node to the element type of the written tensor."""
        output = node.outputs[index]
        if index or node.domain != "aten" or rule_of(node.op_type, node_arguments := arguments(node)) is None:
            return output
        computed_dtype = output_dtype(node.op_type, node_arguments)
        # No promotion rule gives the type. With one tensor it is the type of that tensor.
        if computed_dtype is None:
            has_several_tensors = (
                sum(value is not None and NUMBER not in value.metadata_props for value in node.inputs) > 1
            )
            if not has_several_tensors:
                return output
            # The type that the capture recorded is that of the written tensor, not of the computation.
            output.type = None
        elif computed_dtype == old.dtype:
            return output
        else:
            output.type = ir.TensorType(computed_dtype)
        if old.dtype is None:
            return self._build.emit("aten::type_as", {"self": output, "other": old}, shape=output.shape)
        return self._build.cast(output, old.dtype)

    def _update_statistics(self, node: ir.Node, written: list[Value]) -> None:
        node.metadata_props[INPLACE] = "true"
        if not any(self._aliases.is_tracked(value) for value in written):
            return
        current = arguments(node)
        self._build.after(node)
        for key, new in updated_statistics(self._build, node, current):
            value = written[0] if key == "running_mean" else written[-1]
            self._memory.tensor(value).location.store(self._memory, new)


def _check_mutations(aliases: Aliases, mutations: str) -> None:
    """Refuse changes to inputs and initializers, or warn of them, as `mutations` says."""
    if not aliases.outliving or mutations == "outputs":
        return
    kinds = {value: value.metadata_props.get(KIND, "user") for value in aliases.outliving}
    changes = [
        f"{'input' if kinds[value] == 'user' else kinds[value]} '{value.name}' ({where(_named_writer(node))})"
        for value, node in aliases.outliving.items()
    ]
    if mutations == "drop":
        warn(f"the new values of tensors that the model writes to are dropped: {', '.join(changes)}")
        return
    lines = "\n".join(f"  - {change}" for change in changes)
    updates_statistics = any("running_mean" in arguments(node) for node in aliases.outliving.values())
    mode = "Call model.eval() first: normalization in training mode updates its statistics. Or pass"
    raise MutationError(
        "the model writes to its inputs, parameters or buffers, which an ONNX graph cannot do:\n"
        f'{lines}\n{mode if updates_statistics else "Pass"} mutations="outputs" to return the new values as '
        'further outputs, mutations="state" to take the old ones as inputs too, as streaming models do, '
        'mutations="drop" to discard them, or write to a clone.'
    )


def _named_writer(node: ir.Node) -> ir.Node:
    """Return the node to name for a write: for `copy_`, the other library's operator that made the value."""
    source = arguments(node).get("src") if node.op_type == "copy_" else None
    producer = source.producer() if isinstance(source, Value) else None
    return node if producer is None or producer.domain == "aten" else producer


class RemoveInplace(ir.passes.InPlacePass):
    """Replaces in-place operators and `out=` overloads of a source graph by functional ones.

    Args:
        mutations: the treatment of inputs, parameters and buffers that the model writes to. `"error"`
            refuses, `"outputs"` appends their new values to the graph's outputs, `"drop"` warns.
    """

    def __init__(self, mutations: str = "error"):
        super().__init__()
        if mutations not in MUTATIONS:
            raise OpsettaError(
                f"mutations must be one of {', '.join(map(repr, MUTATIONS))}, not {mutations!r}"
            )
        self.mutations = mutations

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Rewrite the model's graph in place.

        Raises:
            MutationError: the model writes to an input, parameter or buffer, and `mutations` is `"error"`.
            GraphError: an operator or a view cannot be made functional.
        """
        graph = model.graph
        if not writes_anything(graph):
            return ir.passes.PassResult(model, False)
        # Otherwise a copy of a buffer into itself (`.to` its own device) would count as a write.
        if remove_self_copies(graph) and not writes_anything(graph):
            return ir.passes.PassResult(model, True)
        aliases = Aliases(graph, keep_statistics=self.mutations == "drop")
        _check_mutations(aliases, self.mutations)
        rewriter = _Functionalizer(graph, aliases)
        rewriter.run()
        if self.mutations == "outputs":
            rewriter.append_outputs()
        rewriter.clean()
        return ir.passes.PassResult(model, True)


def remove_inplace(model: ir.Model, mutations: str = "error") -> bool:
    """Make a source graph functional, in place; return whether anything changed. See `RemoveInplace`."""
    return RemoveInplace(mutations).call(model).modified
