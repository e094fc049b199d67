"""The graph that a lowering builds, as symbolic functions, emission and the driver see it."""
