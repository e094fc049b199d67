"""Gives the lookup tables of a graph their contents: the keys and values become inputs of the table's node.

A graph fills its tables when it is initialized: from tensors (LookupTableImport, InitializeTable), from a
text file among the assets of the SavedModel (InitializeTableFromTextFile), or from the checkpoint (a Restore
of a table that has learned its vocabulary). In TensorFlow 2, functions fill tables, which are their
arguments.

Source of the semantics: tensorflow/core/kernels/lookup_util.cc and the text of the operators.
"""

import dataclasses
import functools
import os
import pathlib
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from ....registration import CaptureError, ModelFileError, Names
from ...files.reading.bounds import BOUNDS, REMEDY, Bounds
from ...files.reading.external_data.files import ExternalFiles, ModelFolder
from ...files.reading.names import quoted
from .checkpoints import Checkpoint
from .element_types import numpy_type, type_number
from .graph.nodes import PROBLEM, TABLES
from .graph_reading import GraphFile
from .messages import message_type
from .node_messages import CALLS, IDENTITIES, MessageNode, MessageScope, ResultName, argument_names
from .tensor_protos import array_of, set_header

INITIALIZERS = frozenset(
    "InitializeTable InitializeTableV2 LookupTableImport LookupTableImportV2 InitializeTableFromTextFile "
    "InitializeTableFromTextFileV2".split()
)
_TEXT_FILE = "InitializeTableFromTextFile"
_RESTORES = frozenset({"RestoreV2"})
_MAXIMUM_DEPTH = 60
_BYTES_PER_BYTE = 64
"""Bytes of memory that a byte of a text takes in lines of one letter."""
_MAXIMUM_SCOPES = 100_000
"""Bounds on the calls of functions that fill tables."""
_WHOLE_LINE, _LINE_NUMBER = -2, -1
_READS = frozenset({"ReadVariableOp"}) | IDENTITIES


@dataclasses.dataclass(frozen=True)
class _Origin:
    """Where a value comes from: a node of the graph or of a function, and which of its results it is."""

    scope: MessageScope
    node: MessageNode
    port: str


_Arguments = Mapping[str, _Origin | None]
"""The origins of a function's arguments, by name; None for an unknown one."""


def attach_tables(
    file: GraphFile,
    path: str | os.PathLike[str],
    open_checkpoint: Callable[[], Checkpoint | None],
    bounds: Bounds = BOUNDS,
) -> None:
    """Add the keys and the values of each table of the graph to the inputs of its node.

    A table without initializer stays as it is.

    Args:
        file: the graph, whose message is changed.
        path: the file or the folder that it was read from.
        open_checkpoint: opens the checkpoint of the graph; called if a table's contents are in it.
        bounds: bounds on memory.

    Raises:
        ModelFileError: an asset is missing or is malformed.
    """
    if any(node.op in TABLES for node in file.graph_def.node):
        _TableContents(file, path, functools.cache(open_checkpoint), bounds).attach()


