"""Decisions from bytecode, for code without a source; they are those that its source would lead to."""

from __future__ import annotations

import _markupbase
import ast
import contextlib
import dis
import sys
import textwrap
import types
import warnings
from collections.abc import Callable
from typing import Any

import pytest

from opsetta.exporter.capture.direct import builtin_functions, bytecode

EXPRESSIONS = [
    "int(a)",
    "int(a.b*2)+int(c)",
    "int(a if b else c)",
    "int(a or b)",
    "int(sum([x for x in a]))",
    "int(a, 2)",
    "int(x=a)",
    "int()",
    "isinstance(a,int)",
    "isinstance(a,(int,float))",
    "isinstance(a,int|float)",
    "type(a) is int",
    "f(int)",
    "f(dtype=int)",
    "[int, a]",
    "{int: a}",
    "int.from_bytes(a)",
    "map(int, a)",
    "a.view(int(b/2), int(c), -1)",
    "int(int(a)*2)",
    "a == int",
    "int == a",
    "int(1 < a < 2)",
    "int(f'{a}')",
    "int(f'{a}{b!r:>{c}}')",
    "[int(x) for x in a]",
    "a[int(b):int(c)]",
    "int(a[1:2])",
    "int(not a)",
    "a and int(b)",
    "int(a and b and c)",
    "int(f(x=a, *b, **c))",
    "int(f(a, y=b))",
    "int({**a, 'b': c}['d'])",
    "int((lambda: a)())",
    "int(max((x for x in a)))",
    "int({x: y for x, y in a}[0])",
    "int([y for x in a for y in x if y][0])",
    "x.to(int)",
    "int(a.m(b)(c))",
    "int(a) if int(b) else int(c)",
    "f(int(a), y=int(b))",
    "int(-a // b ** c)",
    "int(a @ b)",
    "(a, *b, int(c))",
    "int((a, *b)[0])",
    "int(a in b)",
    "int(a is None)",
    "int(super().f(a))",
    "int(math.ceil(a.shape[0] * 0.5))",
    "a == int(b) or c",
    "int(await_)",
    "int(f(a)(b)[c].d)",
]
STATEMENTS = [
    "def f(a: int) -> int:\n  return a",
    "def f(a: Optional[int] = None, b: list[int] | None = 1):\n  return a",
    "kind = int",
    "return int",
    "for i in range(int(a)):\n  b = int(i)",
    "while int(a):\n  b = int(a)\n  if int(b): break",
    "try:\n  b = int(a)\nexcept ValueError:\n  b = int(c)",
    "with int(a) as b:\n  c = int(b)",
    "b: int = int(a)",
    "assert int(a), 'x'",
    "a += int(b)",
    "a[int(b)] += int(c)",
    "del a[int(b)]",
    "raise E(int(a))",
    "yield int(a)",
    "x = {'a': int, 'b': 1}",
    "b = cast(int, a)",
]


@pytest.mark.parametrize("text", [*(f"return {each}" for each in EXPRESSIONS), *STATEMENTS])
def test_uses_of_int_are_those_of_the_source(text: str) -> None:
    lines = f"y = int(z)\n{text}".replace("\n", "\n  ")
    source = f"def function(a, b, c, f, z, *d):\n  {lines}\n"
    codes = [each for each in compile(source, "none", "exec").co_consts if isinstance(each, types.CodeType)]
    assert bytecode.only_calls(codes, "int") is builtin_functions._is_only_called(ast.parse(source), "int")


def test_code_that_does_not_call_int_needs_no_other() -> None:
    assert not bytecode.only_calls([compile("x = float(y)", "none", "exec")], "int")


WITHOUT_EFFECT = frozenset(
    "all amax any bool dim float format int isinstance item len list max min repr size str sum unbind".split()
)
REPORTS = frozenset("print warn warning".split())


class Asked:
    """Stands for a tensor; says what the bytecode tells about the code that asks for its truth."""

    def __init__(self, answer: bool) -> None:
        self.answer = answer
        self.outcomes: list[tuple[str, bool]] = []

    def __bool__(self) -> bool:
        frame = sys._getframe(1)
        outcome = bytecode.check_outcome(frame.f_code, frame.f_lasti, WITHOUT_EFFECT, REPORTS)
        self.outcomes.append((outcome, bytecode.catches(frame.f_code, frame.f_lasti)))
        return self.answer

    def _self(self, *other: Any) -> Asked:
        return self

    __gt__ = __lt__ = __eq__ = __mul__ = __neg__ = _self  # type: ignore[assignment]
    sum = item = min = max = any = all = remember = add_ = _self
    __hash__ = object.__hash__

    def dim(self) -> int:
        return 2

    def unbind(self) -> list[Asked]:
        return [self, self]


