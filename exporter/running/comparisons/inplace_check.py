"""Proves that the in-place annotations of a file are safe, or lists the unsafe ones with reasons.

The model is simulated on abstract memory blocks. Every operator puts its outputs into new blocks, into blocks
of its inputs (views, values passed by reference), or into the block that its annotation names. Writing to a
block overwrites every other value in it, and an overwritten value must never be read. The simulation uses
every annotation, which is the worst case: a runtime that ignores some shares less memory.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
import re
from collections.abc import Container, Iterable, Sequence

import onnx
import onnx_ir as ir

from ....passes.onnx_graph.inplace import memory_sharing
from ....registration import INPLACE, MAY_OVERWRITE, AnnotationError, ModelFileError, UnsafeAnnotation
from ...files.garbage_collection import rare_collections
from ...files.reading import Bounds, bounds_of, check_calls, check_memory, check_text, read_model
from ...files.reading.subgraphs import all_graphs, subgraphs
from ...lowering.inference import InferenceError, infer_shapes

_PAIR = re.compile(r"(0|[1-9][0-9]{0,8}):(0|[1-9][0-9]{0,8})")
_LARGE = 1024
"""Larger initializers (in bytes) are dropped before shape inference, because they determine no shapes."""

_Graph = onnx.GraphProto | onnx.FunctionProto


@rare_collections()
def check_inplace(
    model: str | os.PathLike[str] | onnx.ModelProto | ir.Model, *, trusted: bool = False
) -> int:
    """Prove that every in-place annotation of a model is safe.

    docs/metadata.md defines what an annotation allows and what is safe. Sizes and element types come from the
    file and from onnx's shape inference; external data is not read.

    Args:
        model: a path, or a model in memory, which is not changed.
        trusted: see `opsetta.load`.

    Returns:
        The number of annotations.

    Raises:
        AnnotationError: annotations are unsafe, unproven, or malformed; the error lists all of them.
        ModelFileError: the file cannot be read, or its graph is malformed: a value is undefined or defined
            twice, or sizes and types contradict each other.
    """
    bounds = bounds_of(trusted)
    if isinstance(model, (str, os.PathLike)):
        proto = read_model(model, bounds)
    elif isinstance(model, ir.Model):
        proto = ir.to_proto(model)
    else:
        proto = onnx.ModelProto()
        # Copied, because inference and the removal of weights would change the caller's message.
        proto.CopyFrom(model)
    if not any(_annotations(node) for graph in all_graphs(proto) for node in graph.node):
        return 0
    check_memory(proto, bounds)
    check_text(proto)
    check_calls(proto, bounds)
    simulation = _Simulation(_infer_types(proto, bounds))
    unsafe = [a.finding() for a in simulation.run() if a.reason]
    if unsafe:
        raise AnnotationError(unsafe)
    return simulation.count


def _annotations(node: onnx.NodeProto) -> list[tuple[str, str]]:
    return [(e.key, e.value) for e in node.metadata_props if e.key in (INPLACE, MAY_OVERWRITE)]


def _infer_types(model: onnx.ModelProto, bounds: Bounds) -> onnx.ModelProto:
    """Infer the types of a model, after removing the contents of its large weights."""
    for graph in all_graphs(model):
        for tensor in graph.initializer if isinstance(graph, onnx.GraphProto) else ():
            if tensor.ByteSize() > _LARGE:
                dims, name, data_type = list(tensor.dims), tensor.name, tensor.data_type
                tensor.Clear()
                tensor.name, tensor.data_type = name, data_type
                tensor.dims.extend(dims)
    try:
        return infer_shapes(model, strict=True, bounds=bounds)
    except (InferenceError, ValueError) as error:
        # The simulation may raise an error that names the malformed value, which is more helpful.
        _Simulation(model).run()
        raise ModelFileError(f"the model is not valid: {' '.join(str(error).split())}") from None


@dataclasses.dataclass(eq=False)
class _Annotation:
    """An annotated node, and the reason why its annotation is unsafe; "" if none was found."""

    node: str
    text: str
    reason: str = ""

    def fail(self, reason: str) -> None:
        self.reason = self.reason or reason

    def finding(self) -> UnsafeAnnotation:
        return UnsafeAnnotation(self.node, self.text, self.reason)


@dataclasses.dataclass(eq=False)
class _MemoryBlock:
    """A piece of memory.

    Attributes:
        depth: the nesting depth of the outermost graph that uses the block.
        protection: the reason why the block must not be written; "" if it may.
        values: the values in the block that have not been overwritten.
        merged: the block that represents both, because this one may be the same memory; None if not merged.
    """

    depth: int
    protection: str = ""
    values: list[_Value] = dataclasses.field(default_factory=list)
    merged: _MemoryBlock | None = None


@dataclasses.dataclass(eq=False)
class _Value:
    """A value: its name, declared type, block, and the annotation that overwrote it, if any."""

    name: str
    type: onnx.TypeProto | None
    stored_block: _MemoryBlock
    overwritten: _Annotation | None = None

    @property
    def block(self) -> _MemoryBlock:
        block = self.stored_block
        while block.merged is not None:
            # Path compression (union-find): keeps many merges nearly linear.
            if block.merged.merged is not None:
                block.merged = block.merged.merged
            block = block.merged
        self.stored_block = block
        return block

    def is_tensor(self) -> bool:
        return self.type is None or self.type.WhichOneof("value") in (None, "tensor_type")

    def dtype(self) -> int | None:
        return None if self.type is None else self.type.tensor_type.elem_type or None

    def dims(self) -> memory_sharing.Dims | None:
        if self.type is None or not self.type.tensor_type.HasField("shape"):
            return None
        return [_size(dim) for dim in self.type.tensor_type.shape.dim]


def _size(dim: onnx.TensorShapeProto.Dimension) -> int | str | None:
    if dim.HasField("dim_value"):
        return dim.dim_value if dim.dim_value >= 0 else None
    return dim.dim_param or None


def _names(values: Iterable[onnx.ValueInfoProto | str]) -> list[str]:
    return [value.name if isinstance(value, onnx.ValueInfoProto) else value for value in values]


def _constants(graph: _Graph) -> dict[str, onnx.TypeProto]:
    """Return the types of a graph's initializers by name."""
    if isinstance(graph, onnx.FunctionProto):
        return {}
    dense = {t.name: onnx.helper.make_tensor_type_proto(t.data_type, t.dims) for t in graph.initializer}
    sparse = {t.values.name: onnx.TypeProto() for t in graph.sparse_initializer}
    return dense | sparse


