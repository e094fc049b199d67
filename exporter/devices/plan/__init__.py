"""The compile plan: execution order, lifetimes, in-place results and memory offsets of a finished model.

`docs/plan.md` describes its JSON form, its metadata, and its C form.
"""
