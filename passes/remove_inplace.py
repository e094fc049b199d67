"""Source pass: in-place operators and `out=` overloads become functional, through any chain of views.

Every storage has one current value. A view knows its parent and the `ViewStep` between them. A write to a
view becomes a new value of the view, which is written back step by step into the value of the storage;
any other view of that storage is made again of the new value when it is next read.

Rules, over the nodes in execution order:

1. Only storages that some node writes to are tracked; a graph that writes nothing is left as it is.
2. A node reads the current value of each tensor it takes.
3. What an in-place operator returns is the tensor that it wrote.
4. `unsqueeze_` and its like change the tensor object, and so every name of it, but no other view.
5. Inputs and initializers that are written outlive the call, unless they are lifted constants: the
   caller says what becomes of their new values.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import onnx_ir as ir
from onnx_ir import Value

from ..registration import INPLACE, KIND, MUTATES, GraphError, MutationError, OpsettaError
from ..registration.arguments import arguments, replace_arguments
from . import inplace_table as table
from .promotion import output_dtype
from .running_statistics import updated_statistics
from .source_builder import SourceBuilder, remove_unused, same_shape, where
from .views import ViewRule, ViewStep, aliased, may_be_view, view_rule

MUTATIONS = ("error", "outputs", "drop")


class _Storage:
    """Memory that tensors share: the value of all of it, and how often it was written."""

    __slots__ = ("value", "version")

    def __init__(self, value: Value):
        self.value = value
        self.version = 0


class _View:
    """One way to see a storage: all of it, or a step from another view. Keeps its value of one version."""

    __slots__ = ("_parent", "_step", "_value", "_version", "storage")

    def __init__(
        self, storage: _Storage, value: Value, parent: _View | None = None, step: ViewStep | None = None
    ):
        self.storage = storage
        self._parent = parent
        self._step = step
        self._value = value
        self._version = storage.version

    @property
    def is_whole(self) -> bool:
        return self._parent is None

    def read(self, build: SourceBuilder) -> Value:
        """The current value, made again of the parent's where the storage was written since."""
        if self._version != self.storage.version:
            if self._parent is None or self._step is None:
                self._value = self.storage.value
            else:
                self._value = self._step.make(build, self._parent.read(build))
            self._version = self.storage.version
        return self._value

    def write(self, build: SourceBuilder, new: Value) -> None:
        """Make `new` the current value, of this view and of what it is a view of."""
        if self._parent is None or self._step is None:
            self.storage.value = new
            self.storage.version += 1
        else:
            self._parent.write(build, self._step.write(build, self._parent.read(build), new))
        self._value = new
        self._version = self.storage.version


class _Tensor:
    """A tensor object, which several values may be: `y = x.relu_()` is `x`."""

    __slots__ = ("view",)

    def __init__(self, view: _View):
        self.view = view


class _Aliases:
    """Which values share memory, and which of that memory is written.

    Attributes:
        written: the first value of every storage that some node writes to, or whose metadata it changes.
        outliving: inputs and initializers that change, with the node that first changes each.
    """

    def __init__(self, graph: ir.Graph, keep_statistics: bool):
        self.written: set[Value] = set()
        self.outliving: dict[Value, ir.Node] = {}
        self._roots: dict[Value, Value] = {}
        self._objects: dict[Value, Value] = {}
        for node in graph:
            if may_be_view(node):
                self._view(node)
                continue
            changed = _changed(node)
            for value in changed:
                root = self.root(value)
                if node.op_type not in table.IDLE:
                    is_state = root.is_graph_input() or root.is_initializer()
                    whole = self._objects.get(value, value) is root or node.op_type not in table.METADATA
                    if is_state and whole and root.metadata_props.get(KIND) != "constant":
                        self.outliving.setdefault(root, node)
                    if not (keep_statistics and is_state and node.op_type in table.BATCH_NORMS):
                        self.written.add(root)
            if node.op_type not in table.BATCH_NORMS:
                for output, value in zip(node.outputs, changed, strict=False):
                    self._roots[output] = self.root(value)
                    self._objects[output] = self._objects.get(value, value)

    def root(self, value: Value) -> Value:
        """The first value of the storage that a value lives in."""
        return self._roots.get(value, value)

    def is_tracked(self, value: Value) -> bool:
        """Whether the value may change after it was made."""
        return self._roots.get(value, value) in self.written

    def _view(self, node: ir.Node) -> None:
        given = arguments(node)
        rule = view_rule(node, given)
        if rule is None:
            return
        for output, source in zip(node.outputs, aliased(node, rule, given), strict=False):
            if source is not None:
                self._roots[output] = self.root(source)
                if rule.same_object:
                    self._objects[output] = self._objects.get(source, source)


