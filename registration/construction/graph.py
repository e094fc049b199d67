"""The graph under construction, for the driver and emission; symbolic functions use `GraphContext`."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Collection, Mapping, Sequence

import numpy as np
import onnx_ir as ir
from onnx import helper
from onnx_ir import Value

from .. import arguments as convention
from .. import schemas
from ..errors import GraphError, UnsupportedError
from ..inference import node_inference, shape_inference
from ..inference.folding import MAXIMUM_ELEMENTS
from ..metadata import LINE, MODULE, PLAN_PHASE, SOURCE
from .constant_pool import ConstantPool
from .facts import holder_of
from .names import Names

_NEWEST = {"ai.onnx.ml": 5, "ai.onnx.training": 1, "ai.onnx.preview.training": 1, "com.microsoft": 1}

_FEW_ELEMENTS = 64
"""Elements of a constant that takes less than the node that reads it."""
_DIMENSIONS_OF_NODE = 8
"""Dimensions that take as long as a node; most shapes have fewer."""

LowerBlock = Callable[[ir.Graph, Sequence[Value]], list[Value]]
"""Lowers the nodes of a source graph at the current position; maps values of its inputs to its outputs."""


@dataclasses.dataclass
class Limits:
    """The remaining limits for a model from an untrusted source, whose sizes may be arbitrary.

    Attributes:
        elements: the remaining elements of constants; those of a few elements do not count.
        nodes: nodes of the new graph. Shapes of many dimensions count as nodes, too, and so do operators that
            are computed on constants: they take as long.
        remedy: the remedy in the error message.
    """

    elements: int
    nodes: int
    remedy: str = ""

    def spend(self, nodes: int) -> None:
        """Take a number from the remaining nodes.

        Raises:
            GraphError: so many do not remain.
        """
        self.nodes -= nodes
        if self.nodes < 0:
            # A small file may describe a graph that becomes arbitrarily large when it is lowered.
            text = "the model would have more nodes at this opset than the limit for its file"
            raise GraphError(self.beyond(text))

    def beyond(self, text: str) -> str:
        """An error's text, with the remedy."""
        return f"{text}; {self.remedy}" if self.remedy else text


@dataclasses.dataclass(slots=True)
class SourcePosition:
    """The current position in the source graph.

    Attributes:
        node: the source node.
        scope: its module path, with a slash at the end.
        origin: the metadata of the nodes that it is lowered to.
        lower_block: lowers its sub-blocks.
        shape: the shape of its first output.
    """

    node: ir.Node | None = None
    scope: str = ""
    origin: Mapping[str, str] = dataclasses.field(default_factory=dict)
    lower_block: LowerBlock | None = None
    shape: ir.Shape | None = None


