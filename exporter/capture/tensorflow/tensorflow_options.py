"""`TensorFlowOptions`: what a caller says about a TensorFlow file."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Collection, Mapping, Sequence

from ....registration import UsageError

Names = Sequence[str] | Mapping[str, Sequence[int] | None]
"""Names of results, or a mapping from them to their shapes, -1 for a size that varies."""


@dataclasses.dataclass(frozen=True)
class TensorFlowOptions:
    """Options for reading a TensorFlow file.

    Attributes:
        inputs: the results that a caller feeds, `x` or `x:0`, or a mapping from them to their shapes; by
            default those of the signature, or the placeholders.
        outputs: the results to return; by default those of the signature, or those that no node reads.
        checkpoint: the prefix of a checkpoint with the values of variables; by default the one beside the
            file.
        tags: the tags of the graph of a SavedModel.
        signature: the signature of a SavedModel or MetaGraph.
        input_format: "binary" or "text", to refuse the other.
        inputs_as_nchw: inputs of the graph, [batch, height, width, channels], that a caller feeds as [batch,
            channels, height, width].
        outputs_as_nchw: likewise for outputs.
        keep_parse_example: refuse parsers of serialized messages, whose features are inputs otherwise.
        allow_links: follow links out of the folder of the checkpoint.
    """

    inputs: Names | None = None
    outputs: Sequence[str] | None = None
    checkpoint: str | os.PathLike[str] | None = None
    tags: Collection[str] | None = None
    signature: str | None = None
    input_format: str | None = None
    inputs_as_nchw: Sequence[str] = ()
    outputs_as_nchw: Sequence[str] = ()
    keep_parse_example: bool = False
    allow_links: bool = False

    def __post_init__(self) -> None:
        for option in ("inputs", "outputs", "tags", "inputs_as_nchw", "outputs_as_nchw"):
            if isinstance(getattr(self, option), str):
                raise UsageError(f"{option} must be a list of names, not {getattr(self, option)!r}")

    @property
    def changed_options(self) -> list[str]:
        """The names of the options that differ from their defaults, except `allow_links`."""
        fields = [field for field in dataclasses.fields(self) if field.name != "allow_links"]
        return [field.name for field in fields if getattr(self, field.name) != field.default]
