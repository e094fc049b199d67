"""What happens to gradients before the update: clipping, and addition over several steps."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from onnx_ir import DataType, Value

from ...registration import UsageError
from .updates import UpdateBuilder


@dataclasses.dataclass(frozen=True)
class GradientOptions:
    """How gradients are changed before the update.

    Attributes:
        clip_value: the largest magnitude of an element, or None; `torch.nn.utils.clip_grad_value_`.
        clip_norm: the largest norm of all gradients together, or None; `torch.nn.utils.clip_grad_norm_`.
        norm_type: the order of that norm.
        accumulate: whether gradients of several steps can be added up.
    """

    clip_value: float | None = None
    clip_norm: float | None = None
    norm_type: float = 2.0
    accumulate: bool = False

    @classmethod
    def from_arguments(
        cls, clip_value: float | None, clip_norm: float | tuple[float, float] | None, accumulate: bool
    ) -> GradientOptions:
        """Check the arguments of `export_training`.

        Raises:
            UsageError: both kinds of clipping, or a number that is not positive.
        """
        norm, order = clip_norm if isinstance(clip_norm, tuple) else (clip_norm, 2.0)
        if clip_value is not None and norm is not None:
            raise UsageError("clip_value and clip_norm exclude each other")
        for name, number in (
            ("clip_value", clip_value),
            ("clip_norm", norm),
            ("the order of the norm", order),
        ):
            if number is not None and not (isinstance(number, (int, float)) and number > 0.0):
                raise UsageError(f"{name} must be a positive number, not {number!r}")
        return cls(clip_value, norm, float(order), accumulate)


def clip_gradients(
    write: UpdateBuilder, gradients: Mapping[str, Value], options: GradientOptions
) -> dict[str, Value]:
    """The gradients after clipping, in the arithmetic of `torch.nn.utils`."""
    limit = options.clip_value
    if limit is not None:
        clipped = {}
        for name, gradient in gradients.items():
            clipped[name] = write.clamp(gradient, -limit, limit)
            write.label_as_update_of(gradient)
        return clipped
    if options.clip_norm is None or not gradients:
        return dict(gradients)
    factor = _clipping_factor(write, list(gradients.values()), options)
    write.label()
    clipped = {}
    for name, gradient in gradients.items():
        clipped[name] = write.mul(gradient, write.cast(factor, gradient.dtype))
        write.label_as_update_of(gradient)
    return clipped


def _clipping_factor(write: UpdateBuilder, gradients: list[Value], options: GradientOptions) -> Value:
    """What all gradients are multiplied with, a scalar: 1 if their common norm is small enough."""
    assert options.clip_norm is not None
    norms = [write.norm(gradient, options.norm_type) for gradient in gradients]
    # torch promotes norms of several element types when it stacks them.
    types = {norm.dtype for norm in norms}
    if len(types) > 1:
        widest = DataType.DOUBLE if DataType.DOUBLE in types else DataType.FLOAT
        norms = [write.cast(norm, widest) for norm in norms]
    norm = write.norm(write.stack(norms), options.norm_type)
    ratio = write.mul(write.unary("reciprocal", write.add(norm, 1e-6)), options.clip_norm)
    # An infinite norm makes the factor 0 in torch, too.
    return write.clamp(ratio, None, 1.0)
