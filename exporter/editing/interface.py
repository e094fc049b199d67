"""Sets sizes and names of a model's inputs and outputs."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence

import onnx_ir as ir

from ...registration import DIMENSIONS, GraphError, UsageError
from ...registration.arguments import every_node, graphs_of
from ...registration.validity.node_check import invalid_nodes
from ..captured_graph.dimensions import read_restrictions, write_restrictions
from ..captured_graph.size_expressions import evaluate
from ..files.reading import BOUNDS, Bounds
from ..files.reading.carried import attach, carried_by
from ..lowering.conversion.prepared_models.preparation import copy_of, message_without_weights, source_of
from ..lowering.conversion.written_shapes import restate_outputs
from ..lowering.inference import InferenceError, infer_shapes
from .batch import forget_shapes, make_batch_dynamic

Size = int | str
Sizes = Mapping[str, Size]
"""Sizes or new names of named dimensions."""


@dataclasses.dataclass(frozen=True)
class InterfaceChanges:
    """What to change at the interface of a model.

    Attributes:
        shapes: new shapes of inputs, by name; a size is a number, or the name of a dynamic dimension.
        dims: sizes for named dimensions, or new names.
        batch: a name for the leading dimension of the inputs, which then varies; "" leaves it as it is.
        names: new names of inputs and outputs, by the present ones.
    """

    shapes: Mapping[str, Sequence[Size]] = dataclasses.field(default_factory=dict)
    dims: Sizes = dataclasses.field(default_factory=dict)
    batch: str = ""
    names: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.shapes or self.dims or self.batch or self.names)


def change_interface(model: ir.Model, changes: InterfaceChanges, bounds: Bounds) -> ir.Model:
    """A copy of a model with other sizes and names; weights are shared.

    Args:
        bounds: limits on the inference of shapes.

    Raises:
        UsageError: the model has no such input, output or dimension, or a name is taken.
        GraphError: the model contradicts the sizes, as a Reshape to a constant shape may.
        InferenceError: the batch is to be dynamic, and onnxruntime is not installed or refuses the model.
    """
    if changes.batch and changes.batch in changes.dims:
        raise UsageError(f"dynamic and dims both set '{changes.batch}': leave one of them out")
    # The sizes of a batch are found by the shapes of all values, which files seldom declare.
    changed = source_of(model, bounds) if changes.batch else copy_of(model)
    attach(changed, carried_by(model))
    sizes = _check_dims(changed, changes.dims)
    for name, shape in changes.shapes.items():
        sizes |= _set_shape(changed, name, shape, sizes)
    substitute_sizes(changed, sizes)
    if sizes or changes.shapes:
        check_shapes(model, changed)
    if changes.batch:
        make_batch_dynamic(changed, changes.batch)
    _rename(changed.graph, changes.names)
    return changed


def substitute_sizes(model: ir.Model, sizes: Sizes) -> None:
    """Replace named dimensions, in all shapes of a model and in the sizes for which it is valid.

    Raises:
        GraphError: the model is not valid for the sizes.
        DimensionError: the metadata of the model does not have the documented form.
    """
    if not sizes:
        return
    for value in _values(model.graph):
        if value.shape is not None:
            dims: list[int | str | None] = []
            for size in value.shape:
                text = size if isinstance(size, int) else size.value
                number = evaluate(text, _numbers(sizes)) if isinstance(text, str) else None
                if isinstance(number, int):
                    dims.append(number)
                else:
                    dims.append(_replace_names(text, sizes) if isinstance(text, str) else text)
            value.shape = ir.Shape(dims)
    remaining = []
    for restriction in read_restrictions(model.metadata_props):
        holds = evaluate(restriction.condition, _numbers(sizes))
        if holds is False:
            raise GraphError(f"the model is not valid for these sizes: it needs {restriction}")
        if holds is not True:
            condition = _replace_names(restriction.condition, sizes)
            remaining.append(dataclasses.replace(restriction, condition=condition))
    model.metadata_props.pop(DIMENSIONS, None)
    write_restrictions(model.metadata_props, remaining)


def check_shapes(original: ir.Model, changed: ir.Model) -> None:
    """Refuse a model whose nodes do not fit the shapes of its inputs.

    Outputs that only the file declares otherwise get the shapes that their nodes compute, with a warning.

    Raises:
        GraphError: a node contradicts the sizes, and none of the original's.
    """
    problems = _size_problems(changed)
    if not problems or _size_problems(original):
        return
    restated = restate_outputs(changed, message_without_weights(changed), True, BOUNDS)
    if not restated or _size_problems(changed):
        raise GraphError(f"the model does not take these sizes: {problems[0]}")


def _size_problems(model: ir.Model) -> list[str]:
    """What onnx's inference and the check of nodes find wrong with a model."""
    try:
        inferred = infer_shapes(message_without_weights(model), data_prop=True, strict=True)
    except (InferenceError, ValueError) as error:
        return [" ".join(str(error).split())]
    return [str(node) for node in invalid_nodes(ir.from_proto(inferred))]


