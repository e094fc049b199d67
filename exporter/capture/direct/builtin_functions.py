"""Keeps `len(tensor)`, `int(number)` and `float(size)` in a model's code symbolic, unlike Python's own.

Sizes are of type `int` for `isinstance` and `type`, as in eager PyTorch.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import functools
import inspect
import math
import re
import sys
import types
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any

import torch

from ...torch_boundary.fake_tensors import FakeTensor, FunctionalTensor
from ...torch_boundary.replacements.functions.repeated_lists import repeat_by
from ...torch_boundary.state.module_tree import modules_of
from ...torch_boundary.static_lookups import (
    bases_of,
    class_attributes,
    defining_module,
    is_instance,
    module_attributes,
)
from ...torch_boundary.symbolic_numbers import as_integer, base_two_logarithm, holds_always
from .bytecode import only_calls
from .checks import calls_function, is_inside_call
from .loops.dynamic_ranges import (
    DynamicList,
    DynamicRange,
    count_members,
    dynamic_length,
    repeat_number,
    reverse_members,
    sum_members,
    zip_members,
)
from .loops.recurrences import as_recurrences

_OURS = __name__.removesuffix("capture.direct.builtin_functions")
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_modules: dict[str, weakref.WeakKeyDictionary[types.ModuleType, bool]] = {
    name: weakref.WeakKeyDictionary() for name in ("int", "float", "list", "type")
}
"""Whether a function may be replaced in a module."""
_CALLS = {
    "int": r"\bint\(",
    "float": r"\bfloat\(",
    "list": r"\blist\((reversed\()?range\(",
    "type": r"\btype\(",
}
"""The calls of a function that need its replacement."""


class MakesNumbers(BaseException):
    """A module makes a number of a dynamic size. A BaseException, so that the model does not catch it.

    Attributes:
        namespace: its globals.
    """

    def __init__(self, namespace: dict[str, object]):
        super().__init__(namespace.get("__name__", ""))
        self.namespace = namespace


def check_number() -> None:
    """Raise an error if a size becomes a number where a replaced `int`, `float` or `len` keeps it symbolic.

    Raises:
        MakesNumbers: the size is the argument of a call of `int` or `float`, or the result of `len`, in a
            module outside those that `keep_symbolic` changes by itself.
    """
    frame, called = sys._getframe(1), ""
    while not _runs_model(frame):
        called = frame.f_code.co_name
        if frame.f_back is None:
            return
        frame = frame.f_back
    space = frame.f_globals
    is_rounded = called in ("__float__", "__index__") and is_inside_call("float", "int")
    name = "int" if called == "__int__" else "float" if is_rounded else ""
    if name and name not in space and _only_calls(space, name):
        raise MakesNumbers(space)
    if called == "__index__" and "len" not in space and calls_function("len"):
        raise MakesNumbers(space)


def _length(item: object) -> object:
    """The length of an object; of a tensor, the possibly symbolic size of its first axis."""
    if isinstance(item, torch.Tensor) and item.dim() > 0:
        return item.shape[0]
    return dynamic_length(item)


class _Integer(type):
    """Python's `int` for calls and `isinstance`, which keeps symbolic numbers."""

    def __call__(cls, *args: Any, **kwargs: Any) -> object:
        if len(args) == 1 and not kwargs:
            number = args[0]
            # A tensor's own conversion must return a number of Python's.
            if builtins.type(number) is FakeTensor:
                number = (number.to(torch.int64) if number.is_floating_point() else number).item()
            integer = as_integer(number) if isinstance(number, (torch.SymInt, torch.SymFloat)) else None
            if integer is not None:
                return integer
        return builtins.int(*args, **kwargs)

    def __instancecheck__(cls, item: object) -> bool:
        # In eager PyTorch a size is an int, and models test for it.
        return isinstance(item, (builtins.int, torch.SymInt))


def _is_instance(*args: Any) -> bool:
    """Python's `isinstance`, for which a symbolic number also has the type that it has in eager PyTorch."""
    item, classes = args
    return isinstance(item, classes) or (
        isinstance(item, tuple(_EAGER_TYPES)) and issubclass(_EAGER_TYPES[type(item)], classes)
    )


