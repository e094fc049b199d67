"""The registry: finds the symbolic function for an operator at an opset.

Opset 9 is the base: a function applies from its opset up to the next one registered. Below opset 9, the
function with the lowest opset at or above the target applies (8, then 9).
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import importlib.metadata
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from ..construction.implied_arguments import Accepts, ImpliedArgument
from ..errors import RegistrationError, UsageError
from ..opsets import BASE_OPSET, MAXIMUM_OPSET, MINIMUM_OPSET
from .dispatch import SymbolicFunction
from .operand_shapes import OperandShape, parse_table

_NAME = re.compile(r"[A-Za-z_][\w.\-]*::[A-Za-z_]\w*(\.\w+)?")
_INPLACE = re.compile(r"(aten|quantized)::\w*[a-z0-9A-Z]_(\.\w+)?")

Function = TypeVar("Function", bound=Callable[..., Any])
_Versions = dict[int, SymbolicFunction]
_SelectVersion = Callable[[_Versions, int], SymbolicFunction | None]


@functools.lru_cache(maxsize=4096)
def split_name(name: str) -> tuple[str, str]:
    """Split a qualified name and its overload, "" if it has none; namespaces may contain dots."""
    namespace, _, operator = name.partition("::")
    operator, _, overload = operator.partition(".")
    return f"{namespace}::{operator}", overload


def _check_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise RegistrationError(
            f"'{name}' is not an operator name of the form namespace::operator[.overload]"
        )
    if _INPLACE.fullmatch(name):
        # `add_` is named `add`, and `index_put_.hacked_twin` `index_put.hacked_twin`.
        functional = re.sub(r"_(?=\.|$)", "", name)
        raise RegistrationError(
            f"'{name}' is an in-place operator, which becomes functional before lowering: register "
            f"'{functional}' instead"
        )


def _check_opset(name: str, opset: int, lowest: int = MINIMUM_OPSET) -> None:
    # True is an int in Python, but no opset.
    if isinstance(opset, bool) or not isinstance(opset, int) or not lowest <= opset <= MAXIMUM_OPSET:
        raise RegistrationError(
            f"'{name}' cannot be registered at opset {opset!r}: opsets are integers from {lowest} to "
            f"{MAXIMUM_OPSET}"
        )


def _nearest_version(versions: _Versions, opset: int) -> SymbolicFunction | None:
    # Below the base opset a function serves the opsets up to its own.
    if opset < BASE_OPSET:
        near = [version for version in versions if opset <= version <= BASE_OPSET]
        return versions[min(near)] if near else None
    reached = [version for version in versions if BASE_OPSET <= version <= opset]
    return versions[max(reached)] if reached else None


def _nearest_custom_version(versions: _Versions, opset: int) -> SymbolicFunction | None:
    # torch.onnx's functions may be registered below the base opset, and then serve the opsets above them,
    # too.
    above = [version for version in versions if opset <= version <= BASE_OPSET]
    if opset < BASE_OPSET and above:
        return versions[min(above)]
    reached = [version for version in versions if version <= opset]
    return versions[max(reached)] if reached else None


def _find(
    table: dict[str, _Versions], keys: Sequence[str], opset: int, select: _SelectVersion
) -> SymbolicFunction | None:
    for key in keys:
        versions = table.get(key)
        symbolic = select(versions, opset) if versions else None
        if symbolic is not None:
            return symbolic
    return None


@dataclasses.dataclass(frozen=True, slots=True)
class Rung:
    """The function that composes an operator's newest meaning at opsets whose version means something else.

    Attributes:
        any_data: whether only arbitrary data needs the function, as in converted files. Symbolic functions
            emit the operator only with data that the target's version takes.
    """

    symbolic: SymbolicFunction
    any_data: bool


class Registry:
    """Symbolic functions by operator name and opset.

    A fork is an overlay: its functions take precedence over its parent's, and the parent never changes.
    """

    def __init__(self, parent: Registry | None = None):
        self._parent = parent
        self._functions: dict[str, _Versions] = {}
        self._first: dict[str, _Versions] = {}
        self._implied: dict[tuple[str, str], ImpliedArgument] = {}
        self._rungs: dict[str, dict[int, Rung]] = {}
        self._operands: dict[str, list[OperandShape]] = {}
        self._deferred: dict[str, str] = {}

    def fork(self) -> Registry:
        """A private overlay over this registry."""
        return Registry(self)

    def defer(self, namespace: str, package: str) -> None:
        """Have the functions of a namespace imported, from a package, when one of its operators is named.

        A table of operator shapes in the package is imported with them.
        """
        self._deferred[namespace] = package

    def _import_functions(self, name: str) -> None:
        package = self._deferred.get(name.partition("::")[0])
        if package is not None:
            # Once imported, the package is only looked up. Another thread waits until the import has ended.
            importlib.import_module(package)

    def register(
        self, name: str, opset: int, function: Callable[..., object], *, override: bool = False
    ) -> None:
        """Register a function for an operator from an opset on.

        Args:
            name: qualified name, `aten::topk`, or with an overload, `aten::add.Tensor`, which takes
                precedence.
            opset: the first opset that the function serves.
            override: replace an existing function of this registry at this name and opset.

        Raises:
            RegistrationError: the name is malformed or that of an in-place operator, or the opset is out of
                range or already registered.
        """
        _check_name(name)
        _check_opset(name, opset)
        self._import_functions(name)
        versions = self._functions.setdefault(name, {})
        if opset in versions and not override:
            existing = versions[opset].function
            raise RegistrationError(
                f"{name} at opset {opset} is already registered "
                f"({existing.__module__}.{existing.__qualname__}); pass override=True to replace it"
            )
        versions[opset] = SymbolicFunction(name, opset, function)

    def put_first(self, symbolic: SymbolicFunction) -> None:
        """Give a function precedence over all registered ones, from its opset on.

        It replaces an earlier `put_first` of the same name and opset. The opset may be any from 1 on.

        Raises:
            RegistrationError: the name is malformed or that of an in-place operator, or the opset is out of
                range.
        """
        _check_name(symbolic.name)
        _check_opset(symbolic.name, symbolic.opset, 1)
        self._first.setdefault(symbolic.name, {})[symbolic.opset] = symbolic

    def first(self, name: str, opset: int) -> SymbolicFunction | None:
        """The function of `put_first` at exactly this name and opset, or None."""
        return self._first.get(name, {}).get(opset)

    def remove_first(self, name: str, opset: int) -> bool:
        """Undo `put_first` for a name and opset; return whether there was a function."""
        return self._first.get(name, {}).pop(opset, None) is not None

    def stand_in(
        self, op_type: str, below: int, function: Callable[..., object], *, any_data: bool = False
    ) -> None:
        """Register the function that composes an ONNX operator's newest meaning below an opset.

        The function takes the arguments of the newest version by name. If it emits the operator itself, the
        target's own version is emitted.

        Args:
            any_data: see `Rung`.
        """
        symbolic = SymbolicFunction(f"onnx::{op_type}", MINIMUM_OPSET, function)
        self._rungs.setdefault(op_type, {})[below] = Rung(symbolic, any_data)

    def rung(self, op_type: str, opset: int) -> Rung | None:
        """Return the function that composes an ONNX operator's newest meaning at an opset, or None."""
        rungs = self._rungs.get(op_type)
        if rungs:
            # Of several changes of meaning after this opset, the next one defines what the target's version
            # means.
            above = [below for below in rungs if below > opset]
            if above:
                return rungs[min(above)]
        return self._parent.rung(op_type, opset) if self._parent is not None else None

    def imply(
        self, op_type: str, argument: str, value: object = None, *, accepts: Accepts | None = None
    ) -> None:
        """Declare the value that versions of an ONNX operator imply for an argument that they lack.

        Only needed if it differs from the default of the nearest version with the argument.

        Args:
            value: the equivalent value in versions with the argument; None for the argument's default.
            accepts: whether a value is equivalent; by default only `value` is.
        """
        self._implied[op_type, argument] = ImpliedArgument(value, accepts)

    def implied_argument(self, op_type: str, argument: str) -> ImpliedArgument | None:
        """The declaration of `imply` for an argument, or None."""
        declaration = self._implied.get((op_type, argument))
        return (
            declaration
            if declaration is not None or self._parent is None
            else self._parent.implied_argument(op_type, argument)
        )

    def implied_values(self, op_type: str) -> dict[str, Any]:
        """Return the declared implied values of an operator's arguments, by argument."""
        # A declaration here replaces that of the parent: a fork may state another value.
        inherited = self._parent.implied_values(op_type) if self._parent is not None else {}
        declared = {
            name: declaration.value for (op, name), declaration in self._implied.items() if op == op_type
        }
        return {name: value for name, value in (inherited | declared).items() if value is not None}

    def state_operand_shapes(self, domain: str, table: str) -> None:
        """State the shapes that the operators of a domain demand of their operands; see `operand_shapes`."""
        self._operands.update(
            {f"{domain}::{name}": operands for name, operands in parse_table(table).items()}
        )

    def operands(self, name: str) -> Sequence[OperandShape]:
        """The operands of a source operator with the shapes that they must have, where they are stated."""
        self._import_functions(name)
        operands = self._operands.get(name, ())
        return operands if operands or self._parent is None else self._parent.operands(name)

    def lookup(self, name: str, overload: str, opset: int, *, custom: bool = True) -> SymbolicFunction | None:
        """Return the function for an operator at an opset; a function for the overload takes precedence.

        Args:
            custom: whether to include functions of `put_first`.
        """
        self._import_functions(name)
        # A function under the plain name serves every overload that has none of its own.
        keys = (f"{name}.{overload}", name) if overload else (name,)
        symbolic = (
            _find(self._first, keys, opset, _nearest_custom_version) if custom and self._first else None
        )
        if symbolic is None:
            symbolic = _find(self._functions, keys, opset, _nearest_version)
        if symbolic is None and self._parent is not None:
            # Any function of the fork comes first, even if the parent has one for a nearer opset.
            return self._parent.lookup(name, overload, opset, custom=custom)
        return symbolic

    def first_opset(self, name: str, overload: str = "") -> int | None:
        """The lowest opset at which the operator has a function, or None."""
        return next(
            (
                o
                for o in range(MINIMUM_OPSET, MAXIMUM_OPSET + 1)
                if self.lookup(name, overload, o) is not None
            ),
            None,
        )

    def first_opset_where(
        self, name: str, after: int, accepts: Callable[[SymbolicFunction], bool]
    ) -> int | None:
        """The lowest opset above `after` whose function satisfies a condition, or None."""
        qualified, overload = split_name(name)
        # Functions of later opsets may take arguments that this one refuses, so each opset is asked.
        for opset in range(after + 1, MAXIMUM_OPSET + 1):
            symbolic = self.lookup(qualified, overload, opset)
            if symbolic is not None and accepts(symbolic):
                return opset
        return None

    def names(self, prefix: str = "") -> list[str]:
        """Every registered name that begins with a text, sorted; names with an overload among them."""
        for namespace in list(self._deferred):
            if f"{namespace}::".startswith(prefix[: len(namespace) + 2]):
                self._import_functions(namespace)
        inherited = self._parent.names(prefix) if self._parent is not None else []
        custom_names = (name for name, versions in self._first.items() if versions)
        names = {*self._functions, *custom_names, *inherited}
        return sorted(name for name in names if name.startswith(prefix))

    def versions(self, name: str) -> dict[int, SymbolicFunction]:
        """The functions registered under exactly this name, by opset."""
        self._import_functions(name)
        inherited = self._parent.versions(name) if self._parent is not None else {}
        return dict(
            sorted({**inherited, **self._functions.get(name, {}), **self._first.get(name, {})}.items())
        )

    def __iter__(self) -> Iterator[SymbolicFunction]:
        for name in self.names():
            yield from self.versions(name).values()