CHECKS: list[tuple[str, str, bool]] = [
    ("if any([y.sum() > 0 for y in x.unbind()]):\n  raise ValueError(1)\nreturn x", "raises", False),
    ("if any(y.remember().sum() > 0 for y in x.unbind()):\n  raise ValueError(1)\nreturn x", "", False),
    (
        "if x.sum() > 0:\n  print('a')\nelif x.dim() == 2:\n  print()\nelse:\n  print()\nx = x * 3\nreturn x",
        "reports",
        False,
    ),
    ("if 0 < x.sum() < 5:\n  print('a')\nreturn x", "reports", False),
    ("if x.sum() > 0:\n  raise ValueError([y for y in range(3)])\nreturn x", "raises", False),
    (
        "if x.sum() > 0 and x.min() > 0 or x.max() > 0:\n  warnings.warn('a' + 'b' * x.dim())\nreturn x",
        "reports",
        False,
    ),
    ("def h(y):\n  if y.sum() > 0:\n    raise ValueError(1)\n  return y\nreturn h(x)", "raises", False),
    ("z = lambda y: y * 2 if y.sum() > 0 else y\nreturn z(x)", "", False),
    ("for i in range(3):\n  if x.sum() > 0:\n    break\nreturn i", "", False),
    ("for i in range(3):\n  if x.sum() > 0:\n    print(i)\n    break\nreturn i", "", False),
    ("while True:\n  assert x.sum() > 0\n  return x", "raises", False),
    ("n = 0\nif x.sum() > 0:\n  n += 1\nreturn n", "", False),
    ("if x.sum() > 0:\n  print(1)\n  return x\nprint(2)\nreturn x * 2", "", False),
    ("y = bool(x.sum() > 0)\nassert y\nreturn y", "", False),
    ("y = [x if x.sum() > 0 else 3, 4]\nreturn y", "", False),
    ("y = print('a') if x.sum() > 0 else 3\nreturn y", "", False),
    ("d = {}\nif x.sum() > 0:\n  d['a'] = 1\n  raise ValueError(1)\nreturn x", "", False),
    ("if x.sum() > 0:\n  del x\n  raise ValueError(1)\nreturn x", "raises", False),
    ("assert x.min() > 1, f'a {x}'\nreturn x", "raises", False),
    ("assert x.min() > 1\nreturn x", "raises", False),
    ("if x.sum() > 3 or x.dim() == 7:\n  m = 'n'\n  raise ValueError(m)\nreturn x", "raises", False),
    ("if x.dim() == 2 and x.sum() > 3:\n  m = 'n'\n  raise ValueError(m)\nreturn x", "raises", False),
    ("if x.sum() > 3 and x.dim() == 2:\n  raise ValueError(f'{x}')\nreturn x", "raises", False),
    ("if not x.sum() > 3:\n  raise ValueError('x')\nreturn x", "raises", False),
    ("if x.sum().item() < 3:\n  return x*2\nelse:\n  raise ValueError('l')", "raises", False),
    (
        "if x.dim() == 1:\n  return x\nelif not all(r.sum() < 3 for r in [x]):\n  raise KeyError\nreturn x*2",
        "raises",
        False,
    ),
    ("if (x == 0).any():\n  warnings.warn(f'of {len([x])}', stacklevel=1)\nreturn x*2", "reports", False),
    ("if x.sum() > 0:\n  print('a')\nelse:\n  print('b', x.sum())\nreturn x*2", "reports", False),
    ("if x.sum() > 0:\n  print('a')\n  print('b')\nreturn x*2", "reports", False),
    ("if x.sum() > 0:\n  print('a')", "reports", False),
    ("for i in range(2):\n  if x.sum() > 0:\n    print('a')\nreturn x", "reports", False),
    ("for i in range(2):\n  if x.sum() > 0:\n    print('a')\n  x = x * 2\nreturn x", "reports", False),
    ("for i in range(2):\n  if x.sum() > 0:\n    raise ValueError(i)\nreturn x", "raises", False),
    ("for i in range(2):\n  if x.sum() > 0:\n    continue\n  x = x * 2\nreturn x", "", False),
    ("if x.sum() > 0:\n  return x*2\nreturn x", "", False),
    ("if x.sum() > 0:\n  x = x*2\nelse:\n  print('n')\nreturn x", "", False),
    ("if x.sum() > 0:\n  print(x.add_(1).sum())\nreturn x", "", False),
    ("if not (p := bool(x.sum() > 0)):\n  raise ValueError('n')\nreturn x * p", "", False),
    ("if x.sum() > 0 and x.remember().sum() > 9:\n  raise ValueError('n')\nreturn x", "", False),
    ("if x.dim() > 0: x = x * 2 if x.sum() > 0 else x\nelse:\n  raise ValueError('l')\nreturn x", "", False),
    ("try:\n  assert x.sum() > 0\n  return x*2\nexcept AssertionError:\n  return x", "raises", True),
    (
        "try:\n  assert x.sum() > 0\n  return x*2\nexcept AssertionError:\n  raise ValueError('x')",
        "raises",
        False,
    ),
    (
        "try:\n  assert x.sum() > 0\n  y = x*2\nexcept AssertionError as e:\n  print(e)\n  raise\nreturn y",
        "raises",
        False,
    ),
    (
        "try:\n  assert x.sum() > 0\n  y = x*2\nexcept OSError as e:\n  raise\nfinally:\n  x = 1\nreturn y",
        "raises",
        False,
    ),
    ("try:\n  assert x.sum() > 0\n  y = x*2\nfinally:\n  x = 1\nreturn y", "raises", False),
    (
        "try:\n  assert x.sum() > 0\n  y = x*2\nexcept OSError:\n  raise\nexcept:\n  y = 1\nreturn y",
        "raises",
        True,
    ),
    (
        "try:\n  try:\n    assert x.sum() > 0\n  finally:\n    y = 1\nexcept Exception:\n  y = 1\nreturn y",
        "raises",
        True,
    ),
    (
        "try:\n  try:\n    assert x.sum() > 0\n  except:\n    raise OSError\nexcept OSError:\n  y = 1",
        "raises",
        True,
    ),
    ("with NC():\n  assert x.sum() > 0\n  y = x*2\nreturn y", "raises", False),
    ("with contextlib.suppress(Exception):\n  assert x.sum() > 0\n  x = x*2\nreturn x", "raises", True),
    (
        "with NC():\n  try:\n    return x.min() > 0 and x\n  except KeyError:\n    raise\n  finally:\n    1",
        "",
        False,
    ),
    ("try:\n  y = 1\nexcept ValueError:\n  y = 2\nassert x.sum() > 0\nreturn x", "raises", False),
    ("y = x.sum() > 0 and 3\nreturn y", "", False),
    ("y = 1 if x.sum() > 0 else 2\nreturn y", "", False),
    ("while x.sum() > 0:\n  x = x * 2\n  break\nreturn x", "", False),
    ("return [y for y in [x] if y.sum() > 0]", "", False),
    ("if x.sum() > 0:\n  pass\nreturn x", "reports", False),
    ("if x.remember().sum() > 0:\n  raise ValueError(1)\nreturn x", "", False),
    ("y = 3\nif x.sum() > 0:\n  self.a = 1\nreturn y", "", False),
    ("if x.sum() > 0:\n  return 1\nreturn 2", "", False),
    ("if x.sum() > 0:\n  if x.dim() == 2:\n    return x\nreturn None", "", False),
    ("if x.sum() > 0:\n  raise ValueError(1)\nelif x.dim() == 3:\n  return x\nreturn x * 2", "raises", False),
    ("if x.sum() > 0:\n  logger.warning('a %s', x)\nreturn x", "reports", False),
    (
        "if x.dim() == 2:\n  if x.sum() > 0:\n    print('deep')\nelse:\n  x = x * 3\nreturn x",
        "reports",
        False,
    ),
]