class _TypeOfTypes(type):
    """Python's `type` for calls and `isinstance`; that of a number or tensor is the type in eager PyTorch."""

    def __call__(cls, *args: Any, **kwargs: Any) -> object:
        if len(args) != 1:
            return builtins.type(*args, **kwargs)
        own_type = builtins.type(args[0])
        if own_type in (FakeTensor, FunctionalTensor):
            return torch.nn.Parameter if isinstance(args[0], torch.nn.Parameter) else torch.Tensor
        return _EAGER_TYPES.get(own_type, own_type)

    def __instancecheck__(cls, item: object) -> bool:
        return isinstance(item, builtins.type)


class _Type(metaclass=_TypeOfTypes):
    """The replacement of `type` in the modules that define a model."""


class _RangeType(type):
    """Python's `range` for calls and `isinstance`; over a dynamic size a loop that is recorded as one."""

    def __call__(cls, *args: Any) -> Any:
        symbolic = [arg for arg in args if isinstance(arg, torch.SymInt) and arg.node.maybe_as_int() is None]
        loops = getattr(symbolic[0].node.shape_env, "loops", None) if symbolic else None
        if loops is None:
            return builtins.range(*args)
        start, stop, step = (0, *args, 1) if len(args) == 1 else (*args, 1)[:3]
        # A step of at least the whole length leaves the first number alone, such as 0 of `range(0, n, n)`.
        if (
            isinstance(step, torch.SymInt)
            and holds_always(stop - start <= step)
            and holds_always(start < stop)
        ):
            return (start,)
        return DynamicRange(loops, start, stop, int(step))

    def __instancecheck__(cls, item: object) -> bool:
        return isinstance(item, (builtins.range, DynamicRange))


class _Range(metaclass=_RangeType):
    """The replacement of `range` in the modules that define a model."""


class _ListType(type):
    """Python's `list` for calls and `isinstance`, which keeps the length of a range symbolic."""

    def __call__(cls, *args: Any) -> object:
        if len(args) == 1 and isinstance(args[0], DynamicRange):
            return args[0].as_list()
        return builtins.list(*args)

    def __instancecheck__(cls, item: object) -> bool:
        return isinstance(item, (builtins.list, DynamicList))


class _List(metaclass=_ListType):
    """The replacement of `list` in the modules that define a model."""


class _Int(metaclass=_Integer):
    """The replacement of `int` in the modules that define a model."""


# Python's functions are called with `*args`, so that their errors count as the model's.


def _square_root(*args: Any) -> object:
    """`math.sqrt`, of a symbolic number too."""
    return torch.sym_sqrt(*args) if isinstance(args[0], _SYMBOLIC) else math.sqrt(*args)


def _integer_square_root(*args: Any) -> object:
    """`math.isqrt`, of a symbolic number too: rounding is exact for sizes below 2**52."""
    return math.floor(torch.sym_sqrt(*args)) if isinstance(args[0], torch.SymInt) else math.isqrt(*args)


def _logarithm(*args: Any) -> object:
    """`math.log`, of a symbolic number too if the quotient is Python's at the powers of its base."""
    number, *base = args
    if not isinstance(number, _SYMBOLIC) or any(isinstance(item, _SYMBOLIC) for item in base):
        return math.log(*args)
    if not base:
        return base_two_logarithm(number) * _LOG_OF_TWO
    powers = (base[0] ** exponent for exponent in range(1, 64) if base[0] ** exponent < _LARGEST_POWER)
    if base[0] <= 1 or any(
        math.log(power, *base) != math.log2(power) * _LOG_OF_TWO / math.log(*base) for power in powers
    ):
        # `math.ceil` and `math.floor` of another rounding would differ there.
        return math.log(*args)
    return base_two_logarithm(number) * _LOG_OF_TWO / math.log(*base)


def _base_two_logarithm(*args: Any) -> object:
    """`math.log2`, of a symbolic number too."""
    return base_two_logarithm(*args) if isinstance(args[0], _SYMBOLIC) else math.log2(*args)


def _divide_with_remainder(*args: Any) -> object:
    """Python's `divmod`, of a size too."""
    if any(isinstance(item, torch.SymInt) for item in args):
        dividend, divisor = args
        return dividend // divisor, dividend % divisor
    divide: Callable[..., object] = divmod
    return divide(*args)


