"""Emission: an ONNX operator from its arguments, bound to the schema of its version, folded, or composed."""
