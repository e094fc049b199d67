"""ATen's operators: `opset9` is the base, a module per subject; `opsetN` has what changes at opset N."""
