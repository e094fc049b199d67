"""Extracts a part of a model, joins two models, and removes outputs and inputs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np
import onnx_ir as ir
from onnx_ir.passes import common

from ...registration import GraphError, Names, Registry, UsageError
from ...registration.arguments import every_node, graphs_of
from ..files.reading import Bounds
from ..lowering.conversion.convert_model import convert
from ..lowering.conversion.prepared_models.preparation import copy_of, opset_of, source_of
from .interface import substitute_sizes


def extract_part(model: ir.Model, inputs: Sequence[str], outputs: Sequence[str], bounds: Bounds) -> ir.Model:
    """The nodes between some values and others, as a model; weights are shared.

    Args:
        inputs: values to feed; by default the model's inputs that the part needs.
        outputs: values to return; by default the model's outputs that depend on `inputs`.

    Raises:
        UsageError: there is no such value, or the outputs need others than these inputs.
        GraphError: the type of an input or output is unknown.
    """
    source = source_of(model, bounds)
    graph = source.graph
    values = ir.convenience.create_value_mapping(graph, include_subgraphs=False)
    for name in (*inputs, *outputs):
        if name not in values:
            raise UsageError(f"the model has no value '{name}'; `opsetta info --nodes` lists them")
    if not outputs:
        reached = _dependents(values[name] for name in inputs)
        outputs = [str(value.name) for value in graph.outputs if not inputs or value in reached]
        if not outputs:
            raise UsageError(f"no output of the model depends on {', '.join(inputs)}")
    feeds = list(inputs) or [str(value.name) for value in graph.inputs if not value.is_initializer()]
    for name in outputs:
        if values[name].producer() is None and name not in feeds:
            raise UsageError(f"no node computes '{name}': it can only be an output if it is an input, too")
    try:
        part = ir.convenience.extract(graph, feeds, list(outputs))
    except ValueError as error:
        # onnx-ir ends its text with the inputs that the part needs besides.
        lacking = str(error).rpartition("provided: ")[2]
        raise UsageError(f"the part also depends on {lacking}: pass --from for it, or inputs=[…]") from None
    if not inputs:
        for value in [value for value in part.inputs if not value.uses() and not value.is_graph_output()]:
            part.inputs.remove(value)
    for side, part_values in (("input", part.inputs), ("output", part.outputs)):
        for value in part_values:
            if value.type is None:
                raise GraphError(f"the element type of '{value.name}' is unknown, so it cannot be an {side}")
    return _model_like(source, part)


def join_models(
    first: ir.Model,
    second: ir.Model,
    connections: Mapping[str, str],
    keeps_outputs: bool,
    opset: int | None,
    registry: Registry | None,
    bounds: Bounds,
) -> ir.Model:
    """Both models as one, where outputs of the first are inputs of the second; weights are shared.

    Names of the second model that the first has, too, get a number.

    Args:
        connections: inputs of the second model, by the outputs of the first.
        keeps_outputs: whether connected outputs stay outputs.
        opset: that of the result; by default the higher one of both. A model at another one is converted.
        registry, bounds: symbolic functions for a conversion, and limits of it.

    Raises:
        UsageError: there is no such output or input, their types differ, or they use other versions of a
            domain or of a function.
        UnsupportedOperatorsError: the opset cannot express one of the models.
    """
    opsets = [version for version in map(opset_of, (first, second)) if version is not None]
    common = max(opsets, default=None) if opset is None else opset
    joined, added = (
        copy_of(model)
        if common is None or opset_of(model) in (None, common)
        else convert(model, common, registry, bounds)
        for model in (first, second)
    )
    _join_definitions(joined, added)
    results = {str(value.name): value for value in joined.graph.outputs}
    feeds = {str(value.name): value for value in added.graph.inputs}
    for result, feed in connections.items():
        if result not in results:
            raise UsageError(
                f"the first model has no output '{result}': it has {', '.join(results) or 'none'}"
            )
        if feed not in feeds:
            raise UsageError(f"the second model has no input '{feed}': it has {', '.join(feeds) or 'none'}")
        if results[result].dtype != feeds[feed].dtype:
            raise UsageError(
                f"output '{result}' has {results[result].dtype} elements, and input '{feed}' "
                f"{feeds[feed].dtype}"
            )
        if not _may_be_equal(results[result].shape, feeds[feed].shape):
            raise UsageError(
                f"output '{result}' has the shape {results[result].shape}, and input '{feed}' "
                f"{feeds[feed].shape}"
            )
    _rename_values(added.graph, Names.of(joined.graph))
    for result, feed in connections.items():
        ir.convenience.replace_all_uses_with(feeds[feed], results[result], replace_graph_outputs=True)
        added.graph.inputs.remove(feeds[feed])
    _move_nodes(added.graph, joined.graph)
    outputs = [v for v in joined.graph.outputs if keeps_outputs or v.name not in connections]
    outputs = list(dict.fromkeys([*outputs, *added.graph.outputs]))
    added.graph.outputs.clear()
    joined.graph.outputs.clear()
    joined.graph.outputs.extend(outputs)
    return joined


def _join_definitions(joined: ir.Model, added: ir.Model) -> None:
    """Give the first model the IR version, the domains and the functions that the nodes of both need.

    Raises:
        UsageError: both use a domain or a function in different versions.
    """
    joined.ir_version = max(joined.ir_version, added.ir_version)
    used_domains = [{node.domain for node in every_node(model.graph)} for model in (joined, added)]
    imports = joined.graph.opset_imports
    for domain, version in added.graph.opset_imports.items():
        # Many files import domains that no node has.
        if imports.get(domain, version) != version and all(domain in used for used in used_domains):
            raise UsageError(
                f"the first model has version {imports[domain]} of the domain '{domain}', and the second "
                f"version {version}"
            )
        if domain not in imports or domain not in used_domains[0]:
            imports[domain] = version
    for key, function in added.functions.items():
        twin = joined.functions.setdefault(key, function)
        if twin is not function and ir.to_proto(twin) != ir.to_proto(function):
            raise UsageError(f"both models have a function '{key[0]}::{key[1]}', and these differ")


def edit_interface(
    model: ir.Model, drop_outputs: Collection[str], constants: Mapping[str, object] | None
) -> ir.Model:
    """A copy of a model without some outputs and what only they need, and with inputs fixed.

    Args:
        constants: the value of each input to fix: a number for all its elements, or an array, whose sizes
            dynamic dimensions then have everywhere.

    Raises:
        UsageError: there is no such input or output, no output would remain, or a value does not
            fit its input.
        GraphError: the model is not valid for the sizes of an array.
    """
    edited = copy_of(model)
    graph = edited.graph
    names = [str(value.name) for value in graph.outputs]
    for name in drop_outputs:
        if name not in names:
            raise UsageError(f"the model has no output '{name}': it has {', '.join(names)}")
    outputs = [value for value in graph.outputs if value.name not in drop_outputs]
    if not outputs:
        raise UsageError("at least one output must remain")
    graph.outputs.clear()
    graph.outputs.extend(outputs)
    for name, contents in (constants or {}).items():
        _fix_input(edited, name, contents)
    # Inputs stay even if no node reads them any more, because callers feed them.
    common.RemoveUnusedNodesPass()(edited)
    return edited


def _may_be_equal(a: ir.Shape | None, b: ir.Shape | None) -> bool:
    if a is None or b is None:
        return True
    pairs = zip(a, b, strict=False)
    return len(a) == len(b) and all(
        m == n or not (isinstance(m, int) and isinstance(n, int)) for m, n in pairs
    )


def _fix_input(model: ir.Model, name: str, contents: object) -> None:
    graph = model.graph
    value = next((value for value in graph.inputs if value.name == name), None)
    if value is None or value.dtype is None:
        names = ", ".join(str(entry.name) for entry in graph.inputs)
        raise UsageError(f"the model has no input '{name}': it has {names}")
    is_text = value.dtype == ir.DataType.STRING
    try:
        array = np.asarray(contents, dtype=value.dtype.numpy())
        if is_text and not all(isinstance(element, str) for element in array.flat):
            raise TypeError
    except (ValueError, TypeError, OverflowError):
        element = "text" if is_text else "number"
        raise UsageError(
            f"{contents!r} is not a {element} or an array of {value.dtype.name}, which input '{name}' has"
        ) from None
    shape = _fixed_shape(model, value, array)
    try:
        array = np.broadcast_to(array, shape)
    except ValueError:
        raise UsageError(
            f"the constant for input '{name}' has the shape {list(array.shape)}; the input has {list(shape)}"
        ) from None
    graph.inputs.remove(value)
    if value.name in graph.initializers:
        graph.initializers.pop(name)
    value.shape = ir.Shape(array.shape)
    value.const_value = (
        ir.StringTensor([text.encode() for text in array.flat], shape=ir.Shape(array.shape), name=name)
        if is_text
        else ir.Tensor(np.array(array, order="C"), dtype=value.dtype, name=name)
    )
    graph.register_initializer(value)


def _fixed_shape(model: ir.Model, value: ir.Value, array: np.ndarray) -> tuple[int, ...]:
    """The shape of an input to fix; an array has the sizes of dynamic dimensions, in the whole model."""
    declared = [None] * array.ndim if value.shape is None else list(value.shape)
    if all(isinstance(size, int) for size in declared) and value.shape is not None:
        return tuple(value.shape.numpy())
    if not array.ndim or array.ndim != len(declared):
        raise UsageError(
            f"input '{value.name}' has the shape {value.shape}: pass an array of that many dimensions, "
            f"or give it a size first, with `opsetta convert --input-shape {value.name}=…` or lower(shapes=…)"
        )
    sizes: dict[str, int | str] = {}
    for size, count in zip(declared, array.shape, strict=True):
        if (
            isinstance(size, ir.SymbolicDim)
            and size.value is not None
            and sizes.setdefault(str(size), count) != count
        ):
            raise UsageError(
                f"dimension '{size}' gets several sizes: one of them is {count}, of '{value.name}'"
            )
    substitute_sizes(model, sizes)
    return tuple(
        [size if isinstance(size, int) else n for size, n in zip(declared, array.shape, strict=True)]
    )


def _dependents(values: Iterable[ir.Value]) -> set[ir.Value]:
    """The values and everything that is computed from them in the main graph."""
    reached: set[ir.Value] = set()
    pending = list(values)
    while pending:
        value = pending.pop()
        if value not in reached:
            reached.add(value)
            pending += [output for use in value.uses() for output in use.node.outputs]
    return reached


def _model_like(model: ir.Model, graph: ir.Graph) -> ir.Model:
    return ir.Model(
        graph,
        ir_version=model.ir_version,
        producer_name=model.producer_name,
        producer_version=model.producer_version,
        functions=list(model.functions.values()),
    )


def _rename_values(graph: ir.Graph, names: Names) -> None:
    """Rename values and nodes whose name is taken."""
    graphs = graphs_of(graph)
    values = [value for inner in graphs for value in (*inner.inputs, *inner.initializers.values())]
    for node in every_node(graph):
        values += node.outputs
        if node.name:
            node.name = names.unique(node.name)
    values = [value for value in dict.fromkeys(values) if value.name]
    ir.convenience.rename_values(values, [names.unique(str(value.name)) for value in values])


def _move_nodes(source: ir.Graph, destination: ir.Graph) -> None:
    for value in list(source.initializers.values()):
        source.initializers.pop(str(value.name))
        destination.register_initializer(value)
    feeds = list(source.inputs)
    source.inputs.clear()
    destination.inputs.extend(feeds)
    nodes = list(source)
    outputs = list(source.outputs)
    source.outputs.clear()
    source.remove(nodes)
    destination.extend(nodes)
    source.outputs.extend(outputs)
