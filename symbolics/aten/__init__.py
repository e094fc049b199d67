"""ATen's operators, registered from opset 9 on: a folder or module per subject."""
