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
"""The opset under which most symbolic functions are registered; all opsets use them, 7 and 8 too."""


def check_opset(opset: object) -> int:
    """Return `opset` as an int.

    Opsets above `MAXIMUM_OPSET` pass if the installed onnx has their operators: a model can be written there
    if it uses no operator that has changed since.

    Raises:
        OpsetError: it is not a whole number, is below `MINIMUM_OPSET`, or is unknown.
    """
    if isinstance(opset, bool) or not isinstance(opset, int):
        raise OpsetError(f"opset must be an int, not {type(opset).__name__} {opset!r}")
    if MINIMUM_OPSET <= opset <= MAXIMUM_OPSET:
        return opset
    message = f"opset {opset} is not supported: opsetta writes opsets {OPSET_RANGE}"
    if opset < MINIMUM_OPSET:
        raise OpsetError(message)
    # The command line prints its help without onnx.
    import onnx

    newest = onnx.defs.onnx_opset_version()
    if opset > newest:
        raise OpsetError(f"{message}, and the installed onnx {onnx.__version__} has opsets up to {newest}")
    return opset


def opset_or_default(opset: int | None) -> int:
    """Return an opset as `check_opset` does; None is the default opset."""
    return DEFAULT_OPSET if opset is None else check_opset(opset)


@functools.cache
def ir_version(opset: int) -> int:
    """The lowest ONNX IR version that supports this opset (from onnx's version table).

    Raises:
        OpsetError: the table of the installed onnx does not have the opset.
    """
    import onnx.helper

    try:
        return onnx.helper.find_min_ir_version_for([onnx.helper.make_opsetid("", opset)])
    except ValueError as error:
        raise OpsetError(
            f"the installed onnx {onnx.__version__} does not know the IR version of opset {opset}: "
            "install a newer onnx"
        ) from error
