"""Local response normalization, which divides by a power of the squares in a window of channels."""

from __future__ import annotations

from ...registration import GraphContext, Value


def response_normalization(
    g: GraphContext, images: Value, size: int, alpha: float, beta: float, bias: float
) -> Value:
    """LRN of ONNX with any parameters: onnxruntime takes only positive `alpha` and `beta`, and an odd size.

    Args:
        images: channels are its second axis.
        alpha: the factor of the mean of the squares.

    Raises:
        UnsupportedError: the size is even or not positive, or a parameter is negative.
    """
    if size < 1 or size % 2 == 0:
        raise g.refuse(f"its window of {size} channels must be odd and positive")
    if not all(number >= 0 for number in (alpha, beta, bias)):
        raise g.refuse(f"its alpha {alpha:g}, beta {beta:g} and bias {bias:g} must be 0 or more")
    if alpha and beta:
        return g.op("LRN", images, size=size, alpha=alpha, beta=beta, bias=bias)
    if not beta:
        return g.op("Identity", images)
    return g.op("Div", images, bias**beta)
