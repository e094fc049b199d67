"""Changes weights and their element types, with the same results."""
