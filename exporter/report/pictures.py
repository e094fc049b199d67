"""Graphs as data for pictures: rows of modules, nodes and edges."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import onnx_ir as ir

from ...registration import LINE, MODULE
from ...registration.arguments import (
    ATTRIBUTE,
    arguments,
    blocks,
    every_node,
    name_in_errors,
    overloaded_name,
    qualified_name,
)
from ...registration.origins import origins_of
from ..lowering.driver import Observation
from .modules import Module, cut, tree
from .records import ORIGINS, Picture

MOST_NODES = 4000
"""Nodes of one graph that a report describes one by one; deeper modules of larger graphs are left out."""
_LONGEST = 160
"""Characters of a text, such as a name."""
_INTERFACE = 6
"""Inputs or outputs that are drawn one by one from the start."""
_AS_IS, _COMPOSED, _RECOGNISED, _FOLDED, _UNSUPPORTED = range(len(ORIGINS))

Classes = Mapping[str, str]
"""The class of each module, by its path."""


@dataclasses.dataclass(frozen=True)
class Drawn:
    """A picture, and the row of each node of the graph."""

    picture: Picture
    rows: dict[ir.Node, int]


def written_picture(model: ir.Model, observation: Observation, classes: Classes) -> Drawn:
    """The picture of an ONNX graph, with the origins of its nodes."""

    def sources(node: ir.Node) -> str:
        return ", ".join(overloaded_name(origin) for origin in origins_of(node))

    origins = _origins(model, observation)
    return _picture(model.graph, lambda node: origins[node], sources, classes)


def origin_counts(model: ir.Model, observation: Observation) -> dict[str, int]:
    """The number of ONNX nodes by their origin."""
    counts = Counter(_origins(model, observation).values())
    return {name: counts.get(code, 0) for code, name in enumerate(ORIGINS)}


def _origins(model: ir.Model, observation: Observation) -> dict[ir.Node, int]:
    """The origin of each ONNX node."""
    survivors = _survivors(model)

    def origin(node: ir.Node) -> int:
        if node not in observation.new_nodes:
            return _AS_IS if observation.source is None else _RECOGNISED
        return (
            _COMPOSED if any(len(survivors[source_node]) > 1 for source_node in origins_of(node)) else _AS_IS
        )

    return {node: origin(node) for node in model.graph}


def _survivors(model: ir.Model) -> dict[ir.Node, list[ir.Node]]:
    """The ONNX nodes of each source node that has any, sub-graphs included."""
    survivors: dict[ir.Node, list[ir.Node]] = {}
    for node in every_node(model.graph):
        for source_node in origins_of(node):
            survivors.setdefault(source_node, []).append(node)
    return survivors


def source_picture(
    graph: ir.Graph, model: ir.Model | None, observation: Observation, classes: Classes, refused: set[str]
) -> Drawn:
    """The picture of a source graph, with the ONNX nodes of each node.

    Args:
        model: the ONNX model that it was lowered to; None if it could not be.
        refused: names of operators that the opset cannot express.
    """
    survivors = {} if model is None else _survivors(model)

    def origin(node: ir.Node) -> int:
        if name_in_errors(node) in refused:
            return _UNSUPPORTED
        if model is None or observation.source is None:
            return _COMPOSED if observation.emitted.get(node, 1) > 1 else _AS_IS
        surviving_nodes = survivors.get(node)
        if surviving_nodes is None:
            return _FOLDED
        if not observation.new_nodes.intersection(surviving_nodes):
            return _RECOGNISED
        return _COMPOSED if len(surviving_nodes) > 1 else _AS_IS

    return _picture(graph, origin, lambda node: "", classes)


def _picture(
    graph: ir.Graph, origin: Callable[[ir.Node], int], sources: Callable[[ir.Node], str], classes: Classes
) -> Drawn:
    makers = [_maker(node) for node in graph]
    drawing = _Drawing(graph, classes, [origin(node) for node in graph], makers)
    drawing.interface("input", [value for value in graph.inputs if value.name not in graph.initializers])
    drawing.visit(drawing.root, -1, sources)
    drawing.interface("output", graph.outputs)
    rows = {node: drawing.row_of[position] for position, node in enumerate(drawing.nodes)}
    return Drawn(Picture(drawing.modules, drawing.rows, drawing.edges(), drawing.left_out), rows)


def _maker(node: ir.Node) -> str | None:
    """The source node that an ONNX node is a part of, by the operator's name and its own."""
    origins = origins_of(node)
    if len(origins) != 1:
        return None
    # The id separates two calls of one operator that follow each other.
    return f"{overloaded_name(origins[0]).removeprefix('aten::').partition('.')[0]} {id(origins[0])}"


