"""Freezes called functions: specializes each for the variables and flags of a call.

An argument that is the handle of a variable becomes an argument with its value.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

from .....registration import CaptureError, ModelFileError, Names
from ....files.reading.names import quoted
from ..messages import message_type
from .bodies import freeze_scope
from .conditions import Carried, Conditions, analyze
from .handles import plan_of_handles, set_types
from .plans import Plan, make_node, without_inputs
from .ranges import Range
from .scope import Node, Reference, Scope, reference

_BRANCHES = {"If": ("then_branch", "else_branch"), "StatelessIf": ("then_branch", "else_branch")}
_CASES = frozenset({"Case", "StatelessCase"})
_LOOPS = frozenset({"While", "StatelessWhile"})
_CALLS = frozenset({"PartitionedCall", "StatefulPartitionedCall"})
_RESOURCE = 20
_DEEPEST = 60
_MOST_VERSIONS = 10_000
_MOST_NODES = 1_000_000

Known = tuple[Range | None, ...]
Dtypes = tuple[int | None, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Version:
    """A specialized function.

    Attributes:
        name: its name.
        used: for each argument of the function, whether the version's results depend on it.
        results: the origin of each result that is a handle: an argument.
    """

    name: str
    used: tuple[bool, ...]
    results: tuple[Carried | None, ...]


class Functions:
    """The functions of a graph.

    Attributes:
        made: the FunctionDefs of the versions, in the order in which they were needed.

    Args:
        library: the FunctionDefs.
    """

    def __init__(self, library: Iterable[Any]):
        self.made: list[Any] = []
        self._functions = {function.signature.name: function for function in library}
        self._versions: dict[tuple[str, Dtypes, Known, bool], Version | None] = {}
        self._written: dict[str, tuple[int, ...] | None] = {}
        self._names = Names()
        self._depth = self._nodes = 0

    def called(self, node: Node) -> list[tuple[str, int]]:
        """The functions that a node may call, and the index of the first argument of each."""
        if node.op in self._functions:
            return [(node.op, 0)]
        if node.op in _CALLS:
            return [(node.attribute("f").func.name, 0)]
        if node.op in _LOOPS:
            return [(node.attribute(name).func.name, 0) for name in ("cond", "body")]
        if node.op in _CASES:
            return [(branch.name, 1) for branch in node.attribute("branches").list.func]
        return [(node.attribute(name).func.name, 1) for name in _BRANCHES.get(node.op, ())]

    def written(self, node: Node) -> Sequence[int]:
        """The inputs of a node whose variables are written by the called functions."""
        return [index + first for name, first in self.called(node) for index in self._written_by(name)]

    def _written_by(self, name: str) -> tuple[int, ...]:
        """The arguments of a function whose variables it writes."""
        function = self._functions.get(name)
        if function is None:
            return ()
        if name not in self._written:
            self._written[name] = None
            arguments = [argument.name for argument in function.signature.input_arg]
            handles = {i for i, a in enumerate(function.signature.input_arg) if a.type == _RESOURCE}
            found: tuple[int, ...] = ()
            if handles:
                scope = self._scope(name)
                carried = {Reference(arguments[i], ""): Carried(0, arguments[i], True) for i in handles}
                with _Deeper(self, name):
                    changed = analyze(scope, scope.order(scope.nodes), carried, {}, self.written).written
                found = tuple(i for i in handles if arguments[i] in changed)
            self._written[name] = found
        known = self._written[name]
        if known is None:
            raise CaptureError(f"the function {quoted(name)} calls itself, which is not supported")
        return known

    def plan(self, node: Node, found: Conditions, names: Names) -> Plan | None:
        """The plan of a node that takes handles or calls functions; None for others.

        Raises:
            CaptureError: it cannot be frozen.
        """
        if not self.called(node):
            return plan_of_handles(node, found, names)
        dtypes = tuple(
            carried.dtype
            if (carried := found.carried.get(result)) is not None and carried.is_handle
            else None
            for result in node.inputs
        )
        known = tuple(_flag(found.range_of(result)) for result in node.inputs)
        if node.op in _LOOPS:
            return self._loop(node, dtypes)
        chosen = self._chosen(node, known)
        if chosen is not None or node.op in _CALLS or node.op in self._functions:
            return self._direct(node, chosen, dtypes, known)
        return self._branches(node, dtypes)

    def _chosen(self, node: Node, known: Known) -> str | None:
        """The function that a node with branches calls, if the condition is constant."""
        if node.op not in _CASES and node.op not in _BRANCHES:
            return None
        point = known[0].point if known and known[0] is not None else None
        branches = [name for name, _ in self.called(node)]
        if point is None or not branches:
            return None
        if node.op in _BRANCHES:
            return branches[0 if point else 1]
        return branches[int(point) if 0 <= point < len(branches) else -1]

    def _direct(self, node: Node, chosen: str | None, dtypes: Dtypes, known: Known) -> Plan:
        """Plan a call of one function, with the arguments that its results depend on."""
        name, first = (chosen, 1) if chosen is not None else self.called(node)[0]
        by_name = chosen is None and node.op in self._functions
        version = self._version(name, dtypes[first:], known[first:], prune=not by_name)
        message = without_inputs(node)
        if by_name:
            message.op = version.name
            return Plan(message, list(node.inputs))
        inputs = [r for r, used in zip(node.inputs[first:], version.used, strict=True) if used]
        if chosen is not None:
            stateful = not node.op.startswith("Stateless")
            message = make_node(node.name, "StatefulPartitionedCall" if stateful else "PartitionedCall")
            message.device = node.message.device
            message.attr["Tin"].CopyFrom(node.attribute("Tin"))
            message.attr["Tout"].CopyFrom(node.attribute("Tout"))
        types = list(message.attr["Tin"].list.type)
        if len(types) != len(version.used):
            raise ModelFileError(f"{node.shown} has {len(types)} types, but {len(version.used)} arguments")
        kept = [
            dtype or own for own, dtype, used in zip(types, dtypes[first:], version.used, strict=True) if used
        ]
        message.attr["Tin"].list.type[:] = kept
        message.attr["f"].func.CopyFrom(self._attribute_of(node, name))
        message.attr["f"].func.name = version.name
        self._set_results(message, "Tout", version)
        return Plan(message, inputs)

    def _attribute_of(self, node: Node, name: str) -> Any:
        """The function attribute of a node that names a function, with the attributes that it binds."""
        attributes = [node.attribute(a) for a in ("f", "then_branch", "else_branch", "branches")]
        functions = [f for a in attributes for f in (a.func, *a.list.func)]
        return next((f for f in functions if f.name == name), message_type("NameAttrList")(name=name))

    def _branches(self, node: Node, dtypes: Dtypes) -> Plan:
        """A node with branches, each of which takes all arguments."""
        message = without_inputs(node)
        held = dtypes[1:]
        versions = [
            self._version(name, held, (None,) * len(held), prune=False) for name, _ in self.called(node)
        ]
        if node.op in _CASES:
            functions = message.attr["branches"].list.func
        else:
            functions = [message.attr[name].func for name in _BRANCHES[node.op]]
        for function, version in zip(functions, versions, strict=True):
            function.name = version.name
        set_types(message, "Tin", held)
        self._set_results(message, "Tout", versions[0])
        return Plan(message, list(node.inputs))

    def _loop(self, node: Node, dtypes: Dtypes) -> Plan:
        message = without_inputs(node)
        none = (None,) * len(dtypes)
        cond, body = (self._version(name, dtypes, none, prune=False) for name, _ in self.called(node))
        arguments = [a.name for a in self._function(self.called(node)[1][0]).signature.input_arg]
        for index, dtype in enumerate(dtypes):
            if dtype is None:
                continue
            passed = body.results[index] if index < len(body.results) else None
            if passed is None or passed.origin != arguments[index]:
                raise CaptureError(
                    f"{node.shown} exchanges variables between iterations, which is not supported"
                )
            if index in self.written(node) and (cond.used[index] or body.used[index]):
                raise CaptureError(f"{node.shown} reads a variable that it changes, so it is not a constant")
        message.attr["cond"].func.name, message.attr["body"].func.name = cond.name, body.name
        set_types(message, "T", list(dtypes))
        return Plan(message, list(node.inputs))

    @staticmethod
    def _set_results(message: Any, attribute: str, version: Version) -> None:
        set_types(message, attribute, [None if held is None else held.dtype for held in version.results])

    def _function(self, name: str) -> Any:
        if name not in self._functions:
            raise ModelFileError(f"the function {quoted(name)} is called, but is not in the library")
        return self._functions[name]

    def _scope(self, name: str) -> Scope:
        function = self._function(name)
        arguments = [argument.name for argument in function.signature.input_arg]
        return Scope(function.node_def, f"the function {quoted(name)}", arguments)

    def _version(self, name: str, dtypes: Dtypes, known: Known, *, prune: bool) -> Version:
        """Specialize a function for handles of these element types and for known flags."""
        key = name, dtypes, known, prune
        if key not in self._versions:
            if len(self._versions) >= _MOST_VERSIONS:
                raise ModelFileError(
                    f"functions are called with more than {_MOST_VERSIONS} combinations of arguments"
                )
            self._versions[key] = None
            with _Deeper(self, name):
                self._versions[key] = self._new_version(name, dtypes, known, prune)
        version = self._versions[key]
        if version is None:
            raise CaptureError(f"the function {quoted(name)} calls itself, which is not supported")
        return version

    def _new_version(self, name: str, dtypes: Dtypes, known: Known, prune: bool) -> Version:
        function = self._function(name)
        arguments = [argument.name for argument in function.signature.input_arg]
        if len(arguments) != len(dtypes):
            raise ModelFileError(f"the function {quoted(name)} is called with {len(dtypes)} arguments")
        carried = {
            Reference(argument, ""): Carried(dtype, argument, True)
            for argument, dtype in zip(arguments, dtypes, strict=True)
            if dtype is not None
        }
        ranges = {a: flag for a, flag in zip(arguments, known, strict=True) if flag is not None}
        wanted = [self._returned(function, output.name) for output in function.signature.output_arg]
        frozen = freeze_scope(
            self._scope(name),
            wanted,
            carried=carried,
            ranges=ranges,
            written=self.written,
            plan_call=self.plan,
        )
        self._nodes += len(frozen.nodes)
        if self._nodes > _MOST_NODES:
            raise ModelFileError(f"the functions of the graph have more than {_MOST_NODES} nodes")
        used = tuple(argument in frozen.arguments for argument in arguments)
        version = Version(self._names.unique(name), used, tuple(frozen.carried))
        message = message_type("FunctionDef")()
        message.signature.CopyFrom(function.signature)
        message.signature.name = version.name
        del message.signature.control_output[:], message.signature.input_arg[:]
        for argument, dtype, is_used in zip(function.signature.input_arg, dtypes, used, strict=True):
            if is_used or not prune:
                added = message.signature.input_arg.add()
                added.CopyFrom(argument)
                if dtype is not None:
                    _set_type(added, dtype)
        for output, result, held in zip(
            message.signature.output_arg, frozen.results, frozen.carried, strict=True
        ):
            message.ret[output.name] = str(result)
            if held is not None and held.is_handle:
                _set_type(output, held.dtype)
        for attribute, value in function.attr.items():
            message.attr[attribute].CopyFrom(value)
        message.node_def.extend(frozen.nodes)
        self.made.append(message)
        return version

    @staticmethod
    def _returned(function: Any, output: str) -> Reference:
        if output not in function.ret:
            raise ModelFileError(
                f"the function {quoted(function.signature.name)} has no result {quoted(output)}"
            )
        return reference(function.ret[output], in_function=True)


class _Deeper:
    """One more level of calls."""

    def __init__(self, functions: Functions, name: str):
        self._functions, self._name = functions, name

    def __enter__(self) -> None:
        self._functions._depth += 1
        if self._functions._depth > _DEEPEST:
            raise CaptureError(f"functions are nested more than {_DEEPEST} deep, at {quoted(self._name)}")

    def __exit__(self, *exception: object) -> None:
        self._functions._depth -= 1


def _set_type(argument: Any, dtype: int) -> None:
    argument.type = dtype
    argument.ClearField("handle_data")
    argument.ClearField("experimental_full_type")


def _flag(known: Range | None) -> Range | None:
    """Reduce a range to a known 0 or 1, such as a training flag, for which calls are specialized."""
    return known if known is not None and known.is_scalar and known.point in (0.0, 1.0) else None
