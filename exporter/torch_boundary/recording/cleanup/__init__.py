"""Cleans up a recorded graph, as torch.export does: dead nodes, regions, and constants."""
