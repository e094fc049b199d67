"""The commands of `opsetta`, one function each."""
