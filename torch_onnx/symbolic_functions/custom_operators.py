"""`register_custom_op_symbolic` and `unregister_custom_op_symbolic` for the default registry."""

from __future__ import annotations

import re
from collections.abc import Callable

from ...registration import RegistrationError, default_registry
from ...registration.warning import warn
from .registered import TorchSymbolicFunction

_NAME = re.compile(r"[\w-]+::[A-Za-z_-][\w-]*")


def register_custom_op_symbolic(
    symbolic_name: str, symbolic_fn: Callable[..., object], opset_version: int
) -> None:
    """Register a symbolic function as `torch.onnx.register_custom_op_symbolic` does.

    Args:
        symbolic_name: `domain::op`; `::op` means `aten::op`. It serves every overload.
        symbolic_fn: takes a graph, then every argument of the operator by position, and returns its results.
        opset_version: the first opset of the function, which takes precedence over opsetta's. Below opset 9,
            the function with the lowest opset at or above the target applies.

    Raises:
        RegistrationError: the name is malformed, the operator never reaches lowering, or the opset is out of
            range.
    """
    name = qualify_name(symbolic_name)
    if name == "prim::PythonOp":
        raise RegistrationError(
            "prim::PythonOp is never called: torch.export records what the forward of a "
            "torch.autograd.Function computes. Define the function with torch.library.custom_op, and "
            "register that operator"
        )
    default_registry.put_first(TorchSymbolicFunction(name, opset_version, symbolic_fn))


def unregister_custom_op_symbolic(symbolic_name: str, opset_version: int) -> None:
    """Undo `register_custom_op_symbolic` at this opset; warn if nothing is registered."""
    name = qualify_name(symbolic_name)
    if not default_registry.remove_first(name, opset_version):
        warn(f"no custom function is registered for '{name}' at opset {opset_version}")


def qualify_name(symbolic_name: str) -> str:
    """Return the name with a domain; `::name` is an operator of ATen."""
    name = f"aten{symbolic_name}" if symbolic_name.startswith("::") else symbolic_name
    if not _NAME.fullmatch(name):
        raise RegistrationError(f"'{symbolic_name}' is not an operator name of the form domain::name")
    return name
