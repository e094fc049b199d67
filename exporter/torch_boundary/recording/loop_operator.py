"""The operator that replaces a Python loop over a dynamic size."""

from __future__ import annotations

from torch._higher_order_ops.scan import scan_op as SCAN

__all__ = ["SCAN"]