def _types(graph: _Graph) -> dict[str, onnx.TypeProto]:
    """Return the declared types of a graph's values by name, without those of enclosing graphs."""
    stated = [*graph.value_info]
    if isinstance(graph, onnx.GraphProto):
        stated += [*graph.input, *graph.output]
    return {value.name: value.type for value in stated} | _constants(graph)


def _label(node: onnx.NodeProto) -> str:
    return f"node '{node.name}'" if node.name else f"the {node.op_type} of '{', '.join(node.output)}'"


def _parse_pairs(texts: list[str]) -> tuple[list[tuple[int, int]], str]:
    """Parse the (output, input) pairs of an annotation; the second item is a message if it is malformed."""
    if len(texts) > 1:
        return [], "it occurs twice"
    matches = [_PAIR.fullmatch(pair_text) for pair_text in texts[0].split(",")]
    pairs = [(int(pair[1]), int(pair[2])) for pair in matches if pair is not None]
    if len(pairs) < len(matches):
        return [], "it is not of the form OUTPUT:INPUT[,OUTPUT:INPUT...]"
    for side in zip(*pairs, strict=True):
        if len(set(side)) < len(pairs):
            return [], "it names an output or an input twice"
    return pairs, ""


def _overwrite(value: _Value, result: _Value, annotation: _Annotation) -> None:
    """Write a node's result to the memory of a value; other values in it are lost."""
    block = value.block
    for lost_value in block.values:
        if lost_value is not result:
            lost_value.overwritten = annotation
    block.values = [result]
    result.stored_block = block


