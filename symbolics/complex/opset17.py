"""Fourier transforms from opset 17: the operator DFT."""

import onnx_ir as ir

from ...registration import GraphContext, Value, onnx_symbolic
from ..compositions.sizes import known_rank
from .fourier import sized, whole_spectrum
from .real_and_imaginary import split

_SHORTEST = 64
"""Below this length a matrix product is as fast."""


@onnx_symbolic("composed::dft", opset=17)
def dft(
    g: GraphContext,
    self: Value,
    length: int | Value,
    kind: str,
    inverse: bool,
    power: float,
    onesided: bool,
) -> Value:
    """From 17: DFT if the length is a power of two.

    At other lengths onnxruntime's DFT loses half of the digits of FLOAT (Bluestein's method with a chirp in
    single precision); matrix products do not.
    """
    if isinstance(length, Value) or length < _SHORTEST or length & (length - 1):
        return g.call("composed::dft_by_matrix", self, length, kind, inverse, power, onesided)
    if kind == "r2c":
        self = g.op("Unsqueeze", self, axes=[known_rank(g, self)])
    elif kind == "c2r":
        self = whole_spectrum(g, self, length)
    dim = known_rank(g, self) - 2
    if kind == "r2c" and inverse:
        # DFT has no one-sided inverse: use the conjugate of the transform, with a scale.
        found = g.op("DFT", self, axis=dim, onesided=int(onesided))
    else:
        found = g.op("DFT", self, axis=dim, inverse=int(inverse), onesided=int(onesided))
        power += float(inverse)
    result = sized(found, self, dim, length // 2 + 1 if onesided else length)
    result.shape = ir.Shape([*list(result.shape or ())[:-1], 2])
    if kind == "r2c" and inverse:
        result = split(g, result).conj().pair()
    if power:
        result = g.op("Mul", result, float(length) ** power)
    return split(g, result).re if kind == "c2r" else result
