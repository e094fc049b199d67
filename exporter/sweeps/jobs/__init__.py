"""The jobs of a sweep: which there are, what their results depend on, and what one of them measures."""
