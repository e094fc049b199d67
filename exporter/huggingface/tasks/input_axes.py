"""The inputs of the tasks, with the dynamic axes of each."""

from __future__ import annotations

from ..graphs import BATCH, PAST, SEQUENCE, TOTAL
from ..images.grids import ENCODER_MERGES, GRID, GRIDS, IMAGES, PATCHES
from ..images.naflex import PATCH_MASK, SHAPES
from .example_inputs import (
    CHOICES,
    HEIGHT,
    IMAGE_BATCH,
    LANGUAGES,
    MARKUP_INPUTS,
    SAMPLES,
    SERIES_INPUTS,
    SOUND_INPUTS,
    SOUND_MASK,
    TEXT_BATCH,
    WIDTH,
)

TOKENS = {0: BATCH, 1: SEQUENCE}
TEXT = dict.fromkeys(("input_ids", "attention_mask", "token_type_ids"), TOKENS)
PAGE = {
    **TEXT,
    **dict.fromkeys(("bbox", *MARKUP_INPUTS), TOKENS),
    LANGUAGES: {0: BATCH},
    # The image of a page has the size of the configuration.
    "pixel_values": {0: BATCH},
}
TEXTS_OF_CHOICES = {name: {0: BATCH, 1: CHOICES, 2: SEQUENCE} for name in TEXT}
IMAGE = {"pixel_values": {0: BATCH, 2: HEIGHT, 3: WIDTH}}
# SigLIP 2 reads patches.
IMAGE_OR_PATCHES = {**IMAGE, PATCH_MASK: {0: BATCH, 1: PATCHES}, SHAPES: {0: BATCH}}
# The number of frames is that of the configuration, and so is their size.
VIDEO = {"pixel_values": {0: BATCH}, "pixel_values_videos": {0: BATCH}}
SOUND = {name: {0: BATCH, 1: SAMPLES} for name in (*SOUND_INPUTS, "attention_mask")}
TEXTS_AND_IMAGES = {
    "input_ids": {0: TEXT_BATCH, 1: SEQUENCE},
    "pixel_values": {0: IMAGE_BATCH},
    PATCH_MASK: {0: IMAGE_BATCH, 1: PATCHES},
    SHAPES: {0: IMAGE_BATCH},
    "pixel_values_videos": {0: IMAGE_BATCH},
    "attention_mask": {0: TEXT_BATCH, 1: SEQUENCE},
}
QUESTION = {**TEXT, **IMAGE, "pixel_mask": {0: BATCH, 1: HEIGHT, 2: WIDTH}}
KEYS = {0: BATCH, 2: PAST}
"""Of keys and values of earlier tokens."""
FEATURES = {
    **PAGE,
    **IMAGE_OR_PATCHES,
    **{name: SOUND[name] for name in SOUND_INPUTS},
    SOUND_MASK: SOUND["input_features"],
    **{name: {0: BATCH} for name in SERIES_INPUTS},
    # Patches of images in grids, and of encoders of such images by themselves.
    "hidden_states": {0: PATCHES},
    **{name: {0: IMAGES} for name in (GRID, GRIDS, ENCODER_MERGES)},
}
STEPS = dict.fromkeys(
    ("states", "actions", "rewards", "returns_to_go", "timesteps", "attention_mask"), TOKENS
)
PROMPT = {
    "attention_mask": {0: BATCH, 1: TOTAL},
    "position_ids": TOKENS,
    "cache_position": {0: SEQUENCE},
    "past_key_values.{layer}.key": KEYS,
    "past_key_values.{layer}.value": KEYS,
    "past_key_values.{layer}.conv_state": {0: BATCH},
    "past_key_values.{layer}.recurrent_state": {0: BATCH},
}
