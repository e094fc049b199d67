"""The base symbolic functions of ATen's operators, which apply from opset 9 on."""
