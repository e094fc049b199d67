"""What versions of ONNX operators imply for arguments that they lack, and attributes of the oldest ones."""
