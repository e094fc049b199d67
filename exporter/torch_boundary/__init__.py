"""Access to torch's private parts, and the context in which torch runs: one lock, and state restored."""
