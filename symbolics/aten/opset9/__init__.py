"""The base symbolic functions of ATen's operators, which serve from opset 9 on."""
