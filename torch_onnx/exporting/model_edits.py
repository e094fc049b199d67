"""Edits an exported model: names of weights and axes, versions of domains, weights as inputs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

import onnx_ir as ir

from ...registration import DIMENSIONS
from ...registration.warning import warn

_IDENTIFIER = re.compile(r"[A-Za-z_]\w*(?:\.\w+)*")


def state_names(model: object) -> list[str]:
    """Return the names in a model's state_dict, in order; only the first name of each tensor."""
    state = model.state_dict(keep_vars=True) if hasattr(model, "state_dict") else {}
    first: dict[int, str] = {}
    for name, tensor in state.items():
        # Tied weights are one initializer, under their first name.
        first.setdefault(id(tensor), name)
    return list(first.values())


def list_weights_as_inputs(model: ir.Model, names: Sequence[str], *, with_values: bool) -> None:
    """Make weights inputs of the graph, after the others.

    Args:
        names: the weights, in order; names that the graph lacks are ignored.
        with_values: whether their values stay in the file as defaults.
    """
    graph = model.graph
    for name in names:
        weight = graph.initializers.get(name)
        if weight is None:
            continue
        if weight.is_graph_input():
            # A file below opset 9 lists them already, in another order.
            graph.inputs.remove(weight)
        graph.inputs.append(weight)
        if not with_values:
            graph.initializers.pop(name)
            weight.const_value = None


def name_weights(model: ir.Model, state: Sequence[str], new_names: Sequence[str]) -> None:
    """Rename weights: the first of `new_names` is that of the first weight of `state`, and so on.

    Warns: UserWarning: there are more names than weights, or a weight was folded into another.
    """
    absent = list(new_names[len(state) :])
    for old, new in zip(state, new_names, strict=False):
        weight = model.graph.initializers.pop(old, None)
        if weight is None:
            absent.append(new)
            continue
        weight.name = new
        if weight.const_value is not None:
            # The tensor has a name of its own, which the file would get.
            weight.const_value.name = new
        model.graph.initializers[new] = weight
    if absent:
        warn(
            f"input_names: no weight of the file has the name {', '.join(map(repr, absent))}, because it was "
            "folded into another weight, or because the model has fewer"
        )


def set_domain_versions(model: ir.Model, versions: Mapping[str, int]) -> None:
    """Declare these versions of the domains that the model uses."""
    for domain in model.graph.opset_imports:
        if domain in versions:
            model.graph.opset_imports[domain] = versions[domain]


def label_outputs(model: ir.Model, axes: Mapping[str, Mapping[int, object]]) -> None:
    """Name the axes of outputs whose size is unknown or computed.

    A size that equals a size of an input keeps its name. The label of an input's axis is not used for an axis
    of another size.
    """
    input_sizes = {size for value in model.graph.inputs for size in _sizes(value)}
    for value in model.graph.outputs:
        labels = axes.get(value.name or "")
        if not labels or value.shape is None:
            continue
        sizes = _sizes(value)
        for axis, label in labels.items():
            is_open = -len(sizes) <= axis < len(sizes) and not isinstance(sizes[axis], int)
            if is_open and sizes[axis] not in input_sizes and str(label) not in input_sizes:
                sizes[axis] = str(label)
        value.shape = ir.Shape(sizes)


def axis_names(inputs: Sequence[ir.Value], dynamic_shapes: object) -> dict[str, str]:
    """Return the new name of each axis from the names in `dynamic_shapes`, one entry per input."""
    entries = list(_flatten_entries(dynamic_shapes))
    if len(entries) != len(inputs):
        warn(f"dynamic_shapes has {len(entries)} entries for {len(inputs)} inputs, and names no axis")
        return {}
    new_names: dict[str, str] = {}
    for value, entry in zip(inputs, entries, strict=True):
        dimensions = entry if isinstance(entry, (list, tuple)) else ()
        items = entry.items() if isinstance(entry, Mapping) else enumerate(dimensions)
        sizes = _sizes(value)
        for axis, dimension in items:
            name = dimension if isinstance(dimension, str) else getattr(dimension, "__name__", None)
            size = sizes[axis]
            if isinstance(name, str) and isinstance(size, str):
                new_names.setdefault(size, str(name))
    return new_names


def _flatten_entries(dynamic_shapes: object) -> Iterator[object]:
    """Flatten nested entries to those of single tensors."""
    if isinstance(dynamic_shapes, Mapping) and not any(isinstance(key, int) for key in dynamic_shapes):
        for entry in dynamic_shapes.values():
            yield from _flatten_entries(entry)
    elif isinstance(dynamic_shapes, (list, tuple)) and any(
        isinstance(entry, (Mapping, list, tuple)) for entry in dynamic_shapes
    ):
        for entry in dynamic_shapes:
            yield from _flatten_entries(entry)
    else:
        yield dynamic_shapes


def rename_axes(model: ir.Model, names: Mapping[str, str] | Mapping[str | ir.SymbolicDim, str]) -> None:
    """Rename axes, also in formulas and in the model's conditions on sizes.

    Args:
        names: the new name by the old one, a string or an `onnx_ir.SymbolicDim`.
    """
    by_name = {str(old.value if isinstance(old, ir.SymbolicDim) else old): new for old, new in names.items()}

    def rename_in_text(text: str) -> str:
        return _IDENTIFIER.sub(lambda match: by_name.get(match[0], match[0]), text)

    seen: set[int] = set()
    for graph in model.graphs():
        values = [*graph.inputs, *graph.initializers.values(), *(v for node in graph for v in node.outputs)]
        for value in values:
            if value.shape is not None and id(value) not in seen:
                seen.add(id(value))
                value.shape = ir.Shape(
                    [rename_in_text(size) if isinstance(size, str) else size for size in _sizes(value)]
                )
    if DIMENSIONS in model.metadata_props:
        model.metadata_props[DIMENSIONS] = rename_in_text(model.metadata_props[DIMENSIONS])


def _sizes(value: ir.Value) -> list[int | str | None]:
    """Return the sizes of a value: numbers, names and formulas, or None."""
    if value.shape is None:
        return []
    return [size.value if isinstance(size, ir.SymbolicDim) else size for size in value.shape]