def _changed(node: ir.Node) -> list[Value]:
    """The values that a node writes to, or changes the metadata of."""
    name = node.op_type
    if table.is_inplace_name(name):
        destination = next(iter(arguments(node).values()), None)
        if not isinstance(destination, Value):
            table.twin(node, {})
            raise GraphError(f"{where(node)}: what this in-place operator writes to is not one tensor")
        return [destination]
    if table.is_out_overload(node):
        given = arguments(node)
        return [given[key] for key in table.out_twin(node, given)[1]]
    if name in table.BATCH_NORMS and node.domain == "aten" and INPLACE not in node.metadata_props:
        given = arguments(node)
        flag = table.BATCH_NORMS[name]
        if flag is None or given.get(flag):
            return [given[key] for key in ("running_mean", "running_var") if given.get(key) is not None]
    return []


def _blocks(node: ir.Node) -> Iterator[ir.Graph]:
    if len(node.attributes) > 1:
        for attribute in node.attributes.values():
            if attribute.type == ir.AttributeType.GRAPH:
                yield attribute.as_graph()
            elif attribute.type == ir.AttributeType.GRAPHS:
                yield from attribute.as_graphs()


def _writes_anything(graph: ir.Graph) -> bool:
    """Whether any node writes; this is all that a graph without in-place operators costs."""
    norms, irregular = table.BATCH_NORMS, table.OUT_OVERLOADS
    found = False
    for node in graph:
        name, overload = node.op_type, node.overload
        if name[-1] == "_" or overload[-3:] == "out" or name in norms or (name, overload) in irregular:
            found = found or bool(_changed(node))
        if len(node.attributes) > 1 and any(_writes_anything(block) for block in _blocks(node)):
            raise GraphError(
                f"{where(node)}: its sub-blocks hold in-place operators, only straight-line graphs may"
            )
    return found


