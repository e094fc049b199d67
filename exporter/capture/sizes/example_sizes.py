"""Checks that the example of an export meets the restrictions on sizes that the capture found."""

from __future__ import annotations

from ....registration import CaptureError, DimensionError
from ...captured_graph import dimensions
from ...captured_graph.capture import Capture
from ...torch_boundary.containers import pytree


def check_example(capture: Capture) -> None:
    """Refuse a capture that is not valid for its own example.

    A dynamic dimension of size 0 or 1 is captured at a larger size, where the model may compute something
    else. A condition that cannot be evaluated is refused here, too.

    Raises:
        CaptureError: the sizes of the example do not meet a restriction of the capture.
    """
    metadata = capture.source.metadata_props
    if capture.example is None:
        return
    leaves = pytree.tree_leaves(capture.example)
    pairs = zip(leaves, capture.interface.inputs, strict=True)
    inputs = [(name, tuple(getattr(leaf, "shape", ()))) for leaf, name in pairs if name is not None]
    declared = dimensions.inputs_of(capture.source, [name for name, _ in inputs])
    try:
        dimensions.SizeCheck(declared, metadata)([shape for _, shape in inputs])
    except DimensionError as error:
        raise CaptureError(
            f"the program would not be valid for the example itself: {error}. A dynamic dimension of size 0 "
            "or 1 is captured at a larger size: use an example that meets this condition, or make the "
            "dimension static"
        ) from error
