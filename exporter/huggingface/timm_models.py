"""Models of timm, which transformers builds through its class `TimmWrapper`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .packages import need_package

if TYPE_CHECKING:
    from transformers import PretrainedConfig

MODEL_TYPE = "timm_wrapper"
"""The type that transformers gives to a configuration of timm."""


def need_timm() -> None:
    """Import timm.

    Raises:
        OpsettaError: it is not installed.
    """
    need_package("timm", "models of timm")


def complete_timm_config(config: PretrainedConfig) -> None:
    """Add what a configuration of timm lacks for transformers: the class of the model."""
    # timm writes all arguments of the model; transformers passes the number of classes a second time.
    arguments = dict(getattr(config, "model_args", None) or {})
    arguments.pop("num_classes", None)
    config.model_args = arguments
    if not getattr(config, "architectures", None):
        has_head = getattr(config, "num_labels", 0) > 0
        config.architectures = ["TimmWrapperForImageClassification" if has_head else "TimmWrapperModel"]


def timm_image_shape(config: PretrainedConfig) -> tuple[int, int, int] | None:
    """Channels, height and width of the images of a model of timm; None for other models."""
    if config.model_type != MODEL_TYPE:
        return None
    shape = (getattr(config, "pretrained_cfg", None) or {}).get("input_size") or (3, 224, 224)
    channels, height, width = map(int, shape)
    return channels, height, width


def has_fixed_images(config: PretrainedConfig) -> bool:
    """Whether a timm model takes images of one size only, that of its position embeddings."""
    return config.model_type == MODEL_TYPE and bool(
        (getattr(config, "pretrained_cfg", None) or {}).get("fixed_input_size")
    )