class Construction:
    """A graph under construction: its names, its constants, and the source node being lowered.

    Attributes:
        graph: the graph that nodes are appended to; a sub-graph while that is built.
        opset: the ONNX opset of the graph.
        names: the names in use.
        position: the current position in the source graph.
        owners: the source nodes of the sub-blocks that were reached.
        composing: the ONNX operators that the version ladder is composing, outermost first.
        limits: the remaining limits for an untrusted model; None for the user's own model.
        infers: whether to infer all shapes, because the source has none.
        kernels: operators that the consumer has kernels of, where other runtimes may lack them.
    """

    def __init__(self, graph: ir.Graph, opset: int):
        self.graph = graph
        self.opset = opset
        self.names = Names()
        self.position = SourcePosition()
        self.owners: dict[ir.Graph, ir.Node] = {}
        self.composing: list[str] = []
        self.limits: Limits | None = None
        self.infers = False
        self.kernels: Collection[str] = ()
        self._pool = ConstantPool(graph, self.names.unique)
        self._opset_imports = graph.opset_imports

    def enter(
        self, node: ir.Node, module: str = "", lower_block: LowerBlock | None = None, name: str = ""
    ) -> None:
        """Begin lowering a source node: nodes emitted from here on get its module path.

        Args:
            lower_block: lowers the node's sub-blocks.
            name: the operator's name with its overload, if the caller has it.
        """
        origin = {SOURCE: name or convention.overloaded_name(node)}
        if module:
            origin[MODULE] = module
        properties = node.metadata_props
        for key in (LINE, PLAN_PHASE):
            if key in properties:
                origin[key] = properties[key]
        for block in convention.blocks(node):
            self.owners[block] = node
        outputs = node.outputs
        shape = outputs[0].shape if outputs else None
        self.position = SourcePosition(node, f"{module}/" if module else "", origin, lower_block, shape)

    def append(
        self,
        op_type: str,
        inputs: Sequence[Value | None],
        attributes: Sequence[ir.Attr],
        types: Sequence[ir.TypeProtocol | None],
        domain: str = "",
    ) -> list[Value]:
        """Append a node, with unique names and known shapes of its outputs, and return the outputs.

        Args:
            types: the type of each output, None if unknown.

        Raises:
            GraphError: an untrusted model would get too many nodes.
            UnsupportedError: it reads a value whose element type has no operators at the target.
        """
        if self.limits is not None:
            self.limits.spend(1)
        for value in inputs:
            # A value outside every graph is a constant that no node reads yet, or is stored in another type.
            if value is None or value.producer() is not None or value.graph is not None:
                continue
            if not self._pool.use(value):
                self._check_stored_as_declared(value, f"ONNX operator {op_type} does not take")
        position, unique = self.position, self.names.unique
        name = unique(f"{position.scope}{op_type}")
        shape = None
        if domain == "":
            attribute_values = {a.name: a.value for a in attributes} if attributes else {}
            shape = shape_inference.infer(op_type, inputs, attribute_values, position.shape)
            if shape is not None and self.limits is not None:
                self.limits.spend(len(shape) // _DIMENSIONS_OF_NODE)
        outputs = [
            Value(name=unique(f"{name}_output_{i}"), type=output_type, shape=None if i else shape)
            for i, output_type in enumerate(types)
        ]
        node = ir.Node(
            domain,
            op_type,
            inputs,
            attributes,
            outputs=outputs,
            name=name,
            metadata_props={**position.origin},
        )
        if domain == "" and self.infers:
            node_inference.complete_shapes(node, self.opset)
        self.graph.append(node)
        return outputs

    def use(self, value: Value) -> Value:
        """Mark a value as a graph output: a constant becomes an initializer.

        Raises:
            UnsupportedError: no operator at this opset returns its element type.
        """
        self._check_stored_as_declared(value, "no ONNX operator gives")
        self._pool.use(value)
        return value

    def _check_stored_as_declared(self, value: Value, reason: str) -> None:
        if holder_of(value) is not None:
            assert value.dtype is not None
            first_opset = schemas.first_opset_with_dtype("Cast", 0, value.dtype)
            text = f"{reason} {value.dtype.name} at opset {self.opset}"
            raise UnsupportedError(text, first_opset=first_opset)

    def constant(self, array: np.ndarray) -> Value:
        """The constant with these contents; equal contents give the same value.

        Raises:
            UnsupportedError: it exceeds the limits for an untrusted model.
        """
        if not self.is_free(array.size):
            self.reserve(array.size)
        count = len(self._pool)
        value = self._pool.make(array)
        # Thousands of small constants take as much as a large one.
        if self.limits is not None and array.size > _FEW_ELEMENTS and len(self._pool) > count:
            self.reserve(array.size)
            self.limits.elements -= array.size
        return value

    def is_constant(self, value: Value) -> bool:
        """Whether the value is a constant made by `constant`."""
        return value in self._pool

    def is_free(self, elements: int) -> bool:
        """Whether a constant of so many elements is made without asking the limits first."""
        return self.limits is None or elements <= MAXIMUM_ELEMENTS

    def reserve(self, *sizes: int) -> None:
        """Check the size of a constant against the limits before it is made.

        Raises:
            UnsupportedError: the constant would be too large, or a size is negative.
        """
        if min(sizes, default=0) < 0:
            raise UnsupportedError(f"a size is negative: {', '.join(map(str, sizes))}")
        if self.limits is not None and math.prod(sizes) > self.limits.elements:
            product = " by ".join(map(str, sizes))
            text = f"it would take a constant of {product} elements, more than are made of a file"
            raise UnsupportedError(self.limits.beyond(text))

    def import_released(self, domain: str, column: int) -> int:
        """Import a domain at the version that was released with the opset, unless it is imported already.

        Args:
            domain: such as `ai.onnx.ml`.
            column: the domain's column in onnx's table of releases.

        Returns:
            The version that the graph imports.
        """
        versions = [row[column] for row in helper.VERSION_TABLE if row[2] <= self.opset]
        imported = self._opset_imports.get(domain)
        return self.opset_import(domain, int(versions[-1])) if imported is None else imported

    def opset_import(self, domain: str, requested_version: int | None = None) -> int:
        """The version of another domain that the graph imports; imported at its newest when first used.

        Args:
            requested_version: the version to import it at.

        Raises:
            UnsupportedError: the graph imports the domain at another version than `requested_version`.
        """
        version = self._opset_imports.get(domain)
        if version is None:
            # Unknown domains begin at version 1, which is what torch.onnx writes for custom operators.
            version = _NEWEST.get(domain, 1) if requested_version is None else requested_version
            self._opset_imports[domain] = version
        elif requested_version not in (None, version):
            raise UnsupportedError(
                f"the model needs both version {version} and version {requested_version} of domain "
                f"'{domain}'; a file declares one version of each domain"
            )
        return version
