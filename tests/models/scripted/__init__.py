"""Programs for `torch.jit.script`: each with an example, and inputs that take other paths than it did."""
