"""Records the conditions on sizes that the user's code tests, including those that get no guard from torch.

torch assumes that no dynamic size is 0 or 1. It answers a condition that is then true for all sizes, such as
`height * width >= 4`, without a guard.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import sys
from collections.abc import Iterator
from types import FrameType, ModuleType

import sympy
import torch
from torch.fx.experimental.sym_node import SymNode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from .irrelevant_conditions import is_irrelevant
from .process.process_state import replace_attribute
from .symbolic_sizes import definitions_of

_TORCH = os.path.dirname(torch.__file__) + os.sep
_DYNAMO = os.path.join(_TORCH, "_dynamo") + os.sep
_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_ASKING = tuple(
    os.path.join(*path.split("/"))
    for path in (
        "torch/__init__.py",
        "torch/fx/experimental/recording.py",
        "torch/fx/experimental/sym_node.py",
        "torch/fx/experimental/symbolic_shapes.py",
        "capture/direct/decisions.py",
        "capture/direct/known_branches.py",
        "capture/direct/loops/index_questions.py",
        "capture/direct/loops/iterations.py",
        "capture/direct/sizes/environment.py",
        "capture/direct/sizes/nodes.py",
        "torch_boundary/size_questions.py",
        "torch_boundary/size_texts.py",
    )
)
"""Files whose frames lie between the user's line and the evaluation of a condition; they are skipped."""
_GENERATED = ("<frozen", "<eval_with_key", "<@beartype")
_ATTRIBUTE = "_opsetta_questions"
_TRUTH_OF_CONDITION = torch.SymBool.__bool__.__code__
_TRUSTED: list[tuple[str, str]] = []
"""(package folder, dimension) pairs: the package's branch for size 1 computes the same as the general one."""


@dataclasses.dataclass(frozen=True)
class Question:
    """A test of a condition on sizes in the user's code, or a conversion of a size to a number or text.

    Attributes:
        answer: whether the condition was true at capture.
        file, line: the position in the user's code; empty and 0 if unknown.
        is_number: whether the code converted a size to a Python number.
        is_text: whether the code formatted a size as text; the result may not depend on this.
    """

    answer: bool
    file: str
    line: int
    is_number: bool = False
    is_text: bool = False


def questions_of(environment: ShapeEnv) -> dict[sympy.Basic, Question]:
    """Return the recorded questions of a `ShapeEnv` by condition; new entries are recorded in this dict."""
    questions: dict[sympy.Basic, Question] = vars(environment).setdefault(_ATTRIBUTE, {})
    return questions


def user_frame() -> FrameType | None:
    """Return the frame of the user's code that asks about a size now; None if torch itself asks."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.endswith(_ASKING):
        frame = frame.f_back
    if frame is None or frame.f_code.co_filename.startswith((_TORCH, _PACKAGE, *_GENERATED)):
        return None
    return frame


def tested_condition() -> FrameType | None:
    """Return the frame of the user's code that tests a symbolic condition by `if`, `and` or `or`, or None."""
    frame: FrameType | None = sys._getframe(1)
    called: FrameType | None = None
    while frame is not None and frame.f_code.co_filename.endswith(_ASKING):
        called, frame = frame, frame.f_back
    is_tested = called is not None and called.f_code is _TRUTH_OF_CONDITION
    return user_frame() if is_tested else None


def note(environment: ShapeEnv, node: SymNode, answer: bool | int | float) -> None:
    """Record a condition, or a size that became a number, if the user's code asked for the answer.

    A condition whose outcome changes nothing is not recorded.
    """
    questions = questions_of(environment)
    frame: FrameType | None = sys._getframe(1)
    called: FrameType | None = None
    # These frames of torch and of this package only evaluate the condition.
    while frame is not None and frame.f_code.co_filename.endswith(_ASKING):
        called, frame = frame, frame.f_back
    file = "" if frame is None else frame.f_code.co_filename
    is_traced, is_number = file.startswith(_DYNAMO), node.pytype is not bool
    # TorchDynamo interprets the user's code, whose line is not on the Python stack.
    if is_traced and not is_number:
        questions.setdefault(node.expr, Question(bool(answer), "", 0))
    elif frame is not None and not file.startswith((_TORCH, _PACKAGE, *_GENERATED)):
        condition = sympy.Eq(node._expr, answer) if is_number else node.expr
        # The instruction that tests the condition calls this method.
        is_tested = called is not None and called.f_code is _TRUTH_OF_CONDITION
        if condition in questions or (is_tested and not is_number and is_irrelevant(frame)):
            return
        if file.startswith(tuple(folder for folder, _ in _TRUSTED)) and _asks_for_one(condition, environment):
            return
        questions[condition] = Question(is_number or bool(answer), file, frame.f_lineno, is_number)


def _asks_for_one(condition: sympy.Basic, environment: ShapeEnv) -> bool:
    """Whether a condition compares a dynamic size with 1, and not an expression of sizes."""
    is_comparison = isinstance(condition, (sympy.Eq, sympy.Ne)) and sympy.S.One in condition.args
    return is_comparison and any(
        side.is_Symbol and side not in definitions_of(environment) for side in condition.args
    )


@contextlib.contextmanager
def trust_forms_for_one(package: ModuleType, dimension: str) -> Iterator[None]:
    """Trust, within the context, that a package's branch for a size of 1 computes what the general one does.

    A model that decodes token by token has a branch for one token and another for several. Both compute the
    same by different operators, so comparing the operators would refuse the size 1.

    Args:
        package: the package; conditions in its code that compare a size with 1 are not recorded.
        dimension: the name of the dimension.
    """
    _TRUSTED.append((os.path.dirname(str(package.__file__)) + os.sep, dimension))
    try:
        yield
    finally:
        _TRUSTED.pop()


def trusts_form_for_one(dimension: str) -> bool:
    """Whether `trust_forms_for_one` is active for a dimension."""
    return any(trusted_dimension == dimension for _, trusted_dimension in _TRUSTED)


@contextlib.contextmanager
def record_questions() -> Iterator[None]:
    """Record the questions that the user's code asks of any `ShapeEnv`, within the context."""
    original = ShapeEnv.evaluate_sym_node

    def evaluate_sym_node(
        self: ShapeEnv, sym_node: SymNode, size_oblivious: bool = False, fallback_value: bool | None = None
    ) -> bool | int | float:
        answer: bool | int | float = original(self, sym_node, size_oblivious, fallback_value)
        note(self, sym_node, answer)
        return answer

    with replace_attribute(ShapeEnv, "evaluate_sym_node", evaluate_sym_node):
        yield
