"""Recognises conditions of the user's code whose outcome changes nothing, from the values that follow them.

`is_causal = length > 1 and mask is None` is False for every length if there is a mask. The instructions after
the condition are evaluated for both outcomes, as long as they only read names and constants, or ask torch
whether it compiles: `length == 1 and not torch.compiler.is_compiling()` is False in a capture. If both reach
the same instruction with the same values, the code does the same from there on.
"""

from __future__ import annotations

import dis
import functools
import types
from collections.abc import Iterator, Mapping

_MOST_INSTRUCTIONS = 64
_SKIPPED = ("CACHE", "EXTENDED_ARG", "NOP", "PRECALL", "PUSH_NULL")
_LOADS_OF_LOCALS = ("LOAD_FAST", "LOAD_FAST_CHECK", "LOAD_DEREF")
_JUMPS = ("JUMP_FORWARD", "JUMP_ABSOLUTE")
_TESTS = ("TO_BOOL", "POP_JUMP_IF_TRUE", "POP_JUMP_IF_FALSE", "JUMP_IF_TRUE_OR_POP", "JUMP_IF_FALSE_OR_POP")

_CALLS = ("CALL", "CALL_FUNCTION", "CALL_METHOD")
_ATTRIBUTES = ("LOAD_ATTR", "LOAD_METHOD")
_QUESTIONS = frozenset(
    "torch compiler jit _dynamo is_compiling is_exporting is_dynamo_compiling is_tracing is_scripting".split()
)
"""The modules and functions by which code asks torch whether it compiles, exports, traces or scripts."""

State = tuple[int, tuple[object, ...]]
"""The position of the next instruction, and the values that the expression has on the stack."""


class _Undecided(Exception):
    """An instruction reads a value that is not known, or may run other code."""


class _Instructions:
    """The instructions of a code object, and their positions by offset."""

    def __init__(self, code: types.CodeType):
        self.all = list(dis.get_instructions(code))
        self.positions = {instruction.offset: position for position, instruction in enumerate(self.all)}


_instructions_of = functools.lru_cache(maxsize=256)(_Instructions)


def is_irrelevant(frame: types.FrameType) -> bool:
    """Whether code does the same for both outcomes of the condition that it is testing.

    Args:
        frame: a frame whose current instruction tests a condition.
    """
    return free_answer(frame) is not None


def free_answer(frame: types.FrameType) -> bool | None:
    """An answer to a condition whose outcome changes nothing; None where the outcome matters.

    Of the two, it is the one for which `and` and `or` do not return the condition itself.

    Args:
        frame: a frame whose current instruction tests a condition.
    """
    instructions = _instructions_of(frame.f_code)
    start = instructions.positions.get(frame.f_lasti)
    if start is None or _operation(instructions.all[start]) not in _TESTS:
        return None
    # From 3.12, `and` and `or` keep a copy of the condition, which is their value if it decides.
    is_copied = start > 0 and instructions.all[start - 1].opname == "COPY"
    copies = 2 if is_copied and instructions.all[start - 1].arg == 1 else 1
    paths = [list(_states(instructions, (start, (outcome,) * copies), frame)) for outcome in (True, False)]
    if not any(_is_same(first, second) for first in paths[0] for second in paths[1]):
        return None
    # From 3.13, the jump follows the instruction that tests.
    jumps = (_operation(instruction) for instruction in instructions.all[start : start + 4])
    return "IF_FALSE" in next(operation for operation in jumps if "JUMP" in operation)


def _is_same(first: State, second: State) -> bool:
    # Comparing objects of the user's code with `==` could run other code.
    return (
        first[0] == second[0]
        and len(first[1]) == len(second[1])
        and all(a is b for a, b in zip(first[1], second[1], strict=True))
    )


def _states(instructions: _Instructions, state: State, frame: types.FrameType) -> Iterator[State]:
    """Yield the states after each instruction from `state` on, until one cannot be evaluated."""
    for _ in range(_MOST_INSTRUCTIONS):
        try:
            state = _next_state(instructions, state, frame)
        except _Undecided:
            return
        yield state


def _operation(instruction: dis.Instruction) -> str:
    """Return the name of an operation without the direction of a jump, which Python 3.11 adds."""
    return instruction.opname.replace("JUMP_FORWARD_IF", "JUMP_IF")


def _next_state(instructions: _Instructions, state: State, frame: types.FrameType) -> State:
    """The state after one instruction.

    Raises:
        _Undecided: the instruction is not evaluated.
    """
    position, stack = state
    instruction = instructions.all[position]
    operation = _operation(instruction)
    following = position + 1
    if operation in _SKIPPED:
        return following, stack
    if operation in _JUMPS:
        return instructions.positions[instruction.argval], stack
    if operation in (*_LOADS_OF_LOCALS, "LOAD_GLOBAL"):
        values: Mapping[str, object] = frame.f_globals if operation == "LOAD_GLOBAL" else frame.f_locals
        if instruction.argval not in values:
            raise _Undecided
        return following, (*stack, values[instruction.argval])
    if operation == "LOAD_CONST":
        return following, (*stack, instruction.argval)
    if not stack:
        raise _Undecided
    below, top = stack[:-1], stack[-1]
    if operation == "POP_TOP":
        return following, below
    if operation in _ATTRIBUTES:
        return following, (*below, _member(top, instruction.argval))
    if operation in _CALLS and instruction.arg == 0:
        return following, (*below, _answer(top))
    if operation == "DUP_TOP" or (operation == "COPY" and instruction.arg == 1):
        return following, (*stack, top)
    if operation == "IS_OP" and below:
        return following, (*below[:-1], (below[-1] is top) != bool(instruction.arg))
    if operation == "TO_BOOL":
        return following, (*below, _truth(top))
    if operation == "UNARY_NOT":
        return following, (*below, not _truth(top))
    if operation in ("POP_JUMP_IF_NONE", "POP_JUMP_IF_NOT_NONE"):
        jumps = (top is None) == (operation == "POP_JUMP_IF_NONE")
        return (instructions.positions[instruction.argval] if jumps else following), below
    if operation in _TESTS:
        jumps = _truth(top) == ("IF_TRUE" in operation)
        target = instructions.positions[instruction.argval] if jumps else following
        return target, stack if jumps and operation.endswith("_OR_POP") else below
    raise _Undecided


def _member(module: object, name: str) -> object:
    """Return a member of a module; reading an attribute of any other object may run code.

    Raises:
        _Undecided: the object is not a module, or has no such member.
    """
    if type(module) is not types.ModuleType or name not in vars(module):
        raise _Undecided
    return vars(module)[name]


def _answer(function: object) -> object:
    """The result of a function without arguments that only asks torch whether it compiles.

    Raises:
        _Undecided: the function may do something else.
    """
    if not isinstance(function, types.FunctionType):
        raise _Undecided
    code = function.__code__
    is_of_torch = function.__module__ in ("torch.compiler", "torch.jit") and function.__name__ in _QUESTIONS
    takes_nothing = not (code.co_freevars or code.co_argcount)
    if not is_of_torch and not (takes_nothing and set(code.co_names) <= {*_QUESTIONS, "Exception"}):
        raise _Undecided
    return function()


def _truth(value: object) -> bool:
    """The truth of a value, for the types whose truth runs no other code.

    Raises:
        _Undecided: the value has another type.
    """
    if value is None or value is True or value is False:
        return bool(value)
    raise _Undecided
