"""Transformations of source graphs (in-place removal, promotion) and of ONNX graphs (clean-up, fusion)."""

from typing import TYPE_CHECKING

from ..registration.lazy_imports import lazy_imports

__all__ = ["PromoteTypes", "RemoveInplace", "promote_types", "real_pairs", "remove_inplace"]

if TYPE_CHECKING:
    from .complex_pairs.real_pairs import real_pairs
    from .inplace.remove_inplace import RemoveInplace, remove_inplace
    from .promotion.promote_types import PromoteTypes, promote_types
else:
    __getattr__, __dir__ = lazy_imports(
        __name__,
        {
            ".complex_pairs.real_pairs": ("real_pairs",),
            ".inplace.remove_inplace": ("RemoveInplace", "remove_inplace"),
            ".promotion.promote_types": ("PromoteTypes", "promote_types"),
        },
    )
