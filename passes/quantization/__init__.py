"""Weight-only quantization of finished graphs."""

from typing import TYPE_CHECKING

from ...registration.lazy_imports import lazy_imports

__all__ = ["Error", "Quantization", "QuantizeWeights", "Scheme"]

if TYPE_CHECKING:
    from .blocks import Scheme
    from .quantize_weights import QuantizeWeights
    from .report import Error, Quantization
else:
    __getattr__, __dir__ = lazy_imports(
        __name__,
        {
            ".blocks": ("Scheme",),
            ".quantize_weights": ("QuantizeWeights",),
            ".report": (
                "Error",
                "Quantization",
            ),
        },
    )