_SYMBOLIC = (torch.SymInt, torch.SymFloat)
_EAGER_TYPES: dict[type, type] = {torch.SymInt: int, torch.SymFloat: float, torch.SymBool: bool}
_LOG_OF_TWO = math.log(2)
_LARGEST_POWER = 1 << 20
_OF_MATH = {
    "sqrt": _square_root,
    "isqrt": _integer_square_root,
    "log": _logarithm,
    "log2": _base_two_logarithm,
}
_math = types.ModuleType("math")
"""Stands in for the module `math`."""
vars(_math).update(vars(math), **_OF_MATH)


_ROOTS = {id(math): _math, **{id(getattr(math, name)): function for name, function in _OF_MATH.items()}}
"""The replacements of `math` and of its functions, by the identity of the original."""


class _FloatingPoint(type):
    """Python's `float` for calls and `isinstance`, which keeps sizes symbolic that an `int` rounds again."""

    def __call__(cls, *args: Any, **kwargs: Any) -> object:
        # `int(math.ceil(float(n) / 32.0) * 32.0)` rounds a size up; other code needs a number.
        if len(args) == 1 and isinstance(args[0], torch.SymInt) and is_inside_call("float", "int"):
            return torch.sym_float(args[0])
        return builtins.float(*args, **kwargs)

    def __instancecheck__(cls, item: object) -> bool:
        return isinstance(item, builtins.float)


class _Float(metaclass=_FloatingPoint):
    """The replacement of `float` in the modules that define a model."""


@contextlib.contextmanager
def keep_symbolic(
    model: torch.nn.Module,
    has_dynamic_sizes: bool,
    further_namespaces: Iterable[dict[str, object]],
    captured_recurrences: Collection[str] = (),
) -> Iterator[Collection[str]]:
    """Replace functions of Python that make numbers of sizes in the modules that define a model.

    Args:
        model: the model.
        has_dynamic_sizes: whether sizes are dynamic; numbers need not be kept otherwise.
        further_namespaces: the globals of further modules that convert sizes to numbers.
        captured_recurrences: see `as_recurrences`, whose result the context returns.
    """
    namespaces = [*_namespaces(model), *further_namespaces]
    functions: dict[str, Any] = {"len": _length, "isinstance": _is_instance}
    if has_dynamic_sizes:
        functions |= {
            "range": _Range,
            "enumerate": count_members,
            "divmod": _divide_with_remainder,
            "reversed": reverse_members,
            "zip": zip_members,
            "sum": sum_members,
            "int": _Int,
            "float": _Float,
            "list": _List,
            "type": _Type,
        }
    with _replace_functions(namespaces, functions), repeat_by(repeat_number):
        if not has_dynamic_sizes:
            yield ()
            return
        with _replace_roots(namespaces), as_recurrences(model, namespaces, captured_recurrences) as kept:
            yield kept


def keep_types(model: torch.nn.Module) -> contextlib.AbstractContextManager[None]:
    """In the modules that define a model, give symbolic numbers the types that they have in eager PyTorch."""
    return _replace_functions(_namespaces(model), {"isinstance": _is_instance, "type": _Type})


@contextlib.contextmanager
def _replace_functions(
    namespaces: Iterable[dict[str, object]], functions: Mapping[str, Any]
) -> Iterator[None]:
    """Replace functions of Python in modules that define no such name, and only call those of `_CALLS`."""
    changed: list[tuple[dict[str, object], str]] = []
    for space in namespaces:
        names = [name for name in functions if name not in space]
        for name in [name for name in names if name not in _CALLS or _only_calls(space, name)]:
            space[name] = functions[name]
            changed.append((space, name))
    try:
        yield
    finally:
        for space, name in changed:
            space.pop(name, None)


@contextlib.contextmanager
def _replace_roots(namespaces: Iterable[dict[str, object]]) -> Iterator[None]:
    """Replace `math`, and the functions of it that modules have imported."""
    originals: list[tuple[dict[str, object], dict[str, object]]] = []
    for space in namespaces:
        roots = {name: _ROOTS[id(item)] for name, item in space.items() if id(item) in _ROOTS}
        originals.append((space, {name: space[name] for name in roots}))
        space.update(roots)
    try:
        yield
    finally:
        for space, members in originals:
            space.update(members)


