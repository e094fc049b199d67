"""ONNX's own backend cases, each converted to other opsets and run there."""
