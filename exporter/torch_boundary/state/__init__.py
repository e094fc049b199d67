"""The state of a model and of the process that running torch may change: saved, replaced, and put back."""
