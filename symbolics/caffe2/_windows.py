"""Windows of convolution and pooling: sizes, strides, and the three padding modes of Caffe2."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from ...registration import GraphContext, Value
from ..compositions.spatial.windows import spatial_sizes

NOTSET, VALID, SAME, CAFFE_LEGACY_POOLING = range(4)
"""The values of `legacy_pad`: explicit pads, none, as many as keep ceil(size / stride) windows with the odd
one at the end, and Caffe's pooling, which rounds the number of windows up."""


@dataclasses.dataclass(frozen=True)
class Window:
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
    ) -> Window:
        """The window of an operator's arguments, with Caffe2's defaults.

        Raises:
            UnsupportedError: Caffe2 refuses the arguments, too.
        """
        count = len(kernels)
        found = cls(
            list(kernels),
            list(strides) or [1] * count,
            list(pads) or [0] * (2 * count),
            list(dilations) or [1] * count,
            legacy_pad,
        )
        if not count or min(found.kernels) < 1:
            raise g.refuse("it has no kernel size, or one that is not positive")
        if len(found.strides) != count or len(found.dilations) != count or len(found.pads) != 2 * count:
            raise g.refuse(
                f"it has {count} kernel sizes, {len(found.strides)} strides, {len(found.dilations)} "
                f"dilations and {len(found.pads)} pads"
            )
        if min(found.strides) < 1 or min(found.dilations) < 1 or min(found.pads) < 0:
            raise g.refuse("it has a stride or dilation that is not positive, or a negative pad")
        if legacy_pad not in range(4):
            raise g.refuse(f"legacy_pad must be from 0 to 3, not {legacy_pad}")
        if legacy_pad in (VALID, SAME) and any(pads):
            raise g.refuse("it has pads together with legacy_pad VALID or SAME, which computes them")
        if legacy_pad == SAME and set(found.dilations) != {1}:
            raise g.refuse("it has dilations together with legacy_pad SAME, which is not supported")
        return found

    @property
    def count(self) -> int:
        """The number of spatial dimensions."""
        return len(self.kernels)

    @property
    def heads(self) -> list[int]:
        """The pads before each dimension."""
        return self.pads[: self.count]

    @property
    def attributes(self) -> dict[str, Any]:
        """The attributes of an ONNX operator besides pads."""
        return {
            "kernel_shape": self.kernels,
            "strides": self.strides,
            "dilations": self.dilations if set(self.dilations) != {1} else None,
        }

    def same_pads(self, sizes: Sequence[int]) -> tuple[list[int], list[int]]:
        """The pads of SAME for known sizes; a stride above the kernel size crops with negative pads."""
        heads, tails = [], []
        for size, kernel, stride in zip(sizes, self.kernels, self.strides, strict=True):
            needed = (-(-size // stride) - 1) * stride + kernel - size
            heads.append(needed // 2 if needed >= 0 else -(-needed // 2))
            tails.append(needed - heads[-1])
        return heads, tails

    def output_sizes(self, sizes: Sequence[int] | None, pads: Sequence[int] | None) -> list[int | None]:
        """The number of windows along each spatial dimension; None where it is unknown."""
        if sizes is None or pads is None:
            return [None] * self.count
        found: list[int | None] = []
        for i, size in enumerate(sizes):
            extent = self.dilations[i] * (self.kernels[i] - 1) + 1
            found.append((size + pads[i] + pads[self.count + i] - extent) // self.strides[i] + 1)
        return found

    def placed(self, g: GraphContext, input: Value) -> tuple[Value, dict[str, Any], list[int | None]]:
        """The [N, C, spatial...] input, the padding attributes, and the sizes of the result.

        SAME with a stride above the kernel size crops the input.

        Raises:
            UnsupportedError: the padding depends on sizes that are unknown.
        """
        sizes = spatial_sizes(g, input, self.count)
        if self.legacy_pad in (NOTSET, VALID):
            return input, {"pads": self.pads}, self.output_sizes(sizes, self.pads)
        if self.legacy_pad == CAFFE_LEGACY_POOLING:
            if sizes is None:
                raise g.refuse("legacy_pad CAFFE_LEGACY_POOLING needs the sizes of its input: pass its shape")
            pads = self.heads + self.legacy_tails(sizes)
            return input, {"pads": pads}, self.output_sizes(sizes, pads)
        if sizes is None:
            if any(kernel < stride for kernel, stride in zip(self.kernels, self.strides, strict=True)):
                raise g.refuse(
                    "legacy_pad SAME with a stride above the kernel size needs the sizes of its input: pass "
                    "its shape"
                )
            return input, {"auto_pad": "SAME_UPPER"}, [None] * self.count
        heads, tails = self.same_pads(sizes)
        results = self.output_sizes(sizes, heads + tails)
        if min(heads + tails) < 0:
            spatial = range(self.count)
            starts = [max(-heads[i], 0) for i in spatial]
            ends = [sizes[i] + min(tails[i], 0) for i in spatial]
            input = g.op("Slice", input, starts=starts, ends=ends, axes=[i + 2 for i in spatial])
        return input, {"pads": [max(pad, 0) for pad in heads + tails]}, results

    def legacy_tails(self, sizes: Sequence[int]) -> list[int]:
        """The end pads with which floor gives the same count as Caffe's ceil, for known sizes."""
        tails = []
        for size, kernel, stride, pad in zip(sizes, self.kernels, self.strides, self.heads, strict=True):
            count = -(-(size + 2 * pad - kernel) // stride) + 1
            if pad > 0 and (count - 1) * stride >= size + pad:
                count -= 1
            tails.append(max((count - 1) * stride + kernel - size - pad, 0))
        return tails
