"""`SourceModel`: a source graph by itself, which can be lowered to any opset and written to a file."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import IO

import onnx_ir as ir

from ..registration import DEFAULT_OPSET, Registry, default_registry, load_entry_points, registry_or_default
from . import lowering
from .capture.source import Capture, Interface
from .program import Program
from .source_file.decompositions import Decompositions, collect
from .source_file.equality import difference
from .source_file.reading import SourceFile
from .source_file.writing import write_source


class SourceModel:
    """A captured model without an opset. Neither lowering nor saving it needs torch.

    Attributes:
        registry: the symbolic functions that it is lowered with unless others are given.
    """

    def __init__(
        self,
        capture: Capture,
        *,
        input_names: Sequence[str] | None = None,
        output_names: Sequence[str] | None = None,
        decompose: lowering.Decompose | Decompositions | None = None,
        registry: Registry = default_registry,
    ):
        self._capture = capture
        self._given_input_names = list(input_names) if input_names is not None else None
        self._given_output_names = list(output_names) if output_names is not None else None
        self._decompositions = decompose
        self.registry = registry

    @classmethod
    def of(cls, file: SourceFile) -> SourceModel:
        """The model of a file that was read."""
        return cls(
            file.capture,
            input_names=file.given_inputs,
            output_names=file.given_outputs,
            decompose=file.decompositions,
        )

    @property
    def source(self) -> ir.Model:
        """The source graph, after the source passes."""
        return self._capture.source

    @property
    def interface(self) -> Interface:
        """How calls of the user's model map onto the graph's inputs and outputs."""
        return self._capture.interface

    @property
    def input_names(self) -> list[str]:
        """Names that the inputs of a lowered model have, in order."""
        own = [value.name or "" for value in self.source.graph.inputs]
        given = self._given_input_names or []
        return [*given, *own[len(given) :]]

    @property
    def output_names(self) -> list[str]:
        """Names that the outputs of a lowered model have, in order, unless they clash."""
        given = self._given_output_names or []
        return [*given, *self._capture.output_names[len(given) :]]

    def lower(self, opset: int = DEFAULT_OPSET, *, registry: Registry | None = None) -> Program:
        """The model at an opset.

        Args:
            registry: symbolic functions to lower with.

        Raises:
            OpsetError: an opset outside 7 to 26.
            UnsupportedOperatorsError: what that opset cannot express.
        """
        from .. import symbolics  # noqa: F401

        load_entry_points()
        return Program(
            self._capture,
            opset,
            registry_or_default(registry if registry is not None else self.registry),
            input_names=self._given_input_names,
            output_names=self._given_output_names,
            decompose=self._decompositions,
        )

    def save_source(
        self,
        target: str | bytes | os.PathLike | IO[bytes],
        *,
        weights: str = "inline",
        format: str | None = None,
    ) -> None:
        """Write the source graph to a file that `opsetta.load` reads back equal.

        Args:
            target: a path, or a binary file object.
            weights: `"inline"`; `"external"`, in `<name>.<digest>.data` beside the file; or `"none"`, which
                keeps a SHA-256 in the place of each parameter and persistent buffer.
            format: `"binary"`, `"text"` or `"json"`; by the extension unless given.

        Raises:
            ModelFileError: the graph has what a file cannot hold, or the target cannot be written.
        """
        decompositions = self._decompositions
        if decompositions is None:
            decompositions = Decompositions()
        elif not isinstance(decompositions, Decompositions):
            decompositions = collect(self.source, self.registry, decompositions)
        write_source(
            self._capture,
            decompositions,
            target,
            given_inputs=self._given_input_names,
            given_outputs=self._given_output_names,
            weights=weights,
            format=format,
        )

    def difference(self, other: SourceModel) -> str | None:
        """The first place where another source model is not equal, in words; None where they are equal."""
        names = (self._given_input_names, self._given_output_names)
        others = (other._given_input_names, other._given_output_names)
        if names != others:
            return f"the names given to inputs and outputs: {names} against {others}"
        return difference(self._capture, other._capture)

    def __repr__(self) -> str:
        nodes = self.source.graph.num_nodes()
        return f"SourceModel(inputs={self.input_names}, outputs={self.output_names}, nodes={nodes})"
