"""The base of ATen's symbolic functions, from opset 9 on."""
