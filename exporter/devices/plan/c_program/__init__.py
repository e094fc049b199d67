"""Programs in C: the runtime, and the form in which it reads the nodes of a model."""
