"""Windows of convolution and pooling: sizes, strides, and the three padding modes of Caffe2."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from ...registration import GraphContext, Value
from ..compositions.spatial.windows import spatial_sizes

NOTSET, VALID, SAME, CAFFE_LEGACY_POOLING = range(4)
"""The values of `legacy_pad`: explicit pads; no pads; pads for ceil(size / stride) windows, an odd pad at the
end; Caffe's pooling, which rounds the number of windows up.
"""


@dataclasses.dataclass(frozen=True)
class SlidingWindow:
    """A window, with one number per spatial dimension in each list; `pads` has all begins, then all ends."""

    kernels: list[int]
    strides: list[int]
    pads: list[int]
    dilations: list[int]
    legacy_pad: int

    @classmethod
    def of(
        cls,
        g: GraphContext,
        kernels: Sequence[int],
        strides: Sequence[int],
        pads: Sequence[int],
        dilations: Sequence[int],
        legacy_pad: int,
    ) -> SlidingWindow:
        """Make the window from an operator's arguments, with Caffe2's defaults."""
        count = len(kernels)
        window = cls(
            list(kernels),
            list(strides) or [1] * count,
            list(pads) or [0] * (2 * count),
            list(dilations) or [1] * count,
            legacy_pad,
        )
        if not count or min(window.kernels) < 1:
            raise g.refuse("it has no kernel size, or one that is not positive")
        if len(window.strides) != count or len(window.dilations) != count or len(window.pads) != 2 * count:
            raise g.refuse(
                f"it has {count} kernel sizes, {len(window.strides)} strides, {len(window.dilations)} "
                f"dilations and {len(window.pads)} pads"
            )
        if min(window.strides) < 1 or min(window.dilations) < 1 or min(window.pads) < 0:
            raise g.refuse("it has a stride or dilation that is not positive, or a negative pad")
        if legacy_pad not in range(4):
            raise g.refuse(f"legacy_pad must be from 0 to 3, not {legacy_pad}")
        if legacy_pad in (VALID, SAME) and any(pads):
            raise g.refuse("it has pads together with legacy_pad VALID or SAME, which computes them")
        if legacy_pad == SAME and set(window.dilations) != {1}:
            raise g.refuse("it has dilations together with legacy_pad SAME, which is not supported")
        return window

    @property
    def count(self) -> int:
        """The number of spatial dimensions."""
        return len(self.kernels)

    @property
    def begin_pads(self) -> list[int]:
        """The pads before each dimension."""
        return self.pads[: self.count]

    @property
    def attributes(self) -> dict[str, Any]:
        """The attributes of the ONNX operator, except for its pads."""
        return {
            "kernel_shape": self.kernels,
            "strides": self.strides,
            "dilations": self.dilations if set(self.dilations) != {1} else None,
        }

    def same_pads(self, sizes: Sequence[int]) -> tuple[list[int], list[int]]:
        """The pads of SAME for known sizes; negative pads crop if the stride is larger than the kernel."""
        begins, ends = [], []
        for size, kernel, stride in zip(sizes, self.kernels, self.strides, strict=True):
            total = (-(-size // stride) - 1) * stride + kernel - size
            begins.append(total // 2 if total >= 0 else -(-total // 2))
            ends.append(total - begins[-1])
        return begins, ends

    def output_sizes(self, sizes: Sequence[int] | None, pads: Sequence[int] | None) -> list[int | None]:
        """The number of windows along each spatial dimension; None where it is unknown."""
        if sizes is None or pads is None:
            return [None] * self.count
        counts: list[int | None] = []
        for i, size in enumerate(sizes):
            extent = self.dilations[i] * (self.kernels[i] - 1) + 1
            counts.append((size + pads[i] + pads[self.count + i] - extent) // self.strides[i] + 1)
        return counts

    def pad_input(self, g: GraphContext, input: Value) -> tuple[Value, dict[str, Any], list[int | None]]:
        """Return the [N, C, spatial...] input, the padding attributes, and the sizes of the result.

        If SAME has negative pads, the input is cropped by a Slice, because ONNX has no negative pads.
        """
        sizes = spatial_sizes(g, input, self.count)
        if self.legacy_pad in (NOTSET, VALID):
            return input, {"pads": self.pads}, self.output_sizes(sizes, self.pads)
        if self.legacy_pad == CAFFE_LEGACY_POOLING:
            if sizes is None:
                raise g.refuse("legacy_pad CAFFE_LEGACY_POOLING needs the sizes of its input: pass its shape")
            pads = self.begin_pads + self.legacy_end_pads(sizes)
            return input, {"pads": pads}, self.output_sizes(sizes, pads)
        if sizes is None:
            if any(kernel < stride for kernel, stride in zip(self.kernels, self.strides, strict=True)):
                raise g.refuse(
                    "legacy_pad SAME with a stride above the kernel size needs the sizes of its input: pass "
                    "its shape"
                )
            # SAME_UPPER puts an odd pad at the end, as Caffe2 does.
            return input, {"auto_pad": "SAME_UPPER"}, [None] * self.count
        begins, end_pads = self.same_pads(sizes)
        results = self.output_sizes(sizes, begins + end_pads)
        if min(begins + end_pads) < 0:
            spatial = range(self.count)
            starts = [max(-begins[i], 0) for i in spatial]
            ends = [sizes[i] + min(end_pads[i], 0) for i in spatial]
            input = g.op("Slice", input, starts=starts, ends=ends, axes=[i + 2 for i in spatial])
        return input, {"pads": [max(pad, 0) for pad in begins + end_pads]}, results

    def legacy_end_pads(self, sizes: Sequence[int]) -> list[int]:
        """The end pads with which rounding down gives as many windows as Caffe, which rounds up."""
        end_pads = []
        for size, kernel, stride, pad in zip(sizes, self.kernels, self.strides, self.begin_pads, strict=True):
            count = -(-(size + 2 * pad - kernel) // stride) + 1
            # Caffe drops a last window that would begin in the end pads.
            if pad > 0 and (count - 1) * stride >= size + pad:
                count -= 1
            end_pads.append(max((count - 1) * stride + kernel - size - pad, 0))
        return end_pads
