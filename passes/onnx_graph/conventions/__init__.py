"""ONNX passes that write a graph in the form that consumers read; each keeps the results of the model."""
