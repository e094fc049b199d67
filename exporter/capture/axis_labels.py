"""Names of axes that torch.onnx's users give."""


class AxisLabel(str):
    """A name of an axis that is written to the file and promises nothing.

    The same label may stand for different sizes, and two labels for sizes that the model makes equal.
    """

    __slots__ = ()