default_registry = Registry()
"""The registry that exports use by default. Importing `symbolics` fills it, which `opsetta.default_registry`
and `opsetta.onnx_symbolic` do."""


def onnx_symbolic(
    name: str | Sequence[str],
    opset: int = BASE_OPSET,
    *,
    registry: Registry | None = None,
    override: bool = False,
) -> Callable[[Function], Function]:
    """Register the decorated function as the symbolic function of an operator.

    Args:
        name: qualified operator name, `aten::topk` or `mylib::op`, optionally with `.overload`; or several
            names of the same meaning.
        opset: the first opset that it serves; later opsets inherit it.
        registry: the registry to change; by default the default registry.
        override: replace a function that is registered at the same name and opset.

    Raises:
        RegistrationError: see `Registry.register`.
    """

    def register(function: Function) -> Function:
        target = registry if registry is not None else default_registry
        for qualified_name in [name] if isinstance(name, str) else name:
            target.register(qualified_name, opset, function, override=override)
        return function

    return register


def registry_or_default(registry: Registry | None) -> Registry:
    """Return the caller's registry, or the default one.

    Raises:
        UsageError: it is not a registry.
    """
    if registry is None:
        return default_registry
    if not isinstance(registry, Registry):
        raise UsageError(
            "registry must be an opsetta.Registry, such as opsetta.default_registry.fork(), not "
            f"{type(registry).__name__}"
        )
    return registry


_loaded: set[str] = set()
"""The entry points that were imported."""


@functools.lru_cache(maxsize=1)
def _entry_points(find: Callable[..., Any], path: tuple[str, ...]) -> list[Any]:
    """Find the entry points of the packages on a path, which reads the metadata of all packages."""
    return list(find(group="opsetta.symbolics"))


def load_entry_points() -> None:
    """Import the entry points `opsetta.symbolics` of installed packages, once."""
    for entry in _entry_points(importlib.metadata.entry_points, tuple(sys.path)):
        # A function can be registered once only, but this runs whenever entry points are asked for.
        if entry.value not in _loaded:
            _loaded.add(entry.value)
            try:
                entry.load()
            # Importing a package runs its code, which may raise anything.
            except Exception as error:
                raise RegistrationError(
                    f"entry point '{entry.name}' ({entry.value}) of group opsetta.symbolics failed: {error}"
                ) from error
