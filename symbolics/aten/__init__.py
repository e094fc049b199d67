"""ATen's operators, registered from opset 9 on: a folder or module per subject."""

# Whichever module is imported first, all of ATen's are, in one order.
from .. import aten_functions  # noqa: F401
