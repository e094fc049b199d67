"""Axis labels of torch.onnx's `dynamic_axes`."""


class AxisLabel(str):
    """A name of an axis in the file that states no equality.

    Dimensions with the same label may differ, and dimensions with different labels may be equal.
    """

    __slots__ = ()
