"""The tasks of models: one record for each, in `table.py`, with all that an export needs to know of it."""
