"""ATen: `opset9` is the base, a module per subject; `opsetN` holds what changes meaning or reach at N."""
