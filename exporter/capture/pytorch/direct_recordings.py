"""Records one call of a PyTorch model until a recording succeeds; failures ask for other settings."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from ....passes.faults import is_fault, raise_fault
from ....registration import CaptureError
from ..direct.refusals import LoopRefused
from ..fx_import.captured_program import RecordedProgram
from .recorded_sides import are_joinable

if TYPE_CHECKING:
    from ..direct.decisions import Decisions
    from ..direct.loops.sides import BranchingLoops
    from ..direct.row_branches import RecordedSide, RowBranch


class RecordCall(Protocol):
    """Records the call once, with the settings of `DirectRecordings`."""

    def __call__(
        self,
        decisions: Decisions,
        other_namespaces: list[dict[str, object]] | None,
        gradients: bool,
        keeps_ones: bool,
    ) -> RecordedProgram:
        """Record the call."""


class _SidesDiffer(Exception):
    """The sides of a branch on a number of rows differ.

    Attributes:
        position: that of the branch.
    """

    def __init__(self, position: int):
        super().__init__(position)
        self.position = position


class DirectRecordings:
    """Records a call as often as its code asks for.

    Args:
        record_call: records the call once.
        patches: torch's patches for a recording, which compute gradients or not.
        specialize: whether lines that decide on values take the side of the example.
    """

    def __init__(
        self,
        record_call: RecordCall,
        patches: Callable[[bool], contextlib.AbstractContextManager[None]],
        specialize: bool,
    ):
        from ..direct.loops.sides import BranchingLoops
        from ..direct.row_branches import MOST_BRANCHES

        self._record_call, self._patches, self._specialize = record_call, patches, specialize
        self._constants = self._gradients = False
        self._keeps_ones = True
        self._other_namespaces: list[dict[str, object]] | None = []
        self._most_branches = MOST_BRANCHES
        # The positions of the branches on numbers of rows whose sides differ.
        self._two_sided: set[int] = set()
        # Whether both sides of conditions on numbers of rows are recorded.
        self._has_sides = True
        self._count_of_sides = 0
        self._branching: BranchingLoops | None = BranchingLoops()

    def run(self) -> RecordedProgram:
        """The program of the call.

        Raises:
            Exception: what the last recording raised, which no other setting helps.
        """
        from ...torch_boundary.recording.gradients import Differentiates
        from ..direct.builtin_functions import MakesNumbers
        from ..direct.decisions import WeightsDecide
        from ..direct.loops.sides import BranchesInLoop

        # Each exception asks for another recording with one more setting, so the loop ends.
        while True:
            decisions = self._make_decisions(() if self._has_sides else None)
            if self._branching is not None:
                self._branching.is_changed = False
            try:
                program = self._record(decisions)
                self._check_branches(program, decisions)
                program.namespaces = self._other_namespaces or []
                self._count_of_sides = 0
                if not program.recorded_sides or are_joinable(self._record_sides(program, decisions)):
                    return program
                self._has_sides = False
            except _SidesDiffer as difference:
                # The next recording takes both sides of this branch, or fails there, or fixes it.
                self._has_sides = self._has_sides and difference.position not in self._two_sided
                self._two_sided.add(difference.position)
            except WeightsDecide:
                self._constants = True
            except BranchesInLoop:
                # The loop is among the branching ones now.
                continue
            except Differentiates:
                self._gradients = True
            except MakesNumbers as error:
                self._other_namespaces = [*(self._other_namespaces or []), error.namespace]
            except Exception as error:
                branching = self._branching
                if branching is not None and branching.is_changed:
                    # The code after a loop that is not complete yet ran for nothing.
                    continue
                # It says what of the loop has to change, which no other setting does.
                is_of_sides = isinstance(error, LoopRefused) and not self._specialize
                is_of_sides = is_of_sides and branching is not None and bool(branching.endings)
                if is_of_sides or is_fault(error) or not self._take_another_setting(decisions):
                    raise

    def _make_decisions(
        self,
        sides: Sequence[RecordedSide] | None,
        takes_other_side: Callable[[int], bool] = lambda position: False,
    ) -> Decisions:
        """The decisions of a recording with the settings of now; see `Decisions`."""
        from ..direct.decisions import Decisions

        return Decisions(
            self._specialize,
            self._constants,
            self._most_branches,
            takes_other_side,
            self._two_sided,
            sides,
            self._branching,
        )

    def _take_another_setting(self, decisions: Decisions) -> bool:
        """Change the setting that a failed recording may need; False without one."""
        if self._branching is not None and self._branching.endings:
            # Then the condition in the loop is refused, or fixed.
            self._branching = None
        elif decisions.environment is not None and decisions.environment.has_kept_ones:
            # torch may need to know that a computed size is 1, for example where it broadcasts.
            self._keeps_ones = False
        elif decisions.sides is not None and any(
            side.answer is not None for side in decisions.sides.recorded
        ):
            # Then the line is refused, or fixed.
            self._has_sides = False
        elif self._specialize and decisions.row_branches:
            # The general side of the last branch fails; the example may take the other one.
            self._most_branches = len(decisions.row_branches) - 1
        elif self._other_namespaces:
            # The code in these namespaces may need sizes as plain numbers, for example as keys of a dict.
            self._other_namespaces = None
        else:
            return False
        return True

    def _record(self, decisions: Decisions) -> RecordedProgram:
        with self._patches(self._gradients):
            return self._record_call(decisions, self._other_namespaces, self._gradients, self._keeps_ones)

    def _check_branches(self, program: RecordedProgram, decisions: Decisions) -> None:
        """Compare the sides of the branches on numbers of rows of which a recording takes one.

        Raises:
            _SidesDiffer: those of one of them compute different things.
        """
        from ..direct.row_branches import first_unequal

        sides = None if decisions.sides is None else decisions.sides.recorded
        record_sides = functools.partial(self._record_other_sides, sides)
        unequal = first_unequal(program, decisions.row_branches, record_sides)
        if unequal is not None:
            raise _SidesDiffer(unequal)

    def _record_other_sides(
        self, sides: Sequence[RecordedSide] | None, takes_other_side: Callable[[int], bool]
    ) -> tuple[RecordedProgram, Sequence[RowBranch]] | None:
        from ...torch_boundary.recording.gradients import Differentiates
        from ..direct.builtin_functions import MakesNumbers
        from ..direct.decisions import WeightsDecide
        from ..direct.loops.sides import BranchesInLoop

        decisions = self._make_decisions(sides, takes_other_side)
        try:
            return self._record(decisions), decisions.row_branches
        except (Exception, WeightsDecide, Differentiates, MakesNumbers, BranchesInLoop) as error:
            raise_fault(error, "when it recorded the other side of a branch")
            return None

    def _record_sides(
        self, program: RecordedProgram, decisions: Decisions, start: int = 0
    ) -> RecordedProgram:
        """Record the other sides of a program's conditions, and those of the conditions on these sides."""
        from ..direct.row_branches import MOST_SIDES

        taken = [] if decisions.sides is None else decisions.sides.recorded
        indices = [index for index, side in enumerate(taken) if side.answer is not None]
        for position, index in list(enumerate(indices))[start:]:
            self._count_of_sides += 1
            if self._count_of_sides > MOST_SIDES:
                raise CaptureError("the model has too many branches on numbers of rows")
            sides = [*taken[:index], dataclasses.replace(taken[index], answer=not taken[index].answer)]
            side_decisions = self._make_decisions(sides)
            side_program = self._record(side_decisions)
            self._check_branches(side_program, side_decisions)
            program.other_sides[position] = self._record_sides(side_program, side_decisions, position + 1)
        return program
