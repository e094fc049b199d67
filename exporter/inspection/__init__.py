"""Looks into ONNX models: costs of nodes, differences between two models, the smallest part that fails."""
