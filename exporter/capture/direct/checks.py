"""Recognizes checks of values: `assert`, and an `if` with a side that only raises or only warns.

A check does not change what the model computes; it may only raise an exception that nothing catches. A
recording may therefore follow the example there; the program does not contain the check.

The source of the code is analysed; for code without source, as in a console, the bytecode.
"""

from __future__ import annotations

import ast
import functools
import linecache
import sys
import types
from collections.abc import Iterable, Iterator, Sequence

import torch

from .bytecode import catches, check_outcome

_BETWEEN = ("_", "export.", "fx.", "overrides", "utils.")
_OURS = __name__.removesuffix("capture.direct.checks")
_CONVERSIONS = ("__bool__", "__float__", "__index__", "__int__")
"""The methods of torch's symbolic numbers that Python calls for a number."""
_RECORDING = f"{_OURS}capture.direct.recording"
_WITHOUT_EFFECT = frozenset(
    {
        *"abs all any bool float format getattr hasattr int isinstance len list max min repr str sum".split(),
        *(name for name in (*dir(torch.Tensor), *dir(torch)) if not name.endswith("_")),
    }
)
"""Functions and methods that change nothing."""
_REPORTS = frozenset("critical debug error exception info log print warn warning warning_once".split())
_SIMPLE = (ast.Expr, ast.Assign, ast.AnnAssign, ast.Raise, ast.Pass)
_UNCLEAR = (ast.NamedExpr, ast.Await, ast.Yield, ast.YieldFrom)


def asked_by_check() -> bool:
    """Whether the line of the model that currently reads a truth value is a check."""
    frames = list(model_frames(sys._getframe(1)))
    outcomes = _outcomes(frames[0]) if frames else []
    if "raises" in outcomes:
        return not any(map(_catches, frames))
    return bool(outcomes) and "computes" not in outcomes


def passes_if_equal() -> bool:
    """Whether the check that the model evaluates now compares for equality, and passes if all is equal."""
    frame = next(model_frames(sys._getframe(1)), None)
    if frame is None:
        return False
    checks = _conditions_at(frame)
    if len(checks) != 1:
        return False
    [check] = checks
    is_assertion = isinstance(check, ast.Assert)
    joins, compares = (ast.And, ast.Eq) if is_assertion else (ast.Or, ast.NotEq)
    parts = (
        check.test.values
        if isinstance(check.test, ast.BoolOp) and isinstance(check.test.op, joins)
        else [check.test]
    )
    return (isinstance(check, ast.Assert) or _outcome(check.body) != "computes") and all(
        isinstance(part, ast.Compare) and all(isinstance(test, compares) for test in part.ops)
        for part in parts
    )


def is_caught() -> bool:
    """Whether the model's code may go on after an exception of the line that it runs."""
    return any(map(_catches, model_frames(sys._getframe(1))))


def while_at(frame: types.FrameType) -> ast.While | None:
    """The `while` whose condition a frame tests, if the condition has no effect; None without source."""
    line = frame.f_lineno
    loops = [node for node in _statements(frame) if isinstance(node, ast.While) and _covers(node.test, line)]
    # With other conditions on the line it is unknown which one runs.
    if len(loops) != 1 or not has_no_effect(loops[0].test) or loops[0].body[0].lineno <= line:
        return None
    return loops[0]


def leaves_iteration() -> bool:
    """Whether the model's code tests an `if` whose body ends with `continue`, `break` or `return`."""
    frame = next(model_frames(sys._getframe(1)), None)
    conditions = [] if frame is None else _conditions_at(frame)
    conditionals = [node for node in conditions if isinstance(node, ast.If)]
    return bool(conditionals) and isinstance(conditionals[-1].body[-1], (ast.Continue, ast.Break, ast.Return))


def answer_that_stays() -> bool | None:
    """The answer to an `if` whose body ends with `break` or `return` that does not end the loop.

    None for other conditions, and for those of several parts.
    """
    frame = next(model_frames(sys._getframe(1)), None)
    conditions = [] if frame is None else _conditions_at(frame)
    last = conditions[-1] if conditions else None
    if not isinstance(last, ast.If) or not isinstance(last.body[-1], (ast.Break, ast.Return)):
        return None
    is_negated = isinstance(last.test, ast.UnaryOp) and isinstance(last.test.op, ast.Not)
    return None if isinstance(last.test, ast.BoolOp) else is_negated


def _conditions_at(frame: types.FrameType) -> list[ast.Assert | ast.If]:
    """The `assert` and `if` statements whose condition contains the line that a frame runs."""
    return [
        node
        for node in _statements(frame)
        if isinstance(node, (ast.Assert, ast.If)) and _covers(node.test, frame.f_lineno)
    ]


def loop_at(frame: types.FrameType) -> ast.For | ast.While | None:
    """The `for` or `while` whose head a frame runs; None if that is not known."""
    line = frame.f_lineno
    loops = [
        node
        for node in _statements(frame)
        if isinstance(node, (ast.For, ast.While)) and node.lineno <= line < node.body[0].lineno
    ]
    return loops[0] if len(loops) == 1 else None


