"""The variables of a graph, and their values in a checkpoint."""

import dataclasses
import hashlib
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from .....registration import CaptureError, ModelFileError
from ....files.reading.bounds import BOUNDS
from ....files.reading.names import listed, quoted
from ..checkpoints import Checkpoint, Region, keys_by_name
from ..element_types import numpy_type, type_name
from ..messages import FunctionDef
from ..node_messages import MessageScope, ResultName
from .saver_keys import CheckpointKey, saver_keys
from .scope_analysis import (
    HANDLE_READERS,
    HANDLE_VARIABLES,
    REFERENCE_PASSING,
    REFERENCE_VARIABLES,
    RESOURCE,
    VariableReference,
)

_EXTENT = re.compile(r"(\d{1,18}),(\d{1,18})")
_REFERENCE_OFFSET = 100
"""The offset between the number of an element type and the number of a reference to it."""


@dataclasses.dataclass(frozen=True)
class GraphVariable:
    """A variable of a graph.

    Its `name` is the one under which TensorFlow shares it. In its shape -1 is an unknown size; the shape is
    None if the rank is unknown.
    """

    node: str
    name: str
    dtype: int
    shape: tuple[int, ...] | None
    is_handle: bool


@dataclasses.dataclass(frozen=True)
class StoredVariable:
    """The contents of a variable in a checkpoint."""

    key: str
    dtype: int
    shape: tuple[int, ...]
    read: Callable[[], np.ndarray]


def variables_of(graph: MessageScope) -> dict[str, GraphVariable]:
    """The variables of a graph by the names of their nodes."""
    variables = {}
    for node in graph.nodes.values():
        if node.op in REFERENCE_VARIABLES | HANDLE_VARIABLES:
            shared_name = node.attribute("shared_name").s.decode(errors="replace")
            dtype = node.attribute("dtype").type % _REFERENCE_OFFSET
            message = node.attribute("shape").shape
            shape: tuple[int, ...] | None = tuple(int(dim.size) for dim in message.dim)
            # Variable, unlike VariableV2, writes [] both for a scalar and for an unknown rank.
            if message.unknown_rank or (node.op == "Variable" and not shape):
                shape = None
            name = shared_name or node.name
            variables[node.name] = GraphVariable(node.name, name, dtype, shape, node.op in HANDLE_VARIABLES)
    return variables


def handle_constants(graph: MessageScope) -> dict[ResultName, VariableReference]:
    """The constants of a graph that nodes read as handles: other tools froze it, but not its functions."""
    references = {}
    for node in graph.nodes.values():
        types = list(node.attribute("Tin").list.type) or list(node.attribute("T").list.type)
        first = len(node.inputs) - len(types)
        handles = node.inputs[:1] if node.op in HANDLE_READERS else ()
        handles += tuple(r for r, dtype in zip(node.inputs[first:], types, strict=False) if dtype == RESOURCE)
        for result in handles:
            origin = graph.nodes.get(result.node)
            visited = set()
            # A damaged graph may have a cycle.
            while origin is not None and origin.op in REFERENCE_PASSING and origin.name not in visited:
                visited.add(origin.name)
                origin = graph.nodes.get(origin.inputs[0].node) if origin.inputs else None
            if origin is not None and origin.op == "Const":
                dtype = origin.attribute("dtype").type
                references[ResultName(origin.name, "")] = VariableReference(dtype, origin.name, True)
    return references


