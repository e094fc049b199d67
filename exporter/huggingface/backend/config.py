"""`OpsettaConfig`: how transformers exports a model through opsetta."""

from __future__ import annotations

import dataclasses

from transformers.exporters.configs import ExportConfigMixin

from ....passes.onnx_graph.levels import DEFAULT_LEVEL, check_level
from ....registration import UsageError
from ...devices.targets.load_target import resolve_target

FORMAT = "opsetta"
"""The name of the backend among those of transformers."""


@dataclasses.dataclass
class OpsettaConfig(ExportConfigMixin):
    """The settings of an export.

    Args:
        dynamic: whether the sizes of the batch and of sequences are dynamic, if `dynamic_shapes` is not
            given. Unlike for transformers' own backends, all other sizes are those of the example.
        dynamic_shapes: the dynamic dimensions, as for `opsetta.export`.
        opset_version: the ONNX opset to write, exactly; by default the target's, or 17.
        target: as for `opsetta.export`, such as "rknn" or "onnxruntime".
        optimize: as for `opsetta.export`.
        capture: as for `opsetta.export`.
        strict: the same as `capture="strict"`.
        quantizer: refused; transformers has this setting for its own backends.

    Raises:
        UsageError: a quantizer is given, or a setting has an unknown value.
        OpsetError: opsetta does not write the opset.
    """

    export_format: str = FORMAT
    dynamic: bool = False
    dynamic_shapes: dict[str, object] | None = None
    strict: bool = False
    quantizer: object | None = None
    opset_version: int | None = None
    target: str | None = None
    optimize: str | bool = DEFAULT_LEVEL
    capture: str = "auto"

    def __post_init__(self) -> None:
        resolve_target(self.opset_version, self.target)
        check_level(self.optimize)
        if self.quantizer is not None:
            raise UsageError(
                "the quantizers of transformers do not support this backend: quantize the program with "
                "opsetta.quantize_weights"
            )
