"""Weight-only quantization of finished graphs."""

from .blocks import Scheme
from .quantize_weights import QuantizeWeights
from .report import Error, Quantization

__all__ = ["Error", "Quantization", "QuantizeWeights", "Scheme"]
