"""Graph to graph: over source graphs (in-place removal, promotion), over ONNX graphs (clean-up)."""

from .complex_pairs.real_pairs import real_pairs
from .inplace.remove_inplace import RemoveInplace, remove_inplace
from .promotion.promote_types import PromoteTypes, promote_types

__all__ = ["PromoteTypes", "RemoveInplace", "promote_types", "real_pairs", "remove_inplace"]