def asked(text: str, answer: bool) -> list[tuple[str, bool]]:
    space: dict[str, Any] = {
        "warnings": warnings,
        "contextlib": contextlib,
        "NC": contextlib.nullcontext,
        "logger": types.SimpleNamespace(warning=lambda *args: None),
        "self": types.SimpleNamespace(),
        "print": lambda *args: None,
    }
    exec("def function(x):\n  " + text.replace("\n", "\n  "), space)
    function: Callable[[Asked], Any] = space["function"]
    tensor = Asked(answer)
    with (
        warnings.catch_warnings(),
        contextlib.suppress(Exception),
    ):
        warnings.simplefilter("ignore")
        function(tensor)
    return tensor.outcomes


@pytest.mark.parametrize(("text", "outcome", "is_caught"), CHECKS)
def test_a_check_is_told_from_a_decision(text: str, outcome: str, is_caught: bool) -> None:
    for answer in (True, False):
        found = asked(text, answer)
        assert found
        assert {each for each, _ in found} == {outcome}
        if outcome:
            assert {catches for _, catches in found} == {is_caught}


def test_a_line_may_hold_a_check_and_a_decision() -> None:
    text = "assert x.sum() > 0; y = x if x.sum() > 0 else -x\nreturn y"
    assert [outcome for outcome, _ in asked(text, True)] == ["raises", ""]


@pytest.mark.parametrize("module", [_markupbase, contextlib, textwrap])
def test_any_code_can_be_read(module: types.ModuleType) -> None:
    codes = [each.__code__ for each in vars(module).values() if isinstance(each, types.FunctionType)]
    for kind in (each for each in vars(module).values() if isinstance(each, type)):
        codes += [each.__code__ for each in vars(kind).values() if isinstance(each, types.FunctionType)]
    assert codes
    bytecode.only_calls(codes, "int")
    for code in codes:
        for instruction in dis.get_instructions(code):
            bytecode.check_outcome(code, instruction.offset, WITHOUT_EFFECT, REPORTS)
            bytecode.catches(code, instruction.offset)
            bytecode.is_assertion(code, instruction.offset)
            bytecode.decides(code, instruction.offset)