def is_in_loop(code: types.CodeType, offset: int) -> bool:
    """Whether the expression that runs at an offset is in the head or body of a `for` or `while`."""
    line = next((line for start, end, line in code.co_lines() if start <= offset < end), None) or 0
    # Outer statements come before inner ones.
    statements = _statements_at(code, line)
    functions = [node for node in statements if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]
    inner = statements[statements.index(functions[-1]) :] if functions else statements
    return any(isinstance(node, (ast.For, ast.While)) for node in inner)


def calls_function(name: str) -> bool:
    """Whether the model's code runs a statement that calls a function of this name."""
    frame = next(model_frames(sys._getframe(1)), None)
    return frame is not None and any(_called_name(call) == name for call in _calls(_statements(frame)))


def is_inside_call(name: str, outer_name: str) -> bool:
    """Whether the model's code runs a statement whose calls of a function are all arguments of another one.

    Args:
        name: the name of the function.
        outer_name: the name of the function that takes the results.
    """
    frame = next(model_frames(sys._getframe(1)), None)
    if frame is None:
        return False
    calls = _calls(node for node in _statements(frame) if not hasattr(node, "body"))
    inner_calls = [call for call in calls if _called_name(call) == name]
    arguments = [
        inner
        for call in calls
        if _called_name(call) == outer_name
        for argument in call.args
        for inner in ast.walk(argument)
    ]
    return bool(inner_calls) and all(call in arguments for call in inner_calls)


def is_iterated(name: str) -> bool:
    """Whether the model's code runs a statement in which loops run over the results of a function.

    Args:
        name: the name of the function, all of whose calls on this line must be such.
    """
    # Functions of torch call others.
    frames = model_frames(sys._getframe(1))
    frame = next((f for f in frames if not f.f_globals.get("__name__", "").startswith("torch.")), None)
    if frame is None:
        return False
    line = frame.f_lineno
    # The statements in the body of a loop have lines of their own.
    statements = [node for node in _statements(frame) if not hasattr(node, "body")]
    heads: list[ast.expr] = [
        node.iter for node in _statements(frame) if isinstance(node, ast.For) and _covers(node.iter, line)
    ]
    nodes = [node for part in (*statements, *heads) for node in ast.walk(part)]
    iterables = [*heads, *(node.iter for node in nodes if isinstance(node, ast.comprehension))]
    for iterable in iterables:
        if isinstance(iterable, ast.Call) and _called_name(iterable) in ("enumerate", "zip"):
            iterables += iterable.args
    calls = [node for node in nodes if isinstance(node, ast.Call) and _called_name(node) == name]
    return bool(calls) and all(call in iterables and _covers(call, line) for call in calls)


def numbered_member(frame: types.FrameType) -> str:
    """The code that reads members of a comprehension's list by number, `rows[2]`; "" if there is none.

    If a function returns the list, its callers are searched, too.

    Args:
        frame: runs the comprehension.
    """
    called = ""
    for user_frame in model_frames(frame):
        # A comprehension in a frame of its own is at the line of the function around it.
        if user_frame.f_code.co_name in ("<listcomp>", "<genexpr>"):
            continue
        member, is_returned = _member_of_list(user_frame, called)
        if member or not is_returned:
            return member
        called = user_frame.f_code.co_name
    return ""


def _member_of_list(frame: types.FrameType, called: str) -> tuple[str, bool]:
    """The code of a function that reads members of a list by number, and whether it returns the list.

    Args:
        frame: runs the statement in which the list arises.
        called: the function that returns the list; "" for lists of comprehensions.
    """
    statements = _statements(frame)
    simple = [node for node in statements if not hasattr(node, "body")]
    expressions = [node for part in simple for node in ast.walk(part)]
    calls = [node for node in expressions if isinstance(node, ast.Call)]
    lists: list[ast.AST]
    if called:
        # A module is called by the name of an attribute, not as `forward`.
        lists = [call for call in calls if _called_name(call) == called] or list(calls)
    else:
        # A comprehension, and `list` or `tuple` of a generator.
        lists = [node for node in expressions if isinstance(node, ast.ListComp)]
        lists += [call for call in calls if any(isinstance(item, ast.GeneratorExp) for item in call.args)]
    assigned = [node for node in simple if isinstance(node, ast.Assign) and node.value in lists]
    targets = {target.id for node in assigned for target in node.targets if isinstance(target, ast.Name)}
    functions = [node for node in statements if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]
    nodes = list(ast.walk(functions[-1])) if functions else expressions
    stored = [node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)]

    def is_list(value: ast.expr | None) -> bool:
        name = value.id if isinstance(value, ast.Name) else ""
        # A name that is assigned again may be another object, such as the stacked tensor.
        return value in lists or (name in targets and stored.count(name) == 1)

    for node in nodes:
        if isinstance(node, ast.Subscript) and is_list(node.value):
            bounds = node.slice
            numbers = (bounds.lower, bounds.upper) if isinstance(bounds, ast.Slice) else (bounds,)
            # Negative numbers count from the end, which is known.
            if any(isinstance(number, ast.Constant) and number.value for number in numbers):
                return ast.unparse(node), False
    return "", any(isinstance(node, ast.Return) and is_list(node.value) for node in nodes)


