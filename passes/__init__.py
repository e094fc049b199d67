"""Graph to graph: over source graphs (in-place removal, promotion), over ONNX graphs (clean-up)."""

from .promote_types import PromoteTypes, promote_types
from .real_pairs import real_pairs
from .remove_inplace import RemoveInplace, remove_inplace

__all__ = ["PromoteTypes", "RemoveInplace", "promote_types", "real_pairs", "remove_inplace"]
