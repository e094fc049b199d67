"""`CaptureOptions`: how a PyTorch model is captured."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...registration import CaptureError, UsageError

if TYPE_CHECKING:
    from .stored_weights.opening import Weights

_METHODS = ("auto", "direct", "torch.export", "strict", "trace")
_MUTATIONS = ("outputs", "state", "error", "drop")


@dataclasses.dataclass(frozen=True, kw_only=True)
class CaptureOptions:
    """The options of `export` that say how a model is captured. `export` describes each for its users.

    Attributes:
        dynamic_shapes: the dynamic dimensions as for torch.export, where a string may replace a `Dim`.
        dynamic_axes: the same in torch.onnx's older form, by input name.
        input_names, output_names: names of the user's, which `dynamic_axes` may use.
        mutations: what becomes of writes to inputs and buffers: "outputs", "state", "drop" or "error".
        strict: the same as `capture="strict"`.
        capture: the way to capture. "direct" records the model's operators; "torch.export" captures with it;
            "strict" does so through TorchDynamo; "trace" follows the example with torch.jit.trace; "auto" is
            direct, or the first of the others that captures a model which direct capture does not.
            "gradients", which only training uses, is torch.export that also records where the model switches
            gradients off.
        specialize: where a decision depends on the values of inputs, take that of the example.
        narrow: accept a capture that is not valid for every size of a dynamic dimension, with a warning: of
            all dimensions, or of those with these names.
        guard: write the sizes for which the capture is valid as checks into the graph.
        source_lines: keep the user's source line on every node.
        explain: after a failed capture, try other captures of a copy of the model, and name those that work.
        weights: the weights of a model that was built without them.
    """

    dynamic_shapes: object = None
    dynamic_axes: Mapping[str, Any] | None = None
    input_names: Sequence[str] | None = None
    output_names: Sequence[str] | None = None
    mutations: str = "error"
    strict: bool = False
    capture: str = "auto"
    specialize: bool = False
    narrow: bool | Collection[str] = False
    guard: bool = False
    source_lines: bool = False
    explain: bool = False
    weights: Weights | None = None

    @property
    def method(self) -> str:
        """The way to capture: `capture`, or "strict" if `strict` is set."""
        return "strict" if self.strict else self.capture

    def check(self) -> None:
        """Refuse values that a user must not pass.

        Raises:
            UsageError: `capture`, `mutations` or `narrow` has an unknown value, or `capture` contradicts
                `strict` or `specialize`.
            CaptureError: `dynamic_axes` is not a dict.
        """
        if self.capture not in _METHODS:
            raise UsageError(f"capture must be one of {', '.join(map(repr, _METHODS))}, not {self.capture!r}")
        if self.strict and self.capture not in ("auto", "strict"):
            raise UsageError(
                f"strict=True means capture='strict', and cannot be combined with capture={self.capture!r}"
            )
        if self.specialize and self.method not in ("auto", "direct", "trace"):
            raise UsageError(
                f"specialize=True needs capture='auto', 'direct' or 'trace', not {self.method!r}"
            )
        if not isinstance(self.narrow, (bool, Collection)) or isinstance(self.narrow, str):
            raise UsageError(
                f"narrow must be True, False, or the names of dimensions in a list, not {self.narrow!r}"
            )
        if self.mutations not in _MUTATIONS:
            values = ", ".join(map(repr, _MUTATIONS))
            raise UsageError(f"mutations must be one of {values}, not {self.mutations!r}")
        if self.dynamic_axes is not None and not isinstance(self.dynamic_axes, Mapping):
            raise CaptureError(
                "dynamic_axes must be a dict from input names to axes, such as {'x': {0: 'batch'}}, not "
                f"{type(self.dynamic_axes).__name__}"
            )
