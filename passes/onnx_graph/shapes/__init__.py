"""Rewrites of sizes, and of operators that change a shape: Reshape, Squeeze, Expand, Slice, Gather."""
