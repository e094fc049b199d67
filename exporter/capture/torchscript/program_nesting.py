"""Measures how deeply the program and the values of a TorchScript file are nested.

PyTorch recurses into both. Where they are nested by the thousands, it ends the process.
"""

from __future__ import annotations

import pickletools
import re
from typing import IO

MAXIMUM_NESTING = 1_000
"""Levels of expressions, statements and values; PyTorch writes a few dozen."""
MAXIMUM_OPERATIONS = 2**20
"""Operations of a pickle; PyTorch writes about twenty for each tensor."""
_TOKEN = re.compile(
    r"""\\.|["'#,;()\[\]{}]|\n *|[-+*/%&|^~.<>=@!]+|\b(?:not|and|or|if|else|is|in)\b""", re.DOTALL
)
_MARK = -1
"""Stands for a mark on the stack of a pickle."""
_ENDS_AT_MARK = frozenset("TUPLE LIST DICT FROZENSET APPENDS ADDITEMS SETITEMS OBJ INST POP_MARK".split())
_OF_TOP = {
    "TUPLE1": 1,
    "TUPLE2": 2,
    "TUPLE3": 3,
    "APPEND": 2,
    "SETITEM": 3,
    "REDUCE": 2,
    "BUILD": 2,
    "NEWOBJ": 2,
}
"""Operations that make a value of the topmost values of the stack, and how many these are."""
_ADDS_TO_VALUE = frozenset("APPEND APPENDS ADDITEMS SETITEM SETITEMS BUILD".split())
"""Operations whose first value is the container that the others go into."""


def nests_deeply(program: str) -> bool:
    """Whether an expression or a statement is nested more than `MAXIMUM_NESTING` times.

    Each operator counts as one more level for what follows it up to the next comma, as in `a + b + c`.
    """
    levels, depth, quote = [0], 0, ""
    is_comment = False
    for match in _TOKEN.finditer(program):
        token = match[0]
        first = token[0]
        if first == "\n":
            is_comment, quote = False, ""
            # Statements end at a line's end, except within brackets.
            if len(levels) == 1:
                levels, depth = [0], 0
            # Each level of nested statements indents by a space at least.
            if len(token) - 1 > MAXIMUM_NESTING:
                return True
        elif is_comment or first == "\\" or quote not in ("", token):
            continue
        elif first in "\"'":
            quote = "" if quote else token
        elif first == "#":
            is_comment = True
        elif first in "([{":
            levels.append(1)
            depth += 1
        elif first in ")]}":
            if len(levels) > 1:
                depth -= levels.pop()
        elif first in ",;":
            depth -= levels[-1]
            levels[-1] = 0
        else:
            # `----x` is one token and four operators.
            count = 1 if first.isalpha() else len(token)
            levels[-1] += count
            depth += count
        if depth > MAXIMUM_NESTING:
            return True
    return False


def pickle_excess(file: IO[bytes]) -> str:
    """What a pickle has too much of: levels of values, or operations; empty for others.

    Raises:
        ValueError: it is no pickle.
    """
    stack: list[int] = []
    memo: dict[int, int] = {}
    for number, (opcode, argument, _) in enumerate(pickletools.genops(file)):
        if number >= MAXIMUM_OPERATIONS:
            return f"has more than {MAXIMUM_OPERATIONS} operations"
        name = opcode.name
        if name == "MARK":
            stack.append(_MARK)
        elif name in ("PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"):
            memo[len(memo) if name == "MEMOIZE" else int(argument or 0)] = stack[-1] if stack else 0
        elif name in ("GET", "BINGET", "LONG_BINGET"):
            stack.append(memo.get(int(argument or 0), 0))
        elif name in _OF_TOP or name in _ENDS_AT_MARK:
            parts = _taken_off(stack, name)
            if name in _ADDS_TO_VALUE:
                container, *parts = parts or [0]
                # A container that only grows nests no deeper than its deepest member.
                depth = max(container, 1 + max(parts, default=0))
            else:
                depth = 1 + max(parts, default=0)
            if depth > MAXIMUM_NESTING:
                return f"nests values more than {MAXIMUM_NESTING} deep"
            stack.append(depth)
        elif name == "POP":
            del stack[-1:]
        elif name == "DUP":
            stack.extend(stack[-1:])
        elif opcode.stack_after and not opcode.stack_before:
            stack.append(0)
    return ""


def _taken_off(stack: list[int], operation: str) -> list[int]:
    """Remove the values that an operation takes from the stack, and return them."""
    if operation in _OF_TOP:
        begin = max(0, len(stack) - _OF_TOP[operation])
        values = stack[begin:]
    else:
        mark = next((place for place in reversed(range(len(stack))) if stack[place] == _MARK), 0)
        begin = max(0, mark - 1) if operation in _ADDS_TO_VALUE else mark
        values = [*stack[begin:mark], *stack[mark + 1 :]]
    del stack[begin:]
    return [value for value in values if value != _MARK]
