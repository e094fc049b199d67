"""All limits on reading and converting a file.

A file that anybody may have written asks with few bytes for much memory and time. A bound on bytes of memory
is what a file of any size may take; each byte of the file adds some.
"""

from __future__ import annotations

import dataclasses
import sys

REMEDY = "if you trust the file, pass trusted=True, or --trusted on the command line"
"""What an error of these bounds ends with."""


@dataclasses.dataclass(frozen=True, slots=True)
class Bounds:
    """Limits on size. Limits on nesting, and all checks of contents, apply to trusted files too.

    Attributes:
        parsed: bytes that protobuf takes beside the contents of strings.
        fields: fields that are looked at to tell this.
        text_bytes: bytes of a text or JSON file.
        text_values: values in one.
        memory: bytes of a model, in the message and in the intermediate representation.
        nodes: nodes of a model, functions written out.
        expanded_nodes: the same, of a small file.
        expanded_bytes: bytes of a model's functions written out.
        placements: nodes with device configurations, times values: each such node looks at every value.
        inference: bytes of shape inference.
        dimensions: inferred dimensions of all values; where they are more, values have what the file states.
        conversion: bytes of a model while it is converted.
        made_nodes: nodes that one conversion makes beyond one for each of the model's.
        made_elements: elements of the constants that one conversion makes.
    """

    parsed: int = 130_000_000
    fields: int = 8_000_000
    text_bytes: int = 2**26
    text_values: int = 2_000_000
    memory: int = 180_000_000
    nodes: int = 1_000_000
    expanded_nodes: int = 30_000
    expanded_bytes: int = 2**24
    placements: int = 10_000_000
    inference: int = 48_000_000
    dimensions: int = 300_000
    conversion: int = 190_000_000
    made_nodes: int = 8_000
    made_elements: int = 2**22


BOUNDS = Bounds()
"""Those of files that anybody may have written."""
TRUSTED = Bounds(*[sys.maxsize] * len(dataclasses.fields(Bounds)))
"""Those of files whose writer is trusted: none."""


def bounds_of(trusted: bool) -> Bounds:
    """Return the limits for a trusted or an untrusted file."""
    return TRUSTED if trusted else BOUNDS