class _Functionalizer:
    """Rewrites one graph, node after node."""

    def __init__(self, graph: ir.Graph, aliases: _Aliases):
        self._graph = graph
        self._aliases = aliases
        self._build = SourceBuilder(graph)
        self._tensors: dict[Value, _Tensor] = {}
        self._gone: list[ir.Node] = []
        self._idle: list[ir.Node] = []
        """View nodes, which leave at the end when nothing reads them."""

    def run(self) -> None:
        """Rewrite every node, then the graph's outputs."""
        for node in list(self._graph):
            self._visit(node)
        self._build.after(self._graph[-1])
        outputs = self._graph.outputs
        for index, value in enumerate(outputs):
            if value in self._tensors:
                outputs[index] = self._tensors[value].view.read(self._build)

    def append_outputs(self) -> None:
        """Append the new value of every input and initializer that outlives the call."""
        for value in self._aliases.outliving:
            new = self._tensor(value).view.read(self._build)
            if new.is_graph_output() or new.is_graph_input() or new.is_initializer():
                new = self._build.emit("aten::alias", {"self": new}, like=new)
            new.metadata_props[MUTATES] = value.name or ""
            self._graph.outputs.append(new)

    def clean(self) -> None:
        """Remove in-place nodes that became nothing, and views that nothing reads any longer."""
        for node in reversed(self._gone):
            self._graph.remove(node, safe=True)
        order = {node: index for index, node in enumerate(self._graph)}
        candidates = [node for node in (*self._build.made, *self._idle) if node in order]
        remove_unused(self._graph, sorted(candidates, key=order.__getitem__))

    def _tensor(self, value: Value) -> _Tensor:
        tensor = self._tensors.get(value)
        if tensor is None:
            tensor = self._tensors[value] = _Tensor(_View(_Storage(value), value))
        return tensor

    def _visit(self, node: ir.Node) -> None:
        self._build.before(node)
        changed = _changed(node)
        given = arguments(node) if changed or may_be_view(node) else {}
        self._refresh(node)
        if given and may_be_view(node):
            rule = view_rule(node, given)
            if rule is not None:
                self._view(node, rule, given)
        elif changed:
            self._change(node, given, changed)

    def _refresh(self, node: ir.Node) -> None:
        """Have a node, and the nodes of its sub-blocks, read the current values."""
        for index, value in enumerate(node.inputs):
            tensor = self._tensors.get(value) if value is not None else None
            if tensor is not None:
                current = tensor.view.read(self._build)
                if current is not value:
                    node.replace_input_with(index, current)
        for block in _blocks(node):
            for inner in block:
                self._refresh(inner)
            for index, value in enumerate(block.outputs):
                if value in self._tensors:
                    block.outputs[index] = self._tensors[value].view.read(self._build)

    def _view(self, node: ir.Node, rule: ViewRule, given: dict[str, Any]) -> None:
        current = arguments(node)
        for index, (output, source) in enumerate(zip(node.outputs, aliased(node, rule, given), strict=False)):
            if source is None or not self._aliases.is_tracked(source):
                continue
            tensor = self._tensor(source)
            if rule.same_object:
                self._tensors[output] = tensor
            else:
                step = ViewStep.of(node, rule, current, index)
                self._tensors[output] = _Tensor(_View(tensor.view.storage, output, tensor.view, step))
            self._idle.append(node)

    def _change(self, node: ir.Node, given: dict[str, Any], changed: list[Value]) -> None:
        name = node.op_type
        if name in table.BATCH_NORMS:
            self._statistics(node, changed)
        elif name in table.IDLE:
            for output in node.outputs:
                self._tensors[output] = self._tensor(changed[0])
            self._gone.append(node)
        elif name in table.METADATA:
            self._reinterpret(node, changed[0])
        elif (name, node.overload) in table.COPIES:
            self._copy(node, changed[0])
        elif table.is_inplace_name(name):
            self._write(node, changed[0])
        else:
            self._write_out(node, changed)

    def _reinterpret(self, node: ir.Node, value: Value) -> None:
        """`x.unsqueeze_(0)`: the tensor object becomes a view of what it was."""
        name, overload, current = table.twin(node, arguments(node))
        node.op_type, node.overload = name, overload
        rule = view_rule(node, current)
        assert rule is not None, name
        tensor = self._tensor(value)
        step = ViewStep.of(node, rule, current)
        tensor.view = _View(tensor.view.storage, node.outputs[0], tensor.view, step)
        self._tensors[node.outputs[0]] = tensor
        self._idle.append(node)

    def _copy(self, node: ir.Node, value: Value) -> None:
        """`copy_`: the source itself, cast and broadcast, is the new value."""
        current = arguments(node)
        source = current[table.COPIES[node.op_type, node.overload]]
        tensor = self._tensor(value)
        self._build.after(node)
        made = len(self._build.made)
        tensor.view.write(self._build, self._build.conform(source, tensor.view.read(self._build)))
        for new in self._build.made[made:][-1:]:
            new.metadata_props[INPLACE] = "true"
        for output in node.outputs:
            self._tensors[output] = tensor
        self._gone.append(node)

    def _write(self, node: ir.Node, value: Value) -> None:
        name, overload, current = table.twin(node, arguments(node))
        tensor = self._tensor(value)
        old = tensor.view.read(self._build)
        node.op_type, node.overload = name, overload
        replace_arguments(node, current)
        node.metadata_props[INPLACE] = "true"
        self._build.after(node)
        tensor.view.write(self._build, self._result(node, 0, old))
        self._tensors[node.outputs[0]] = tensor

    def _write_out(self, node: ir.Node, changed: list[Value]) -> None:
        overload, _, current = table.out_twin(node, arguments(node))
        tensors = [self._tensor(value) for value in changed]
        old = [tensor.view.read(self._build) for tensor in tensors]
        node.overload = overload
        replace_arguments(node, current)
        node.metadata_props[INPLACE] = "true"
        self._build.after(node)
        for index, tensor in enumerate(tensors):
            output = node.outputs[index]
            if not tensor.view.is_whole and output.shape is not None and not same_shape(output, old[index]):
                raise GraphError(f"{where(node)}: it resizes a view of another tensor")
            tensor.view.write(self._build, self._result(node, index, old[index]))
            self._tensors[output] = tensor

    def _result(self, node: ir.Node, index: int, old: Value) -> Value:
        """What a functional node computed, cast to the element type of what it is written to."""
        output = node.outputs[index]
        natural = (
            output_dtype(node.op_type, arguments(node)) if index == 0 and node.domain == "aten" else None
        )
        if natural is None or old.dtype is None or natural == old.dtype:
            return output
        output.type = ir.TensorType(natural)
        return self._build.cast(output, old.dtype)

    def _statistics(self, node: ir.Node, changed: list[Value]) -> None:
        node.metadata_props[INPLACE] = "true"
        if not any(self._aliases.is_tracked(value) for value in changed):
            return
        current = arguments(node)
        self._build.after(node)
        for key, new in updated_statistics(self._build, node, current):
            value = changed[0] if key == "running_mean" else changed[-1]
            self._tensor(value).view.write(self._build, new)


