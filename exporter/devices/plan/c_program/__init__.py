"""Programs in C: the runtime, and the conversion of a model's nodes to those of the runtime."""