def _check_dims(model: ir.Model, dims: Sizes) -> dict[str, Size]:
    names = {
        str(size)
        for value in model.graph.inputs
        for size in value.shape or ()
        if not isinstance(size, int) and size.value is not None
    }
    for name, size in dims.items():
        if name not in names:
            listed = f"their dynamic dimensions are {', '.join(sorted(names))}" if names else "they have none"
            raise UsageError(f"the inputs have no dynamic dimension '{name}': {listed}")
        if isinstance(size, int) and size < 0:
            raise UsageError(f"the size of '{name}' is {size}, but must be 0 or more")
    return dict(dims)


def _set_shape(model: ir.Model, name: str, shape: Sequence[Size], sizes: Sizes) -> dict[str, Size]:
    """Set the shape of an input; returns the sizes or names of the named dimensions that it decides."""
    value = next((value for value in model.graph.inputs if value.name == name), None)
    if value is None:
        inputs = ", ".join(str(value.name) for value in model.graph.inputs)
        raise UsageError(f"the model has no input '{name}': its inputs are {inputs}")
    if value.shape is not None and len(value.shape) != len(shape):
        raise UsageError(f"input '{name}' has {len(value.shape)} dimensions {value.shape}, not {len(shape)}")
    decided: dict[str, Size] = {}
    declared = value.shape or ir.Shape([None] * len(shape))
    for old, new in zip(declared, shape, strict=True):
        if not isinstance(old, int) and old.value is not None:
            if decided.setdefault(str(old), new) != new or sizes.get(str(old), new) != new:
                raise UsageError(f"dimension '{old}' gets several sizes: one of them is {new}, of '{name}'")
        elif isinstance(old, int) and old != new:
            # The shapes that the file declares for results are those of the old size.
            forget_shapes(model.graph)
    value.shape = ir.Shape(list(shape))
    return decided


def _values(graph: ir.Graph) -> Iterator[ir.Value]:
    yield from graph.inputs
    for node in every_node(graph):
        yield from node.outputs
    for inner in graphs_of(graph)[1:]:
        yield from inner.inputs


def _numbers(sizes: Sizes) -> dict[str, int]:
    return {name: size for name, size in sizes.items() if isinstance(size, int)}


def _replace_names(text: str, sizes: Sizes) -> str:
    for name, size in sizes.items():
        text = re.sub(rf"(?<!\w){re.escape(name)}(?!\w)", str(size), text)
    return text


def _rename(graph: ir.Graph, names: Mapping[str, str]) -> None:
    interface = {str(value.name): value for value in (*graph.inputs, *graph.outputs)}
    used = {value.name for value in _values(graph)} | set(graph.initializers)
    for old, new in names.items():
        if old not in interface or old in graph.initializers:
            listed = ", ".join(name for name in interface if name not in graph.initializers)
            raise UsageError(f"the model has no input or output '{old}': it has {listed}")
        if not new or (new in used and new not in names) or list(names.values()).count(new) > 1:
            raise UsageError(f"'{old}' cannot be renamed to '{new}': the name is taken or empty")
    # All at once, so that two names can be swapped.
    for old, new in names.items():
        interface[old].name = new
