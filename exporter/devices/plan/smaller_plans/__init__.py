"""Changes of a model that need less memory: other orders, nodes in parts, and nodes that run twice."""
