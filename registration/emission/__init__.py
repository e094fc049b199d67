"""Emission of ONNX operators: binds arguments to schemas, folds constants, composes missing operators."""
