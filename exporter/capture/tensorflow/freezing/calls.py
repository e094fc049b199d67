"""Freezes called functions: specializes each for the variables and flags of a call.

An argument that is the handle of a variable becomes an argument with its value.
"""

import dataclasses
from collections.abc import Iterable, Sequence

from .....registration import CaptureError, ModelFileError, Names
from ....files.reading.names import quoted
from ..messages import ArgDef, FunctionDef, NodeDef, message_type
from ..node_messages import CALLS, MessageNode, MessageScope, ResultName, argument_names, parse_result_name
from .bodies import freeze_scope
from .handles import plan_handles, set_types
from .plans import NodePlan, copy_without_inputs, make_node
from .ranges import ElementRange
from .scope_analysis import RESOURCE, ScopeAnalysis, VariableReference, analyze_scope

_BRANCHES = {"If": ("then_branch", "else_branch"), "StatelessIf": ("then_branch", "else_branch")}
_CASES = frozenset({"Case", "StatelessCase"})
_LOOPS = frozenset({"While", "StatelessWhile"})
_MAXIMUM_CALL_DEPTH = 60
_MAXIMUM_VERSIONS = 10_000
_MAXIMUM_NODES = 1_000_000

Flags = tuple[ElementRange | None, ...]
Dtypes = tuple[int | None, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Version:
    """A specialized function, and which arguments of the original its results depend on.

    For each result, `result_variables` has the variable whose handle or reference it is; None for a value.
    """

    name: str
    used_arguments: tuple[bool, ...]
    result_variables: tuple[VariableReference | None, ...]


class Functions:
    """The functions of a graph; `definitions` has those that are specialized, in the order of their calls."""

    def __init__(self, library: Iterable[FunctionDef], keep_tables: bool = False):
        self._keep_tables = keep_tables
        self.definitions: list[FunctionDef] = []
        self._functions = {function.signature.name: function for function in library}
        self._versions: dict[tuple[str, Dtypes, Flags, bool], Version | None] = {}
        self._written_arguments: dict[str, tuple[int, ...] | None] = {}
        self._names = Names()
        self._depth = self._nodes = 0

    def callees(self, node: MessageNode) -> list[tuple[str, int]]:
        """The functions that a node may call, and the index of the first argument of each."""
        if node.op in self._functions:
            return [(node.op, 0)]
        if node.op in CALLS:
            return [(node.attribute("f").func.name, 0)]
        if node.op in _LOOPS:
            return [(node.attribute(name).func.name, 0) for name in ("cond", "body")]
        if node.op in _CASES:
            return [(branch.name, 1) for branch in node.attribute("branches").list.func]
        return [(node.attribute(name).func.name, 1) for name in _BRANCHES.get(node.op, ())]

    def written_inputs(self, node: MessageNode) -> Sequence[int]:
        """The indices of a node's inputs whose variables the called functions write."""
        return [
            index + first
            for name, first in self.callees(node)
            for index in self._find_written_arguments(name)
        ]

    def _find_written_arguments(self, name: str) -> tuple[int, ...]:
        """The indices of a function's arguments whose variables it writes."""
        function = self._functions.get(name)
        if function is None:
            return ()
        if name not in self._written_arguments:
            # None stays there during the analysis, so that a recursive call is noticed.
            self._written_arguments[name] = None
            arguments = argument_names(function)
            handles = {i for i, a in enumerate(function.signature.input_arg) if a.type == RESOURCE}
            written_arguments: tuple[int, ...] = ()
            if handles:
                scope = MessageScope.of_function(function)
                variables = {
                    ResultName(arguments[i], ""): VariableReference(0, arguments[i], True) for i in handles
                }
                with _CallDepth(self, name):
                    written_variables = analyze_scope(
                        scope, scope.order(scope.nodes), variables, {}, self.written_inputs
                    ).written_variables
                written_arguments = tuple(i for i in handles if arguments[i] in written_variables)
            self._written_arguments[name] = written_arguments
        written = self._written_arguments[name]
        if written is None:
            raise CaptureError(f"the function {quoted(name)} calls itself, which is not supported")
        return written

    def plan(self, node: MessageNode, analysis: ScopeAnalysis, names: Names) -> NodePlan | None:
        """The plan of a node that takes handles or calls functions; None for others."""
        if not self.callees(node):
            return plan_handles(node, analysis, names)
        dtypes = tuple(
            variable.dtype
            if (variable := analysis.variables.get(result)) is not None and variable.is_handle
            else None
            for result in node.inputs
        )
        flags = tuple(_reduce_to_flag(analysis.range_of(result)) for result in node.inputs)
        if node.op in _LOOPS:
            return self._plan_loop(node, dtypes)
        branch = self._constant_branch(node, flags)
        if branch is not None or node.op in CALLS or node.op in self._functions:
            return self._plan_call(node, branch, dtypes, flags)
        return self._plan_branches(node, dtypes)

    def _constant_branch(self, node: MessageNode, flags: Flags) -> str | None:
        """The function that a node with branches calls, if the condition is constant."""
        if node.op not in _CASES and node.op not in _BRANCHES:
            return None
        predicate = flags[0].point if flags and flags[0] is not None else None
        branches = [name for name, _ in self.callees(node)]
        if predicate is None or not branches:
            return None
        if node.op in _BRANCHES:
            return branches[0 if predicate else 1]
        # An index out of range selects the last branch.
        return branches[int(predicate) if 0 <= predicate < len(branches) else -1]

    def _plan_call(self, node: MessageNode, branch: str | None, dtypes: Dtypes, flags: Flags) -> NodePlan:
        """Plan the call of one function, with only the arguments that its results depend on."""
        name, first = (branch, 1) if branch is not None else self.callees(node)[0]
        # A node may have the function's name as its operator. Then no attribute lists the types of its
        # arguments, so all of them must stay.
        by_name = branch is None and node.op in self._functions
        version = self._specialize(name, dtypes[first:], flags[first:], prune=not by_name)
        message = copy_without_inputs(node)
        if by_name:
            message.op = version.name
            return NodePlan(message, list(node.inputs))
        inputs = [
            r for r, is_used in zip(node.inputs[first:], version.used_arguments, strict=True) if is_used
        ]
        if branch is not None:
            stateful = not node.op.startswith("Stateless")
            message = make_node(node.name, "StatefulPartitionedCall" if stateful else "PartitionedCall")
            message.device = node.message.device
            message.attr["Tin"].CopyFrom(node.attribute("Tin"))
            message.attr["Tout"].CopyFrom(node.attribute("Tout"))
        types = list(message.attr["Tin"].list.type)
        if len(types) != len(version.used_arguments):
            raise ModelFileError(
                f"{node.label} has {len(types)} types, but {len(version.used_arguments)} arguments"
            )
        rows = zip(types, dtypes[first:], version.used_arguments, strict=True)
        message.attr["Tin"].list.type[:] = [dtype or declared for declared, dtype, is_used in rows if is_used]
        # The attribute that names the function also binds the attributes of a generic function.
        attributes = [node.attribute(a) for a in ("f", "then_branch", "else_branch", "branches")]
        functions = [f for a in attributes for f in (a.func, *a.list.func) if f.name == name]
        if functions:
            message.attr["f"].func.CopyFrom(functions[0])
        message.attr["f"].func.name = version.name
        _set_result_types(message, version)
        return NodePlan(message, inputs)

    def _plan_branches(self, node: MessageNode, dtypes: Dtypes) -> NodePlan:
        """Plan a node with branches, each of which takes all arguments."""
        message = copy_without_inputs(node)
        handle_dtypes = dtypes[1:]
        versions = [
            self._specialize(name, handle_dtypes, (None,) * len(handle_dtypes), prune=False)
            for name, _ in self.callees(node)
        ]
        if node.op in _CASES:
            functions = message.attr["branches"].list.func
        else:
            functions = [message.attr[name].func for name in _BRANCHES[node.op]]
        for function, version in zip(functions, versions, strict=True):
            function.name = version.name
        set_types(message, "Tin", handle_dtypes)
        _set_result_types(message, versions[0])
        return NodePlan(message, list(node.inputs))

    def _plan_loop(self, node: MessageNode, dtypes: Dtypes) -> NodePlan:
        message = copy_without_inputs(node)
        # A flag may change from one iteration to the next.
        no_flags = (None,) * len(dtypes)
        cond, body = (self._specialize(name, dtypes, no_flags, prune=False) for name, _ in self.callees(node))
        arguments = argument_names(self._find_function(self.callees(node)[1][0]))
        for index, dtype in enumerate(dtypes):
            if dtype is None:
                continue
            returned_variable = body.result_variables[index] if index < len(body.result_variables) else None
            # The constant that replaces a handle is the same in all iterations.
            if returned_variable is None or returned_variable.origin != arguments[index]:
                raise CaptureError(
                    f"{node.label} exchanges variables between iterations, which is not supported"
                )
            if index in self.written_inputs(node) and (
                cond.used_arguments[index] or body.used_arguments[index]
            ):
                raise CaptureError(f"{node.label} reads a variable that it changes, so it is not a constant")
        message.attr["cond"].func.name, message.attr["body"].func.name = cond.name, body.name
        set_types(message, "T", list(dtypes))
        return NodePlan(message, list(node.inputs))

    def _find_function(self, name: str) -> FunctionDef:
        if name not in self._functions:
            raise ModelFileError(f"the function {quoted(name)} is called, but is not in the library")
        return self._functions[name]

    def _specialize(self, name: str, dtypes: Dtypes, flags: Flags, *, prune: bool) -> Version:
        """Specialize a function for handles of these element types and for known flags."""
        key = name, dtypes, flags, prune
        if key not in self._versions:
            if len(self._versions) >= _MAXIMUM_VERSIONS:
                raise ModelFileError(
                    f"functions are called with more than {_MAXIMUM_VERSIONS} combinations of arguments"
                )
            # None stays there until the version exists, so that a recursive call is noticed.
            self._versions[key] = None
            with _CallDepth(self, name):
                self._versions[key] = self._make_version(name, dtypes, flags, prune)
        version = self._versions[key]
        if version is None:
            raise CaptureError(f"the function {quoted(name)} calls itself, which is not supported")
        return version

    def _make_version(self, name: str, dtypes: Dtypes, flags: Flags, prune: bool) -> Version:
        function = self._find_function(name)
        arguments = argument_names(function)
        if len(arguments) != len(dtypes):
            raise ModelFileError(f"the function {quoted(name)} is called with {len(dtypes)} arguments")
        variables = {
            ResultName(argument, ""): VariableReference(dtype, argument, True)
            for argument, dtype in zip(arguments, dtypes, strict=True)
            if dtype is not None
        }
        ranges = {a: flag for a, flag in zip(arguments, flags, strict=True) if flag is not None}
        results = []
        for output in function.signature.output_arg:
            if output.name not in function.ret:
                raise ModelFileError(f"the function {quoted(name)} has no result {quoted(output.name)}")
            results.append(parse_result_name(function.ret[output.name], in_function=True))
        frozen = freeze_scope(
            MessageScope.of_function(function),
            results,
            variables=variables,
            ranges=ranges,
            written_inputs=self.written_inputs,
            plan_call=self.plan,
            keep_tables=self._keep_tables,
        )
        self._nodes += len(frozen.nodes)
        if self._nodes > _MAXIMUM_NODES:
            raise ModelFileError(f"the functions of the graph have more than {_MAXIMUM_NODES} nodes")
        used = tuple(argument in frozen.arguments for argument in arguments)
        version = Version(self._names.unique(name), used, tuple(frozen.result_variables))
        message = message_type("FunctionDef")()
        message.signature.CopyFrom(function.signature)
        message.signature.name = version.name
        del message.signature.control_output[:], message.signature.input_arg[:]
        for argument, dtype, is_used in zip(function.signature.input_arg, dtypes, used, strict=True):
            if is_used or not prune:
                input_argument = message.signature.input_arg.add()
                input_argument.CopyFrom(argument)
                if dtype is not None:
                    _set_type(input_argument, dtype)
        for output, result, variable in zip(
            message.signature.output_arg, frozen.results, frozen.result_variables, strict=True
        ):
            message.ret[output.name] = str(result)
            if variable is not None and variable.is_handle:
                _set_type(output, variable.dtype)
        for attribute, value in function.attr.items():
            message.attr[attribute].CopyFrom(value)
        message.node_def.extend(frozen.nodes)
        self.definitions.append(message)
        return version


class _CallDepth:
    """Counts one more level of nested calls while it is entered, and refuses too many."""

    def __init__(self, functions: Functions, name: str):
        self._functions, self._name = functions, name

    def __enter__(self) -> None:
        self._functions._depth += 1
        if self._functions._depth > _MAXIMUM_CALL_DEPTH:
            raise CaptureError(
                f"functions are nested more than {_MAXIMUM_CALL_DEPTH} deep, at {quoted(self._name)}"
            )

    def __exit__(self, *exception: object) -> None:
        self._functions._depth -= 1


def _set_result_types(message: NodeDef, version: Version) -> None:
    dtypes = [None if variable is None else variable.dtype for variable in version.result_variables]
    set_types(message, "Tout", dtypes)


def _set_type(argument: ArgDef, dtype: int) -> None:
    argument.type = dtype
    # Both fields describe the handle that the argument no longer is.
    argument.ClearField("handle_data")
    argument.ClearField("experimental_full_type")


def _reduce_to_flag(element_range: ElementRange | None) -> ElementRange | None:
    """Keep the range of a scalar 0 or 1, such as a training flag: calls are specialized for flags only."""
    if element_range is None or not element_range.is_scalar:
        return None
    return element_range if element_range.point in (0.0, 1.0) else None
