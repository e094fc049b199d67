"""The ONNX graph under construction, which symbolic functions, emission and the driver share."""
