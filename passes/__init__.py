"""Transformations of source graphs (in-place removal, promotion) and of ONNX graphs (clean-up, fusion)."""

from .complex_pairs.real_pairs import real_pairs
from .inplace.remove_inplace import RemoveInplace, remove_inplace
from .promotion.promote_types import PromoteTypes, promote_types
