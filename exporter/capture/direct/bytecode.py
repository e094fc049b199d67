"""Analyses code without source, such as that of a console, by its bytecode.

The instructions differ between releases of Python; these functions read those of 3.10 to 3.13.
"""

from __future__ import annotations

import bisect
import dis
import functools
import sys
import types
from collections.abc import Collection, Iterable, Iterator

_CALLABLE_IS_FIRST = sys.version_info >= (3, 13)
"""Whether a call expects the function below the empty entry on the stack (from 3.13), or above it."""
_NEUTRAL = (
    *("CACHE COPY DUP_TOP END_ASYNC EXTENDED_ARG GEN_START JUMP_ABSOLUTE JUMP_BACKWARD JUMP_FORWARD").split(),
    *("KW_NAMES MAKE_CELL COPY_FREE_VARS NOP PRECALL RESUME ROT_ SWAP").split(),
)
"""Prefixes of the names of instructions that pop nothing, or push back what they pop."""
_CONTAINERS = ("BUILD_CONST_KEY_MAP", "BUILD_LIST", "BUILD_MAP", "BUILD_TUPLE", "BINARY_OR", "BINARY_SUBSCR")
_CONSUMERS = (
    "DELETE_",
    "JUMP_IF",
    "LIST_APPEND",
    "MAP_ADD",
    "POP_",
    "RAISE",
    "RERAISE",
    "RETURN_",
    "SET_ADD",
    "STORE_",
)
_ENDS = ("RAISE", "RERAISE", "RETURN")
_UNCONDITIONAL = ("JUMP_ABSOLUTE", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT", "JUMP_FORWARD")
_PURE = (
    *(
        "BINARY_ BUILD_ CACHE CALL COMPARE_OP CONTAINS_OP CONVERT_VALUE COPY DICT_MERGE DICT_UPDATE DUP_TOP"
    ).split(),
    *("EXTENDED_ARG FORMAT_ GET_ITER IS_OP JUMP_FORWARD KW_NAMES LIST_EXTEND LIST_TO_TUPLE LOAD_").split(),
    *("MAKE_FUNCTION NOP POP_JUMP POP_TOP PRECALL PUSH_NULL RAISE_VARARGS RESUME ROT_ SET_").split(),
    *("SWAP TO_BOOL UNARY_").split(),
)
"""Prefixes of the names of instructions that change only the stack, apart from calls."""
_OF_LOCALS = ("DELETE_FAST", "END_FOR", "FOR_ITER", "LIST_APPEND", "MAP_ADD", "SET_ADD", "STORE_FAST")
_LONGEST_PATH = 1000
_LONGEST_COPY = 6
"""Python copies blocks of up to four instructions."""
_End = int | tuple[tuple[str, str], ...]
"""A position, or the instructions of a block that returns."""
_BOUNDARIES = (
    "STORE_",
    "POP_TOP",
    "RETURN",
    "RAISE",
    "RERAISE",
    "RESUME",
    "JUMP_",
    "FOR_ITER",
    "DELETE_",
    "POP_EXCEPT",
    "POP_BLOCK",
    "SETUP_",
    "YIELD",
    "SEND",
    "NOP",
)


GENERATOR = "<genexpr>"


class _Code:
    """The instructions of a code object, and their positions by offset."""

    def __init__(self, code: types.CodeType):
        self.code = code
        self.instructions = list(dis.get_instructions(code))
        self.positions = {
            instruction.offset: position for position, instruction in enumerate(self.instructions)
        }

    def at(self, offset: int) -> int:
        """The position of the instruction that runs; an offset may be that of the caches behind a call."""
        return bisect.bisect_right(self.instructions, offset, key=lambda instruction: instruction.offset) - 1

    def target(self, position: int) -> int:
        """The position to which a jump goes."""
        return self.positions[self.instructions[position].argval]

    def consumer(self, position: int) -> tuple[int, int] | None:
        """The instruction that pops the value that another one pushed.

        Returns:
            Its position, and how deep in the stack the value is then, 1 at the top. None if no instruction
            is found, on the path that takes no conditional jump and runs no loop.
        """
        load = self.instructions[position]
        depth = _depth_after(load)
        position += 1
        while position < len(self.instructions):
            instruction = self.instructions[position]
            name = instruction.opname
            if name == "FOR_ITER":
                depth += _effect(instruction, True)
                position = self.target(position)
                continue
            popped, pushed = _stack_use(instruction)
            if popped >= depth:
                return position, depth
            depth += pushed - popped
            if name in ("JUMP_FORWARD", "JUMP_ABSOLUTE") and self.target(position) > position:
                position = self.target(position)
                continue
            if name.startswith(_ENDS) or name in _UNCONDITIONAL:
                return None
            position += 1
        return None

    def call_of(self, position: int) -> int | None:
        """The position of the call of the function that an instruction loads; None if it is not called."""
        consumer = self.consumer(position)
        if consumer is None:
            return None
        call, depth = consumer
        instruction = self.instructions[call]
        if instruction.opname in ("CALL", "CALL_FUNCTION", "CALL_METHOD", "CALL_KW", "CALL_FUNCTION_KW"):
            names = instruction.opname in ("CALL_KW", "CALL_FUNCTION_KW")
            below = (instruction.arg or 0) + names
            return call if depth > below else None
        if instruction.opname == "CALL_FUNCTION_EX":
            return call if depth > 1 + ((instruction.arg or 0) & 1) else None
        return None

    def called_names(self, first: int, last: int | None) -> Iterator[tuple[int, str]]:
        """The calls among instructions: their positions, and the names of the functions; empty if unknown."""
        names: dict[int, str] = {}
        last = len(self.instructions) if last is None else last
        for position in range(first, last):
            instruction = self.instructions[position]
            if instruction.opname in (
                "LOAD_GLOBAL",
                "LOAD_NAME",
                "LOAD_ATTR",
                "LOAD_METHOD",
                "LOAD_DEREF",
                "LOAD_FAST",
            ):
                call = self.call_of(position)
                if call is not None:
                    names[call] = str(instruction.argval)
        for position in range(first, last):
            name = self.instructions[position].opname
            if name.startswith("CALL") and not name.startswith("CALL_INTRINSIC"):
                before = position - 1 - (self.instructions[position - 1].opname == "PRECALL")
                is_generator = self.instructions[before].opname == "GET_ITER"
                yield position, names.get(position, GENERATOR if is_generator else "")


@functools.lru_cache(maxsize=256)
def _code(code: types.CodeType) -> _Code:
    return _Code(code)


def _depth_after(load: dis.Instruction) -> int:
    """How deep the value that an instruction loads is in the stack after it, 1 at the top."""
    argument = load.arg or 0
    if load.opname == "LOAD_GLOBAL":
        return 1 + (_CALLABLE_IS_FIRST and argument & 1)
    if load.opname == "LOAD_METHOD" or (
        load.opname == "LOAD_ATTR" and sys.version_info >= (3, 12) and argument & 1
    ):
        return 2
    return 1


def _effect(instruction: dis.Instruction, jumps: bool) -> int:
    """By how many entries the stack is longer after an instruction."""
    argument = instruction.arg if instruction.opcode >= dis.HAVE_ARGUMENT else None
    return dis.stack_effect(instruction.opcode, argument, jump=jumps)


def _stack_use(instruction: dis.Instruction) -> tuple[int, int]:
    """The numbers of entries that an instruction pops from the stack, and pushes."""
    name, argument = instruction.opname, instruction.arg
    if name == "CALL":
        # `dis` counts the arguments of a call at PRECALL in 3.11; here they count at CALL in all releases.
        return (argument or 0) + 2, 1
    if name == "PRECALL":
        return 0, 0
    effect = _effect(instruction, False)
    if name.startswith(_NEUTRAL):
        return max(-effect, 0), max(effect, 0)
    if name in ("LOAD_ATTR", "LOAD_METHOD") or name.startswith("UNPACK_"):
        return 1, 1 + effect
    if name == "STORE_FAST_LOAD_FAST":
        return 1, 1
    if effect >= 1:
        return 0, effect
    if name == "END_FOR" or name.startswith(_CONSUMERS) or "JUMP" in name:
        return -effect, 0
    return 1 - effect, 1


def only_calls(codes: Iterable[types.CodeType], name: str) -> bool:
    """Whether code calls `int` or `float`, and uses it only in such calls, `isinstance` and annotations."""
    uses = [use for code in codes for nested_code in _nested_codes(code) for use in _uses(nested_code, name)]
    return "call" in uses and "other" not in uses


def _nested_codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _nested_codes(constant)


def _uses(code: types.CodeType, name: str) -> list[str]:
    if name not in code.co_names:
        return []
    decoded = _code(code)
    loads: dict[str, list[int]] = {name: [], "isinstance": []}
    for position, instruction in enumerate(decoded.instructions):
        if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME") and instruction.argval in loads:
            loads[instruction.argval].append(position)
    checks = [(start, call) for start in loads["isinstance"] if (call := decoded.call_of(start)) is not None]
    return [
        "check" if any(start < position < end for start, end in checks) else _use(decoded, position)
        for position in loads[name]
    ]


def _use(decoded: _Code, position: int) -> str:
    """How a value is used: `call`, `annotation`, or `other`."""
    consumer = decoded.consumer(position)
    if consumer is None:
        return "other"
    consumer_instruction = decoded.instructions[consumer[0]]
    if consumer_instruction.opname in ("MAKE_FUNCTION", "SET_FUNCTION_ATTRIBUTE"):
        return "annotation"
    if consumer_instruction.opname in _CONTAINERS or (
        consumer_instruction.opname == "BINARY_OP" and consumer_instruction.argrepr == "|"
    ):
        return "annotation" if _use(decoded, consumer[0]) == "annotation" else "other"
    if (
        consumer_instruction.opname in ("CALL", "CALL_FUNCTION")
        and decoded.call_of(position) is not None
        and consumer_instruction.arg == 1
    ):
        before = consumer[0] - (2 if sys.version_info[:2] == (3, 11) else 1)
        return "other" if decoded.instructions[before].opname == "KW_NAMES" else "call"
    return "other"


def check_outcome(
    code: types.CodeType, offset: int, without_effect: Collection[str], reports: Collection[str]
) -> str:
    """The outcome of the check that runs at an offset: `raises`, `reports`; empty if it is no check.

    Args:
        without_effect: the names of functions and methods that change nothing.
        reports: the names of those that report something, such as `warn`.
    """
    decoded = _code(code)
    condition = decoded.at(offset)
    jump = next(
        (
            position
            for position in range(condition, len(decoded.instructions))
            if _is_decision(decoded.instructions[position])
            or not _is_expression(decoded.instructions[position])
        ),
        None,
    )
    if jump is None or not _is_decision(decoded.instructions[jump]):
        return ""
    first = condition
    while first > 0 and not decoded.instructions[first - 1].opname.startswith(_BOUNDARIES):
        first -= 1
    sides = _Sides(decoded, without_effect, reports)
    if not all(map(sides.is_pure, range(first, jump))):
        return ""
    next_position, jump_position = jump + 1, decoded.target(jump)
    outcomes = [
        sides.outcome(next_position, sides.end_of(jump_position)),
        sides.outcome(jump_position, sides.end_of(next_position)),
    ]
    if "raises" in outcomes:
        return "raises"
    shared_ends = {*sides.ends_of_jumps(next_position), *sides.ends_of_jumps(jump_position)}
    # A chained comparison leaves an operand on the stack, which both sides remove.
    joined = any(
        sides.outcome(next_position, end, depth) and sides.outcome(jump_position, end, depth)
        for end in shared_ends
        for depth in (0, -1)
    )
    return "reports" if joined or "reports" in outcomes else ""


def decides(code: types.CodeType, offset: int) -> bool:
    """Whether the expression that runs at an offset decides what runs next."""
    decoded = _code(code)
    is_copied = False
    for instruction in decoded.instructions[decoded.at(offset) :]:
        if _is_decision(instruction) or instruction.opname.startswith("JUMP_IF"):
            return True
        # `if (name := value):` stores a copy.
        if not _is_expression(instruction) and not (is_copied and instruction.opname.startswith("STORE_")):
            return False
        is_copied = instruction.opname in ("COPY", "DUP_TOP")
    return False


def is_assertion(code: types.CodeType, offset: int) -> bool:
    """Whether the expression that runs at an offset is the condition of an `assert`."""
    instructions = _code(code).instructions
    for position in range(_code(code).at(offset), len(instructions) - 1):
        if instructions[position + 1].opname == "LOAD_ASSERTION_ERROR":
            return _is_decision(instructions[position])
        if not _is_decision(instructions[position]) and not _is_expression(instructions[position]):
            return False
    return False


def _is_decision(instruction: dis.Instruction) -> bool:
    return instruction.opname.startswith("POP_JUMP")


def _is_expression(instruction: dis.Instruction) -> bool:
    return instruction.opname.startswith(_PURE) and instruction.opname not in (
        "POP_TOP",
        "RAISE_VARARGS",
        "JUMP_FORWARD",
    )


class _Sides:
    """The sides of a decision."""

    def __init__(self, decoded: _Code, without_effect: Collection[str], reports: Collection[str]):
        self._read = decoded
        self._calls = dict(decoded.called_names(0, None))
        self._without_effect = without_effect
        self._reports = reports

    def end_of(self, position: int) -> _End:
        """Where code goes on from a position, after its jumps."""
        instructions = self._read.instructions
        visited: set[int] = set()
        while position not in visited:
            visited.add(position)
            name = instructions[position].opname
            if name in _UNCONDITIONAL:
                position = self._read.target(position)
            elif name in ("NOP", "EXTENDED_ARG", "CACHE"):
                position += 1
        # The compiler copies a short end of a function into each branch, so copies count as one end.
        block: list[tuple[str, str]] = []
        for instruction in instructions[position : position + _LONGEST_COPY]:
            block.append((instruction.opname, instruction.argrepr))
            if instruction.opname.startswith("RETURN"):
                return tuple(block)
            if "JUMP" in instruction.opname:
                break
        return position

    def ends_of_jumps(self, position: int) -> Iterator[_End]:
        """The ends of the jumps over the other side, and of the return that both sides may share."""
        instructions = self._read.instructions
        while position < len(instructions) and instructions[position].opname.startswith(
            _PURE + _ENDS + _UNCONDITIONAL
        ):
            end = self.end_of(position)
            if end != position:
                yield end
            if instructions[position].opname.startswith(_ENDS + _UNCONDITIONAL):
                return
            position += 1

    def outcome(self, position: int, end: _End, depth: int = 0) -> str:
        """The outcome of code up to an end: `raises`, `reports` (also if it does nothing), else empty.

        Args:
            depth: by how many entries the stack is to be longer at the end.
        """
        endings: set[str] = set()
        pending = [(position, 0, 0, True)]
        visited: set[tuple[int, int, int, bool]] = set()
        while pending:
            state = pending.pop()
            if state in visited:
                continue
            visited.add(state)
            position, height, least, is_pure = state
            instruction = self._read.instructions[position]
            name = instruction.opname
            if self.end_of(position) == end:
                # `least` shows that no entry below the starting height was popped.
                endings.add("reports" if height == least == depth and is_pure else "")
            elif name == "RAISE_VARARGS":
                endings.add("raises")
            elif not name.startswith((*_PURE, *_UNCONDITIONAL, *_OF_LOCALS)) or len(visited) > _LONGEST_PATH:
                endings.add("")
            else:
                is_pure = is_pure and self.is_pure(position)
                for following, jumps in self._following(position):
                    after = height + _effect(instruction, jumps)
                    pending.append((following, after, min(least, after), is_pure))
        if "" in endings:
            return ""
        return "raises" if "raises" in endings else "reports" if endings else ""

    def _following(self, position: int) -> Iterator[tuple[int, bool]]:
        """The positions that may run after an instruction, and whether it jumps there."""
        name = self._read.instructions[position].opname
        if name in _UNCONDITIONAL or name.startswith(("POP_JUMP", "FOR_ITER")):
            yield self._read.target(position), True
        if name not in _UNCONDITIONAL:
            yield position + 1, False

    def is_pure(self, position: int) -> bool:
        """Whether an instruction changes nothing, apart from a report."""
        name = self._read.instructions[position].opname
        if name.startswith(_OF_LOCALS):
            return False
        constant = self._read.instructions[position].argval
        if isinstance(constant, types.CodeType):
            names = {
                name
                for nested_code in _nested_codes(constant)
                for _, name in _code(nested_code).called_names(0, None)
            }
            return names <= {GENERATOR, *self._without_effect}
        if position in self._calls:
            called = self._calls[position]
            if called == GENERATOR:
                return True
            is_statement = self._read.instructions[position + 1].opname == "POP_TOP"
            return called in (self._reports if is_statement else self._without_effect)
        return True


def catches(code: types.CodeType, offset: int) -> bool:
    """Whether code may go on after an exception of the instruction at an offset."""
    decoded = _code(code)
    # From 3.11 handlers stand in a table; before, SETUP_ instructions open their blocks.
    if sys.version_info >= (3, 11):
        entries = [(entry.start, entry.end, entry.target) for entry in dis.Bytecode(code).exception_entries]

        def handlers(instruction_offset: int) -> list[int]:
            return [
                decoded.positions[target]
                for start, end, target in entries
                if start <= instruction_offset < end
            ]

    else:

        def handlers(instruction_offset: int) -> list[int]:
            return [
                decoded.target(position)
                for position, entry in enumerate(decoded.instructions)
                if entry.opname.startswith("SETUP_") and entry.offset < instruction_offset < entry.argval
            ]

    pending, visited = handlers(offset), set()
    while pending:
        position = pending.pop()
        if position in visited:
            continue
        visited.add(position)
        instruction = decoded.instructions[position]
        name = instruction.opname
        if name == "POP_EXCEPT" and decoded.instructions[position + 1].opname != "RERAISE":
            return True
        if name.startswith(("RERAISE", "RAISE")):
            pending += handlers(instruction.offset)
        elif name in _UNCONDITIONAL:
            pending.append(decoded.target(position))
        elif not name.startswith("RETURN"):
            pending.append(position + 1)
            before = [entry.opname for entry in decoded.instructions[max(position - 2, 0) : position]]
            is_exit = "WITH_EXCEPT_START" in before
            # The exit method of a context, other than `contextlib.suppress`, passes exceptions on.
            if "JUMP" in name and (not is_exit or "suppress" in code.co_names):
                pending.append(decoded.target(position))
    return False