class _Drawing:
    """The rows of a picture under construction."""

    def __init__(self, graph: ir.Graph, classes: Classes, origins: list[int], makers: list[str | None]):
        self.nodes = list(graph)
        self.paths = [node.metadata_props.get(MODULE, "") for node in self.nodes]
        self.root = tree(self.paths, makers)
        self.left_out = cut(self.root, MOST_NODES)
        self.modules: list[list[Any]] = []
        self.rows: list[list[object]] = []
        self.row_of: dict[int, int] = {}
        self._classes = classes
        self._origins = origins
        self._values: dict[ir.Value, int] = {}
        self._outputs: list[tuple[ir.Value, int]] = []
        self._add(self.root, -1)

    def _add(self, module: Module, parent: int) -> int:
        counts = Counter(self._origins[position] for position in module.nodes())
        # A module that is drawn closed shows the shares of its nodes' origins.
        counts_by_origin = [counts.get(code, 0) for code in range(len(ORIGINS))]
        class_name = self._classes.get(module.path, "") if module.path or parent < 0 else ""
        texts = map(short, (module.name, module.path, class_name))
        self.modules.append([*texts, parent, counts_by_origin, module.is_cut])
        return len(self.modules) - 1

    def visit(
        self, module: Module, parent: int, sources: Callable[[ir.Node], str], outer_path: str = ""
    ) -> None:
        """Add the rows of a module and of all in it; `outer_path` is the path of the enclosing module."""
        path = module.path or outer_path
        module_row = 0 if parent < 0 else self._add(module, parent)
        if module.is_cut:
            self.row_of.update(dict.fromkeys(module.nodes(), len(self.rows)))
            counts = self.modules[module_row][4]
            self.rows.append(["…", "", module_row, counts.index(max(counts)), "", "", "", ""])
            return
        for child in module.children:
            if isinstance(child, Module):
                self.visit(child, module_row, sources, path)
            else:
                self.row_of[child] = len(self.rows)
                node = self.nodes[child]
                relative_path = self.paths[child].removeprefix(path).lstrip(".")
                self.rows.append(_row(node, relative_path, module_row, self._origins[child], sources(node)))

    def interface(self, role: str, values: Sequence[ir.Value]) -> None:
        """Add rows for the inputs or outputs of the graph; many of them are a module."""
        module_row = 0
        if len(values) > _INTERFACE:
            self.modules.append([f"{role}s", "", "", 0, [0] * len(ORIGINS), False])
            module_row = len(self.modules) - 1
        for value in values[:MOST_NODES]:
            if role == "input":
                self._values[value] = len(self.rows)
            else:
                self._outputs.append((value, len(self.rows)))
            texts = map(short, (value.name or "", "", type_text(value)))
            self.rows.append([role, next(texts), module_row, -1, *texts, "", ""])

    def edges(self) -> list[list[int]]:
        """The edges from producers to consumers; the inputs of a sub-graph count as inputs of its node."""
        position_of = {node: index for index, node in enumerate(self.nodes)}
        reads = [
            (value, self.row_of[index])
            for index, node in enumerate(self.nodes)
            for value in _values_read(node)
        ]
        edges: dict[tuple[int, int], None] = {}
        for value, row in [*reads, *self._outputs]:
            maker = position_of.get(node) if (node := value.producer()) is not None else None
            producer_row = self._values.get(value) if maker is None else self.row_of[maker]
            if producer_row is not None and producer_row != row:
                edges[producer_row, row] = None
        return [list(edge) for edge in edges]


def _row(node: ir.Node, relative_path: str, module: int, origin: int, sources: str) -> list[object]:
    operator = qualified_name(node).removeprefix("aten::") if node.domain else node.op_type
    name = (
        f"{relative_path}/{(node.name or '').rpartition('/')[2]}"
        if relative_path
        else (node.name or "").rpartition("/")[2]
    )
    results = ", ".join(
        type_text(value)
        for value in node.outputs
        if value.name and not (not value.uses() and not value.is_graph_output() and value.index() != 0)
    )
    line = node.metadata_props.get(LINE, "")
    texts = (operator, name, sources, results, line, _attributes(node))
    operator, name, sources, results, line, attributes = map(short, texts)
    return [operator, name, module, origin, sources, results, line, attributes]


def _attributes(node: ir.Node) -> str:
    """The attributes of an ONNX node that are numbers or text; the constant arguments of a source node."""
    if ATTRIBUTE in node.attributes:
        source_arguments = arguments(node).items()
        constants = {
            name: item for name, item in source_arguments if item is not None and not _holds_value(item)
        }
    else:
        constants = {
            name: attribute.value for name, attribute in node.attributes.items() if attribute.type in _SIMPLE
        }
    plain = {name: list(item) if isinstance(item, tuple) else item for name, item in constants.items()}
    return " ".join(f"{name}={item}" for name, item in plain.items())


def _holds_value(item: object) -> bool:
    return isinstance(item, ir.Value) or (isinstance(item, list) and any(map(_holds_value, item)))


def type_text(value: ir.Value) -> str:
    """Element type and shape of a value, `float32[batch, 3]`, with `?` for what is unknown."""
    if value.type is not None and not isinstance(value.type, ir.TensorType):
        return type(value.type).__name__.removesuffix("Type").lower()
    dtype = "?" if value.dtype is None else _NAMES.get(value.dtype.name, value.dtype.name.lower())
    if value.shape is None:
        return f"{dtype}[…]"
    sizes = [
        "?" if isinstance(d, ir.SymbolicDim) and d.value is None else str(getattr(d, "value", d))
        for d in value.shape
    ]
    return f"{dtype}[{', '.join(sizes)}]"


_SIMPLE = (
    ir.AttributeType.INT,
    ir.AttributeType.FLOAT,
    ir.AttributeType.STRING,
    ir.AttributeType.INTS,
    ir.AttributeType.FLOATS,
)
_NAMES = {"FLOAT": "float32", "DOUBLE": "float64"}


def _values_read(node: ir.Node) -> list[ir.Value]:
    """The values that a node and its sub-graphs read."""
    values = []
    pending = [node]
    while pending:
        current = pending.pop()
        values += [value for value in current.inputs if value is not None]
        for block in blocks(current):
            pending += list(block)
            values += list(block.outputs)
    return values


def short(text: str) -> str:
    """A text of the model, cut to what a page shows."""
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