class VariableKeys:
    """Finds the contents of variables in a checkpoint.

    The keys are, in this order: the caller's; those of the graph's savers; the variable's name; in a
    checkpoint of objects, the key of the object with that name.

    Args:
        keys: keys of variables, by the names of their nodes or their own names.
    """

    def __init__(
        self,
        graph: MessageScope,
        functions: Iterable[FunctionDef],
        checkpoint: Checkpoint,
        keys: Mapping[str, str],
    ):
        self._checkpoint, self._keys = checkpoint, keys
        self._saver_keys = saver_keys(graph, functions)
        self._object_keys = keys_by_name(checkpoint)
        self._digests: dict[str, bytes] = {}
        self._regions: set[tuple[str, Region]] = set()
        self._repeated_bytes = 0
        self._keys_by_component: dict[str, list[str]] | None = None

    def find_stored(self, variables: Sequence[GraphVariable]) -> dict[str, StoredVariable]:
        """The contents of variables in the checkpoint, by the names of their nodes."""
        stored, problems = {}, []
        for variable in variables:
            try:
                stored[variable.node] = self._find_stored_variable(variable)
            except CaptureError as error:
                problems.append(str(error))
        if problems:
            raise CaptureError(
                f"the checkpoint '{self._checkpoint.path}' does not fit the graph:\n"
                + "\n".join(f"  - {problem}" for problem in problems)
            )
        return stored

    def _find_stored_variable(self, variable: GraphVariable) -> StoredVariable:
        key = self._find_key(variable)
        if key is None:
            raise CaptureError(f"it has no variable {quoted(variable.name)}{self._similar(variable.name)}")
        checkpoint_variable = self._checkpoint[key.name]
        if variable.dtype not in (0, checkpoint_variable.dtype):
            raise CaptureError(
                f"variable {quoted(variable.name)} is {type_name(variable.dtype)} in the graph, but "
                f"{type_name(checkpoint_variable.dtype)} in the checkpoint"
            )
        if numpy_type(checkpoint_variable.dtype) is None:
            raise CaptureError(
                f"variable {quoted(variable.name)} is {type_name(checkpoint_variable.dtype)}, which cannot "
                "be a constant"
            )
        region = _region_of_slice(key, checkpoint_variable.shape)
        self._count_repetition(
            variable,
            checkpoint_variable.dtype,
            key.name,
            region or tuple((0, size) for size in checkpoint_variable.shape),
        )
        shape = checkpoint_variable.shape if region is None else tuple(length for _, length in region)
        declared = variable.shape
        # A size of -1 in the graph may be any.
        if declared is not None and (
            len(declared) != len(shape) or any(d not in (-1, s) for d, s in zip(declared, shape, strict=True))
        ):
            raise CaptureError(
                f"variable {quoted(variable.name)} has the shape {list(declared)} in the graph, but "
                f"{list(shape)} in the checkpoint"
            )
        return StoredVariable(
            key.name, checkpoint_variable.dtype, shape, lambda: checkpoint_variable.read(region)
        )

    def _count_repetition(self, variable: GraphVariable, dtype: int, key: str, region: Region) -> None:
        """Refuse a graph of which many variables have the same contents: each of them would be written."""
        if (key, region) in self._regions:
            size = math.prod(length for _, length in region) * getattr(numpy_type(dtype), "itemsize", 0)
            self._repeated_bytes += size
            if self._repeated_bytes > BOUNDS.memory:
                raise ModelFileError(
                    f"variables of the graph, such as {quoted(variable.name)}, have the same contents in the "
                    f"checkpoint, and repeat more than {BOUNDS.memory} bytes"
                )
        self._regions.add((key, region))

    def _find_key(self, variable: GraphVariable) -> CheckpointKey | None:
        for name in (variable.node, variable.name):
            if name in self._keys:
                if self._keys[name] not in self._checkpoint:
                    raise CaptureError(
                        f"it has no variable {quoted(self._keys[name])}, the key of {quoted(name)}"
                    )
                return CheckpointKey(self._keys[name], "")
        # A saver may name variables that this checkpoint does not have.
        saver_keys_present = [
            key for key in self._saver_keys.get(variable.node, ()) if key.name in self._checkpoint
        ]
        exact_keys = [key for key in saver_keys_present if key.name in (variable.name, variable.node)]
        # A key that equals the variable's name is not ambiguous.
        if len({key.name for key in saver_keys_present}) > 1 and not exact_keys:
            raise CaptureError(
                f"variable {quoted(variable.name)} is saved under several keys: "
                f"{listed([quoted(key.name) for key in saver_keys_present])}; choose one"
            )
        if saver_keys_present:
            return (exact_keys or saver_keys_present)[0]
        for name in (variable.name, variable.node):
            if name in self._checkpoint:
                return CheckpointKey(name, "")
        object_keys = self._object_keys.get(variable.name) or self._object_keys.get(variable.node) or []
        # Keras saves the variables of a model twice; copies are not ambiguous.
        if len(object_keys) > 1 and len({self._contents_of(key) for key in object_keys}) > 1:
            raise CaptureError(
                f"{len(object_keys)} variables are called {quoted(variable.name)}: "
                f"{listed(list(map(quoted, object_keys)))}; choose one"
            )
        return CheckpointKey(object_keys[0], "") if object_keys else None

    def _contents_of(self, key: str) -> tuple[int, tuple[int, ...], bytes]:
        """The type and shape of a variable of the checkpoint, and a digest of its contents, read once."""
        if key not in self._digests:
            variable = self._checkpoint[key]
            self._digests[key] = hashlib.sha256(variable.read().tobytes()).digest()
        return self._checkpoint[key].dtype, self._checkpoint[key].shape, self._digests[key]

    def _similar(self, name: str) -> str:
        """Keys with the same last component, for an error: the variable may be under another scope."""
        if self._keys_by_component is None:
            self._keys_by_component = {}
            for key in self._checkpoint:
                for component in set(key.split("/")):
                    self._keys_by_component.setdefault(component, []).append(key)
        similar_keys = self._keys_by_component.get(name.rpartition("/")[2], [])[:3]
        return f"; it has {listed([quoted(key) for key in similar_keys])}" if similar_keys else ""


def _region_of_slice(key: CheckpointKey, shape: tuple[int, ...]) -> Region | None:
    """The region of a variable that a key's slice describes; None for the whole variable."""
    if not key.slice:
        return None
    *sizes, extents = key.slice.split(" ")
    region = []
    for extent, size in zip(extents.split(":"), shape, strict=False):
        match = _EXTENT.fullmatch(extent)
        if extent == "-":
            region.append((0, size))
        elif match is not None:
            region.append((int(match[1]), int(match[2])))
    if len(region) != len(shape) or [str(size) for size in shape] != sizes:
        raise ModelFileError(f"the slice '{key.slice}' of the variable {quoted(key.name)} is malformed")
    return tuple(region)
