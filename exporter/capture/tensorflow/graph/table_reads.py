"""Converts the operators that read lookup tables.

A source node that reads a table has the table's contents as arguments: `table_keys` and `table_values`. The
handle of a table is a number, because the nodes of branches and loops pass it on like any value.
"""

import numpy as np
import onnx_ir as ir

from .....registration import CaptureError
from .nodes import PROBLEM, TABLES, Edge, GraphNode
from .scope import GraphScope, Unit

TABLE_READERS = frozenset("LookupTableFind LookupTableFindV2 LookupTableSize LookupTableSizeV2".split())


def begin_table(scope: GraphScope, node: GraphNode) -> Unit:
    """Begin to convert a table, or a node that reads one."""
    convert = _define_table if node.op in TABLES else _read_table
    return Unit(node, node.inputs, lambda: convert(scope, node))


def _define_table(scope: GraphScope, node: GraphNode) -> None:
    """Make the handle of a table."""
    tables = scope.emitter.tables
    handle = scope.emitter.number(f"{scope.prefix}{node.name}", np.array(len(tables), np.int64))
    contents = [scope.values[edge] for edge in node.inputs]
    problem = node.attribute(PROBLEM).s.decode(errors="replace") if node.has(PROBLEM) else ""
    tables[handle] = (contents[0], contents[1]) if len(contents) == 2 else problem
    scope.define(node, [handle])


def _read_table(scope: GraphScope, node: GraphNode) -> None:
    """Append a node that reads a table."""
    handle = scope.values[node.inputs[0]] if node.inputs else None
    contents = "" if handle is None else scope.emitter.tables.get(_origin(handle), "")
    if isinstance(contents, str):
        reason = contents or "a node reads a table whose contents are not in the file"
        raise CaptureError(f"{node.label}: {reason}: name its result as an input")
    assert handle is not None
    keys, values = contents
    if scope.graph is not scope.emitter.graph and not (keys.is_initializer() and values.is_initializer()):
        raise CaptureError(
            f"{node.label} reads, in a loop or a branch, a table of computed keys or values, which is not "
            "supported"
        )
    arguments: dict[str, object] = {"table_handle": handle, "table_keys": keys, "table_values": values}
    if node.op.startswith("LookupTableFind"):
        arguments |= {"keys": scope.values[node.inputs[1]], "default_value": scope.values[node.inputs[2]]}
    outputs = [scope.value(Edge(node, 0).label, node.result_type(0))]
    scope.add(node, arguments, outputs)
    scope.define(node, outputs)


def _origin(handle: ir.Value) -> ir.Value:
    """The handle before the Identity nodes that pass it on."""
    while (node := handle.producer()) is not None and node.op_type == "Identity" and node.inputs[0]:
        handle = node.inputs[0]
    return handle
