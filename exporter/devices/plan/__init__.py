"""The compile plan: execution order, lifetimes, in-place results and memory offsets of a finished model.

`docs/plan.md` describes the plan as JSON, as metadata, and as C.
"""
