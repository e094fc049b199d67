"""The compile plan: execution order, lifetimes, in-place results and memory offsets of a finished model.

`docs/plan.md` describes its JSON form, its metadata, and its C form.
"""

from .arena import run_in_arena
from .plan import Plan
from .plannable import PlannableModel

__all__ = ["Plan", "PlannableModel", "run_in_arena"]
