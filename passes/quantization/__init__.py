"""Weight-only quantization of finished graphs."""

from typing import TYPE_CHECKING

from ...registration.lazy_imports import lazy_imports

__all__ = ["Error", "Quantization", "QuantizeWeights", "Scheme", "scheme_of"]

if TYPE_CHECKING:
    from .blocks import Scheme, scheme_of
    from .quantize_weights import QuantizeWeights
    from .report import Error, Quantization
else:
    __getattr__, __dir__ = lazy_imports(
        __name__,
        {
            ".blocks": ("Scheme", "scheme_of"),
            ".quantize_weights": ("QuantizeWeights",),
            ".report": ("Error", "Quantization"),
        },
    )