def model_frames(frame: types.FrameType | None) -> Iterator[types.FrameType]:
    """The frames of the model's code, innermost first."""
    while frame is not None:
        name = frame.f_globals.get("__name__", "")
        if name == _RECORDING:
            return
        is_of_number = name == "torch" and frame.f_code.co_name in _CONVERSIONS
        if not is_of_number and not _is_internal(name):
            yield frame
        frame = frame.f_back


def _is_internal(module: str) -> bool:
    """Whether a module may run between a model's line and its decision; its checks are not the model's."""
    package, _, inner = module.partition(".")
    return module.startswith(_OURS) or (package == "torch" and inner.startswith(_BETWEEN))


@functools.lru_cache(maxsize=64)
def _statements_of(file: str) -> list[ast.stmt]:
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError):
        return []
    return [node for node in ast.walk(tree) if isinstance(node, ast.stmt)]


def _calls(statements: Iterable[ast.stmt]) -> list[ast.Call]:
    """The calls that statements contain."""
    return [node for statement in statements for node in ast.walk(statement) if isinstance(node, ast.Call)]


def _statements(frame: types.FrameType) -> list[ast.stmt]:
    return _statements_at(frame.f_code, frame.f_lineno)


@functools.lru_cache(maxsize=1024)
def _statements_at(code: types.CodeType, line: int) -> list[ast.stmt]:
    """The statements around a line that runs; none if the file is not that of the code."""
    statements = [node for node in _statements_of(code.co_filename) if _covers(node, line)]
    functions = [node for node in statements if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]
    # `co_firstlineno` is the line of the first decorator, where there is one.
    starts = [first.lineno for node in functions for first in [*node.decorator_list, node][:1]]
    return statements if code.co_name.startswith("<") or code.co_firstlineno in starts else []


def _covers(node: ast.stmt | ast.expr, line: int) -> bool:
    return node.lineno <= line <= (node.end_lineno or node.lineno)


def _outcomes(frame: types.FrameType) -> list[str]:
    """The outcomes of the sides of the check that a frame runs; empty if it runs no check."""
    statements = _statements(frame)
    if not statements:
        outcome = check_outcome(frame.f_code, frame.f_lasti, _WITHOUT_EFFECT, _REPORTS)
        return [outcome] if outcome else []
    conditionals = [
        node
        for node in statements
        if isinstance(node, (ast.Assert, ast.If)) and _covers(node.test, frame.f_lineno)
    ]
    # With several conditions on a line it is unknown which one runs.
    if len(conditionals) != 1 or not has_no_effect(conditionals[0].test):
        return []
    [check] = conditionals
    outcomes = ["raises"] if isinstance(check, ast.Assert) else [_outcome(check.body), _outcome(check.orelse)]
    # Other statements on the line of the condition must belong to its branch.
    line_statements = [node for node in statements if not hasattr(node, "body") and node is not check]
    branch = check.body if isinstance(check, ast.If) and outcomes[0] != "computes" else []
    return outcomes if all(node in branch for node in line_statements) else []


def has_no_effect(expression: ast.expr) -> bool:
    """Whether an expression has no effect besides its value, whichever of its parts run."""
    nodes = list(ast.walk(expression))
    calls = [node for node in nodes if isinstance(node, ast.Call)]
    return not any(isinstance(node, _UNCLEAR) for node in nodes) and all(
        _called_name(call) in _WITHOUT_EFFECT for call in calls
    )


def _called_name(call: ast.Call) -> str:
    """The name of a function or method; empty if it has none."""
    return call.func.id if isinstance(call.func, ast.Name) else getattr(call.func, "attr", "")


def _outcome(body: Sequence[ast.stmt]) -> str:
    """The outcome of the statements of one side: `raises`, `reports` (also if empty), or `computes`."""
    if body and isinstance(body[-1], ast.Raise) and all(isinstance(statement, _SIMPLE) for statement in body):
        return "raises"
    return "reports" if all(map(_is_report, body)) else "computes"


def _is_report(statement: ast.stmt) -> bool:
    if not isinstance(statement, ast.Expr) or not isinstance(statement.value, ast.Call):
        return False
    call = statement.value
    return _called_name(call) in _REPORTS and all(
        map(has_no_effect, [*call.args, *(keyword.value for keyword in call.keywords)])
    )


def _catches(frame: types.FrameType) -> bool:
    """Whether a frame's code may go on after an exception of the line that it runs."""
    statements = _statements(frame)
    if not statements:
        return catches(frame.f_code, frame.f_lasti)
    for node in statements:
        handlers = getattr(node, "handlers", [])
        if any(inner in statements for inner in getattr(node, "body", [])) and not all(
            map(_reraises, handlers)
        ):
            return True
        if isinstance(node, (ast.With, ast.AsyncWith)) and any(
            "suppress" in ast.unparse(item.context_expr) for item in node.items
        ):
            return True
    return False


def _reraises(handler: ast.ExceptHandler) -> bool:
    return isinstance(handler.body[-1], ast.Raise)