class _TableContents:
    def __init__(
        self,
        file: GraphFile,
        path: str | os.PathLike[str],
        open_checkpoint: Callable[[], Checkpoint | None],
        bounds: Bounds,
    ):
        self._bounds = bounds
        self._graph = file.graph_def
        self._scope = MessageScope(file.graph_def.node, "the graph")
        self._functions = {f.signature.name: f for f in file.graph_def.library.function}
        self._bodies: dict[str, MessageScope] = {}
        self._visited_scopes = 0
        self._open_checkpoint = open_checkpoint
        self._folder = pathlib.Path(path)
        self._assets: dict[str, str] = {}
        if file.meta_graph is not None:
            self._assets = {a.tensor_info.name: a.filename for a in file.meta_graph.asset_file_def}
        self._names = Names()
        for name in self._scope.nodes:
            self._names.take(name)

    def attach(self) -> None:
        """Add the contents of all tables."""
        contents: dict[str, tuple[str, str]] = {}
        problems: dict[str, str] = {}
        for scope, node, arguments in list(self._find_initializers(self._scope, {}, 0)):
            origins = [self._origin(scope, result, arguments) for result in node.inputs]
            table = origins[0] if origins else None
            if table is None or table.scope is not self._scope or table.node.op not in TABLES:
                continue
            name = table.node.name
            # Assigned again, a table of a text file or of constants has the same contents.
            if name in contents:
                continue
            try:
                contents[name] = self._contents(table.node, node, origins)
            except CaptureError as error:
                # The outputs may not need the table: the error is raised where a node reads it.
                problems[name] = str(error)
        for message in self._graph.node:
            if message.name in contents and not message.input:
                message.input.extend(contents[message.name])
            elif message.name in problems:
                message.attr[PROBLEM].s = problems[message.name].encode()

    def _contents(
        self, table: MessageNode, initializer: MessageNode, origins: Sequence[_Origin | None]
    ) -> tuple[str, str]:
        """The names of the results with the keys and the values of a table."""
        if initializer.op.startswith(_TEXT_FILE):
            return self._read_text(table, initializer, origins[1] if len(origins) > 1 else None)
        if len(origins) != 3:
            raise ModelFileError(f"{initializer.label} has {len(origins)} inputs instead of 3")
        return self._result(origins[1], initializer), self._result(origins[2], initializer)

    def _find_initializers(
        self, scope: MessageScope, arguments: _Arguments, depth: int
    ) -> Iterator[tuple[MessageScope, MessageNode, _Arguments]]:
        """The nodes that fill tables, also in called functions."""
        # A function may call itself, or another one twice, and so on.
        self._visited_scopes += 1
        if depth > _MAXIMUM_DEPTH or self._visited_scopes > _MAXIMUM_SCOPES:
            raise ModelFileError(
                "the functions that fill its tables are nested too deep, or called too often"
            )
        for node in scope.nodes.values():
            if node.op in INITIALIZERS:
                yield scope, node, arguments
                continue
            callee = node.op if node.op in self._functions else ""
            callee = node.attribute("f").func.name if node.op in CALLS else callee
            if callee in self._functions and self._fills_tables(callee, 0):
                body = self._body(callee)
                origins = [self._origin(scope, result, arguments) for result in node.inputs]
                formals = argument_names(self._functions[callee])
                yield from self._find_initializers(body, dict(zip(formals, origins, strict=False)), depth + 1)

    @functools.cache  # noqa: B019, the object lives for one call of `attach_tables`.
    def _fills_tables(self, name: str, depth: int) -> bool:
        """Whether a function, or one that it calls, fills tables."""
        if depth > _MAXIMUM_DEPTH or name not in self._functions:
            return False
        return any(
            node.op in INITIALIZERS
            or (node.op in self._functions and self._fills_tables(node.op, depth + 1))
            or (node.op in CALLS and self._fills_tables(node.attr["f"].func.name, depth + 1))
            for node in self._functions[name].node_def
        )

    def _body(self, name: str) -> MessageScope:
        if name not in self._bodies:
            self._bodies[name] = MessageScope.of_function(self._functions[name])
        return self._bodies[name]

    def _origin(self, scope: MessageScope, result: ResultName, arguments: _Arguments) -> _Origin | None:
        """The node that a value comes from, through Identity nodes, variables and arguments of functions."""
        visited: set[str] = set()
        while result.node not in visited:
            visited.add(result.node)
            if result.node in scope.arguments:
                return arguments.get(result.node)
            node = scope.nodes.get(result.node)
            if node is None:
                return None
            if node.op in _READS and node.inputs:
                result = node.inputs[0]
            elif node.op == "VarHandleOp":
                # A variable with the path of an asset is assigned once, from a placeholder.
                sources = self._assigned_results(scope).get(node.name, [])
                if len(sources) != 1:
                    return _Origin(scope, node, result.port)
                result = sources[0]
            else:
                return _Origin(scope, node, result.port)
        return None

    @functools.cache  # noqa: B019, the object lives for one call of `attach_tables`.
    def _assigned_results(self, scope: MessageScope) -> dict[str, list[ResultName]]:
        """The results that are assigned to variables, by the names of the variables' nodes."""
        results: dict[str, list[ResultName]] = {}
        for node in scope.nodes.values():
            if node.op == "AssignVariableOp" and len(node.inputs) > 1:
                results.setdefault(node.inputs[0].node, []).append(node.inputs[1])
        return results

    def _result(self, origin: _Origin | None, initializer: MessageNode) -> str:
        """The name of a result of the graph with the keys or values of a table."""
        if origin is not None and origin.scope is self._scope and origin.node.op not in _RESTORES:
            return str(ResultName(origin.node.name, origin.port))
        # The table is in the main graph, so it gets a copy of a constant that a function contains.
        if origin is not None and origin.node.op == "Const":
            message = message_type("NodeDef")()
            message.CopyFrom(origin.node.message)
            message.name = self._names.unique(origin.node.name)
            del message.input[:]
            self._graph.node.append(message)
            return str(message.name)
        if origin is not None and origin.node.op in _RESTORES:
            return self._restore(origin)
        raise CaptureError(f"{initializer.label} fills a table with computed values, which is not supported")

    def _restore(self, origin: _Origin) -> str:
        """A constant with what a Restore reads from the checkpoint."""
        checkpoint = self._open_checkpoint()
        names = self._origin(origin.scope, origin.node.inputs[1], {}) if len(origin.node.inputs) > 1 else None
        if checkpoint is None or names is None or names.node.op != "Const":
            raise CaptureError(f"{origin.node.label} fills a table from a checkpoint, which is missing")
        keys = array_of(names.node.attribute("value").tensor, names.node.label).reshape(-1)
        position = origin.port.rpartition(":")[2]
        index = int(position) if position.isascii() and position.isdecimal() and len(position) < 9 else 0
        key = keys[index].decode(errors="replace") if index < len(keys) else ""
        if key not in checkpoint:
            raise ModelFileError(f"the checkpoint has no {quoted(key)}, the contents of a table")
        return self._constant(key, checkpoint[key].read())

    def _constant(self, name: str, array: np.ndarray) -> str:
        """Add a Const to the graph."""
        message = self._graph.node.add(name=self._names.unique(name), op="Const")
        names = {"object": "DT_STRING", "float32": "DT_FLOAT", "float64": "DT_DOUBLE"}
        dtype = type_number(names.get(array.dtype.name, f"DT_{array.dtype.name.upper()}"))
        message.attr["dtype"].type = dtype
        tensor = message.attr["value"].tensor
        set_header(tensor, dtype, array.shape)
        if array.dtype.hasobject:
            tensor.string_val.extend(array.reshape(-1).tolist())
        else:
            tensor.tensor_content = np.ascontiguousarray(array).tobytes()
        return str(message.name)

    def _read_text(
        self, table: MessageNode, initializer: MessageNode, filename: _Origin | None
    ) -> tuple[str, str]:
        """Constants with the columns of a text file."""
        lines = self._lines(table, filename)
        # A negative size reads the whole file.
        skipped = initializer.attribute("offset").i
        size = initializer.attribute("vocab_size").i
        lines = lines[skipped:]
        if size > len(lines):
            raise ModelFileError(
                f"the file of the table {quoted(table.name)} has {len(lines)} lines, not {size}"
            )
        lines = lines if size <= 0 else lines[:size]
        delimiter = initializer.attribute("delimiter").s or b"\t"
        columns: list[np.ndarray] = []
        for index, dtype in (("key_index", "key_dtype"), ("value_index", "value_dtype")):
            column = _read_column(
                lines, int(initializer.attribute(index).i), delimiter, f"the table {quoted(table.name)}"
            )
            columns.append(_convert_column(column, table, dtype))
        keys, values = (
            self._constant(f"{table.name}/{name}", column)
            for name, column in zip(("keys", "values"), columns, strict=True)
        )
        return keys, values

    def _lines(self, table: MessageNode, filename: _Origin | None) -> list[bytes]:
        """The lines of the asset that a table is read from."""
        asset = None if filename is None else self._assets.get(f"{filename.node.name}:0")
        if asset is None:
            stated = ""
            if filename is not None and filename.node.op == "Const":
                contents = array_of(filename.node.attribute("value").tensor, filename.node.label).reshape(-1)
                stated = f" {quoted(contents[0].decode(errors='replace'))}" if contents.size else ""
            # A path that a file names is not opened: the file may come from anybody.
            raise CaptureError(
                f"the table {quoted(table.name)} is read from the file{stated}, which is not an asset of the "
                "SavedModel"
            )
        folder = self._folder if self._folder.is_dir() else self._folder.parent
        files = ExternalFiles(ModelFolder(os.path.abspath(folder / "assets")), lambda subject, title: None)
        content = files.whole(asset, f"the asset {quoted(asset)} of the table {quoted(table.name)}")
        if content.size > self._bounds.memory // _BYTES_PER_BYTE:
            raise ModelFileError(
                f"the asset {quoted(asset)} has {content.size} bytes, more than a table may take; {REMEDY}"
            )
        # TensorFlow's reader of lines drops each carriage return.
        lines = content.tobytes().replace(b"\r", b"").split(b"\n")
        return lines if lines[-1] else lines[:-1]


def _read_column(lines: list[bytes], index: int, delimiter: bytes, label: str) -> list[bytes] | range:
    if index == _LINE_NUMBER:
        return range(len(lines))
    if index == _WHOLE_LINE:
        return lines
    column: list[bytes] = []
    for number, line in enumerate(lines):
        parts = line.split(delimiter)
        if not 0 <= index < len(parts):
            raise ModelFileError(
                f"line {number + 1} of {label} has {len(parts)} columns, and {index} is read"
            )
        column.append(parts[index])
    return column


def _convert_column(column: list[bytes] | range, table: MessageNode, attribute: str) -> np.ndarray:
    """A column with the element type of the table."""
    dtype = numpy_type(table.attribute(attribute).type)
    if dtype is None:
        raise ModelFileError(f"{table.label} has no element type '{attribute}'")
    if dtype.hasobject:
        array = np.empty(len(column), object)
        array[:] = [item if isinstance(item, bytes) else b"%d" % item for item in column]
        return array
    try:
        return np.array(
            [item if isinstance(item, int) else dtype.type(item.decode()) for item in column], dtype
        )
    except (ValueError, OverflowError) as error:
        raise ModelFileError(f"{table.label} is read from a text that has no numbers: {error}") from None
