"""The ONNX files that generation runs: decoders with their caches, and the parts for images."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import ArrayLike

from ...registration import ModelFileError, UsageError
from ..running.runner import Runner
from ..running.session import Providers
from .folder import CONFIG, read_json
from .image_text import EMBEDDING_FILE, PIXEL_MASK, VISION_FILE
from .layouts.merged_decoders import is_cross_cache
from .static_calls import StaticCalls

PAST_PREFIX, PRESENT_PREFIX = "past_key_values.", "present."
"""The beginnings of the names of the inputs and outputs of a cache."""


class ImageParts:
    """The graphs that make the inputs of a decoder from tokens and images.

    Args:
        folder: with the files, and config.json.
        providers: execution providers of onnxruntime.
    """

    def __init__(self, folder: pathlib.Path, providers: Providers):
        self._embedding = GenerationGraph(folder / EMBEDDING_FILE, providers)
        self._vision = GenerationGraph(folder / VISION_FILE, providers)
        config = read_json(folder / CONFIG)
        # The name in older releases of transformers.
        self._image_token = config.get("image_token_id", config.get("image_token_index"))

    def mark_images(self, tokens: np.ndarray) -> np.ndarray:
        """Which tokens stand for images, as the decoders of some models have them."""
        marks: np.ndarray = tokens == self._image_token
        return marks.astype(np.int64)

    def make_embeddings(
        self,
        tokens: np.ndarray,
        pixel_values: ArrayLike | None = None,
        pixel_attention_mask: ArrayLike | None = None,
    ) -> np.ndarray:
        """The embeddings of tokens, with the features of images at the image tokens.

        Raises:
            UsageError: there are more image tokens than features, or fewer; or the file needs no mask.
        """
        embeddings: np.ndarray = self._embedding.run({"input_ids": tokens})["inputs_embeds"].numpy()
        if pixel_values is None:
            return embeddings
        declared = self._vision.inputs["pixel_values"]
        images = np.asarray(pixel_values, dtype=numpy_type(declared.dtype))
        feed: dict[str, np.ndarray] = {}
        if PIXEL_MASK in self._vision.inputs:
            shape = (*images.shape[:2], *images.shape[3:])
            mask = np.ones(shape) if pixel_attention_mask is None else np.asarray(pixel_attention_mask)
            feed[PIXEL_MASK] = mask.astype(bool)
        elif pixel_attention_mask is not None:
            raise UsageError("this model has no mask of pixels: leave out pixel_attention_mask")
        # The file of some models takes one image at a time.
        count = next(iter(declared.shape or ()), None)
        parts = [images] if not isinstance(count, int) else np.split(images, len(images) // count)
        results = [
            self._vision.run({"pixel_values": part, **feed})["image_features"].numpy() for part in parts
        ]
        features = np.concatenate(results)
        positions = tokens == self._image_token
        if positions.sum() != len(features):
            raise UsageError(
                f"the images have {len(features)} features, and the tokens {positions.sum()} image tokens "
                f"({self._image_token})"
            )
        embeddings = embeddings.copy()
        embeddings[positions] = features
        return embeddings


class GenerationGraph:
    """A session of one file.

    Attributes:
        inputs: its inputs by name.
        past: the inputs of its cache.
        masks_new_tokens: whether its mask has the length of the tokens, without the past.
        static: the calls of a file with a static cache.
    """

    def __init__(self, path: pathlib.Path, providers: Providers):
        if not path.is_file():
            raise ModelFileError(f"there is no file '{path}': write the folder with opsetta export --hf")
        self._runner = Runner.of_file(path, providers=providers)
        self.inputs = self._runner.inputs.declared
        self.masks_new_tokens = False
        if "attention_mask" in self.inputs:
            # A model whose states have no positions masks the new tokens, others all positions.
            tokens_name = "input_ids" if "input_ids" in self.inputs else "inputs_embeds"
            mask, tokens = (self.inputs[name].shape or () for name in ("attention_mask", tokens_name))
            self.masks_new_tokens = mask[1:2] == tokens[1:2]
        self.past = [declared for name, declared in self.inputs.items() if name.startswith(PAST_PREFIX)]
        self.static = StaticCalls.of_inputs(self.inputs)

    def calls(
        self, tokens: np.ndarray, next_tokens: np.ndarray, fixed: Mapping[str, Any]
    ) -> Iterator[tuple[dict[str, np.ndarray], int]]:
        """The inputs of the calls of a step that depend on the tokens, and the column of its last token.

        Args:
            tokens: all of them.
            next_tokens: the last ones, which are not in the cache.
            fixed: the other inputs, with the mask of all tokens.
        """
        if self.static is not None:
            yield from self.static.feeds(tokens, fixed["attention_mask"], next_tokens.shape[1])
            return
        feed = {}
        if "position_ids" in self.inputs:
            # Positions count real tokens only, so that padding on the left does not shift a prompt.
            positions = np.maximum(fixed["attention_mask"].cumsum(axis=1) - 1, 0)
            feed["position_ids"] = positions[:, -next_tokens.shape[1] :]
        if self.masks_new_tokens:
            feed["attention_mask"] = fixed["attention_mask"][:, -next_tokens.shape[1] :]
        yield feed, -1

    def empty_cache(self, batch: int) -> dict[str, np.ndarray]:
        """A cache without positions, whose states are zero; none if the graph has no such inputs."""
        cache = {}
        for declared in self.past:
            # Batch and length are names in the declaration; heads and width are numbers.
            first, *others = declared.shape or ()
            sizes = [size if isinstance(size, int) else 0 for size in others]
            shape = (first if isinstance(first, int) else batch, *sizes)
            # Some caches count their tokens.
            is_counter = declared.dtype == ir.DataType.INT64
            cache[declared.name] = np.zeros(shape, np.int64 if is_counter else numpy_type(declared.dtype))
        return cache

    def run(self, inputs: Mapping[str, object]) -> dict[str, Any]:
        """Run the graph with those of the inputs that it has.

        Returns:
            The outputs by name, as onnxruntime's values, which are not copied.
        """
        feed = {name: value for name, value in inputs.items() if name in self.inputs}
        return dict(zip(self._runner.output_names, self._runner.run(feed), strict=True))


def next_cache(results: Mapping[str, Any], has_past: bool) -> dict[str, Any]:
    """The inputs of the next call from the outputs of a call.

    onnxruntime's values stay as they are: numpy arrays would copy the cache in each step.

    Args:
        results: of the call by name.
        has_past: whether the call had a cache, whose keys of cross-attention stay.
    """
    return {
        PAST_PREFIX + name.removeprefix(PRESENT_PREFIX): value
        for name, value in results.items()
        if name.startswith(PRESENT_PREFIX) and not (has_past and is_cross_cache(name))
    }


def reorder_cache(cache: Mapping[str, Any], rows: np.ndarray) -> dict[str, Any]:
    """The cache of sequences that continue other ones.

    Args:
        cache: the tensors by name, with the batch as their first axis.
        rows: for each sequence, the number of the one that it continues.
    """
    if np.array_equal(rows, np.arange(len(rows))):
        return dict(cache)
    return {
        # The rows of one prompt have the same keys of cross-attention, and counters have no batch.
        name: value if is_cross_cache(name) or not value.shape() else value.numpy()[rows]
        for name, value in cache.items()
    }


def numpy_type(dtype: ir.DataType | None) -> np.dtype:
    """The numpy type of an input.

    Raises:
        UsageError: the files have another element type than those that generation supports.
    """
    if dtype not in (ir.DataType.FLOAT, ir.DataType.FLOAT16):
        name = "an unknown type" if dtype is None else str(dtype).lower()
        raise UsageError(
            f"generation does not support a model in {name}: export it with dtype='float32' or 'float16'"
        )
    return dtype.numpy()
