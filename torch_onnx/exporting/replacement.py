"""`replaced`: redirects calls of torch.onnx in other code to opsetta, and restores torch.onnx afterwards."""

from __future__ import annotations

import contextlib
import functools
import importlib
import sys
import threading
import types
from collections.abc import Callable, Iterator

from ...exporter.torch_boundary.static_lookups import is_instance, module_attributes, module_name
from ...registration import SymbolicFunction, default_registry
from .._type_utils import JitScalarType
from ..symbolic_functions import custom_operators
from ..symbolic_functions.registered import TorchSymbolicFunction
from ..symbolic_functions.registered_with_torch import (
    apply_our_parse_args,
    functions_of_torch,
    modules_of_torch,
    open_blocks,
)
from .export_call import export

_LOCK = threading.RLock()


class _Use:
    """One active `with replaced()` block.

    Attributes:
        opset: the opset of every export in it; None keeps the caller's.
        registered: the function at each changed name and opset of the registry before the block.
    """

    def __init__(self, opset: int | None):
        self.opset = opset
        self.registered: list[tuple[str, int, SymbolicFunction | None]] = []

    def put(self, function: TorchSymbolicFunction) -> None:
        """Register a function until the end of the block."""
        self.remember(function.name, function.opset)
        default_registry.put_first(function)

    def remember(self, name: str, opset: int) -> None:
        """Save the function registered at a name and opset."""
        self.registered.append((name, opset, default_registry.first(name, opset)))

    def undo(self) -> None:
        """Restore the registry."""
        for name, opset, function in reversed(self.registered):
            default_registry.remove_first(name, opset)
            if function is not None:
                default_registry.put_first(function)


_uses: list[_Use] = []
_undo: list[Callable[[], None]] = []


@contextlib.contextmanager
def replaced(opset: int | None = None) -> Iterator[None]:
    """Redirect calls of `torch.onnx.export` and related functions to opsetta within the block.

    The block replaces `torch.onnx.export`, `torch.onnx.utils.export`, `register_custom_op_symbolic`,
    `unregister_custom_op_symbolic`, `symbolic_helper`, `symbolic_opset7` to `symbolic_opset20` and
    `JitScalarType`.

    It also replaces global names that a module has bound to one of them, as by `from torch.onnx import
    export`, before or within the block. Symbolic functions registered before the block are used in it, and
    those registered within it are removed at its end. The end of the block restores everything, also after an
    error. Blocks may be nested, and entered in several threads at once: all threads use the replacement until
    the last block ends.

    Args:
        opset: the opset of every export, instead of the caller's.

    Raises:
        OpsettaError: torch is not installed.
        OpsetError: an opset that opsetta does not write.
    """
    from ...exporter.devices.targets.load_target import resolve_target
    from ...exporter.torch_boundary.boundary import interrupts_deferred
    from ...exporter.torch_boundary.requirements import need_torch

    need_torch("replacing torch.onnx")
    use = _Use(None if opset is None else resolve_target(opset, None)[0])
    try:
        with interrupts_deferred(), _LOCK:
            _uses.append(use)
            open_blocks.append(use)
            if len(_uses) == 1:
                _replace(use)
        yield
    finally:
        with interrupts_deferred(), _LOCK:
            use.undo()
            _uses.remove(use)
            open_blocks.remove(use)
            if not _uses:
                while _undo:
                    _undo.pop()()


def _replace(use: _Use) -> None:
    import torch

    utils = importlib.import_module("torch.onnx.utils")
    replacements: dict[int, tuple[object, object]] = {}
    for name, our_function in _FUNCTIONS.items():
        for namespace in (torch.onnx, utils):
            original = getattr(namespace, name)
            # torch.onnx.utils re-exports some functions: one object gets one replacement.
            if id(original) not in replacements:
                traced = namespace is utils and name == "export"
                stand_in = _make_redirection(
                    original, functools.partial(our_function, dynamo=False) if traced else our_function
                )
                replacements[id(original)] = original, stand_in
            _set(namespace, name, replacements[id(original)][1], original)
    for module in modules_of_torch():
        replacements |= _replace_module(*module)
    originals = {id(new): (new, old) for old, new in replacements.values()}
    # Modules imported within the block may have bound our functions: the end of the block replaces those too.
    _undo.append(lambda: _rebind(originals))
    original = torch.onnx.JitScalarType  # type: ignore[attr-defined]
    _set(torch.onnx, "JitScalarType", JitScalarType, original)
    _rebind(replacements | {id(original): (original, JitScalarType)}, _undo)
    for function in functions_of_torch(uses_our_helpers=False):
        use.put(function)