def _merge(values: Sequence[_Value | None], depth: int) -> None:
    """Merge the blocks of values into one that is no deeper than `depth`."""
    blocks = list({id(v.block): v.block for v in values if v is not None}.values())
    if not blocks:
        return
    # Union by size: moving smaller lists into the largest keeps the total time near linear.
    blocks.sort(key=lambda block: -len(block.values))
    first = blocks[0]
    for block in blocks[1:]:
        first.values += block.values
        first.protection = first.protection or block.protection
        block.values, block.merged = [], first
    first.depth = min(depth, *(block.depth for block in blocks))


class _Simulation:
    """Simulates a model on abstract memory blocks."""

    def __init__(self, model: onnx.ModelProto):
        self._model = model
        self._functions = {(f.domain, f.name) for f in model.functions}
        self._scopes: list[dict[str, _Value]] = []
        self._opset = 0
        self._annotations: list[_Annotation] = []

    @property
    def count(self) -> int:
        """The number of annotations."""
        return len(self._annotations)

    def run(self) -> list[_Annotation]:
        """Simulate the model; return every annotation in the order of the file."""
        for body in (self._model.graph, *self._model.functions):
            imports = self._model.opset_import if isinstance(body, onnx.GraphProto) else body.opset_import
            self._opset = next((e.version for e in imports if e.domain in ("", "ai.onnx")), 0)
            self._run_graph(body, [])
        return self._annotations

    def _run_graph(
        self, graph: _Graph, actuals: Sequence[_Value | None]
    ) -> tuple[list[_Value], list[_Value]]:
        """Simulate a graph or a function; return its inputs and outputs.

        Args:
            actuals: the values bound to its inputs, by position; None for an input that gets new values.
        """
        types = _types(graph)
        scope: dict[str, _Value] = {}
        title = "the graph" if isinstance(graph, onnx.GraphProto) else f"function '{graph.name}'"
        self._scopes.append(scope)
        depth = len(self._scopes)
        formals = []
        for name, actual in itertools.zip_longest(_names(graph.input), actuals[: len(graph.input)]):
            block = _MemoryBlock(depth, "an input") if actual is None else actual.block
            formals.append(_Value(name, types.get(name), block))
            block.values.append(formals[-1])
            scope[name] = formals[-1]
        for name in _constants(graph):
            scope.setdefault(
                name, _Value(name, types[name], _MemoryBlock(depth))
            ).block.protection = "an initializer"
        for node in graph.node:
            self._run_node(node, types)
        results = [self._read_value(name, f"{title} returns") for name in _names(graph.output)]
        self._scopes.pop()
        return formals, results

    def _read_value(self, name: str, reader: str) -> _Value:
        value = next((scope[name] for scope in reversed(self._scopes) if name in scope), None)
        if value is None:
            raise ModelFileError(f"{reader} '{name}', which no node before it computes")
        if value.overwritten is not None:
            value.overwritten.fail(f"it overwrites '{name}', which {reader}")
        return value

    def _run_node(self, node: onnx.NodeProto, types: dict[str, onnx.TypeProto]) -> None:
        reader = f"{_label(node)} reads"
        inputs = [self._read_value(name, reader) if name else None for name in node.input]
        scope, depth = self._scopes[-1], len(self._scopes)
        outputs = [_Value(name, types.get(name), _MemoryBlock(depth)) for name in node.output]
        for output in outputs:
            output.block.values.append(output)
        self._place(node, inputs, outputs)
        self._apply_annotation(node, inputs, outputs)
        for output in outputs:
            if output.name in scope:
                raise ModelFileError(f"'{output.name}' is computed twice, the second time by {_label(node)}")
            if output.name:
                scope[output.name] = output

    def _is_standard(
        self, node: onnx.NodeProto, domains: Container[str] = memory_sharing.STANDARD_DOMAINS
    ) -> bool:
        return node.domain in domains and (node.domain, node.op_type) not in self._functions

    def _place(self, node: onnx.NodeProto, inputs: list[_Value | None], outputs: list[_Value]) -> None:
        """Simulate a node's sub-graphs, and put its outputs into the blocks of inputs that they may share."""
        depth, name = len(self._scopes), node.op_type
        blocks = subgraphs(node)
        if self._is_standard(node) and name in memory_sharing.CONTROL_FLOW:
            for block in blocks:
                actuals = memory_sharing.bound_inputs(name, inputs, len(block.input))
                formals, results = self._run_graph(block, actuals)
                for group in memory_sharing.bindings(name, inputs, formals, results, outputs):
                    _merge(group, depth)
        elif self._is_standard(node) and name in memory_sharing.VIEWS:
            source = inputs[0] if inputs and outputs else None
            if source is not None and memory_sharing.is_view(name, source.dtype(), outputs[0].dtype()):
                _merge([source, outputs[0]], depth)
        elif self._is_standard(node) and name == "Constant":
            for output in outputs:
                output.block.protection = "a constant"
        elif self._is_standard(node) and not blocks:
            if name in memory_sharing.CONTAINERS:
                _merge([*inputs, *outputs], depth)
        else:
            inner = [
                value
                for block in blocks
                for values_of_block in self._run_graph(block, [])
                for value in values_of_block
            ]
            for value in (*inputs, *outputs, *inner):
                if value is not None:
                    value.block.protection = f"what {node.op_type} takes or gives, which may keep it"

    def _apply_annotation(
        self, node: onnx.NodeProto, inputs: list[_Value | None], outputs: list[_Value]
    ) -> None:
        """Check a node's annotation as far as this node can tell, and overwrite the named inputs."""
        entries = _annotations(node)
        texts = [text for key, text in entries if key == MAY_OVERWRITE]
        if any(text != "true" for key, text in entries if key == INPLACE):
            text = f"{INPLACE} = {dict(entries)[INPLACE]}"
            self._annotations.append(_Annotation(_label(node), text, "its one value is 'true'"))
        if not texts:
            return
        annotation = _Annotation(_label(node), f"{MAY_OVERWRITE} = {' and '.join(texts)}")
        self._annotations.append(annotation)
        pairs, syntax_error = _parse_pairs(texts)
        annotation.fail(syntax_error)
        for output, position in pairs:
            value = inputs[position] if position < len(inputs) else None
            if output >= len(outputs) or not outputs[output].name:
                annotation.fail(f"the node has no output {output}")
            elif value is None:
                annotation.fail(f"the node has no input {position}")
            else:
                annotation.fail(self._objection(node, output, position, inputs, outputs))
                if not annotation.reason:
                    _overwrite(value, outputs[output], annotation)

    def _objection(
        self,
        node: onnx.NodeProto,
        output: int,
        position: int,
        inputs: list[_Value | None],
        outputs: list[_Value],
    ) -> str:
        """Return why an output must not overwrite an input even if nothing reads it later; "" if it may."""
        value = inputs[position]
        assert value is not None
        if self._opset < memory_sharing.FIRST_OPSET:
            first = memory_sharing.FIRST_OPSET
            return f"opset {self._opset} is below {first}, from which on operators are known"
        positions = memory_sharing.overwritable(node.op_type, self._opset, len(inputs))
        if not self._is_standard(node, ("", "ai.onnx")) or output != 0 or position not in positions:
            return f"{node.op_type} is not known to write output {output} over input {position}"
        other_inputs = {i: v for i, v in enumerate(inputs) if v is not None and v is not value}
        # A kernel that writes some elements before it reads others would read its own results.
        is_read_twice = sum(v is value for v in inputs) > 1 and not memory_sharing.allows_twice(node.op_type)
        if is_read_twice or any(v.block is value.block for v in other_inputs.values()):
            return f"another input may lie in the memory of '{value.name}'"
        result = outputs[0]
        if not (value.is_tensor() and result.is_tensor()) or not memory_sharing.same_element_type(
            node.op_type, self._opset, position, value.dtype(), result.dtype()
        ):
            return f"it is not proven that '{value.name}' has the element type of '{result.name}'"
        shapes = {i: v.dims() for i, v in ((position, value), *other_inputs.items())}
        if not memory_sharing.same_size(node.op_type, position, shapes, result.dims()):
            return f"it is not proven that '{value.name}' has the size of '{result.name}'"
        if value.block.protection:
            return f"'{value.name}' is, or may share memory with, {value.block.protection}"
        # A body may run again or not at all, and outer graphs may read the value afterwards.
        if value.block.depth < len(self._scopes):
            return f"'{value.name}' is, or may share memory with, a value of an outer graph"
        return ""
