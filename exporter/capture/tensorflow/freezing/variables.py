"""The variables of a graph, and their values in a checkpoint."""

from __future__ import annotations

import dataclasses
import hashlib
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from .....registration import CaptureError, ModelFileError
from ....files.reading.bounds import BOUNDS
from ....files.reading.names import listed, quoted
from ..checkpoints import Checkpoint, Region, keys_by_name
from ..element_types import numpy_type, type_name
from .conditions import HANDLES, VARIABLES
from .saver_keys import Key, saver_keys
from .scope import Node, Scope

_EXTENT = re.compile(r"(\d{1,18}),(\d{1,18})")
_REFERENCE = 100
"""What a reference to a type adds to its number."""


@dataclasses.dataclass(frozen=True)
class GraphVariable:
    """A variable of a graph.

    Attributes:
        node: the name of its node.
        name: the name under which TensorFlow shares it; that of the node unless it has another.
        dtype: the number of its element type.
        shape: its shape, -1 for an unknown size; None if the rank is unknown.
        is_handle: whether the node gives a handle, and not a reference.
    """

    node: str
    name: str
    dtype: int
    shape: tuple[int, ...] | None
    is_handle: bool


@dataclasses.dataclass(frozen=True)
class Stored:
    """The contents of a variable in a checkpoint.

    Attributes:
        key: its key there.
        dtype: the number of its element type.
        shape: its shape.
        read: reads them.
    """

    key: str
    dtype: int
    shape: tuple[int, ...]
    read: Callable[[], np.ndarray]


def variables_of(graph: Scope) -> dict[str, GraphVariable]:
    """The variables of a graph by the names of their nodes."""
    found = {}
    for node in graph.nodes.values():
        if node.op in VARIABLES | HANDLES:
            shared = node.attribute("shared_name").s.decode(errors="replace")
            dtype = node.attribute("dtype").type % _REFERENCE
            name, shape = shared or node.name, _declared_shape(node)
            found[node.name] = GraphVariable(node.name, name, dtype, shape, node.op in HANDLES)
    return found


def _declared_shape(node: Node) -> tuple[int, ...] | None:
    shape = node.attribute("shape").shape
    if shape.unknown_rank or (node.op == "Variable" and not shape.dim):
        return None
    return tuple(int(dim.size) for dim in shape.dim)