def _only_calls(space: dict[str, Any], name: str) -> bool:
    """Whether a module calls a function, and uses it in nothing but calls, `isinstance` and annotations.

    Args:
        space: its globals.
        name: `int`, `float`, `list` or `type`.
    """
    module = sys.modules.get(space.get("__name__", ""))
    is_module = module is not None and is_instance(module, types.ModuleType)
    if module is None or not is_module or module_attributes(module) is not space:
        return only_calls(_codes(space), name)
    if module not in _modules[name]:
        try:
            source = inspect.getsource(module)
            is_called = re.search(_CALLS[name], source) is not None
            _modules[name][module] = is_called and _is_only_called(ast.parse(source), name)
        except (OSError, TypeError, SyntaxError, ValueError):
            # A console changes its module, so the answer is not cached.
            return only_calls(_codes(space), name)
    return _modules[name][module]


def _codes(space: dict[str, Any]) -> Iterator[types.CodeType]:
    """The code of the functions of a module, by its globals."""
    name = space.get("__name__", "builtins")
    pending = list(space.values())
    visited: set[int] = set()
    while pending:
        item = pending.pop()
        if id(item) in visited:
            continue
        visited.add(id(item))
        if is_instance(item, types.FunctionType):
            if item.__globals__ is space:
                yield item.__code__
            pending += [*vars(item).values(), *_contents(item)]
        elif is_instance(item, type) and defining_module(item) == name:
            pending += class_attributes(item).values()
        elif is_instance(item, (staticmethod, classmethod)):
            pending.append(item.__func__)
        elif is_instance(item, property):
            pending += [item.fget, item.fset, item.fdel]
        elif is_instance(item, (functools.partial, functools.cached_property)):
            pending.append(item.func)


def _contents(function: types.FunctionType) -> Iterator[Any]:
    """The functions in a function's closure."""
    for cell in function.__closure__ or ():
        with contextlib.suppress(ValueError):
            if is_instance(cell.cell_contents, types.FunctionType):
                yield cell.cell_contents


def _is_only_called(tree: ast.Module, function: str) -> bool:
    # The code outside functions has run when the module was imported.
    functions = [node for node in ast.walk(tree) if isinstance(node, _FUNCTIONS)]
    bodies = [
        part for node in functions for part in (node.body if isinstance(node.body, list) else [node.body])
    ]
    allowed: set[ast.AST] = set()
    used: list[ast.AST] = []
    for node in (inner for part in bodies for inner in ast.walk(part)):
        if isinstance(node, ast.Name):
            if node.id == function:
                used.append(node)
        elif isinstance(node, ast.Call):
            name = getattr(node.func, "id", "")
            if name == function and len(node.args) == 1 and not node.keywords:
                allowed.add(node.func)
            elif name == "isinstance":
                allowed.update(inner for argument in node.args[1:] for inner in ast.walk(argument))
        elif isinstance(node, ast.arg | ast.AnnAssign):
            allowed.update(ast.walk(node.annotation) if node.annotation is not None else ())
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            allowed.update(ast.walk(node.returns) if node.returns is not None else ())
    return allowed.issuperset(used)


def _namespaces(model: torch.nn.Module) -> list[dict[str, object]]:
    """The globals of the user's modules that define the classes of a model, or its function."""
    model_classes = {id(model_class): model_class for model_class in map(type, modules_of(model))}
    names = {
        defining_module(base) for model_class in model_classes.values() for base in bases_of(model_class)
    }
    modules = [sys.modules[name] for name in sorted(names) if name in sys.modules]
    namespaces = [module_attributes(module) for module in modules if is_instance(module, types.ModuleType)]
    # The module of a class that a console or `exec` defines may not be the one of its name.
    functions: list[Any] = [
        class_attributes(base).get("forward")
        for model_class in model_classes.values()
        for base in bases_of(model_class)
    ]
    functions.append(vars(model).get("forward", model.forward))
    unwrapped = [
        inspect.unwrap(function) for function in functions if is_instance(function, types.FunctionType)
    ]
    namespaces += [function.__globals__ for function in unwrapped if isinstance(function, types.FunctionType)]
    unique = {id(space): space for space in namespaces if _is_of_model(space.get("__name__", ""))}
    return list(unique.values())


def _runs_model(frame: types.FrameType) -> bool:
    """Whether a frame runs code of the model; that of torch.fx has no module, like code of `exec`."""
    name = frame.f_globals.get("__name__", "")
    return _is_of_model(name) and not (name == "" and frame.f_code.co_filename.startswith("<eval_with_key"))


def _is_of_model(name: str) -> bool:
    package = name.partition(".")[0]
    is_ours = name.startswith(_OURS)
    return not is_ours and package not in ("torch", "builtins") and package not in sys.stdlib_module_names
