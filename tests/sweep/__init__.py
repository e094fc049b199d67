"""The operator sweep: torch's own databases of samples, exported, run and compared at many opsets.

`python -m tests.sweep` runs it; `make sweep` does, after the tests.
"""