class VariableKeys:
    """Finds the contents of variables in a checkpoint.

    The keys are, in this order: the caller's; those of the graph's savers; the variable's name; in a
    checkpoint of objects, the key of the object with that name.

    Args:
        graph: the graph.
        functions: the FunctionDefs of its library.
        checkpoint: the checkpoint.
        keys: keys of variables, by the names of their nodes or their own names.
    """

    def __init__(
        self, graph: Scope, functions: Iterable[Any], checkpoint: Checkpoint, keys: Mapping[str, str]
    ):
        self._checkpoint, self._keys = checkpoint, keys
        self._savers = saver_keys(graph, functions)
        self._objects = keys_by_name(checkpoint)
        self._digests: dict[str, bytes] = {}
        self._regions: set[tuple[str, Region]] = set()
        self._repeated_bytes = 0
        self._keys_by_component: dict[str, list[str]] | None = None

    def stored(self, variables: Sequence[GraphVariable]) -> dict[str, Stored]:
        """The contents of variables in the checkpoint, by the names of their nodes.

        Raises:
            CaptureError: it does not have some, or has several that may be meant. The error names all.
            ModelFileError: a variable has another type or shape there.
        """
        found, problems = {}, []
        for variable in variables:
            try:
                found[variable.node] = self._stored(variable)
            except CaptureError as error:
                problems.append(str(error))
        if problems:
            raise CaptureError(
                f"the checkpoint '{self._checkpoint.path}' does not fit the graph:\n"
                + "\n".join(f"  - {problem}" for problem in problems)
            )
        return found

    def _stored(self, variable: GraphVariable) -> Stored:
        key = self._key(variable)
        if key is None:
            raise CaptureError(f"it has no variable {quoted(variable.name)}{self._similar(variable.name)}")
        held = self._checkpoint[key.name]
        if variable.dtype not in (0, held.dtype):
            raise CaptureError(
                f"variable {quoted(variable.name)} is {type_name(variable.dtype)} in the graph, but "
                f"{type_name(held.dtype)} in the checkpoint"
            )
        if numpy_type(held.dtype) is None:
            raise CaptureError(
                f"variable {quoted(variable.name)} is {type_name(held.dtype)}, which cannot be a constant"
            )
        region = _region(key, held.shape)
        self._count_repetition(
            variable, held.dtype, key.name, region or tuple((0, size) for size in held.shape)
        )
        shape = held.shape if region is None else tuple(length for _, length in region)
        declared = variable.shape
        if declared is not None and (
            len(declared) != len(shape) or any(d not in (-1, s) for d, s in zip(declared, shape, strict=True))
        ):
            raise CaptureError(
                f"variable {quoted(variable.name)} has the shape {list(declared)} in the graph, but "
                f"{list(shape)} in the checkpoint"
            )
        return Stored(key.name, held.dtype, shape, lambda: held.read(region))

    def _count_repetition(self, variable: GraphVariable, dtype: int, key: str, region: Region) -> None:
        """Refuse a graph of which many variables have the same contents: each of them would be written.

        Raises:
            ModelFileError: these contents are too many bytes.
        """
        if (key, region) in self._regions:
            size = math.prod(length for _, length in region) * getattr(numpy_type(dtype), "itemsize", 0)
            self._repeated_bytes += size
            if self._repeated_bytes > BOUNDS.memory:
                raise ModelFileError(
                    f"variables of the graph, such as {quoted(variable.name)}, have the same contents in the "
                    f"checkpoint, and repeat more than {BOUNDS.memory} bytes"
                )
        self._regions.add((key, region))

    def _key(self, variable: GraphVariable) -> Key | None:
        for name in (variable.node, variable.name):
            if name in self._keys:
                if self._keys[name] not in self._checkpoint:
                    raise CaptureError(
                        f"it has no variable {quoted(self._keys[name])}, the key of {quoted(name)}"
                    )
                return Key(self._keys[name], "")
        saved = [key for key in self._savers.get(variable.node, ()) if key.name in self._checkpoint]
        own = [key for key in saved if key.name in (variable.name, variable.node)]
        if len({key.name for key in saved}) > 1 and not own:
            raise CaptureError(
                f"variable {quoted(variable.name)} is saved under several keys: "
                f"{listed([quoted(key.name) for key in saved])}; choose one"
            )
        if saved:
            return (own or saved)[0]
        for name in (variable.name, variable.node):
            if name in self._checkpoint:
                return Key(name, "")
        objects = self._objects.get(variable.name) or self._objects.get(variable.node) or []
        if len(objects) > 1 and not self._are_same(objects):
            raise CaptureError(
                f"{len(objects)} variables are called {quoted(variable.name)}: "
                f"{listed(list(map(quoted, objects)))}; choose one"
            )
        return Key(objects[0], "") if objects else None

    def _are_same(self, keys: Sequence[str]) -> bool:
        """Whether variables are copies: Keras saves the variables of a model twice."""
        return len({self._contents_of(key) for key in dict.fromkeys(keys)}) == 1

    def _contents_of(self, key: str) -> tuple[int, tuple[int, ...], bytes]:
        """The type and shape of a variable of the checkpoint, and a digest of its contents, read once."""
        if key not in self._digests:
            variable = self._checkpoint[key]
            self._digests[key] = hashlib.sha256(variable.read().tobytes()).digest()
        return self._checkpoint[key].dtype, self._checkpoint[key].shape, self._digests[key]

    def _similar(self, name: str) -> str:
        """Keys with the same last component as a variable's name, for an error message."""
        if self._keys_by_component is None:
            self._keys_by_component = {}
            for key in self._checkpoint:
                for component in set(key.split("/")):
                    self._keys_by_component.setdefault(component, []).append(key)
        found = self._keys_by_component.get(name.rpartition("/")[2], [])[:3]
        return f"; it has {listed([quoted(key) for key in found])}" if found else ""


def _region(key: Key, shape: tuple[int, ...]) -> Region | None:
    """The region of a slice; None for all of a variable.

    Raises:
        ModelFileError: the slice is malformed.
    """
    if not key.slice:
        return None
    *sizes, extents = key.slice.split(" ")
    region = []
    for part, size in zip(extents.split(":"), shape, strict=False):
        match = _EXTENT.fullmatch(part)
        if part == "-":
            region.append((0, size))
        elif match is not None:
            region.append((int(match[1]), int(match[2])))
    if len(region) != len(shape) or [str(size) for size in shape] != sizes:
        raise ModelFileError(f"the slice '{key.slice}' of the variable {quoted(key.name)} is malformed")
    return tuple(region)
