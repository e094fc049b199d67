"""The methods of TorchScript's graphs, schemas and handles that the capture calls."""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import torch

from ...torch_boundary import torchscript

if TYPE_CHECKING:
    from typing_extensions import TypeIs

Program: TypeAlias = "torch.jit.ScriptModule | ScriptMethod"
Constant: TypeAlias = (
    bool | int | float | complex | str | torch.Tensor | torch.dtype | torch.device | enum.Enum | None
)
StoredItem: TypeAlias = (
    "Constant | list[StoredItem] | tuple[StoredItem, ...] | dict[Constant, StoredItem] | ScriptHandle"
)
"""What TorchScript stores in an attribute, a default or a `prim::Constant`."""


# torch's own declarations of these classes lack methods, such as `Node.tys` and `Graph.findAllNodes`.
class ScriptType(Protocol):
    """The type of a value."""

    def kind(self) -> str: ...
    def elements(self) -> Sequence[ScriptType]: ...
    def getElementType(self) -> ScriptType: ...
    def getValueType(self) -> ScriptType: ...
    def isSubtypeOf(self, other: ScriptType) -> bool: ...
    def str(self) -> str: ...


class ScriptUse(Protocol):
    """A use of a value."""

    user: ScriptNode


class ScriptValue(Protocol):
    """A value of a graph."""

    def debugName(self) -> str: ...
    def node(self) -> ScriptNode: ...
    def toIValue(self) -> StoredItem | torch.Generator: ...
    def type(self) -> ScriptType: ...
    def unique(self) -> int: ...
    def uses(self) -> Sequence[ScriptUse]: ...


class ScriptBlock(Protocol):
    """A graph, or a block of a node."""

    def inputs(self) -> Iterator[ScriptValue]: ...
    def nodes(self) -> Iterator[ScriptNode]: ...
    def outputs(self) -> Iterator[ScriptValue]: ...


class ScriptGraph(ScriptBlock, Protocol):
    """The graph of a method or function, with its calls inlined."""

    def findAllNodes(self, kind: str) -> Sequence[ScriptNode]: ...


class ScriptNode(Protocol):
    """A node of a graph."""

    def blocks(self) -> Iterator[ScriptBlock]: ...
    def g(self, name: str) -> ScriptGraph: ...
    def getModuleHierarchy(self) -> str: ...
    def i(self, name: str) -> int: ...
    def inputs(self) -> Iterator[ScriptValue]: ...
    def inputsSize(self) -> int: ...
    def kind(self) -> str: ...
    def output(self) -> ScriptValue: ...
    def outputs(self) -> Iterator[ScriptValue]: ...
    def pyname(self) -> str: ...
    def s(self, name: str) -> str: ...
    def schema(self) -> str: ...
    def scopeName(self) -> str: ...
    def sourceRange(self) -> str: ...
    def tys(self, name: str) -> Sequence[ScriptType]: ...


class ScriptAlias(Protocol):
    """The memory that an argument of a schema refers to."""

    is_write: bool


class ScriptArgument(Protocol):
    """An argument or a result of a schema."""

    name: str
    type: ScriptType
    alias_info: ScriptAlias | None
    kwarg_only: bool
    default_value: StoredItem

    def has_default_value(self) -> bool: ...


class ScriptSchema(Protocol):
    """The schema of an operator, method or function."""

    name: str
    overload_name: str
    arguments: Sequence[ScriptArgument]
    returns: Sequence[ScriptArgument]
    is_mutable: bool


class ScriptHandle(Protocol):
    """TorchScript's object of a module, or an instance of a TorchScript class."""

    def getattr(self, name: str) -> StoredItem: ...


class ScriptMethod(Protocol):
    """A function, or a method of a module."""

    inlined_graph: ScriptGraph
    schema: ScriptSchema

    def __call__(self, *args: object, **kwargs: object) -> object: ...


def function_of(program: Program) -> ScriptMethod:
    """The program's function: the forward of a module."""
    # torch declares `forward` as a plain function.
    forward: Any = program.forward if isinstance(program, torch.jit.ScriptModule) else program
    function: ScriptMethod = forward
    return function


def is_handle(item: StoredItem) -> TypeIs[ScriptHandle]:
    """Whether an attribute is a module, or an instance of a TorchScript class."""
    return torchscript.is_handle(item)
