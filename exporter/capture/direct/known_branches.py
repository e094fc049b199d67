"""Branches whose two sides compute the same: of libraries, by name, and of any code, by what follows."""

from __future__ import annotations

import sys

from ...torch_boundary.irrelevant_conditions import free_answer
from ...torch_boundary.size_questions import tested_condition
from .checks import model_frames

_ANSWERS = {
    # Above some number of boxes torchvision suppresses class by class, to save time. Below, it moves the
    # boxes of each class apart, which takes one call.
    ("torchvision.ops.boxes", "batched_nms"): False,
    # It returns no indices for no boxes, as the suppression that follows does. There, the largest coordinate
    # of no boxes, which PyTorch refuses to compute, is added to nothing.
    ("torchvision.ops.boxes", "_batched_nms_coordinate_trick"): False,
}
"""By module and function, the answer on which the general side runs."""


def known_answer() -> bool | None:
    """The answer for the branch that the model's code is deciding; None if its sides are not known.

    A condition that changes nothing has one as well, as has the first one of `rows > 1 and is_causal` if
    `is_causal` is False.
    """
    tested = tested_condition()
    answer = None if tested is None else free_answer(tested)
    if answer is not None:
        return answer
    frame = next(model_frames(sys._getframe(1)), None)
    if frame is None:
        return None
    return _ANSWERS.get((frame.f_globals.get("__name__", ""), frame.f_code.co_name))