def _check_mutations(aliases: _Aliases, mutations: str) -> None:
    """Refuse, or warn of, changes to inputs and initializers, as the caller asked for."""
    if not aliases.outliving or mutations == "outputs":
        return
    changes = [
        f"{value.metadata_props.get(KIND, 'input')} '{value.name}' ({where(node)})"
        for value, node in aliases.outliving.items()
    ]
    if mutations == "drop":
        warnings.warn(
            f"the new values of what the model writes to are dropped: {', '.join(changes)}", stacklevel=4
        )
        return
    lines = "\n".join(f"  - {change}" for change in changes)
    raise MutationError(
        "the model writes to its inputs, parameters or buffers, which an ONNX graph cannot do:\n"
        f'{lines}\nPass mutations="outputs" to have the new values as further outputs, mutations="drop" '
        "to go without them, or make the model functional (write to a clone; call eval() for statistics)."
    )


class RemoveInplace(ir.passes.InPlacePass):
    """Replaces in-place operators and `out=` overloads of a source graph by functional ones.

    Args:
        mutations: what becomes of inputs, parameters and buffers that the model writes to: `"error"`
            refuses, `"outputs"` appends their new values to the graph's outputs, `"drop"` warns.
    """

    def __init__(self, mutations: str = "error"):
        super().__init__()
        if mutations not in MUTATIONS:
            raise OpsettaError(f"mutations is one of {', '.join(map(repr, MUTATIONS))}, not {mutations!r}")
        self.mutations = mutations

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Rewrite the model's graph in place.

        Raises:
            MutationError: an input, parameter or buffer is written to, and `mutations` is `"error"`.
            GraphError: an operator or a view that cannot be made functional.
        """
        graph = model.graph
        if not _writes_anything(graph):
            return ir.passes.PassResult(model, False)
        aliases = _Aliases(graph, keep_statistics=self.mutations == "drop")
        _check_mutations(aliases, self.mutations)
        rewriter = _Functionalizer(graph, aliases)
        rewriter.run()
        if self.mutations == "outputs":
            rewriter.append_outputs()
        rewriter.clean()
        return ir.passes.PassResult(model, True)


def remove_inplace(model: ir.Model, mutations: str = "error") -> bool:
    """Make a source graph functional, in place; whether anything changed. See `RemoveInplace`."""
    return RemoveInplace(mutations).call(model).modified