def _set(holder: object, name: str, item: object, before: object) -> None:
    """Set an attribute, and record how to undo that."""
    _undo.append(functools.partial(setattr, holder, name, before))
    setattr(holder, name, item)


def _replace_module(name: str, our_module: types.ModuleType) -> dict[int, tuple[object, object]]:
    """Replace a module of torch.onnx; return the objects that users may have bound, with replacements."""
    import torch

    bound = vars(torch.onnx).get(name)
    original = importlib.import_module(f"torch.onnx.{name}")
    stand_in = _ModuleTwin(our_module, original)
    _set(torch.onnx, name, stand_in, original if bound is None else bound)
    sys.modules[original.__name__] = stand_in
    _undo.append(functools.partial(sys.modules.__setitem__, original.__name__, original))
    replacements: dict[int, tuple[object, object]] = {
        id(module): (module, stand_in) for module in (original, bound) if module is not None
    }
    for key, item in vars(original).items():
        if isinstance(item, types.FunctionType) and hasattr(our_module, key):
            replacements[id(item)] = (item, getattr(stand_in, key))
    return replacements


class _ModuleTwin(types.ModuleType):
    """Our module under the name of torch's; its functions are copies, so that they can be restored."""

    def __init__(self, our_module: types.ModuleType, original: types.ModuleType):
        super().__init__(original.__name__, our_module.__doc__)
        self.__file__ = original.__file__
        self.__spec__ = original.__spec__
        self._our_module = our_module

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        attribute = getattr(self._our_module, name)
        if isinstance(attribute, types.FunctionType):
            attribute = _copy_function(attribute)
            setattr(self, name, attribute)
        return attribute


def _copy_function(function: Callable[..., object]) -> Callable[..., object]:
    """Make a new function that calls another one."""

    @functools.wraps(function)
    def call(*args: object, **kwargs: object) -> object:
        return function(*args, **kwargs)

    return call


def _make_redirection(
    original: Callable[..., object], our_function: Callable[..., object]
) -> Callable[..., object]:
    """Make a function that calls ours within a block, and torch's after it, because callers may keep it."""

    @functools.wraps(original)
    def call(*args: object, **kwargs: object) -> object:
        if not _uses:
            return original(*args, **kwargs)
        opset = next((use.opset for use in reversed(_uses) if use.opset is not None), None)
        if opset is not None and getattr(our_function, "func", our_function) is export:
            kwargs["opset_version"] = opset
        return our_function(*args, **kwargs)

    return call


def _register(symbolic_name: str, symbolic_fn: Callable[..., object], opset_version: int) -> None:
    with _LOCK:
        _uses[-1].remember(custom_operators.qualify_name(symbolic_name), opset_version)
        custom_operators.register_custom_op_symbolic(
            symbolic_name, apply_our_parse_args(symbolic_fn), opset_version
        )


def _unregister(symbolic_name: str, opset_version: int) -> None:
    with _LOCK:
        _uses[-1].remember(custom_operators.qualify_name(symbolic_name), opset_version)
        custom_operators.unregister_custom_op_symbolic(symbolic_name, opset_version)


def _rebind(
    replacements: dict[int, tuple[object, object]], undo: list[Callable[[], None]] | None = None
) -> None:
    """Replace objects that modules have bound to global names; the modules of torch and opsetta keep theirs.

    Args:
        undo: gets a function for each name that undoes this.
    """
    for module in list(sys.modules.values()):
        # A module may import others at the first access to it.
        if not is_instance(module, types.ModuleType):
            continue
        if module_name(module).split(".")[0] in ("", "torch", __name__.split(".")[0]):
            continue
        attributes = module_attributes(module)
        for key, item in list(attributes.items()):
            old, new = replacements.get(id(item), (None, None))
            if old is not None and old is item:
                attributes[key] = new
                if undo is not None:
                    undo.append(functools.partial(_restore, module, key, old, new))


def _restore(module: types.ModuleType, key: str, old: object, new: object) -> None:
    """Restore an object, unless the module has rebound the name."""
    attributes = module_attributes(module)
    if attributes.get(key) is new:
        attributes[key] = old


_FUNCTIONS: dict[str, Callable[..., object]] = {
    "export": export,
    "register_custom_op_symbolic": _register,
    "unregister_custom_op_symbolic": _unregister,
}
