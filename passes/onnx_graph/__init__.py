"""Passes over finished ONNX graphs: folding, fusion, clean-up, annotations."""
