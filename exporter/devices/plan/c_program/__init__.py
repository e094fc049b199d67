"""The program in C of a model: what its runtime reads, from nodes of ONNX, and the runtime itself."""
