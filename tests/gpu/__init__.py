"""Models on a GPU; see `__main__`."""
