"""The supported opsets, and the ONNX IR version of each."""

from __future__ import annotations

import functools

from .errors import OpsetError

MINIMUM_OPSET = 7
MAXIMUM_OPSET = 28
DEFAULT_OPSET = 17
"""The first opset with LayerNormalization; device compilers that support at most opset 19 accept it."""
OPSET_RANGE = f"{MINIMUM_OPSET} to {MAXIMUM_OPSET}"
"""The opsets that can be written, for messages."""

BASE_OPSET = 9
"""The opset of the base symbolic functions; later opsets inherit from it."""


def check_opset(opset: object) -> int:
    """Return `opset` as an int.

    Raises:
        OpsetError: it is not a whole number from `MINIMUM_OPSET` to `MAXIMUM_OPSET`.
    """
    if isinstance(opset, bool) or not isinstance(opset, int):
        raise OpsetError(f"opset must be an int, not {type(opset).__name__} {opset!r}")
    if not MINIMUM_OPSET <= opset <= MAXIMUM_OPSET:
        raise OpsetError(f"opset {opset} is not supported: opsetta writes opsets {OPSET_RANGE}")
    return opset


@functools.cache
def ir_version(opset: int) -> int:
    """The lowest ONNX IR version that supports this opset (from onnx's version table)."""
    # The command line prints its help without onnx.
    import onnx.helper

    imports = [onnx.helper.make_opsetid("", opset)]
    return onnx.helper.find_min_ir_version_for(imports, ignore_unknown=True)
