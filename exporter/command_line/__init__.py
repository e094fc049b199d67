"""The commands of `opsetta`."""
