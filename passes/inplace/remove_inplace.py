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
   the loop (`branches`, `loops`). The blocks of other nodes may not write to outer tensors.
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
from ..source_builder import differ, take_out, where
from . import mutating_operators as table
from .aliases import (
    Aliases,
    changed,
    is_branch,
    is_list,
    is_loop,
    shares_with_list,
    writes_anything,
)
from .branches import return_current, rewrite_branch
from .locations import Undecided, View, Whole
from .loops import rewrite_loop
from .prune_blocks import prune
from .running_statistics import updated_statistics
from .self_copies import remove_self_copies
from .storages import Scope
from .tensors import Tensor, Tensors
from .views import ViewRule, ViewStep, aliased, may_be_view, view_rule

MUTATIONS = ("error", "outputs", "drop")


class _Functionalizer:
    """Rewrites one graph, node after node."""

    def __init__(self, graph: ir.Graph, aliases: Aliases):
        self._graph = graph
        self._aliases = aliases
        self._memory = Tensors(graph, aliases)
        self._build = self._memory.build
        self._gone: list[ir.Node] = []
        self._idle: list[ir.Node] = []
        """View nodes; those without readers are removed at the end."""

    def run(self) -> None:
        """Rewrite every node, then the graph's outputs."""
        self._visit_all(self._graph)
        self._build.after(self._graph[-1])
        outputs = self._graph.outputs
        for index, value in enumerate(outputs):
            outputs[index] = self._memory.read(value)

    def append_outputs(self) -> None:
        """Append the new value of every input and initializer that outlives the call."""
        for value in self._aliases.outliving:
            new = self._memory.tensor(value).location.read(self._memory)
            if new.is_graph_output() or new.is_graph_input() or new.is_initializer():
                new = self._build.emit("aten::alias", {"self": new}, like=new)
            new.metadata_props[MUTATES] = value.name or ""
            self._graph.outputs.append(new)

    def clean(self) -> None:
        """Remove in-place nodes without effect, and views without readers."""
        for node in reversed(self._gone):
            take_out(node)
        prune(self._graph, {*self._build.made, *self._idle})

    def _visit_all(self, graph: ir.Graph) -> None:
        for node in list(graph):
            self._visit(node)

    def _visit(self, node: ir.Node) -> None:
        memory = self._memory
        self._build.before(node)
        memory.node = node
        if is_loop(node):
            rewrite_loop(memory, node, self._visit_all)
            return
        if is_branch(node):
            self._refresh(node)
            rewrite_branch(memory, node, self._visit_all)
            return
        written = changed(node)
        is_view = may_be_view(node)
        given = arguments(node) if written or is_view else {}
        inputs = self._refresh(node)
        if shares_with_list(node):
            self._share(node, inputs)
        elif given and is_view:
            rule = view_rule(node, given)
            if rule is not None:
                self._view(node, rule, given)
        elif written:
            self._change(node, given, written)
        for block in blocks(node):
            self._visit_block(node, block)

    def _refresh(self, node: ir.Node) -> list[Value]:
        """Replace a node's inputs by their current values; return the previous inputs."""
        inputs = [value for value in node.inputs if value is not None]
        for index, value in enumerate(node.inputs):
            if value is not None:
                current = self._memory.read(value)
                if current is not value:
                    node.replace_input_with(index, current)
        return inputs

    def _visit_block(self, node: ir.Node, block: ir.Graph) -> None:
        """Rewrite a block that receives all tensors as inputs."""
        scope = Scope(block, self._memory.scope, sealed=node)
        with self._memory.inside(scope):
            values = list(block.outputs)
            self._visit_all(block)
            with self._build.at_end(block):
                return_current(self._memory, block, values)

    def _share(self, node: ir.Node, inputs: list[Value]) -> None:
        """Mark the tensors in a list, so that later writes to them are refused."""
        memory = self._memory
        for value in inputs:
            if self._aliases.is_tracked(value) and not is_list(value):
                for storage in memory.tensor(value).location.storages:
                    storage.kept_by = node
        for output in node.outputs:
            if self._aliases.is_tracked(output) and not is_list(output):
                memory.tensors[output] = Tensor(
                    Whole(memory.storage(output, node)), memory.scope, crossed=True
                )

    def _view(self, node: ir.Node, rule: ViewRule, given: dict[str, Any]) -> None:
        memory, current = self._memory, arguments(node)
        for index, (output, source) in enumerate(zip(node.outputs, aliased(node, rule, given), strict=False)):
            if source is None or not (self._aliases.is_tracked(source) or self._aliases.is_tracked(output)):
                continue
            tensor = memory.tensor(source)
            if rule.same_object:
                memory.tensors[output] = tensor
            elif rule.undecided:
                location = Undecided(memory, tensor.location, memory.storage(output), where(node))
                memory.tensors[output] = Tensor(location, memory.scope)
            elif rule.is_identity:
                memory.tensors[output] = Tensor(tensor.location, memory.scope)
            else:
                view = View(tensor.location, ViewStep.of(node, rule, current, index))
                memory.tensors[output] = Tensor(view, memory.scope)
                memory.keep(view, output)
            self._idle.append(node)

    def _change(self, node: ir.Node, given: dict[str, Any], changed: list[Value]) -> None:
        name = node.op_type
        if name not in table.IDLE and name not in table.METADATA and name not in table.BATCH_NORMS:
            for value in changed:
                for storage in self._memory.tensor(value).location.storages:
                    self._memory.check_writable(storage)
        if name in table.BATCH_NORMS:
            self._statistics(node, changed)
        elif name in table.IDLE:
            for output in node.outputs:
                self._memory.tensors[output] = self._memory.tensor(changed[0])
            self._gone.append(node)
        elif name in table.METADATA:
            self._reinterpret(node, changed[0])
        elif (name, node.overload) in table.COPIES:
            self._copy(node, changed[0])
        elif (name, node.overload) == table.ATTRIBUTE:
            self._memory.set(self._memory.tensor(changed[0]).location.storages[0], arguments(node)["src"])
            self._gone.append(node)
        elif table.is_inplace(node):
            self._write(node, changed[0])
        else:
            self._write_out(node, changed)

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
        self._memory.keep(tensor.location, node.outputs[0])
        self._memory.tensors[node.outputs[0]] = tensor
        self._idle.append(node)

    def _copy(self, node: ir.Node, value: Value) -> None:
        """`copy_`: the new value is the source, cast and broadcast."""
        current = arguments(node)
        source = current[table.COPIES[node.op_type, node.overload]]
        tensor = self._memory.tensor(value)
        self._build.after(node)
        made = len(self._build.made)
        tensor.location.write(self._memory, self._build.conform(source, tensor.location.read(self._memory)))
        for new in self._build.made[made:][-1:]:
            new.metadata_props[INPLACE] = "true"
        for output in node.outputs:
            self._memory.tensors[output] = tensor
        self._gone.append(node)

    def _write(self, node: ir.Node, value: Value) -> None:
        name, overload, current = table.functional_form(node, arguments(node))
        tensor = self._memory.tensor(value)
        old = tensor.location.read(self._memory)
        node.op_type, node.overload = name, overload
        replace_arguments(node, current)
        node.metadata_props[INPLACE] = "true"
        self._build.after(node)
        tensor.location.write(self._memory, self._result(node, 0, old))
        self._memory.tensors[node.outputs[0]] = tensor

    def _write_out(self, node: ir.Node, changed: list[Value]) -> None:
        overload, _, current = table.functional_form_of_out(node, arguments(node))
        tensors = [self._memory.tensor(value) for value in changed]
        old = [tensor.location.read(self._memory) for tensor in tensors]
        node.overload = overload
        replace_arguments(node, current)
        node.metadata_props[INPLACE] = "true"
        self._build.after(node)
        for index, tensor in enumerate(tensors):
            output = node.outputs[index]
            is_own = isinstance(tensor.location, Whole) and tensor.location.storage.home is self._memory.scope
            if not is_own and differ(output, old[index]):
                raise GraphError(
                    f"{where(node)}: it resizes a view, or a tensor from outside of the branch or loop; "
                    "resize a clone()"
                )
            tensor.location.write(self._memory, self._result(node, index, old[index]))
            self._memory.tensors[output] = tensor

    def _result(self, node: ir.Node, index: int, old: Value) -> Value:
        """Cast the result of a functional node to the element type of the written tensor."""
        output = node.outputs[index]
        if index or node.domain != "aten" or rule_of(node.op_type, given := arguments(node)) is None:
            return output
        natural = output_dtype(node.op_type, given)
        if natural is None:
            others = (
                sum(value is not None and NUMBER not in value.metadata_props for value in node.inputs) > 1
            )
            if not others:
                return output
            output.type = None
        elif natural == old.dtype:
            return output
        else:
            output.type = ir.TensorType(natural)
        if old.dtype is None:
            return self._build.emit("aten::type_as", {"self": output, "other": old}, shape=output.shape)
        return self._build.cast(output, old.dtype)

    def _statistics(self, node: ir.Node, changed: list[Value]) -> None:
        node.metadata_props[INPLACE] = "true"
        if not any(self._aliases.is_tracked(value) for value in changed):
            return
        current = arguments(node)
        self._build.after(node)
        for key, new in updated_statistics(self._build, node, current):
            value = changed[0] if key == "running_mean" else changed[-1]
            self._memory.tensor(value).location.write(self._memory, new)


def _check_mutations(aliases: Aliases, mutations: str) -> None:
    """Refuse changes to inputs and initializers, or warn of them, as `mutations` says."""
    if not aliases.outliving or mutations == "outputs":
        return
    changes = [
        f"{value.metadata_props.get(KIND, 'input')} '{value.name}' ({where(_writer(node))})"
        for value, node in aliases.outliving.items()
    ]
    if mutations == "drop":
        warn(f"the new values of tensors that the model writes to are dropped: {', '.join(changes)}")
        return
    lines = "\n".join(f"  - {change}" for change in changes)
    raise MutationError(
        "the model writes to its inputs, parameters or buffers, which an ONNX graph cannot do:\n"
        f'{lines}\nPass mutations="outputs" to return the new values as further outputs, mutations="drop" '
        "to discard them, or make the model functional (write to a clone; call eval() for statistics)."
    )


def _writer(node: ir.Node) -> ir.Node:
    """The node to name for a write: another library's operator whose new value a `copy_` node writes."""
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
            MutationError: an input, parameter or buffer is written to, and `mutations` is `"error"`.
            GraphError: an operator or a view that cannot be made functional.
        """
        graph = model.graph
        if not writes_anything(graph):
            return ir.passes.PassResult(model, False)
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
