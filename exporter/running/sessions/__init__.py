"""Sessions that run models: in onnxruntime, in onnx's reference implementation, and in OpenVINO."""
